//! Routing tables in MRT dumps (RFC 6396): TABLE_DUMP_V2, with or without additional paths (RFC 8050), and the older
//! TABLE_DUMP.
//!
//! A collector's dump holds every peer's announcement of each prefix. One is selected as a router would: the shortest AS
//! path, the first among equals. Multicast tables and other address families are skipped.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{AnyPrefix, NextHop, RouteList};

/// Record types that hold tables.
const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;

/// Subtypes of TABLE_DUMP_V2 (RFC 6396, 4.3; RFC 8050, 4).
mod subtype {
    pub(super) const PEER_INDEX_TABLE: u16 = 1;
    pub(super) const RIB_IPV4_UNICAST: u16 = 2;
    pub(super) const RIB_IPV6_UNICAST: u16 = 4;
    pub(super) const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
    pub(super) const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;
    /// Greater subtypes are unknown.
    pub(super) const RIB_GENERIC_ADDPATH: u16 = 12;
}

/// Path attributes (RFC 4271, 4.3; RFC 4760, 3).
mod attribute {
    pub(super) const AS_PATH: u8 = 2;
    pub(super) const NEXT_HOP: u8 = 3;
    pub(super) const MP_REACH_NLRI: u8 = 14;
    /// Flag for a two-byte length.
    pub(super) const EXTENDED_LENGTH: u8 = 0x10;
}

/// AS path segments that count towards the length: each AS of a sequence, and a set as one (RFC 4271, 9.1.2.2).
/// Confederations do not count (RFC 5065, 5.3).
const AS_SET: u8 = 1;
const AS_SEQUENCE: u8 = 2;

/// A record of an MRT dump that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {record}: {problem}")]
pub struct MrtError {
    /// The number of the record, from 1.
    pub record: u64,
    /// The mistake.
    pub problem: String,
}

/// The unread rest of a record.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| format!("truncated: {len} bytes expected, {} left", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("`take` returns N bytes"))
    }

    fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_be_bytes)
    }

    fn address(&mut self, is_v6: bool) -> Result<IpAddr, String> {
        Ok(if is_v6 { self.array::<16>()?.into() } else { self.array::<4>()?.into() })
    }

    /// Splits off the next `len` bytes.
    fn part(&mut self, len: usize) -> Result<Self, String> {
        self.take(len).map(Self)
    }
}

/// A peer's announcement of a prefix.
struct Announced {
    path_len: usize,
    next_hop: IpAddr,
}

/// Reads at most `routes_max` routes of a dump, in its order.
///
/// # Errors
/// The first record that is damaged, or holds no table.
pub fn read_mrt(bytes: &[u8], routes_max: usize) -> Result<RouteList, MrtError> {
    let mut table = Table::default();
    let mut rest = Bytes(bytes);
    for record in 1.. {
        if rest.0.is_empty() {
            break;
        }
        table.record(&mut rest, routes_max).map_err(|problem| MrtError { record, problem })?;
    }
    Ok(table.routes())
}

/// Parses path attributes with AS numbers of `as_bytes`; returns `None` without any next hop.
fn announced(
    mut attributes: Bytes<'_>,
    as_bytes: usize,
    is_v6: bool,
    peer: Option<IpAddr>,
) -> Result<Option<Announced>, String> {
    let (mut path_len, mut plain, mut multiprotocol) = (0, None, None);
    while !attributes.0.is_empty() {
        let (flags, kind) = (attributes.u8()?, attributes.u8()?);
        let len = match flags & attribute::EXTENDED_LENGTH {
            0 => attributes.u8()?.into(),
            _ => attributes.u16()?.into(),
        };
        let mut value = attributes.part(len)?;
        match kind {
            attribute::AS_PATH => path_len = self::path_len(value, as_bytes)?,
            attribute::NEXT_HOP => plain = Some(value.address(false)?),
            attribute::MP_REACH_NLRI => multiprotocol = next_hop(value)?,
            _ => {}
        }
    }
    let next_hop = if is_v6 { multiprotocol.or(plain) } else { plain.or(multiprotocol) };
    Ok(next_hop.or(peer).map(|next_hop| Announced { path_len, next_hop }))
}

fn path_len(mut segments: Bytes<'_>, as_bytes: usize) -> Result<usize, String> {
    let mut len = 0;
    while !segments.0.is_empty() {
        let (kind, count) = (segments.u8()?, usize::from(segments.u8()?));
        segments.take(count * as_bytes)?;
        len += match kind {
            AS_SEQUENCE => count,
            AS_SET => 1,
            _ => 0,
        };
    }
    Ok(len)
}

/// Parses the next hop of MP_REACH_NLRI. Table dumps contain it alone (RFC 6396, 4.3.4); some writers emit the complete
/// attribute, which begins with an AFI and so with a zero byte. A second address is link-local.
fn next_hop(mut value: Bytes<'_>) -> Result<Option<IpAddr>, String> {
    if value.0.len() > 1 && value.0[0] == 0 {
        value.take(3)?;
    }
    let len = value.u8()?;
    let mut address = value.part(len.into())?;
    Ok(match len {
        4 => Some(address.address(false)?),
        16 | 32 => Some(address.address(true)?),
        _ => None,
    })
}

