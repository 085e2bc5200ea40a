//! Python file objects.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// Exception raised by a file object's `read`, to tell it from damaged data.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Takes the exception, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An object with the method `read`.
pub struct File {
    object: Py<PyAny>,
    raised: Raised,
}

impl File {
    pub fn new(object: Py<PyAny>) -> (Self, Raised) {
        let raised = Raised::default();
        (Self { object, raised: raised.clone() }, raised)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let read = self.object.call_method1(py, "read", (buffer.len(),))?;
            let bytes: PyBackedBytes = read.extract(py).map_err(|_| {
                let what = "`read` did not return bytes; open the capture in binary mode, as with `open(path, \"rb\")`";
                pyo3::exceptions::PyTypeError::new_err(what)
            })?;
            let room = buffer.get_mut(..bytes.len());
            let room = room.ok_or_else(|| {
                pyo3::exceptions::PyValueError::new_err(
                    "`read` returned more bytes than requested",
                )
            })?;
            room.copy_from_slice(&bytes);
            Ok(bytes.len())
        })
        .map_err(|error: PyErr| {
            *self.raised.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            io::Error::other("its `read` failed")
        })
    }
}
