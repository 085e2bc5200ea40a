//! Networks of bridges: trees without loops, whatever happens to links.

use std::collections::{BTreeMap, VecDeque};

use flowlane::rule::action::PortNo;

use super::*;

/// An end of a link: a bridge and its port.
type End = (usize, u32);

struct Network {
    bridges: Vec<Rstp>,
    links: Vec<([End; 2], bool)>,
    /// Frames under way, by the end that they come to.
    wire: VecDeque<(End, Vec<u8>)>,
    now_ms: u64,
}

fn settings(bridge: usize, speaks_rapid: bool) -> BridgeSettings {
    let id = BridgeId::new(0x8000, [2, 0, 0, 0, 0, bridge as u8]);
    BridgeSettings { id, times: Times::default(), hold_count: 6, speaks_rapid }
}

fn port(number: u32) -> PortSettings {
    PortSettings {
        mac: [2, 0, 0, 0, 1, number as u8],
        id: 0x8000 | number as u16,
        cost: 20_000,
        is_edge: false,
        finds_edge: true,
        is_point_to_point: true,
    }
}

impl Network {
    /// Bridges with links between them; each bridge has a port 99 without neighbour. `rapid` says which speak RSTP.
    fn new(rapid: &[bool], links: &[[usize; 2]]) -> Self {
        let mut ports: BTreeMap<usize, u32> = BTreeMap::new();
        let mut end = |bridge: usize| {
            let next = ports.entry(bridge).or_insert(0);
            *next += 1;
            (bridge, *next)
        };
        let links: Vec<_> = links.iter().map(|link| (link.map(&mut end), true)).collect();
        let mut bridges: Vec<Rstp> = (0..rapid.len()).map(|n| Rstp::new(settings(n, rapid[n]), 0)).collect();
        for (n, bridge) in bridges.iter_mut().enumerate() {
            let own = 1..=ports.get(&n).copied().unwrap_or(0);
            let all: Vec<_> = own.chain([99]).map(|number| (PortNo(number), port(number), true)).collect();
            bridge.set_ports(&all);
        }
        Self { bridges, links, wire: VecDeque::new(), now_ms: 0 }
    }

    fn other_end(&self, end: End) -> Option<End> {
        let up = self.links.iter().filter(|(_, is_up)| *is_up).map(|(ends, _)| ends);
        up.flat_map(|[a, b]| [(*a, *b), (*b, *a)]).find(|(from, _)| *from == end).map(|(_, to)| to)
    }

    fn set_link(&mut self, link: usize, is_up: bool) {
        self.links[link].1 = is_up;
        for (bridge, port) in self.links[link].0 {
            self.bridges[bridge].set_up(PortNo(port), is_up);
        }
        self.check();
    }

    /// Lets time pass, in steps of 100 ms; frames take no time.
    fn run(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            self.now_ms += 100;
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        for _ in 0..1000 {
            for n in 0..self.bridges.len() {
                for (port, frame) in self.bridges[n].run(self.now_ms) {
                    let to = self.other_end((n, port.0));
                    self.wire.extend(to.map(|to| (to, frame)));
                }
            }
            self.check();
            let Some(((bridge, port), frame)) = self.wire.pop_front() else { return };
            // Where the root has gone, its information becomes older from bridge to bridge.
            let received = self.bridges[bridge].receive(PortNo(port), &frame);
            assert!(matches!(received, Ok(()) | Err(Refused::Age)), "{received:?}");
            self.check();
        }
        panic!("bridges do not come to rest");
    }

    /// Links through which frames pass.
    fn open(&self) -> Vec<[End; 2]> {
        let forwards = |(bridge, port): &End| {
            self.bridges[*bridge].status(PortNo(*port)).is_some_and(|status| status.forwards)
        };
        let up = self.links.iter().filter(|(ends, is_up)| *is_up && ends.iter().all(forwards));
        up.map(|(ends, _)| *ends).collect()
    }

