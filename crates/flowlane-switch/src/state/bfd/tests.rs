use std::collections::VecDeque;
use std::net::Ipv4Addr;

use flowlane::generate::Random;

use super::packet::Flags;
use super::*;

/// A frame of Open vSwitch 3.1, captured: a session that is down sends its first packet.
const CAPTURED: [u8; 66] = [
    0x00, 0x23, 0x20, 0x00, 0x00, 0x01, 0xfa, 0xa8, 0x54, 0x4f, 0x94, 0x4e, 0x08, 0x00, 0x45, 0xc0, 0x00,
    0x34, 0x00, 0x00, 0x00, 0x00, 0xff, 0x11, 0x64, 0xfb, 0xa9, 0xfe, 0x01, 0x01, 0xa9, 0xfe, 0x01, 0x00,
    0xc0, 0x00, 0x0e, 0xc8, 0x00, 0x20, 0x00, 0x00, 0x20, 0x40, 0x03, 0x18, 0x57, 0x7d, 0x01, 0x64, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x0f, 0x42, 0x40, 0x00, 0x0f, 0x42, 0x40, 0x00, 0x00, 0x00, 0x00,
];

/// Where parts of a frame begin.
const IP: usize = 14;
const UDP: usize = 34;
const BFD: usize = 42;

/// Two sessions and the path between them, by a clock of one millisecond.
struct Pair {
    ends: [Session; 2],
    /// Frames under way to each end, with the times of their arrival.
    to: [VecDeque<(u64, Vec<u8>)>; 2],
    now_ms: u64,
    delay_ms: u64,
    /// The part of frames to each end that are lost.
    loss: [f64; 2],
    random: Random,
    /// When each end has sent.
    sent_ms: [Vec<u64>; 2],
}

impl Pair {
    fn new(a: Settings, b: Settings) -> Self {
        Self {
            ends: [Session::new(a, 1, 0), Session::new(b, 2, 0)],
            to: [VecDeque::new(), VecDeque::new()],
            now_ms: 0,
            delay_ms: 3,
            loss: [0.0; 2],
            random: Random::new(7),
            sent_ms: [Vec::new(), Vec::new()],
        }
    }

    fn put(&mut self, from: usize, frame: Vec<u8>) {
        self.sent_ms[from].push(self.now_ms);
        if !self.random.chance(self.loss[1 - from]) {
            self.to[1 - from].push_back((self.now_ms + self.delay_ms, frame));
        }
    }

    /// Lets time pass until both ends are in a state; returns the time it took, if it was not too long.
    fn until(&mut self, limit_ms: u64, is_reached: impl Fn(&[Session; 2]) -> bool) -> Option<u64> {
        for passed in 0..limit_ms {
            if is_reached(&self.ends) {
                return Some(passed);
            }
            self.now_ms += 1;
            for end in 0..2 {
                while self.to[end].front().is_some_and(|(at, _)| *at <= self.now_ms) {
                    let (_, frame) = self.to[end].pop_front().unwrap();
                    self.ends[end].receive(&frame, true, self.now_ms).unwrap();
                }
                if self.ends[end].deadline_ms() <= self.now_ms
                    && let Some(frame) = self.ends[end].run(self.now_ms)
                {
                    self.put(end, frame);
                }
            }
        }
        None
    }

    fn states(&self) -> [(State, State, Diagnostic, bool); 2] {
        [0, 1].map(|end| {
            let status = self.ends[end].status(self.now_ms);
            (status.state, status.remote_state, status.diagnostic, status.is_forwarding)
        })
    }
}

fn are(state: State) -> impl Fn(&[Session; 2]) -> bool {
    move |ends| ends.iter().all(|end| end.state == state)
}

fn fast() -> Settings {
    Settings { min_rx_ms: 100, ..Settings::default() }
}

