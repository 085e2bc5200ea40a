//! How fast the call for C is beside the library's own: the same packets by both in turn, as columns, new ones in every row.
//!
//! ```sh
//! bindings/c/build.sh
//! cargo bench --manifest-path bindings/c/Cargo.toml -- RULES
//! ```

use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use flowlane::generate::{Trace, TraceConfig};
use flowlane::{ClassifierConfig, Field, FlowColumns, Values, read_rules};
use libloading::{Library, Symbol};

const PACKETS: usize = 4_000_000;
const ROUNDS: usize = 15;

/// `fl_column`, as `flowlane.h` has it.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with('-')) else {
        println!("skipped: cargo bench -- RULES");
        return Ok(());
    };
    let text = std::fs::read_to_string(&path)?;
    let rules = read_rules(&text, &path)?;
    let trace = Trace::generate(&rules, &TraceConfig::new(PACKETS))?;
    let column = |field: Field| trace.keys().map(move |key| key.get(field));
    let [sources, destinations] =
        [Field::Ipv4Src, Field::Ipv4Dst].map(|f| column(f).map(|v| v as u32).collect::<Vec<_>>());
    let [from, to] = [Field::TpSrc, Field::TpDst].map(|f| column(f).map(|v| v as u16).collect::<Vec<_>>());
    let protocols: Vec<u8> = column(Field::NwProto).map(|v| v as u8).collect();
    let ether_type = 0x0800_u16;
    let ether_type_bytes = ether_type.to_be_bytes();

    let own = ClassifierConfig::new().build(rules)?;
    let packets = FlowColumns::new(PACKETS)
        .with(Field::EthType, Values::One(ether_type.into()))?
        .with(Field::Ipv4Src, Values::U32(&sources))?
        .with(Field::Ipv4Dst, Values::U32(&destinations))?
        .with(Field::NwProto, Values::U8(&protocols))?
        .with(Field::TpSrc, Values::U16(&from))?
        .with(Field::TpDst, Values::U16(&to))?;

    // SAFETY: the library's functions are those that `flowlane.h` declares, with these types; handles live as long as they are used.
    unsafe {
        let library = Library::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dist/lib/libflowlane.so"))?;
        let from_text: Symbol<'_, FromText> = library.get(b"fl_acl_from_text")?;
        let new_reader: Symbol<'_, NewReader> = library.get(b"fl_reader_new")?;
        let classify: Symbol<'_, Classify> = library.get(b"fl_classify_columns")?;
        let number: Symbol<'_, FieldNumber> = library.get(b"fl_field")?;
        let (mut acl, mut reader) = (null_mut(), null_mut());
        let text = CString::new(text)?;
        assert_eq!(from_text(text.as_ptr(), null_mut(), &mut acl), 0);
        assert_eq!(new_reader(acl, &mut reader), 0);
        let field = |name: &str| number(CString::new(name).expect("no NUL").as_ptr()) as u32;
        let column = |name: &str, kind: u32, values: *const c_void, bytes: u32| Column {
            field: field(name),
            kind,
            values,
            bytes,
        };
        let columns = [
            column("dl_type", 17, ether_type_bytes.as_ptr().cast(), 2),
            column("nw_src", 4, sources.as_ptr().cast(), 0),
            column("nw_dst", 4, destinations.as_ptr().cast(), 0),
            column("nw_proto", 1, protocols.as_ptr().cast(), 0),
            column("tp_src", 2, from.as_ptr().cast(), 0),
            column("tp_dst", 2, to.as_ptr().cast(), 0),
        ];

        let mut found = [vec![0; PACKETS], vec![0; PACKETS]];
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            own.lookup_columns(&packets, &mut found[0]);
            rates[0].push(PACKETS as f64 / begun.elapsed().as_secs_f64() / 1e6);
            let begun = Instant::now();
            let done = classify(reader, columns.as_ptr(), columns.len(), PACKETS, found[1].as_mut_ptr());
            rates[1].push(PACKETS as f64 / begun.elapsed().as_secs_f64() / 1e6);
            assert_eq!(done, 0);
        }
        let differs = (0..PACKETS).find(|i| found[0][*i] != found[1][*i]);
        assert!(differs.is_none(), "packet {differs:?}: {:?}", differs.map(|i| [found[0][i], found[1][i]]));
        let [rust, c] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!(
            "million packets a second, median of {ROUNDS}: Rust {rust:.1}, C {c:.1}, C / Rust {:.3}",
            c / rust
        );
    }
    Ok(())
}
