//! The forwarding database (FDB): the port where each MAC address was last seen, learned by the `normal` action
//! (IEEE 802.1Q §8.7).
//!
//! Open addressing over entries of 16 bytes, at most half full: 32 MiB for a million addresses, less for fewer. The hash
//! has a secret seed.
//!
//! **When it is full**, a new address may replace one of the [`NEIGHBOURHOOD`] next to its own slot, by the number of addresses
//! that their ports have (as Open vSwitch, which evicts from the port that has most):
//!
//! 1. One of the port that has most, the one longest unseen, if that port has more than the new address's port even
//!    afterwards. So a port that fills the table takes no room from others.
//! 2. Else the one longest unseen, if that has not been seen for a tenth of the ageing time, and its port has at least half as
//!    many addresses as the new one's. So ports that have about their share can use the room of quiet hosts.
//!
//! Otherwise the address is not learned (and counted), and packets to it are flooded. So a flood of forged addresses can
//! neither grow the table nor evict active hosts.
//!
//! A *static* address is given by an administrator: it does not age, does not move, and gives its room to no other.
//!
//! A frame is decided without a change to the table: where it goes, and how its source is learned. Live frames then
//! commit the learning; `trace` does not.

mod flooded;
mod slots;

use std::cmp::Reverse;
use std::collections::{BTreeMap, btree_map};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use flowlane::packet::parse::ether_type;
use flowlane::rule::action::PortNo;

use super::vlan::Vlans;
use slots::{Entry, Slot, Slots};

/// The entries considered for replacement in a full table.
pub const NEIGHBOURHOOD: usize = 16;

/// An address: (MAC, VLAN, port, second when it was last seen).
pub type Listed = (u64, u16, PortNo, u32);

/// The slots swept for expired addresses before a new one is inserted.
const SWEEP_PER_ADDRESS: usize = 8;

/// The slots that [`Fdb::retain`] visits under one lock.
const RETAINED_AT_ONCE: usize = 4096;

/// The time when a static address was seen, which is never too long ago.
pub const STATIC: u32 = u32::MAX;

/// The slots of an empty table.
const SLOTS_MIN: usize = 64;

/// The destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormalDecision {
    /// The port where its destination address was seen.
    To(PortNo),
    /// All ports but its own.
    Flood,
    /// None: its destination address is reserved for the link (IEEE 802.1Q table 8-1, 01-80-C2-00-00-0x).
    Drop,
}

/// The addresses and VLAN of a frame.
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

    /// Returns whether the destination is reserved for the link.
    #[inline]
    fn is_reserved(&self) -> bool {
        self.destination >> 4 == 0x0018_0c20_0000
    }
}

/// Returns whether a frame's destination is reserved for the link: no switch forwards such a frame to a VLAN.
pub fn is_reserved(frame: &[u8]) -> bool {
    Ends::of(frame).is_none_or(|ends| ends.is_reserved())
}

/// The update for a frame's source address.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// None: it is known at this port and time, or is no station's address.
    Current,
    /// The time at which it was seen.
    Stale(Entry, &'a Slot),
    /// A new entry, or a new port for one.
    Unknown,
}

/// How an address that is new, or has moved, is learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// Its entry, in this slot, gets another port.
    Move(usize),
    /// It is inserted; there is room, or sweeping makes room.
    Insert,
    /// It replaces the entry in this slot.
    Replace(usize),
    /// It is not learned.
    Refuse,
}

/// Returns whether an address can be a station's: neither a group's nor zero.
#[inline]
fn is_station(mac: u64) -> bool {
    mac >> 40 & 1 == 0 && mac != 0
}

/// Returns the key of an address in a VLAN.
#[inline]
fn key_of(mac: u64, vid: u16) -> u64 {
    mac << 16 | u64::from(vid)
}

/// The counters of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbCounters {
    /// New addresses.
    pub learned: u64,
    /// Addresses that appeared at another port.
    pub moved: u64,
    /// Addresses removed because they had not been seen.
    pub aged: u64,
    /// Addresses replaced in a full table.
    pub replaced: u64,
    /// Addresses not learned because the table was full.
    pub refused: u64,
}

