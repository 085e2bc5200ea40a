//! Routes of both families, in one table.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::Error;
use super::snapshot::NONE;
use crate::route::engine::{AnyFib, AnyReader, Family};
use crate::route::read::{AnyPrefix, NextHops, RouteOptions, read};
use crate::route::{BuildError, Rib};
use crate::route::{Fib, FibConfig, FibReader, HopSize, Prefix, PrefixError, RouteError, Routes};

/// Addresses of a batch.
const CHUNK: usize = 256;

/// An address and a length: all addresses with these first bits.
///
/// ```
/// use flowlane::IpPrefix;
///
/// let prefix: IpPrefix = "192.0.2.0/24".parse()?;
/// assert_eq!((prefix.len(), prefix.address()), (24, "192.0.2.0".parse().unwrap()));
/// assert_eq!(prefix, IpPrefix::new("192.0.2.7".parse().unwrap(), 24)?);
/// assert!("192.0.2.0/33".parse::<IpPrefix>().is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpPrefix(AnyPrefix);

impl IpPrefix {
    /// Returns the prefix of this length that contains an address.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): a length above 32 of IPv4, or above 128 of IPv6.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, Error> {
        let most = AnyPrefix::bits(address);
        match len <= most {
            true => Ok(Self(AnyPrefix::truncated(address, len))),
            false => {
                Err(Error::input(format!("{address}/{len}: the length of a prefix is 0 to {most} here")))
            }
        }
    }

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        match self.0 {
            AnyPrefix::V4(prefix) => IpAddr::V4(prefix.first().into()),
            AnyPrefix::V6(prefix) => IpAddr::V6(prefix.first().into()),
        }
    }

    /// Returns the length in bits: 0 to 32, or to 128.
    #[expect(clippy::len_without_is_empty, reason = "a prefix is never empty")]
    pub fn len(self) -> u8 {
        match self.0 {
            AnyPrefix::V4(prefix) => prefix.len(),
            AnyPrefix::V6(prefix) => prefix.len(),
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for IpPrefix {
    type Err = Error;

    /// Reads `10.0.0.0/8` or `2001:db8::/32`; an address without a length is the prefix of itself. Bits behind the length are an error.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |refused: PrefixError| Error::input(format!("`{text}`: {refused}"));
        text.parse().map(Self).map_err(wrong)
    }
}

/// Routes as they were read: each prefix once, with the number of its next hop.
#[derive(Clone, Default, Debug)]
pub struct RouteList {
    routes: Vec<(IpPrefix, u32)>,
    names: NextHops,
}

impl RouteList {
    /// Returns the routes, those of IPv4 first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (IpPrefix, u32)> {
        self.routes.iter().copied()
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns the text of a numbered next hop, where the input had no numbers: `192.0.2.1 dev eth0`, `blackhole`.
    pub fn next_hop(&self, number: u32) -> Option<String> {
        self.names.get(number.into()).map(ToString::to_string)
    }
}

/// Reads routes: a line each with a prefix and its next hop, or what `ip route show` prints (with `-6`, `-j`, `-d` or `-o`, too),
/// `show ip route` of FRRouting and Cisco IOS, or `bgpdump -m`; all lines decide. Errors show `name` as the name of the text.
///
/// Next hops that are numbers keep them; others (addresses, devices, `blackhole`) are numbered from 1 in the order of their first
/// occurrence ([`RouteList::next_hop`]). Prefixes without next hops get the numbers 1 to 255 in turn. Up to ten million routes are read.
///
/// ```
/// use flowlane::read_routes;
///
/// let routes = read_routes("default via 192.0.2.1 dev eth0\n10.0.0.0/8 dev eth1", "routes")?;
/// let (prefix, next_hop) = routes.iter().next().unwrap();
/// assert_eq!((prefix.to_string(), next_hop), ("0.0.0.0/0".to_owned(), 1));
/// assert_eq!(routes.next_hop(1).unwrap(), "192.0.2.1 dev eth0");
/// # Ok::<(), flowlane::Error>(())
/// ```
///
/// # Errors
/// [`Input`](super::ErrorKind::Input): all invalid lines (the first 20 in full), each with name, line and column; or a next
/// hop that is not below [`NONE`].
pub fn read_routes(text: &str, name: &str) -> Result<RouteList, Error> {
    let read = read(text, name, None, &RouteOptions::default()).map_err(Error::input)?;
    let v4 = read.v4.iter().map(|(prefix, next_hop)| (AnyPrefix::from(*prefix), *next_hop));
    let v6 = read.v6.iter().map(|(prefix, next_hop)| (AnyPrefix::from(*prefix), *next_hop));
    let own = v4.chain(v6).map(|(prefix, next_hop)| match u32::try_from(next_hop) {
        Ok(number) if number != NONE => Ok((IpPrefix(prefix), number)),
        _ => Err(Error::input(format!("{prefix}: next hop {next_hop}; they are below {NONE}"))),
    });
    Ok(RouteList { routes: own.collect::<Result<_, _>>()?, names: read.next_hops })
}

/// Builds a [`RouteTable`] with these settings.
///
/// ```
/// use flowlane::{RouteTableBuilder, read_routes};
///
/// let routes = read_routes("10.0.0.0/8 1\n2001:db8::/32 2", "routes")?;
/// let table = RouteTableBuilder::new().routes_max(1000).memory_max(64 << 20).build(routes.iter())?;
/// assert_eq!(table.len(), 2);
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RouteTableBuilder {
    routes_max: Option<usize>,
    memory_max: usize,
}

impl Default for RouteTableBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteTableBuilder {
    /// Creates the default settings: per family room for twice the given routes and a million more, in up to 1 GiB.
    pub fn new() -> Self {
        Self { routes_max: None, memory_max: 1 << 30 }
    }

    /// Sets the most routes of each family.
    #[must_use]
    pub fn routes_max(self, routes: usize) -> Self {
        Self { routes_max: Some(routes), ..self }
    }

    /// Sets the most bytes of each family's lookup table.
    #[must_use]
    pub fn memory_max(self, bytes: usize) -> Self {
        Self { memory_max: bytes, ..self }
    }

    /// Builds a table of these routes; of routes with the same prefix the last counts.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): of routes or memory. [`Input`](super::ErrorKind::Input): a next hop is [`NONE`].
    pub fn build(self, routes: impl IntoIterator<Item = (IpPrefix, u32)>) -> Result<RouteTable, Error> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, next_hop) in routes {
            is_next_hop(next_hop)?;
            match prefix.0 {
                AnyPrefix::V4(prefix) => v4.push((prefix, next_hop)),
                AnyPrefix::V6(prefix) => v6.push((prefix, next_hop)),
            }
        }
        Ok(RouteTable { v4: self.table(&v4)?, v6: self.table(&v6)? })
    }

    fn table<A: Family>(self, list: &[(Prefix<A>, u32)]) -> Result<Table<A>, Error> {
        let mut rib = Rib::new(self.routes_max.unwrap_or(2 * list.len() + (1 << 20)));
        for (prefix, next_hop) in list {
            rib.insert(*prefix, (*next_hop).into()).map_err(Error::limit)?;
        }
        let config = FibConfig::new(HopSize::B4).with_default_next_hop(NONE.into());
        let made = Routes::with_rib(rib, &config.with_memory_max(self.memory_max));
        made.map_err(|refused: BuildError| Error::limit(refused))
    }
}

