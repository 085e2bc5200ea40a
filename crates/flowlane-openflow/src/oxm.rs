//! Matches as lists of fields: NXM (nicira-ext) and OXM (OpenFlow 1.3.5 7.2.3).
//!
//! A field is a header of 4 bytes (class, number and whether there is a mask, bytes of value and mask), for experimenters 4 more,
//! the value, and the mask. Fields whose prerequisites the fields before do not fix are refused, as are fields that come twice.

use std::ops::RangeInclusive;

use flowlane::packet::FlowMask;
use flowlane::packet::key::WORDS;
use flowlane::{Field, FieldRef, Match};

use crate::error::ErrorCode;
use crate::fields::{self, ORDER, PAIRS, Row, Shape};
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// Bit in a number of a port that OpenFlow 1.1 and later reserve, in place of 16 bits.
const RESERVED_32: u32 = 0xffff_0000;

/// The number and length of Nicira's field for the cookie, which only some messages have.
const COOKIE: (u16, u8, usize) = (0x0001, 30, 8);

/// A field as it is read.
pub(crate) struct Entry {
    pub(crate) row: &'static Row,
    pub(crate) value: u128,
    /// All ones of the field if there is none.
    pub(crate) mask: u128,
}

/// The header of a field.
#[derive(Clone, Copy)]
struct Head {
    class: u16,
    experimenter: u32,
    number: u8,
    has_mask: bool,
    /// Bytes of value and mask.
    bytes: usize,
}

/// The numbers of `NXM_NX_TUN_METADATA7` to 63, the fields of tunnel options that the key has no room for.
const OPTIONS_BEYOND: RangeInclusive<u8> = 47..=103;

impl Head {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (class, number, length) = (reader.u16()?, reader.u8()?, usize::from(reader.u8()?));
        let mut head =
            Self { class, experimenter: 0, number: number >> 1, has_mask: number & 1 != 0, bytes: length };
        if class == 0xffff {
            head.experimenter = reader.u32()?;
            head.bytes = length.checked_sub(4).ok_or(ErrorCode::MatchBadLen)?;
        }
        Ok(head)
    }

    /// Bytes of the value alone.
    fn value_bytes(&self) -> usize {
        if self.has_mask { self.bytes / 2 } else { self.bytes }
    }

    fn row(&self) -> Result<&'static Row, ErrorCode> {
        if self.class == 1 && OPTIONS_BEYOND.contains(&self.number) {
            return Err(ErrorCode::NiciraFlowModInvalidTlvField);
        }
        fields::find(self.class, self.experimenter, self.number, self.value_bytes())
            .ok_or(ErrorCode::MatchBadField)
    }
}

/// A port of OpenFlow 1.1 and later in the numbers of OpenFlow 1.0; `None` for numbers that neither has.
pub(crate) fn port_of_32(port: u32) -> Option<u32> {
    match port {
        0..0xff00 => Some(port),
        0xffff_ff00.. => Some(port & 0xffff),
        _ => None,
    }
}

/// A port in the numbers of OpenFlow 1.1 and later.
pub(crate) fn port_to_32(port: u32) -> u32 {
    if port < 0xff00 { port } else { port | RESERVED_32 }
}

