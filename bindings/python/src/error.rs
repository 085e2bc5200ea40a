//! Exceptions.

use std::fmt::Display;
use std::io;

use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError};

pyo3::create_exception!(
    flowlane,
    Error,
    pyo3::exceptions::PyValueError,
    "Invalid input, with its position and a suggested fix."
);

/// Creates an [`Error`].
pub fn error(what: impl Display) -> PyErr {
    Error::new_err(what.to_string())
}

/// Converts an error of reading a file: invalid data is an [`Error`], anything else an `OSError`.
pub fn file_error(e: io::Error) -> PyErr {
    match e.kind() {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(e.to_string()),
        io::ErrorKind::InvalidData => error(e),
        _ => PyOSError::new_err(e.to_string()),
    }
}
