//! Tables that answer later send the frames that tables which answer at once send, each flow in its order.

use std::collections::VecDeque;

use flowlane::classify::{AsyncEngine, Hit, InsertError, RuleEngine};
use flowlane::packet::FlowMask;
use flowlane::rule::RuleId;

use super::*;

/// Linear search that takes its time: a batch is answered when it has been asked for some times, by the rules that there
/// were when it was sent.
struct Patient {
    rules: LinearSearch,
    looks_at: FlowMask,
    epoch: u64,
    batch_max: usize,
    gathered: Vec<FlowKey>,
    under_way: VecDeque<(u32, u64, Vec<Option<Hit>>)>,
}

/// Batches that may be under way.
const SLOTS: usize = 2;
/// How often a batch is asked for in vain.
const RECV_POLL: u32 = 3;

pub(super) fn patient(batch_max: usize) -> Box<dyn AsyncEngine> {
    Box::new(Patient {
        rules: LinearSearch::new(10_000),
        looks_at: FlowMask::zero(),
        epoch: 0,
        batch_max,
        gathered: Vec::new(),
        under_way: VecDeque::new(),
    })
}

impl RuleEngine for Patient {
    fn name(&self) -> &'static str {
        "patient"
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.epoch += 1;
        self.looks_at.add(&matches.mask());
        self.rules.insert(id, priority, matches)
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.epoch += 1;
        self.rules.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        self.epoch += 1;
        self.looks_at.add(&matches.mask());
        self.rules.replace(id, priority, matches)
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.rules.lookup(key)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        self.rules.lookup_wildcards(key, looked_at)
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        self.rules.table_bytes()
    }
}

