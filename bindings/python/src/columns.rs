//! Columns of numpy: what the Python side has made contiguous, unsigned and of this machine's byte order.

use flowlane::packet::Field;
use flowlane::packet::columns::{FlowColumns, Values};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::error::error;

/// A column, and what keeps its values.
pub enum Column<'py> {
    U8(PyReadonlyArray1<'py, u8>),
    U16(PyReadonlyArray1<'py, u16>),
    U32(PyReadonlyArray1<'py, u32>),
    U64(PyReadonlyArray1<'py, u64>),
    /// A row of bytes for each packet.
    Bytes(PyReadonlyArray2<'py, u8>),
    One(u128),
}

/// The field of this name.
///
/// # Errors
/// Where there is none.
pub fn field(name: &str) -> PyResult<Field> {
    Field::by_name(name).ok_or_else(|| {
        let names = Field::all().iter().map(|info| info.name);
        let near = flowlane::names::nearest(name, names).map(|n| format!("; did you mean `{n}`?"));
        error(format!("there is no field `{name}`{}", near.unwrap_or_default()))
    })
}

impl<'py> Column<'py> {
    pub fn new(name: &str, values: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(one) = values.extract::<u128>() {
            return Ok(Self::One(one));
        }
        let column = values.extract().map(Self::U8).or_else(|_| values.extract().map(Self::U16));
        let column = column.or_else(|_: PyErr| values.extract().map(Self::U32));
        let column = column.or_else(|_: PyErr| values.extract().map(Self::U64));
        let column = column.or_else(|_: PyErr| values.extract().map(Self::Bytes));
        column.map_err(|_: PyErr| {
            let kind = values.get_type().name().map(|n| n.to_string()).unwrap_or_default();
            error(format!(
                "column `{name}` is a {kind}; arrays of unsigned numbers, or of rows of bytes, are taken"
            ))
        })
    }

    pub fn values(&self, name: &str) -> PyResult<Values<'_>> {
        fn slice<'a, T: Element>(array: &'a PyReadonlyArray1<'_, T>, name: &str) -> PyResult<&'a [T]> {
            array.as_slice().map_err(|e| error(format!("column `{name}`: {e}")))
        }
        Ok(match self {
            Self::U8(array) => Values::U8(slice(array, name)?),
            Self::U16(array) => Values::U16(slice(array, name)?),
            Self::U32(array) => Values::U32(slice(array, name)?),
            Self::U64(array) => Values::U64(slice(array, name)?),
            Self::Bytes(array) => {
                let each = array.as_array().ncols();
                Values::Bytes(array.as_slice().map_err(|e| error(format!("column `{name}`: {e}")))?, each)
            }
            Self::One(value) => Values::One(*value),
        })
    }
}

/// What packets are of which these fields are known: none where a column says it, or nothing does.
///
/// # Errors
/// Where there are addresses of both kinds.
pub fn kind(fields: &[Field]) -> PyResult<Option<u128>> {
    let has = |any: [Field; 2]| any.iter().any(|field| fields.contains(field));
    let (v4, v6) = (has([Field::Ipv4Src, Field::Ipv4Dst]), has([Field::Ipv6Src, Field::Ipv6Dst]));
    match (v4, v6) {
        _ if fields.contains(&Field::EthType) => Ok(None),
        (true, true) => {
            let what = "there are addresses of IPv4 and of IPv6, and no column `dl_type` says which packets are of which";
            Err(error(format!("{what}: 0x0800 and 0x86dd")))
        }
        (true, false) => Ok(Some(0x0800)),
        (false, true) => Ok(Some(0x86dd)),
        (false, false) => Ok(None),
    }
}

/// Whether these fields say what rules ask of them.
///
/// # Errors
/// Where there are VLANs, and nothing says whether packets have tags.
pub fn check(fields: &[Field]) -> PyResult<()> {
    let has = |field: Field| fields.contains(&field);
    match (has(Field::VlanVid) || has(Field::VlanPcp)) && !has(Field::VlanTci) {
        true => Err(error(
            "column `dl_vlan` does not say which packets have a tag; give `vlan_tci` (0x1000, the VLAN and the priority \
             shifted by 13; 0: no tag), as `read_capture` does",
        )),
        false => Ok(()),
    }
}

/// Of fields that have a place for so many bytes: whether values of bytes are as long.
///
/// # Errors
/// Where they are not.
pub fn check_width(name: &str, field: Field, each: usize) -> PyResult<()> {
    match usize::from(field.info().width).div_ceil(8) {
        own if own == each => Ok(()),
        own => Err(error(format!("column `{name}` has {each} bytes a packet, where the field has {own}"))),
    }
}

/// So many packets, of this kind, with these columns.
///
/// # Errors
/// Where a column does not suit its field or the others.
pub fn packets<'a>(
    len: usize,
    kind: Option<u128>,
    columns: impl Iterator<Item = (Field, Values<'a>)>,
) -> PyResult<FlowColumns<'a>> {
    let mut packets = FlowColumns::new(len);
    for (field, values) in kind.map(|kind| (Field::EthType, Values::One(kind))).into_iter().chain(columns) {
        packets.add(field, values).map_err(error)?;
    }
    Ok(packets)
}
