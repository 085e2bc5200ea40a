//! The connections that controllers want to be forgotten.

use flowlane_openflow::message::{CtFlush, CtTuple};

use crate::state::conntrack::{Wanted, WantedEnds};

/// All connections of a zone.
pub(super) fn of_zone(zone: u16) -> Wanted {
    Wanted { zone: Some(zone), ..Wanted::default() }
}

/// The connections that a request is about.
pub(super) fn wanted(request: &CtFlush) -> Wanted {
    let ends = |tuple: &Option<CtTuple>| {
        tuple.map_or_else(WantedEnds::default, |tuple| WantedEnds {
            source: tuple.source,
            destination: tuple.destination,
            source_port: tuple.source_port,
            destination_port: tuple.destination_port,
            icmp_id: tuple.icmp_id,
            icmp_type: tuple.icmp_type,
        })
    };
    Wanted {
        zone: request.zone,
        proto: (request.protocol != 0).then_some(request.protocol),
        mark: request.mark,
        label: request.label,
        ends: [ends(&request.original), ends(&request.reply)],
        ..Wanted::default()
    }
}
