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

/// The number of matches that `matches` returns, or one that is larger than `max`; without making them all.
pub(super) fn count(matches: &Match, max: usize) -> usize {
    let values: usize =
        [Field::IcmpType, Field::IcmpCode].map(|field| values_of(matches, field).len()).iter().product();
    let mut count = 0;
    for one in matches.expand_ranges() {
        count += values * with_protocols(&one).len();
        if count > max {
            break;
        }
    }
    count
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
    use super::count;
    use crate::generate::Random;
    use crate::packet::{Field, FlowKey};

    fn printed(line: &str) -> String {
        let rules = read(line, "t", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        print_openflow_rules(&rules, 1000).unwrap()
    }

    #[test]
    fn rules_that_become_too_many_are_refused_before_they_are_made() {
        // 128 types times 128 codes, 30 times 30 prefixes of ports, three protocols.
        let most = "ip,word43=0x0/0x101,tp_src=1-65534,tp_dst=1-65534 actions=drop";
        let text = format!("udp actions=drop\ntcp,tp_dst=1-6 actions=drop\n{most}\n");
        let rules = read(&text, "t", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(count(&rules[2].matches, usize::MAX), 128 * 128 * 900 * 3);
        let error = print_openflow_rules(&rules, 10_000_000).unwrap_err();
        assert_eq!((error.position, error.rules_max), (2, 10_000_000));
        assert!(error.rule.contains("tp_src=1-65534"), "{error}");
        assert_eq!(print_openflow_rules(&rules[..2], 4).unwrap_err().position, 1);
        assert_eq!(print_openflow_rules(&rules[..2], 5).unwrap().lines().count(), 5);
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
            let all: usize = rules.iter().map(|rule| count(&rule.matches, usize::MAX)).sum();
            assert!(print_openflow_rules(&rules, all - 1).is_err());
            let text = print_openflow_rules(&rules, all).unwrap();
            assert_eq!(text.lines().count(), all);
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
