//! What went wrong, as a number and in words.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flowlane::ErrorKind;

/// Done.
pub const FL_OK: i32 = 0;
/// What was given is not right: see fl_error().
pub const FL_INPUT: i32 = 1;
/// A file cannot be read.
pub const FL_FILE: i32 = 2;
/// A limit does not allow it: rules, memory.
pub const FL_LIMIT: i32 = 3;
/// A fault of the library: please report it.
pub const FL_BUG: i32 = 4;

/// Why a call did nothing.
pub struct Refused {
    code: i32,
    text: String,
}

impl Refused {
    pub fn input(text: impl Display) -> Self {
        Self { code: FL_INPUT, text: text.to_string() }
    }

    pub fn file(text: impl Display) -> Self {
        Self { code: FL_FILE, text: text.to_string() }
    }
}

impl From<flowlane::Error> for Refused {
    fn from(error: flowlane::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Limit => FL_LIMIT,
            _ => FL_INPUT,
        };
        Self { code, text: error.to_string() }
    }
}

pub type Done<T = ()> = Result<T, Refused>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function of the interface.
#[inline]
pub fn guarded(body: impl FnOnce() -> Done) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => FL_OK,
        Ok(Err(refused)) => said(refused),
        Err(_) => {
            said(Refused { code: FL_BUG, text: "the library has a fault; it has written where".to_owned() })
        }
    }
}

#[cold]
fn said(refused: Refused) -> i32 {
    let text = CString::new(refused.text.replace('\0', "?")).unwrap_or_default();
    LAST.with(|last| last.replace(text));
    refused.code
}

/// What was wrong with the latest call of this thread that failed, with file, line and column where it is a file's. It is there
/// until the next that fails.
#[unsafe(no_mangle)]
pub extern "C" fn fl_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// A text of the caller's.
///
/// # Safety
/// `text` is NULL or ends with a 0.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Done<&'a str> {
    if text.is_null() {
        return Err(Refused::input(format!("{what} is NULL")));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Refused::input(format!("{what} is not UTF-8: {e}")))
}

/// An array of the caller's.
///
/// # Safety
/// `array` is NULL, or has `len` elements that nobody changes during the call.
#[inline]
pub unsafe fn array<'a, T>(array: *const T, len: usize, what: &str) -> Done<&'a [T]> {
    match (array.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Refused::input(format!("{what} is NULL"))),
        _ if !array.is_aligned() => {
            Err(Refused::input(format!("{what} is not aligned to {}", align_of::<T>())))
        }
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts(array, len) }),
    }
}

/// An array that a call writes.
///
/// # Safety
/// `array` is NULL, or has `len` elements that nobody else uses during the call.
#[inline]
pub unsafe fn array_mut<'a, T>(array: *mut T, len: usize, what: &str) -> Done<&'a mut [T]> {
    match (array.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Refused::input(format!("{what} is NULL"))),
        _ if !array.is_aligned() => {
            Err(Refused::input(format!("{what} is not aligned to {}", align_of::<T>())))
        }
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(array, len) }),
    }
}

/// How many elements there are of `count` things that have `each`.
#[inline]
pub fn times(count: usize, each: usize, what: &str) -> Done<usize> {
    let len = count.checked_mul(each).filter(|len| *len <= isize::MAX as usize);
    len.ok_or_else(|| Refused::input(format!("{count} {what} of {each} are more than there is memory")))
}

/// What a handle leads to.
///
/// # Safety
/// `handle` is NULL or was made by this library and not freed.
#[inline]
pub unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Done<&'a T> {
    // SAFETY: the caller's.
    unsafe { handle.as_ref() }.ok_or_else(|| Refused::input(format!("{what} is NULL")))
}

/// The same, to be changed.
///
/// # Safety
/// As [`handle`], and nobody else uses it during the call.
#[inline]
pub unsafe fn handle_mut<'a, T>(handle: *mut T, what: &str) -> Done<&'a mut T> {
    // SAFETY: the caller's.
    unsafe { handle.as_mut() }.ok_or_else(|| Refused::input(format!("{what} is NULL")))
}

/// Hands something over to the caller.
///
/// # Safety
/// `out` is NULL or can be written.
pub unsafe fn give<T>(made: T, out: *mut *mut T) -> Done {
    if out.is_null() {
        return Err(Refused::input("where the handle is to go is NULL"));
    }
    // SAFETY: the caller's.
    unsafe { out.write(Box::into_raw(Box::new(made))) };
    Ok(())
}

/// Frees what [`give`] gave.
///
/// # Safety
/// `handle` is NULL or was given by [`give`], and is not used any more.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // A destructor that panics must not unwind, either.
        // SAFETY: the caller's.
        _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(handle) })));
    }
}