#[test]
fn frames_are_those_of_open_vswitch() {
    let packet = read(&CAPTURED, true).unwrap();
    assert_eq!(
        (packet.state, packet.my_discriminator, packet.your_discriminator),
        (State::Down, 0x577d_0164, 0)
    );
    assert_eq!((packet.min_tx_us, packet.min_rx_us, packet.detect_mult), (1_000_000, 1_000_000, 3));
    let source_mac = CAPTURED[6..12].try_into().unwrap();
    let mut own = Session::new(Settings { source_mac, ..Settings::default() }, 5, 0);
    own.discriminator = 0x577d_0164;
    assert_eq!(own.run(0).unwrap(), CAPTURED);
}

#[test]
fn both_ends_come_up_negotiate_and_keep_to_their_intervals() {
    let mut pair = Pair::new(fast(), Settings { min_tx_ms: 300, min_rx_ms: 150, ..Settings::default() });
    assert!(pair.until(2500, are(State::Up)).is_some());
    pair.until(1000, |_| false);
    let [a, b] = pair.states();
    assert_eq!(a, (State::Up, State::Up, Diagnostic::NONE, true));
    assert_eq!(a, b);
    assert!(pair.ends.iter().all(|end| !end.is_polling && !end.owes_final));
    assert_eq!(
        pair.ends.each_ref().map(|end| (end.tx_interval(), end.rx_interval())),
        [(150, 300), (300, 150)]
    );
    pair.sent_ms.iter_mut().for_each(Vec::clear);
    pair.until(60_000, |_| false);
    for (sent, interval) in pair.sent_ms.iter().zip([150, 300]) {
        let gaps: Vec<u64> = sent.windows(2).map(|two| two[1] - two[0]).collect();
        let (least, most) = (*gaps.iter().min().unwrap(), *gaps.iter().max().unwrap());
        // Jitter of up to a quarter, all of which is used.
        assert!(least >= interval * 3 / 4 && least <= interval * 8 / 10, "{least}");
        assert!(most <= interval && most >= interval * 95 / 100, "{most}");
    }
    assert_eq!(pair.states(), [a, b]);
    assert_eq!(pair.ends[0].status(pair.now_ms).flaps, 1);
}

#[test]
fn an_end_that_is_not_heard_is_down_after_the_detection_time() {
    let mut pair = Pair::new(fast(), fast());
    pair.until(4000, are(State::Up)).unwrap();
    pair.until(500, |_| false);
    pair.loss = [1.0, 0.0];
    let passed = pair.until(1000, |ends| ends[0].state == State::Down).unwrap();
    assert!((300 - 100 - 3..=303).contains(&passed), "{passed}");
    assert_eq!(pair.states()[0], (State::Down, State::Down, Diagnostic::EXPIRED, false));
    // The other end hears so at once.
    let passed = pair.until(100, |ends| ends[1].state == State::Down).unwrap();
    assert!(passed <= 15, "{passed}");
    assert_eq!(pair.states()[1], (State::Down, State::Down, Diagnostic::NEIGHBOUR_DOWN, false));
    pair.sent_ms.iter_mut().for_each(Vec::clear);
    pair.until(20_000, |_| false);
    assert!(pair.sent_ms.iter().all(|sent| (19..=27).contains(&sent.len())), "one packet a second at most");
    pair.loss = [0.0; 2];
    pair.until(4000, are(State::Up)).unwrap();
    assert_eq!(pair.ends[0].status(pair.now_ms).flaps, 3);
}

#[test]
fn losses_below_the_multiplier_and_delays_change_nothing() {
    let mut pair = Pair::new(Settings { detect_mult: 12, ..fast() }, Settings { detect_mult: 12, ..fast() });
    (pair.loss, pair.delay_ms) = ([0.3, 0.3], 180);
    pair.until(60_000, are(State::Up)).unwrap();
    pair.until(300_000, |_| false);
    assert_eq!(
        pair.states().map(|(state, _, _, is_forwarding)| (state, is_forwarding)),
        [(State::Up, true); 2]
    );
    assert_eq!(pair.ends.each_ref().map(|end| end.status(0).flaps), [1, 1]);
    assert!(pair.ends.iter().all(|end| !end.is_polling));
}

