use std::collections::VecDeque;

use flowlane::generate::Random;
use flowlane::rule::action::PortNo;

use super::link::Status;
use super::*;

/// A frame of Open vSwitch 3.1, captured: an active bond of two links sends its first PDU.
const CAPTURED: &str = "0180c2000002da196445c9d6880901010114fffe82d307d83c410001ffff0001bf000000\
    02140000000000000000000000000000020000000310";

fn captured() -> Vec<u8> {
    let bytes =
        (0..CAPTURED.len()).step_by(2).map(|at| u8::from_str_radix(&CAPTURED[at..at + 2], 16).unwrap());
    let mut frame: Vec<u8> = bytes.collect();
    frame.resize(FRAME_BYTES, 0);
    frame
}

fn settings(system: u8) -> LacpSettings {
    let system = SystemId { priority: 65534, mac: [2, 0, 0, 0, 0, system] };
    LacpSettings { is_active: true, is_fast: true, system, falls_back: false }
}

fn link_settings(n: u16) -> LinkSettings {
    LinkSettings { name: format!("m{n}"), mac: [2, 0, 0, 0, 1, n as u8], id: n, priority: 65535, key: 0 }
}

fn lacp(settings: LacpSettings, links: u16) -> Lacp {
    let mut lacp = Lacp::new(settings);
    let links: Vec<_> = (1..=links).map(|n| (PortNo(n.into()), link_settings(n), true)).collect();
    lacp.set_links(&links, 0);
    lacp
}

/// Two ends, and the links between them, by a clock of one millisecond.
struct Pair {
    ends: [Lacp; 2],
    /// Frames under way to each end: when they arrive, and through which link.
    to: [VecDeque<(u64, PortNo, Vec<u8>)>; 2],
    now_ms: u64,
    loss: f64,
    random: Random,
    sent: [usize; 2],
}

impl Pair {
    fn new(a: Lacp, b: Lacp) -> Self {
        let to = [VecDeque::new(), VecDeque::new()];
        Self { ends: [a, b], to, now_ms: 0, loss: 0.0, random: Random::new(7), sent: [0; 2] }
    }

    /// Lets a millisecond pass.
    fn pass(&mut self) {
        for end in 0..2 {
            while self.to[end].front().is_some_and(|(at_ms, ..)| *at_ms <= self.now_ms) {
                let (_, port, frame) = self.to[end].pop_front().unwrap();
                self.ends[end].receive(port, &frame, self.now_ms).unwrap();
            }
            let is_due = self.ends[end].deadline_ms() <= self.now_ms;
            let frames = self.ends[end].run(self.now_ms);
            assert!(is_due || frames.is_empty(), "a frame before its deadline");
            assert!(self.ends[end].deadline_ms() > self.now_ms, "work is left");
            self.sent[end] += frames.len();
            for (port, frame) in frames {
                if !self.random.chance(self.loss) {
                    self.to[1 - end].push_back((self.now_ms + 3, port, frame));
                }
            }
        }
        self.now_ms += 1;
    }

    fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.pass());
    }

    /// Lets time pass until both ends use these links; returns how long it took.
    fn until(&mut self, limit_ms: u64, links: &[u32]) -> Option<u64> {
        let uses = |lacp: &Lacp| -> Vec<u32> {
            lacp.links.keys().filter(|port| lacp.may_enable(**port)).map(|port| port.0).collect()
        };
        for passed in 0..limit_ms {
            if self.ends.iter().all(|end| uses(end) == links) {
                return Some(passed);
            }
            self.pass();
        }
        None
    }

    fn set_up(&mut self, port: u32, is_up: bool) {
        let now_ms = self.now_ms;
        self.ends.iter_mut().for_each(|end| end.set_up(PortNo(port), is_up, now_ms));
        self.to.iter_mut().for_each(|to| to.retain(|(_, one, _)| one.0 != port));
    }
}

#[test]
fn a_pdu_of_open_vswitch_is_read_and_written() {
    let frame = captured();
    let pdu = Pdu::read(&frame).unwrap();
    let system = SystemId { priority: 65534, mac: [0x82, 0xd3, 0x07, 0xd8, 0x3c, 0x41] };
    let flags = Flags(0xbf);
    let expected = Actor { system, key: 1, port_priority: 65535, port_id: 1, flags };
    assert_eq!((pdu.actor, pdu.partner), (expected, Actor { flags: Flags(2), ..Actor::default() }));
    assert_eq!(pdu.frame(frame[6..12].try_into().unwrap()), frame);
}

