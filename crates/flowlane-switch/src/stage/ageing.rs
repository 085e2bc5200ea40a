//! A timer wheel: a bounded set of entries that expire when they are idle, in the order in which they are due.
//!
//! The wheel has 1024 lists. An entry is linked into the list of the tick at which it is due unless it is used before.
//! A use only records the time: when the hand reaches the entry, the entry either is due or is linked into a later list.
//! So a use costs one write into a cache line that is read anyway, and the hand visits each entry about once per idle
//! time, or once a turn if that is longer. There is no search for due entries: an empty list answers at once, so a flood
//! of new entries against a full table costs only their refusal.
//!
//! Time is in ticks of 2²⁷ ns, about 134 ms, from the first time that the owner passes. An entry is *idle for n* while
//! the current tick is at most n later than that of its last use.

/// A tick is 2 to this many nanoseconds.
const TICK_SHIFT: u32 = 27;

/// The number of lists: a turn is 137 s, longer than most idle times.
const SLOTS: u32 = 1024;

/// No entry.
const NONE: u32 = u32::MAX;

/// The idle time of an entry that never expires.
pub const NEVER: u32 = u32::MAX;

/// The entries that the hand visits before each packet, at the packet's own time, so that the result does not depend on
/// how packets are grouped into bursts. Few enough that entries due all at once delay a packet by some microseconds.
pub const PACKET_BUDGET: usize = 128;

/// The entries that the hand visits when a table is full.
pub const FULL_BUDGET: usize = 64;

/// Converts seconds to ticks, rounded up; 0 is [`NEVER`].
pub fn idle_ticks(seconds: u64) -> u32 {
    if seconds == 0 {
        return NEVER;
    }
    let ticks = (u128::from(seconds) * 1_000_000_000).div_ceil(1 << TICK_SHIFT);
    u32::try_from(ticks).unwrap_or(NEVER - 1).min(NEVER - 1)
}

/// A clock in ticks since the first time it was given. It never goes back.
///
/// A leap of 2³² ticks (18 years) is one of the clock, not of time: the clock of frames is 0 until the first frame with a
/// timestamp. Ticks continue behind such a leap as if it had not happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    base_ns: Option<u64>,
    now: u32,
}

impl Ticks {
    /// Advances to this time and returns its tick.
    #[inline]
    pub fn at(&mut self, now_ns: u64) -> u32 {
        let base = *self.base_ns.get_or_insert(now_ns);
        match u32::try_from(now_ns.saturating_sub(base) >> TICK_SHIFT) {
            Ok(tick) => self.now = self.now.max(tick),
            Err(_) => self.base_ns = Some(now_ns - (u64::from(self.now) << TICK_SHIFT)),
        }
        self.now
    }

    /// Returns the tick at this time without advancing.
    pub fn peek(&self, now_ns: u64) -> u32 {
        let mut ticks = *self;
        ticks.at(now_ns)
    }

    /// Returns the latest tick.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Returns the time, in nanoseconds, at which a tick begins.
    pub fn ns_of(&self, tick: u32) -> u64 {
        self.base_ns.unwrap_or(0).saturating_add(u64::from(tick) << TICK_SHIFT)
    }
}

/// The part of an entry that every packet touches: one cache line if the value is small enough.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot<T> {
    value: T,
    used: u32,
    idle: u32,
    taken: bool,
}

/// An entry's place in a list.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// The list; [`NONE`] for an entry that never expires.
    list: u32,
}

/// Entries by index.
#[derive(Debug)]
pub struct Aged<T> {
    slots: Vec<Slot<T>>,
    links: Vec<Link>,
    lists: Box<[u32]>,
    free: Vec<u32>,
    entries_max: usize,
    len: usize,
    /// The tick whose list the hand is at.
    hand: u32,
}

impl<T: Copy> Aged<T> {
    /// An empty set of up to `entries_max` entries. It reserves address space for all, so that a flood of new entries
    /// causes no reallocation; the system commits memory as entries are used. If it refuses the reservation, the set
    /// grows with its entries.
    pub fn new(entries_max: usize) -> Self {
        let mut aged = Self {
            slots: Vec::new(),
            links: Vec::new(),
            lists: vec![NONE; SLOTS as usize].into(),
            free: Vec::new(),
            entries_max: entries_max.min(NONE as usize - 1),
            len: 0,
            hand: 0,
        };
        let reserved = aged.slots.try_reserve_exact(aged.entries_max);
        let reserved = reserved.and_then(|()| aged.links.try_reserve_exact(aged.entries_max));
        let reserved = reserved.and_then(|()| aged.free.try_reserve_exact(aged.entries_max));
        if reserved.is_err() {
            (aged.slots, aged.links, aged.free) = Default::default();
        }
        aged
    }