#[test]
fn an_end_that_is_shut_down_says_so() {
    let mut pair = Pair::new(fast(), fast());
    pair.until(4000, are(State::Up)).unwrap();
    let last = pair.ends[0].shut_down(pair.now_ms);
    assert_eq!(read(&last, true).unwrap().state, State::AdminDown);
    assert_eq!(read(&last, true).unwrap().diagnostic, Diagnostic::ADMIN_DOWN);
    pair.ends[1].receive(&last, true, pair.now_ms).unwrap();
    assert_eq!(pair.states()[1], (State::Down, State::AdminDown, Diagnostic::NEIGHBOUR_DOWN, false));
    // Nothing that comes in changes it.
    let other = pair.ends[1].run(pair.now_ms + 2000).unwrap();
    pair.ends[0].receive(&other, true, pair.now_ms).unwrap();
    assert_eq!(pair.states()[0].0, State::AdminDown);
    // A new session takes its place.
    pair.ends[0] = Session::new(fast(), 99, pair.now_ms);
    pair.to.iter_mut().for_each(VecDeque::clear);
    pair.until(6000, are(State::Up)).unwrap();
}

#[test]
fn a_session_that_begins_again_takes_the_other_end_along() {
    let mut pair = Pair::new(fast(), fast());
    pair.until(4000, are(State::Up)).unwrap();
    pair.ends[0] = Session::new(fast(), 99, pair.now_ms);
    pair.to.iter_mut().for_each(VecDeque::clear);
    let packet = pair.ends[1].run(pair.now_ms + 100).unwrap();
    let refused = pair.ends[0].receive(&packet, true, pair.now_ms).unwrap_err();
    assert!(matches!(refused, Refused::OtherSession(_)), "{refused}");
    assert!(
        pair.ends[0].describe(pair.now_ms).contains("Refused: 1, the latest since it is for the session")
    );
    let frame = pair.ends[0].run(pair.now_ms).unwrap();
    pair.ends[1].receive(&frame, true, pair.now_ms).unwrap();
    assert_eq!(pair.states()[1].2, Diagnostic::NEIGHBOUR_DOWN);
    pair.until(6000, are(State::Up)).unwrap();
}

#[test]
fn settings_change_by_a_poll_sequence() {
    let mut pair = Pair::new(fast(), fast());
    pair.until(4000, are(State::Up)).unwrap();
    pair.until(500, |_| false);
    let slow = Settings { min_tx_ms: 500, min_rx_ms: 50, ..Settings::default() };
    pair.ends[0].configure(slow, pair.now_ms);
    // Until the other end knows, packets are sent and expected as before.
    assert_eq!((pair.ends[0].tx_interval(), pair.ends[0].rx_interval()), (100, 100));
    assert!(pair.ends[0].describe(pair.now_ms).contains("  Local Flags: poll\n  Local Session State: up\n"));
    let passed = pair.until(200, |ends| !ends[0].is_polling).unwrap();
    assert!(passed <= 2 * (3 + 10 + 1), "{passed}");
    assert_eq!((pair.ends[0].tx_interval(), pair.ends[0].rx_interval()), (500, 100));
    pair.until(5000, |_| false);
    assert_eq!(pair.ends[1].rx_interval(), 500);
    assert_eq!(pair.states().map(|state| state.0), [State::Up; 2]);
    // The path behind an end.
    let broken = Settings { cpath_down: true, ..fast() };
    pair.ends[0].configure(broken, pair.now_ms);
    pair.until(50, |_| false);
    let [a, b] = pair.states();
    assert_eq!((a.2, a.3), (Diagnostic::CONCATENATED_PATH_DOWN, true));
    assert_eq!((b.0, b.3), (State::Up, false));
    pair.ends[0].configure(fast(), pair.now_ms);
    pair.until(50, |_| false);
    assert!(pair.states()[1].3);
}