    /// Returns the group of bridges that each is connected with by links.
    fn groups(&self, links: impl Iterator<Item = [End; 2]>, mut closes: impl FnMut([End; 2])) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.bridges.len()).collect();
        for [a, b] in links {
            let [one, other] = [a, b].map(|(bridge, _)| groups[bridge]);
            if one == other {
                closes([a, b]);
            }
            groups.iter_mut().filter(|group| **group == other).for_each(|group| *group = one);
        }
        groups
    }

    /// No loop, at any time.
    fn check(&self) {
        self.groups(self.open().into_iter(), |link| panic!("a loop by {link:?} at {} ms", self.now_ms));
    }

    /// Bridges that are connected are so by the tree, whose root is the best of them.
    fn is_whole(&self) -> bool {
        let up = self.links.iter().filter(|(_, is_up)| *is_up).map(|(ends, _)| *ends);
        let (all, tree) = (self.groups(up, |_| ()), self.groups(self.open().into_iter(), |_| ()));
        let is_one = |a: usize, b: usize| (all[a] == all[b]) == (tree[a] == tree[b]);
        let count = self.bridges.len();
        let root = |n: usize| (0..count).find(|other| all[*other] == all[n]);
        let id = |n: usize| self.bridges[n].settings.id;
        (0..count).all(|a| (0..count).all(|b| is_one(a, b)))
            && (0..count).all(|n| Some(self.bridges[n].root().1.root) == root(n).map(id))
    }

    /// Lets a bridge go on in another process, which has its state as text after a pause.
    fn restart(&mut self, bridge: usize, pause_ms: u64) {
        let old = &self.bridges[bridge];
        let saved = old.save().map(|(number, port)| {
            let text = serde_json::to_string(&port).unwrap();
            (number, serde_json::from_str(&text).unwrap())
        });
        let mut new = Rstp::resume(old.settings.clone(), saved.collect(), pause_ms, self.now_ms);
        let ports: Vec<_> = old.ports().map(|(number, _)| (number, port(number.0), true)).collect();
        new.set_ports(&ports);
        self.bridges[bridge] = new;
        self.check();
    }

    fn status(&self, bridge: usize, port: u32) -> PortStatus {
        self.bridges[bridge].status(PortNo(port)).unwrap()
    }
}

#[test]
fn a_ring_has_one_blocked_port_and_recovers_at_once() {
    let mut ring = Network::new(&[true; 4], &[[0, 1], [1, 2], [2, 3], [3, 0]]);
    ring.run(1000);
    assert!(ring.is_whole(), "bridges agree without waiting for timers");
    // The neighbour of the root with the greater identifier blocks its way to bridge 2.
    let roles: Vec<Role> = (0..4).flat_map(|n| [ring.status(n, 1).role, ring.status(n, 2).role]).collect();
    use Role::{Alternate, Designated, Root};
    assert_eq!(roles, [Designated, Designated, Root, Designated, Root, Alternate, Designated, Root]);
    assert!(!ring.status(2, 2).forwards);
    ring.run(4000);
    assert!(
        (0..4).all(|n| ring.status(n, 99).forwards && ring.status(n, 99).is_edge),
        "ports without bridges"
    );
    ring.bridges.iter_mut().for_each(|bridge| _ = bridge.take_flushes());
    ring.set_link(0, false);
    ring.run(300);
    assert!(ring.is_whole(), "the alternate port takes over");
    assert_eq!(ring.status(2, 2).role, Root);
    // Addresses are forgotten at ports whose stations may be elsewhere now.
    assert!(ring.bridges[2].take_flushes().contains(&PortNo(1)));
    ring.set_link(0, true);
    ring.run(3000);
    assert!(ring.is_whole());
    assert!(ring.bridges[0].changes() > 0);
}

#[test]
fn two_links_between_two_bridges_are_used_one_at_a_time() {
    for rapid in [[true, true], [false, true], [true, false], [false, false]] {
        let mut pair = Network::new(&rapid, &[[0, 1], [0, 1]]);
        pair.run(35_000);
        assert!(pair.is_whole(), "{rapid:?}");
        let is_rapid = rapid == [true, true];
        assert_eq!((pair.status(1, 1).role, pair.status(1, 2).role), (Role::Root, Role::Alternate));
        assert_eq!(pair.status(0, 1).speaks_rapid && pair.status(1, 1).speaks_rapid, is_rapid);
        pair.set_link(0, false);
        pair.run(if is_rapid { 100 } else { 31_000 });
        assert!(pair.is_whole(), "{rapid:?}");
    }
}

