//! The kind of work that an instruction is.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::config::Work;

/// Micro-operations of a gather for each element, apart from its load (Zen 3: 39 for eight; Fog).
const GATHER_EACH: u8 = 4;

/// Parts of the names of vector instructions, by their work; others compute element by element.
const PERMUTES: [&str; 6] = ["vperm", "extract", "insert", "compress", "expand", "vpmov"];
const SHUFFLES: [&str; 9] =
    ["shuf", "unpck", "pinsr", "pextr", "blendv", "alignr", "broadcast", "slldq", "srldq"];
const SHIFTS: [&str; 3] = ["psll", "psrl", "psra"];
const MULTIPLICATIONS: [&str; 2] = ["pmul", "pmadd"];

/// Parts of the names of plain moves.
const MOVES: [&str; 5] = ["movdq", "movap", "movup", "lddqu", "movnt"];

pub(super) fn prefetches(instruction: &Instruction) -> bool {
    use Mnemonic::{Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw};
    matches!(instruction.mnemonic(), Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchw)
}

/// Returns the elements that a gather reads, and 1 for other instructions.
pub(super) fn gathered(instruction: &Instruction) -> u8 {
    if !instruction.is_vsib() {
        return 1;
    }
    let index = instruction.memory_index().size();
    let width = if instruction.is_vsib64() { 8 } else { 4 };
    let target = instruction.op_register(0).size() / instruction.memory_size().size().max(4);
    (index / width).min(target.max(1)) as u8
}

/// Returns the work of an instruction and its micro-operations, apart from accesses.
pub(super) fn work_of(instruction: &Instruction, in_registers: bool) -> (Work, u8) {
    use Mnemonic as M;
    let (mut vector, mut general) = (false, false);
    for n in (0..instruction.op_count()).filter(|n| instruction.op_kind(*n) == OpKind::Register) {
        let register = instruction.op_register(n);
        vector |= register.is_vector_register() || register.is_k();
        general |= register.is_gpr();
    }
    if instruction.is_vsib() {
        return (Work::Vector, GATHER_EACH * gathered(instruction));
    }
    if instruction.flow_control() != FlowControl::Next {
        return (Work::Branch, 1);
    }
    let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let mnemonic = instruction.mnemonic();
    // A move from or to memory is the access alone; between registers, renaming does it.
    let is_move = mnemonic == M::Mov || has(&MOVES);
    let widens = has(&["movzx", "movsx", "movd", "movq", "broadcast"]);
    if is_move || widens && !in_registers || instruction.is_stack_instruction() || prefetches(instruction) {
        return (Work::None, 0);
    }
    let work = match mnemonic {
        M::Nop | M::Endbr64 | M::Lfence | M::Vzeroupper => return (Work::None, 0),
        M::Xchg | M::Mulx if in_registers => return (Work::Multiply, 2),
        _ if vector && general => Work::Transfer,
        M::Lea if has_three_parts(instruction) => Work::Address,
        M::Tzcnt | M::Bsf | M::Bsr => Work::Scan,
        M::Popcnt | M::Lzcnt => Work::Count,
        M::Blsr | M::Blsi | M::Blsmsk | M::Bts | M::Btr | M::Btc => Work::Bit,
        M::Imul | M::Mul | M::Mulx | M::Crc32 | M::Pdep | M::Pext => Work::Multiply,
        M::Div | M::Idiv => return (Work::Divide, 2),
        M::Shl | M::Shr | M::Sar | M::Rol | M::Ror | M::Rorx | M::Shlx | M::Shrx | M::Sarx => Work::Shift,
        M::Bzhi | M::Bextr | M::Shld | M::Shrd => Work::Shift,
        _ if !vector => Work::Alu,
        _ if has(&MULTIPLICATIONS) => Work::VectorMultiply,
        _ if has(&SHUFFLES) => Work::Shuffle,
        _ if has(&PERMUTES) => Work::Permute,
        _ if has(&SHIFTS) => Work::VectorShift,
        _ => Work::Vector,
    };
    (work, 1)
}

fn has_three_parts(lea: &Instruction) -> bool {
    lea.memory_base() != Register::None && lea.memory_index() != Register::None && lea.memory_displ_size() > 0
}
