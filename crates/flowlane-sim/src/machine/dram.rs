//! Memory: channels with banks, each with one open row, and a bus.
//!
//! Requests are served in the order of arrival at their bank; no scheduler prefers open rows.

use crate::config::DramConfig;
use crate::event::Ps;
use crate::machine::cache::{LINE_BYTES, Line};

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    free: Ps,
    /// The open row plus one; 0 if closed.
    open: u64,
}

/// The state of memory.
#[derive(Clone, Debug)]
pub struct Dram {
    config: DramConfig,
    banks: Vec<Bank>,
    buses: Vec<Ps>,
    /// Lines carried by each bus.
    carried: Vec<u64>,
    /// Requests by the state of their row: open, bank closed, another row open.
    outcomes: [u64; 3],
}

impl Dram {
    /// Creates memory with all banks closed.
    pub fn new(config: &DramConfig) -> Self {
        Self {
            config: config.clone(),
            banks: vec![Bank::default(); (config.channels * config.banks) as usize],
            buses: vec![0; config.channels as usize],
            carried: vec![0; config.channels as usize],
            outcomes: [0; 3],
        }
    }

    /// Returns the channel of a line; neighbouring lines are in different channels.
    pub fn channel(&self, line: Line) -> u32 {
        ((line ^ line >> 12) % u64::from(self.config.channels)) as u32
    }

    /// Reads or writes a line, and returns when its data are at the controller.
    pub fn access(&mut self, line: Line, at: Ps) -> Ps {
        let c = &self.config;
        let channel = self.channel(line);
        let row = line / u64::from(c.channels) / (c.row_bytes / LINE_BYTES);
        // Hashed by a few bits of the row, so that neighbouring rows are in different banks.
        let number = (row ^ row >> 7) % u64::from(c.banks);
        let bank = &mut self.banks[(channel * c.banks) as usize + number as usize];
        let row = row / u64::from(c.banks) + 1;
        let begin = (at + c.controller_ps / 2).max(bank.free);
        let (outcome, ready) = match bank.open {
            open if open == row => (0, begin),
            0 => (1, begin + c.rcd_ps),
            _ => (2, begin + c.rp_ps + c.rcd_ps),
        };
        self.outcomes[outcome] += 1;
        bank.open = row;
        // The bank's next column access may follow after a burst.
        let bus = &mut self.buses[channel as usize];
        let data = (ready + c.cas_ps).max(*bus);
        *bus = data + c.burst_ps;
        self.carried[channel as usize] += 1;
        bank.free = ready + c.burst_ps;
        data + c.burst_ps + (c.controller_ps - c.controller_ps / 2)
    }

    /// Returns the busy time of each bus.
    pub fn buses_ps(&self) -> impl Iterator<Item = Ps> {
        self.carried.iter().map(|lines| lines * self.config.burst_ps)
    }

    /// Returns the requests by the state of their row: open, bank closed, another row open.
    pub fn outcomes(&self) -> [u64; 3] {
        self.outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn open_closed_and_other_rows_take_their_times() {
        let config = Preset::Paper.machine().dram;
        let mut dram = Dram::new(&config);
        let idle = |dram: &mut Dram, line: Line, at: Ps| dram.access(line, at) - at;
        let open = config.controller_ps + config.cas_ps + config.burst_ps;
        assert_eq!(idle(&mut dram, 0, 1_000_000), open + config.rcd_ps);
        assert_eq!(idle(&mut dram, 0, 2_000_000), open);
        // The next row of the same bank.
        let same_bank = |dram: &mut Dram| {
            (1..1_000_000u64).find(|line| {
                let mut copy = dram.clone();
                copy.access(*line, 3_000_000);
                copy.outcomes()[2] == 1
            })
        };
        let other = same_bank(&mut dram).unwrap();
        assert_eq!(idle(&mut dram, other, 3_000_000), open + config.rcd_ps + config.rp_ps);
        assert_eq!(dram.outcomes(), [1, 1, 1]);
    }

    #[test]
    fn a_channel_gives_a_line_in_a_burst() {
        let config = DramConfig { channels: 1, ..Preset::Paper.machine().dram };
        let mut dram = Dram::new(&config);
        let last = (0..1000).map(|line| dram.access(line, 0)).max().unwrap();
        let bus = 1000 * config.burst_ps;
        assert!((bus..bus * 11 / 10).contains(&last), "{last} for {bus} on the bus");
    }
}