/// The state that the lock guards.
#[derive(Debug)]
struct Learned {
    slots: Arc<Slots>,
    len: usize,
    /// The number of addresses of each port that has any.
    per_port: BTreeMap<u32, usize>,
    hand: usize,
    counters: FdbCounters,
    /// The counters when an administrator last cleared them.
    cleared: FdbCounters,
}

#[derive(Debug)]
struct Shared {
    learned: Mutex<Learned>,
    /// The number of times that the slots have been replaced by larger ones.
    replaced: AtomicU64,
    entries_max: AtomicUsize,
    ageing_s: AtomicU32,
}

/// A worker's handle of the table, which all workers share.
///
/// A lookup takes no lock and writes only the time, once a second for each address. New addresses, those that have moved
/// and those that expire are handled under a lock.
#[derive(Debug)]
pub struct Fdb {
    shared: Arc<Shared>,
    /// The slots at the last access.
    slots: Arc<Slots>,
    replaced: u64,
    /// VLANs in which no address is learned or looked up, and whether they have been set: the next time is a change.
    flooded: Option<Arc<Vlans>>,
    flooded_is_set: bool,
}

impl Fdb {
    /// A table of at most `entries_max` addresses, forgotten when unseen for `ageing_s` seconds.
    pub fn new(entries_max: usize, ageing_s: u32, seed: u32) -> Self {
        let slots = Arc::new(Slots::new(SLOTS_MIN, seed));
        let (per_port, counters) = (BTreeMap::new(), FdbCounters::default());
        let learned =
            Learned { slots: slots.clone(), len: 0, per_port, hand: 0, counters, cleared: counters };
        let shared = Shared {
            learned: Mutex::new(learned),
            replaced: AtomicU64::new(0),
            entries_max: AtomicUsize::new(entries_max),
            ageing_s: AtomicU32::new(ageing_s),
        };
        Self { shared: Arc::new(shared), slots, replaced: 0, flooded: None, flooded_is_set: false }
    }

