//! Compares the C interface with the Rust library: column lookups of the same packets, interleaved.
//!
//! ```sh
//! bindings/c/build.sh
//! cargo bench --manifest-path bindings/c/Cargo.toml -- RULES
//! ```

use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use flowlane::generate::{Trace, TraceConfig};
use flowlane::{ClassifierBuilder, Field, FlowColumns, Values, read_rules};
use libloading::Library;

const PACKETS: usize = 4_000_000;
const ROUNDS: usize = 16;

/// `fl_column` of `flowlane.h`.
#[repr(C)]
struct Column {
    field: u32,
    kind: u32,
    values: *const c_void,
    bytes: u32,
}

type FromText = unsafe extern "C" fn(*const c_char, *const c_void, *mut *mut c_void) -> i32;
type NewReader = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> i32;
type Classify = unsafe extern "C" fn(*mut c_void, *const Column, usize, usize, *mut u32) -> i32;
type FieldNumber = unsafe extern "C" fn(*const c_char) -> i32;

/// The packets of a trace as columns.
struct Packets {
    sources: Vec<u32>,
    destinations: Vec<u32>,
    protocols: Vec<u8>,
    from: Vec<u16>,
    to: Vec<u16>,
}

const IPV4: u16 = 0x0800;

impl Packets {
    fn of(trace: &Trace) -> Self {
        let column = |field: Field| trace.keys().map(move |key| key.get(field));
        let addresses = |field: Field| column(field).map(|v| v as u32).collect();
        let ports = |field: Field| column(field).map(|v| v as u16).collect();
        Self {
            sources: addresses(Field::Ipv4Src),
            destinations: addresses(Field::Ipv4Dst),
            protocols: column(Field::NwProto).map(|v| v as u8).collect(),
            from: ports(Field::TpSrc),
            to: ports(Field::TpDst),
        }
    }

    fn columns(&self) -> Result<FlowColumns<'_>, flowlane::Error> {
        FlowColumns::new(PACKETS)
            .with(Field::EthType, Values::One(IPV4.into()))?
            .with(Field::Ipv4Src, Values::U32(&self.sources))?
            .with(Field::Ipv4Dst, Values::U32(&self.destinations))?
            .with(Field::NwProto, Values::U8(&self.protocols))?
            .with(Field::TpSrc, Values::U16(&self.from))?
            .with(Field::TpDst, Values::U16(&self.to))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with('-')) else {
        println!("skipped: cargo bench -- RULES");
        return Ok(());
    };
    let text = std::fs::read_to_string(&path)?;
    let rules = read_rules(&text, &path)?;
    let packets = Packets::of(&Trace::generate(&rules, &TraceConfig::new(PACKETS))?);
    let own = ClassifierBuilder::new().build(rules)?;
    let columns = packets.columns()?;

    // SAFETY: the library's functions are those that `flowlane.h` declares, with these types; handles live as long as they are used.
    let by_c = unsafe { reader(&text, &packets)? };
    let mut found = [vec![0; PACKETS], vec![0; PACKETS]];
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // Alternate the order, so that neither side always finds a warm cache.
        for side in [round % 2, 1 - round % 2] {
            let begun = Instant::now();
            match side {
                0 => own.lookup_columns(&columns, &mut found[0]),
                _ => assert_eq!(by_c(&mut found[1]), 0),
            }
            rates[side].push(PACKETS as f64 / begun.elapsed().as_secs_f64() / 1e6);
        }
    }
    let differs = (0..PACKETS).find(|i| found[0][*i] != found[1][*i]);
    assert!(differs.is_none(), "packet {differs:?}: {:?}", differs.map(|i| [found[0][i], found[1][i]]));
    let [rust, c] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    println!(
        "million packets per second, median of {ROUNDS}: Rust {rust:.1}, C {c:.1}, C / Rust {:.3}",
        c / rust
    );
    Ok(())
}

/// Returns a function that looks the packets up with the installed library.
///
/// # Safety
/// The library is that of `flowlane.h`.
unsafe fn reader<'p>(
    rules: &str,
    packets: &'p Packets,
) -> Result<impl Fn(&mut [u32]) -> i32 + 'p, Box<dyn std::error::Error>> {
    // SAFETY: it has these functions, with these types; texts and handles live while they are used.
    unsafe {
        let library = Library::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dist/lib/libflowlane.so"))?;
        let from_text: FromText = *library.get(b"fl_acl_from_text")?;
        let new_reader: NewReader = *library.get(b"fl_reader_new")?;
        let classify: Classify = *library.get(b"fl_classify_columns")?;
        let number: FieldNumber = *library.get(b"fl_field")?;
        let (mut acl, mut reader) = (null_mut(), null_mut());
        let rules = CString::new(rules)?;
        assert_eq!(from_text(rules.as_ptr(), null_mut(), &mut acl), 0);
        assert_eq!(new_reader(acl, &mut reader), 0);
        let column = |name: &str, kind: u32, values: *const c_void, bytes: u32| {
            let name = CString::new(name).expect("no NUL in names");
            Column { field: number(name.as_ptr()) as u32, kind, values, bytes }
        };
        static IPV4_BYTES: [u8; 2] = IPV4.to_be_bytes();
        let columns = [
            column("dl_type", 17, IPV4_BYTES.as_ptr().cast(), 2),
            column("nw_src", 4, packets.sources.as_ptr().cast(), 0),
            column("nw_dst", 4, packets.destinations.as_ptr().cast(), 0),
            column("nw_proto", 1, packets.protocols.as_ptr().cast(), 0),
            column("tp_src", 2, packets.from.as_ptr().cast(), 0),
            column("tp_dst", 2, packets.to.as_ptr().cast(), 0),
        ];
        Ok(move |found: &mut [u32]| {
            assert_eq!(found.len(), PACKETS);
            // Keeps the library loaded while its function is called.
            let _held = &library;
            classify(reader, columns.as_ptr(), columns.len(), PACKETS, found.as_mut_ptr())
        })
    }
}
