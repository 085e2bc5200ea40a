//! Files of traces: this project's form, ChampSim's, and addresses in text (`addresses`).
//!
//! This project's form is the line `flowlane-instructions 1`, a line of JSON, and then in little-endian order the numbers
//! of codes, steps and accesses, the codes in 25 bytes each, the steps in 4 and the addresses in 8.
//!
//! ChampSim's (`trace_instruction.h`) is 64 bytes for each instruction: address, whether it is a branch and is taken, two
//! registers that it writes and four that it reads, two addresses that it writes and four that it reads; 0 for none.

mod addresses;

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Code, Step, Trace};
use crate::config::Work;

const FIRST_LINE: &str = "flowlane-instructions 1\n";
/// The longest second line.
const HEADER_MAX: u64 = 1 << 20;
/// The most instructions that are read.
const STEPS_MAX: usize = 200_000_000;

/// The least address that no program has (Intel 64: linear addresses of 57 bits), and the least name of a register that only
/// replays use.
const ADDRESS_MAX: u64 = 1 << 57;
const REGISTERS: u8 = 128;
/// The most bytes of arrays that are replayed: their lines are listed.
const ARRAYS_MAX: u64 = 2 << 30;

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a trace.
    #[error("not a trace: {0}")]
    Not(&'static str),
    /// The second line is wrong.
    #[error("not a trace: line 2: {0}")]
    Header(String),
    /// A line of a trace of addresses is wrong.
    #[error("line {line}, column {column}: {problem}")]
    Line { line: usize, column: usize, problem: String, help: &'static str },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    lookups: u64,
    #[serde(default)]
    bytes: u64,
    huge: Vec<[String; 2]>,
}

impl Trace {
    /// Writes this project's form.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let hex = |range: &Range<u64>| [range.start, range.end].map(|end| format!("{end:x}"));
        let header =
            Header { lookups: self.lookups, bytes: self.bytes, huge: self.huge.iter().map(hex).collect() };
        let header = serde_json::to_string(&header).map_err(io::Error::other)?;
        out.write_all(FIRST_LINE.as_bytes())?;
        writeln!(out, "{header}")?;
        for count in [self.code.len(), self.steps.len(), self.accesses.len()] {
            out.write_all(&(count as u64).to_le_bytes())?;
        }
        for code in &self.code {
            out.write_all(&code.address.to_le_bytes())?;
            let flags = u8::from(code.conditional) | u8::from(code.fused) << 1 | u8::from(code.prefetch) << 2;
            let flags = flags | u8::from(code.wide) << 3;
            out.write_all(&[code.work as u8, code.count, code.loads, code.stores, code.bytes, flags])?;
            out.write_all(&code.reads)?;
            out.write_all(&code.address_reads)?;
            out.write_all(&code.writes)?;
        }
        for step in &self.steps {
            out.write_all(&step.0.to_le_bytes())?;
        }
        for access in &self.accesses {
            out.write_all(&access.to_le_bytes())?;
        }
        out.flush()
    }

    /// Reads this project's form if the file begins with its first line, addresses if it begins with other text, and
    /// ChampSim's form otherwise.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is none of them.
    pub fn read(input: &mut impl BufRead) -> Result<Self, TraceError> {
        let start = input.fill_buf()?;
        if !start.starts_with(FIRST_LINE.as_bytes()) {
            // ChampSim's form begins with the eight bytes of an address, and no address is text: its highest byte is 0 or 255.
            let is_text = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
            let is_addresses = !start.is_empty() && start.iter().take(8).all(is_text);
            return if is_addresses { addresses::read(input) } else { champsim(input) };
        }
        input.consume(FIRST_LINE.len());
        let mut line = String::new();
        input.take(HEADER_MAX).read_line(&mut line)?;
        let header: Header = serde_json::from_str(&line).map_err(|e| TraceError::Header(e.to_string()))?;
        let hex = |[from, to]: &[String; 2]| {
            let end =
                |text: &str| u64::from_str_radix(text, 16).map_err(|e| TraceError::Header(e.to_string()));
            Ok::<_, TraceError>(end(from)?..end(to)?)
        };
        let huge = header.huge.iter().map(hex).collect::<Result<_, _>>()?;
        let mut counts = [0; 3];
        for count in &mut counts {
            *count = usize::try_from(u64::from_le_bytes(array(input)?)).unwrap_or(usize::MAX);
        }
        let [code, steps, accesses] = counts;
        if steps > STEPS_MAX || code > steps || accesses > 16 * steps {
            return Err(TraceError::Not("its counts are out of range"));
        }
        if header.bytes > ARRAYS_MAX {
            return Err(TraceError::Not("its arrays are too large"));
        }
        let mut trace = Self { lookups: header.lookups, bytes: header.bytes, huge, ..Self::default() };
        for _ in 0..code {
            trace.code.push(code_of(array(input)?)?);
        }
        for _ in 0..steps {
            trace.steps.push(Step(u32::from_le_bytes(array(input)?)));
        }
        for _ in 0..accesses {
            trace.accesses.push(u64::from_le_bytes(array(input)?));
        }
        trace.check()?;
        Ok(trace)
    }

    /// Checks that the trace can be replayed: every step has its code and accesses, and memory is limited.
    fn check(&self) -> Result<(), TraceError> {
        let mut accesses = 0;
        for step in &self.steps {
            let code = self.code.get(step.code()).ok_or(TraceError::Not("a step has no code"))?;
            accesses += code.accesses();
        }
        let registers =
            |code: &Code| code.reads.iter().chain(&code.address_reads).chain(&code.writes).max().copied();
        let wrong = match () {
            () if self.lookups > self.steps.len() as u64 => "it has more lookups than instructions",
            () if accesses != self.accesses.len() => "the steps have more or fewer accesses than there are",
            () if self.accesses.iter().any(|a| *a >= ADDRESS_MAX) => "an address has more than 57 bits",
            () if self.huge.iter().any(|r| r.start > r.end || r.end > ADDRESS_MAX) => {
                "a range of huge pages is none"
            }
            () if self.code.iter().any(|code| registers(code) >= Some(REGISTERS)) => "a register is unknown",
            () if self.regions().iter().map(|r| r.end - r.start).sum::<u64>() > ARRAYS_MAX => {
                "the arrays that it accesses have more than 2 GiB"
            }
            () => return Ok(()),
        };
        Err(TraceError::Not(wrong))
    }
}

