//! Batch lookups, without memory allocation.

use std::ffi::c_void;

use flowlane::{
    CATEGORIES_MAX, Captured, ClassifierSnapshot, Field, FlowColumns, FlowKey, Headers, Parser, Values,
};

use crate::acl::fl_reader;
use crate::error::{CallError, CallResult, array, array_mut, guarded, handle_mut, times};
use crate::layout::{FL_BYTES, FL_U8, FL_U16, FL_U32, FL_U64, field, fl_column, fl_record_field, values};

/// Number of packets converted to columns at a time.
const CHUNK: usize = 128;

/// Number of frames parsed at a time: a key has 576 bytes, of which a packet touches 192.
const FRAMES: usize = 32;

/// Maximum number of fields per record.
const RECORD_FIELDS_MAX: usize = 16;

/// An IPv4 5-tuple, in host byte order.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_ipv4 {
    pub source: u32,
    pub destination: u32,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
    /// Must be 0.
    pub reserved: [u8; 3],
}

/// An IPv6 5-tuple: addresses in network byte order, ports in host byte order.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_ipv6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
    /// Must be 0.
    pub reserved: [u8; 3],
}

/// Borrows the output array: `lists` rules per packet.
///
/// # Safety
/// `rules` is NULL, or has that many elements, which are not otherwise used during the call.
#[inline]
unsafe fn verdicts<'a>(rules: *mut u32, count: usize, lists: usize) -> CallResult<&'a mut [u32]> {
    if !(1..=CATEGORIES_MAX).contains(&lists) {
        return Err(CallError::input(format!("{lists} lists; expected 1 to {CATEGORIES_MAX}")));
    }
    // SAFETY: the caller's.
    unsafe { array_mut(rules, times(count, lists, "rules")?, "rules") }
}

/// Splits off the first `len` elements. (Slice chunks of a length known at run time would cost a burst of 32 a division.)
#[inline(always)]
fn next_of<'a>(rest: &mut &'a mut [u32], len: usize) -> &'a mut [u32] {
    let (own, behind) = std::mem::take(rest).split_at_mut(len);
    *rest = behind;
    own
}

/// Adds a column.
#[inline]
fn add<'a>(packets: &mut FlowColumns<'a>, field: Field, values: Values<'a>) -> CallResult {
    Ok(packets.add(field, values)?)
}

/// Frames, as [`fl_classify_frames_lists`] takes them.
struct Frames {
    frames: *const *const u8,
    captured: *const u32,
    lengths: *const u32,
    in_port: u32,
}

/// Records, as [`fl_classify_records_lists`] takes them.
struct Records {
    fields: *const fl_record_field,
    fields_count: usize,
    records: *const *const c_void,
}

/// A field of the caller's records: offset, bytes, and whether to reverse them.
type FieldPosition = (Field, usize, usize, bool);

/// Converts the positions of up to 16 fields.
fn field_positions(fields: &[fl_record_field], known: &mut [FieldPosition; RECORD_FIELDS_MAX]) -> CallResult {
    if fields.len() > RECORD_FIELDS_MAX {
        let count = fields.len();
        return Err(CallError::input(format!("{count} fields; the limit is {RECORD_FIELDS_MAX}")));
    }
    for (known, given) in known.iter_mut().zip(fields) {
        let bytes = if given.kind == FL_BYTES { given.bytes } else { given.kind } as usize;
        let is_known = matches!(given.kind, FL_U8 | FL_U16 | FL_U32 | FL_U64 | FL_BYTES);
        if !is_known || !(1..=16).contains(&bytes) {
            return Err(CallError::input(format!("a field of kind {} and {bytes} bytes", given.kind)));
        }
        let swap = given.kind != FL_BYTES && cfg!(target_endian = "little");
        *known = (field(given.field)?, given.offset as usize, bytes, swap);
    }
    Ok(())
}

