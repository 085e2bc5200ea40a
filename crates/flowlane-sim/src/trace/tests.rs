use std::sync::Arc;

use super::*;
use crate::config::Preset;
use crate::program::replay;

/// Decodes one instruction.
fn code(bytes: &[u8]) -> Code {
    let mut all = [0x90; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    let mut decoder = Decoder::default();
    let at = decoder.at(0x1000, || all);
    decoder.code[at].clone()
}

const RAX: u8 = 1;
const RCX: u8 = 2;
const RBX: u8 = 4;
const RDI: u8 = 8;

#[test]
fn instructions_are_decoded_into_registers_accesses_and_work() {
    // add rax, [rbx+rcx*4]
    let add = code(&[0x48, 0x03, 0x04, 0x8b]);
    assert_eq!((add.work, add.count, add.loads, add.stores, add.bytes), (Work::Alu, 1, 1, 0, 8));
    assert!(add.reads.contains(&RAX) && !add.reads.contains(&RBX), "{:?}", add.reads);
    assert_eq!(add.address_reads, [RBX, RCX, 0, 0]);
    // push rdi: the stack pointer is not an operand.
    let push = code(&[0x57]);
    assert_eq!(
        (push.work, push.stores, push.reads, push.address_reads),
        (Work::None, 1, [RDI, 0, 0, 0], [0; 4])
    );
    // xor eax, eax needs nothing; mov rax, rcx is renamed; al keeps the rest of rax.
    assert_eq!((code(&[0x31, 0xc0]).work, code(&[0x31, 0xc0]).reads), (Work::None, [0; 4]));
    assert_eq!((code(&[0x48, 0x89, 0xc8]).work, code(&[0x48, 0x89, 0xc8]).count), (Work::None, 0));
    assert!(code(&[0xb0, 0x07]).reads.contains(&RAX));
    // prefetcht0 [rax]; imul rax, rcx; tzcnt eax, ecx; lea rax, [rcx+rbx+8]
    let prefetch = code(&[0x0f, 0x18, 0x08]);
    assert_eq!((prefetch.loads, prefetch.prefetch, prefetch.address_reads), (1, true, [RAX, 0, 0, 0]));
    assert_eq!(code(&[0x48, 0x0f, 0xaf, 0xc1]).work, Work::Multiply);
    assert_eq!(code(&[0xf3, 0x0f, 0xbc, 0xc1]).work, Work::Scan);
    let lea = code(&[0x48, 0x8d, 0x44, 0x19, 0x08]);
    assert_eq!((lea.work, lea.loads), (Work::Address, 0));
    // vpgatherdd ymm0, [rdi+ymm1*4], ymm2; vpmulld ymm0, ymm0, ymm1; vpermd ymm0, ymm0, ymm1
    assert_eq!(code(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x8f]).loads, 8);
    assert_eq!(code(&[0xc4, 0xe2, 0x7d, 0x40, 0xc1]).work, Work::VectorMultiply);
    assert_eq!(code(&[0xc4, 0xe2, 0x7d, 0x36, 0xc1]).work, Work::Permute);
    // jne
    let jump = code(&[0x75, 0x10]);
    assert!(jump.conditional && jump.work == Work::Branch);
}

#[test]
fn vectors_of_512_bits_are_wide() {
    // vpmulld zmm0, zmm0, zmm1; vmovdqu32 zmm0, [rdi]; vpmulld ymm0, ymm0, ymm1
    let multiply = code(&[0x62, 0xf2, 0x7d, 0x48, 0x40, 0xc1]);
    assert_eq!((multiply.work, multiply.wide), (Work::VectorMultiply, true));
    let load = code(&[0x62, 0xf1, 0x7e, 0x48, 0x6f, 0x07]);
    assert_eq!((load.bytes, load.wide), (64, true));
    assert!(!code(&[0xc4, 0xe2, 0x7d, 0x40, 0xc1]).wide);
    // Kept in files, and twice the time where their unit has half the width.
    let of = trace(multiply, 4000, |_| 0);
    let mut file = Vec::new();
    of.write(&mut file).unwrap();
    assert!(Trace::read(&mut &file[..]).unwrap().code[0].wide);
    let on = |preset: Preset, of: &Trace| replay(&Arc::new(of.clone()), &preset.machine(), 1).unwrap().cycles;
    let independent = |wide| {
        let code = Code { reads: [0; 4], wide, ..of.code[0].clone() };
        trace(code, 4000, |_| 0)
    };
    let [narrow, wide] = [false, true].map(|wide| on(Preset::SapphireRapids, &independent(wide)));
    assert!((narrow - 1.0).abs() < 0.05 && (wide - 2.0).abs() < 0.1, "{narrow}, {wide}");
    let [narrow, wide] = [false, true].map(|wide| on(Preset::Zen4, &independent(wide)));
    assert!((narrow - 0.5).abs() < 0.05 && (wide - 1.0).abs() < 0.05, "{narrow}, {wide}");
}

