//! Fields, and how a caller has them.

use std::ffi::{c_char, c_void};

use flowlane::{Field, Values};

use crate::error::{Done, Refused, array, text, times};

/// Integers of one byte.
pub const FL_U8: u32 = 1;
/// Of two, in this machine's order.
pub const FL_U16: u32 = 2;
/// Of four.
pub const FL_U32: u32 = 4;
/// Of eight.
pub const FL_U64: u32 = 8;
/// `bytes` bytes each, 1 to 16, in network order.
pub const FL_BYTES: u32 = 16;
/// One value for all packets, of `bytes` bytes in network order.
pub const FL_ONE: u32 = 17;

/// A field of many packets, one behind the other.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_column {
    /// Which one: fl_field().
    pub field: u32,
    /// FL_U8, FL_U16, FL_U32, FL_U64, FL_BYTES or FL_ONE.
    pub kind: u32,
    /// The values, aligned as their kind is.
    pub values: *const c_void,
    /// Of FL_BYTES and FL_ONE: bytes of a value.
    pub bytes: u32,
}

/// Where a field is in the caller's records.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_record_field {
    /// Which one: fl_field().
    pub field: u32,
    /// FL_U8, FL_U16, FL_U32 or FL_U64, which need no alignment, or FL_BYTES.
    pub kind: u32,
    /// Bytes from the beginning of a record.
    pub offset: u32,
    /// Of FL_BYTES: how many.
    pub bytes: u32,
}

/// The number of a field, named as in rules ("nw_src", "tp_dst", "ipv6_dst", ..); -1 where there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_field(name: *const c_char) -> i32 {
    // SAFETY: the caller's.
    let Ok(name) = (unsafe { text(name, "name") }) else { return -1 };
    let Some(field) = Field::by_name(name) else { return -1 };
    Field::all().iter().position(|info| info.field == field).map_or(-1, |at| at as i32)
}

/// The field of this number.
#[inline]
pub fn field(number: u32) -> Done<Field> {
    let info = Field::all().get(number as usize);
    info.map(|info| info.field)
        .ok_or_else(|| Refused::input(format!("there is no field number {number}: see fl_field")))
}

/// The values of a column of `rows`.
///
/// # Safety
/// They are as the column says.
#[inline]
pub unsafe fn values<'a>(column: &fl_column, rows: usize) -> Done<Values<'a>> {
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
                return Err(Refused::input(format!(
                    "a column of {bytes} bytes a value; 1 to 16 are possible"
                )));
            }
            FL_BYTES => Values::Bytes(array(at.cast(), times(rows, bytes, "values")?, name)?, bytes),
            FL_ONE => {
                let value: &[u8] = array(at.cast(), bytes, name)?;
                Values::One(value.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
            }
            other => {
                return Err(Refused::input(format!(
                    "a column of kind {other}; see FL_U8 and those behind it"
                )));
            }
        }
    })
}