/// Returns the EtherType that the address fields imply, if there is no field for it.
fn kind(known: &[FieldPosition]) -> Option<u128> {
    let has = |any: [Field; 2]| known.iter().any(|(field, ..)| any.contains(field));
    match () {
        () if has([Field::EthType; 2]) => None,
        () if has([Field::Ipv4Src, Field::Ipv4Dst]) => Some(0x0800),
        () if has([Field::Ipv6Src, Field::Ipv6Dst]) => Some(0x86dd),
        () => None,
    }
}

/// The arguments that all lookups have.
struct Lookup {
    reader: *mut fl_reader,
    count: usize,
    lists: usize,
    rules: *mut u32,
}

impl Lookup {
    /// Checks the arguments, and calls `look_up` with the list and the output array.
    ///
    /// # Safety
    /// The reader is NULL, or is not otherwise used during the call; `rules` is as for [`verdicts`].
    #[inline]
    unsafe fn run(&self, look_up: impl FnOnce(&ClassifierSnapshot, &mut [u32]) -> CallResult) -> i32 {
        guarded(|| {
            // SAFETY: the caller's, of each.
            let (reader, rules) = unsafe {
                (handle_mut(self.reader, "reader")?, verdicts(self.rules, self.count, self.lists)?)
            };
            look_up(reader.list(), rules)
        })
    }

    /// # Safety
    /// See [`fl_classify_frames_lists`].
    unsafe fn frames(&self, of: &Frames) -> i32 {
        let (count, lists) = (self.count, self.lists);
        let look_up = |list: &ClassifierSnapshot, rules: &mut [u32]| {
            // SAFETY: the caller's, of each.
            let (frames, captured) =
                unsafe { (array(of.frames, count, "frames")?, array(of.captured, count, "captured")?) };
            let lengths = match of.lengths.is_null() {
                true => captured,
                // SAFETY: the caller's.
                false => unsafe { array(of.lengths, count, "lengths")? },
            };
            let parser = Parser::new();
            let mut keys = [const { FlowKey::zero() }; FRAMES];
            let mut headers = [Headers::default(); FRAMES];
            for first in (0..count).step_by(FRAMES) {
                let rows = first..(first + FRAMES).min(count);
                let keys = &mut keys[..rows.len()];
                let frames =
                    frames[rows.clone()].iter().zip(&captured[rows.clone()]).zip(&lengths[rows.clone()]);
                let frames = frames.map(|((frame, captured), length)| {
                    // SAFETY: the caller's.
                    let bytes = unsafe { array(*frame, *captured as usize, "a frame") }.unwrap_or_default();
                    Captured::new(bytes, *length as usize)
                });
                parser.parse_all(frames, of.in_port, keys, &mut headers);
                let rules = &mut rules[rows.start * lists..rows.end * lists];
                match lists {
                    1 => list.lookup_keys(keys, rules),
                    _ => list.lookup_categories(keys, lists, rules),
                }
            }
            Ok(())
        };
        // SAFETY: the caller's.
        unsafe { self.run(look_up) }
    }