#[test]
fn a_branch_is_fused_with_the_comparison_before_it() {
    let mut decoder = Decoder::default();
    let bytes = |of: &'static [u8]| {
        move || {
            let mut all = [0x90; 16];
            all[..of.len()].copy_from_slice(of);
            all
        }
    };
    let compare = decoder.at(0x1000, bytes(&[0x48, 0x39, 0xc8]));
    let jump = decoder.at(0x1003, bytes(&[0x75, 0x10]));
    decoder.fuse(jump, compare);
    assert!(decoder.code[jump].fused && !decoder.code[compare].fused);
}

/// A trace of equal instructions.
fn trace(code: Code, count: usize, accesses: impl Fn(u64) -> u64) -> Trace {
    let of = code.accesses() as u64;
    let accesses = (0..count as u64 * of).map(accesses).collect();
    let steps = vec![Step::new(0, false); count];
    Trace { code: vec![code], steps, accesses, huge: Vec::new(), lookups: count as u64, bytes: 0 }
}

#[test]
fn files_hold_traces_and_damage_is_reported() {
    let mut whole = trace(code(&[0x48, 0x03, 0x04, 0x8b]), 100, |n| 0x7000_0000 + n * 8);
    whole.huge.push(0x4000_0000..0x8000_0000);
    let mut file = Vec::new();
    whole.write(&mut file).unwrap();
    assert_eq!(Trace::read(&mut file.as_slice()).unwrap(), whole);
    let early = Trace::read(&mut &file[..file.len() - 1]).unwrap_err();
    assert_eq!(early.to_string(), "not a trace: it ends early");
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0xff;
        // An error, or another trace, which can be replayed.
        if let Ok(other) = Trace::read(&mut damaged.as_slice())
            && at % 16 == 0
        {
            cycles(other);
        }
    }
    whole.lookups = 101;
    let mut file = Vec::new();
    whole.write(&mut file).unwrap();
    assert!(Trace::read(&mut file.as_slice()).unwrap_err().to_string().contains("more lookups"));
    assert!(Trace::read(&mut &b""[..]).unwrap_err().to_string().contains("empty"));
    assert!(Trace::read(&mut &[7u8; 64][..]).unwrap_err().to_string().contains("ChampSim"));
}

#[test]
fn champsims_records_are_read() {
    let mut record = [0u8; 64];
    record[..8].copy_from_slice(&0x40_0000u64.to_le_bytes());
    (record[10], record[12]) = (250, 5);
    record[32..40].copy_from_slice(&0x1234_5678u64.to_le_bytes());
    let mut branch = [0u8; 64];
    (branch[8], branch[9], branch[12]) = (1, 1, 25);
    let file: Vec<u8> = record.into_iter().chain(branch).chain(record).collect();
    let read = Trace::read(&mut file.as_slice()).unwrap();
    assert_eq!((read.code.len(), read.steps.len()), (2, 3));
    assert_eq!((read.code[0].loads, read.accesses[1]), (1, 0x1234_5678));
    assert!(read.code[1].conditional && read.steps[1].taken());
    // Registers have names of their own, also those with large numbers.
    let [reads, writes] = [read.code[0].reads[0], read.code[0].writes[0]];
    assert!(reads != writes && (61..128).contains(&reads) && (61..128).contains(&writes));
    let short = Trace::read(&mut &file[..100]).unwrap_err();
    assert!(short.to_string().contains("64 bytes"));
}

/// Reads a trace of addresses.
fn addresses(text: &str) -> Result<Trace, TraceError> {
    Trace::read(&mut text.as_bytes())
}

#[test]
fn addresses_are_read_in_each_form() {
    for (line, loads, stores, bytes) in [
        ("0x7f00", 1, 0, 1),
        ("0x7f00 R", 1, 0, 1),
        ("0x7f00 W\r", 0, 1, 1),
        ("R 0x7f00", 1, 0, 1),
        ("W 0x7F00", 0, 1, 1),
        ("LD 0x7f00 # a comment", 1, 0, 1),
        ("ST 0x7f00", 0, 1, 1),
        ("0 7f00", 1, 0, 1),
        ("1 7f00 ", 0, 1, 1),
        ("2 7f00", 0, 0, 0),
        (" L 7f00,8", 1, 0, 8),
        (" S 00007f00,512", 0, 1, 255),
        (" M 7f00,4", 1, 1, 4),
        ("I  7f00,3", 0, 0, 0),
        // An instruction and its access.
        ("2 44\n1 7f00", 0, 1, 1),
        ("I  44,3\n\n L 7f00,4", 1, 0, 4),
    ] {
        let read = addresses(&format!("==7== Lackey\n# comment\n\n{line}\n")).unwrap();
        let code = &read.code[read.steps[0].code()];
        assert_eq!((code.loads, code.stores, code.bytes), (loads, stores, bytes), "{line}");
        assert_eq!((read.steps.len(), read.lookups), (1, 0), "{line}");
        assert_eq!(read.accesses, vec![0x7f00; usize::from(loads + stores)], "{line}");
    }
    assert_eq!(addresses("0x40").unwrap().accesses, [0x40], "shorter than an address of ChampSim's");
    // Fetches without data remain, and a second access is another instruction.
    let read = addresses("I  40,3\nI  43,3\n L 7f00,8\n S 7f08,8\n").unwrap();
    assert_eq!((read.steps.len(), read.accesses.len()), (3, 2));
}

