//! Columns of Arrow as packets, where they lie.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use flowlane::packet::columns::{FlowColumns, Values};
use flowlane::packet::{Field, FlowMask};

use crate::ArrowError;
use crate::column::field;

/// A column, and what keeps its values.
enum Held {
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    /// So many bytes each.
    Bytes(ScalarBuffer<u8>, usize),
}

/// The numbers of an array as if unsigned. What is null is 0, as what a packet does not have is.
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

/// Values that may be of any length, and are of as many bytes as the field has.
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

impl Held {
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

/// The fields that columns of these names are; other columns are passed over.
///
/// # Errors
/// Where none is one.
pub fn fields<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<Vec<Field>, ArrowError> {
    let fields: Vec<Field> = names.clone().filter_map(Field::by_name).collect();
    match fields.is_empty() {
        true => Err(ArrowError::NoFields { names: names.collect::<Vec<_>>().join(", ") }),
        false => Ok(fields),
    }
}

/// The EtherType of packets of which these fields are known: none where a column says it, or nothing does.
///
/// # Errors
/// Where there are addresses of both families.
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

/// Addresses of IPv4 and of ARP, which lie in the same places of a key.
pub const SHARED: [(Field, Field); 2] = [(Field::Ipv4Src, Field::ArpSpa), (Field::Ipv4Dst, Field::ArpTpa)];

/// Of the fields at which rules look those of which `known` say nothing. What no packet has beside another field says nothing of
/// it: where there is an address of IPv4, that of ARP is null, though they share a place.
pub fn missing(fields: &[Field], looked_at: &FlowMask, known: &[Field]) -> Vec<Field> {
    let mut bits = FlowMask::zero();
    known.iter().for_each(|field| bits.add_field(*field));
    if ether_type(known).is_ok_and(|kind| kind.is_some()) {
        bits.add_field(Field::EthType);
    }
    let shares = |field: &Field| SHARED.iter().any(|(ip, arp)| field == ip || field == arp);
    let mut missing = Vec::new();
    for field in fields.iter().filter(|field| !known.contains(field)) {
        // Others may have the same bits.
        if looked_at.get(*field) & !bits.get(*field) != 0 || shares(field) {
            missing.push(*field);
            bits.add_field(*field);
        }
    }
    missing
}

/// Whether these fields say what rules ask of tags.
///
/// # Errors
/// Where there are VLANs, and nothing says whether packets have tags.
pub fn check_tags(fields: &[Field]) -> Result<(), ArrowError> {
    let has = |field: Field| fields.contains(&field);
    match (has(Field::VlanVid) || has(Field::VlanPcp)) && !has(Field::VlanTci) {
        true => Err(ArrowError::Tags),
        false => Ok(()),
    }
}

/// Of fields that have a place for so many bytes: whether values of bytes are as long.
///
/// # Errors
/// Where they are not.
pub fn check_width(name: &str, field: Field, each: usize) -> Result<(), ArrowError> {
    match usize::from(field.info().width).div_ceil(8) {
        own if own == each => Ok(()),
        wanted => Err(ArrowError::Width { name: name.to_owned(), row: None, found: each, wanted }),
    }
}

/// So many packets, of this EtherType, with these columns.
///
/// # Errors
/// Where a column does not suit its field or the others.
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

/// Calls `look_up` with the packets of these columns, each of which is called as the field that it is; of those fields at
/// which rules look. `known` are the fields that are known of packets, of which these columns are some.
///
/// # Errors
/// Where a column is of a type that is not taken, or does not suit its field.
pub fn with_columns<T>(
    len: usize,
    known: &[Field],
    columns: &[(&str, &ArrayRef)],
    looked_at: &FlowMask,
    look_up: impl FnOnce(&FlowColumns<'_>) -> T,
) -> Result<T, ArrowError> {
    check_tags(known)?;
    let kind = ether_type(known)?;
    let addresses = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];
    let mut held = Vec::with_capacity(columns.len());
    for (name, array) in columns {
        let field = field(name)?;
        if kind.is_some() && addresses.contains(&field) && array.null_count() > 0 {
            return Err(ArrowError::NullAddress { name: (*name).to_owned() });
        }
        if looked_at.get(field) != 0 {
            held.push((field, Held::new(name, field, array)?));
        }
    }
    let values = held.iter().map(|(field, held)| (*field, held.values()));
    Ok(look_up(&packets(len, kind, values)?))
}

/// Calls `look_up` with the packets of a record batch; columns that are not called as a field are passed over.
///
/// # Errors
/// Where no column is called as a field, or one is of a type that is not taken, or they do not say what packets are.
pub fn packets_of<T>(
    batch: &RecordBatch,
    looked_at: &FlowMask,
    look_up: impl FnOnce(&FlowColumns<'_>) -> T,
) -> Result<T, ArrowError> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|described| described.name().as_str());
    let known = fields(names.clone())?;
    let columns: Vec<(&str, &ArrayRef)> =
        names.zip(batch.columns()).filter(|(name, _)| Field::by_name(name).is_some()).collect();
    with_columns(batch.num_rows(), &known, &columns, looked_at, look_up)
}
