//! Many packets at once. Nothing is allocated.

use std::ffi::c_void;

use flowlane::{CATEGORIES_MAX, Captured, Field, FlowColumns, FlowKey, Headers, Parser, Values};

use crate::acl::fl_reader;
use crate::error::{Done, Refused, array, array_mut, guarded, handle_mut, times};
use crate::layout::{FL_BYTES, FL_U8, FL_U16, FL_U32, FL_U64, field, fl_column, fl_record_field, values};

/// Packets whose keys are made at a time.
const CHUNK: usize = 128;

/// Frames that are parsed at a time: a key has 576 bytes, of which a packet touches 192.
const FRAMES: usize = 32;

/// Most fields of a record.
const RECORD_FIELDS_MAX: usize = 16;

/// An IPv4 packet, all of it in this machine's order.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_ipv4 {
    pub source: u32,
    pub destination: u32,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
    /// 0.
    pub reserved: [u8; 3],
}

/// An IPv6 packet: addresses in network order, ports in this machine's.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_ipv6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
    /// 0.
    pub reserved: [u8; 3],
}

/// The rules that a call writes: `lists` for each packet.
///
/// # Safety
/// `rules` is NULL, or has as many elements that nobody else uses during the call.
#[inline]
unsafe fn verdicts<'a>(rules: *mut u32, count: usize, lists: usize) -> Done<&'a mut [u32]> {
    if !(1..=CATEGORIES_MAX).contains(&lists) {
        return Err(Refused::input(format!("{lists} lists; 1 to {CATEGORIES_MAX} are possible")));
    }
    // SAFETY: the caller's.
    unsafe { array_mut(rules, times(count, lists, "rules")?, "rules") }
}

/// So many of what is left. (Chunks of a length that is known at run time would cost a burst of 32 a division.)
#[inline(always)]
fn next_of<'a>(rest: &mut &'a mut [u32], len: usize) -> &'a mut [u32] {
    let (own, behind) = std::mem::take(rest).split_at_mut(len);
    *rest = behind;
    own
}

/// Frames, as [`fl_classify_frames_lists`] has them.
struct Frames {
    frames: *const *const u8,
    captured: *const u32,
    lengths: *const u32,
    count: usize,
    in_port: u32,
}

impl Frames {
    /// # Safety
    /// As of [`fl_classify_frames_lists`].
    unsafe fn classify(&self, reader: *mut fl_reader, lists: usize, rules: *mut u32) -> Done {
        let count = self.count;
        // SAFETY: the caller's, of each.
        let (reader, frames, captured, rules) = unsafe {
            let frames = array(self.frames, count, "frames")?;
            let captured = array(self.captured, count, "captured")?;
            (handle_mut(reader, "reader")?, frames, captured, verdicts(rules, count, lists)?)
        };
        let lengths = match self.lengths.is_null() {
            true => captured,
            // SAFETY: the caller's.
            false => unsafe { array(self.lengths, count, "lengths")? },
        };
        let (parser, list) = (Parser::new(), reader.list());
        let mut keys = [const { FlowKey::zero() }; FRAMES];
        let mut headers = [Headers::default(); FRAMES];
        for first in (0..count).step_by(FRAMES) {
            let rows = first..(first + FRAMES).min(count);
            let keys = &mut keys[..rows.len()];
            let frames = frames[rows.clone()].iter().zip(&captured[rows.clone()]).zip(&lengths[rows.clone()]);
            let frames = frames.map(|((frame, captured), length)| {
                // SAFETY: the caller's.
                let bytes = unsafe { array(*frame, *captured as usize, "a frame") }.unwrap_or_default();
                Captured::new(bytes, *length as usize)
            });
            parser.parse_all(frames, self.in_port, keys, &mut headers);
            let rules = &mut rules[rows.start * lists..rows.end * lists];
            match lists {
                1 => list.lookup_keys(keys, rules),
                _ => list.lookup_categories(keys, lists, rules),
            }
        }
        Ok(())
    }
}

/// The rule of each frame, or FL_NONE. `captured` says how many bytes there are of each, and `lengths` how many it had, where a
/// snap length cut it; NULL: as many. What is malformed is looked up as far as it could be read.
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
    let frames = Frames { frames, captured, lengths, count, in_port };
    // SAFETY: the caller's.
    guarded(|| unsafe { frames.classify(reader, 1, rules) })
}

/// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
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
    let frames = Frames { frames, captured, lengths, count, in_port };
    // SAFETY: the caller's.
    guarded(|| unsafe { frames.classify(reader, lists, rules) })
}

/// Adds a column.
#[inline]
fn add<'a>(packets: &mut FlowColumns<'a>, field: Field, values: Values<'a>) -> Done {
    Ok(packets.add(field, values)?)
}

