//! Neighbours over time, by a model of few lines, and while other threads look.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::neighbours::{Held, Name, Neighbours, State};

fn name(n: u32) -> Name {
    Name { interface: (n % 3) as u16, address: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)) }
}

fn mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [2, 1, a, b, c, d]
}

/// (solicited, overrides, adds)
const ANSWER: (bool, bool, bool) = (true, true, false);
const ASKED: (bool, bool, bool) = (false, true, true);

fn states(neighbours: &Neighbours<u32>, now_s: u64) -> Vec<State> {
    neighbours.list(now_s).iter().map(|listed| listed.state).collect()
}

#[test]
fn a_used_neighbour_is_asked_again_and_an_unused_one_is_forgotten() {
    let neighbours = Neighbours::new(16, 1);
    assert!(matches!(neighbours.hold(name(1), 10, 0), Held::Ask { dropped: 0 }));
    assert_eq!(neighbours.learn(name(1), Some(mac(1)), ANSWER, 0), [10]);
    assert_eq!(neighbours.mac(name(1)), Some(mac(1)));
    for now_s in 1..30 {
        assert!(neighbours.tick(now_s).questions.is_empty());
    }
    neighbours.tick(30);
    assert_eq!(states(&neighbours, 30), [State::Stale]);
    assert!(neighbours.tick(31).questions.is_empty(), "no packet has used it since");
    assert_eq!(neighbours.mac(name(1)), Some(mac(1)));
    let asked = neighbours.tick(32).questions;
    assert_eq!(asked.iter().map(|question| question.known).collect::<Vec<_>>(), [Some(mac(1))]);
    assert_eq!(states(&neighbours, 32), [State::Probed]);
    // It answers, even without its address.
    neighbours.learn(name(1), None, ANSWER, 33);
    assert_eq!(states(&neighbours, 33), [State::Reachable]);
    neighbours.tick(63);
    assert!(neighbours.tick(662).given_up.is_empty());
    assert_eq!(states(&neighbours, 662), [State::Stale]);
    neighbours.tick(663);
    assert_eq!(states(&neighbours, 663), []);
    assert_eq!(neighbours.mac(name(1)), None);
}

#[test]
fn a_neighbour_that_does_not_answer_any_more_is_gone_after_three_questions() {
    let neighbours = Neighbours::new(16, 1);
    neighbours.learn(name(1), Some(mac(1)), ASKED, 0);
    assert_eq!(states(&neighbours, 0), [State::Stale]);
    neighbours.mac(name(1));
    let questions: usize = (1..=3).map(|now_s| neighbours.tick(now_s).questions.len()).sum();
    assert_eq!(questions, 3);
    assert_eq!(neighbours.mac(name(1)), Some(mac(1)), "until then, packets go there");
    neighbours.tick(4);
    assert_eq!(neighbours.mac(name(1)), None);
}

/// RFC 4861, section 7.2.5 and appendix C.
#[test]
fn other_addresses_are_believed_as_the_standard_says() {
    let neighbours = Neighbours::<u32>::new(16, 1);
    assert!(neighbours.learn(name(1), Some(mac(1)), (true, true, false), 0).is_empty());
    assert_eq!(neighbours.mac(name(1)), None, "it has not been asked for");
    neighbours.learn(name(1), Some(mac(1)), ASKED, 0);
    neighbours.learn(name(1), Some(mac(1)), ANSWER, 0);
    // Another one that does not override makes the known one doubtful.
    neighbours.learn(name(1), Some(mac(2)), (true, false, false), 1);
    assert_eq!((neighbours.mac(name(1)), &states(&neighbours, 1)[..]), (Some(mac(1)), &[State::Stale][..]));
    neighbours.learn(name(1), Some(mac(2)), (false, true, false), 1);
    assert_eq!((neighbours.mac(name(1)), &states(&neighbours, 1)[..]), (Some(mac(2)), &[State::Stale][..]));
}

#[test]
fn waiting_packets_are_bounded_and_given_back_in_order() {
    let neighbours = Neighbours::new(1 << 12, 1);
    let mut dropped = 0;
    for n in 0..20 {
        match neighbours.hold(name(1), n, 0) {
            Held::Ask { dropped: more } | Held::Waits { dropped: more } => dropped += more,
            Held::Known(_) | Held::Full => panic!("there is room"),
        }
    }
    assert_eq!(dropped, 4);
    let given = neighbours.learn(name(1), Some(mac(1)), ANSWER, 0);
    assert_eq!(given, (4..20).collect::<Vec<u32>>());
    assert!(matches!(neighbours.hold(name(1), 9, 0), Held::Known(9)));
    let refused = (0..super::neighbours::WAITING_MAX as u32 + 50)
        .filter(|n| matches!(neighbours.hold(name(2 + n / 16), *n, 0), Held::Full));
    assert_eq!(refused.count(), 50);
    (1..=2).for_each(|now_s| assert!(neighbours.tick(now_s).given_up.is_empty()));
    assert_eq!(neighbours.tick(3).given_up.len(), super::neighbours::WAITING_MAX);
    assert!(matches!(neighbours.hold(name(500), 0, 5), Held::Ask { dropped: 0 }));
}

/// Random events against a map: a known address is the one that was said last, and the table stays whole in any order.
#[test]
fn random_events_leave_what_was_said() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let neighbours = Neighbours::<u32>::new(32, 1);
    let mut said: HashMap<u32, u32> = HashMap::new();
    let mut now_s = 0;
    for step in 0..200_000u32 {
        let n = next(60) as u32;
        match next(8) {
            0..=2 => drop(neighbours.hold(name(n), step, now_s)),
            3 | 4 => {
                neighbours.learn(name(n), Some(mac(step)), ANSWER, now_s);
                said.insert(n, step);
            }
            5 => {
                neighbours.learn(name(n), Some(mac(step)), ASKED, now_s);
                said.insert(n, step);
            }
            6 => {
                now_s += next(40);
                neighbours.tick(now_s);
            }
            _ => drop(neighbours.flush(|other| other == name(n))),
        }
        if let Some(known) = neighbours.mac(name(n)) {
            assert_eq!(known, mac(said[&n]), "step {step}");
        }
        if step.is_multiple_of(1000) {
            let listed = neighbours.list(now_s);
            assert!(listed.len() <= 32);
            let incomplete = listed.iter().filter(|listed| listed.state == State::Incomplete);
            assert!(incomplete.count() <= 8);
            assert!(
                listed.iter().all(|listed| (listed.mac.is_none()) == (listed.state == State::Incomplete))
            );
            assert!(listed.iter().all(|listed| neighbours.peek(listed.name) == listed.mac));
        }
    }
}

/// Threads look while another changes: an address that is never removed is always found, and is one that was said of it.
#[test]
fn lookups_wait_for_nobody_and_find_what_was_said() {
    let neighbours = Neighbours::<u32>::new(256, 1);
    for n in 0..16 {
        neighbours.learn(name(n), Some(mac(n)), ASKED, 0);
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for n in 0..16 {
                        let found = neighbours.mac(name(n)).expect("it is not removed");
                        assert_eq!(found[2..], mac(n)[2..]);
                    }
                }
            });
        }
        for round in 0..2000u32 {
            for n in 100..140 {
                neighbours.learn(name(n), Some(mac(n)), ASKED, 0);
            }
            neighbours.flush(|other| (100..140).any(|n| other == name(n)));
            let n = round % 16;
            let mut other = mac(n);
            other[1] = round as u8;
            neighbours.learn(name(n), Some(other), ANSWER, 0);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