#[derive(Default)]
struct Table {
    peers: Vec<IpAddr>,
    best: HashMap<AnyPrefix, Announced>,
    order: Vec<AnyPrefix>,
}

impl Table {
    fn record(&mut self, rest: &mut Bytes<'_>, routes_max: usize) -> Result<(), String> {
        let _time = rest.u32()?;
        let (kind, subtype, len) = (rest.u16()?, rest.u16()?, rest.u32()?);
        let mut body = rest.part(len as usize)?;
        match (kind, subtype) {
            (TABLE_DUMP, 1 | 2) => self.entry(&mut body, subtype == 2)?,
            (TABLE_DUMP_V2, subtype::PEER_INDEX_TABLE) => self.index(&mut body)?,
            (TABLE_DUMP_V2, subtype::RIB_IPV4_UNICAST) => self.entries(&mut body, false, false)?,
            (TABLE_DUMP_V2, subtype::RIB_IPV6_UNICAST) => self.entries(&mut body, true, false)?,
            (TABLE_DUMP_V2, subtype::RIB_IPV4_UNICAST_ADDPATH) => self.entries(&mut body, false, true)?,
            (TABLE_DUMP_V2, subtype::RIB_IPV6_UNICAST_ADDPATH) => self.entries(&mut body, true, true)?,
            // Multicast tables, other families, and geographic locations of peers.
            (TABLE_DUMP_V2, ..=subtype::RIB_GENERIC_ADDPATH) => {}
            _ => {
                return Err(format!(
                    "type {kind}, subtype {subtype}; expected a table entry (type {TABLE_DUMP_V2})"
                ));
            }
        }
        if self.order.len() > routes_max {
            return Err(format!("more than {routes_max} routes"));
        }
        Ok(())
    }

    /// Reads a PEER_INDEX_TABLE: the peers by number.
    fn index(&mut self, body: &mut Bytes<'_>) -> Result<(), String> {
        let _collector = body.u32()?;
        let name_len = body.u16()?;
        body.take(name_len.into())?;
        let count = body.u16()?;
        self.peers.clear();
        for _ in 0..count {
            let kind = body.u8()?;
            let _id = body.u32()?;
            self.peers.push(body.address(kind & 1 != 0)?);
            body.take(if kind & 2 != 0 { 4 } else { 2 })?;
        }
        Ok(())
    }

    /// Reads a prefix of TABLE_DUMP_V2 with its announcements.
    fn entries(&mut self, body: &mut Bytes<'_>, is_v6: bool, has_path_ids: bool) -> Result<(), String> {
        let _sequence = body.u32()?;
        let len = body.u8()?;
        let mut address = [0; 16];
        let bytes = body.take(usize::from(len).div_ceil(8))?;
        address.get_mut(..bytes.len()).ok_or_else(|| too_long(len))?.copy_from_slice(bytes);
        let prefix = prefix(Bytes(&address).address(is_v6)?, len)?;
        let count = body.u16()?;
        for _ in 0..count {
            let peer = body.u16()?;
            let _time = body.u32()?;
            if has_path_ids {
                body.u32()?;
            }
            let attributes_len = body.u16()?;
            let attributes = body.part(attributes_len.into())?;
            let peer = self.peers.get(usize::from(peer)).copied();
            self.announce(prefix, announced(attributes, 4, is_v6, peer)?);
        }
        Ok(())
    }

    /// Reads a TABLE_DUMP record: a prefix and one peer's announcement.
    fn entry(&mut self, body: &mut Bytes<'_>, is_v6: bool) -> Result<(), String> {
        let _view_and_sequence = body.u32()?;
        let address = body.address(is_v6)?;
        let prefix = prefix(address, body.u8()?)?;
        let _status_and_time = body.take(5)?;
        let peer = body.address(is_v6)?;
        let _as = body.u16()?;
        let attributes_len = body.u16()?;
        let attributes = body.part(attributes_len.into())?;
        self.announce(prefix, announced(attributes, 2, is_v6, Some(peer))?);
        Ok(())
    }

    fn announce(&mut self, prefix: AnyPrefix, announced: Option<Announced>) {
        let Some(announced) = announced else { return };
        match self.best.get_mut(&prefix) {
            Some(best) if best.path_len <= announced.path_len => {}
            Some(best) => *best = announced,
            None => {
                self.order.push(prefix);
                self.best.insert(prefix, announced);
            }
        }
    }

    fn routes(self) -> RouteList {
        let mut routes = RouteList::default();
        for prefix in self.order {
            let number = routes.next_hops.number(NextHop::neighbour(self.best[&prefix].next_hop));
            routes.push(prefix, number);
        }
        routes
    }
}

fn too_long(len: u8) -> String {
    format!("prefix length {len} exceeds the address length")
}

fn prefix(address: IpAddr, len: u8) -> Result<AnyPrefix, String> {
    match len <= AnyPrefix::bits(address) {
        true => Ok(AnyPrefix::truncated(address, len)),
        false => Err(too_long(len)),
    }
}