/// # Safety
/// As of [`fl_classify_ipv4_lists`].
unsafe fn classify_ipv4(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> Done {
    // SAFETY: the caller's, of each.
    let (reader, packets, rules) = unsafe {
        let packets = array(packets, count, "packets")?;
        (handle_mut(reader, "reader")?, packets, verdicts(rules, count, lists)?)
    };
    let list = reader.list();
    let [mut from, mut to] = [[0u32; CHUNK]; 2];
    let ([mut source, mut destination], mut protocol) = ([[0u16; CHUNK]; 2], [0u8; CHUNK]);
    let mut rest = rules;
    for packets in packets.chunks(CHUNK) {
        let rules = next_of(&mut rest, packets.len() * lists);
        for (i, packet) in packets.iter().enumerate() {
            (from[i], to[i], protocol[i]) = (packet.source, packet.destination, packet.protocol);
            (source[i], destination[i]) = (packet.source_port, packet.destination_port);
        }
        let len = packets.len();
        let mut columns = FlowColumns::new(len);
        add(&mut columns, Field::EthType, Values::One(0x0800))?;
        add(&mut columns, Field::Ipv4Src, Values::U32(&from[..len]))?;
        add(&mut columns, Field::Ipv4Dst, Values::U32(&to[..len]))?;
        add(&mut columns, Field::NwProto, Values::U8(&protocol[..len]))?;
        add(&mut columns, Field::TpSrc, Values::U16(&source[..len]))?;
        add(&mut columns, Field::TpDst, Values::U16(&destination[..len]))?;
        list.lookup_column_categories(&columns, lists, rules);
    }
    Ok(())
}

/// The rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv4(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_ipv4(reader, packets, count, 1, rules) })
}

/// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv4_lists(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_ipv4(reader, packets, count, lists, rules) })
}

/// # Safety
/// As of [`fl_classify_ipv6_lists`].
unsafe fn classify_ipv6(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> Done {
    // SAFETY: the caller's, of each.
    let (reader, packets, rules) = unsafe {
        let packets = array(packets, count, "packets")?;
        (handle_mut(reader, "reader")?, packets, verdicts(rules, count, lists)?)
    };
    let list = reader.list();
    let [mut from, mut to] = [[[0u8; 16]; CHUNK]; 2];
    let ([mut source, mut destination], mut protocol) = ([[0u16; CHUNK]; 2], [0u8; CHUNK]);
    let mut rest = rules;
    for packets in packets.chunks(CHUNK) {
        let rules = next_of(&mut rest, packets.len() * lists);
        for (i, packet) in packets.iter().enumerate() {
            (from[i], to[i], protocol[i]) = (packet.source, packet.destination, packet.protocol);
            (source[i], destination[i]) = (packet.source_port, packet.destination_port);
        }
        let len = packets.len();
        let mut columns = FlowColumns::new(len);
        add(&mut columns, Field::EthType, Values::One(0x86dd))?;
        add(&mut columns, Field::Ipv6Src, Values::Bytes(from[..len].as_flattened(), 16))?;
        add(&mut columns, Field::Ipv6Dst, Values::Bytes(to[..len].as_flattened(), 16))?;
        add(&mut columns, Field::NwProto, Values::U8(&protocol[..len]))?;
        add(&mut columns, Field::TpSrc, Values::U16(&source[..len]))?;
        add(&mut columns, Field::TpDst, Values::U16(&destination[..len]))?;
        list.lookup_column_categories(&columns, lists, rules);
    }
    Ok(())
}

/// The rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv6(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_ipv6(reader, packets, count, 1, rules) })
}

/// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv6_lists(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_ipv6(reader, packets, count, lists, rules) })
}

/// # Safety
/// As of [`fl_classify_columns_lists`].
unsafe fn classify_columns(
    reader: *mut fl_reader,
    columns: *const fl_column,
    columns_count: usize,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> Done {
    // SAFETY: the caller's, of each.
    let (reader, columns, rules) = unsafe {
        let columns = array(columns, columns_count, "columns")?;
        (handle_mut(reader, "reader")?, columns, verdicts(rules, count, lists)?)
    };
    let mut packets = FlowColumns::new(count);
    for column in columns {
        // SAFETY: the caller's.
        let values = unsafe { values(column, count)? };
        add(&mut packets, field(column.field)?, values)?;
    }
    reader.list().lookup_column_categories(&packets, lists, rules);
    Ok(())
}

/// The rule of each packet, or FL_NONE. Fields without a column are 0, dl_type with them.
///
/// FL_INPUT where a column does not suit its field, with its name and row: no rule has been written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_columns(
    reader: *mut fl_reader,
    columns: *const fl_column,
    columns_count: usize,
    count: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_columns(reader, columns, columns_count, count, 1, rules) })
}

/// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_columns_lists(
    reader: *mut fl_reader,
    columns: *const fl_column,
    columns_count: usize,
    count: usize,
    lists: usize,
    rules: *mut u32,
) -> i32 {
    // SAFETY: the caller's.
    guarded(|| unsafe { classify_columns(reader, columns, columns_count, count, lists, rules) })
}

/// A field of the caller's records: its offset, bytes, and whether they are to be turned round.
type Place = (Field, usize, usize, bool);

/// The places of up to 16 fields.
fn places(fields: &[fl_record_field], known: &mut [Place; RECORD_FIELDS_MAX]) -> Done {
    if fields.len() > RECORD_FIELDS_MAX {
        let count = fields.len();
        return Err(Refused::input(format!("{count} fields; a record has {RECORD_FIELDS_MAX} at most")));
    }
    for (known, given) in known.iter_mut().zip(fields) {
        let bytes = if given.kind == FL_BYTES { given.bytes } else { given.kind } as usize;
        let is_known = matches!(given.kind, FL_U8 | FL_U16 | FL_U32 | FL_U64 | FL_BYTES);
        if !is_known || !(1..=16).contains(&bytes) {
            return Err(Refused::input(format!("a field of kind {} and {bytes} bytes", given.kind)));
        }
        let swap = given.kind != FL_BYTES && cfg!(target_endian = "little");
        *known = (field(given.field)?, given.offset as usize, bytes, swap);
    }
    Ok(())
}

/// The EtherType of packets of which these fields are known, where they say so by their addresses.
fn kind(known: &[Place]) -> Option<u128> {
    let has = |any: [Field; 2]| known.iter().any(|(field, ..)| any.contains(field));
    match () {
        () if has([Field::EthType; 2]) => None,
        () if has([Field::Ipv4Src, Field::Ipv4Dst]) => Some(0x0800),
        () if has([Field::Ipv6Src, Field::Ipv6Dst]) => Some(0x86dd),
        () => None,
    }
}

/// Records, as [`fl_classify_records_lists`] has them.
struct Records {
    fields: *const fl_record_field,
    fields_count: usize,
    records: *const *const c_void,
    count: usize,
}

impl Records {
    /// # Safety
    /// As of [`fl_classify_records_lists`].
    unsafe fn classify(&self, reader: *mut fl_reader, lists: usize, rules: *mut u32) -> Done {
        // SAFETY: the caller's, of each.
        let (reader, fields, records, rules) = unsafe {
            let fields = array(self.fields, self.fields_count, "fields")?;
            let records = array(self.records, self.count, "records")?;
            (handle_mut(reader, "reader")?, fields, records, verdicts(rules, self.count, lists)?)
        };
        let mut known = [(Field::InPort, 0, 0, false); RECORD_FIELDS_MAX];
        places(fields, &mut known)?;
        let known = &known[..fields.len()];
        let (kind, list) = (kind(known), reader.list());
        let mut copies = [[0u8; 16 * CHUNK]; RECORD_FIELDS_MAX];
        let mut rest = rules;
        for records in records.chunks(CHUNK) {
            let rules = next_of(&mut rest, records.len() * lists);
            let mut packets = FlowColumns::new(records.len());
            if let Some(kind) = kind {
                add(&mut packets, Field::EthType, Values::One(kind))?;
            }
            for (copy, (field, offset, bytes, swap)) in copies.iter_mut().zip(known) {
                for (record, own) in records.iter().zip(copy.chunks_exact_mut(*bytes)) {
                    let at = record.cast::<u8>().wrapping_add(*offset);
                    // SAFETY: the caller's: a record has the bytes of its fields.
                    own.copy_from_slice(unsafe { array(at, *bytes, "a record")? });
                    if *swap {
                        own.reverse();
                    }
                }
                add(&mut packets, *field, Values::Bytes(&copy[..bytes * records.len()], *bytes))?;
            }
            list.lookup_column_categories(&packets, lists, rules);
        }
        Ok(())
    }
}

/// The rule of each record, or FL_NONE: `fields` say where up to 16 fields are in one. Fields that are not in records are 0, but for
/// dl_type, which is that of the addresses that are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_records(
    reader: *mut fl_reader,
    fields: *const fl_record_field,
    fields_count: usize,
    records: *const *const c_void,
    count: usize,
    rules: *mut u32,
) -> i32 {
    let records = Records { fields, fields_count, records, count };
    // SAFETY: the caller's.
    guarded(|| unsafe { records.classify(reader, 1, rules) })
}

/// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
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
    let records = Records { fields, fields_count, records, count };
    // SAFETY: the caller's.
    guarded(|| unsafe { records.classify(reader, lists, rules) })
}
