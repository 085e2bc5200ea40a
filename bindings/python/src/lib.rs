//! Flowlane's tables for Python: `flowlane._flowlane`, which the package `flowlane` wraps.

mod capture;
mod classifier;
mod columns;
mod error;
mod file;
mod routes;
mod shared;
mod tables;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule]
mod _flowlane {
    #[pymodule_export]
    use super::capture::{capture_batches, capture_splits};
    #[pymodule_export]
    use super::classifier::Classifier;
    #[pymodule_export]
    use super::error::Error;
    #[pymodule_export]
    use super::routes::RouteTable;
    #[pymodule_export]
    use super::tables::{BloomFilter, CuckooMap};
    use super::*;
    #[pymodule_export]
    use pyo3_arrow::{PyArray, PyRecordBatchReader};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("FIELDS", flowlane::Field::all().iter().map(|info| info.name).collect::<Vec<_>>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Limits SIMD registers to 64 (none), 128, 256 or 512 bits, for tables created afterwards.
    #[pyfunction]
    fn set_max_simd(bits: u32) -> PyResult<()> {
        flowlane::set_max_simd(bits).map_err(|e| super::error::error(format!("max_simd: {e}")))
    }
}