    /// Returns a handle of the table for another worker.
    pub fn share(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            slots: self.slots.clone(),
            replaced: self.replaced,
            flooded: self.flooded.clone(),
            flooded_is_set: self.flooded_is_set,
        }
    }

    /// Learns a frame's source and returns the frame's destination. `now_s` is the caller's clock.
    #[inline]
    pub fn switch(&mut self, frame: &[u8], port: PortNo, now_s: u32) -> NormalDecision {
        match Ends::of(frame) {
            Some(ends) => self.switch_ends(&ends, port, now_s),
            None => NormalDecision::Drop,
        }
    }

    /// Switches a frame as [`switch`](Self::switch) does, in VLAN `vid` instead of that of its header.
    pub fn switch_in(&mut self, vid: u16, frame: &[u8], port: PortNo, now_s: u32) -> NormalDecision {
        match Ends::of(frame) {
            Some(ends) => self.switch_ends(&Ends { vid, ..ends }, port, now_s),
            None => NormalDecision::Drop,
        }
    }

    #[inline]
    fn switch_ends(&mut self, ends: &Ends, port: PortNo, now_s: u32) -> NormalDecision {
        if self.is_flooded(ends.vid) {
            return ends.flooded();
        }
        self.follow();
        match self.slots.source(ends, port, now_s) {
            Source::Current => {}
            Source::Stale(entry, slot) => slot.touch(entry, now_s),
            Source::Unknown => return self.learn_new(ends, port, now_s),
        }
        self.shared.forward(&self.slots, ends, port, None, now_s)
    }

    /// Returns the destination that [`switch`](Self::switch) would return, or [`switch_in`](Self::switch_in) for a VLAN. Learns nothing.
    pub fn decide(&self, vid: Option<u16>, frame: &[u8], port: PortNo, now_s: u32) -> NormalDecision {
        let Some(mut ends) = Ends::of(frame) else { return NormalDecision::Drop };
        ends.vid = vid.unwrap_or(ends.vid);
        if self.is_flooded(ends.vid) {
            return ends.flooded();
        }
        let learned = self.lock();
        let placement = match learned.slots.source(&ends, port, now_s) {
            Source::Current | Source::Stale(..) => None,
            Source::Unknown => Some(self.shared.place(&learned, &ends, port, now_s)),
        };
        self.shared.forward(&learned.slots, &ends, port, placement, now_s)
    }

    /// Learns that `mac` was seen in VLAN `vid` at a port. Group addresses and zero are no sources.
    #[inline]
    pub fn learn(&mut self, mac: u64, vid: u16, port: PortNo, now_s: u32) {
        let ends = Ends { destination: 0, source: mac, vid };
        if self.is_flooded(vid) {
            return;
        }
        self.follow();
        match self.slots.source(&ends, port, now_s) {
            Source::Current => {}
            Source::Stale(entry, slot) => slot.touch(entry, now_s),
            Source::Unknown => _ = self.learn_new(&ends, port, now_s),
        }
    }

    /// Adds a static address, or makes one static that was learned. It is added to a full table, too.
    pub fn add_static(&mut self, mac: u64, vid: u16, port: PortNo) {
        let mut learned = self.lock();
        let entry = Entry { key: key_of(mac, vid), port: port.0, seen_s: STATIC };
        let placement = learned.slots.find(entry.key).map_or(Placement::Insert, Placement::Move);
        self.shared.put(&mut learned, placement, entry);
        drop(learned);
        self.follow();
    }

    /// Removes a static address. Returns whether there was one.
    pub fn remove_static(&self, mac: u64, vid: u16) -> bool {
        let mut learned = self.lock();
        let found = learned.slots.find(key_of(mac, vid)).ok();
        let is_static = |at: &usize| learned.slots.slots[*at].get().seen_s == STATIC;
        let Some(at) = found.filter(is_static) else { return false };
        learned.remove(at);
        true
    }

    /// Changes the limit and the ageing time. Addresses beyond a lower limit stay until they age or are replaced.
    pub fn set_limits(&self, entries_max: usize, ageing_s: u32) {
        self.shared.entries_max.store(entries_max, Ordering::Relaxed);
        self.shared.ageing_s.store(ageing_s, Ordering::Relaxed);
    }

    /// Returns the limit of addresses.
    pub fn entries_max(&self) -> usize {
        self.shared.entries_max.load(Ordering::Relaxed)
    }

    /// Lets [`recent_counters`](Self::recent_counters) begin with zero.
    pub fn clear_counters(&self) {
        let mut learned = self.lock();
        learned.cleared = learned.counters;
    }

    /// Returns the counters since they were last cleared.
    pub fn recent_counters(&self) -> FdbCounters {
        let learned = self.lock();
        let (now, before) = (&learned.counters, &learned.cleared);
        FdbCounters {
            learned: now.learned - before.learned,
            moved: now.moved - before.moved,
            aged: now.aged - before.aged,
            replaced: now.replaced - before.replaced,
            refused: now.refused - before.refused,
        }
    }

    /// Learns a source that is new or has moved, and returns the frame's destination.
    fn learn_new(&mut self, ends: &Ends, port: PortNo, now_s: u32) -> NormalDecision {
        let mut learned = self.lock();
        let placement = self.shared.place(&learned, ends, port, now_s);
        let forward = self.shared.forward(&learned.slots, ends, port, Some(placement), now_s);
        let entry = Entry { key: key_of(ends.source, ends.vid), port: port.0, seen_s: now_s };
        self.shared.commit(&mut learned, placement, entry);
        drop(learned);
        self.follow();
        forward
    }

    /// Returns the port where `mac` was last seen in VLAN `vid`, unless that is too long ago.
    #[inline]
    pub fn lookup(&self, mac: u64, vid: u16, now_s: u32) -> Option<PortNo> {
        self.shared.look_up(&self.slots, key_of(mac, vid), now_s)
    }

    /// Removes the addresses that have not been seen for the ageing time from the next `budget` slots.
    pub fn sweep(&mut self, now_s: u32, budget: usize) {
        self.shared.sweep(&mut self.lock(), now_s, budget);
    }

    /// Removes the addresses that `keep` refuses by their VLAN and port. Locks the table for a few thousand slots at a time.
    pub fn retain(&self, keep: impl Fn(u16, PortNo) -> bool) {
        self.retain_where(|vid, port, _| keep(vid, port));
    }

    /// Removes the addresses that `keep` refuses by their VLAN, port and the second when they were last seen.
    pub fn retain_where(&self, keep: impl Fn(u16, PortNo, u32) -> bool) {
        let (mut at, mut slots) = (0, self.lock().slots.clone());
        while at < slots.len() {
            let mut learned = self.lock();
            if !Arc::ptr_eq(&slots, &learned.slots) {
                (at, slots) = (0, learned.slots.clone());
            }
            for _ in 0..RETAINED_AT_ONCE {
                let Some(slot) = slots.slots.get(at) else { break };
                let Entry { key, port, seen_s } = slot.get();
                match key == 0 || keep(key as u16, PortNo(port), seen_s) {
                    true => at += 1,
                    // Another entry may have moved to this slot.
                    false => learned.remove(at),
                }
            }
        }
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

    fn lock(&self) -> MutexGuard<'_, Learned> {
        // Nothing panics while it is locked.
        self.shared.learned.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the number of addresses, including expired ones that have not been swept.
    pub fn len(&self) -> usize {
        self.lock().len
    }

    /// Returns whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters.
    pub fn counters(&self) -> FdbCounters {
        self.lock().counters
    }

    /// Returns the bytes allocated.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.lock().slots.slots)
    }

    /// Returns every address.
    pub fn entries(&self) -> Vec<Listed> {
        self.entries_from(0, usize::MAX).0
    }

    /// Returns the addresses in `budget` slots from slot `from` on, and the slot to continue from, if any. Addresses that
    /// are inserted or removed meanwhile may or may not be included.
    pub fn entries_from(&self, from: usize, budget: usize) -> (Vec<Listed>, Option<usize>) {
        let learned = self.lock();
        let len = learned.slots.len();
        let from = from.min(len);
        let end = len.min(from.saturating_add(budget));
        (learned.slots.entries(from..end), (end < len).then_some(end))
    }
}