/// A number of up to 124 bytes; `None` if it does not fit.
fn number(bytes: &[u8]) -> Option<u128> {
    let split = bytes.len().saturating_sub(16);
    let (high, low) = bytes.split_at(split);
    let fits = high.iter().all(|byte| *byte == 0);
    fits.then(|| low.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}

/// Reads a field with its value.
pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, ErrorCode> {
    let head = Head::read(reader)?;
    let bytes = reader.take(head.bytes)?;
    entry(head, bytes, Row::is_maskable)
}

/// Reads a field with the value that an action sets: any bits of it, also where a match has the whole field or nothing, except of ports
/// of 32 bits, of which Open vSwitch has all.
pub(crate) fn read_setting(reader: &mut Reader<'_>) -> Result<Entry, ErrorCode> {
    let head = Head::read(reader)?;
    let bytes = reader.take(head.bytes)?;
    entry(head, bytes, |row| row.shape != Shape::Port32)
}

fn entry(head: Head, bytes: &[u8], is_maskable: fn(&Row) -> bool) -> Result<Entry, ErrorCode> {
    let row = head.row()?;
    let width = head.value_bytes();
    // ovs-ofctl writes an option of zeros without any.
    let is_empty = width == 0 && matches!(row.shape, Shape::Option(_));
    if !row.has_width(width) && !is_empty || head.has_mask && !head.bytes.is_multiple_of(2) {
        return Err(ErrorCode::MatchBadLen);
    }
    let (value, mask) = bytes.split_at(width);
    let value = number(value).ok_or(ErrorCode::MatchBadValue)?;
    let ones = row.ones();
    let mask = if head.has_mask { number(mask) } else { Some(ones) };
    // Bits that the field does not have are not compared.
    let mask = mask.ok_or(ErrorCode::MatchBadMask)? & ones;
    if head.has_mask && value & !mask != 0 {
        return Err(ErrorCode::MatchBadWildcards);
    }
    if mask != 0 && mask != ones && !is_maskable(row) {
        return Err(ErrorCode::MatchBadMask);
    }
    let value = row.of_wire(value).ok_or(ErrorCode::MatchBadValue)?;
    Ok(Entry { row, value, mask: row.mask_of_wire(mask) })
}

impl Row {
    /// The bits of the value on the wire that the field has.
    fn ones(&self) -> u128 {
        match self.shape {
            Shape::Plain | Shape::Pcp | Shape::Option(_) => self.field.info().ones(),
            Shape::Tos => 0xfc,
            Shape::Port16 => 0xffff,
            Shape::Port32 => 0xffff_ffff,
            Shape::Vid => 0x1fff,
        }
    }

    /// Returns whether the value may have this number of bytes.
    fn has_width(&self, bytes: usize) -> bool {
        match self.shape {
            Shape::Option(_) => (1..=124).contains(&bytes),
            _ => bytes == usize::from(self.bytes),
        }
    }

    fn is_maskable(&self) -> bool {
        self.shape == Shape::Vid || self.field == Field::IpFrag || self.field.info().maskable
    }

    fn of_wire(&self, value: u128) -> Option<u128> {
        match self.shape {
            Shape::Tos => (value & !0xfc == 0).then_some(value >> 2),
            Shape::Port32 => port_of_32(value as u32).map(u128::from),
            // RFC 8300 §2.2: the TTL has six bits, and there are two types of metadata.
            Shape::Plain if self.field == Field::NshTtl && value > 63 => None,
            Shape::Plain if self.field == Field::NshMdtype && !matches!(value, 1 | 2) => None,
            Shape::Plain | Shape::Port16 | Shape::Vid | Shape::Pcp | Shape::Option(_) => {
                (value & !self.ones() == 0).then_some(value)
            }
        }
    }

    fn mask_of_wire(&self, mask: u128) -> u128 {
        match self.shape {
            Shape::Tos => mask >> 2,
            Shape::Port16 if mask == 0xffff => self.field.info().ones(),
            Shape::Plain | Shape::Port16 | Shape::Port32 | Shape::Vid | Shape::Pcp | Shape::Option(_) => mask,
        }
    }

    fn to_wire(&self, value: u128) -> u128 {
        match self.shape {
            Shape::Tos => value << 2,
            Shape::Port32 => port_to_32(value as u32).into(),
            Shape::Plain | Shape::Port16 | Shape::Vid | Shape::Pcp | Shape::Option(_) => value,
        }
    }

    /// Bytes of the value on a connection; of an option without a length, as many as `value` has.
    fn bytes_of(&self, codec: &Codec, value: u128) -> usize {
        match self.shape {
            Shape::Option(index) => match codec.option_bytes[usize::from(index)] {
                0 => (128 - value.leading_zeros()).div_ceil(8).max(1) as usize,
                bytes => bytes.into(),
            },
            _ => self.bytes.into(),
        }
    }

    fn put_head(&self, w: &mut Writer, has_mask: bool, bytes: usize) {
        let extra = if self.class == 0xffff { 4 } else { 0 };
        let length = bytes * if has_mask { 2 } else { 1 } + extra;
        w.u16(self.class).u8(self.number << 1 | u8::from(has_mask)).u8(length as u8);
        if self.class == 0xffff {
            w.u32(self.experimenter);
        }
    }

    /// Writes a value, and its mask if there is one.
    pub(crate) fn put(&self, w: &mut Writer, codec: &Codec, value: u128, mask: Option<u128>) {
        let (value, mask) = (self.to_wire(value), mask.map(|mask| self.to_wire(mask)));
        let bytes = self.bytes_of(codec, value | mask.unwrap_or(0));
        self.put_head(w, mask.is_some(), bytes);
        for number in [Some(value), mask].into_iter().flatten() {
            let all = number.to_be_bytes();
            w.zeros(bytes.saturating_sub(16)).put(&all[16 - bytes.min(16)..]);
        }
    }

    /// Adds the condition to a match.
    fn add_to(&self, matches: &mut Match, value: u128, mask: u128) -> Result<(), ErrorCode> {
        let field = if self.is_tag() { Field::VlanTci } else { self.field };
        let (value, mask) = match self.shape {
            Shape::Pcp => (value << 13, mask << 13),
            _ => (value, mask),
        };
        if let Shape::Option(number) = self.shape {
            let bit = 1 << number;
            if matches.get(Field::TunMetadataPresent).1 & bit != 0 {
                return Err(ErrorCode::MatchDupField);
            }
            matches.set_masked(Field::TunMetadataPresent, bit, bit);
        }
        if matches.get(field).1 & if self.is_tag() { mask } else { field.info().ones() } != 0 {
            return Err(ErrorCode::MatchDupField);
        }
        matches.set_masked(field, value, mask);
        Ok(())
    }
}

/// Reads fields up to the end of a reader, and Nicira's cookie where `with_cookie` says that there may be one.
fn read_list(reader: &mut Reader<'_>, with_cookie: bool) -> Result<(Match, Option<(u64, u64)>), ErrorCode> {
    let mut matches = Match::any();
    let mut cookie = None;
    while !reader.is_empty() {
        let head = Head::read(reader)?;
        let bytes = reader.take(head.bytes)?;
        if (head.class, head.number, head.value_bytes()) == COOKIE {
            let mut part = Reader::new(bytes, ErrorCode::MatchBadLen);
            let (value, mask) = (part.u64()?, if head.has_mask { part.u64()? } else { u64::MAX });
            match cookie {
                _ if !with_cookie => return Err(ErrorCode::MatchBadField),
                Some(_) => return Err(ErrorCode::MatchDupField),
                None if value & !mask != 0 => return Err(ErrorCode::MatchBadWildcards),
                None => cookie = Some((value, mask)),
            }
            continue;
        }
        // A header with another length is another, unknown one.
        let entry = entry(head, bytes, Row::is_maskable).map_err(|code| match code {
            ErrorCode::MatchBadLen => ErrorCode::MatchBadField,
            other => other,
        })?;
        let is_bare = matches.get(Field::PacketType).0 != 0;
        if !entry.row.needs.are_met(&matches) || is_bare && entry.row.is_of_ethernet() {
            return Err(ErrorCode::MatchBadPrereq);
        }
        entry.row.add_to(&mut matches, entry.value, entry.mask)?;
    }
    Ok((matches, cookie))
}

/// Reads `bytes` bytes of NXM, which zeros fill to a multiple of 8, with the cookie if one is there.
pub(crate) fn read_nxm(
    reader: &mut Reader<'_>,
    bytes: usize,
) -> Result<(Match, Option<(u64, u64)>), ErrorCode> {
    let all = reader.take(bytes.next_multiple_of(8)).map_err(|_| ErrorCode::MatchBadLen)?;
    let list = all.get(..bytes).ok_or(ErrorCode::MatchBadLen)?;
    read_list(&mut Reader::new(list, ErrorCode::MatchBadLen), true)
}

/// Reads fields without a header of the list and without padding, as of a packet-in's metadata.
pub(crate) fn read_bare(bytes: &[u8]) -> Result<Match, ErrorCode> {
    Ok(read_list(&mut Reader::new(bytes, ErrorCode::MatchBadLen), false)?.0)
}

/// Reads a match of OpenFlow 1.2 and later: type, length, fields, padding (1.3.5 7.2.3.1).
pub(crate) fn read_match(reader: &mut Reader<'_>) -> Result<Match, ErrorCode> {
    let (kind, length) = (reader.u16()?, usize::from(reader.u16()?));
    if kind != 1 {
        return Err(ErrorCode::MatchBadType);
    }
    let bytes = length.checked_sub(4).ok_or(ErrorCode::MatchBadLen)?;
    let list = reader.take(bytes).map_err(|_| ErrorCode::MatchBadLen)?;
    reader.skip(length.next_multiple_of(8) - length).map_err(|_| ErrorCode::MatchBadLen)?;
    read_bare(list)
}

/// Writes a match of OpenFlow 1.2 and later.
pub(crate) fn put_match(w: &mut Writer, codec: &Codec, matches: &Match) -> Result<(), Failed> {
    let start = w.len();
    w.u16(1).u16(0);
    put_bare(w, codec, matches, true)?;
    w.set_length(start + 2, start);
    w.pad(start, 8);
    Ok(())
}

/// Writes NXM and zeros behind it, and returns the bytes without these.
pub(crate) fn put_nxm(
    w: &mut Writer,
    codec: &Codec,
    matches: &Match,
    cookie: Option<(u64, u64)>,
) -> Result<u16, Failed> {
    let start = w.len();
    // Nicira's messages have its headers in all versions.
    let codec = &Codec { version: Version::OpenFlow10, ..codec.clone() };
    put_bare(w, codec, matches, false)?;
    if let Some((value, mask)) = cookie.filter(|(_, mask)| *mask != 0) {
        let has_mask = mask != u64::MAX;
        w.u16(COOKIE.0).u8(COOKIE.1 << 1 | u8::from(has_mask)).u8(if has_mask { 16 } else { 8 }).u64(value);
        if has_mask {
            w.u64(mask);
        }
    }
    let bytes = u16::try_from(w.len() - start).map_err(|_| Failed)?;
    w.pad(start, 8);
    Ok(bytes)
}

/// Writes the fields of a match. Fails if it has conditions that no field expresses: ranges of ports, fields without the
/// prerequisites that tell them apart.
pub(crate) fn put_bare(w: &mut Writer, codec: &Codec, matches: &Match, is_oxm: bool) -> Result<(), Failed> {
    let has_ranges = matches.tp_src_range().is_some() || matches.tp_dst_range().is_some();
    let left = put_fields(w, codec, matches, is_oxm);
    let is_whole = left.words().iter().all(|word| *word == 0);
    if is_whole && !has_ranges { Ok(()) } else { Err(Failed) }
}

/// The part of a packet's metadata that fields of OpenFlow express.
pub(crate) fn expressible(codec: &Codec, metadata: &Match) -> Match {
    let left = put_fields(&mut Writer::default(), codec, metadata, true);
    let mut mask = metadata.word_mask();
    for w in 0..WORDS {
        mask.set_word(w, mask.word(w) & !left.word(w));
    }
    Match::from_key(&metadata.key(), &mask)
}

/// Writes the fields of a match, and returns the bits that no field expresses.
fn put_fields(w: &mut Writer, codec: &Codec, matches: &Match, is_oxm: bool) -> FlowMask {
    let mut left = matches.word_mask();
    for field in ORDER {
        if is_oxm && *field == Field::VlanTci {
            put_tag(w, codec, matches);
            left.set(Field::VlanTci, 0);
            continue;
        }
        if codec.version == Version::OpenFlow15 && *field == Field::Reg0 {
            for pair in PAIRS {
                put_field(w, codec, matches, *pair, is_oxm);
                left.set(*pair, 0);
            }
        }
        let is_register = (Field::Reg0..=Field::Reg15).contains(field);
        if is_register && codec.version == Version::OpenFlow15 {
            continue;
        }
        if put_field(w, codec, matches, *field, is_oxm) {
            left.set(*field, 0);
            if let Some(number) = field.tun_metadata_number() {
                let others = left.get(Field::TunMetadataPresent) & !(1 << number);
                left.set(Field::TunMetadataPresent, others);
            }
        }
    }
    left
}

/// Writes a field of a match, if the match has a condition on it.
fn put_field(w: &mut Writer, codec: &Codec, matches: &Match, field: Field, is_oxm: bool) -> bool {
    let protocol = matches.get(Field::NwProto).0 as u8;
    let (value, mask) = matches.get(field);
    let number = field.tun_metadata_number();
    let present = number.map_or(0, |number| matches.get(Field::TunMetadataPresent).0 & 1 << number);
    if mask == 0 && present == 0 {
        return false;
    }
    let Some(row) = fields::of_field(field, codec.version, protocol) else { return false };
    let row = match field {
        Field::IpDscp if !is_oxm => fields::find(0, 0, 5, 1).unwrap_or(row),
        Field::InPort if is_oxm => fields::find(0x8000, 0, 0, 4).unwrap_or(row),
        _ => row,
    };
    if !row.needs.are_met(matches) {
        return false;
    }
    let is_whole = mask == field.info().ones();
    row.put(w, codec, value, (!is_whole).then_some(mask));
    true
}

/// Writes the conditions on a tag as OXM does: identifier with presence, and priority.
fn put_tag(w: &mut Writer, codec: &Codec, matches: &Match) {
    let (value, mask) = matches.get(Field::VlanTci);
    let (vid, vid_mask) = (value & 0x1fff, mask & 0x1fff);
    if let Some(row) = fields::find(0x8000, 0, 6, 2).filter(|_| vid_mask != 0) {
        row.put(w, codec, vid, (vid_mask != 0x1fff).then_some(vid_mask));
    }
    if let Some(row) = fields::find(0x8000, 0, 7, 1).filter(|_| mask & 0xe000 != 0 && vid & 0x1000 != 0) {
        row.put(w, codec, value >> 13, None);
    }
}

/// Reads the header of a field without a value, of a structure that names one.
pub(crate) fn read_header(reader: &mut Reader<'_>) -> Result<&'static Row, ErrorCode> {
    read_id(reader).map(|(row, _)| row)
}

/// Reads the header of a field without a value, and whether it says that there is a mask.
pub(crate) fn read_id(reader: &mut Reader<'_>) -> Result<(&'static Row, bool), ErrorCode> {
    let head = Head::read(reader)?;
    let row = head.row()?;
    if !row.has_width(head.value_bytes()) {
        return Err(ErrorCode::MatchBadLen);
    }
    Ok((row, head.has_mask))
}

/// Makes a reference to bits of a field on the wire.
pub(crate) fn reference(row: &Row, first_bit: u16, bits: u16) -> Result<FieldRef, ErrorCode> {
    let wrong = ErrorCode::ActionBadSetLen;
    let first_bit = match row.shape {
        Shape::Tos => first_bit.checked_sub(2).ok_or(wrong)?,
        Shape::Port16 if first_bit.saturating_add(bits) > 16 => return Err(wrong),
        _ => first_bit,
    };
    let (first_bit, bits) = (u8::try_from(first_bit).ok(), u8::try_from(bits).ok());
    let (Some(first_bit), Some(bits)) = (first_bit, bits) else { return Err(wrong) };
    FieldRef::new(row.field, first_bit, bits).ok_or(wrong)
}

/// The row by which a reference's field is written.
pub(crate) fn row_of(part: FieldRef, version: Version, protocol: u8) -> Option<&'static Row> {
    let last = part.first_bit() + part.bits();
    match part.field() {
        Field::InPort if last <= 16 => fields::find(0, 0, 0, 2),
        Field::InPort => fields::find(0x8000, 0, 0, 4),
        Field::IpDscp => fields::find(0x8000, 0, 8, 1),
        field => fields::of_field(field, version, protocol),
    }
}

/// Writes the header of a field without a value.
pub(crate) fn put_header(w: &mut Writer, codec: &Codec, row: &Row) {
    let bytes = match row.shape {
        Shape::Option(index) => match codec.option_bytes[usize::from(index)] {
            0 => 124,
            bytes => bytes.into(),
        },
        _ => row.bytes.into(),
    };
    row.put_head(w, false, bytes);
}

/// Writes the header of a field without a value, and says whether it may have a mask.
pub(crate) fn put_id(w: &mut Writer, row: &Row, has_mask: bool) {
    let bytes = if matches!(row.shape, Shape::Option(_)) { 124 } else { row.bytes.into() };
    row.put_head(w, has_mask, bytes);
}
