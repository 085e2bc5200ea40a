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
    use std::io::Read;
    /// Enough for ten million rules.
    const MOST: u64 = 2 << 30;
    let named = |e: std::io::Error| {
        let text = format!("{}: {e}", path.display());
        match e.kind() {
            std::io::ErrorKind::NotFound => pyo3::exceptions::PyFileNotFoundError::new_err(text),
            _ => pyo3::exceptions::PyOSError::new_err(text),
        }
    };
    let file = std::fs::File::open(path).map_err(named)?;
    let mut bytes = Vec::new();
    flowlane_capture::unpack(file)
        .and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
        .map_err(named)?;
    if bytes.len() as u64 > MOST {
        return Err(error(format!("{} has more than {MOST} bytes", path.display())));
    }
    String::from_utf8(bytes).map_err(|e| {
        error(format!("{} is no text: byte {} is not UTF-8", path.display(), e.utf8_error().valid_up_to()))
    })
}