fn is_next_hop(number: u32) -> Result<(), Error> {
    match number {
        NONE => Err(Error::input(format!("next hop {NONE} means no route; take a smaller one"))),
        _ => Ok(()),
    }
}

type Table<A> = Routes<A, AnyFib<A>>;

/// A table of IPv4 and IPv6 routes, which finds the next hop of the longest prefix that contains an address. Next hops are numbers below [`NONE`].
///
/// **Threads.** Changes take `&mut`; any number of threads may look up through `&`. [`RouteReader`]s look up on other threads during
/// changes; they never wait, and see each change as it is made.
///
/// ```
/// use flowlane::{NONE, RouteTableBuilder, read_routes};
///
/// let routes = read_routes("10.0.0.0/8 1\n10.1.0.0/16 2\n2001:db8::/32 7", "routes")?;
/// let mut table = RouteTableBuilder::new().build(routes.iter())?;
/// let reader = table.reader();
/// let mut hops = [0; 3];
/// reader.lookup_v4(&[0x0a01_0001, 0x0a02_0001, 0x0b00_0001], &mut hops); // 10.1.0.1, 10.2.0.1, 11.0.0.1
/// assert_eq!(hops, [2, 1, NONE]);
///
/// assert_eq!(table.insert("10.1.0.0/16".parse()?, 9)?, Some(2));
/// assert_eq!(table.remove("10.0.0.0/8".parse()?)?, Some(1));
/// reader.lookup_v4(&[0x0a01_0001, 0x0a02_0001, 0x0b00_0001], &mut hops);
/// assert_eq!(hops, [9, NONE, NONE]);
/// assert_eq!(table.lookup("2001:db8::1".parse().unwrap()), Some(("2001:db8::/32".parse()?, 7)));
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Debug)]
pub struct RouteTable {
    v4: Table<u32>,
    v6: Table<u128>,
}