#[test]
fn an_end_that_wants_no_packets_gets_answers_only() {
    let mut session = Session::new(fast(), 3, 0);
    let mut packet = read(&session.run(0).unwrap(), true).unwrap();
    packet.my_discriminator ^= 1;
    packet.min_rx_us = 0;
    session.receive(&frame::write(&fast(), &packet), true, 0).unwrap();
    assert_eq!(session.run(2000), None);
    packet.flags = Flags::POLL;
    session.receive(&frame::write(&fast(), &packet), true, 2000).unwrap();
    let answer = read(&session.run(2000).unwrap(), true).unwrap();
    assert_eq!((answer.flags, answer.your_discriminator), (Flags::FINAL, packet.my_discriminator));
    // Further ones get one answer in 10 ms.
    session.receive(&frame::write(&fast(), &packet), true, 2001).unwrap();
    assert_eq!((session.run(2001), session.deadline_ms()), (None, 2010));
    assert!(session.run(2010).is_some());
}

#[test]
fn idle_ports_have_another_interval_and_packets_show_that_a_port_works() {
    let settings = Settings { decay_min_rx_ms: 3000, ..fast() };
    let mut pair = Pair::new(settings, fast());
    pair.ends[0].note_traffic(100, 0);
    pair.until(4000, are(State::Up)).unwrap();
    pair.until(5000, |_| false);
    assert_eq!((pair.ends[0].rx_interval(), pair.ends[1].tx_interval()), (3000, 3000));
    // Packets come again.
    pair.ends[0].note_traffic(10_000, pair.now_ms);
    pair.until(2500, |_| false);
    assert_eq!((pair.ends[0].rx_interval(), pair.ends[1].tx_interval()), (100, 100));
    // Without control packets, but with others.
    let working = Settings { forwarding_if_rx: true, ..fast() };
    pair.ends[0].configure(working, pair.now_ms);
    pair.loss = [1.0, 0.0];
    for packets in 10_001..10_020 {
        pair.ends[0].note_traffic(packets, pair.now_ms);
        pair.until(500, |_| false);
    }
    assert_eq!(pair.states()[0].0, State::Down);
    assert!(pair.states()[0].3);
    pair.until(1000, |_| false);
    pair.ends[0].note_traffic(10_030, pair.now_ms);
    assert!(!pair.states()[0].3, "no control packet in 100 intervals");
}

