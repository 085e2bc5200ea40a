//! Fields, and their representation in the caller's data.

use std::ffi::{c_char, c_void};

use flowlane::{Field, Values};

use crate::error::{CallError, CallResult, array, text, times};

/// Integers of 1 byte.
pub const FL_U8: u32 = 1;
/// Integers of 2 bytes in host byte order.
pub const FL_U16: u32 = 2;
/// Integers of 4 bytes in host byte order.
pub const FL_U32: u32 = 4;
/// Integers of 8 bytes in host byte order.
pub const FL_U64: u32 = 8;
/// Values of `bytes` bytes each, 1 to 16, in network byte order.
pub const FL_BYTES: u32 = 16;
/// One value for all packets, of `bytes` bytes in network byte order.
pub const FL_ONE: u32 = 17;

/// A column: the values of one field for all packets, contiguously.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_column {
    /// Field number; see fl_field().
    pub field: u32,
    /// FL_U8, FL_U16, FL_U32, FL_U64, FL_BYTES or FL_ONE.
    pub kind: u32,
    /// Values, with the alignment of their kind.
    pub values: *const c_void,
    /// Bytes per value, for FL_BYTES and FL_ONE.
    pub bytes: u32,
}

/// Position of a field in the caller's records.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_record_field {
    /// Field number; see fl_field().
    pub field: u32,
    /// FL_U8, FL_U16, FL_U32 or FL_U64, which may be unaligned, or FL_BYTES.
    pub kind: u32,
    /// Offset from the beginning of a record in bytes.
    pub offset: u32,
    /// Number of bytes, for FL_BYTES.
    pub bytes: u32,
}

/// Returns the number of a field, named as in rules ("nw_src", "tp_dst", "ipv6_dst", ..); -1 if there is no such field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_field(name: *const c_char) -> i32 {
    // SAFETY: the caller's.
    let Ok(name) = (unsafe { text(name, "name") }) else { return -1 };
    let Some(field) = Field::by_name(name) else { return -1 };
    Field::all().iter().position(|info| info.field == field).map_or(-1, |at| at as i32)
}

/// Returns the field of a number.
#[inline]
pub fn field(number: u32) -> CallResult<Field> {
    let info = Field::all().get(number as usize);
    info.map(|info| info.field)
        .ok_or_else(|| CallError::input(format!("there is no field number {number}: see fl_field")))
}

/// Borrows the values of a column with `rows` rows.
///
/// # Safety
/// The values are as the column states.
#[inline]
pub unsafe fn values<'a>(column: &fl_column, rows: usize) -> CallResult<Values<'a>> {
    let (at, bytes) = (column.values, column.bytes as usize);
    let name = "values of a column";
    // SAFETY: the caller's, of each.
    Ok(unsafe {
        match column.kind {
            FL_U8 => Values::U8(array(at.cast(), rows, name)?),
            FL_U16 => Values::U16(array(at.cast(), rows, name)?),
            FL_U32 => Values::U32(array(at.cast(), rows, name)?),
            FL_U64 => Values::U64(array(at.cast(), rows, name)?),
            FL_BYTES | FL_ONE if !(1..=16).contains(&bytes) => {
                return Err(CallError::input(format!(
                    "a column of {bytes} bytes per value; expected 1 to 16"
                )));
            }
            FL_BYTES => Values::Bytes(array(at.cast(), times(rows, bytes, "values")?, name)?, bytes),
            FL_ONE => {
                let value: &[u8] = array(at.cast(), bytes, name)?;
                Values::One(value.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
            }
            other => {
                return Err(CallError::input(format!(
                    "unknown column kind {other}; expected FL_U8 to FL_ONE"
                )));
            }
        }
    })
}
