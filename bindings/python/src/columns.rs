//! Numpy columns, which the Python side has made contiguous, unsigned and native-endian.

use flowlane::{Field, Values};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::error::error;

/// A column with the array that owns its values.
pub enum Column<'py> {
    U8(PyReadonlyArray1<'py, u8>),
    U16(PyReadonlyArray1<'py, u16>),
    U32(PyReadonlyArray1<'py, u32>),
    U64(PyReadonlyArray1<'py, u64>),
    /// One row of bytes per packet.
    Bytes(PyReadonlyArray2<'py, u8>),
    One(u128),
}

/// Returns the field of this name.
///
/// # Errors
/// If there is none.
pub fn field(name: &str) -> PyResult<Field> {
    flowlane_arrow::field(name).map_err(error)
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
            error(format!("column `{name}` is a {kind}; expected an array of integers or of rows of bytes"))
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