fn array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], TraceError> {
    let mut bytes = [0; N];
    match input.read_exact(&mut bytes) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::Not("it ends early")),
        other => other.map(|()| bytes).map_err(TraceError::Io),
    }
}

fn code_of(bytes: [u8; 25]) -> Result<Code, TraceError> {
    let [a, b, c, d, e, f, g, h, work, count, loads, stores, wide, flags, rest @ ..] = bytes;
    let [r0, r1, r2, r3, a0, a1, a2, a3, w0, w1, w2] = rest;
    Ok(Code {
        address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        work: *Work::ALL.get(usize::from(work)).ok_or(TraceError::Not("an unknown kind of work"))?,
        count,
        reads: [r0, r1, r2, r3],
        address_reads: [a0, a1, a2, a3],
        writes: [w0, w1, w2],
        loads,
        stores,
        bytes: wide,
        conditional: flags & 1 == 1,
        fused: flags & 2 == 2,
        prefetch: flags & 4 == 4,
        wide: flags & 8 == 8,
    })
}

/// Reads ChampSim's form, uncompressed.
///
/// # Errors
/// Returns an error if the file cannot be read or does not consist of records of 64 bytes.
pub fn champsim(input: &mut impl Read) -> Result<Trace, TraceError> {
    let (mut trace, mut known, mut names) =
        (Trace::default(), HashMap::<Code, usize>::new(), Names::default());
    let mut record = [0; 64];
    loop {
        let mut have = 0;
        while have < 64 {
            match input.read(&mut record[have..])? {
                0 => break,
                more => have += more,
            }
        }
        match have {
            0 if trace.steps.is_empty() => return Err(TraceError::Not("it is empty")),
            0 => {
                trace.check()?;
                return Ok(trace);
            }
            64 => {}
            _ => return Err(TraceError::Not("ChampSim's records have 64 bytes, and the last one has fewer")),
        }
        if record[8] > 1 || record[9] > 1 {
            return Err(TraceError::Not(
                "neither this project's nor ChampSim's, nor text (is it compressed?)",
            ));
        }
        if trace.steps.len() == STEPS_MAX {
            return Err(TraceError::Not("it has too many instructions"));
        }
        let (branch, taken) = (record[8] == 1, record[9] == 1);
        let words: Vec<u64> =
            record.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect();
        let (stores, loads) = (&words[2..4], &words[4..8]);
        let conditional = branch && record[12..16].contains(&CHAMPSIM_FLAGS);
        let reads = [12, 13, 14, 15].map(|at| names.of(record[at]));
        let accesses = |of: &[u64]| of.iter().filter(|a| **a != 0).count() as u8;
        let code = Code {
            address: words[0],
            work: if branch { Work::Branch } else { Work::Alu },
            count: 1,
            reads,
            address_reads: if accesses(loads) + accesses(stores) > 0 { reads } else { [0; 4] },
            writes: [names.of(record[10]), names.of(record[11]), 0],
            loads: accesses(loads),
            stores: accesses(stores),
            bytes: 8,
            conditional,
            fused: false,
            prefetch: false,
            wide: false,
        };
        let at = *known.entry(code).or_insert_with_key(|code| {
            trace.code.push(code.clone());
            trace.code.len() - 1
        });
        trace.steps.push(Step::new(at, taken));
        trace.accesses.extend(loads.iter().chain(stores).filter(|a| **a != 0));
    }
}

/// The names of ChampSim's registers here: it uses the numbers of Intel's Pin, of which a replay knows nothing. They are none of
/// the names that a replay takes for a stack pointer or for vectors.
struct Names([u8; 256], u8);

const FIRST_NAME: u8 = 61;

impl Default for Names {
    fn default() -> Self {
        Self([0; 256], FIRST_NAME)
    }
}

impl Names {
    fn of(&mut self, register: u8) -> u8 {
        let name = &mut self.0[usize::from(register)];
        if register != 0 && *name == 0 {
            *name = self.1;
            // No program has as many registers; further ones share names.
            self.1 = if self.1 + 1 == REGISTERS { FIRST_NAME } else { self.1 + 1 };
        }
        *name
    }
}

/// ChampSim's name of the flags (`REG_FLAGS`), which conditional branches read.
const CHAMPSIM_FLAGS: u8 = 25;
