//! Where addresses were last seen: the learning of the `normal` action (IEEE 802.1Q §8.7).
//!
//! Open addressing over entries of 16 bytes, at most half full: 32 MiB for a million addresses, less while
//! there are fewer. The hash has a secret seed.
//!
//! **When it is full**, a new address takes the place of the one longest unseen among the
//! [`NEIGHBOURHOOD`] next to its own place, if that has not been seen for a tenth of the ageing time;
//! otherwise it is not learned (and counted), and packets to it are flooded. So a flood of made-up
//! addresses can neither grow the table nor push out hosts that are talking.

use flowlane::hash::murmur3;
use flowlane::packet::parse::ether_type;
use flowlane::rule::action::PortNo;

/// Entries looked at for one to replace in a full table.
pub const NEIGHBOURHOOD: usize = 16;

/// Slots that are looked at for addresses too old where a new one comes.
const SWEEP_PER_ADDRESS: usize = 8;

/// The slots that an empty table begins with.
const SLOTS_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Address and VLAN: `mac << 16 | vid`. 0, which no station has, marks a free slot.
    key: u64,
    port: u32,
    seen_s: u32,
}

const FREE: Entry = Entry { key: 0, port: 0, seen_s: 0 };
const _: () = assert!(size_of::<Entry>() == 16);

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

#[derive(Debug)]
pub struct MacTable {
    slots: Vec<Entry>,
    len: usize,
    entries_max: usize,
    ageing_s: u32,
    seed: u32,
    hand: usize,
    counters: MacCounters,
}

impl MacTable {
    /// A table of at most `entries_max` addresses, forgotten when unseen for `ageing_s` seconds.
    pub fn new(entries_max: usize, ageing_s: u32, seed: u32) -> Self {
        Self {
            slots: vec![FREE; SLOTS_MIN],
            len: 0,
            entries_max,
            ageing_s,
            seed,
            hand: 0,
            counters: MacCounters::default(),
        }
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
        ends.decide(|| self.would_find(&ends, port, now_s))
    }

    /// Where the destination would be found once the source, which may be the same, has been learnt: that may take the
    /// destination's place.
    fn would_find(&self, ends: &Ends, port: PortNo, now_s: u32) -> Option<PortNo> {
        let [source, destination] = [ends.source, ends.destination].map(|mac| key_of(mac, ends.vid));
        let comes = is_station(ends.source) && self.find(source).is_err();
        let no_room = comes && self.len >= self.entries_max && !self.would_sweep(now_s, SWEEP_PER_ADDRESS);
        let replaced = if no_room { self.replaceable(self.home(source), now_s) } else { None };
        if is_station(ends.source) && source == destination {
            let is_learnt = !no_room || replaced.is_some();
            return (is_learnt && self.ageing_s > 0).then_some(port);
        }
        if replaced.is_some_and(|at| self.slots[at].key == destination) {
            return None;
        }
        self.lookup(ends.destination, ends.vid, now_s)
    }

    /// Notes that `mac` was seen in VLAN `vid` at a port. Group addresses and zero are nobody's source.
    #[inline]
    pub fn learn(&mut self, mac: u64, vid: u16, port: PortNo, now_s: u32) {
        if !is_station(mac) {
            return;
        }
        let key = key_of(mac, vid);
        match self.find(key) {
            Ok(at) => {
                let entry = &mut self.slots[at];
                entry.seen_s = entry.seen_s.max(now_s);
                if entry.port != port.0 {
                    entry.port = port.0;
                    self.counters.moved += 1;
                }
            }
            Err(_) => {
                // Here and not only in maintenance, so that what is forgotten depends on frames and their times alone.
                self.sweep(now_s, SWEEP_PER_ADDRESS);
                let at = self.find(key).expect_err("the address is new");
                self.add(at, Entry { key, port: port.0, seen_s: now_s });
            }
        }
    }

    /// The port where `mac` was last seen in VLAN `vid`, unless that is too long ago.
    #[inline]
    pub fn lookup(&self, mac: u64, vid: u16, now_s: u32) -> Option<PortNo> {
        let entry = &self.slots[self.find(key_of(mac, vid)).ok()?];
        // Address zero in no VLAN is found in any free slot.
        let is_known = entry.key != 0 && now_s.saturating_sub(entry.seen_s) < self.ageing_s;
        is_known.then_some(PortNo(entry.port))
    }

    /// Forgets what has not been seen for the ageing time, of the next `budget` slots.
    pub fn sweep(&mut self, now_s: u32, budget: usize) {
        for _ in 0..budget.min(self.slots.len()) {
            let at = self.hand & (self.slots.len() - 1);
            let entry = self.slots[at];
            if self.is_old(&entry, now_s) {
                self.remove(at); // Another entry may have moved here: look again.
                self.counters.aged += 1;
            } else {
                self.hand = at + 1;
            }
        }
    }

