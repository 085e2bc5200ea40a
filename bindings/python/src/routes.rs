//! Routes.

use std::net::IpAddr;
use std::path::PathBuf;

use flowlane::{RouteConfig, RouteList, read_routes};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::{error, read_text};
use crate::shared::Shared;

/// Routes of IPv4 and IPv6, the forwarding tables made of them, and what was read.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct RouteTable(Shared<flowlane::RouteTable>, RouteList);

impl RouteTable {
    fn build(text: &str, name: &str) -> PyResult<Self> {
        let routes = read_routes(text, name).map_err(error)?;
        let table = RouteConfig::new().build(routes.iter()).map_err(error)?;
        Ok(Self(Shared::new(table), routes))
    }
}

#[pymethods]
impl RouteTable {
    /// The routes of a file: prefixes with next hops, a line each, or the output of `ip route`.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Self::build(&read_text(&path)?, &path.display().to_string()))
    }

    /// The routes of a text.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| Self::build(text, "routes"))
    }

    /// The next hops of IPv4 addresses; 2³² − 1 where there is no route.
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

    /// The next hops of IPv6 addresses, 16 bytes each; 2³² − 1 where there is no route.
    fn lookup_v6<'py>(
        &self,
        py: Python<'py>,
        addresses: PyReadonlyArray2<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let bytes = addresses.as_slice().map_err(error)?;
        if addresses.as_array().ncols() != 16 {
            return Err(error("addresses of IPv6 have 16 bytes each"));
        }
        let rows = bytes.as_chunks().0;
        let mut found = vec![0; rows.len()];
        self.0.read(py, |table| table.lookup_v6(rows, &mut found));
        Ok(found.into_pyarray(py))
    }

    /// The route of an address: its prefix and next hop.
    fn route(&self, py: Python<'_>, address: &str) -> PyResult<Option<(String, u32)>> {
        let address: IpAddr = address.parse().map_err(|_| error(format!("`{address}` is no address")))?;
        let route = |table: &flowlane::RouteTable| table.lookup(address);
        Ok(self.0.read(py, route).map(|(prefix, hop)| (prefix.to_string(), hop)))
    }

    /// What the routes that were read call a next hop; none where it is a number.
    fn next_hop(&self, number: u32) -> Option<String> {
        self.1.next_hop(number)
    }

    /// Adds a route, or replaces its next hop; the one that it had.
    fn insert(&self, py: Python<'_>, prefix: &str, next_hop: u32) -> PyResult<Option<u32>> {
        let prefix = prefix.parse().map_err(error)?;
        self.0.write(py, |table| table.insert(prefix, next_hop)).map_err(error)
    }

    /// Removes a route; says whether it was there.
    fn remove(&self, py: Python<'_>, prefix: &str) -> PyResult<bool> {
        let prefix = prefix.parse().map_err(error)?;
        Ok(self.0.write(py, |table| table.remove(prefix)).map_err(error)?.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.0.read(py, |table| table.len())
    }
}
