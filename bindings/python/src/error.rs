//! What Python is told.

use std::fmt::Display;
use std::path::Path;

use pyo3::PyErr;

pyo3::create_exception!(
    flowlane,
    Error,
    pyo3::exceptions::PyValueError,
    "What was wrong with what was given: what, where, and how to mend it."
);

/// An [`Error`].
pub fn error(what: impl Display) -> PyErr {
    Error::new_err(what.to_string())
}

/// A file's text, unpacked where it is packed by gzip or zstd.
pub fn read_text(path: &Path) -> Result<String, PyErr> {
    flowlane_capture::read_text(path).map_err(|e| {
        let text = format!("{}: {e}", path.display());
        match e.kind() {
            std::io::ErrorKind::NotFound => pyo3::exceptions::PyFileNotFoundError::new_err(text),
            std::io::ErrorKind::InvalidData => error(text),
            _ => pyo3::exceptions::PyOSError::new_err(text),
        }
    })
}
