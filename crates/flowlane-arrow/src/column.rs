//! Columns of captures: names, types and values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBufferBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, StringArray, TimestampNanosecondArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field as ArrowField, TimeUnit};
use flowlane::packet::fields::Form;
use flowlane::packet::{Field, FlowKey, Headers};
use flowlane_capture::Packet;

use crate::ArrowError;
use crate::presence::Presence;

/// A column of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// Number of the packet in its capture, from 0.
    Number,
    /// Capture time.
    Time,
    /// Captured length in bytes.
    Captured,
    /// Original length in bytes.
    Length,
    /// Reason why the packet was not parsed completely.
    Fault,
    /// Captured bytes.
    Frame,
    /// A header field.
    Field(Field),
}

/// Columns other than fields.
const METADATA_COLUMNS: [(&str, Column); 6] = [
    ("packet", Column::Number),
    ("time", Column::Time),
    ("captured", Column::Captured),
    ("length", Column::Length),
    ("fault", Column::Fault),
    ("frame", Column::Frame),
];

/// Returns the field of this name.
///
/// # Errors
/// If there is none; the error names the most similar field.
pub fn field(name: &str) -> Result<Field, ArrowError> {
    Field::by_name(name).ok_or_else(|| {
        let near = flowlane::named_enum::nearest(name, Field::all().iter().map(|info| info.name));
        ArrowError::Field { name: name.to_owned(), near }
    })
}

impl Column {
    /// Returns the column of this name.
    ///
    /// # Errors
    /// If there is none; the error names the most similar column.
    pub fn by_name(name: &str) -> Result<Self, ArrowError> {
        if let Some((_, own)) = METADATA_COLUMNS.iter().find(|(own, _)| *own == name) {
            return Ok(*own);
        }
        Field::by_name(name).map(Self::Field).ok_or_else(|| {
            let names =
                METADATA_COLUMNS.iter().map(|(own, _)| *own).chain(Field::all().iter().map(|info| info.name));
            ArrowError::Column { name: name.to_owned(), near: flowlane::named_enum::nearest(name, names) }
        })
    }

    /// Returns all columns: capture metadata, then header fields, then the frame.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = METADATA_COLUMNS.iter().map(|(_, own)| *own).filter(|own| *own != Self::Frame);
        let fields = Field::all().iter().filter(|info| !is_set_by_switch(info.field));
        own.chain(fields.map(|info| Self::Field(info.field))).chain([Self::Frame])
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            // The field's primary name is that of the whole octet, of which this field is six bits.
            Self::Field(Field::IpDscp) => "ip_dscp",
            Self::Field(field) => field.info().name,
            own => METADATA_COLUMNS.iter().find(|(_, one)| *one == own).expect("it has a name").0,
        }
    }

    /// Returns the type of the values.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Number => DataType::UInt64,
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Captured | Self::Length => DataType::UInt32,
            Self::Fault => DataType::Utf8,
            Self::Frame => DataType::Binary,
            Self::Field(field) => match (field.info().form, field.info().width) {
                (Form::Mac, _) => DataType::FixedSizeBinary(6),
                (Form::Ipv6, _) => DataType::FixedSizeBinary(16),
                (_, ..=8) => DataType::UInt8,
                (_, ..=16) => DataType::UInt16,
                (_, ..=32) => DataType::UInt32,
                (_, ..=64) => DataType::UInt64,
                _ => DataType::FixedSizeBinary(16),
            },
        }
    }

    /// Returns the schema field. Addresses have metadata under `flowlane.form`: `ipv4`, `ipv6` or `mac`.
    pub fn schema_field(self) -> ArrowField {
        let is_nullable = matches!(self, Self::Fault | Self::Field(_));
        let plain = ArrowField::new(self.name(), self.data_type(), is_nullable);
        let form = match self {
            Self::Field(field) => match field.info().form {
                Form::Ipv4 => "ipv4",
                Form::Ipv6 => "ipv6",
                Form::Mac => "mac",
                _ => return plain,
            },
            _ => return plain,
        };
        plain.with_metadata(HashMap::from([(FORM.to_owned(), form.to_owned())]))
    }

    /// Returns whether the column requires parsing.
    pub(crate) fn is_parsed(self) -> bool {
        matches!(self, Self::Fault | Self::Field(_))
    }
}

/// Metadata key for the textual form of addresses.
pub const FORM: &str = "flowlane.form";

/// Returns whether the field is set by a switch, and so unknown in captures.
fn is_set_by_switch(field: Field) -> bool {
    matches!(field, Field::Malformed | Field::RecircId | Field::Metadata) || field >= Field::PktMark
}

/// Values of a column that is being built.
enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    Bytes(Vec<u8>, usize),
    Text(StringBuilder),
    /// Bytes and end offsets.
    Frames(Vec<u8>, Vec<i32>),
}

/// Builder of a column.
pub(crate) struct ColumnBuilder {
    column: Column,
    values: Values,
    /// Validity of fields.
    valid: BooleanBufferBuilder,
    /// Validity of the latest chunk.
    latest: Vec<bool>,
}