#[test]
fn equal_addresses_in_different_forms_replay_equally() {
    let of = |form: fn(bool, u64) -> String| -> Trace {
        let line = |n: u64| form(n.is_multiple_of(3), 0x10_0000 + n * 7919 % 65_536 * 64);
        addresses(&(0..4000).map(line).collect::<String>()).unwrap()
    };
    let ramulator = of(|store, a| format!("{} {a:#x}\n", if store { "ST" } else { "LD" }));
    let dinero = of(|store, a| format!("{} {a:x}\n", u8::from(store)));
    let lackey = of(|store, a| format!(" {} {a:08x},1\n", if store { "S" } else { "L" }));
    assert_eq!([&dinero, &lackey], [&ramulator; 2]);
    let each = cycles(ramulator);
    assert_eq!([cycles(dinero), cycles(lackey)], [each; 2]);
    // A store needs one of zen3's two units for stores, a load one of three: all of them are in the caches.
    assert!((0.2..20.0).contains(&each), "{each}");
}

#[test]
fn a_wrong_line_of_addresses_is_named_with_its_column() {
    let long = format!("# {}", "x".repeat(5000));
    for (line, column, problem) in [
        ("LD 7f00", 4, "`7f00` is no hexadecimal address of up to 57 bits that begins with 0x"),
        ("7f00", 1, "begins with 0x"),
        ("  ST", 3, "`ST` is no hexadecimal address"),
        ("ST 0x+7f", 4, "`0x+7f` is no"),
        ("LD 0x", 4, "`0x` is no"),
        ("LD 0x200000000000000", 4, "57 bits"),
        ("0 0x7f00", 3, "without 0x"),
        ("3 20734016", 1, "`3` is no kind of access"),
        ("\u{e9}\u{e9} 0x7f00", 1, "no kind of access"),
        ("LD 0x7f00 \u{e9}\u{e9} 5", 11, "one word too many"),
        (" L 7f00", 4, "a number of bytes"),
        (" L 7f00,0", 4, "1 to 512 bytes"),
        (" L 7f00,513", 4, "1 to 512 bytes"),
        (&long, 1, "4096 or more bytes"),
    ] {
        let error = addresses(&format!("LD 0x7f00\n{line}\n")).unwrap_err();
        let TraceError::Line { line: 2, column: at, problem: found, help } = &error else {
            panic!("{error}")
        };
        assert!(*at == column && found.contains(problem) && help.contains("`LD 0x7f00`"), "{line}: {error}");
    }
    let error = Trace::read(&mut &b"LD 0x7f00\nST \xe9\n"[..]).unwrap_err();
    assert!(error.to_string().starts_with("line 2, column 4: not UTF-8"), "{error}");
    assert!(addresses("# nothing\n\n").unwrap_err().to_string().contains("empty"));
}

/// Returns the cycles of an instruction of a trace.
fn cycles(of: Trace) -> f64 {
    replay(&Arc::new(of), &Preset::Zen3.machine(), 1).unwrap().cycles
}

#[test]
fn replays_take_what_dependencies_and_ports_allow() {
    // add rax, rcx, each after the previous one; add [another], with four units.
    let chain = cycles(trace(code(&[0x48, 0x01, 0xc8]), 4000, |_| 0));
    assert!((chain - 1.0).abs() < 0.02, "{chain}");
    let mut independent = code(&[0x48, 0x01, 0xc8]);
    independent.reads = [0; 4];
    let ports = cycles(trace(independent, 4000, |_| 0));
    assert!((ports - 0.25).abs() < 0.02, "{ports}");
    // imul rax, rcx in a chain.
    let multiplied = cycles(trace(code(&[0x48, 0x0f, 0xaf, 0xc1]), 4000, |_| 0));
    assert!((multiplied - 3.0).abs() < 0.05, "{multiplied}");
    // mov rax, [rax]: L1's four cycles.
    let loads = cycles(trace(code(&[0x48, 0x8b, 0x00]), 4000, |n| 0x10_0000 + n % 16 * 64));
    assert!((loads - 4.0).abs() < 0.1, "{loads}");
    // Renamed moves are limited by the width alone.
    let moves = cycles(trace(code(&[0x48, 0x89, 0xc8]), 6000, |_| 0));
    assert!((moves - 1.0 / 6.0).abs() < 0.02, "{moves}");
}

