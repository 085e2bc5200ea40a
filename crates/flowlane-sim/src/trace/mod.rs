//! Recorded instructions: what a processor executed, with registers, addresses and branches.
//!
//! ```text
//! flowlane sim record ── Recorder ──▶ Trace ──▶ program::Replay: micro-operations of a simulated core
//! ChampSim's traces ──── champsim ──▶
//! addresses in text ──── addresses ─▶
//! ```
//!
//! A trace has the machine code once and then, for each executed instruction, its number, whether its branch was taken,
//! and the addresses that it accessed. Results of instructions are not part of it: a replay has the timing of the recorded
//! program, including what a compiler makes of a lookup, and computes nothing.

mod decode;
mod file;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod record;
mod work;

use std::ops::Range;

use crate::config::Work;

pub use decode::Decoder;
pub use file::{TraceError, champsim};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use record::{record, recorded};

/// A recording that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There are no such tables.
    #[error("nothing to record: {0}")]
    Tables(&'static str),
    /// The process to record cannot be started.
    #[error("the process to record cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// The system does not allow it, or the process cannot be read.
    #[error("the system refuses to trace a process ({0}); some sandboxes do")]
    Refused(String),
    /// The recorded process ended by itself.
    #[error("the process to record ended before its lookups did: {0}")]
    Ended(String),
    /// There are too many instructions.
    #[error("more than 20 million instructions; record fewer lookups")]
    Long,
}

/// Refuses to execute `body` under a recorder: it is for Linux and x86-64.
///
/// # Errors
/// Always returns an error.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn recorded<T>(_: impl FnOnce() -> T) -> Result<T, RecordError> {
    Err(RecordError::Refused("instructions are recorded on Linux and x86-64 only".to_owned()))
}

/// Refuses to record the instructions of a process: it is for Linux and x86-64.
///
/// # Errors
/// Always returns an error.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn record(_: &mut std::process::Command) -> Result<Trace, RecordError> {
    Err(RecordError::Refused("instructions are recorded on Linux and x86-64 only".to_owned()))
}

/// An instruction of the machine code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Code {
    /// The address.
    pub address: u64,
    /// The kind of its computing.
    pub work: Work,
    /// The number of micro-operations that compute.
    pub count: u8,
    /// Registers that computing reads; 0 for none.
    pub reads: [u8; 4],
    /// Registers that the addresses of its accesses are computed from.
    pub address_reads: [u8; 4],
    /// Registers that it writes.
    pub writes: [u8; 3],
    /// Accesses that read memory, and those that write it.
    pub loads: u8,
    pub stores: u8,
    /// The bytes of an access.
    pub bytes: u8,
    /// Whether it is a conditional branch, which can be mispredicted.
    pub conditional: bool,
    /// Whether it shares a place in the window with the previous instruction, as a branch does with its comparison.
    pub fused: bool,
    /// Whether its read is a prefetch, for which nothing waits.
    pub prefetch: bool,
    /// Whether it has a vector of 512 bits.
    pub wide: bool,
}

impl Code {
    /// Returns the number of its accesses.
    pub fn accesses(&self) -> usize {
        usize::from(self.loads) + usize::from(self.stores)
    }
}

/// An executed instruction: the position of its code, and whether its branch was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(u32);

impl Step {
    /// Creates a step.
    pub fn new(code: usize, taken: bool) -> Self {
        Self((code as u32) << 1 | u32::from(taken))
    }

    /// Returns the position of the code.
    pub fn code(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// Returns whether the branch was taken.
    pub fn taken(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Recorded instructions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The machine code.
    pub code: Vec<Code>,
    /// The executed instructions in order.
    pub steps: Vec<Step>,
    /// The addresses of the steps' reads and then writes, in order.
    pub accesses: Vec<u64>,
    /// Address ranges on huge pages.
    pub huge: Vec<Range<u64>>,
    /// The number of lookups that the steps are; 0 if unknown.
    pub lookups: u64,
    /// The bytes of the arrays that many more of these lookups would access; 0 if unknown.
    pub bytes: u64,
}

impl Trace {
    /// Returns the ranges of addresses that lie close to each other: the arrays of which a warm cache may have lines.
    ///
    /// Two addresses belong together if they are less than 64 KiB apart, or less than a fiftieth of the huge-page range
    /// that both are in.
    pub fn regions(&self) -> Vec<Range<u64>> {
        const NEAR: u64 = 64 << 10;
        let mut all: Vec<u64> = self.accesses.iter().map(|a| a & !63).collect();
        all.sort_unstable();
        all.dedup();
        let mut out: Vec<Range<u64>> = Vec::new();
        for line in all {
            let within = self.huge.iter().find(|range| range.contains(&line));
            let near = within.map_or(NEAR, |range| ((range.end - range.start) / 50).max(NEAR));
            match out.last_mut() {
                Some(last) if line < last.end + near && within.is_none_or(|w| w.contains(&last.start)) => {
                    last.end = line + 64;
                }
                _ => out.push(line..line + 64),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
