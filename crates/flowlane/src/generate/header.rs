//! A random packet that a rule matches.

use super::random::Random;
use crate::packet::fields::{FRAG_LATER, Field, VLAN_PRESENT, word};
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::Match;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const MPLS: u16 = 0x8847;
const IPV6: u16 = 0x86dd;

/// Ports whose packets a parser may take for a tunnel's: not drawn where another will do.
const TUNNEL_PORTS: [u16; 4] = [4789, 8472, 6081, 2152];

/// The bottom of a label stack, in a label stack entry.
const BOTTOM: u32 = 0x100;

/// Draws a key within `matches`: what the rule looks at is random within the rule, what it leaves open is
/// what a packet would have there (a protocol with ports where the rule looks at ports, a unicast address,
/// TTL 64, no fragment), and what such a packet has not is zero.
///
/// The key always fulfils the match. Where the match contradicts itself (ports of a protocol without ports),
/// no packet has such a key. Metadata, tunnel fields and `in_port` are zero where the rule does not look.
pub fn draw_key(matches: &Match, random: &mut Random) -> FlowKey {
    let draft = Draft { want: matches.key(), mask: matches.mask() };
    let mut key = FlowKey::zero();
    draft.draw_l2(&mut key, random);
    let eth_type = draft.eth_type(random);
    key.set(Field::EthType, eth_type.into());
    match eth_type {
        IPV4 | IPV6 => draft.draw_ip(&mut key, eth_type, random),
        ARP | 0x8035 => draw_arp(&mut key, random),
        MPLS | 0x8848 => draft.draw_labels(&mut key, random),
        _ => {}
    }
    for w in matches.words() {
        let at = usize::from(w.word);
        key.set_word(at, (key.word(at) & !w.mask) | w.value);
    }
    for (field, range) in [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())] {
        if let Some(range) = range {
            key.set(field, random.port(range.low(), range.high()).into());
        }
    }
    debug_assert!(matches.matches(&key), "{matches:?} {key:?}");
    key
}

/// A random unicast IPv4 address.
pub(super) fn ipv4_address(random: &mut Random) -> u32 {
    let first = 1 + random.below(222) as u32;
    (if first >= 127 { first + 1 } else { first }) << 24 | (random.bits() >> 40) as u32
}

fn mac(random: &mut Random) -> u128 {
    (0x02_00 << 32 | (random.bits() >> 24)).into()
}

fn draw_arp(key: &mut FlowKey, random: &mut Random) {
    key.set(Field::ArpOp, 1 + u128::from(random.below(2)));
    key.set(Field::ArpSpa, ipv4_address(random).into());
    key.set(Field::ArpTpa, ipv4_address(random).into());
    key.set(Field::ArpSha, key.get(Field::EthSrc));
}

/// The conditions of a rule, field by field.
struct Draft {
    want: FlowKey,
    mask: FlowMask,
}

impl Draft {
    fn looks_at(&self, field: Field) -> bool {
        self.mask.get(field) != 0
    }

    /// Returns whether `value` fulfils the rule's condition on `field`.
    fn allows(&self, field: Field, value: u128) -> bool {
        (value ^ self.want.get(field)) & self.mask.get(field) == 0
    }

    /// The first of `candidates` that the rule allows; else anything that it allows.
    fn choose(&self, field: Field, candidates: &[u16], random: &mut Random) -> u16 {
        let fits = candidates.iter().copied().find(|&c| self.allows(field, c.into()));
        let any =
            (random.bits() as u128 & !self.mask.get(field) | self.want.get(field)) & field.info().ones();
        fits.unwrap_or(any as u16)
    }

    fn draw_l2(&self, key: &mut FlowKey, random: &mut Random) {
        key.set(Field::EthDst, mac(random));
        key.set(Field::EthSrc, mac(random));
        let inner = self.want.get(Field::VlanTci1) != 0;
        if self.want.get(Field::VlanTci) == 0 && self.want.get(Field::VlanTpid) == 0 && !inner {
            return;
        }
        let mut tci = || u128::from(VLAN_PRESENT) | u128::from(1 + random.below(4094));
        key.set(Field::VlanTci, tci());
        key.set(Field::VlanTpid, if inner { 0x88a8 } else { 0x8100 });
        if inner {
            key.set(Field::VlanTci1, tci());
        }
    }