#[test]
fn wrong_packets_are_refused_by_their_reasons() {
    let sound = CAPTURED;
    let with = |changes: &[(usize, u8)]| {
        let mut frame = sound.to_vec();
        changes.iter().for_each(|&(at, byte)| frame[at] = byte);
        // The header's checksum, unless a case changes it.
        if changes.iter().all(|(at, _)| *at != IP + 10) {
            frame[IP + 10..IP + 12].fill(0);
            let sum = crate::packet::edit::checksum::sum(&frame[IP..UDP]);
            let sum = !crate::packet::edit::checksum::fold(sum);
            frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    };
    let cases: [(&[(usize, u8)], Refused); 16] = [
        (&[(12, 0x86)], Refused::NotControl),
        (&[(IP, 0x55)], Refused::NotControl),
        (&[(IP, 0x44)], Refused::NotControl),
        (&[(IP + 6, 0x20)], Refused::NotControl),
        (&[(IP + 9, 6)], Refused::NotControl),
        (&[(UDP + 3, 0xc9)], Refused::NotControl),
        (&[(IP + 3, 0x35)], Refused::Length),
        (&[(UDP + 5, 0x21)], Refused::Length),
        (&[(UDP + 5, 7)], Refused::Length),
        (&[(UDP + 5, 0x1f)], Refused::Length),
        (&[(BFD + 3, 23)], Refused::Length),
        (&[(BFD + 3, 25)], Refused::Length),
        (&[(IP + 10, 0)], Refused::Checksum),
        (&[(UDP + 7, 1)], Refused::Checksum),
        (&[(IP + 8, 254)], Refused::Ttl(254)),
        (&[(BFD, 0x40)], Refused::Version(2)),
    ];
    let of_session: [(&[(usize, u8)], Refused); 6] = [
        (&[(BFD + 1, 0x44)], Refused::Authenticated),
        (&[(BFD + 1, 0x41)], Refused::Multipoint),
        (&[(BFD + 2, 0)], Refused::Multiplier),
        (&[(BFD + 4, 0), (BFD + 5, 0), (BFD + 6, 0), (BFD + 7, 0)], Refused::NoDiscriminator),
        (&[(BFD + 1, 0xc0)], Refused::NoDiscriminator),
        (&[(BFD + 11, 9)], Refused::OtherSession(9)),
    ];
    for (changes, expected) in cases.into_iter().chain(of_session) {
        let mut session = Session::new(fast(), 1, 0);
        assert_eq!(session.receive(&with(changes), true, 0), Err(expected), "{changes:x?}");
        assert_eq!((session.state, session.refused), (State::Down, Some((1, expected))));
    }
    for len in 0..sound.len() {
        assert!(read(&sound[..len], true).is_err(), "{len}");
    }
    // Padding, tags, options of IPv4 and a checksum are no problem.
    let padded = [&sound[..], &[0; 9]].concat();
    let tagged = [&sound[..12], &[0x81, 0, 0xe0, 5, 0x81, 0, 0, 9], &sound[12..]].concat();
    for frame in [padded, tagged, with(&[(UDP + 6, 0xe0), (UDP + 7, 0x09)])] {
        assert!(read(&frame, true).is_ok() || read(&frame, false).is_ok());
        assert!(is_control(&frame, &Filter::default()));
    }
}

#[test]
fn control_packets_for_others_go_the_way_of_all_packets() {
    let filter = |mac: Option<u8>, ip: Option<u8>| Filter {
        mac: mac.map(|last| [0x00, 0x23, 0x20, 0, 0, last]),
        ip: ip.map(|last| Ipv4Addr::new(169, 254, 1, last)),
    };
    for (filter, is_for_it) in [
        (filter(None, None), true),
        (filter(Some(1), Some(0)), true),
        (filter(Some(2), None), false),
        (filter(None, Some(1)), false),
    ] {
        assert_eq!(is_control(&CAPTURED, &filter), is_for_it, "{filter:?}");
    }
}

#[test]
fn random_bytes_are_refused_and_sound_packets_stay_as_they_are() {
    let mut random = Random::new(11);
    for _ in 0..2000 {
        let mut frame = CAPTURED.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.bits() as u8;
        }
        frame.truncate(random.below(2 * frame.len() as u64) as usize);
        crate::fuzz_invariants::bfd(&frame);
        if let Ok(packet) = read(&frame, true) {
            assert_eq!(read(&frame::write(&fast(), &packet), true), Ok(packet));
        }
    }
}

/// At any moment of a session that is up, another process goes on with it, and the other end notices nothing; one that comes after the detection
/// time begins a session of its own.
#[test]
fn another_process_goes_on_with_a_session() {
    for moment in 0..300 {
        let mut pair = Pair::new(fast(), Settings { min_tx_ms: 300, min_rx_ms: 150, ..Settings::default() });
        assert!(pair.until(2500, are(State::Up)).is_some());
        pair.until(moment, |_| false);
        let saved = pair.ends[0].save(pair.now_ms).unwrap();
        let copied = serde_json::to_string(&saved).unwrap();
        let saved: SavedSession = serde_json::from_str(&copied).unwrap();
        let flaps = pair.ends[1].status(pair.now_ms).flaps;
        // Its clock is another one.
        pair.ends[0] = Session::resume(fast(), moment, &saved, pair.now_ms);
        assert_eq!(pair.ends[0].state, State::Up);
        let goes_down = |ends: &[Session; 2]| ends.iter().any(|end| end.state != State::Up);
        assert_eq!(pair.until(5000, goes_down), None, "after {moment} ms");
        assert_eq!(pair.ends[1].status(pair.now_ms).flaps, flaps);
        let late = Session::resume(fast(), moment, &saved.after(10_000), pair.now_ms);
        assert_eq!((late.state, late.save(pair.now_ms)), (State::Down, None));
    }
}
