//! Actions that make rules of packets: `learn`.
//!
//! The rules that an action makes have one mask and one priority, and so no two of them overlap: which of two rules of one priority
//! wins is undefined. Actions with the same mask may have the same priority, so that rules take the place of each other.

use super::{Arp, Icmp, Ipv4, Ipv6, Needs, Neighbour, Nothing, Random, Tcp, Udp, Vlan, Writer};

/// Fields of a packet, of a number of bits.
type Sources = &'static [&'static str];

/// A mask of learned rules: what packets must be, constants, and a part with its values.
struct Shape {
    needs: Needs,
    constants: &'static str,
    /// The part; empty where the constants are all.
    part: &'static str,
    sources: Sources,
}

const fn shape(needs: Needs, constants: &'static str, part: &'static str, sources: Sources) -> Shape {
    Shape { needs, constants, part, sources }
}

/// A solicitation: only with its type a packet has the fields of neighbour discovery.
const NEIGHBOUR: &str = "eth_type=0x86dd,nw_proto=58,icmpv6_type=135";

/// The place of a shape here is part of its rules' priority.
const SHAPES: [Shape; 21] = [
    shape(Nothing, "", "NXM_OF_ETH_DST[]", &["", "NXM_OF_ETH_SRC[]", "02:00:00:00:00:01"]),
    shape(Nothing, "NXM_OF_VLAN_TCI[0..11]", "NXM_OF_ETH_SRC[]", &["", "NXM_OF_ETH_DST[]"]),
    shape(Nothing, "", "NXM_OF_IN_PORT[]", &["", "2"]),
    shape(Nothing, "", "NXM_NX_REG4[0..3]", &["", "NXM_OF_ETH_SRC[0..3]", "NXM_NX_REG0[4..7]", "0x3"]),
    shape(Nothing, "", "OXM_OF_METADATA[0..15]", &["", "NXM_OF_ETH_SRC[0..15]", "0x5"]),
    shape(Nothing, "", "NXM_NX_XXREG0[28..36]", &["", "NXM_NX_XXREG0[0..8]", "0x55"]),
    shape(Nothing, "", "NXM_OF_VLAN_TCI[]", &[""]),
    shape(Nothing, "", "NXM_OF_ETH_TYPE[]", &[""]),
    shape(Nothing, "", "", &[]),
    shape(Vlan, "", "OXM_OF_VLAN_VID[]", &[""]),
    shape(Arp, "eth_type=0x806", "NXM_OF_ARP_TPA[]", &["", "NXM_OF_ARP_SPA[]"]),
    shape(Ipv4, "eth_type=0x800", "NXM_OF_IP_DST[]", &["", "NXM_OF_IP_SRC[]", "10.0.0.1"]),
    shape(Ipv4, "eth_type=0x800,NXM_OF_IP_SRC[]", "NXM_OF_IP_DST[0..7]", &["", "NXM_OF_IP_SRC[8..15]", "2"]),
    shape(Ipv4, "eth_type=0x800", "NXM_OF_IP_PROTO[]", &[""]),
    shape(Ipv4, "eth_type=0x800", "NXM_NX_IP_TTL[]", &["", "NXM_OF_ETH_SRC[0..7]"]),
    shape(Ipv6, "eth_type=0x86dd", "NXM_NX_IPV6_SRC[]", &["", "NXM_NX_IPV6_DST[]", "NXM_NX_XXREG1[]"]),
    shape(Ipv6, "eth_type=0x86dd", "NXM_NX_IPV6_DST[0..63]", &["", "NXM_NX_IPV6_SRC[64..127]"]),
    shape(Udp, "eth_type=0x800,nw_proto=17", "NXM_OF_UDP_DST[]", &["", "NXM_OF_UDP_SRC[]", "53"]),
    shape(Tcp, "eth_type=0x800,nw_proto=6", "NXM_OF_TCP_SRC[0..7]", &["", "NXM_OF_TCP_DST[8..15]"]),
    shape(Icmp, "eth_type=0x800,nw_proto=1", "NXM_OF_ICMP_TYPE[]", &["", "8"]),
    shape(Neighbour, NEIGHBOUR, "ERICOXM_OF_ICMPV6_ND_RESERVED[]", &["", "NXM_NX_REG0[]", "0x60000000"]),
];