    fn eth_type(&self, random: &mut Random) -> u16 {
        let any_word =
            |words: std::ops::RangeInclusive<usize>| words.into_iter().any(|w| self.mask.word(w) != 0);
        let first = if any_word(word::IPV6_SRC..=word::IPV6_DST + 3)
            || self.looks_at_neighbour_discovery()
            || self.looks_at(Field::Ipv6Label)
        {
            IPV6
        } else if any_word(word::MPLS..=word::MPLS + 2) {
            MPLS
        } else if any_word(word::ARP_OP..=word::ARP_HA + 2) {
            ARP
        } else {
            IPV4
        };
        self.choose(Field::EthType, &[first, IPV4, IPV6, ARP, MPLS], random)
    }

    /// Returns whether a field is looked at that no packets have but neighbour discovery.
    fn looks_at_neighbour_discovery(&self) -> bool {
        [Field::NdTarget, Field::NdReserved, Field::NdOptionsType].into_iter().any(|f| self.looks_at(f))
    }

    fn draw_ip(&self, key: &mut FlowKey, eth_type: u16, random: &mut Random) {
        let icmp = if eth_type == IPV6 { 58 } else { 1 };
        let first = if self.looks_at(Field::TcpFlags) {
            6
        } else if [Field::IcmpType, Field::IcmpCode].into_iter().any(|f| self.looks_at(f))
            || self.looks_at_neighbour_discovery()
        {
            icmp
        } else {
            [6, 17][random.index(2)]
        };
        let later = self.want.get(Field::IpFrag) as u8 & FRAG_LATER != 0;
        // A later IPv6 fragment shows its fragment header's protocol only.
        let first = if later && eth_type == IPV6 { 44 } else { first };
        let protocol = self.choose(Field::NwProto, &[first, 6, 17, icmp, 132, 47], random);
        key.set(Field::NwProto, protocol.into());
        key.set(Field::NwTtl, 64);
        if eth_type == IPV4 {
            key.set(Field::Ipv4Src, ipv4_address(random).into());
            key.set(Field::Ipv4Dst, ipv4_address(random).into());
        } else {
            // 2001:db8::/32, documentation; 4 billion networks of it.
            let mut address =
                || 0x2001_0db8 << 96 | u128::from(random.bits() as u32) << 64 | u128::from(random.bits());
            key.set(Field::Ipv6Src, address());
            key.set(Field::Ipv6Dst, address());
        }
        if !later {
            self.draw_l4(key, protocol, icmp, random);
        }
    }

    fn draw_l4(&self, key: &mut FlowKey, protocol: u16, icmp: u16, random: &mut Random) {
        if matches!(protocol, 6 | 17 | 132) {
            key.set(Field::TpSrc, random.port(1024, 65535).into());
            let mut dst = random.port(1, 65535);
            while TUNNEL_PORTS.contains(&dst) {
                dst += 1;
            }
            key.set(Field::TpDst, dst.into());
        }
        if protocol == 6 {
            key.set(Field::TcpFlags, 0x10);
        } else if protocol == icmp && icmp == 1 {
            key.set(Field::IcmpType, 8);
        } else if protocol == icmp {
            let echo_or_nd = if self.looks_at_neighbour_discovery() { 135 } else { 128 };
            let kind = self.choose(Field::IcmpType, &[echo_or_nd, 128, 135, 136], random);
            key.set(Field::IcmpType, kind.into());
            if matches!(kind, 135 | 136) && self.want.get(Field::IcmpCode) == 0 {
                key.set(Field::NdTarget, 0xfe80 << 112 | u128::from(random.bits()));
            }
        }
    }

    /// Label stack entries until one may be the bottom.
    fn draw_labels(&self, key: &mut FlowKey, random: &mut Random) {
        for w in word::MPLS..word::MPLS + 3 {
            let label = (16 + random.below((1 << 20) - 16)) as u32;
            key.set_word(w, label << 12 | BOTTOM | 64);
            let goes_on = self.mask.word(w) & BOTTOM != 0 && self.want.word(w) & BOTTOM == 0;
            if !goes_on {
                return;
            }
            key.set_word(w, key.word(w) & !BOTTOM);
        }
    }
}