    /// Returns the number of entries, including those that are due and that the hand has not reached.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether no further entry fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.entries_max
    }

    /// Returns how many further entries fit.
    pub fn free(&self) -> usize {
        self.entries_max.saturating_sub(self.len)
    }

    /// Returns the bytes of the most entries that have been in use at one time.
    pub fn table_bytes(&self) -> usize {
        let entry = size_of::<Slot<T>>() + size_of::<Link>() + size_of::<u32>();
        self.slots.len() * entry + size_of_val(&*self.lists)
    }

    /// Adds an entry that expires when it is idle for longer than `idle` ticks. Returns none if the set is full.
    pub fn insert(&mut self, value: T, idle: u32, now: u32) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let slot = Slot { value, used: now, idle, taken: true };
        let link = Link { previous: NONE, next: NONE, list: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.links.push(link);
                (self.slots.len() - 1) as u32
            }
        };
        self.len += 1;
        self.link(at);
        Some(at)
    }

    /// Removes an entry and returns what it held.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove(&mut self, at: u32) -> T {
        self.unlink(at);
        let slot = &mut self.slots[at as usize];
        assert!(slot.taken, "entry {at} is removed once");
        slot.taken = false;
        self.free.push(at);
        self.len -= 1;
        slot.value
    }

    /// Returns an entry's value.
    ///
    /// # Panics
    /// If there has never been such an entry.
    #[inline]
    pub fn get(&self, at: u32) -> &T {
        &self.slots[at as usize].value
    }

    /// Returns an entry's value for a change.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.slots[at as usize].value
    }

    /// Prefetches an entry.
    #[inline]
    pub fn prefetch(&self, at: u32) {
        flowlane::memory::prefetch(&self.slots, at as usize);
    }

    /// Records a use of an entry.
    #[inline]
    pub fn touch(&mut self, at: u32, now: u32) {
        self.slots[at as usize].used = now;
    }

    /// Returns the tick of an entry's last use.
    pub fn used(&self, at: u32) -> u32 {
        self.slots[at as usize].used
    }

    /// Returns whether an entry has been idle for too long, though the hand has not reached it.
    #[inline]
    pub fn is_due(&self, at: u32, now: u32) -> bool {
        let slot = &self.slots[at as usize];
        slot.idle != NEVER && now.saturating_sub(slot.used) > slot.idle
    }

    /// Changes an entry's idle time.
    #[inline]
    pub fn set_idle(&mut self, at: u32, idle: u32) {
        let slot = &mut self.slots[at as usize];
        if slot.idle == idle {
            return;
        }
        // A longer time needs no work: the hand links the entry into its later list.
        let sooner = slot.idle == NEVER || idle < slot.idle || idle == NEVER;
        slot.idle = idle;
        if sooner {
            self.unlink(at);
            self.link(at);
        }
    }

    /// Returns an entry that is due, which the caller must [remove](Self::remove) before the next call; none if no entry
    /// is due or `budget` entries have been visited.
    #[inline]
    pub fn due(&mut self, now: u32, budget: &mut usize) -> Option<u32> {
        // The fast path of every packet.
        if self.hand >= now && self.lists[(self.hand % SLOTS) as usize] == NONE {
            return None;
        }
        self.turn(now, budget)
    }

    /// Moves the hand to the next entry that is due.
    #[inline(never)]
    fn turn(&mut self, now: u32, budget: &mut usize) -> Option<u32> {
        // After a turn every list has been seen.
        self.hand = self.hand.max(now.saturating_sub(SLOTS));
        loop {
            let at = self.lists[(self.hand % SLOTS) as usize];
            if at == NONE {
                if self.hand >= now {
                    return None;
                }
                self.hand += 1;
                continue;
            }
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            if self.is_due(at, now) {
                return Some(at);
            }
            self.unlink(at);
            self.link(at);
        }
    }

    /// Previews the entries that [`due`](Self::due) would return in a row with this budget.
    fn preview_due(&self, now: u32, budget: usize) -> Vec<u32> {
        let begin = self.hand.max(now.saturating_sub(SLOTS));
        let (mut gone, mut again, mut left) = (Vec::new(), Vec::new(), budget);
        for hand in begin..=now.max(begin) {
            // Entries that the hand itself has moved ahead are at the front of the list, and not due.
            let hung = again.iter().filter(|&&tick| tick == hand).count();
            let Some(rest) = left.checked_sub(hung) else { return gone };
            left = rest;
            // After a whole turn the hand is at the first list again, which it has emptied.
            let seen = hand - begin >= SLOTS;
            let mut at = if seen { NONE } else { self.lists[(hand % SLOTS) as usize] };
            while at != NONE {
                if left == 0 {
                    return gone;
                }
                left -= 1;
                match self.is_due(at, now) {
                    true => gone.push(at),
                    false => again.push(self.tick_of(at, hand)),
                }
                at = self.links[at as usize].next;
            }
        }
        gone
    }

    /// Previews the entries that a packet at this tick removes before it adds one: those due, and the `expired` ones that
    /// it finds. For dry runs: live packets age the set before they are decided.
    pub fn preview_expiry(&self, expired: &[u32], now: u32) -> Vec<u32> {
        let mut gone = self.preview_due(now, PACKET_BUDGET);
        for &at in expired {
            if !gone.contains(&at) {
                gone.push(at);
            }
        }
        if self.is_full() && gone.is_empty() {
            // The hand continues where it stopped.
            return self.preview_due(now, PACKET_BUDGET + FULL_BUDGET);
        }
        gone
    }

    /// Returns the indices of all entries.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|&at| self.slots[at as usize].taken)
    }

    /// Returns the tick at which an entry is due, at most the last of a turn that begins at `hand`.
    #[inline]
    fn tick_of(&self, at: u32, hand: u32) -> u32 {
        let slot = &self.slots[at as usize];
        let due = slot.used.saturating_add(slot.idle).saturating_add(1);
        due.clamp(hand, hand.saturating_add(SLOTS - 1))
    }

    /// Links an entry into the list of its tick.
    fn link(&mut self, at: u32) {
        if self.slots[at as usize].idle == NEVER {
            self.links[at as usize].list = NONE;
            return;
        }
        let list = self.tick_of(at, self.hand) % SLOTS;
        let next = std::mem::replace(&mut self.lists[list as usize], at);
        if next != NONE {
            self.links[next as usize].previous = at;
        }
        self.links[at as usize] = Link { previous: NONE, next, list };
    }

    fn unlink(&mut self, at: u32) {
        let Link { previous, next, list } = self.links[at as usize];
        if list == NONE {
            return;
        }
        match previous {
            NONE => self.lists[list as usize] = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[at as usize].list = NONE;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flowlane::generate::Random;

    use super::*;

    /// Removes all entries that are due.
    fn age(aged: &mut Aged<u64>, now: u32) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut budget = usize::MAX;
        while let Some(at) = aged.due(now, &mut budget) {
            gone.push(aged.remove(at));
        }
        gone.sort_unstable();
        gone
    }

    #[test]
    fn an_entry_expires_at_the_tick_after_its_idle_time() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut aged = Aged::new(50);
            // By entry: (value, when used, idle time).
            let mut model: BTreeMap<u32, (u64, u32, u32)> = BTreeMap::new();
            let mut now = random.below(5) as u32;
            for step in 0..600 {
                let idle = [NEVER, 0, 1, 7, 300, 1023, 1024, 5000][random.index(8)];
                let any = |model: &BTreeMap<u32, _>, random: &mut Random| {
                    model.keys().nth(random.index(model.len().max(1))).copied()
                };
                match random.below(6) {
                    0 | 1 => {
                        let made = aged.insert(step, idle, now);
                        assert_eq!(made.is_some(), model.len() < 50, "seed {seed}, step {step}");
                        made.map(|at| model.insert(at, (step, now, idle)));
                    }
                    2 => {
                        if let Some(at) = any(&model, &mut random) {
                            aged.touch(at, now);
                            model.get_mut(&at).unwrap().1 = now;
                        }
                    }
                    3 => {
                        if let Some(at) = any(&model, &mut random) {
                            aged.set_idle(at, idle);
                            model.get_mut(&at).unwrap().2 = idle;
                        }
                    }
                    4 => {
                        if let Some(at) = any(&model, &mut random) {
                            assert_eq!(aged.remove(at), model.remove(&at).unwrap().0);
                        }
                    }
                    _ => {
                        now += [0, 1, 3, 200, 1100, 9000][random.index(6)];
                    }
                }
                let due = |used: u32, idle: u32| idle != NEVER && now - used > idle;
                let mut gone: Vec<u64> =
                    model.values().filter(|(_, used, idle)| due(*used, *idle)).map(|e| e.0).collect();
                gone.sort_unstable();
                model.retain(|_, (_, used, idle)| !due(*used, *idle));
                assert_eq!(age(&mut aged, now), gone, "seed {seed}, step {step}, tick {now}");
                let mut numbers: Vec<u32> = aged.numbers().collect();
                numbers.sort_unstable();
                assert!(numbers.iter().eq(model.keys()) && aged.len() == model.len());
            }
        }
    }

    #[test]
    fn previewed_expiry_is_what_happens_wherever_the_hand_stops() {
        let (mut went, mut stopped) = (0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut aged = Aged::new(60);
            let mut now = 0;
            for step in 0..300 {
                now += [0, 1, 3, 200, 1023, 1024, 1025, 5000][random.index(8)];
                for _ in 0..random.index(20) {
                    let idle = [NEVER, 0, 1, 7, 1022, 1023, 1024, 3000][random.index(8)];
                    let old = random.index(60) as u32;
                    match random.below(3) {
                        0 if aged.numbers().any(|at| at == old) => aged.touch(old, now),
                        1 if aged.numbers().any(|at| at == old) => _ = aged.remove(old),
                        _ => _ = aged.insert(step, idle, now),
                    }
                }
                let mut budget = [0, 1, 5, 20, 100][random.index(5)];
                let previewed = aged.preview_due(now, budget);
                let mut next = || aged.due(now, &mut budget).inspect(|&at| _ = aged.remove(at));
                let gone: Vec<u32> = std::iter::from_fn(&mut next).collect();
                assert_eq!(previewed, gone, "seed {seed}, step {step}, tick {now}");
                went += gone.len();
                stopped += u32::from(budget == 0);
            }
        }
        assert!(went > 10_000 && stopped > 10_000, "{went} went, {stopped} stops");
    }

    #[test]
    fn the_hand_visits_up_to_its_budget_and_continues_where_it_stopped() {
        let mut aged = Aged::new(1000);
        (0..1000).for_each(|i| _ = aged.insert(i, 10, 0));
        let mut rounds = 0;
        while !aged.is_empty() {
            let mut budget = 64;
            while let Some(at) = aged.due(11, &mut budget) {
                aged.remove(at);
            }
            rounds += 1;
        }
        assert_eq!(rounds, 1000_usize.div_ceil(64));
        // Nothing is due: the hand visits no entry.
        aged.insert(1, 10, 11);
        let mut budget = 64;
        assert_eq!((aged.due(21, &mut budget), budget), (None, 64));
    }

    #[test]
    fn ticks_continue_behind_a_leap_longer_than_any_idle_time() {
        let mut ticks = Ticks::default();
        let epoch = 1_700_000_000_000_000_000;
        assert_eq!((ticks.at(0), ticks.at(3 << TICK_SHIFT)), (0, 3));
        assert_eq!(ticks.at(epoch), 3);
        assert_eq!(ticks.ns_of(3), epoch);
        assert_eq!(ticks.at(epoch + (2 << TICK_SHIFT)), 5);
        assert_eq!((ticks.at(7), ticks.at(u64::MAX)), (5, 5));
    }

    #[test]
    fn ticks_begin_with_the_first_time_and_never_go_back() {
        let mut ticks = Ticks::default();
        let epoch = 1_700_000_000_000_000_000;
        assert_eq!(ticks.at(epoch), 0);
        assert_eq!(ticks.at(epoch + (5 << TICK_SHIFT)), 5);
        assert_eq!(ticks.at(epoch), 5);
        assert_eq!(ticks.ns_of(5), epoch + (5 << TICK_SHIFT));
        let longest = u64::from(u32::MAX) << TICK_SHIFT;
        assert_eq!(Ticks::default().at(epoch + longest), 0);
        assert_eq!(ticks.at(epoch + longest), u32::MAX);
        assert_eq!((idle_ticks(0), idle_ticks(1), idle_ticks(u64::MAX)), (NEVER, 8, NEVER - 1));
    }
}
