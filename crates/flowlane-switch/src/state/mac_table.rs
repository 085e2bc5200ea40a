//! Where addresses were last seen: the learning of the `normal` action (IEEE 802.1Q §8.7).
//!
//! Open addressing over entries of 16 bytes, at most half full: 32 MiB for a million addresses, less while
//! there are fewer. The hash has a secret seed.
//!
//! **When it is full**, a new address takes the place of the one longest unseen among the
//! [`NEIGHBOURHOOD`] next to its own place, if that has not been seen for a tenth of the ageing time;
//! otherwise it is not learned (and counted), and packets to it are flooded. So a flood of made-up
//! addresses can neither grow the table nor push out hosts that are talking.

mod slots;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use flowlane::packet::parse::ether_type;
use flowlane::rule::action::PortNo;

use slots::{Entry, Slots};

/// Entries looked at for one to replace in a full table.
pub const NEIGHBOURHOOD: usize = 16;

/// An address: (mac, vid, port, when seen).
pub type Listed = (u64, u16, PortNo, u32);

/// Slots that are looked at for addresses too old where a new one comes.
const SWEEP_PER_ADDRESS: usize = 8;

/// The slots that an empty table begins with.
const SLOTS_MIN: usize = 64;

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormalDecision {
    /// To the port where its destination was seen.
    To(PortNo),
    /// To all ports but its own.
    Flood,
    /// Nowhere: its destination is reserved for the link (IEEE 802.1Q table 8-1, 01-80-C2-00-00-0x).
    Drop,
}

/// What the table asks of a frame.
#[derive(Clone, Copy, Debug)]
struct Ends {
    destination: u64,
    source: u64,
    vid: u16,
}

impl Ends {
    #[inline]
    fn of(frame: &[u8]) -> Option<Self> {
        let eth = frame.first_chunk::<14>()?;
        let mac = |at: usize| eth[at..at + 6].iter().fold(0u64, |mac, &byte| mac << 8 | u64::from(byte));
        let vid = match (u16::from_be_bytes([eth[12], eth[13]]), frame.get(14..16)) {
            (ether_type::VLAN | ether_type::QINQ, Some(tci)) => u16::from_be_bytes([tci[0], tci[1]]) & 0xfff,
            _ => 0,
        };
        Some(Self { destination: mac(0), source: mac(6), vid })
    }

    /// Where the frame goes. `find`: where its destination is, if that is one station's.
    #[inline]
    fn decide(&self, find: impl FnOnce() -> Option<PortNo>) -> NormalDecision {
        if self.destination >> 4 == 0x0018_0c20_0000 {
            return NormalDecision::Drop;
        }
        if self.destination >> 40 & 1 == 1 {
            return NormalDecision::Flood;
        }
        find().map_or(NormalDecision::Flood, NormalDecision::To)
    }
}

/// Whether an address is one that a station may have: neither a group's nor zero.
#[inline]
fn is_station(mac: u64) -> bool {
    mac >> 40 & 1 == 0 && mac != 0
}