/// Actions of learned rules: what packets must be that make them, constants of their matches, and the action.
const LOADS: [(Needs, &str, &str); 16] = [
    (Nothing, "", "load:0x5->NXM_NX_REG0[4..7]"),
    (Nothing, "", "load:0x3->NXM_NX_REG4[]"),
    (Nothing, "", "load:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG1[8..15]"),
    (Nothing, "", "load:NXM_OF_IN_PORT[]->NXM_NX_REG5[0..15]"),
    (Nothing, "", "load:NXM_NX_REG5[0..7]->OXM_OF_METADATA[0..7]"),
    (Nothing, "", "load:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]"),
    (Nothing, "", "load:0x20000000002->NXM_OF_ETH_SRC[]"),
    (Nothing, "", "load:NXM_NX_XXREG0[0..63]->NXM_NX_XXREG1[32..95]"),
    (Vlan, "", "load:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG2[0..11]"),
    (Ipv4, "", "load:NXM_OF_IP_SRC[]->NXM_NX_REG2[]"),
    (Ipv4, "eth_type=0x800", "load:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]"),
    (Nothing, "eth_type=0x800", "load:0x0a000009->NXM_OF_IP_SRC[]"),
    (Udp, "nw_proto=17", "load:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[]"),
    (Ipv6, "", "load:NXM_NX_IPV6_SRC[0..31]->NXM_NX_REG7[]"),
    (Neighbour, "", "load:ERICOXM_OF_ICMPV6_ND_RESERVED[]->NXM_NX_REG7[]"),
    (Neighbour, NEIGHBOUR, "load:NXM_NX_REG7[]->ERICOXM_OF_ICMPV6_ND_RESERVED[]"),
];

const SENT_TO: [&str; 6] = [
    "output:NXM_OF_IN_PORT[]",
    "output:NXM_OF_IN_PORT[]",
    "output:NXM_NX_REG4[0..3]",
    "output:NXM_NX_REG1[0..3]",
    "output:OXM_OF_METADATA[0..2]",
    "output:NXM_OF_ETH_DST[0..1]",
];

/// Bits that say whether a limit allows a rule; other rules match them.
const RESULTS: [(Needs, &str); 6] = [
    (Nothing, "NXM_NX_REG5[0]"),
    (Nothing, "NXM_NX_REG4[0]"),
    (Nothing, "xreg1[32]"),
    (Nothing, "OXM_OF_METADATA[4]"),
    (Nothing, "NXM_OF_ETH_DST[1]"),
    (Ipv4, "NXM_OF_IP_DST[0]"),
];

/// Priorities of learned rules, modulo 100. No other rules have them.
const FIRST: u32 = 20;

/// Returns whether rules with such a priority are learned.
pub(crate) fn is_learned(priority: u32) -> bool {
    priority < 300 && (FIRST..FIRST + SHAPES.len() as u32).contains(&(priority % 100))
}

/// Draws settings of learned rules.
fn settings(r: &mut Random, settings: &mut Vec<String>) {
    let seconds = [1000, 2000, 60000];
    for name in ["idle_timeout", "hard_timeout", "fin_idle_timeout", "fin_hard_timeout"] {
        if r.one_in(6) {
            settings.push(format!("{name}={}", r.pick(&seconds)));
        }
    }
    for flag in ["send_flow_rem", "delete_learned"] {
        if r.one_in(4) {
            settings.push(flag.to_owned());
        }
    }
}

impl Writer<'_> {
    /// Writes an action that makes rules.
    pub(super) fn learn(&mut self) {
        let possible: Vec<usize> = (0..SHAPES.len()).filter(|&at| self.has(SHAPES[at].needs)).collect();
        let at = self.r.pick(&possible);
        let Shape { constants, part, sources, .. } = SHAPES[at];
        let priority = FIRST + at as u32 + 100 * self.r.below(3);
        let table = self.r.below(self.tables.into());
        let mut arguments = vec![format!("table={table},priority={priority}")];
        settings(self.r, &mut arguments);
        // Some share a cookie, and so a limit; some have that of a rule which is there. Open vSwitch may end itself where such a rule
        // goes with the learned ones, and learns itself.
        let deletes = arguments.iter().any(|argument| argument == "delete_learned");
        let cookies: &[u32] = if deletes { &[1000, 1001, 1002] } else { &[1000, 1001, 1002, 1, 3, 8] };
        arguments.push(format!("cookie={}", self.r.pick(cookies)));
        if self.r.one_in(2) {
            arguments.push(format!("limit={}", self.r.pick(&[0, 1, 2, 3, 5])));
        }
        if self.r.one_in(2) {
            let possible: Vec<_> = RESULTS.iter().filter(|(needs, _)| self.has(*needs)).collect();
            arguments.push(format!("result_dst={}", self.r.pick(&possible).1));
        }
        arguments.extend((!constants.is_empty()).then(|| constants.to_owned()));
        if !part.is_empty() {
            let source = self.r.pick(sources);
            arguments.push(if source.is_empty() { part.to_owned() } else { format!("{part}={source}") });
        }
        for _ in 0..self.r.pick(&[0, 1, 1, 2]) {
            let fits = |(needs, own, _): &&(Needs, &str, &str)| self.has(*needs) && constants.contains(own);
            let possible: Vec<_> = LOADS.iter().filter(fits).collect();
            arguments.push(self.r.pick(&possible).2.to_owned());
        }
        if self.r.below(4) > 0 {
            arguments.push(self.r.pick(&SENT_TO).to_owned());
        }
        self.actions.push(format!("learn({})", arguments.join(",")));
    }
}