impl Shared {
    /// Decides how a source that is new or has moved is learned.
    fn place(&self, learned: &Learned, ends: &Ends, port: PortNo, now_s: u32) -> Placement {
        let key = key_of(ends.source, ends.vid);
        if let Ok(at) = learned.slots.find(key) {
            return Placement::Move(at);
        }
        if learned.len < self.entries_max.load(Ordering::Relaxed)
            || self.sweep_frees(learned, now_s, SWEEP_PER_ADDRESS)
        {
            return Placement::Insert;
        }
        self.replaceable(learned, key, port, now_s).map_or(Placement::Refuse, Placement::Replace)
    }

    /// Decides where a frame goes once its source has been learned: by `placement`, if it is new or has moved.
    #[inline]
    fn forward(
        &self,
        slots: &Slots,
        ends: &Ends,
        port: PortNo,
        placement: Option<Placement>,
        now_s: u32,
    ) -> NormalDecision {
        if ends.is_reserved() {
            return NormalDecision::Drop;
        }
        if ends.destination >> 40 & 1 == 1 {
            return NormalDecision::Flood;
        }
        let key = key_of(ends.destination, ends.vid);
        let found = if ends.destination == ends.source && ends.source != 0 {
            (placement != Some(Placement::Refuse) && self.ageing_s() > 0).then_some(port)
        } else {
            match placement {
                Some(Placement::Replace(at)) if slots.slots[at].key() == key => None,
                _ => self.look_up(slots, key, now_s),
            }
        };
        found.map_or(NormalDecision::Flood, NormalDecision::To)
    }

    #[inline]
    fn ageing_s(&self) -> u32 {
        self.ageing_s.load(Ordering::Relaxed)
    }

    /// Learns an address as decided, and sweeps.
    fn commit(&self, learned: &mut Learned, placement: Placement, entry: Entry) {
        if !matches!(placement, Placement::Move(_)) {
            // Here and not only in maintenance, so that ageing depends on frames and their times alone.
            self.sweep(learned, entry.seen_s, SWEEP_PER_ADDRESS);
        }
        self.put(learned, placement, entry);
    }