fn replace<A: Family>(table: &mut Table<A>, prefix: Prefix<A>, next_hop: u32) -> Result<Option<u64>, Error> {
    table.replace(prefix, next_hop.into()).map_err(Error::limit)
}

fn delete<A: Family>(table: &mut Table<A>, prefix: Prefix<A>) -> Result<Option<u64>, Error> {
    match table.delete(prefix) {
        Ok(next_hop) => Ok(Some(next_hop)),
        Err(RouteError::Missing) => Ok(None),
        Err(refused) => Err(Error::limit(refused)),
    }
}

/// Narrows a next hop: all were inserted as numbers of 32 bits.
fn narrow(next_hop: u64) -> u32 {
    next_hop as u32
}

impl RouteTable {
    /// Adds a route or replaces its next hop, and returns the old one.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): of routes or memory. [`Input`](super::ErrorKind::Input): the next hop is [`NONE`].
    pub fn insert(&mut self, prefix: IpPrefix, next_hop: u32) -> Result<Option<u32>, Error> {
        is_next_hop(next_hop)?;
        let before = match prefix.0 {
            AnyPrefix::V4(prefix) => replace(&mut self.v4, prefix, next_hop),
            AnyPrefix::V6(prefix) => replace(&mut self.v6, prefix, next_hop),
        };
        Ok(before?.map(narrow))
    }

    /// Removes the route of exactly this prefix and returns its next hop, or `None` where there is no such route.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): there is no memory for the routes that the prefix had covered.
    pub fn remove(&mut self, prefix: IpPrefix) -> Result<Option<u32>, Error> {
        let before = match prefix.0 {
            AnyPrefix::V4(prefix) => delete(&mut self.v4, prefix),
            AnyPrefix::V6(prefix) => delete(&mut self.v6, prefix),
        };
        Ok(before?.map(narrow))
    }

    /// Returns the next hop of exactly this prefix.
    pub fn get(&self, prefix: IpPrefix) -> Option<u32> {
        let found = match prefix.0 {
            AnyPrefix::V4(prefix) => self.v4.get(prefix),
            AnyPrefix::V6(prefix) => self.v6.get(prefix),
        };
        found.map(narrow)
    }

    /// Finds the longest prefix that contains an address, and its next hop, in the list of routes.
    pub fn lookup(&self, address: IpAddr) -> Option<(IpPrefix, u32)> {
        let found = match address {
            IpAddr::V4(address) => self.v4.lookup(address.into()).map(|(p, hop)| (AnyPrefix::V4(p), hop)),
            IpAddr::V6(address) => self.v6.lookup(address.into()).map(|(p, hop)| (AnyPrefix::V6(p), hop)),
        };
        found.map(|(prefix, next_hop)| (IpPrefix(prefix), narrow(next_hop)))
    }