    /// Looks up 5-tuples of one IP version, whose `parts` are addresses, ports and protocol.
    ///
    /// # Safety
    /// `packets` is NULL, or has `self.count` elements; otherwise as for [`run`](Self::run).
    #[inline]
    unsafe fn tuples<T, A: Copy + Default>(
        &self,
        packets: *const T,
        ether_type: u128,
        addresses: [Field; 2],
        parts: impl Fn(&T) -> (A, A, u16, u16, u8),
        values: impl for<'a> Fn(&'a [A]) -> Values<'a>,
    ) -> i32 {
        let look_up = |list: &ClassifierSnapshot, rules: &mut [u32]| {
            // SAFETY: the caller's.
            let packets = unsafe { array(packets, self.count, "packets")? };
            let [mut from, mut to] = [[A::default(); CHUNK]; 2];
            let ([mut source, mut destination], mut protocol) = ([[0u16; CHUNK]; 2], [0u8; CHUNK]);
            let mut rest = rules;
            for packets in packets.chunks(CHUNK) {
                let len = packets.len();
                let rules = next_of(&mut rest, len * self.lists);
                for (i, packet) in packets.iter().enumerate() {
                    (from[i], to[i], source[i], destination[i], protocol[i]) = parts(packet);
                }
                let mut columns = FlowColumns::new(len);
                add(&mut columns, Field::EthType, Values::One(ether_type))?;
                add(&mut columns, addresses[0], values(&from[..len]))?;
                add(&mut columns, addresses[1], values(&to[..len]))?;
                add(&mut columns, Field::NwProto, Values::U8(&protocol[..len]))?;
                add(&mut columns, Field::TpSrc, Values::U16(&source[..len]))?;
                add(&mut columns, Field::TpDst, Values::U16(&destination[..len]))?;
                list.lookup_column_categories(&columns, self.lists, rules);
            }
            Ok(())
        };
        // SAFETY: the caller's.
        unsafe { self.run(look_up) }
    }

    /// # Safety
    /// See [`fl_classify_ipv4_lists`].
    unsafe fn ipv4(&self, packets: *const fl_ipv4) -> i32 {
        let parts = |p: &fl_ipv4| (p.source, p.destination, p.source_port, p.destination_port, p.protocol);
        // SAFETY: the caller's.
        unsafe { self.tuples(packets, 0x0800, [Field::Ipv4Src, Field::Ipv4Dst], parts, |a| Values::U32(a)) }
    }

    /// # Safety
    /// See [`fl_classify_ipv6_lists`].
    unsafe fn ipv6(&self, packets: *const fl_ipv6) -> i32 {
        let parts = |p: &fl_ipv6| (p.source, p.destination, p.source_port, p.destination_port, p.protocol);
        // SAFETY: the caller's.
        unsafe {
            self.tuples(packets, 0x86dd, [Field::Ipv6Src, Field::Ipv6Dst], parts, |a| {
                Values::Bytes(a.as_flattened(), 16)
            })
        }
    }

    /// # Safety
    /// See [`fl_classify_columns_lists`].
    unsafe fn columns(&self, columns: *const fl_column, columns_count: usize) -> i32 {
        let look_up = |list: &ClassifierSnapshot, rules: &mut [u32]| {
            let mut packets = FlowColumns::new(self.count);
            // SAFETY: the caller's.
            for column in unsafe { array(columns, columns_count, "columns")? } {
                // SAFETY: the caller's.
                let values = unsafe { values(column, self.count)? };
                add(&mut packets, field(column.field)?, values)?;
            }
            list.lookup_column_categories(&packets, self.lists, rules);
            Ok(())
        };
        // SAFETY: the caller's.
        unsafe { self.run(look_up) }
    }

    /// # Safety
    /// See [`fl_classify_records_lists`].
    unsafe fn records(&self, of: &Records) -> i32 {
        let look_up = |list: &ClassifierSnapshot, rules: &mut [u32]| {
            // SAFETY: the caller's, of each.
            let (fields, records) = unsafe {
                (array(of.fields, of.fields_count, "fields")?, array(of.records, self.count, "records")?)
            };
            let mut known = [(Field::InPort, 0, 0, false); RECORD_FIELDS_MAX];
            field_positions(fields, &mut known)?;
            let known = &known[..fields.len()];
            let kind = kind(known);
            let mut copies = [[0u8; 16 * CHUNK]; RECORD_FIELDS_MAX];
            let mut rest = rules;
            for records in records.chunks(CHUNK) {
                let rules = next_of(&mut rest, records.len() * self.lists);
                let mut packets = FlowColumns::new(records.len());
                if let Some(kind) = kind {
                    add(&mut packets, Field::EthType, Values::One(kind))?;
                }
                for (copy, (field, offset, bytes, swap)) in copies.iter_mut().zip(known) {
                    for (record, own) in records.iter().zip(copy.chunks_exact_mut(*bytes)) {
                        let at = record.cast::<u8>().wrapping_add(*offset);
                        // SAFETY: the caller's: a record contains its fields.
                        own.copy_from_slice(unsafe { array(at, *bytes, "a record")? });
                        if *swap {
                            own.reverse();
                        }
                    }
                    add(&mut packets, *field, Values::Bytes(&copy[..bytes * records.len()], *bytes))?;
                }
                list.lookup_column_categories(&packets, self.lists, rules);
            }
            Ok(())
        };
        // SAFETY: the caller's.
        unsafe { self.run(look_up) }
    }
}