#[test]
fn a_load_takes_the_data_of_the_store_before_it() {
    // mov [rbx+rcx], rax; mov rax, [rbx+rcx]: a chain through memory.
    let (store, load) = (code(&[0x48, 0x89, 0x04, 0x0b]), code(&[0x48, 0x8b, 0x04, 0x0b]));
    let pairs = |bytes: u8| {
        let store = Code { bytes, ..store.clone() };
        let steps = (0..4000).map(|n| Step::new(n % 2, false)).collect();
        let accesses = vec![0x10_0000; 4000];
        cycles(Trace {
            code: vec![store, load.clone()],
            steps,
            accesses,
            huge: Vec::new(),
            lookups: 2000,
            bytes: 0,
        })
    };
    let core = Preset::Zen3.machine().core;
    let (forwarded, blocked) = (pairs(8), pairs(4));
    assert!((forwarded - f64::from(core.forward_cycles) - 1.0).abs() < 1.1, "{forwarded}");
    assert!(blocked > forwarded + 8.0, "{blocked} after {forwarded}");
}

/// Returns the cycles, and the loads that waited for retirement, of: two stores at these distances, each of as many bytes; a load of as many bytes; 40 additions that depend on it.
fn stored_and_loaded(stores: [(u64, u8); 2], load_bytes: u8) -> (f64, f64) {
    const CHAIN: u32 = 40;
    let store = |bytes| Code { bytes, ..code(&[0x48, 0x89, 0x0c, 0x13]) };
    // mov [rbx+rdx], rcx, twice; mov rax, [rbx+rdx]; add rax, rcx.
    let load = Code { bytes: load_bytes, ..code(&[0x48, 0x8b, 0x04, 0x13]) };
    let step = |n| Step::new(n, false);
    let round = [0, 1, 2].into_iter().chain([3; CHAIN as usize]).map(step);
    let at = |n: u64| 0x10_0000 + n % 16 * 64;
    let accesses = (0..400).flat_map(|n| [at(n) + stores[0].0, at(n) + stores[1].0, at(n)]).collect();
    let of = Trace {
        code: vec![store(stores[0].1), store(stores[1].1), load, code(&[0x48, 0x01, 0xc8])],
        steps: round.cycle().take(400 * (3 + CHAIN as usize)).collect(),
        accesses,
        huge: Vec::new(),
        lookups: 400,
        bytes: 0,
    };
    let replayed = replay(&Arc::new(of), &Preset::Zen3.machine(), 1).unwrap();
    (replayed.cycles, replayed.stats.blocked_loads as f64 / replayed.stats.lookups as f64)
}

#[test]
fn a_load_with_parts_of_two_stores_waits_until_these_have_retired() {
    // Rounds overlap if each load has one store, the second; a part that another store has does not matter.
    for stores in [[(0, 8), (0, 8)], [(8, 8), (0, 8)], [(0, 4), (0, 8)]] {
        let (overlapping, waited) = stored_and_loaded(stores, 8);
        assert!(overlapping < 25.0 && waited == 0.0, "{stores:?}: {overlapping}");
    }
    let (beside, _) = stored_and_loaded([(0, 4), (4, 4)], 4);
    assert!(beside < 25.0, "{beside}");
    // Stores retire behind the additions of the round before.
    let (blocked, waited) = stored_and_loaded([(0, 4), (4, 4)], 8);
    let more = f64::from(Preset::Zen3.machine().core.blocked_load_cycles);
    assert!((blocked - 40.0 - more).abs() < 8.0 && (waited - 1.0).abs() < 0.02, "{blocked}, {waited}");
    let (of_a_part, _) = stored_and_loaded([(8, 8), (0, 4)], 8);
    assert!((of_a_part - blocked).abs() < 1.0, "{of_a_part}");
}

#[test]
fn arrays_are_found_by_their_accesses() {
    let mut of = trace(code(&[0x48, 0x8b, 0x00]), 40, |n| 0x100_0000 + n / 20 * 0x100_0000 + n % 20 * 1000);
    assert_eq!(of.regions().len(), 2);
    of.huge.push(0x100_0000..0x300_0000);
    assert_eq!(of.regions().len(), 2, "a fiftieth of the range is less than their distance");
}