    /// Finds the next hop of each IPv4 address ([`Ipv4Addr::to_bits`](std::net::Ipv4Addr::to_bits)), or [`NONE`]. Takes any number of
    /// addresses; allocates nothing.
    ///
    /// # Panics
    /// Where there are not as many `next_hops` as `addresses`.
    pub fn lookup_v4(&self, addresses: &[u32], next_hops: &mut [u32]) {
        look_up_v4(addresses, next_hops, |addresses, found| self.v4.fib().lookup_batch(addresses, found));
    }

    /// Finds the next hop of each IPv6 address, in network order ([`Ipv6Addr::octets`](std::net::Ipv6Addr::octets)), or
    /// [`NONE`].
    ///
    /// # Panics
    /// Where there are not as many `next_hops` as `addresses`.
    pub fn lookup_v6(&self, addresses: &[[u8; 16]], next_hops: &mut [u32]) {
        look_up_v6(addresses, next_hops, |addresses, found| self.v6.fib().lookup_batch(addresses, found));
    }

    /// Returns a reader for another thread.
    pub fn reader(&self) -> RouteReader {
        RouteReader { v4: self.v4.fib().reader(), v6: self.v6.fib().reader() }
    }

    /// Returns all routes, sorted, those of IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (IpPrefix, u32)> {
        let v4 = self.v4.walk(Prefix::ALL).map(|(prefix, hop)| (AnyPrefix::V4(prefix), hop));
        let v6 = self.v6.walk(Prefix::ALL).map(|(prefix, hop)| (AnyPrefix::V6(prefix), hop));
        v4.chain(v6).map(|(prefix, hop)| (IpPrefix(prefix), narrow(hop)))
    }

    /// Number of routes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the lookup tables, without the list of routes.
    pub fn table_bytes(&self) -> usize {
        self.v4.fib().table_bytes() + self.v6.fib().table_bytes()
    }
}

/// The reading side of a [`RouteTable`], for one thread. It stays usable while the table is changed, and after it is dropped. Clone
/// it for other threads.
#[derive(Clone, Debug)]
pub struct RouteReader {
    v4: AnyReader<u32>,
    v6: AnyReader<u128>,
}

impl RouteReader {
    /// Finds the next hop of each IPv4 address, as [`RouteTable::lookup_v4`] does.
    ///
    /// # Panics
    /// Where there are not as many `next_hops` as `addresses`.
    pub fn lookup_v4(&self, addresses: &[u32], next_hops: &mut [u32]) {
        look_up_v4(addresses, next_hops, |addresses, found| self.v4.lookup_batch(addresses, found));
    }

    /// Finds the next hop of each IPv6 address, as [`RouteTable::lookup_v6`] does.
    ///
    /// # Panics
    /// Where there are not as many `next_hops` as `addresses`.
    pub fn lookup_v6(&self, addresses: &[[u8; 16]], next_hops: &mut [u32]) {
        look_up_v6(addresses, next_hops, |addresses, found| self.v6.lookup_batch(addresses, found));
    }
}

fn look_up_v4(addresses: &[u32], next_hops: &mut [u32], look_up: impl Fn(&[u32], &mut [u64])) {
    assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
    let mut wide = [0; CHUNK];
    for (addresses, found) in addresses.chunks(CHUNK).zip(next_hops.chunks_mut(CHUNK)) {
        look_up(addresses, &mut wide[..addresses.len()]);
        found.iter_mut().zip(wide).for_each(|(found, hop)| *found = narrow(hop));
    }
}

fn look_up_v6(addresses: &[[u8; 16]], next_hops: &mut [u32], look_up: impl Fn(&[u128], &mut [u64])) {
    assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
    let (mut own, mut wide) = ([0; CHUNK], [0; CHUNK]);
    for (addresses, found) in addresses.chunks(CHUNK).zip(next_hops.chunks_mut(CHUNK)) {
        own.iter_mut().zip(addresses).for_each(|(own, address)| *own = u128::from_be_bytes(*address));
        look_up(&own[..addresses.len()], &mut wide[..addresses.len()]);
        found.iter_mut().zip(wide).for_each(|(found, hop)| *found = narrow(hop));
    }
}