    /// Whether [`sweep`](Self::sweep) would forget any.
    fn would_sweep(&self, now_s: u32, budget: usize) -> bool {
        // Nothing moves before the first goes.
        let next = (0..budget.min(self.slots.len())).map(|i| (self.hand + i) & (self.slots.len() - 1));
        next.map(|at| &self.slots[at]).any(|entry| self.is_old(entry, now_s))
    }

    #[inline]
    fn is_old(&self, entry: &Entry, now_s: u32) -> bool {
        entry.key != 0 && now_s.saturating_sub(entry.seen_s) >= self.ageing_s
    }

    /// Number of addresses, those too old that have not been swept included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What has happened so far.
    pub fn counters(&self) -> MacCounters {
        self.counters
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Entry>()
    }

    /// Every address: (mac, vid, port, when seen).
    pub fn entries(&self) -> impl Iterator<Item = (u64, u16, PortNo, u32)> {
        let used = self.slots.iter().filter(|e| e.key != 0);
        used.map(|e| (e.key >> 16, e.key as u16, PortNo(e.port), e.seen_s))
    }

    /// The addresses in `budget` slots from a place on, and the place to go on from, if any: (mac, vid, port, when seen). What
    /// comes and goes meanwhile may be told or not.
    pub fn entries_from(
        &self,
        from: usize,
        budget: usize,
    ) -> (impl Iterator<Item = (u64, u16, PortNo, u32)>, Option<usize>) {
        let from = from.min(self.slots.len());
        let end = self.slots.len().min(from.saturating_add(budget));
        let used = self.slots[from..end].iter().filter(|e| e.key != 0);
        let next = (end < self.slots.len()).then_some(end);
        (used.map(|e| (e.key >> 16, e.key as u16, PortNo(e.port), e.seen_s)), next)
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        let hash = murmur3::mix(murmur3::mix(self.seed, key as u32), (key >> 32) as u32);
        murmur3::finish(hash, 8) as usize & (self.slots.len() - 1)
    }

    /// The slot of `key`, or the free one where it would go.
    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        let wrap = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            match self.slots[at].key {
                found if found == key => return Ok(at),
                0 => return Err(at),
                _ => at = (at + 1) & wrap,
            }
        }
    }

    fn add(&mut self, mut at: usize, entry: Entry) {
        if self.len >= self.entries_max {
            if !self.make_room(self.home(entry.key), entry.seen_s) {
                self.counters.refused += 1;
                return;
            }
            at = self.find(entry.key).expect_err("the address is new");
        } else if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
            at = self.find(entry.key).expect_err("the address is new");
        }
        self.slots[at] = entry;
        self.len += 1;
        self.counters.learned += 1;
    }

    /// Removes the entry longest unseen of those from `from` on, if it has been quiet for long enough.
    fn make_room(&mut self, from: usize, now_s: u32) -> bool {
        let Some(at) = self.replaceable(from, now_s) else { return false };
        self.remove(at);
        self.counters.replaced += 1;
        true
    }

    /// The slot of the entry longest unseen of those from `from` on, if it has been quiet for long enough.
    fn replaceable(&self, from: usize, now_s: u32) -> Option<usize> {
        let wrap = self.slots.len() - 1;
        let oldest = (from..from + NEIGHBOURHOOD.min(self.slots.len()))
            .map(|at| at & wrap)
            .filter(|&at| self.slots[at].key != 0)
            .min_by_key(|&at| self.slots[at].seen_s)?;
        let quiet_s = now_s.saturating_sub(self.slots[oldest].seen_s);
        (quiet_s >= (self.ageing_s / 10).max(1)).then_some(oldest)
    }

    /// Frees a slot and moves back what would no longer be found beyond it.
    fn remove(&mut self, mut hole: usize) {
        let wrap = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let entry = self.slots[at];
            if entry.key == 0 {
                break;
            }
            let home = self.home(entry.key);
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.len -= 1;
    }

    fn grow(&mut self) {
        let double = vec![FREE; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, double);
        for entry in old.into_iter().filter(|e| e.key != 0) {
            let at = self.find(entry.key).expect_err("every address once");
            self.slots[at] = entry;
        }
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
                let replaced = table.counters.replaced;
                assert_eq!(table.switch(&frame, port, now), would, "seed {seed}, step {step}: {frame:x?}");
                decisions[[Drop, Flood].iter().position(|d| *d == would).unwrap_or(2)] += 1;
                made_room += u32::from(table.counters.replaced > replaced && matches!(would, To(_)));
            }
        }
        assert!(decisions.iter().all(|&n| n > 1000) && made_room > 10, "{decisions:?}, {made_room}");
    }
}
