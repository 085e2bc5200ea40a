//! Routes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use flowlane::route::engine::{AnyFib, Family};
use flowlane::route::read::{RouteList, RouteOptions, read};
use flowlane::route::{Fib, FibConfig, HopSize, Prefix, Rib, Routes};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::{error, read_text};

/// What stands for no route.
const NONE: u64 = u32::MAX as u64;

/// Routes of IPv4 and IPv6, and the forwarding tables made of them.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct RouteTable(RwLock<Tables>);

struct Tables {
    v4: Routes<u32, AnyFib<u32>>,
    v6: Routes<u128, AnyFib<u128>>,
}

/// A family's routes, with room for as many again and a million.
fn routes<A: Family>(list: &[(Prefix<A>, u64)]) -> PyResult<Routes<A, AnyFib<A>>> {
    let mut rib = Rib::new(2 * list.len() + (1 << 20));
    for (prefix, next_hop) in list {
        rib.insert(*prefix, *next_hop).map_err(error)?;
    }
    let config = FibConfig::new(HopSize::B4).with_default_next_hop(NONE);
    Routes::with_rib(rib, &config).map_err(error)
}

/// An address with a length, of either family.
enum Either {
    V4(Prefix<u32>),
    V6(Prefix<u128>),
}

fn prefix(text: &str) -> PyResult<Either> {
    match text.contains(':') {
        true => text.parse().map(Either::V6).map_err(|e| error(format!("`{text}`: {e}"))),
        false => text.parse().map(Either::V4).map_err(|e| error(format!("`{text}`: {e}"))),
    }
}

fn replace<A: Family>(
    routes: &mut Routes<A, AnyFib<A>>,
    prefix: Prefix<A>,
    next_hop: u32,
) -> PyResult<Option<u64>> {
    if u64::from(next_hop) == NONE {
        return Err(error(format!("next hop {next_hop} stands for no route; take a smaller one")));
    }
    routes.replace(prefix, next_hop.into()).map_err(error)
}

impl RouteTable {
    fn build(list: RouteList) -> PyResult<Self> {
        if list.next_hop_max() >= NONE {
            return Err(error(format!("next hops are below {NONE}")));
        }
        let tables = Tables { v4: routes(&list.v4)?, v6: routes(&list.v6)? };
        Ok(Self(RwLock::new(tables)))
    }
}

#[pymethods]
impl RouteTable {
    /// The routes of a file: prefixes with next hops, a line each, or the output of `ip route`.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let name = path.display().to_string();
            let text = read_text(&path)?;
            Self::build(read(&text, &name, None, &RouteOptions::default()).map_err(error)?)
        })
    }

    /// The routes of a text.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| Self::build(read(text, "routes", None, &RouteOptions::default()).map_err(error)?))
    }

    /// The next hops of IPv4 addresses; 2³² − 1 where there is no route.
    fn lookup_v4<'py>(
        &self,
        py: Python<'py>,
        addresses: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let addresses = addresses.as_slice().map_err(error)?;
        let found = py.detach(|| {
            let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let (mut found, mut wide) = (vec![0u32; addresses.len()], [0u64; 256]);
            for (addresses, found) in addresses.chunks(256).zip(found.chunks_mut(256)) {
                tables.v4.fib().lookup_batch(addresses, &mut wide[..addresses.len()]);
                found.iter_mut().zip(wide).for_each(|(found, hop)| *found = hop as u32);
            }
            found
        });
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
        let found = py.detach(|| {
            let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let rows = bytes.as_chunks::<16>().0;
            let (mut found, mut wide) = (vec![0u32; rows.len()], [0u64; 256]);
            let mut own = [0u128; 256];
            for (rows, found) in rows.chunks(256).zip(found.chunks_mut(256)) {
                own.iter_mut().zip(rows).for_each(|(own, row)| *own = u128::from_be_bytes(*row));
                tables.v6.fib().lookup_batch(&own[..rows.len()], &mut wide[..rows.len()]);
                found.iter_mut().zip(wide).for_each(|(found, hop)| *found = hop as u32);
            }
            found
        });
        Ok(found.into_pyarray(py))
    }

    /// The route of an address: its prefix and next hop.
    fn route(&self, address: &str) -> PyResult<Option<(String, u64)>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let address: IpAddr = address.parse().map_err(|_| error(format!("`{address}` is no address")))?;
        Ok(match address {
            IpAddr::V4(address) => tables.v4.lookup(address.into()).map(|(p, hop)| (p.to_string(), hop)),
            IpAddr::V6(address) => tables.v6.lookup(address.into()).map(|(p, hop)| (p.to_string(), hop)),
        })
    }

    /// Adds a route, or replaces its next hop; the one that it had.
    fn insert(&self, py: Python<'_>, text: &str, next_hop: u32) -> PyResult<Option<u64>> {
        py.detach(|| {
            let tables = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
            match prefix(text)? {
                Either::V4(prefix) => replace(&mut tables.v4, prefix, next_hop),
                Either::V6(prefix) => replace(&mut tables.v6, prefix, next_hop),
            }
        })
    }

    /// Removes a route; says whether it was there.
    fn remove(&self, py: Python<'_>, text: &str) -> PyResult<bool> {
        py.detach(|| {
            let tables = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
            Ok(match prefix(text)? {
                Either::V4(prefix) => tables.v4.get(prefix).is_some() && tables.v4.delete(prefix).is_ok(),
                Either::V6(prefix) => tables.v6.get(prefix).is_some() && tables.v6.delete(prefix).is_ok(),
            })
        })
    }

    fn __len__(&self) -> usize {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.v4.len() + tables.v6.len()
    }
}
