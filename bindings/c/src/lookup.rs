//! Many packets at once. Nothing is allocated.

use std::ffi::c_void;

use flowlane::classify::{Classifier, Hit};
use flowlane::packet::columns::{FlowColumns, Values};
use flowlane::packet::{Captured, Field, FlowKey, Headers, Parser};

use crate::acl::{FL_NONE, fl_reader};
use crate::error::{Done, Refused, array, array_mut, guarded, handle_mut};
use crate::layout::{FL_BYTES, FL_U8, FL_U16, FL_U32, FL_U64, field, fl_column, fl_record_field, values};

/// Packets whose keys are made at a time.
const CHUNK: usize = 128;

/// Frames that are parsed at a time: a key has 320 bytes.
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
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, frames, captured, rules) = unsafe {
            let frames = array(frames, count, "frames")?;
            let captured = array(captured, count, "captured")?;
            (handle_mut(reader, "reader")?, frames, captured, array_mut(rules, count, "rules")?)
        };
        // SAFETY: the caller's.
        let lengths = if lengths.is_null() { captured } else { unsafe { array(lengths, count, "lengths")? } };
        let (parser, list) = (Parser::new(), reader.list());
        let mut keys = [const { FlowKey::zero() }; FRAMES];
        let (mut headers, mut hits) = ([Headers::default(); FRAMES], [None::<Hit>; FRAMES]);
        for first in (0..count).step_by(FRAMES) {
            let rows = first..(first + FRAMES).min(count);
            let len = rows.len();
            let frames = frames[rows.clone()].iter().zip(&captured[rows.clone()]).zip(&lengths[rows.clone()]);
            let frames = frames.map(|((frame, captured), length)| {
                // SAFETY: the caller's.
                let bytes = unsafe { array(*frame, *captured as usize, "a frame") }.unwrap_or_default();
                Captured::new(bytes, *length as usize)
            });
            parser.parse_all(frames, in_port, &mut keys[..len], &mut headers[..len]);
            list.lookup_batch(&keys[..len], &mut hits[..len]);
            for (rule, hit) in rules[rows].iter_mut().zip(&hits) {
                *rule = hit.map_or(FL_NONE, |hit| hit.rule.0);
            }
        }
        Ok(())
    })
}

/// Adds a column.
#[inline]
fn add<'a>(packets: &mut FlowColumns<'a>, field: Field, values: Values<'a>) -> Done {
    packets.add(field, values).map_err(Refused::input)
}

/// The rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv4(
    reader: *mut fl_reader,
    packets: *const fl_ipv4,
    count: usize,
    rules: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, packets, rules) = unsafe {
            let packets = array(packets, count, "packets")?;
            (handle_mut(reader, "reader")?, packets, array_mut(rules, count, "rules")?)
        };
        let list = reader.list();
        let [mut from, mut to] = [[0u32; CHUNK]; 2];
        let ([mut source, mut destination], mut protocol) = ([[0u16; CHUNK]; 2], [0u8; CHUNK]);
        for (packets, rules) in packets.chunks(CHUNK).zip(rules.chunks_mut(CHUNK)) {
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
            list.lookup_columns(&columns, rules);
        }
        Ok(())
    })
}

/// The rule of each packet, or FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify_ipv6(
    reader: *mut fl_reader,
    packets: *const fl_ipv6,
    count: usize,
    rules: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, packets, rules) = unsafe {
            let packets = array(packets, count, "packets")?;
            (handle_mut(reader, "reader")?, packets, array_mut(rules, count, "rules")?)
        };
        let list = reader.list();
        let [mut from, mut to] = [[[0u8; 16]; CHUNK]; 2];
        let ([mut source, mut destination], mut protocol) = ([[0u16; CHUNK]; 2], [0u8; CHUNK]);
        for (packets, rules) in packets.chunks(CHUNK).zip(rules.chunks_mut(CHUNK)) {
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
            list.lookup_columns(&columns, rules);
        }
        Ok(())
    })
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
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, columns, rules) = unsafe {
            let columns = array(columns, columns_count, "columns")?;
            (handle_mut(reader, "reader")?, columns, array_mut(rules, count, "rules")?)
        };
        let mut packets = FlowColumns::new(count);
        for column in columns {
            // SAFETY: the caller's.
            let values = unsafe { values(column, count)? };
            add(&mut packets, field(column.field)?, values)?;
        }
        reader.list().lookup_columns(&packets, rules);
        Ok(())
    })
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
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, fields, records, rules) = unsafe {
            let (fields, records) =
                (array(fields, fields_count, "fields")?, array(records, count, "records")?);
            (handle_mut(reader, "reader")?, fields, records, array_mut(rules, count, "rules")?)
        };
        let mut known = [(Field::InPort, 0, 0, false); RECORD_FIELDS_MAX];
        if fields.len() > RECORD_FIELDS_MAX {
            return Err(Refused::input(format!(
                "{fields_count} fields; a record has {RECORD_FIELDS_MAX} at most"
            )));
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
        let known = &known[..fields.len()];
        let has = |any: [Field; 2]| known.iter().any(|(field, ..)| any.contains(field));
        let kind = match () {
            () if has([Field::EthType; 2]) => None,
            () if has([Field::Ipv4Src, Field::Ipv4Dst]) => Some(0x0800),
            () if has([Field::Ipv6Src, Field::Ipv6Dst]) => Some(0x86dd),
            () => None,
        };
        let list = reader.list();
        let mut copies = [[0u8; 16 * CHUNK]; RECORD_FIELDS_MAX];
        for (records, rules) in records.chunks(CHUNK).zip(rules.chunks_mut(CHUNK)) {
            let mut packets = FlowColumns::new(records.len());
            if let Some(kind) = kind {
                add(&mut packets, Field::EthType, Values::One(kind))?;
            }
            for (copy, (field, offset, bytes, swap)) in copies.iter_mut().zip(known) {
                for (record, own) in records.iter().zip(copy.chunks_exact_mut(*bytes)) {
                    // SAFETY: the caller's: a record has the bytes of its fields.
                    let from =
                        unsafe { array(record.cast::<u8>().wrapping_add(*offset), *bytes, "a record")? };
                    own.copy_from_slice(from);
                    if *swap {
                        own.reverse();
                    }
                }
                add(&mut packets, *field, Values::Bytes(&copy[..bytes * records.len()], *bytes))?;
            }
            list.lookup_columns(&packets, rules);
        }
        Ok(())
    })
}
