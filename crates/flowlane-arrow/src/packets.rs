//! Arrow columns as packets, without copying.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use flowlane::packet::columns::{FlowColumns, Values};
use flowlane::packet::{Field, FlowMask};

use crate::ArrowError;
use crate::column::field;

/// A column with the buffer that owns its values.
enum ColumnValues {
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    /// Values of a fixed width.
    Bytes(ScalarBuffer<u8>, usize),
}

/// Returns an array as unsigned numbers. Null values become 0, as for absent fields.
fn numbers<T: ArrowNativeType + Default>(array: &ArrayRef) -> ScalarBuffer<T> {
    let data = array.to_data();
    let values = ScalarBuffer::<T>::new(data.buffers()[0].clone(), data.offset(), data.len());
    match data.nulls() {
        Some(nulls) if nulls.null_count() > 0 => zeroed(&values, nulls),
        _ => values,
    }
}

fn zeroed<T: ArrowNativeType + Default>(values: &[T], nulls: &NullBuffer) -> ScalarBuffer<T> {
    let with_zeros = values.iter().zip(nulls.iter());
    with_zeros
        .map(|(value, is_valid)| if is_valid { *value } else { T::default() })
        .collect::<Vec<_>>()
        .into()
}

fn bytes(array: &ArrayRef, each: usize) -> ScalarBuffer<u8> {
    let data = array.to_data();
    let values = ScalarBuffer::<u8>::new(data.buffers()[0].clone(), data.offset() * each, data.len() * each);
    match data.nulls() {
        Some(nulls) if nulls.null_count() > 0 => {
            let rows = values.chunks(each).zip(nulls.iter());
            let rows =
                rows.flat_map(|(row, is_valid)| row.iter().map(move |b| if is_valid { *b } else { 0 }));
            rows.collect::<Vec<u8>>().into()
        }
        _ => values,
    }
}

/// Collects variable-length values that all must have the width of the field.
fn gathered<'a>(
    name: &str,
    wanted: usize,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> Result<ScalarBuffer<u8>, ArrowError> {
    let mut bytes = Vec::new();
    for (row, value) in values.enumerate() {
        match value {
            Some(value) if value.len() == wanted => bytes.extend(value),
            Some(value) => {
                let (name, row) = (name.to_owned(), Some(row));
                return Err(ArrowError::Width { name, row, found: value.len(), wanted });
            }
            None => bytes.resize(bytes.len() + wanted, 0),
        }
    }
    Ok(bytes.into())
}

impl ColumnValues {
    fn new(name: &str, field: Field, array: &ArrayRef) -> Result<Self, ArrowError> {
        let each = usize::from(field.info().width).div_ceil(8);
        Ok(match array.data_type() {
            DataType::UInt8 | DataType::Int8 => Self::U8(numbers(array)),
            DataType::UInt16 | DataType::Int16 => Self::U16(numbers(array)),
            DataType::UInt32 | DataType::Int32 => Self::U32(numbers(array)),
            DataType::UInt64 | DataType::Int64 => Self::U64(numbers(array)),
            DataType::FixedSizeBinary(each @ 1..=16) => {
                check_width(name, field, *each as usize)?;
                Self::Bytes(bytes(array, *each as usize), *each as usize)
            }
            DataType::Binary => Self::Bytes(gathered(name, each, array.as_binary::<i32>().iter())?, each),
            DataType::LargeBinary => {
                Self::Bytes(gathered(name, each, array.as_binary::<i64>().iter())?, each)
            }
            DataType::BinaryView => Self::Bytes(gathered(name, each, array.as_binary_view().iter())?, each),
            other => return Err(ArrowError::Type { name: name.to_owned(), found: other.to_string() }),
        })
    }

    fn values(&self) -> Values<'_> {
        match self {
            Self::U8(values) => Values::U8(values),
            Self::U16(values) => Values::U16(values),
            Self::U32(values) => Values::U32(values),
            Self::U64(values) => Values::U64(values),
            Self::Bytes(bytes, each) => Values::Bytes(bytes, *each),
        }
    }
}

/// Returns the fields that columns of these names hold; other columns are ignored.
///
/// # Errors
/// If no name is a field.
pub fn fields<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<Vec<Field>, ArrowError> {
    let fields: Vec<Field> = names.clone().filter_map(Field::by_name).collect();
    match fields.is_empty() {
        true => Err(ArrowError::NoFields { names: names.collect::<Vec<_>>().join(", ") }),
        false => Ok(fields),
    }
}

