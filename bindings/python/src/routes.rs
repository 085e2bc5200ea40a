//! IPv4 and IPv6 routes.

use std::net::IpAddr;
use std::path::PathBuf;

use flowlane::{RouteList, RouteTableBuilder, read_routes};
use flowlane_capture::read_text;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::{error, file_error};
use crate::shared::Shared;

/// A routing table, with the routes as read.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct RouteTable(Shared<flowlane::RouteTable>, RouteList);

impl RouteTable {
    fn build(text: &str, name: &str) -> PyResult<Self> {
        let routes = read_routes(text, name).map_err(error)?;
        let table = RouteTableBuilder::new().build(routes.iter()).map_err(error)?;
        Ok(Self(Shared::new(table), routes))
    }
}

#[pymethods]
impl RouteTable {
    /// Reads the routes of a file: a prefix and next hop per line, or the output of `ip route`.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            Self::build(&read_text(&path).map_err(|e| file_error(e.into()))?, &path.display().to_string())
        })
    }

    /// Parses the routes of a text.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| Self::build(text, "routes"))
    }

    /// Looks up the next hops of IPv4 addresses; 2³² − 1 without a route.
    fn lookup_v4<'py>(
        &self,
        py: Python<'py>,
        addresses: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let addresses = addresses.as_slice().map_err(error)?;
        let mut found = vec![0; addresses.len()];
        self.0.read(py, |table| table.lookup_v4(addresses, &mut found));
        Ok(found.into_pyarray(py))
    }

    /// Looks up the next hops of IPv6 addresses, 16 bytes each; 2³² − 1 without a route.
    fn lookup_v6<'py>(
        &self,
        py: Python<'py>,
        addresses: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let bytes = addresses.as_slice().map_err(error)?;
        if addresses.as_array().ncols() != 16 {
            return Err(error("IPv6 addresses must have 16 bytes"));
        }
        let rows = bytes.as_chunks().0;
        let mut found = vec![0; rows.len()];
        self.0.read(py, |table| table.lookup_v6(rows, &mut found));
        Ok(found.into_pyarray(py))
    }

    /// Returns the route of an address: prefix and next hop.
    fn route(&self, py: Python<'_>, address: &str) -> PyResult<Option<(String, u32)>> {
        let address: IpAddr = address.parse().map_err(|_| error(format!("`{address}` is not an address")))?;
        let route = |table: &flowlane::RouteTable| table.lookup(address);
        Ok(self.0.read(py, route).map(|(prefix, hop)| (prefix.to_string(), hop)))
    }

    /// Returns the name of a next hop in the file; `None` for numbers.
    fn next_hop(&self, number: u32) -> Option<String> {
        self.1.next_hop(number)
    }

    /// Adds a route or replaces its next hop; returns the previous next hop.
    fn insert(&self, py: Python<'_>, prefix: &str, next_hop: u32) -> PyResult<Option<u32>> {
        let prefix = prefix.parse().map_err(error)?;
        self.0.write(py, |table| table.insert(prefix, next_hop)).map_err(error)
    }

    /// Removes a route; returns whether it existed.
    fn remove(&self, py: Python<'_>, prefix: &str) -> PyResult<bool> {
        let prefix = prefix.parse().map_err(error)?;
        Ok(self.0.write(py, |table| table.remove(prefix)).map_err(error)?.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.0.read(py, |table| table.len())
    }
}
