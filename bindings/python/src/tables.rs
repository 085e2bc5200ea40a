//! Exact-match tables and Bloom filters.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::error;
use crate::shared::Shared;

/// Values, and whether each key is present.
type Found<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<bool>>);

/// An exact-match table from keys of up to 64 bytes to 32-bit values.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct CuckooMap {
    table: Shared<flowlane::CuckooMap>,
    key_bytes: usize,
}

impl CuckooMap {
    fn rows<'a>(&self, rows: &'a PyReadonlyArray2<'_, u8>) -> PyResult<&'a [u8]> {
        let each = rows.as_array().ncols();
        if each != self.key_bytes {
            return Err(error(format!("keys of {each} bytes; the map has keys of {}", self.key_bytes)));
        }
        rows.as_slice().map_err(error)
    }
}

#[pymethods]
impl CuckooMap {
    #[new]
    fn new(key_bytes: usize, capacity: usize) -> PyResult<Self> {
        let table = flowlane::CuckooMap::new(key_bytes, capacity).map_err(error)?;
        Ok(Self { table: Shared::new(table), key_bytes })
    }

    /// Inserts keys with values.
    fn insert(
        &self,
        py: Python<'_>,
        rows: PyReadonlyArray2<'_, u8>,
        values: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<()> {
        let (keys, values) = (self.rows(&rows)?, values.as_slice().map_err(error)?);
        let count = keys.len() / self.key_bytes;
        if count != values.len() {
            return Err(error(format!("{count} keys but {} values", values.len())));
        }
        let inserted = self.table.write(py, |table| {
            let values: Vec<u64> = values.iter().map(|value| u64::from(*value)).collect();
            table.insert_rows(keys, &values)
        });
        inserted.map_err(error)
    }

    /// Looks up the value and presence of each key.
    fn lookup<'py>(&self, py: Python<'py>, rows: PyReadonlyArray2<'py, u8>) -> PyResult<Found<'py>> {
        let keys = self.rows(&rows)?;
        let count = keys.len() / self.key_bytes;
        let (mut values, mut there) = (vec![0; count], vec![false; count]);
        self.table.read(py, |table| table.lookup_rows(keys, &mut values, &mut there));
        Ok((values.into_pyarray(py), there.into_pyarray(py)))
    }

    /// Removes keys; returns whether each was present.
    fn remove<'py>(
        &self,
        py: Python<'py>,
        rows: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let keys = self.rows(&rows)?;
        let mut there = vec![false; keys.len() / self.key_bytes];
        self.table.write(py, |table| table.remove_rows(keys, &mut there));
        Ok(there.into_pyarray(py))
    }

    /// Returns the size of the table in bytes, including its writer's data.
    #[getter]
    fn table_bytes(&self, py: Python<'_>) -> usize {
        self.table.read(py, |table| table.table_bytes())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.table.read(py, |table| table.len())
    }
}

/// A Bloom filter.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct BloomFilter(flowlane::BloomFilter);

/// Returns the rows' bytes and the bytes per row, at least 1.
fn rows<'a>(rows: &'a PyReadonlyArray2<'_, u8>) -> PyResult<(&'a [u8], usize)> {
    Ok((rows.as_slice().map_err(error)?, rows.as_array().ncols().max(1)))
}

#[pymethods]
impl BloomFilter {
    #[new]
    fn new(items: u64, rate: f64) -> PyResult<Self> {
        flowlane::BloomFilter::new(items, rate).map(Self).map_err(error)
    }

    fn insert_numbers(&self, py: Python<'_>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        let keys = keys.as_slice().map_err(error)?;
        py.detach(|| self.0.insert_u64(keys));
        Ok(())
    }

    fn insert_rows(&self, py: Python<'_>, keys: PyReadonlyArray2<'_, u8>) -> PyResult<()> {
        let (keys, each) = rows(&keys)?;
        py.detach(|| self.0.insert_rows(keys, each));
        Ok(())
    }

    fn contains_numbers<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let keys = keys.as_slice().map_err(error)?;
        let mut found = vec![false; keys.len()];
        py.detach(|| self.0.contains_u64(keys, &mut found));
        Ok(found.into_pyarray(py))
    }

    fn contains_rows<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let (keys, each) = rows(&keys)?;
        let mut found = vec![false; keys.len() / each];
        py.detach(|| self.0.contains_rows(keys, each, &mut found));
        Ok(found.into_pyarray(py))
    }

    /// Returns the size of the filter in bytes.
    #[getter]
    fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }
}
