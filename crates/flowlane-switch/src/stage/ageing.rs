//! Entries that go when they have not been used for a while: bounded, and in the order in which they are due.
//!
//! A wheel of 1024 lists; an entry hangs in the list of the tick at which it will be due if it is not used until
//! then. Using it only notes the time: when the hand comes to the entry, it either is due, or is hung where it will be due
//! now. So a use costs one write into a line that is read anyway, and the hand sees each entry about once per idle time, or
//! once a turn where that is longer. There is no search for what might be due: where nothing is, that is known at once, so
//! that a full table which is flooded with new entries costs nothing beyond what refuses them.
//!
//! Time is in ticks of 2²⁷ ns, about 134 ms, from the first moment that the owner knows. An entry is *idle for n* while
//! the present tick is at most n behind that of its last use.

/// A tick is 2 to this many nanoseconds.
const TICK_SHIFT: u32 = 27;

/// Lists: a turn is 137 s, longer than most idle times.
const SLOTS: u32 = 1024;

/// No entry.
const NONE: u32 = u32::MAX;

/// The idle time of an entry that never goes.
pub const NEVER: u32 = u32::MAX;

/// How many entries the hand looks at where a packet comes, at the packet's own time, so that nothing depends on how packets
/// fall into bursts: few enough that what is due all at once delays none by more than some microseconds.
pub const PACKET_BUDGET: usize = 128;

/// How many it looks at where a table is full and something is due.
pub const FULL_BUDGET: usize = 64;

/// The ticks that begin within so many seconds, rounded up; [`NEVER`] for 0.
pub fn idle_ticks(seconds: u64) -> u32 {
    if seconds == 0 {
        return NEVER;
    }
    let ticks = (u128::from(seconds) * 1_000_000_000).div_ceil(1 << TICK_SHIFT);
    u32::try_from(ticks).unwrap_or(NEVER - 1).min(NEVER - 1)
}

/// Ticks since the first moment that was asked for. It does not go back.
///
/// A leap of 2³² ticks (18 years) is none of time, but of clocks: that of frames stands at 0 until the first with a time
/// comes. From there the ticks go on as if it had not been.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    base_ns: Option<u64>,
    now: u32,
}

impl Ticks {
    /// The tick at this time.
    #[inline]
    pub fn at(&mut self, now_ns: u64) -> u32 {
        let base = *self.base_ns.get_or_insert(now_ns);
        match u32::try_from(now_ns.saturating_sub(base) >> TICK_SHIFT) {
            Ok(tick) => self.now = self.now.max(tick),
            Err(_) => self.base_ns = Some(now_ns - (u64::from(self.now) << TICK_SHIFT)),
        }
        self.now
    }

    /// What [`at`](Self::at) would give.
    pub fn peek(&self, now_ns: u64) -> u32 {
        let mut ticks = *self;
        ticks.at(now_ns)
    }

    /// The latest tick that [`at`](Self::at) has given.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// The time, in nanoseconds, at which a tick begins.
    pub fn ns_of(&self, tick: u32) -> u64 {
        self.base_ns.unwrap_or(0).saturating_add(u64::from(tick) << TICK_SHIFT)
    }
}

/// What every packet of an entry touches: one line where it is small enough.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot<T> {
    value: T,
    used: u32,
    idle: u32,
    taken: bool,
}

/// Where an entry hangs.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// The list; [`NONE`] where it hangs in none.
    list: u32,
}

/// Entries by number.
#[derive(Debug)]
pub struct Aged<T> {
    slots: Vec<Slot<T>>,
    links: Vec<Link>,
    lists: Box<[u32]>,
    free: Vec<u32>,
    entries_max: usize,
    len: usize,
    /// The tick whose list the hand has come to.
    hand: u32,
}

impl<T: Copy> Aged<T> {
    /// Room for so many entries. Addresses are reserved for all, so that a flood of new ones is no occasion to allocate and
    /// copy; the system gives memory as entries come. Where it does not even reserve so much, room grows with them.
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