#[test]
fn a_neighbour_that_falls_silent_is_forgotten_after_three_hellos() {
    let mut ring = Network::new(&[true; 3], &[[0, 1], [1, 2], [2, 0]]);
    ring.run(5000);
    assert_eq!(ring.status(2, 1).role, Role::Alternate);
    // The root's way to bridge 2 loses frames, and the link stays up.
    ring.links[2].1 = false;
    ring.run(7000);
    assert_eq!(ring.status(2, 1).role, Role::Root);
    assert!(ring.open().len() == 2);
}

#[test]
fn a_bridge_of_the_older_protocol_is_spoken_to_in_its_language() {
    let mut mixed = Network::new(&[true, false, true], &[[0, 1], [1, 2], [2, 0]]);
    mixed.run(40_000);
    assert!(mixed.is_whole());
    assert_eq!([mixed.status(0, 1), mixed.status(2, 1)].map(|port| port.speaks_rapid), [false; 2]);
    assert!(mixed.status(2, 2).speaks_rapid && mixed.status(0, 2).speaks_rapid);
    // It learns the newer one.
    let new = BridgeSettings { speaks_rapid: true, ..settings(1, true) };
    mixed.bridges[1].configure(new);
    mixed.bridges[0].check_neighbour(PortNo(1));
    mixed.run(10_000);
    assert!([0, 1, 2].iter().all(|n| mixed.status(*n, 1).speaks_rapid));
    assert!(mixed.is_whole());
}

#[test]
fn costs_and_priorities_choose_the_tree() {
    let mut ring = Network::new(&[true; 3], &[[0, 1], [1, 2], [2, 0]]);
    ring.run(3000);
    let id = BridgeId::new(0x1000, [2, 0, 0, 0, 0, 2]);
    ring.bridges[2].configure(BridgeSettings { id, ..settings(2, true) });
    ring.run(3000);
    assert!(ring.bridges.iter().all(|bridge| bridge.root().1.root == id));
    assert_eq!(ring.bridges[0].root().1.cost, 20_000);
    // The direct link is dear: the way leads through bridge 1.
    let dear = PortSettings { cost: 100_000, ..port(2) };
    let ports = [(PortNo(1), port(1), true), (PortNo(2), dear, true), (PortNo(99), port(99), true)];
    ring.bridges[0].set_ports(&ports);
    ring.run(3000);
    let (root_port, vector, _) = ring.bridges[0].root();
    assert_eq!((root_port, vector.cost), (Some(PortNo(1)), 40_000));
}

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn random_networks_never_have_a_loop_and_are_whole_again() {
    for seed in 0..30 {
        let r = &mut Random(seed);
        let count = 2 + r.below(6);
        let links: Vec<[usize; 2]> = (0..count + r.below(2 * count))
            .map(|_| [r.below(count), r.below(count)])
            .filter(|[a, b]| a != b)
            .collect();
        // All rapid, none, or some.
        let rapid: Vec<bool> =
            (0..count).map(|_| seed % 3 == 0 || seed % 3 == 1 && r.below(2) == 0).collect();
        let mut network = Network::new(&rapid, &links);
        for _ in 0..4 {
            network.run(90_000);
            assert!(network.is_whole(), "seed {seed}: {links:?}");
            for link in 0..links.len() {
                if r.below(4) == 0 {
                    let is_up = network.links[link].1;
                    network.set_link(link, !is_up);
                    network.run(100 * r.below(30) as u64);
                }
            }
        }
    }
}

