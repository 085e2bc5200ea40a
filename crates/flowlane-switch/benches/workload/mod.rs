//! The workload of many masks: source prefixes of S lengths, R destinations each.

use std::collections::HashSet;

use flowlane::generate::{Random, build_frame};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Match, Priority, Rule};

/// A rule: source prefix and its length, destination, and for masks beyond 24 the destination port.
pub(crate) struct Flow {
    src: u32,
    length: u32,
    dst: u32,
    port: Option<u16>,
}

/// Returns flows of `masks` masks: source prefixes of 8 to 31 bits, whole destinations.
pub(crate) fn flows(masks: usize, rules: usize, random: &mut Random) -> Vec<Flow> {
    let mut out = Vec::new();
    for i in 0..masks {
        let length = 8 + (i % 24) as u32;
        let mut destinations = HashSet::new();
        while destinations.len() < rules {
            let dst = random.bits() as u32;
            if !destinations.insert(dst) {
                continue;
            }
            let src = ((10 + i as u32) << 24 | random.bits() as u32 >> 8) & (u32::MAX << (32 - length));
            out.push(Flow { src, length, dst, port: (i >= 24).then(|| random.bits() as u16) });
        }
    }
    out
}

/// Returns the rule for a flow's packets.
pub(crate) fn rule(flow: &Flow) -> Rule {
    let mut m = Match::any();
    m.set(Field::EthType, 0x0800).set(Field::NwProto, 17).set(Field::IpFrag, 0);
    m.set_masked(Field::Ipv4Src, flow.src.into(), u128::from(u32::MAX << (32 - flow.length)));
    m.set(Field::Ipv4Dst, flow.dst.into());
    if let Some(port) = flow.port {
        m.set(Field::TpDst, port.into());
    }
    Rule { priority: Priority(1), ..Rule::new(m, vec![Action::Output(PortNo(2))]) }
}

/// Builds a frame of 60 bytes that the flow's rule matches, from a random host and port.
pub(crate) fn frame(flow: &Flow, random: &mut Random, out: &mut Vec<u8>) {
    let mut key = FlowKey::zero();
    key.set(Field::EthSrc, 0x0202_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::NwProto, 17);
    key.set(Field::NwTtl, 64);
    let host = random.bits() as u32 & !(u32::MAX << (32 - flow.length));
    key.set(Field::Ipv4Src, (flow.src | host).into());
    key.set(Field::Ipv4Dst, flow.dst.into());
    key.set(Field::TpSrc, u128::from(random.bits() as u16));
    key.set(Field::TpDst, flow.port.unwrap_or(random.bits() as u16).into());
    build_frame(&key, 60, out);
}