/// What stands for an address in a VLAN.
#[inline]
fn key_of(mac: u64, vid: u16) -> u64 {
    mac << 16 | u64::from(vid)
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacCounters {
    /// New addresses.
    pub learned: u64,
    /// Addresses that came up at another port.
    pub moved: u64,
    /// Addresses forgotten because they had not been seen.
    pub aged: u64,
    /// Addresses replaced in a full table.
    pub replaced: u64,
    /// Addresses not learned because the table was full.
    pub refused: u64,
}

/// What whoever has the lock may do.
#[derive(Debug)]
struct Learnt {
    slots: Arc<Slots>,
    len: usize,
    hand: usize,
    counters: MacCounters,
}

#[derive(Debug)]
struct Shared {
    learnt: Mutex<Learnt>,
    /// How often the slots have been replaced by others.
    replaced: AtomicU64,
    entries_max: usize,
    ageing_s: u32,
}

/// A worker's hold on the table: what one learns, all see.
///
/// Looking up takes no lock and writes nothing, but for the time, once a second for each address. New addresses, those that have
/// moved and those that go are seen to under a lock.
#[derive(Debug)]
pub struct MacTable {
    shared: Arc<Shared>,
    /// As they were when this was last asked.
    slots: Arc<Slots>,
    replaced: u64,
}

impl MacTable {
    /// A table of at most `entries_max` addresses, forgotten when unseen for `ageing_s` seconds.
    pub fn new(entries_max: usize, ageing_s: u32, seed: u32) -> Self {
        let slots = Arc::new(Slots::new(SLOTS_MIN, seed));
        let learnt = Learnt { slots: slots.clone(), len: 0, hand: 0, counters: MacCounters::default() };
        let shared =
            Shared { learnt: Mutex::new(learnt), replaced: AtomicU64::new(0), entries_max, ageing_s };
        Self { shared: Arc::new(shared), slots, replaced: 0 }
    }

    /// The same table, for another worker.
    pub fn share(&self) -> Self {
        Self { shared: self.shared.clone(), slots: self.slots.clone(), replaced: self.replaced }
    }

    /// Learns where a frame's source is, and says where the frame goes. `now_s` is the caller's clock.
    #[inline]
    pub fn switch(&mut self, frame: &[u8], port: PortNo, now_s: u32) -> NormalDecision {
        let Some(ends) = Ends::of(frame) else { return NormalDecision::Drop };
        self.learn(ends.source, ends.vid, port, now_s);
        ends.decide(|| self.lookup(ends.destination, ends.vid, now_s))
    }

    /// What [`switch`](Self::switch) would say. Nothing is learnt.
    pub fn would_switch(&self, frame: &[u8], port: PortNo, now_s: u32) -> NormalDecision {
        let Some(ends) = Ends::of(frame) else { return NormalDecision::Drop };
        let learnt = self.lock();
        ends.decide(|| self.shared.would_find(&learnt, &ends, port, now_s))
    }

    /// Notes that `mac` was seen in VLAN `vid` at a port. Group addresses and zero are nobody's source.
    #[inline]
    pub fn learn(&mut self, mac: u64, vid: u16, port: PortNo, now_s: u32) {
        if !is_station(mac) {
            return;
        }
        let key = key_of(mac, vid);
        self.follow();
        match self.slots.entry(key) {
            Some((entry, _)) if entry.port == port.0 && entry.seen_s >= now_s => {}
            Some((entry, slot)) if entry.port == port.0 => slot.touch(entry, now_s),
            _ => {
                self.shared.note(&mut self.lock(), Entry { key, port: port.0, seen_s: now_s });
                self.follow();
            }
        }
    }

    /// The port where `mac` was last seen in VLAN `vid`, unless that is too long ago.
    #[inline]
    pub fn lookup(&self, mac: u64, vid: u16, now_s: u32) -> Option<PortNo> {
        self.shared.look_up(&self.slots, key_of(mac, vid), now_s)
    }

    /// Forgets what has not been seen for the ageing time, of the next `budget` slots.
    pub fn sweep(&mut self, now_s: u32, budget: usize) {
        self.shared.sweep(&mut self.lock(), now_s, budget);
    }

    /// Takes the newest slots.
    #[inline]
    fn follow(&mut self) {
        let replaced = self.shared.replaced.load(Ordering::Acquire);
        if replaced != self.replaced {
            let newest = self.lock().slots.clone();
            self.slots = newest;
            self.replaced = replaced;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Learnt> {
        // Nothing panics while it is locked.
        self.shared.learnt.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Number of addresses, those too old that have not been swept included.
    pub fn len(&self) -> usize {
        self.lock().len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened so far.
    pub fn counters(&self) -> MacCounters {
        self.lock().counters
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.lock().slots.slots)
    }

    /// Every address.
    pub fn entries(&self) -> Vec<Listed> {
        self.entries_from(0, usize::MAX).0
    }

    /// The addresses in `budget` slots from a place on, and the place to go on from, if any. What
    /// comes and goes meanwhile may be told or not.
    pub fn entries_from(&self, from: usize, budget: usize) -> (Vec<Listed>, Option<usize>) {
        let learnt = self.lock();
        let len = learnt.slots.len();
        let from = from.min(len);
        let end = len.min(from.saturating_add(budget));
        (learnt.slots.entries(from..end), (end < len).then_some(end))
    }
}

/// What is done under the lock.
impl Shared {
    /// An address is new, or at another port.
    fn note(&self, learnt: &mut Learnt, entry: Entry) {
        if let Ok(at) = learnt.slots.find(entry.key) {
            let known = learnt.slots.slots[at].get();
            learnt.counters.moved += u64::from(known.port != entry.port);
            let seen_s = known.seen_s.max(entry.seen_s);
            learnt.slots.slots[at].change(Entry { seen_s, ..entry });
            return;
        }
        // Here and not only in maintenance, so that what is forgotten depends on frames and their times alone.
        self.sweep(learnt, entry.seen_s, SWEEP_PER_ADDRESS);
        if learnt.len >= self.entries_max {
            let Some(at) = self.replaceable(learnt, entry.key, entry.seen_s) else {
                learnt.counters.refused += 1;
                return;
            };
            learnt.remove(at);
            learnt.counters.replaced += 1;
        } else if (learnt.len + 1) * 2 > learnt.slots.len() {
            learnt.slots = Arc::new(learnt.slots.doubled());
            self.replaced.fetch_add(1, Ordering::Release);
        }
        let at = learnt.slots.find(entry.key).expect_err("the address is new");
        learnt.slots.slots[at].set(Some(entry));
        learnt.len += 1;
        learnt.counters.learned += 1;
    }

    #[inline]
    fn look_up(&self, slots: &Slots, key: u64, now_s: u32) -> Option<PortNo> {
        let (entry, _) = slots.entry(key)?;
        (!self.is_old(&entry, now_s)).then_some(PortNo(entry.port))
    }

    /// Where the destination would be found once the source, which may be the same, has been learnt: that may take the
    /// destination's place.
    fn would_find(&self, learnt: &Learnt, ends: &Ends, port: PortNo, now_s: u32) -> Option<PortNo> {
        let [source, destination] = [ends.source, ends.destination].map(|mac| key_of(mac, ends.vid));
        let comes = is_station(ends.source) && learnt.slots.find(source).is_err();
        let full = learnt.len >= self.entries_max;
        let no_room = comes && full && !self.would_sweep(learnt, now_s, SWEEP_PER_ADDRESS);
        let replaced = if no_room { self.replaceable(learnt, source, now_s) } else { None };
        if is_station(ends.source) && source == destination {
            let is_learnt = !no_room || replaced.is_some();
            return (is_learnt && self.ageing_s > 0).then_some(port);
        }
        if replaced.is_some_and(|at| learnt.slots.slots[at].key() == destination) {
            return None;
        }
        self.look_up(&learnt.slots, destination, now_s)
    }

    fn sweep(&self, learnt: &mut Learnt, now_s: u32, budget: usize) {
        for _ in 0..budget.min(learnt.slots.len()) {
            let at = learnt.hand & (learnt.slots.len() - 1);
            if self.is_old(&learnt.slots.slots[at].get(), now_s) {
                learnt.remove(at); // Another entry may have moved here: look again.
                learnt.counters.aged += 1;
            } else {
                learnt.hand = at + 1;
            }
        }
    }

    /// Whether [`sweep`](Self::sweep) would forget any.
    fn would_sweep(&self, learnt: &Learnt, now_s: u32, budget: usize) -> bool {
        // Nothing moves before the first goes.
        let slots = &learnt.slots;
        let next = (0..budget.min(slots.len())).map(|i| (learnt.hand + i) & (slots.len() - 1));
        next.map(|at| slots.slots[at].get()).any(|entry| self.is_old(&entry, now_s))
    }

    #[inline]
    fn is_old(&self, entry: &Entry, now_s: u32) -> bool {
        entry.key != 0 && now_s.saturating_sub(entry.seen_s) >= self.ageing_s
    }

    /// The slot of the entry longest unseen of those next to the place of a new address, if it has been quiet for long enough.
    fn replaceable(&self, learnt: &Learnt, key: u64, now_s: u32) -> Option<usize> {
        let oldest = learnt.slots.oldest_near(key)?;
        let quiet_s = now_s.saturating_sub(learnt.slots.slots[oldest].get().seen_s);
        (quiet_s >= (self.ageing_s / 10).max(1)).then_some(oldest)
    }
}

impl Learnt {
    fn remove(&mut self, at: usize) {
        self.slots.remove(at);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flowlane::generate::Random;

    use super::*;

    #[test]
    fn behaves_as_a_map_with_ageing() {
        let mut table = MacTable::new(1 << 20, 300, 7);
        let mut model: HashMap<(u64, u16), (u32, u32)> = HashMap::new();
        let mut state = 1u64;
        for step in 0..50_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (mac, vid, port) = (1 + (state >> 33) % 500, (state >> 50) as u16 % 3, (state >> 60) as u32);
            let now = step / 10;
            if state >> 40 & 3 == 0 {
                table.learn(mac, vid, PortNo(port), now);
                model.insert((mac, vid), (port, now));
            }
            let wanted = model.get(&(mac, vid)).filter(|(_, seen)| now - seen < 300);
            assert_eq!(table.lookup(mac, vid, now), wanted.map(|(port, _)| PortNo(*port)), "step {step}");
            table.sweep(now, 3);
        }
        assert!(table.counters().aged > 0 && table.counters().moved > 0);
        table.sweep(1_000_000, usize::MAX);
        table.sweep(1_000_000, usize::MAX);
        assert!(table.is_empty());
    }

    #[test]
    fn a_flood_of_addresses_leaves_active_hosts_alone() {
        let mut table = MacTable::new(1000, 300, 9);
        for mac in 1..=500 {
            table.learn(mac, 0, PortNo(1), 0);
        }
        for now in 1..100u32 {
            for mac in 1..=500 {
                table.learn(mac, 0, PortNo(1), now);
            }
            for mac in 0..5000u64 {
                table.learn(0x0200_0000_0000 + u64::from(now) * 5000 + mac, 0, PortNo(2), now);
            }
            assert!(table.len() <= 1000);
        }
        assert!((1..=500).all(|mac| table.lookup(mac, 0, 100) == Some(PortNo(1))));
        assert!(table.counters().refused > 0 && table.counters().replaced > 0);
    }

    #[test]
    fn a_million_addresses_take_32_mib() {
        let mut table = MacTable::new(1_000_000, 300, 3);
        for mac in 1..=1_000_001u64 {
            table.learn(mac << 1, 5, PortNo(1), 0);
        }
        assert_eq!((table.len(), table.counters().refused), (1_000_000, 1));
        assert!(table.table_bytes() <= 32 << 20);
    }

    #[test]
    fn group_addresses_are_flooded_and_never_learned_and_link_local_ones_dropped() {
        let mut table = MacTable::new(10, 300, 0);
        let frame = |dst: [u8; 6], src: [u8; 6]| [&dst[..], &src, &[8, 0]].concat();
        let (host, group) = ([2, 0, 0, 0, 0, 1], [3, 0, 0, 0, 0, 1]);
        assert_eq!(table.switch(&frame(group, group), PortNo(1), 0), NormalDecision::Flood);
        assert!(table.is_empty());
        assert_eq!(table.switch(&frame(host, host), PortNo(1), 0), NormalDecision::To(PortNo(1)));
        // Nobody has address zero, however new the table is.
        assert_eq!(table.switch(&frame([0; 6], host), PortNo(1), 0), NormalDecision::Flood);
        let reserved = [1, 0x80, 0xc2, 0, 0, 0xe];
        assert_eq!(table.switch(&frame(reserved, host), PortNo(1), 0), NormalDecision::Drop);
        assert_eq!(table.switch(&[0; 5], PortNo(1), 0), NormalDecision::Drop);
    }

    #[test]
    fn what_would_be_done_with_a_frame_is_done_then_and_asking_changes_nothing() {
        use NormalDecision::{Drop, Flood, To};
        // Decisions, and those of full tables in which one address took the place of the other.
        let (mut decisions, mut made_room) = ([0; 3], 0);
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let (most, ageing_s) = ([0, 1, 6, 40, 500][random.index(5)], [0, 1, 15, 60][random.index(4)]);
            let mut table = MacTable::new(most, ageing_s, random.bits() as u32);
            let (hosts, mut now) = ([3, 20, 300][random.index(3)], 0);
            for step in 0..2000 {
                now += [0, 0, 0, 1, 1, 4, 40][random.index(7)];
                let mut frame = vec![0; random.index(20).max(random.index(20))];
                for mac in frame.chunks_mut(6).take(2).filter(|mac| mac.len() == 6) {
                    let host = random.below(hosts).to_be_bytes();
                    mac.copy_from_slice(match random.below(12) {
                        0 => &[0x01, 0x80, 0xc2, 0, 0, 3],
                        1 => &[3, 0, 0, 0, 0, 1],
                        _ => &host[2..],
                    });
                }
                if random.chance(0.3) && frame.len() >= 14 {
                    frame[12..14].copy_from_slice(&[0x81, 0]);
                    frame[14..].fill(random.below(2) as u8);
                }
                let port = PortNo(random.below(3) as u32);
                let before = format!("{table:?}");
                let would = table.would_switch(&frame, port, now);
                assert_eq!(format!("{table:?}"), before, "seed {seed}, step {step}");
                let replaced = table.counters().replaced;
                assert_eq!(table.switch(&frame, port, now), would, "seed {seed}, step {step}: {frame:x?}");
                decisions[[Drop, Flood].iter().position(|d| *d == would).unwrap_or(2)] += 1;
                made_room += u32::from(table.counters().replaced > replaced && matches!(would, To(_)));
            }
        }
        assert!(decisions.iter().all(|&n| n > 1000) && made_room > 10, "{decisions:?}, {made_room}");
    }
}