#[test]
fn frames_that_are_no_sound_bpdus_change_nothing() {
    let mut pair = Network::new(&[true; 2], &[[0, 1]]);
    pair.run(3000);
    let before = pair.status(1, 1);
    let sound = pair.bridges[0].run(4000).remove(0).1;
    for len in 0..14 + 3 + 36 {
        assert!(pair.bridges[1].receive(PortNo(1), &sound[..len]).is_err(), "{len}");
    }
    // A configuration BPDU that is as old as its information may be; of RST BPDUs, the port lets it age.
    let Ok(Bpdu::Tree { role, flags, vector, times, .. }) = Bpdu::read(&sound) else { panic!("{sound:?}") };
    let times = Times { message_age: times.max_age, ..times };
    let too_old = Bpdu::Tree { is_rapid: false, role, flags, vector, times }.frame([2; 6]);
    assert_eq!(pair.bridges[1].receive(PortNo(1), &too_old), Err(Refused::Age));
    assert_eq!(pair.bridges[1].receive(PortNo(7), &sound), Err(Refused::NoPort));
    let after = pair.status(1, 1);
    assert_eq!((after.vector, after.role, after.refused), (before.vector, before.role, 54));
}

/// Neighbours are not heard while the process is stopped: their information must not have aged when it goes on.
#[test]
fn a_pause_opens_no_port() {
    let mut pair = Network::new(&[true; 2], &[[0, 1], [0, 1]]);
    pair.run(5000);
    let is_open = |pair: &Network| [1, 2].map(|port| pair.status(1, port).forwards);
    assert_eq!(is_open(&pair), [true, false]);
    pair.now_ms += 30_000;
    _ = pair.bridges[1].run(pair.now_ms);
    assert_eq!(is_open(&pair), [true, false]);
    pair.run(5000);
    assert_eq!(is_open(&pair), [true, false]);
}

#[test]
fn a_bridge_without_ports_is_the_root_that_it_is_set_to_be() {
    let mut bridge = Rstp::new(settings(1, true), 0);
    let other = BridgeSettings { id: BridgeId::new(0x1000, [2; 6]), ..settings(1, true) };
    bridge.configure(other.clone());
    assert_eq!(bridge.root().1.root, other.id);
    bridge.set_ports(&[(PortNo(1), port(1), true)]);
    bridge.configure(settings(1, true));
    bridge.set_ports(&[]);
    assert_eq!((bridge.root().0, bridge.root().1.root), (None, settings(1, true).id));
}

#[test]
fn the_longest_times_do_not_become_short() {
    let mut pair = Network::new(&[true; 2], &[[0, 1]]);
    pair.run(3000);
    let mut frame = pair.bridges[0].run(4000).remove(0).1;
    // Behind Ethernet, LLC, the header, flags, and the vector: the age of the message, in 256ths of a second.
    frame[44..46].fill(0xff);
    let Ok(Bpdu::Tree { times, .. }) = Bpdu::read(&frame) else { panic!("{frame:?}") };
    assert!(times.message_age >= times.max_age, "{times:?}");
}

/// Neither the bridge nor its neighbours change a port.
#[test]
fn a_bridge_goes_on_in_another_process() {
    for rapid in [[true; 4], [false; 4], [true, false, true, false]] {
        let mut network = Network::new(&rapid, &[[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]);
        network.run(60_000);
        assert!(network.is_whole());
        let states = |network: &Network| -> Vec<Vec<_>> {
            let of = |bridge: &Rstp| {
                bridge.ports().map(|(_, port)| (port.role, port.state(), port.is_edge)).collect()
            };
            network.bridges.iter().map(of).collect()
        };
        let before = states(&network);
        for bridge in 0..4 {
            network.restart(bridge, 2_900);
            for _ in 0..80 {
                assert_eq!(states(&network), before, "bridge {bridge} of {rapid:?} at {} ms", network.now_ms);
                network.run(100);
            }
            assert_eq!(network.bridges[bridge].changes(), 0, "no change of the topology");
        }
    }
}

/// Its neighbours may have opened other links: it begins again, without a loop at any time.
#[test]
fn a_bridge_that_was_away_for_longer_begins_again() {
    let mut network = Network::new(&[true; 3], &[[0, 1], [1, 2], [2, 0]]);
    network.run(10_000);
    network.restart(1, 3_000);
    assert!(network.bridges[1].ports().all(|(_, port)| port.state() == PortState::Discarding));
    network.run(10_000);
    assert!(network.is_whole());
    // The link has gone meanwhile.
    network.restart(1, 1_000);
    network.set_link(0, false);
    network.run(10_000);
    assert!(network.is_whole());
}