    /// Puts an address where it was decided.
    fn put(&self, learned: &mut Learned, placement: Placement, entry: Entry) {
        if let Placement::Move(at) = placement {
            let known = learned.slots.slots[at].get();
            learned.counters.moved += u64::from(known.port != entry.port);
            let seen_s = known.seen_s.max(entry.seen_s);
            learned.slots.slots[at].change(Entry { seen_s, ..entry });
            learned.count_less(known.port);
            learned.count_more(entry.port);
            return;
        }
        match placement {
            Placement::Refuse => {
                learned.counters.refused += 1;
                return;
            }
            Placement::Replace(at) => {
                learned.remove(at);
                learned.counters.replaced += 1;
            }
            Placement::Insert | Placement::Move(_) => {
                if (learned.len + 1) * 2 > learned.slots.len() {
                    learned.slots = Arc::new(learned.slots.doubled());
                    self.replaced.fetch_add(1, Ordering::Release);
                }
            }
        }
        let at = learned.slots.find(entry.key).expect_err("the address is new");
        learned.slots.slots[at].set(Some(entry));
        learned.len += 1;
        learned.count_more(entry.port);
        learned.counters.learned += u64::from(entry.seen_s != STATIC);
    }

    #[inline]
    fn look_up(&self, slots: &Slots, key: u64, now_s: u32) -> Option<PortNo> {
        let (entry, _) = slots.entry(key)?;
        (!self.is_old(&entry, now_s)).then_some(PortNo(entry.port))
    }

    fn sweep(&self, learned: &mut Learned, now_s: u32, budget: usize) {
        for _ in 0..budget.min(learned.slots.len()) {
            let at = learned.hand & (learned.slots.len() - 1);
            if self.is_old(&learned.slots.slots[at].get(), now_s) {
                learned.remove(at); // Another entry may have moved to this slot, which is visited again.
                learned.counters.aged += 1;
            } else {
                learned.hand = at + 1;
            }
        }
    }

    /// Returns whether [`sweep`](Self::sweep) removes any address.
    fn sweep_frees(&self, learned: &Learned, now_s: u32, budget: usize) -> bool {
        // No entry moves before the first is removed.
        let slots = &learned.slots;
        let next = (0..budget.min(slots.len())).map(|i| (learned.hand + i) & (slots.len() - 1));
        next.map(|at| slots.slots[at].get()).any(|entry| self.is_old(&entry, now_s))
    }

    #[inline]
    fn is_old(&self, entry: &Entry, now_s: u32) -> bool {
        entry.key != 0 && entry.seen_s != STATIC && now_s.saturating_sub(entry.seen_s) >= self.ageing_s()
    }

    /// Returns the slot of the entry that a new address of a port replaces, of those next to the address's slot.
    fn replaceable(&self, learned: &Learned, key: u64, port: PortNo, now_s: u32) -> Option<usize> {
        let count = |port: u32| learned.per_port.get(&port).copied().unwrap_or(0);
        let own = count(port.0);
        let movable = || learned.slots.near(key).filter(|(_, entry)| entry.seen_s != STATIC);
        let near = || movable().map(|(at, entry)| (at, count(entry.port), entry.seen_s));
        let of_larger = near().filter(|&(_, others, _)| others > own + 1);
        let quiet_s = (self.ageing_s() / 10).max(1);
        let is_quiet = |seen_s: u32| now_s.saturating_sub(seen_s) >= quiet_s;
        let quiet = || near().filter(|&(_, others, seen_s)| is_quiet(seen_s) && 2 * others >= own);
        let chosen = of_larger.min_by_key(|&(_, others, seen_s)| (Reverse(others), seen_s));
        chosen.or_else(|| quiet().min_by_key(|&(_, _, seen_s)| seen_s)).map(|(at, ..)| at)
    }
}

impl Learned {
    fn remove(&mut self, at: usize) {
        let port = self.slots.slots[at].get().port;
        self.slots.remove(at);
        self.len -= 1;
        self.count_less(port);
    }

    fn count_more(&mut self, port: u32) {
        *self.per_port.entry(port).or_default() += 1;
    }

    fn count_less(&mut self, port: u32) {
        if let btree_map::Entry::Occupied(mut count) = self.per_port.entry(port) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Slots {
    /// Returns the update for a frame's source address.
    #[inline]
    fn source(&self, ends: &Ends, port: PortNo, now_s: u32) -> Source<'_> {
        if !is_station(ends.source) {
            return Source::Current;
        }
        match self.entry(key_of(ends.source, ends.vid)) {
            Some((entry, _)) if entry.seen_s == STATIC => Source::Current,
            Some((entry, _)) if entry.port == port.0 && entry.seen_s >= now_s => Source::Current,
            Some((entry, slot)) if entry.port == port.0 => Source::Stale(entry, slot),
            _ => Source::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
