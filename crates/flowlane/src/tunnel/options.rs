//! The map from GENEVE options (RFC 8926 §3.5) to fields: the option that `tun_metadataN` holds.
//!
//! ```text
//! options   class │ type │ length │ value ... class │ type │ length │ value
//!                      │                └─ right-aligned ─► tun_metadataN, and bit N of those present
//!                      └─ OptionMap: class, type, bytes ─► N
//! ```

use std::ops::Range;

use super::Refused;
use crate::packet::fields::{Field, TUN_METADATA_COUNT};
use crate::packet::key::FlowKey;

/// The most bytes of a mapped option's value: those of a field.
pub const OPTION_BYTES_MAX: usize = 16;

/// An option that has a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedOption {
    /// Its class.
    pub class: u16,
    /// Its type, the bit for critical options included.
    pub kind: u8,
    /// Bytes of its value: a multiple of 4, up to [`OPTION_BYTES_MAX`].
    pub bytes: u8,
}

/// The options that have a field, by the number of the field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OptionMap {
    fields: [Option<MappedOption>; TUN_METADATA_COUNT],
}

/// Why an option cannot have a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionMapError {
    /// The key has no such field.
    #[error("there is no tun_metadata{0}: the key has room for {TUN_METADATA_COUNT} options")]
    NoField(usize),
    /// The length is none that an option can have.
    #[error("the value of an option has a multiple of 4 bytes, not {0}")]
    Length(u8),
    /// The value is longer than a field.
    #[error("an option of {0} bytes is longer than a field's {OPTION_BYTES_MAX}")]
    TooLong(u8),
    /// The field holds an option.
    #[error("tun_metadata{0} holds an option already")]
    FieldTaken(usize),
    /// The option has a field.
    #[error("the option of class {:#x} and type {:#x} has a field already", .0.class, .0.kind)]
    OptionTaken(MappedOption),
}

impl OptionMap {
    /// Gives an option the field `tun_metadataN`.
    ///
    /// # Errors
    /// Why it cannot have it; the map is unchanged.
    pub fn add(&mut self, number: usize, option: MappedOption) -> Result<(), OptionMapError> {
        if option.bytes == 0 || !option.bytes.is_multiple_of(4) {
            return Err(OptionMapError::Length(option.bytes));
        }
        if usize::from(option.bytes) > OPTION_BYTES_MAX {
            return Err(OptionMapError::TooLong(option.bytes));
        }
        match self.fields.get(number) {
            None => return Err(OptionMapError::NoField(number)),
            Some(Some(_)) => return Err(OptionMapError::FieldTaken(number)),
            Some(None) => {}
        }
        if self.find(option.class, option.kind).is_some() {
            return Err(OptionMapError::OptionTaken(option));
        }
        self.fields[number] = Some(option);
        Ok(())
    }

    /// Takes the field's option from it, if it has one.
    pub fn remove(&mut self, number: usize) {
        if let Some(field) = self.fields.get_mut(number) {
            *field = None;
        }
    }

    /// The option of a field.
    pub fn get(&self, number: usize) -> Option<MappedOption> {
        self.fields.get(number).copied().flatten()
    }

    /// The numbers of fields, with their options.
    pub fn iter(&self) -> impl Iterator<Item = (usize, MappedOption)> {
        self.fields.iter().enumerate().filter_map(|(number, option)| Some((number, (*option)?)))
    }

    /// Returns whether no option has a field.
    pub fn is_empty(&self) -> bool {
        self.fields.iter().all(Option::is_none)
    }

    /// The option of a class and type, with the number of its field.
    pub fn find(&self, class: u16, kind: u8) -> Option<(usize, MappedOption)> {
        self.iter().find(|(_, option)| (option.class, option.kind) == (class, kind))
    }

    /// Reads the options in the area behind a GENEVE header; `None` where none has a field. Of an option that is there twice, the
    /// last counts, as in Open vSwitch.
    ///
    /// # Errors
    /// An option has another length than its field holds, or reaches beyond the area.
    pub fn read(&self, area: &[u8]) -> Result<Option<OptionValues>, Refused> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut all = OptionValues::default();
        for option in split(area) {
            let (class, kind, value) = option?;
            let Some((number, mapped)) = self.find(class, kind) else { continue };
            if value.len() != usize::from(mapped.bytes) {
                return Err(Refused::GeneveOptionLength);
            }
            all.values[number] = area[value].iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
            all.present |= 1 << number;
        }
        Ok((all.present != 0).then_some(all))
    }
}

/// Bytes of an option's header.
const HEADER_BYTES: usize = 4;

/// The options that a packet gets, in wire format.
#[derive(Clone, Debug)]
pub struct OptionArea {
    bytes: [u8; TUN_METADATA_COUNT * (HEADER_BYTES + OPTION_BYTES_MAX)],
    len: usize,
}

impl OptionArea {
    /// No options.
    pub const NONE: Self =
        Self { bytes: [0; TUN_METADATA_COUNT * (HEADER_BYTES + OPTION_BYTES_MAX)], len: 0 };

