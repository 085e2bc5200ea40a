//! Decoder of x86-64 instructions: registers, accesses, and the work that they are.
//!
//! Classes of work are those of Zen 3 and Skylake (Fog, *Instruction tables*; Intel 64 and IA-32 Architectures Optimization
//! Reference Manual); instructions that are rare in lookups are taken as arithmetic.

use std::collections::HashMap;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::Code;
use super::work::{gathered, prefetches, work_of};
use crate::config::Work;
use crate::machine::op::{GENERAL, VECTORS};

/// The name of the flags among registers, and the first one of masks.
const FLAGS: u8 = 100;
const MASKS: u8 = VECTORS.end;

/// Decodes instructions and knows those that it has seen.
pub struct Decoder {
    factory: InstructionInfoFactory,
    known: HashMap<u64, usize>,
    /// The decoded instructions, as the machine code of a trace.
    pub code: Vec<Code>,
    /// The memory operands of each, the length, and whether it repeats itself for the elements of an array.
    pub operands: Vec<(Vec<UsedMemory>, u8, bool)>,
}

impl Default for Decoder {
    fn default() -> Self {
        let factory = InstructionInfoFactory::new();
        Self { factory, known: HashMap::new(), code: Vec::new(), operands: Vec::new() }
    }
}

impl Decoder {
    /// Returns the position of the instruction at an address, whose bytes are read if it is new.
    pub fn at(&mut self, address: u64, bytes: impl FnOnce() -> [u8; 16]) -> usize {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let bytes = bytes();
        let instruction = iced_x86::Decoder::with_ip(64, &bytes, address, 0).decode();
        let (code, memory) = self.decode(&instruction);
        self.code.push(code);
        let repeats = instruction.is_string_instruction()
            && (instruction.has_rep_prefix()
                || instruction.has_repe_prefix()
                || instruction.has_repne_prefix());
        self.operands.push((memory, instruction.len() as u8, repeats));
        self.known.insert(address, self.code.len() - 1);
        self.code.len() - 1
    }

    fn decode(&mut self, instruction: &Instruction) -> (Code, Vec<UsedMemory>) {
        let info = self.factory.info(instruction);
        let is_stack = instruction.is_stack_instruction();
        // The stack engine keeps count of it.
        let skipped = |register: Register| is_stack && register.full_register() == Register::RSP;
        let mut memory: Vec<UsedMemory> = Vec::new();
        if prefetches(instruction) {
            memory.push(prefetched(instruction));
        } else if !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) {
            let used = info.used_memory();
            memory.extend(used.iter().filter(|m| is_read(m.access()) && m.access() != OpAccess::CondWrite));
            memory.extend(used.iter().filter(|m| is_written(m.access())));
        }
        let stores = info.used_memory().iter().filter(|m| is_written(m.access())).count().min(memory.len());
        let loads = (memory.len() - stores) * usize::from(gathered(instruction));
        let mut address_reads = List::<4>::default();
        let bases = info.used_memory().iter().chain(&memory).flat_map(|m| [m.base(), m.index()]);
        bases.filter(|register| !skipped(*register)).for_each(|register| address_reads.add(number(register)));
        let (mut reads, mut writes) = (List::<4>::default(), List::<3>::default());
        for used in info.used_registers().iter().filter(|used| !skipped(used.register())) {
            let (register, name) = (used.register(), number(used.register()));
            let operand = (0..instruction.op_count())
                .filter(|n| instruction.op_kind(*n) == OpKind::Register)
                .any(|n| number(instruction.op_register(n)) == name);
            // A part of a register keeps the other parts.
            let merges = is_written(used.access()) && (register.is_gpr8() || register.is_gpr16());
            if is_read(used.access()) && (operand || !address_reads.has(name)) || merges {
                reads.add(name);
            }
            if is_written(used.access()) {
                writes.add(name);
            }
        }
        if instruction.rflags_read() != 0 {
            reads.add(FLAGS);
        }
        if instruction.rflags_modified() != 0 {
            writes.add(FLAGS);
        }
        let (work, count) = work_of(instruction, memory.is_empty());
        let zeroes = reads.is_empty() && matches!(work, Work::Alu | Work::Vector) && is_idiom(instruction);
        let code = Code {
            address: instruction.ip(),
            work: if zeroes { Work::None } else { work },
            count,
            reads: reads.names,
            address_reads: address_reads.names,
            writes: writes.names,
            loads: loads as u8,
            stores: stores as u8,
            bytes: (instruction.memory_size().size() as u8).max(u8::from(is_stack) * 8),
            conditional: instruction.flow_control() == FlowControl::ConditionalBranch,
            fused: false,
            prefetch: prefetches(instruction),
            wide: (0..instruction.op_count())
                .any(|n| instruction.op_kind(n) == OpKind::Register && instruction.op_register(n).is_zmm()),
        };
        (code, memory)
    }

    /// Marks a branch as fused with the comparison before it.
    pub fn fuse(&mut self, branch: usize, before: usize) {
        let fuses = {
            let (b, c) = (&self.code[branch], &self.code[before]);
            b.conditional && c.stores == 0 && c.work == Work::Alu && c.writes.contains(&FLAGS)
        };
        self.code[branch].fused |= fuses;
    }
}

fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite};
    // A conditional write may keep the old value.
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite | CondWrite)
}

fn is_written(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// A short list of registers.
struct List<const N: usize> {
    names: [u8; N],
    len: usize,
}

impl<const N: usize> Default for List<N> {
    fn default() -> Self {
        Self { names: [0; N], len: 0 }
    }
}

impl<const N: usize> List<N> {
    fn has(&self, name: u8) -> bool {
        self.names[..self.len].contains(&name)
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn add(&mut self, name: u8) {
        if name != 0 && self.len < N && !self.has(name) {
            self.names[self.len] = name;
            self.len += 1;
        }
    }
}

/// Returns the name of a register; 0 for none that matters.
fn number(register: Register) -> u8 {
    let full = register.full_register();
    if full.is_gpr64() {
        GENERAL.start + full.number() as u8
    } else if full.is_zmm() {
        VECTORS.start + full.number() as u8
    } else if full.is_k() {
        MASKS + full.number() as u8
    } else {
        0
    }
}

/// Returns the memory operand of a prefetch, which does not count as memory that it uses.
fn prefetched(of: &Instruction) -> UsedMemory {
    UsedMemory::new(
        of.memory_segment(),
        of.memory_base(),
        of.memory_index(),
        of.memory_index_scale(),
        of.memory_displacement64(),
        of.memory_size(),
        OpAccess::Read,
    )
}

/// Returns whether an instruction gives zero or ones whatever its registers have.
fn is_idiom(instruction: &Instruction) -> bool {
    let n = instruction.op_count();
    n >= 2
        && instruction.op_kind(n - 1) == OpKind::Register
        && instruction.op_kind(n - 2) == OpKind::Register
        && instruction.op_register(n - 1) == instruction.op_register(n - 2)
}
