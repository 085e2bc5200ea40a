//! The ports of a core: how many operations of a kind begin in a cycle.
//!
//! An operation is bound to a port when it enters the window, to the one of those that can execute it that has the fewest
//! operations so far, and takes its first free cycle once its operands are there. The threads of a core share the ports.

use crate::config::{CoreConfig, Work};
use crate::event::Ps;

/// Words of 64 cycles that a port remembers: many more than a window lasts.
const WORDS: usize = 64;

/// The cycles that are taken, in words that are reused when time has passed.
#[derive(Clone, Debug)]
struct Calendar {
    words: [(u64, u64); WORDS],
    /// Operations that were bound to the port.
    bound: u64,
}

impl Calendar {
    /// Returns the bits of a word, of which those in the past are lost.
    fn word(&mut self, number: u64) -> &mut u64 {
        let (of, bits) = &mut self.words[number as usize % WORDS];
        if *of != number {
            (*of, *bits) = (number, 0);
        }
        bits
    }

    /// Returns the first free cycle from `cycle` on.
    fn free(&mut self, cycle: u64) -> u64 {
        let mut number = cycle / 64;
        let mut before = (1u64 << (cycle % 64)) - 1;
        loop {
            let taken = *self.word(number) | before;
            if taken != u64::MAX {
                return number * 64 + u64::from(taken.trailing_ones());
            }
            (number, before) = (number + 1, 0);
        }
    }

    fn take(&mut self, cycle: u64) {
        *self.word(cycle / 64) |= 1 << (cycle % 64);
    }
}

/// The ports of a core.
#[derive(Debug)]
pub(super) struct Ports {
    calendars: Vec<Calendar>,
    /// The ports that can execute a kind of work; none if there is no limit.
    of: [Vec<usize>; Work::ALL.len()],
    /// The ports that can execute it on vectors of 512 bits.
    wide: [Vec<usize>; Work::ALL.len()],
    cycle_ps: Ps,
}

impl Ports {
    pub(super) fn new(core: &CoreConfig, cycle_ps: Ps) -> Self {
        let can = |work: Work| -> Vec<usize> {
            (0..core.ports.len()).filter(|port| core.ports[*port].contains(&work)).collect()
        };
        let wide = can(Work::Wide);
        let can_wide = |work: Work| {
            let both: Vec<usize> = can(work).into_iter().filter(|port| wide.contains(port)).collect();
            if both.is_empty() { can(work) } else { both }
        };
        let calendar = Calendar { words: [(0, 0); WORDS], bound: 0 };
        Self {
            calendars: vec![calendar; core.ports.len()],
            of: Work::ALL.map(can),
            wide: Work::ALL.map(can_wide),
            cycle_ps,
        }
    }

    /// Binds an operation to a port; none if there is no limit.
    pub(super) fn bind(&mut self, work: Work, wide: bool) -> Option<u8> {
        let of = if wide { &self.wide } else { &self.of };
        let port = *of[work as usize].iter().min_by_key(|port| (self.calendars[**port].bound, **port))?;
        self.calendars[port].bound += 1;
        Some(port as u8)
    }

    /// Takes a cycle of a port for an operation that is ready at a time, and returns when it begins.
    pub(super) fn begin(&mut self, port: Option<u8>, ready: Ps) -> Ps {
        let Some(port) = port else { return ready };
        let calendar = &mut self.calendars[usize::from(port)];
        let at = calendar.free(ready / self.cycle_ps);
        calendar.take(at);
        ready.max(at * self.cycle_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn vectors_of_512_bits_take_those_ports_that_have_room_for_them() {
        let mut core = Preset::SkylakeSp.machine().core;
        core.ports =
            vec![vec![Work::Vector, Work::Wide], vec![Work::Vector, Work::Shuffle], vec![Work::Load]];
        let mut ports = Ports::new(&core, 10);
        let bound = [false, true, true, false].map(|wide| ports.bind(Work::Vector, wide));
        assert_eq!(bound, [Some(0), Some(0), Some(0), Some(1)]);
        // Kinds for which no port is so wide take any.
        assert_eq!([Work::Shuffle, Work::Load].map(|work| ports.bind(work, true)), [Some(1), Some(2)]);
    }

    #[test]
    fn a_port_begins_one_operation_a_cycle_and_earlier_gaps_are_used() {
        let mut core = Preset::SkylakeSp.machine().core;
        core.ports = vec![vec![Work::Alu, Work::Branch], vec![Work::Alu]];
        let mut ports = Ports::new(&core, 10);
        let mut begin = |work, ready| {
            let port = ports.bind(work, false);
            ports.begin(port, ready)
        };
        assert_eq!([begin(Work::Branch, 1005), begin(Work::Branch, 1005)], [1005, 1010]);
        // The other port has fewer operations until both have as many.
        assert_eq!(
            [begin(Work::Alu, 1000), begin(Work::Alu, 1000), begin(Work::Alu, 1000)],
            [1000, 1010, 1020]
        );
        // Without a limit.
        assert_eq!([begin(Work::Load, 7), begin(Work::Load, 7)], [7, 7]);
        // Far in the future.
        assert_eq!(
            [begin(Work::Branch, 10_000_000), begin(Work::Branch, 10_000_000)],
            [10_000_000, 10_000_010]
        );
    }
}