/// Looks up the rule of each frame, or FL_NONE. `captured` holds the number of bytes present of each frame, and `lengths`
/// the original lengths if a snap length truncated them (NULL: not truncated). Malformed packets are classified by the
/// headers that could be parsed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_frames(
    reader: *mut fl_reader,
    frames: *const *const u8,
    captured: *const u32,
    lengths: *const u32,
    count: usize,
    in_port: u32,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists: 1, rules };
    // SAFETY: the caller's.
    unsafe { lookup.frames(&Frames { frames, captured, lengths, in_port }) }
}

/// Looks up each frame in the first `lists` lists in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_frames_lists(
    reader: *mut fl_reader,
    frames: *const *const u8,
    captured: *const u32,
    lengths: *const u32,
    count: usize,
    in_port: u32,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists, rules };
    // SAFETY: the caller's.
    unsafe { lookup.frames(&Frames { frames, captured, lengths, in_port }) }
}

/// Looks up the rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv4(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists: 1, rules };
    // SAFETY: the caller's.
    unsafe { lookup.ipv4(packets) }
}

/// Looks up each packet in the first `lists` lists in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv4_lists(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists, rules };
    // SAFETY: the caller's.
    unsafe { lookup.ipv4(packets) }
}

/// Looks up the rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv6(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists: 1, rules };
    // SAFETY: the caller's.
    unsafe { lookup.ipv6(packets) }
}

/// Looks up each packet in the first `lists` lists in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv6_lists(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists, rules };
    // SAFETY: the caller's.
    unsafe { lookup.ipv6(packets) }
}

/// Looks up the rule of each packet, or FL_NONE. Fields without a column are 0, including dl_type.
///
/// Errors: FL_INPUT if a column does not fit its field, with its name and row; no rule has been written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_columns(
    reader: *mut fl_reader,
    columns: *const fl_column,
    columns_count: usize,
    count: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists: 1, rules };
    // SAFETY: the caller's.
    unsafe { lookup.columns(columns, columns_count) }
}

/// Looks up each packet in the first `lists` lists in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_columns_lists(
    reader: *mut fl_reader,
    columns: *const fl_column,
    columns_count: usize,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists, rules };
    // SAFETY: the caller's.
    unsafe { lookup.columns(columns, columns_count) }
}

/// Looks up the rule of each record, or FL_NONE; `fields` are the positions of up to 16 fields in a record. Other fields
/// are 0, except dl_type, which follows from the addresses present.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_records(
    reader: *mut fl_reader,
    fields: *const fl_record_field,
    fields_count: usize,
    records: *const *const c_void,
    count: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists: 1, rules };
    // SAFETY: the caller's.
    unsafe { lookup.records(&Records { fields, fields_count, records }) }
}

/// Looks up each record in the first `lists` lists in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_records_lists(
    reader: *mut fl_reader,
    fields: *const fl_record_field,
    fields_count: usize,
    records: *const *const c_void,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    let lookup = Lookup { reader, count, lists, rules };
    // SAFETY: the caller's.
    unsafe { lookup.records(&Records { fields, fields_count, records }) }
}
