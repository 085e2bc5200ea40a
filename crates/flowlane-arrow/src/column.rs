//! Columns of captures: what they are called, their types, and their values.

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
    /// The packet's number in its capture, from 0.
    Number,
    /// When it was captured.
    Time,
    /// Bytes that were captured.
    Captured,
    /// Bytes that the frame had.
    Length,
    /// Why it was not parsed to its end.
    Fault,
    /// Its bytes, as many as were captured.
    Frame,
    /// A field of its headers.
    Field(Field),
}

/// Columns that are no fields.
const OWN: [(&str, Column); 6] = [
    ("packet", Column::Number),
    ("time", Column::Time),
    ("captured", Column::Captured),
    ("length", Column::Length),
    ("fault", Column::Fault),
    ("frame", Column::Frame),
];

/// The field of this name.
///
/// # Errors
/// Where there is none; the error says which is like it.
pub fn field(name: &str) -> Result<Field, ArrowError> {
    Field::by_name(name).ok_or_else(|| {
        let near = flowlane::named_enum::nearest(name, Field::all().iter().map(|info| info.name));
        ArrowError::Field { name: name.to_owned(), near }
    })
}

impl Column {
    /// The column of this name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn by_name(name: &str) -> Result<Self, ArrowError> {
        if let Some((_, own)) = OWN.iter().find(|(own, _)| *own == name) {
            return Ok(*own);
        }
        Field::by_name(name).map(Self::Field).ok_or_else(|| {
            let names = OWN.iter().map(|(own, _)| *own).chain(Field::all().iter().map(|info| info.name));
            ArrowError::Column { name: name.to_owned(), near: flowlane::named_enum::nearest(name, names) }
        })
    }

    /// Every column: what captures say of packets, then their fields, then their bytes.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = OWN.iter().map(|(_, own)| *own).filter(|own| *own != Self::Frame);
        let fields = Field::all().iter().filter(|info| !is_of_a_switch(info.field));
        own.chain(fields.map(|info| Self::Field(info.field))).chain([Self::Frame])
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            // Its other name is that of an octet, of which this is six bits.
            Self::Field(Field::IpDscp) => "ip_dscp",
            Self::Field(field) => field.info().name,
            own => OWN.iter().find(|(_, one)| *one == own).expect("it has a name").0,
        }
    }

    /// The type of its values.
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
                _ => DataType::UInt64,
            },
        }
    }

    /// Its place in a schema. What is an address says so in its metadata, under `flowlane.form`: `ipv4`, `ipv6` or `mac`.
    pub fn described(self) -> ArrowField {
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

    /// Whether headers must be parsed for it.
    pub(crate) fn is_parsed(self) -> bool {
        matches!(self, Self::Fault | Self::Field(_))
    }
}

/// What says in a schema how addresses are written.
pub const FORM: &str = "flowlane.form";

/// Fields that a switch gives packets, and captures know nothing of.
fn is_of_a_switch(field: Field) -> bool {
    matches!(field, Field::Malformed | Field::RecircId | Field::Metadata) || field >= Field::PktMark
}

/// Values of a column so far.
enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    Bytes(Vec<u8>, usize),
    Text(StringBuilder),
    /// With where each ends.
    Frames(Vec<u8>, Vec<i32>),
}

/// A column that is being made.
pub(crate) struct Making {
    column: Column,
    values: Values,
    /// Of fields.
    valid: BooleanBufferBuilder,
    /// Of the latest packets.
    latest: Vec<bool>,
}

/// What is known of some packets, one behind the other.
pub(crate) struct Parsed<'a> {
    pub(crate) numbers: &'a [u64],
    pub(crate) packets: &'a [Packet<'a>],
    /// None of them where no column needs them.
    pub(crate) keys: &'a [FlowKey],
    pub(crate) headers: &'a [Headers],
}

impl Making {
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

    /// Bytes of frames so far.
    pub(crate) fn frame_bytes(&self) -> usize {
        if let Values::Frames(bytes, _) = &self.values { bytes.len() } else { 0 }
    }

    /// Adds the values of some packets.
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
        Presence::of(field).of_packets(field, keys, headers, &mut self.latest);
        let valid = &self.latest;
        self.valid.append_slice(valid);
        // A field in one word is a shift; what is null is 0.
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

    /// The array; from then on the column is empty.
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
