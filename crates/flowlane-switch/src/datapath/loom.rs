//! How workers wake each other and hand packets over, in every order in which they can take turns (loom):
//! `RUSTFLAGS="--cfg loom" cargo test -p flowlane-switch --release --lib loom`.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::calls::Calls;
use super::handoff::{Links, ResumePoint};
use super::notifier::Notifier;
use crate::packet::Burst;
use crate::sync::{AtomicU64, Ordering};

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Loom says so where the one that waits is never woken.
#[test]
fn who_waits_is_woken_whatever_it_is_asked_for_meanwhile() {
    check(3, || {
        let asked = Arc::new(AtomicU64::new(0));
        let waker = Notifier::default();
        let sleeping = thread::spawn({
            let (asked, waker) = (asked.clone(), waker.clone());
            move || {
                let mut slept = 0;
                while asked.load(Ordering::Relaxed) < 2 {
                    let is_asked = || asked.load(Ordering::Relaxed) > slept;
                    _ = waker.sleep(is_asked, || waker.bell().wait());
                    slept = asked.load(Ordering::Relaxed);
                }
            }
        });
        for _ in 0..2 {
            asked.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }
        sleeping.join().unwrap();
    });
}

/// A worker's rounds, which bounces what it is handed `bounces` times. Gives the packets that it was handed.
fn rounds(mut links: Links, hands: bool, bounces: usize, ended: &AtomicUsize) -> usize {
    let other = 1 - links.me();
    let (mut burst, mut calls) = (Burst::new(1), Calls::default());
    let hand = |links: &mut Links, burst: &mut Burst| {
        burst.clear_for(0, u64::MAX);
        burst.frames.next_frame().expect("there is one").fill(&[7; 60]);
        links.hand(other, burst, 0, ResumePoint::Port, None);
    };
    if hands {
        hand(&mut links, &mut burst);
        links.send(false);
    }
    let mut came = 0;
    loop {
        links.retire();
        if links.is_over() {
            ended.fetch_add(1, Ordering::SeqCst);
            return came;
        }
        if let Some(mut batch) = links.take(0) {
            assert_eq!(ended.load(Ordering::SeqCst), 0, "no worker may end before");
            while batch.unpack(&mut burst, &mut calls).is_some() {
                came += 1;
                assert_eq!(burst.frames.iter().next().expect("it was handed").bytes(), [7; 60]);
                if came <= bounces {
                    hand(&mut links, &mut burst);
                }
            }
            links.give_back(0, batch);
        }
        links.send(false);
        thread::yield_now();
    }
}

fn workers_end(hand: [bool; 2], bounces: [usize; 2], came: [usize; 2]) {
    check(2, move || {
        let mut links = Links::between(&[Notifier::default(), Notifier::default()]);
        let (second, first) = (links.pop().unwrap(), links.pop().unwrap());
        let ended = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let ended = ended.clone();
            move || rounds(second, hand[1], bounces[1], &ended)
        });
        let mine = rounds(first, hand[0], bounces[0], &ended);
        assert_eq!([mine, other.join().unwrap()], came);
    });
}

#[test]
fn nobody_ends_while_a_packet_is_under_way() {
    workers_end([true, false], [0, 0], [0, 1]);
}

#[test]
fn nobody_ends_while_a_packet_goes_back() {
    workers_end([true, false], [0, 1], [1, 1]);
}