impl AsyncEngine for Patient {
    fn prepare(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn looks_at(&self) -> &FlowMask {
        &self.looks_at
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn gathered(&self) -> usize {
        self.gathered.len()
    }

    fn gather(&mut self, key: &FlowKey) {
        assert!(self.gathered.len() < self.batch_max);
        self.gathered.push(key.clone());
    }

    fn send(&mut self) -> bool {
        if self.gathered.is_empty() || self.under_way.len() == SLOTS {
            return false;
        }
        let hits = self.gathered.drain(..).map(|key| self.rules.lookup(&key)).collect();
        self.under_way.push_back((RECV_POLL, self.epoch, hits));
        true
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn receive(&mut self, wait: bool, hits: &mut Vec<Option<Hit>>) -> Option<u64> {
        let (patience, epoch, answers) = self.under_way.front_mut()?;
        if *patience > 0 && !wait {
            *patience -= 1;
            return None;
        }
        let epoch = *epoch;
        hits.clear();
        hits.append(answers);
        self.under_way.pop_front();
        Some(epoch)
    }
}

fn caches(r: &mut Random) -> CacheConfig {
    CacheConfig {
        exact_entries: r.pick(&[0, 64]),
        exact_insert_inverse: 1,
        signature_entries: r.pick(&[0, 64]),
        signature_insert_inverse: 2,
        megaflows_max: r.pick(&[0, 20, 1000]),
        masks_max: r.pick(&[5, 100]),
        ..CacheConfig::default()
    }
}

#[test]
fn tables_that_answer_later_change_nothing_for_any_packet() {
    for seed in 0..75u64 {
        let r = &mut Random(seed);
        let tables = 1 + r.next(4) as u8;
        let rules = random_rules(r, tables);
        let batch_max = r.pick(&[1, 3, 40, 1000]);
        let (mut later, sent) = worker(&rules, tables, caches(r), By::Later(batch_max));
        let (mut plain, plain_sent) = worker(&rules, tables, no_caches(), By::pick(seed));
        for round in 0..8 {
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..40).map(|_| packet(r)).collect();
            for (i, bytes) in frames.iter().enumerate() {
                plain.inject(port, &[bytes]).unwrap();
                later.inject(port, &[bytes]).unwrap();
                later.settle().unwrap();
                later.egress.flush().unwrap();
                let wanted = std::mem::take(&mut *plain_sent.lock().unwrap());
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                assert_eq!(sent, wanted, "seed {seed} round {round} packet {i} {bytes:02x?}\n{rules:#?}");
            }
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            plain.inject(port, &borrowed).unwrap();
            later.inject(port, &borrowed).unwrap();
            later.lookup.maintain(0, 10, || later.waiting.paths());
            later.settle().unwrap();
            let mut a = std::mem::take(&mut *plain_sent.lock().unwrap());
            let mut b = std::mem::take(&mut *sent.lock().unwrap());
            a.sort();
            b.sort();
            assert!(a == b, "seed {seed} round {round}");
        }
        assert_eq!(counters(&mut later), counters(&mut plain), "seed {seed}");
        assert_eq!(later.waiting(), 0);
    }
}

#[test]
fn packets_alike_leave_in_the_order_in_which_they_came() {
    let mut held = 0;
    for seed in 0..60u64 {
        let r = &mut Random(1000 + seed);
        let tables = 1 + r.next(4) as u8;
        let rules = random_rules(r, tables);
        let pool: Vec<Vec<u8>> = (0..10).map(|_| packet(r)).collect();
        let (mut later, sent) = worker(&rules, tables, caches(r), By::Later(r.pick(&[2, 30])));
        later.set_max_delay(r.pick(&[Duration::ZERO, Duration::MAX]));
        for number in 0..600u32 {
            let (kind, port) = (r.next(10), r.next(2));
            // A trailer that no table looks at identifies the packet.
            let trailer = [&[kind as u8, port as u8][..], &number.to_be_bytes()].concat();
            later.inject(port as usize, &[&[&pool[kind as usize][..], &trailer].concat()]).unwrap();
        }
        later.settle().unwrap();
        held += later.waiting_counters().held;
        // The n-th copies of packets of one kind leave in order.
        let mut copies: BTreeMap<(u32, &[u8]), u32> = BTreeMap::new();
        let mut last: BTreeMap<(u32, &[u8], u32), u32> = BTreeMap::new();
        let sent = sent.lock().unwrap();
        for (port, bytes) in sent.iter() {
            let (alike, number) = bytes.split_at(bytes.len() - 4);
            let number = u32::from_be_bytes(number.try_into().unwrap());
            let copy = copies.entry((*port, bytes)).or_default();
            *copy += 1;
            let before = last.insert((*port, alike, *copy), number).unwrap_or(0);
            assert!(before <= number, "seed {seed} port {port}: {number} behind {before}");
        }
    }
    assert!(held > 0, "no packet with a path has ever waited for others of its flow");
}

/// Sends everything to port 2, but for what rules say otherwise.
fn to_port(port: u32, priority: u32) -> Rule {
    Rule { priority: Priority(priority), ..Rule::new(Match::any(), vec![Action::Output(PortNo(port))]) }
}

#[test]
fn rules_that_change_while_packets_wait_count_for_them() {
    let r = &mut Random(5);
    let (mut later, sent) = worker(&[to_port(2, 1)], 1, no_caches(), By::Later(8));
    later.set_max_delay(Duration::MAX);
    let frames: Vec<Vec<u8>> = (0..20).map(|_| packet(r)).collect();
    let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    later.inject(0, &borrowed).unwrap();
    assert_eq!(later.waiting() + sent.lock().unwrap().len(), 20);
    let waiting = later.waiting();
    assert!(waiting >= 4, "twenty are two batches and four");
    later.lookup.pipeline.add_rule(to_port(3, 2)).unwrap();
    let old = later.lookup.pipeline.find_rule(0, Priority(1), &Match::any()).unwrap();
    later.lookup.pipeline.remove_rule(0, old).unwrap();
    later.settle().unwrap();
    let sent = sent.lock().unwrap();
    let by_new = sent.iter().filter(|(port, _)| *port == 3).count();
    assert_eq!((sent.len(), by_new), (20, waiting));
    assert_eq!(later.waiting_counters().outdated as usize, waiting);
}

#[test]
fn a_table_may_be_put_in_the_place_of_one_that_packets_wait_for() {
    let r = &mut Random(6);
    let (mut later, sent) = worker(&[to_port(2, 1)], 1, no_caches(), By::Later(100));
    later.set_max_delay(Duration::MAX);
    for _ in 0..20 {
        later.inject(0, &[&packet(r)]).unwrap();
    }
    assert_eq!(later.waiting(), 20);
    later.lookup.pipeline.add_table(0, "", By::Linear.engine(), Miss::Drop);
    later.lookup.pipeline.add_rule(to_port(4, 1)).unwrap();
    later.settle().unwrap();
    assert!(sent.lock().unwrap().iter().all(|(port, _)| *port == 4));
    assert_eq!((later.waiting(), sent.lock().unwrap().len()), (0, 20));
}

#[test]
fn a_batch_leaves_when_it_is_full_or_due_and_not_before() {
    let r = &mut Random(8);
    for (max_delay, wanted) in [(Duration::MAX, 0), (Duration::ZERO, 4)] {
        let (mut later, _) = worker(&[to_port(2, 1)], 1, no_caches(), By::Later(100));
        later.set_max_delay(max_delay);
        for _ in 0..4 {
            later.inject(0, &[&packet(r)]).unwrap();
        }
        let counters = later.waiting_counters();
        assert!(counters.batches_due <= wanted && (counters.batches_due > 0) == (wanted > 0), "{counters:?}");
        assert_eq!((counters.batches_full, counters.asked), (0, 4));
        (0..100).for_each(|_| later.inject(0, &[&packet(r)]).unwrap());
        assert!(max_delay == Duration::ZERO || later.waiting_counters().batches_full == 1);
        later.settle().unwrap();
        assert_eq!(later.waiting(), 0);
    }
}

#[test]
fn no_more_packets_wait_than_may() {
    let r = &mut Random(9);
    let (mut later, sent) = worker(&[to_port(2, 1)], 1, CacheConfig::default(), By::Later(4));
    later.set_max_delay(Duration::MAX);
    // All of one flow, so that the rest of a burst waits for its first.
    let bytes = packet(r);
    for _ in 0..2000 {
        later.inject(0, &[&bytes]).unwrap();
    }
    let counters = later.waiting_counters();
    let may = 8 * LANES_MAX;
    assert!(counters.most <= may, "{counters:?}");
    later.settle().unwrap();
    assert_eq!(sent.lock().unwrap().len(), 2000);
    assert!(counters.stalls + counters.batches_forced > 0, "{counters:?}");
}
