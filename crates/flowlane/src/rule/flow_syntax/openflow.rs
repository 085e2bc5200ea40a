//! Matches that Open vSwitch has, too.

use super::super::Match;
use crate::packet::fields::Field;
use crate::packet::parse::{ether_type, ip_proto};

/// The matches of Open vSwitch that together are this one:
///
/// - Port ranges become prefixes, and blocks of ICMP types single types.
/// - Ports are matched with one protocol that has ports. Where a match leaves the protocol open, there is one for each: packets
///   of other protocols have 0 in place of ports here, and their matches leave the ports out.
/// - A protocol has no mask: there is a match for each protocol under it.
pub(super) fn matches(matches: &Match) -> Vec<Match> {
    let single = [Field::IcmpType, Field::IcmpCode]
        .into_iter()
        .fold(vec![matches.clone()], |all, field| all.iter().flat_map(|one| values_of(one, field)).collect());
    let ranges = single.iter().flat_map(Match::expand_ranges);
    ranges.flat_map(|one| with_protocols(&one)).collect()
}

/// A match for each value of a field that has a mask other than all ones.
fn values_of(matches: &Match, field: Field) -> Vec<Match> {
    let (value, mask) = matches.get(field);
    let ones = field.info().ones();
    if mask == 0 || mask == ones {
        return vec![matches.clone()];
    }
    (0..=ones).filter(|one| one & mask == value).map(|one| with(matches, field, one)).collect()
}

fn with(matches: &Match, field: Field, value: u128) -> Match {
    let mut matches = matches.clone();
    matches.set(field, value);
    matches
}

/// Expands a match without ranges by its protocols.
fn with_protocols(matches: &Match) -> Vec<Match> {
    let (eth_type, type_mask) = matches.get(Field::EthType);
    let is_ip = type_mask == 0xffff && [ether_type::IPV4, ether_type::IPV6].contains(&(eth_type as u16));
    let (protocol, protocol_mask) = matches.get(Field::NwProto);
    let ports = [Field::TpSrc, Field::TpDst].map(|field| matches.get(field));
    let has_ports = ports.iter().any(|(_, mask)| *mask != 0);
    if !is_ip || !has_ports && (protocol_mask == 0 || protocol_mask == 0xff) {
        return vec![matches.clone()];
    }
    let protocols = (0..=0xff_u128).filter(|one| one & protocol_mask == protocol);
    protocols
        .filter_map(|one| match has_ports && !PORTS.contains(&(one as u8)) {
            true => (ports == ports.map(|(_, mask)| (0, mask)))
                .then(|| with(&without_ports(matches), Field::NwProto, one)),
            false => Some(with(matches, Field::NwProto, one)),
        })
        .collect()
}

/// Protocols with ports.
const PORTS: [u8; 3] = [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP];

fn without_ports(matches: &Match) -> Match {
    let mut mask = matches.word_mask();
    mask.set(Field::TpSrc, 0);
    mask.set(Field::TpDst, 0);
    Match::from_key(&matches.key(), &mask)
}

#[cfg(test)]
mod tests {
    use super::super::super::{Priority, ReadOptions};
    use super::super::{print_openflow_rules, read};
    use crate::generate::Random;
    use crate::packet::{Field, FlowKey};

    fn printed(line: &str) -> String {
        let rules = read(line, "t", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        print_openflow_rules(&rules)
    }

    #[test]
    fn what_open_vswitch_has_not_becomes_several_rules() {
        let text = printed("priority=7,tcp,tp_dst=100-103,tp_src=1-2 actions=drop");
        assert_eq!(
            text,
            "table=0,priority=7,tcp,tp_src=1,tp_dst=100/0xfffc actions=drop\n\
             table=0,priority=7,tcp,tp_src=2,tp_dst=100/0xfffc actions=drop\n"
        );
        let text = printed("ip,tp_dst=80 actions=output:1");
        assert_eq!(text.lines().count(), 3);
        assert!(["tcp", "udp", "sctp"].iter().all(|name| text.contains(&format!("{name},tp_dst=80 "))));
        assert_eq!(printed("ip,nw_proto=47,tp_dst=80 actions=output:1"), "");
        assert_eq!(printed("ip,nw_proto=47,tp_dst=0 actions=drop").matches("nw_proto=47 ").count(), 1);
        assert_eq!(printed("icmp,icmp_type=8-10 actions=drop").lines().count(), 3);
        assert_eq!(printed("udp,tp_dst=53 actions=drop").lines().count(), 1);
    }

    /// The printed rules decide like the given ones about packets of any protocol.
    #[test]
    fn the_rules_match_the_same_packets() {
        let options = ReadOptions::default();
        let mut random = Random::for_purpose(5, "rules for Open vSwitch");
        for line in [
            "ip,tp_dst=0-1023 actions=drop",
            "ipv6,tp_src=79-82,tp_dst=0 actions=drop",
            "udp6,tp_src=5-9 actions=drop",
            "ip,word39=0x04000000/0xfc000000 actions=drop",
            "ip,word39=0x04000000/0xfc000000,tp_dst=0-3 actions=drop",
            "icmp6,icmp_type=133-137,icmp_code=0-1 actions=drop",
        ] {
            let rules = read(line, "t", &options).unwrap_or_else(|e| panic!("{e}"));
            let text = print_openflow_rules(&rules);
            assert!(!text.contains("word") && !text.contains('-'), "{text}");
            let others = read(&text, "printed", &options).unwrap_or_else(|e| panic!("{e}"));
            assert!(others.iter().all(|rule| rule.priority == Priority::DEFAULT));
            for _ in 0..2000 {
                let mut key = FlowKey::zero();
                let protocol = [6, 17, 132, 1, 58, 4, 5, 7, 47][random.index(9)];
                key.set(Field::EthType, if random.index(2) == 0 { 0x0800 } else { 0x86dd });
                key.set(Field::NwProto, protocol);
                if [6, 17, 132].contains(&protocol) {
                    key.set(Field::TpSrc, random.index(90) as u128);
                    key.set(Field::TpDst, random.index(1500) as u128 % 1100);
                } else if [1, 58].contains(&protocol) {
                    key.set(Field::IcmpType, 130 + random.index(10) as u128);
                    key.set(Field::IcmpCode, random.index(3) as u128);
                }
                let hit = |rules: &[super::super::Rule]| rules.iter().any(|rule| rule.matches.matches(&key));
                assert_eq!(hit(&rules), hit(&others), "{line}: {:?}", key.get(Field::NwProto));
            }
        }
    }
}
