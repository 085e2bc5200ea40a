//! Traces of addresses: text, one access a line, in the forms of simulators of memory and caches.
//!
//! | line | form | meaning |
//! |---|---|---|
//! | `0x7f00` | | a read |
//! | `0x7f00 R`, `0x7f00 W` | Ramulator's traces of memory | a read, a write |
//! | `R 0x7f00`, `W 0x7f00` | | a read, a write |
//! | `LD 0x7f00`, `ST 0x7f00` | Ramulator 2's `LoadStoreTrace` | a read, a write |
//! | `0 7f00`, `1 7f00`, `2 7f00` | Dinero's `din` | a read, a write, the fetch of an instruction |
//! | ` L 7f00,8`, ` S 7f00,8`, ` M 7f00,8`, `I  7f00,3` | Valgrind's Lackey, with bytes | a read, a write, both, the fetch of an instruction |
//!
//! Words and prefix distinguish the forms of a line, so that no form is declared and lines of several forms may follow each
//! other. `#` begins a comment; lines that begin with `==` are Valgrind's messages.
//!
//! An access is an instruction that reads and writes no register. A fetch is one without data, or belongs to the access in
//! the next line: both lines are one instruction.

use std::io::{BufRead, Read};

use super::{ADDRESS_MAX, STEPS_MAX, TraceError};
use crate::config::Work;
use crate::trace::{Code, Step, Trace};

/// The longest line in bytes.
const LINE_MAX: u64 = 4096;
/// The most bytes of an access: Lackey's limit.
const BYTES_MAX: u16 = 512;

const HELP: &str = "write `LD 0x7f00` for a read, `ST 0x7f00` for a write; `flowlane sim replay --help` lists the other forms";

/// Loads and stores of an instruction.
type Accesses = (u8, u8);
const FETCH: Accesses = (0, 0);
const READ: Accesses = (1, 0);
const WRITE: Accesses = (0, 1);
const BOTH: Accesses = (1, 1);

/// An error in a line: the wrong word and its reason.
type Wrong<'a> = (&'a str, &'static str);

/// Reads a trace of addresses.
pub(super) fn read(input: &mut impl BufRead) -> Result<Trace, TraceError> {
    let (mut trace, mut bytes) = (Trace::default(), Vec::new());
    // Whether the last line is a fetch, which the next line may complete.
    let mut is_fetched = false;
    for line in 1.. {
        bytes.clear();
        if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let wrong = |column, problem| TraceError::Line { line, column, problem, help: HELP };
        if bytes.len() as u64 == LINE_MAX {
            return Err(wrong(1, format!("the line has {LINE_MAX} or more bytes")));
        }
        let text = str::from_utf8(&bytes)
            .map_err(|e| wrong(e.valid_up_to() + 1, "not UTF-8 (is the file compressed?)".to_owned()))?;
        let parsed = parse(text).map_err(|(word, problem)| {
            let before = &text[..word.as_ptr().addr() - text.as_ptr().addr()];
            wrong(before.chars().count() + 1, format!("`{}` is {problem}", word.escape_debug()))
        })?;
        let Some((accesses, address, bytes)) = parsed else { continue };
        // The last fetch may follow.
        if trace.steps.len() + 1 == STEPS_MAX {
            return Err(TraceError::Not("it has too many instructions"));
        }
        if is_fetched && accesses == FETCH {
            trace.push(FETCH, 0, 0);
        }
        is_fetched = accesses == FETCH;
        if !is_fetched {
            trace.push(accesses, address, bytes);
        }
    }
    if is_fetched {
        trace.push(FETCH, 0, 0);
    }
    if trace.steps.is_empty() {
        return Err(TraceError::Not("it is empty"));
    }
    trace.check()?;
    Ok(trace)
}

impl Trace {
    fn push(&mut self, (loads, stores): Accesses, address: u64, bytes: u8) {
        let code = Code {
            address: 0,
            work: Work::None,
            count: 0,
            reads: [0; 4],
            address_reads: [0; 4],
            writes: [0; 3],
            loads,
            stores,
            bytes,
            conditional: false,
            fused: false,
            prefetch: false,
            wide: false,
        };
        let at = self.code.iter().position(|known| *known == code).unwrap_or_else(|| {
            self.code.push(code);
            self.code.len() - 1
        });
        self.steps.push(Step::new(at, false));
        self.accesses.extend(std::iter::repeat_n(address, usize::from(loads + stores)));
    }
}

/// Returns the accesses of a line, their address and their bytes; nothing for a line without an access.
fn parse(line: &str) -> Result<Option<(Accesses, u64, u8)>, Wrong<'_>> {
    let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
    let (accesses, word, prefix, has_bytes) = match words[..] {
        [] => return Ok(None),
        [first, ..] if first.starts_with("==") => return Ok(None),
        [address] | [address, "R"] | ["R" | "LD", address] => (READ, address, "0x", false),
        [address, "W"] | ["W" | "ST", address] => (WRITE, address, "0x", false),
        ["0", address] => (READ, address, "", false),
        ["1", address] => (WRITE, address, "", false),
        ["2", address] => (FETCH, address, "", false),
        ["L", address] => (READ, address, "", true),
        ["S", address] => (WRITE, address, "", true),
        ["M", address] => (BOTH, address, "", true),
        ["I", address] => (FETCH, address, "", true),
        [first, _] => return Err((first, "no kind of access")),
        [_, _, third, ..] => return Err((third, "one word too many")),
    };
    let (address, bytes) = match word.split_once(',') {
        Some((address, bytes)) if has_bytes => (address, bytes),
        // An access of unknown size meets another one at the same address only.
        _ if !has_bytes => (word, "1"),
        _ => return Err((word, "an address without `,` and a number of bytes")),
    };
    let digits = address.strip_prefix(prefix).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let value = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).filter(|a| *a < ADDRESS_MAX);
    let value = value.ok_or((
        word,
        match prefix {
            "" => "no hexadecimal address of up to 57 bits without 0x",
            _ => "no hexadecimal address of up to 57 bits that begins with 0x",
        },
    ))?;
    let bytes = bytes.parse().ok().filter(|bytes| (1..=BYTES_MAX).contains(bytes));
    let bytes = bytes.ok_or((word, "an access of other than 1 to 512 bytes"))?;
    Ok(Some((accesses, value, bytes.min(255) as u8)))
}
