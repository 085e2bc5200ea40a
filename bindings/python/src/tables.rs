//! Exact match and membership: cuckoo tables and Bloom filters.

use std::sync::{PoisonError, RwLock};

use flowlane::bloom::BlockedBloomFilter;
use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::error;

/// Keys that are made at a time.
const CHUNK: usize = 256;

/// Values, and whether there are any.
type Found<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<bool>>);

/// A table of keys of some width, as rows of bytes.
trait Table: Send + Sync {
    /// Gives keys these values, as far as there is room; says how many that were.
    fn insert(&mut self, rows: &[u8], each: usize, values: &[u32]) -> usize;
    /// Values of keys, and whether they are there.
    fn lookup(&self, rows: &[u8], each: usize, values: &mut [u32], there: &mut [bool]);
    fn remove(&mut self, rows: &[u8], each: usize, there: &mut [bool]);
    fn len(&self) -> usize;
    fn bytes(&self) -> usize;
}

/// Rows as keys; what a key has beyond is 0.
fn keys<const W: usize>(rows: &[u8], each: usize, out: &mut [[u32; W]]) {
    for (key, row) in out.iter_mut().zip(rows.chunks_exact(each)) {
        *key = [0; W];
        for (word, bytes) in key.iter_mut().zip(row.chunks(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
    }
}

impl<const W: usize> Table for CuckooWriter<W> {
    fn insert(&mut self, rows: &[u8], each: usize, values: &[u32]) -> usize {
        let (mut own, mut done) = ([[0; W]; CHUNK], 0);
        for (rows, values) in rows.chunks(CHUNK * each).zip(values.chunks(CHUNK)) {
            keys(rows, each, &mut own);
            let inserted = self.insert_batch(&own[..values.len()], values);
            done += inserted;
            if inserted < values.len() {
                break;
            }
        }
        done
    }

    fn lookup(&self, rows: &[u8], each: usize, values: &mut [u32], there: &mut [bool]) {
        let (mut own, mut hits) = ([[0; W]; CHUNK], [0; CHUNK / 64]);
        let chunks = rows.chunks(CHUNK * each).zip(values.chunks_mut(CHUNK)).zip(there.chunks_mut(CHUNK));
        for ((rows, values), there) in chunks {
            keys(rows, each, &mut own);
            self.lookup_many(&own[..values.len()], values, &mut hits);
            there.iter_mut().enumerate().for_each(|(i, there)| *there = hits[i / 64] >> (i % 64) & 1 == 1);
        }
    }

    fn remove(&mut self, rows: &[u8], each: usize, there: &mut [bool]) {
        let mut own = [[0; W]; 1];
        for (row, there) in rows.chunks(each).zip(there) {
            keys(row, each, &mut own);
            *there = CuckooWriter::remove(self, &own[0]).is_some();
        }
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn bytes(&self) -> usize {
        self.table_bytes() + self.writer_bytes()
    }
}

/// Values of 32 bits by keys of up to 64 bytes.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct CuckooMap {
    table: RwLock<Box<dyn Table>>,
    key_bytes: usize,
    capacity: usize,
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
        if capacity == 0 || capacity > 1 << 30 {
            return Err(error(format!("a capacity of {capacity}; 1 to 2^30 are possible")));
        }
        let config = CuckooConfig::new(capacity, rand::random()).growing_from(capacity.min(1 << 12));
        // Each width is compiled for every body: only some.
        let table: Box<dyn Table> = match key_bytes {
            1..=4 => Box::new(CuckooWriter::<1>::new(&config)),
            5..=8 => Box::new(CuckooWriter::<2>::new(&config)),
            9..=16 => Box::new(CuckooWriter::<4>::new(&config)),
            17..=40 => Box::new(CuckooWriter::<10>::new(&config)),
            41..=64 => Box::new(CuckooWriter::<16>::new(&config)),
            other => return Err(error(format!("keys of {other} bytes; 1 to 64 are possible"))),
        };
        Ok(Self { table: RwLock::new(table), key_bytes, capacity })
    }

    /// Gives keys these values.
    fn insert(
        &self,
        py: Python<'_>,
        rows: PyReadonlyArray2<'_, u8>,
        values: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<()> {
        let (keys, values) = (self.rows(&rows)?, values.as_slice().map_err(error)?);
        let count = keys.len() / self.key_bytes;
        if count != values.len() {
            return Err(error(format!("{count} keys and {} values; give as many of each", values.len())));
        }
        let done = py.detach(|| {
            self.table.write().unwrap_or_else(PoisonError::into_inner).insert(keys, self.key_bytes, values)
        });
        match done == count {
            true => Ok(()),
            false => Err(error(format!(
                "the map is full: {done} of {count} keys were inserted, those from row {done} on were not; it was made for {}",
                self.capacity
            ))),
        }
    }

    /// Values of keys, and whether they are there.
    fn lookup<'py>(&self, py: Python<'py>, rows: PyReadonlyArray2<'py, u8>) -> PyResult<Found<'py>> {
        let keys = self.rows(&rows)?;
        let count = keys.len() / self.key_bytes;
        let (mut values, mut there) = (vec![0; count], vec![false; count]);
        py.detach(|| {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.lookup(keys, self.key_bytes, &mut values, &mut there);
        });
        Ok((values.into_pyarray(py), there.into_pyarray(py)))
    }

    /// Removes keys; whether they were there.
    fn remove<'py>(
        &self,
        py: Python<'py>,
        rows: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let keys = self.rows(&rows)?;
        let mut there = vec![false; keys.len() / self.key_bytes];
        py.detach(|| {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            table.remove(keys, self.key_bytes, &mut there);
        });
        Ok(there.into_pyarray(py))
    }

    /// Bytes of the table, and of what its writer keeps.
    #[getter]
    fn table_bytes(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    fn __len__(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A set of keys that may be asked for, with false hits at a rate.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct BloomFilter(BlockedBloomFilter);

#[pymethods]
impl BloomFilter {
    #[new]
    fn new(items: u64, rate: f64) -> PyResult<Self> {
        let filter = BlockedBloomFilter::for_items(items, rate).map_err(error)?;
        Ok(Self(filter.with_seed(rand::random())))
    }

    fn insert_numbers(&self, py: Python<'_>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        let keys = keys.as_slice().map_err(error)?;
        py.detach(|| keys.iter().for_each(|key| self.0.insert_u64(*key)));
        Ok(())
    }

    fn insert_rows(&self, py: Python<'_>, rows: PyReadonlyArray2<'_, u8>) -> PyResult<()> {
        let (each, rows) = (rows.as_array().ncols(), rows.as_slice().map_err(error)?);
        py.detach(|| rows.chunks_exact(each.max(1)).for_each(|key| self.0.insert_bytes(key)));
        Ok(())
    }

    fn contains_numbers<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let keys = keys.as_slice().map_err(error)?;
        let found = py.detach(|| {
            let (mut found, mut hits) = (vec![false; keys.len()], [0; CHUNK / 64]);
            for (keys, found) in keys.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
                self.0.contains_batch_u64(keys, &mut hits);
                found
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, found)| *found = hits[i / 64] >> (i % 64) & 1 == 1);
            }
            found
        });
        Ok(found.into_pyarray(py))
    }

    fn contains_rows<'py>(
        &self,
        py: Python<'py>,
        rows: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let (each, rows) = (rows.as_array().ncols().max(1), rows.as_slice().map_err(error)?);
        let found = py.detach(|| {
            let (mut found, mut hits) = (vec![false; rows.len() / each], [0; CHUNK / 64]);
            let mut keys = [&[][..]; CHUNK];
            for (rows, found) in rows.chunks(CHUNK * each).zip(found.chunks_mut(CHUNK)) {
                keys.iter_mut().zip(rows.chunks(each)).for_each(|(key, row)| *key = row);
                self.0.contains_batch_bytes(&keys[..found.len()], &mut hits);
                found
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, found)| *found = hits[i / 64] >> (i % 64) & 1 == 1);
            }
            found
        });
        Ok(found.into_pyarray(py))
    }

    /// Bytes of the filter.
    #[getter]
    fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }
}