    /// Number of entries, those included that are due and that the hand has not come to.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no further one fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.entries_max
    }

    /// How many further ones fit.
    pub fn free(&self) -> usize {
        self.entries_max.saturating_sub(self.len)
    }

    /// Bytes of the entries that have been in use at a time.
    pub fn table_bytes(&self) -> usize {
        let entry = size_of::<Slot<T>>() + size_of::<Link>() + size_of::<u32>();
        self.slots.len() * entry + size_of_val(&*self.lists)
    }

    /// Adds an entry that goes when it is idle for longer than `idle` ticks; none where all are taken.
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
        self.hang(at);
        Some(at)
    }

    /// Removes an entry and returns what it held.
    ///
    /// # Panics
    /// Where there is no such entry.
    pub fn remove(&mut self, at: u32) -> T {
        self.unhang(at);
        let slot = &mut self.slots[at as usize];
        assert!(slot.taken, "entry {at} is removed once");
        slot.taken = false;
        self.free.push(at);
        self.len -= 1;
        slot.value
    }

    /// What an entry holds.
    ///
    /// # Panics
    /// Where there has never been such an entry.
    #[inline]
    pub fn get(&self, at: u32) -> &T {
        &self.slots[at as usize].value
    }

    /// What an entry holds, to be changed.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.slots[at as usize].value
    }

    /// Asks for the line of an entry.
    #[inline]
    pub fn prefetch(&self, at: u32) {
        flowlane::memory::prefetch(&self.slots, at as usize);
    }

    /// Notes that an entry is used.
    #[inline]
    pub fn touch(&mut self, at: u32, now: u32) {
        self.slots[at as usize].used = now;
    }

    /// When an entry was last used.
    pub fn used(&self, at: u32) -> u32 {
        self.slots[at as usize].used
    }

    /// Whether an entry has been idle for too long, though the hand has not come to it.
    #[inline]
    pub fn is_due(&self, at: u32, now: u32) -> bool {
        let slot = &self.slots[at as usize];
        slot.idle != NEVER && now.saturating_sub(slot.used) > slot.idle
    }

    /// Gives an entry another idle time.
    #[inline]
    pub fn set_idle(&mut self, at: u32, idle: u32) {
        let slot = &mut self.slots[at as usize];
        if slot.idle == idle {
            return;
        }
        // Where it becomes longer, the hand finds out.
        let sooner = slot.idle == NEVER || idle < slot.idle || idle == NEVER;
        slot.idle = idle;
        if sooner {
            self.unhang(at);
            self.hang(at);
        }
    }

    /// The same, unless the entry never goes.
    #[inline]
    pub fn change_idle(&mut self, at: u32, idle: u32) {
        if self.slots[at as usize].idle != NEVER {
            self.set_idle(at, idle);
        }
    }

    /// An entry that is due, to be [removed](Self::remove) by the owner before the next is asked for; none where none is,
    /// or `budget` entries have been looked at.
    #[inline]
    pub fn due(&mut self, now: u32, budget: &mut usize) -> Option<u32> {
        // What every packet asks.
        if self.hand >= now && self.lists[(self.hand % SLOTS) as usize] == NONE {
            return None;
        }
        self.turn(now, budget)
    }

    /// The same, where the hand has to move, or there is something to look at.
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
            self.unhang(at);
            self.hang(at);
        }
    }

    /// What [`due`](Self::due) would give, one after the other, until `budget` entries have been looked at.
    pub fn would_go(&self, now: u32, budget: usize) -> Vec<u32> {
        let begin = self.hand.max(now.saturating_sub(SLOTS));
        let (mut gone, mut again, mut left) = (Vec::new(), Vec::new(), budget);
        for hand in begin..=now.max(begin) {
            // What the hand itself has hung in front of it is in front of the list, and not due.
            let hung = again.iter().filter(|&&tick| tick == hand).count();
            let Some(rest) = left.checked_sub(hung) else { return gone };
            left = rest;
            // After a whole turn it comes to the first list again, and has emptied it.
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

    /// The entries that would go where a packet comes at this tick, finds those of `found` that are due, and adds an entry.
    pub fn would_go_for_new(&self, found: &[u32], now: u32) -> Vec<u32> {
        let mut gone = self.would_go(now, PACKET_BUDGET);
        for &at in found.iter().filter(|&&at| self.is_due(at, now)) {
            if !gone.contains(&at) {
                gone.push(at);
            }
        }
        if self.is_full() && gone.is_empty() {
            // The hand goes on where it has stopped.
            return self.would_go(now, PACKET_BUDGET + FULL_BUDGET);
        }
        gone
    }

    /// The entries' numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|&at| self.slots[at as usize].taken)
    }

    /// The tick at which an entry will be due, or the last one of a turn that begins at `hand`.
    #[inline]
    fn tick_of(&self, at: u32, hand: u32) -> u32 {
        let slot = &self.slots[at as usize];
        let due = slot.used.saturating_add(slot.idle).saturating_add(1);
        due.clamp(hand, hand.saturating_add(SLOTS - 1))
    }

    /// Hangs an entry into the list of its tick.
    fn hang(&mut self, at: u32) {
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

    fn unhang(&mut self, at: u32) {
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

    /// Takes what is due, however long that takes.
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
    fn an_entry_goes_at_the_tick_after_its_idle_time_whatever_has_been_done_to_it() {
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
    fn what_would_go_is_what_goes_wherever_the_hand_stops() {
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
                let would = aged.would_go(now, budget);
                let mut next = || aged.due(now, &mut budget).inspect(|&at| _ = aged.remove(at));
                let gone: Vec<u32> = std::iter::from_fn(&mut next).collect();
                assert_eq!(would, gone, "seed {seed}, step {step}, tick {now}");
                went += gone.len();
                stopped += u32::from(budget == 0);
            }
        }
        assert!(went > 10_000 && stopped > 10_000, "{went} went, {stopped} stops");
    }

    #[test]
    fn the_hand_looks_at_no_more_than_its_budget_and_goes_on_where_it_stopped() {
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
        // Nothing is due: nothing is looked at.
        aged.insert(1, 10, 11);
        let mut budget = 64;
        assert_eq!((aged.due(21, &mut budget), budget), (None, 64));
    }

    #[test]
    fn ticks_go_on_behind_a_leap_that_no_idle_time_could_be() {
        let mut ticks = Ticks::default();
        let epoch = 1_700_000_000_000_000_000;
        assert_eq!((ticks.at(0), ticks.at(3 << TICK_SHIFT)), (0, 3));
        assert_eq!(ticks.at(epoch), 3);
        assert_eq!(ticks.ns_of(3), epoch);
        assert_eq!(ticks.at(epoch + (2 << TICK_SHIFT)), 5);
        assert_eq!((ticks.at(7), ticks.at(u64::MAX)), (5, 5));
    }

    #[test]
    fn ticks_begin_with_the_first_moment_and_do_not_go_back() {
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