/// Returns the EtherType that these fields imply: `None` if there is a column for it, or they imply none.
///
/// # Errors
/// If there are addresses of both IP versions.
pub fn ether_type(fields: &[Field]) -> Result<Option<u128>, ArrowError> {
    let has = |any: [Field; 2]| any.iter().any(|field| fields.contains(field));
    let (v4, v6) = (has([Field::Ipv4Src, Field::Ipv4Dst]), has([Field::Ipv6Src, Field::Ipv6Dst]));
    match (v4, v6) {
        _ if fields.contains(&Field::EthType) => Ok(None),
        (true, true) => Err(ArrowError::BothFamilies),
        (true, false) => Ok(Some(0x0800)),
        (false, true) => Ok(Some(0x86dd)),
        (false, false) => Ok(None),
    }
}

/// IPv4 and ARP addresses, which share words of a key.
pub const SHARED_WORDS: [(Field, Field); 2] =
    [(Field::Ipv4Src, Field::ArpSpa), (Field::Ipv4Dst, Field::ArpTpa)];

/// Returns the fields that the rules inspect and that `known` lacks. A known IPv4 address does not determine the ARP
/// address of the same key word, because packets have one or the other.
pub fn missing(fields: &[Field], inspected: &FlowMask, known: &[Field]) -> Vec<Field> {
    let mut bits = FlowMask::zero();
    known.iter().for_each(|field| bits.add_field(*field));
    if ether_type(known).is_ok_and(|kind| kind.is_some()) {
        bits.add_field(Field::EthType);
    }
    let shares = |field: &Field| SHARED_WORDS.iter().any(|(ip, arp)| field == ip || field == arp);
    let mut missing = Vec::new();
    for field in fields.iter().filter(|field| !known.contains(field)) {
        // Fields may share bits.
        if inspected.get(*field) & !bits.get(*field) != 0 || shares(field) {
            missing.push(*field);
            bits.add_field(*field);
        }
    }
    missing
}

/// Checks that these fields determine the presence of VLAN tags.
///
/// # Errors
/// If there are VLAN fields, and no field tells which packets have tags.
pub fn check_tags(fields: &[Field]) -> Result<(), ArrowError> {
    let has = |field: Field| fields.contains(&field);
    match (has(Field::VlanVid) || has(Field::VlanPcp)) && !has(Field::VlanTci) {
        true => Err(ArrowError::Tags),
        false => Ok(()),
    }
}

/// Checks that binary values of width `each` have the width of the field.
///
/// # Errors
/// If they have not.
pub fn check_width(name: &str, field: Field, each: usize) -> Result<(), ArrowError> {
    match usize::from(field.info().width).div_ceil(8) {
        own if own == each => Ok(()),
        wanted => Err(ArrowError::Width { name: name.to_owned(), row: None, found: each, wanted }),
    }
}

/// Combines columns into packets of this EtherType.
///
/// # Errors
/// If a column does not fit its field or the other columns.
pub fn packets<'a>(
    len: usize,
    ether_type: Option<u128>,
    columns: impl Iterator<Item = (Field, Values<'a>)>,
) -> Result<FlowColumns<'a>, ArrowError> {
    let mut packets = FlowColumns::new(len);
    for (field, values) in
        ether_type.map(|kind| (Field::EthType, Values::One(kind))).into_iter().chain(columns)
    {
        packets.add(field, values)?;
    }
    Ok(packets)
}

/// Calls `look_up` with the packets of these columns, each named by its field, restricted to the fields that the rules
/// inspect. `known` are all fields of the packets, of which `columns` are a part.
///
/// # Errors
/// If a column has an unsupported type, or does not fit its field.
pub fn with_columns<T>(
    len: usize,
    known: &[Field],
    columns: &[(&str, &ArrayRef)],
    inspected: &FlowMask,
    look_up: impl FnOnce(&FlowColumns<'_>) -> T,
) -> Result<T, ArrowError> {
    check_tags(known)?;
    let kind = ether_type(known)?;
    let addresses = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];
    let mut inspected_columns = Vec::with_capacity(columns.len());
    for (name, array) in columns {
        let field = field(name)?;
        if kind.is_some() && addresses.contains(&field) && array.null_count() > 0 {
            return Err(ArrowError::NullAddress { name: (*name).to_owned() });
        }
        if inspected.get(field) != 0 {
            inspected_columns.push((field, ColumnValues::new(name, field, array)?));
        }
    }
    let values = inspected_columns.iter().map(|(field, column)| (*field, column.values()));
    Ok(look_up(&packets(len, kind, values)?))
}

/// Calls `look_up` with the packets of a record batch; columns that are not named by a field are ignored.
///
/// # Errors
/// If no column is named by a field, a column has an unsupported type, or the columns do not determine the packets.
pub fn packets_of<T>(
    batch: &RecordBatch,
    inspected: &FlowMask,
    look_up: impl FnOnce(&FlowColumns<'_>) -> T,
) -> Result<T, ArrowError> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let known = fields(names.clone())?;
    let columns: Vec<(&str, &ArrayRef)> =
        names.zip(batch.columns()).filter(|(name, _)| Field::by_name(name).is_some()).collect();
    with_columns(batch.num_rows(), &known, &columns, inspected, look_up)
}
