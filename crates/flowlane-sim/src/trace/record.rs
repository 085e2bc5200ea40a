//! Recorder: executes another process of this program step by step.
//!
//! The recorded process prepares its tables and caches, and then asks to be traced and stops itself
//! ([`recorded`]). The recorder reads registers before each instruction and computes the addresses that it accesses, until
//! the process stops itself again. Both are on one processor, where a step costs least.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};

use iced_x86::{Register, UsedMemory};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Decoder, RecordError, Step, Trace};

/// Bytes that a repeating instruction accesses in a cycle (Zen 3, Skylake).
const REPEATED_BYTES: u64 = 32;

/// More instructions end a recording with an error.
const STEPS_MAX: usize = 20_000_000;

impl From<nix::Error> for RecordError {
    fn from(error: nix::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Executes `body` under a recorder, in the process that it started.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn recorded<T>(body: impl FnOnce() -> T) -> Result<T, RecordError> {
    ptrace::traceme()?;
    raise(Signal::SIGSTOP)?;
    let out = std::hint::black_box(body());
    raise(Signal::SIGSTOP)?;
    Ok(out)
}

/// Records the instructions of a process between its two stops in [`recorded`].
///
/// # Errors
/// Returns an error if the process cannot be started or traced, or ends.
pub fn record(command: &mut Command) -> Result<Trace, RecordError> {
    let own = sched_getaffinity(Pid::from_raw(0)).ok();
    if let Some(own) = &own {
        let mut one = CpuSet::new();
        let first = (0..CpuSet::count()).rev().find(|cpu| own.is_set(*cpu).unwrap_or(false));
        one.set(first.unwrap_or(0))?;
        sched_setaffinity(Pid::from_raw(0), &one)?;
    }
    let child = command.spawn();
    let trace = child.map_err(RecordError::from).and_then(|mut child| {
        let trace = steps_of(&child);
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
        trace
    });
    if let Some(own) = own {
        sched_setaffinity(Pid::from_raw(0), &own)?;
    }
    trace
}

fn steps_of(child: &Child) -> Result<Trace, RecordError> {
    let pid = Pid::from_raw(child.id() as i32);
    let stopped = |expected: Signal| match waitpid(pid, None)? {
        WaitStatus::Stopped(_, signal) if signal == expected => Ok(true),
        WaitStatus::Stopped(_, Signal::SIGSTOP) => Ok(false),
        other => Err(RecordError::Ended(format!("{other:?}"))),
    };
    stopped(Signal::SIGSTOP)?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut decoder = Decoder::default();
    let mut trace = Trace { huge: huge_ranges(pid)?, ..Trace::default() };
    let mut before: Option<(usize, u64)> = None;
    // The line of the last element that a repeating instruction accessed.
    let mut element = None;
    loop {
        let registers = ptrace::getregs(pid)?;
        let code = decoder.at(registers.rip, || {
            let mut bytes = [0x90; 16];
            // At the end of a mapping fewer are there.
            let _ = memory.read_at(&mut bytes, registers.rip);
            bytes
        });
        let (operands, len, repeats) = &decoder.operands[code];
        let (len, repeats) = (*len, *repeats);
        let line = repeats.then_some((registers.rip, registers.rdi / REPEATED_BYTES));
        // Cores repeat some instructions for many elements at once.
        let again = repeats && line == std::mem::replace(&mut element, line);
        if !again {
            let at = trace.accesses.len();
            let index = |m: &UsedMemory| m.index().is_vector_register();
            let vectors = operands.iter().any(index).then(|| vectors(pid)).transpose()?;
            for operand in operands {
                let loads = decoder.code[code].loads;
                addresses(operand, &registers, vectors.as_ref(), loads, &mut trace.accesses);
            }
            debug_assert_eq!(trace.accesses.len() - at, decoder.code[code].accesses());
            if let Some((last, follows)) = before {
                trace.steps.push(Step::new(last, registers.rip != follows));
                if registers.rip == follows {
                    decoder.fuse(code, last);
                }
            }
            before = Some((code, registers.rip + u64::from(len)));
        }
        if trace.steps.len() > STEPS_MAX {
            return Err(RecordError::Long);
        }
        ptrace::step(pid, None)?;
        if !stopped(Signal::SIGTRAP)? {
            break;
        }
    }
    trace.accesses.truncate(trace.steps.iter().map(|s| decoder.code[s.code()].accesses()).sum());
    trace.code = decoder.code;
    Ok(trace)
}

/// Appends the addresses of a memory operand.
fn addresses(
    operand: &UsedMemory,
    registers: &nix::libc::user_regs_struct,
    vectors: Option<&Vectors>,
    elements: u8,
    out: &mut Vec<u64>,
) {
    let value = |register: Register, element: usize, width: usize| match vectors {
        Some(vectors) if register.is_vector_register() => {
            Some(vectors.element(register.full_register().number(), element, width))
        }
        _ => Some(general(registers, register)),
    };
    let count = if operand.index().is_vector_register() { usize::from(elements) } else { 1 };
    for element in 0..count {
        let address = operand.virtual_address(element, value);
        out.push(address.unwrap_or(0));
    }
}

fn general(of: &nix::libc::user_regs_struct, register: Register) -> u64 {
    match register.full_register() {
        Register::RAX => of.rax,
        Register::RCX => of.rcx,
        Register::RDX => of.rdx,
        Register::RBX => of.rbx,
        Register::RSP => of.rsp,
        Register::RBP => of.rbp,
        Register::RSI => of.rsi,
        Register::RDI => of.rdi,
        Register::R8 => of.r8,
        Register::R9 => of.r9,
        Register::R10 => of.r10,
        Register::R11 => of.r11,
        Register::R12 => of.r12,
        Register::R13 => of.r13,
        Register::R14 => of.r14,
        Register::R15 => of.r15,
        Register::RIP => of.rip,
        Register::FS => of.fs_base,
        Register::GS => of.gs_base,
        _ => 0,
    }
}

/// The lower 256 bits of the first sixteen vector registers, as XSAVE writes them in its standard form: the lower half at
/// 160, the upper half at 576 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 13.4).
struct Vectors([u8; 832]);

const LOWER: usize = 160;
const UPPER: usize = 576;

impl Vectors {
    fn element(&self, register: usize, element: usize, width: usize) -> u64 {
        let at = element * width;
        let at = if at < 16 { LOWER + register * 16 + at } else { UPPER + register * 16 + (at - 16) };
        let mut bytes = [0; 8];
        // Wider registers than these are not read.
        if let Some(found) = self.0.get(at..at + width).filter(|_| register < 16 && element * width < 32) {
            bytes[..width].copy_from_slice(found);
        }
        match width {
            4 => i64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) as u64,
            _ => u64::from_le_bytes(bytes),
        }
    }
}

fn vectors(pid: Pid) -> Result<Vectors, RecordError> {
    const NT_X86_XSTATE: usize = 0x202;
    let mut state = Vectors([0; 832]);
    let mut part = nix::libc::iovec { iov_base: state.0.as_mut_ptr().cast(), iov_len: state.0.len() };
    // SAFETY: the system writes at most `iov_len` bytes to `iov_base`, which is `state`, alive and as long.
    let outcome =
        unsafe { nix::libc::ptrace(nix::libc::PTRACE_GETREGSET, pid.as_raw(), NT_X86_XSTATE, &raw mut part) };
    nix::errno::Errno::result(outcome)?;
    Ok(state)
}

/// Returns the mappings that are mostly on huge pages.
fn huge_ranges(pid: Pid) -> io::Result<Vec<Range<u64>>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let mut out = Vec::new();
    let mut range = 0..0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let ends = first.split_once('-').map(|(from, to)| [from, to].map(|end| u64::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = ends {
            range = from..to;
        } else if first == "AnonHugePages:"
            && let Some(kib) = words.next().and_then(|kib| kib.parse::<u64>().ok())
            && kib << 10 >= (range.end - range.start) / 2
            && kib > 0
        {
            out.push(range.clone());
        }
    }
    Ok(out)
}