    /// The options, each whole.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl OptionMap {
    /// Writes the options whose fields are present in a key, in the order of the fields.
    pub fn write(&self, key: &FlowKey) -> OptionArea {
        let (mut area, present) = (OptionArea::NONE, key.get(Field::TunMetadataPresent));
        for (number, MappedOption { class, kind, bytes }) in self.iter() {
            if present >> number & 1 != 0 {
                let value = key.get(Field::tun_metadata(number).expect("the map has as many as fields"));
                let [high, low] = class.to_be_bytes();
                area.push(&[high, low, kind, bytes / 4]);
                area.push(&value.to_be_bytes()[OPTION_BYTES_MAX - usize::from(bytes)..]);
            }
        }
        area
    }
}

/// The options of a packet that have fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OptionValues {
    values: [u128; TUN_METADATA_COUNT],
    present: u128,
}

impl OptionValues {
    /// Sets the fields of the options in a key.
    pub fn fill(&self, key: &mut FlowKey) {
        for (number, value) in
            self.values.iter().enumerate().filter(|(number, _)| self.present >> number & 1 != 0)
        {
            key.set(Field::tun_metadata(number).expect("there are as many values as fields"), *value);
        }
        key.set(Field::TunMetadataPresent, self.present);
    }
}

/// The options of an area: class, type, and the place of the value.
fn split(area: &[u8]) -> impl Iterator<Item = Result<(u16, u8, Range<usize>), Refused>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let [class_high, class_low, kind, len] =
            *area.get(at..).filter(|rest| !rest.is_empty())?.first_chunk()?;
        let value = at + 4..at + 4 + usize::from(len & 0x1f) * 4;
        at = value.end.min(area.len());
        Some(match value.end <= area.len() {
            true => Ok((u16::from_be_bytes([class_high, class_low]), kind, value)),
            false => Err(Refused::GeneveOptionLength),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: MappedOption = MappedOption { class: 0x0102, kind: 0x80, bytes: 4 };

    fn map() -> OptionMap {
        let mut map = OptionMap::default();
        map.add(0, INDEX).unwrap();
        map.add(6, MappedOption { class: 0xffff, kind: 1, bytes: 16 }).unwrap();
        map
    }

    #[test]
    fn options_are_read_into_their_fields() {
        let mut area = vec![1, 2, 3, 1, 9, 9, 9, 9]; // not mapped
        area.extend([1, 2, 0x80, 1, 0, 7, 0, 9]);
        area.extend([0xff, 0xff, 1, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let mut key = FlowKey::zero();
        map().read(&area).unwrap().unwrap().fill(&mut key);
        assert_eq!(key.get(Field::TunMetadata0), 0x0007_0009);
        assert_eq!(key.get(Field::TunMetadata6), 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        assert_eq!(key.get(Field::TunMetadataPresent), 0x41);
        // Of two, the last counts.
        area.extend([1, 2, 0x80, 1, 0, 0, 0, 5]);
        map().read(&area).unwrap().unwrap().fill(&mut key);
        assert_eq!(key.get(Field::TunMetadata0), 5);
        assert_eq!(map().read(&area[..8]), Ok(None));
        assert_eq!(OptionMap::default().read(&[1]), Ok(None));
    }

    #[test]
    fn options_that_are_written_are_read_as_they_were() {
        let mut key = FlowKey::zero();
        assert!(map().write(&key).bytes().is_empty());
        for (field, value) in [
            (Field::TunMetadata0, 0x0007_0009),
            (Field::TunMetadata6, u128::MAX - 5),
            (Field::TunMetadata3, 1),
            (Field::TunMetadataPresent, 0x49),
        ] {
            key.set(field, value);
        }
        let mut read = FlowKey::zero();
        map().read(map().write(&key).bytes()).unwrap().unwrap().fill(&mut read);
        // No option has the third field.
        key.set(Field::TunMetadata3, 0);
        key.set(Field::TunMetadataPresent, 0x41);
        assert_eq!(read, key);
        key.set(Field::TunMetadataPresent, 1);
        assert_eq!(map().write(&key).bytes(), [1, 2, 0x80, 1, 0, 7, 0, 9]);
    }

    #[test]
    fn options_of_other_lengths_are_refused() {
        for area in [&[1, 2, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2, 0x80, 0], &[1, 2, 3, 1, 0, 0]] {
            assert_eq!(map().read(area), Err(Refused::GeneveOptionLength), "{area:?}");
        }
    }

    #[test]
    fn a_field_holds_one_option_and_an_option_has_one_field() {
        let mut map = map();
        let other = MappedOption { kind: 2, ..INDEX };
        assert_eq!(map.add(0, other), Err(OptionMapError::FieldTaken(0)));
        assert_eq!(map.add(1, INDEX), Err(OptionMapError::OptionTaken(INDEX)));
        assert_eq!(map.add(7, other), Err(OptionMapError::NoField(7)));
        for bytes in [0, 2, 5] {
            assert_eq!(map.add(1, MappedOption { bytes, ..other }), Err(OptionMapError::Length(bytes)));
        }
        assert_eq!(map.add(1, MappedOption { bytes: 20, ..other }), Err(OptionMapError::TooLong(20)));
        map.add(1, other).unwrap();
        map.remove(0);
        map.remove(0);
        assert_eq!(map.iter().map(|(number, _)| number).collect::<Vec<_>>(), [1, 6]);
        map.add(2, INDEX).unwrap();
        assert_eq!(map.get(2), Some(INDEX));
    }
}
