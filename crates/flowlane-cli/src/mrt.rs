//! Route tables in MRT dumps (RFC 6396): TABLE_DUMP_V2 as collectors write them, and the older TABLE_DUMP.
//!
//! A collector's dump has for each prefix what each of its peers announced. As a router would, one is chosen: the
//! shortest AS path, and among equals the first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use bgpkit_parser::BgpkitParser;
use bgpkit_parser::models::{Attributes, MrtMessage, TableDumpMessage, TableDumpV2Message};
use flowlane::route::read::{AnyPrefix, NextHop, RouteList};

use crate::failure::Failure;

/// The types of records that hold tables: TABLE_DUMP and TABLE_DUMP_V2.
const TYPES: [u8; 2] = [12, 13];

/// Whether a file looks like a dump: no text has zero bytes. The type stands behind four bytes of time.
pub(crate) fn is_dump(bytes: &[u8]) -> bool {
    bytes.len() >= 12 && bytes[4] == 0 && TYPES.contains(&bytes[5]) && bytes[6] == 0
}

/// What a peer announced for a prefix.
struct Announced {
    path_len: usize,
    next_hop: IpAddr,
}

/// The routes of a dump, in its order.
pub(crate) fn read(bytes: &[u8], path: &Path, routes_max: usize) -> Result<RouteList, Failure> {
    let mut table = Table::default();
    let mut peers: HashMap<u16, IpAddr> = HashMap::new();
    let parser = BgpkitParser::from_reader(bytes).disable_warnings();
    for (number, record) in (1..).zip(parser.into_fallible_record_iter()) {
        let failed = |what: String| {
            let message = format!("{}: record {number}: {what}", path.display());
            Failure::input_help(
                message,
                "an MRT dump of a table is expected: TABLE_DUMP_V2, unpacked or gzipped",
            )
        };
        match record.map_err(|e| failed(e.to_string()))?.message {
            MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(index)) => {
                peers = index.id_peer_map.iter().map(|(id, peer)| (*id, peer.peer_ip)).collect();
            }
            MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(rib)) => {
                let prefix = AnyPrefix::truncated(rib.prefix.prefix.addr(), rib.prefix.prefix.prefix_len());
                for entry in &rib.rib_entries {
                    let peer = peers.get(&entry.peer_index).copied();
                    table.announce(prefix, announced(&entry.attributes, peer));
                }
            }
            MrtMessage::TableDumpMessage(entry) => table.entry(&entry),
            MrtMessage::TableDumpMessageBatch(entries) => entries.iter().for_each(|entry| table.entry(entry)),
            // Geographic places of peers, and tables of other families.
            MrtMessage::TableDumpV2Message(_) => {}
            _ => return Err(failed("a message, where an entry of a table is expected".to_owned())),
        }
        if table.order.len() > routes_max {
            return Err(failed(format!("more than {routes_max} routes")));
        }
    }
    Ok(table.routes())
}

/// Next hop and length of path; none where there is no next hop at all.
fn announced(attributes: &Attributes, peer: Option<IpAddr>) -> Option<Announced> {
    let multiprotocol = || attributes.get_reachable_nlri()?.next_hop.as_ref().map(|hop| hop.addr());
    let next_hop = attributes.next_hop().or_else(multiprotocol).or(peer)?;
    let path_len = attributes.as_path().map_or(0, |path| path.route_len());
    Some(Announced { path_len, next_hop })
}

#[derive(Default)]
struct Table {
    best: HashMap<AnyPrefix, Announced>,
    order: Vec<AnyPrefix>,
}

impl Table {
    fn entry(&mut self, entry: &TableDumpMessage) {
        let prefix = AnyPrefix::truncated(entry.prefix.prefix.addr(), entry.prefix.prefix.prefix_len());
        self.announce(prefix, announced(&entry.attributes, Some(entry.peer_ip)));
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