#[test]
fn frames_that_are_no_pdus_are_refused() {
    let frame = captured();
    for len in 0..frame.len() {
        let expected = if len <= 14 { Refused::NotLacp } else { Refused::Length };
        assert_eq!(Pdu::read(&frame[..len]), Err(expected), "{len}");
    }
    for (at, byte, expected) in [
        (0, 0x03, Refused::NotLacp),
        (13, 0x10, Refused::NotLacp),
        (14, 9, Refused::NotLacp),
        (14, 2, Refused::Marker),
        (16, 2, Refused::Part(1)),
        (17, 19, Refused::Part(1)),
        (37, 255, Refused::Part(2)),
        (57, 0, Refused::Part(3)),
    ] {
        let mut wrong = frame.clone();
        wrong[at] = byte;
        assert_eq!(Pdu::read(&wrong), Err(expected), "{at}");
    }
    // A later version, and a longer frame.
    let mut later = frame.clone();
    later[15] = 2;
    later.extend([1; 50]);
    assert_eq!(Pdu::read(&later), Pdu::read(&frame));
}

#[test]
fn two_ends_agree_on_their_links() {
    let mut pair = Pair::new(lacp(settings(1), 2), lacp(settings(2), 2));
    let took_ms = pair.until(1000, &[1, 2]).expect("both links are used");
    assert!(took_ms < 30, "{took_ms} ms");
    let all = 0x3f;
    let flags =
        |pair: &Pair| pair.ends[0].links.values().map(|link| link.partner.flags.0).collect::<Vec<_>>();
    pair.run(100);
    assert_eq!(flags(&pair), [all, all]);
    // Each sends once a second on each link.
    pair.run(2000);
    let before = pair.sent;
    pair.run(10_000);
    assert_eq!([0, 1].map(|end| pair.sent[end] - before[end]), [20, 20]);
    assert!(pair.ends.iter().all(|end| end.is_negotiated() && end.is_current(PortNo(1))));
    // A link goes, and comes again.
    pair.set_up(1, false);
    assert_eq!(pair.until(10, &[2]), Some(0));
    pair.set_up(1, true);
    assert!(pair.until(1500, &[1, 2]).is_some());
}

#[test]
fn one_end_is_active_and_slow_ends_send_rarely() {
    let passive = |system| LacpSettings { is_active: false, is_fast: false, ..settings(system) };
    let mut pair = Pair::new(lacp(passive(1), 2), lacp(passive(2), 2));
    pair.run(200_000);
    assert_eq!((pair.sent, pair.ends[0].is_negotiated()), ([0, 0], false), "none begins");
    let active = LacpSettings { is_active: true, ..passive(2) };
    pair.ends[1].configure(active);
    assert!(pair.until(1000, &[1, 2]).is_some());
    pair.run(2000);
    let before = pair.sent;
    pair.run(300_000);
    assert_eq!([0, 1].map(|end| pair.sent[end] - before[end]), [20, 20]);
}

#[test]
fn a_neighbour_that_says_nothing_is_lost_after_its_timeout() {
    let mut pair = Pair::new(lacp(settings(1), 2), lacp(settings(2), 2));
    pair.until(1000, &[1, 2]).unwrap();
    pair.run(5000);
    pair.loss = 1.0;
    let lost_ms = pair.until(10_000, &[]).unwrap();
    assert!((1990..=3010).contains(&lost_ms), "{lost_ms} ms");
    let is = |pair: &Pair, status| pair.ends[0].links.values().all(|link| link.status == status);
    pair.run(20);
    assert!(is(&pair, Status::Expired));
    pair.run(3010);
    assert!(is(&pair, Status::Defaulted) && !pair.ends[0].is_negotiated());
    pair.loss = 0.0;
    // Those that ask for nothing get a PDU in half a minute.
    assert!(pair.until(31_000, &[1, 2]).is_some());
}

#[test]
fn links_stay_with_some_loss_and_come_with_much() {
    for seed in 1..=20 {
        let mut pair = Pair::new(lacp(settings(1), 3), lacp(settings(2), 3));
        (pair.random, pair.loss) = (Random::new(seed), 0.5);
        assert!(pair.until(60_000, &[1, 2, 3]).is_some(), "seed {seed}");
        pair.loss = 0.0;
        pair.run(10_000);
        assert_eq!(pair.until(1, &[1, 2, 3]), Some(0), "seed {seed}");
    }
}

#[test]
fn links_to_other_systems_or_of_other_keys_do_not_join() {
    // The first link leads to another system.
    let mut a = lacp(settings(1), 2);
    let (mut b, mut c) = (lacp(settings(2), 2), lacp(settings(3), 2));
    for now_ms in 0..3000 {
        for (port, frame) in a.run(now_ms) {
            let other = if port.0 == 1 { &mut b } else { &mut c };
            other.receive(port, &frame, now_ms).unwrap();
        }
        for (other, link) in [(&mut b, 1), (&mut c, 2)] {
            for (port, frame) in other.run(now_ms).into_iter().filter(|(port, _)| port.0 == link) {
                a.receive(port, &frame, now_ms).unwrap();
            }
        }
    }
    assert_eq!([1, 2].map(|port| a.may_enable(PortNo(port))), [true, false]);
    // A key of its own.
    let mut pair = Pair::new(lacp(settings(1), 2), lacp(settings(2), 2));
    let other = LinkSettings { key: 9, ..link_settings(2) };
    pair.ends[1].set_links(
        &[(PortNo(1), LinkSettings { key: 8, ..link_settings(1) }, true), (PortNo(2), other, true)],
        0,
    );
    assert!(pair.until(1000, &[1]).is_some());
    pair.run(5000);
    assert_eq!(pair.until(1, &[1]), Some(0));
}

