//! Error codes and messages.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flowlane::ErrorKind;

/// Success.
pub const FL_OK: i32 = 0;
/// Invalid input; see fl_error().
pub const FL_INPUT: i32 = 1;
/// A file cannot be read.
pub const FL_FILE: i32 = 2;
/// A limit was exceeded: rules or memory.
pub const FL_LIMIT: i32 = 3;
/// A bug in the library; please report it.
pub const FL_BUG: i32 = 4;

/// Reason why a call had no effect.
pub struct CallError {
    code: i32,
    text: String,
}

impl CallError {
    pub fn input(text: impl Display) -> Self {
        Self { code: FL_INPUT, text: text.to_string() }
    }

    pub fn message(&self) -> &str {
        &self.text
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        let code = if error.kind() == std::io::ErrorKind::InvalidData { FL_INPUT } else { FL_FILE };
        Self { code, text: error.to_string() }
    }
}

impl From<flowlane_capture::TextError> for CallError {
    fn from(error: flowlane_capture::TextError) -> Self {
        std::io::Error::from(error).into()
    }
}

impl From<flowlane::Error> for CallError {
    fn from(error: flowlane::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Limit => FL_LIMIT,
            _ => FL_INPUT,
        };
        Self { code, text: error.to_string() }
    }
}

pub type CallResult<T = ()> = Result<T, CallError>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an interface function, converting errors and panics to codes.
#[inline]
pub fn guarded(body: impl FnOnce() -> CallResult) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => FL_OK,
        Ok(Err(error)) => record_error(error),
        Err(_) => record_error(CallError {
            code: FL_BUG,
            text: "internal error; see the message on standard error".to_owned(),
        }),
    }
}

#[cold]
fn record_error(error: CallError) -> i32 {
    let text = CString::new(error.text.replace('\0', "?")).unwrap_or_default();
    LAST.with(|last| last.replace(text));
    error.code
}

/// Returns the message of this thread's latest failed call, with file, line and column if it concerns a file. The text is
/// valid until the next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn fl_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Borrows the caller's text.
///
/// # Safety
/// `text` is NULL or ends with NUL.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> CallResult<&'a str> {
    if text.is_null() {
        return Err(CallError::input(format!("{name} is NULL")));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| CallError::input(format!("{name} is not UTF-8: {e}")))
}

/// Borrows the caller's array.
///
/// # Safety
/// `array` is NULL, or has `len` elements that do not change during the call.
#[inline]
pub unsafe fn array<'a, T>(array: *const T, len: usize, name: &str) -> CallResult<&'a [T]> {
    match (array.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::input(format!("{name} is NULL"))),
        _ if !array.is_aligned() => {
            Err(CallError::input(format!("{name} is not aligned to {}", align_of::<T>())))
        }
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts(array, len) }),
    }
}

/// Borrows the caller's array for writing.
///
/// # Safety
/// `array` is NULL, or has `len` elements that are not otherwise used during the call.
#[inline]
pub unsafe fn array_mut<'a, T>(array: *mut T, len: usize, name: &str) -> CallResult<&'a mut [T]> {
    match (array.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(CallError::input(format!("{name} is NULL"))),
        _ if !array.is_aligned() => {
            Err(CallError::input(format!("{name} is not aligned to {}", align_of::<T>())))
        }
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(array, len) }),
    }
}

/// Multiplies `count` by the elements of `each`, checking for overflow.
#[inline]
pub fn times(count: usize, each: usize, name: &str) -> CallResult<usize> {
    let len = count.checked_mul(each).filter(|len| *len <= isize::MAX as usize);
    len.ok_or_else(|| CallError::input(format!("{count} {name} of {each} exceed the address space")))
}

/// Borrows the object of a handle.
///
/// # Safety
/// `handle` is NULL, or was created by this library and not freed.
#[inline]
pub unsafe fn handle<'a, T>(handle: *const T, name: &str) -> CallResult<&'a T> {
    // SAFETY: the caller's.
    unsafe { handle.as_ref() }.ok_or_else(|| CallError::input(format!("{name} is NULL")))
}

/// Borrows the object of a handle for changes.
///
/// # Safety
/// As for [`handle`]; additionally, the object is not otherwise used during the call.
#[inline]
pub unsafe fn handle_mut<'a, T>(handle: *mut T, name: &str) -> CallResult<&'a mut T> {
    // SAFETY: the caller's.
    unsafe { handle.as_mut() }.ok_or_else(|| CallError::input(format!("{name} is NULL")))
}

/// Passes ownership of an object to the caller.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe fn give_handle<T>(built: T, out: *mut *mut T) -> CallResult {
    if out.is_null() {
        return Err(CallError::input("the output handle is NULL"));
    }
    // SAFETY: the caller's.
    unsafe { out.write(Box::into_raw(Box::new(built))) };
    Ok(())
}

/// Frees an object of [`give_handle`].
///
/// # Safety
/// `handle` is NULL or was returned by [`give_handle`], and is not used afterwards.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // A panicking destructor must not unwind either.
        // SAFETY: the caller's.
        _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(handle) })));
    }
}