/// Parsed packets.
pub(crate) struct Parsed<'a> {
    pub(crate) numbers: &'a [u64],
    pub(crate) packets: &'a [Packet<'a>],
    /// Empty if no column requires parsing.
    pub(crate) keys: &'a [FlowKey],
    pub(crate) headers: &'a [Headers],
}

impl ColumnBuilder {
    pub(crate) fn new(column: Column) -> Self {
        let values = match column.data_type() {
            DataType::UInt8 => Values::U8(Vec::new()),
            DataType::UInt16 => Values::U16(Vec::new()),
            DataType::UInt32 => Values::U32(Vec::new()),
            DataType::UInt64 => Values::U64(Vec::new()),
            DataType::Timestamp(..) => Values::I64(Vec::new()),
            DataType::FixedSizeBinary(each) => Values::Bytes(Vec::new(), each as usize),
            DataType::Binary => Values::Frames(Vec::new(), vec![0]),
            _ => Values::Text(StringBuilder::new()),
        };
        Self { column, values, valid: BooleanBufferBuilder::new(0), latest: Vec::new() }
    }

    /// Returns the bytes of frames so far.
    pub(crate) fn frame_bytes(&self) -> usize {
        if let Values::Frames(bytes, _) = &self.values { bytes.len() } else { 0 }
    }

    /// Appends the values of some packets.
    pub(crate) fn add(&mut self, parsed: &Parsed<'_>) {
        let Parsed { packets, headers, .. } = *parsed;
        match (self.column, &mut self.values) {
            (Column::Number, Values::U64(values)) => values.extend(parsed.numbers),
            (Column::Time, Values::I64(values)) => {
                values.extend(packets.iter().map(|packet| packet.time_ns.min(i64::MAX as u64) as i64));
            }
            (Column::Captured, Values::U32(values)) => {
                values.extend(packets.iter().map(|packet| packet.bytes.len() as u32));
            }
            (Column::Length, Values::U32(values)) => values.extend(packets.iter().map(|packet| packet.len)),
            (Column::Fault, Values::Text(values)) => {
                headers.iter().for_each(|h| values.append_option(h.malformed.map(|reason| reason.name())));
            }
            (Column::Frame, Values::Frames(bytes, ends)) => {
                for packet in packets {
                    bytes.extend(packet.bytes);
                    ends.push(bytes.len() as i32);
                }
            }
            (Column::Field(field), _) => self.add_field(field, parsed),
            _ => unreachable!("a column has the values of its kind"),
        }
    }

    fn add_field(&mut self, field: Field, parsed: &Parsed<'_>) {
        let Parsed { keys, headers, .. } = *parsed;
        Presence::of(field).of_packets(keys, headers, &mut self.latest);
        let valid = &self.latest;
        self.valid.append_slice(valid);
        // A field in one word is extracted by a shift; null values are 0.
        let mut pieces = field.info().pieces();
        let (w, shift, width) = pieces.next().expect("a field has a width");
        let ones = u32::MAX >> (32 - width);
        let own = |key: &FlowKey, valid: bool| if valid { key.word(w) >> shift & ones } else { 0 };
        let narrow = keys.iter().zip(valid).map(|(key, valid)| own(key, *valid));
        match &mut self.values {
            Values::U8(values) => values.extend(narrow.map(|value| value as u8)),
            Values::U16(values) => values.extend(narrow.map(|value| value as u16)),
            Values::U32(values) => values.extend(narrow),
            Values::U64(values) => {
                let wide = keys.iter().zip(valid).map(|(key, valid)| if *valid { key.get(field) } else { 0 });
                values.extend(wide.map(|value| value as u64));
            }
            // Most packets are of one kind.
            Values::Bytes(values, each) if !valid.contains(&true) => {
                values.resize(values.len() + keys.len() * *each, 0);
            }
            Values::Bytes(values, each) => {
                for (key, valid) in keys.iter().zip(valid) {
                    let value = if *valid { key.get(field) } else { 0 };
                    values.extend(&value.to_be_bytes()[16 - *each..]);
                }
            }
            _ => unreachable!("fields are numbers or bytes"),
        }
    }

    /// Returns the array, and empties the builder.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        let mut done = std::mem::replace(self, Self::new(self.column));
        let nulls = NullBuffer::new(done.valid.finish());
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        match done.values {
            Values::U8(values) => Arc::new(UInt8Array::new(values.into(), nulls)),
            Values::U16(values) => Arc::new(UInt16Array::new(values.into(), nulls)),
            Values::U32(values) => Arc::new(UInt32Array::new(values.into(), nulls)),
            Values::U64(values) => Arc::new(UInt64Array::new(values.into(), nulls)),
            Values::I64(values) => {
                Arc::new(TimestampNanosecondArray::new(values.into(), None).with_timezone("UTC"))
            }
            Values::Bytes(bytes, each) => {
                Arc::new(FixedSizeBinaryArray::new(each as i32, Buffer::from_vec(bytes), nulls))
            }
            Values::Text(mut values) => Arc::new(StringArray::from(values.finish())),
            Values::Frames(bytes, ends) => {
                Arc::new(BinaryArray::new(OffsetBuffer::new(ends.into()), Buffer::from_vec(bytes), None))
            }
        }
    }
}