#[test]
fn a_bond_without_a_neighbour_falls_back_where_it_may() {
    for falls_back in [false, true] {
        let mut lacp = lacp(LacpSettings { falls_back, ..settings(1) }, 2);
        let sent: usize = (0..10_000).map(|now_ms| lacp.run(now_ms).len()).sum();
        assert!(sent < 20, "{sent}");
        assert_eq!([1, 2].map(|port| lacp.may_enable(PortNo(port))), [falls_back; 2]);
        assert!(!lacp.is_negotiated() && !lacp.is_current(PortNo(1)));
    }
}

#[test]
fn another_process_goes_on_and_the_neighbour_notices_nothing() {
    for (pause_ms, goes_on) in [(500, true), (3500, false)] {
        let mut pair = Pair::new(lacp(settings(1), 2), lacp(settings(2), 2));
        pair.until(1000, &[1, 2]).unwrap();
        pair.run(2000);
        let saved: Vec<(String, SavedLink)> = pair.ends[0]
            .save(pair.now_ms)
            .map(|(name, link)| (name.to_owned(), link.after(pause_ms)))
            .collect();
        assert_eq!(saved.len(), 2);
        // No process answers for a while.
        for _ in 0..pause_ms {
            pair.ends[1].run(pair.now_ms);
            pair.now_ms += 1;
        }
        pair.to.iter_mut().for_each(VecDeque::clear);
        let mut next = Lacp::new(settings(1));
        let links = [1, 2].map(|n: u16| (PortNo(n.into()), link_settings(n), true));
        next.set_links(&links, pair.now_ms);
        for (name, link) in &saved {
            let (port, ..) = links.iter().find(|(_, settings, _)| settings.name == *name).unwrap();
            next.resume(*port, link, pair.now_ms);
        }
        pair.ends[0] = next;
        assert_eq!(pair.until(1, &[1, 2]).is_some(), goes_on, "{pause_ms} ms");
        if goes_on {
            for _ in 0..5000 {
                pair.pass();
                assert_eq!(pair.until(1, &[1, 2]), Some(0), "at {} ms", pair.now_ms);
            }
        }
        assert!(pair.until(2000, &[1, 2]).is_some());
    }
}

#[test]
fn hostile_pdus_make_no_flood() {
    let mut lacp = lacp(settings(1), 2);
    let mut random = Random::new(3);
    let (mut sent, mut frame) = (0, captured());
    for now_ms in 0..10_000_u64 {
        for _ in 0..10 {
            // Another neighbour each time.
            frame[18..74].iter_mut().filter(|_| random.chance(0.3)).for_each(|byte| *byte = now_ms as u8);
            frame[36..38].copy_from_slice(&[2, 20]);
            frame[56..58].copy_from_slice(&[3, 16]);
            _ = lacp.receive(PortNo(1), &frame, now_ms);
        }
        sent += lacp.run(now_ms).iter().filter(|(port, _)| port.0 == 1).count();
        assert!(lacp.deadline_ms() > now_ms);
    }
    assert!((20..=33).contains(&sent), "{sent} PDUs in 10 seconds");
    assert_eq!(lacp.receive(PortNo(7), &frame, 0), Err(Refused::NoLink));
    // Its own PDU, that a loop brings back.
    let own = lacp.run(20_000).remove(0);
    assert_eq!(lacp.receive(own.0, &own.1, 20_000), Err(Refused::Own));
}

#[test]
fn lacp_is_described_as_open_vswitch_does() {
    let mut pair = Pair::new(lacp(settings(1), 1), lacp(LacpSettings { is_fast: false, ..settings(2) }, 1));
    pair.until(1000, &[1]).unwrap();
    pair.run(10);
    let expected = "---- bond0 ----
  status: active negotiated
  sys_id: 02:00:00:00:00:01
  sys_priority: 65534
  aggregation key: 1
  lacp_time: fast

member: m1: current attached
  port_id: 1
  port_priority: 65535
  may_enable: true

  actor sys_id: 02:00:00:00:00:01
  actor sys_priority: 65534
  actor port_id: 1
  actor port_priority: 65535
  actor key: 1
  actor state: activity timeout synchronized collecting distributing

  partner sys_id: 02:00:00:00:00:02
  partner sys_priority: 65534
  partner port_id: 1
  partner port_priority: 65535
  partner key: 1
  partner state: activity synchronized collecting distributing
";
    assert_eq!(pair.ends[0].describe("bond0"), expected);
    let counters = pair.ends[0].describe_counters("bond0");
    assert!(counters.starts_with("---- bond0 statistics ----\n\nmember: m1:\n  TX PDUs: "), "{counters}");
    assert!(counters.ends_with("  Link Expired: 0\n  Link Defaulted: 0\n  Carrier Status Changed: 0\n"));
}
