//! Columns of Arrow, where they lie.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use flowlane::packet::columns::Values;
use flowlane::packet::{Field, FlowMask};
use pyo3::PyResult;

use crate::columns::{check_width, field};
use crate::error::error;

/// A column, and what keeps its values.
pub enum Column {
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
    each: usize,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> PyResult<ScalarBuffer<u8>> {
    let mut bytes = Vec::new();
    for (row, value) in values.enumerate() {
        match value {
            Some(value) if value.len() == each => bytes.extend(value),
            Some(value) => {
                let len = value.len();
                return Err(error(format!(
                    "column `{name}`, row {row}: {len} bytes, where the field has {each}"
                )));
            }
            None => bytes.resize(bytes.len() + each, 0),
        }
    }
    Ok(bytes.into())
}

impl Column {
    fn new(name: &str, field: Field, array: &ArrayRef) -> PyResult<Self> {
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
            other => {
                return Err(error(format!(
                    "column `{name}` is of Arrow type {other}; integers of 8 to 64 bits and binaries of as many \
                     bytes as the field has are taken: cast it first"
                )));
            }
        })
    }

    pub fn values(&self) -> Values<'_> {
        match self {
            Self::U8(values) => Values::U8(values),
            Self::U16(values) => Values::U16(values),
            Self::U32(values) => Values::U32(values),
            Self::U64(values) => Values::U64(values),
            Self::Bytes(bytes, each) => Values::Bytes(bytes, *each),
        }
    }
}

/// The fields that columns are named as; others are passed over.
///
/// # Errors
/// Where none is.
pub fn fields(batch: &RecordBatch) -> PyResult<Vec<Field>> {
    let schema = batch.schema();
    let fields: Vec<Field> = schema.fields().iter().filter_map(|f| field(f.name()).ok()).collect();
    if fields.is_empty() {
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        return Err(error(format!(
            "no column is named as a field ({}); columns are named as in rules, nw_src or tp_dst say",
            names.join(", ")
        )));
    }
    Ok(fields)
}

/// Whether an address is null, so that nobody knows what its packet is of.
pub fn null_address(batch: &RecordBatch) -> Option<String> {
    let addresses = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];
    let schema = batch.schema();
    let mut all = schema.fields().iter().zip(batch.columns());
    let found = all.find(|(described, array)| {
        array.null_count() > 0 && field(described.name()).is_ok_and(|field| addresses.contains(&field))
    });
    found.map(|(described, _)| described.name().clone())
}

/// The columns of fields at which rules look.
///
/// # Errors
/// Where one is of a type that is not taken.
pub fn columns(batch: &RecordBatch, looked_at: &FlowMask) -> PyResult<Vec<(Field, Column)>> {
    let schema = batch.schema();
    let all = schema.fields().iter().zip(batch.columns());
    let named =
        all.filter_map(|(described, array)| Some((described.name(), field(described.name()).ok()?, array)));
    let named = named.filter(|(_, field, _)| looked_at.get(*field) != 0);
    named.map(|(name, field, array)| Ok((field, Column::new(name, field, array)?))).collect()
}
