//! What the profiles unlike ClassBench promise.

use super::{hash_rules, rules::rules};
use crate::generate::assemble::shape_key;
use crate::generate::{Profile, RuleConfig, RuleSetError, generate_rules};
use crate::packet::Field;
use crate::packet::fields::word;
use crate::rule::Match;
use std::collections::{HashMap, HashSet};

const IPV4: u128 = 0x0800;
const IPV6: u128 = 0x86dd;

/// The profiles of this kind.
const FAMILIES: [Profile; 11] = [
    Profile::Ranges,
    Profile::Groups,
    Profile::Blocklist,
    Profile::Acl6,
    Profile::Mixed,
    Profile::Masks,
    Profile::Nested,
    Profile::Disjoint,
    Profile::Overlap,
    Profile::Cuts,
    Profile::Chains,
];

fn matches(profile: Profile, count: usize) -> Vec<Match> {
    rules(profile, count, |_| ()).into_iter().map(|rule| rule.matches).collect()
}

/// The prefix length of a field, where its mask is one.
fn prefix_len(m: &Match, field: Field) -> Option<u32> {
    let (_, mask) = m.get(field);
    let len = mask.count_ones();
    (mask.trailing_zeros().min(field.info().width.into()) + len == u32::from(field.info().width))
        .then_some(len)
}

fn ipv4_len(m: &Match, field: Field) -> u32 {
    prefix_len(m, field).expect("a prefix")
}

/// The smallest and the largest port.
fn ports(m: &Match, field: Field) -> (u16, u16) {
    let range = if field == Field::TpSrc { m.tp_src_range() } else { m.tp_dst_range() };
    let (value, mask) = m.get(field);
    range.map_or((value as u16, value as u16 | !(mask as u16)), |r| (r.low(), r.high()))
}

/// Returns whether some packet matches both, independently of the way in which the rules were made.
fn overlap(a: &Match, b: &Match) -> bool {
    let bits = a.words().iter().filter(|w| usize::from(w.word) != word::PORTS).all(|w| {
        let other = b.words().iter().find(|o| o.word == w.word);
        other.is_none_or(|o| (w.value ^ o.value) & w.mask & o.mask == 0)
    });
    bits && [Field::TpSrc, Field::TpDst].into_iter().all(|field| {
        let (a, b) = (ports(a, field), ports(b, field));
        a.0 <= b.1 && b.0 <= a.1
    })
}

/// The share of pairs of rules that overlap.
fn overlapping(rules: &[Match]) -> f64 {
    let pairs = rules.len() * (rules.len() - 1) / 2;
    let overlapping = |i: usize| rules[i + 1..].iter().filter(|other| overlap(&rules[i], other)).count();
    (0..rules.len()).map(overlapping).sum::<usize>() as f64 / pairs as f64
}

/// The share of rules of which `holds` is true.
fn share(rules: &[Match], holds: impl Fn(&Match) -> bool) -> f64 {
    rules.iter().filter(|m| holds(m)).count() as f64 / rules.len() as f64
}

fn distinct<T: std::hash::Hash + Eq>(rules: &[Match], what: impl Fn(&Match) -> T) -> usize {
    rules.iter().map(what).collect::<HashSet<_>>().len()
}

#[test]
fn families_never_change() {
    let recorded = [
        (Profile::Ranges, 13058521744616574911),
        (Profile::Groups, 4170993882075513306),
        (Profile::Blocklist, 6091550998084667189),
        (Profile::Acl6, 9065746855278577534),
        (Profile::Mixed, 2708763659930707345),
        (Profile::Masks, 14083932111752408464),
        (Profile::Nested, 16453028951599714415),
        (Profile::Disjoint, 9709193366709589023),
        (Profile::Overlap, 3446515870782591283),
        (Profile::Cuts, 230808481053613481),
        (Profile::Chains, 17387040523536195940),
    ];
    let got = recorded.map(|(profile, _)| (profile, hash_rules(&rules(profile, 500, |c| c.seed = 7))));
    assert_eq!(got, recorded);
}

#[test]
fn families_have_as_many_rules_as_asked_for_all_different() {
    for profile in FAMILIES {
        for count in [1, 2, 100, 10_000] {
            let set = matches(profile, count);
            let different = set.iter().collect::<HashSet<_>>().len();
            assert_eq!((set.len(), different), (count, count), "{profile}");
        }
    }
}

#[test]
fn rules_of_ipv4_are_five_tuples_of_prefixes_and_ranges() {
    for profile in FAMILIES {
        for m in matches(profile, 1000) {
            let eth_type = m.get(Field::EthType);
            let protocol = m.get(Field::NwProto);
            let looks_at_ports = m.mask().word(word::PORTS) != 0;
            assert!(!looks_at_ports || matches!(protocol, (6 | 17, 0xff)), "{profile} {m:?}");
            assert!([Field::TpSrc, Field::TpDst].iter().all(|&f| prefix_len(&m, f).is_some()), "{m:?}");
            if eth_type == (IPV6, 0xffff) {
                assert!(matches!(profile, Profile::Acl6 | Profile::Mixed), "{profile} {m:?}");
                continue;
            }
            assert_eq!(eth_type, (IPV4, 0xffff), "{profile} {m:?}");
            let mut five_tuple = m.ipv4_five_tuple();
            five_tuple.set(Field::EthType, IPV4);
            assert_eq!(five_tuple, m, "{profile}");
            assert!([Field::Ipv4Src, Field::Ipv4Dst].iter().all(|&f| prefix_len(&m, f).is_some()), "{m:?}");
        }
    }
}

#[test]
fn a_family_decides_on_masks_and_overlap_itself() {
    for profile in FAMILIES {
        let masks = RuleConfig { masks: Some(2), ..RuleConfig::new(profile, 10) };
        assert_eq!(generate_rules(&masks), Err(RuleSetError::NoChoice { parameter: "masks", profile }));
        let overlap = RuleConfig { overlap: Some(0.2), ..RuleConfig::new(profile, 10) };
        assert_eq!(generate_rules(&overlap), Err(RuleSetError::NoChoice { parameter: "overlap", profile }));
    }
}

#[test]
fn the_duplicates_asked_for_stand_behind_what_they_repeat() {
    for profile in Profile::ALL {
        let plain = rules(profile, 150, |_| ());
        let set = rules(profile, 200, |c| c.duplicates = 0.25);
        let mut first: Vec<&Match> = Vec::new();
        let mut seen = HashSet::new();
        first.extend(set.iter().map(|r| &r.matches).filter(|&m| seen.insert(m)));
        assert_eq!((set.len(), first.len()), (200, 150), "{profile}");
        assert!(
            first.iter().zip(&plain).all(|(&m, rule)| *m == rule.matches),
            "{profile}: in the same order"
        );
        assert!(set.iter().map(|r| r.priority.0).eq((1..=200).rev()), "{profile}");
    }
    let all = rules(Profile::Acl, 5, |c| c.duplicates = 1.0);
    assert!(all.len() == 5 && all.iter().all(|r| r.matches == all[0].matches));
    assert!(rules(Profile::Cuts, 0, |c| c.duplicates = 0.5).is_empty());
    let wrong = RuleConfig { duplicates: -0.1, ..RuleConfig::new(Profile::Acl, 5) };
    assert!(matches!(generate_rules(&wrong), Err(RuleSetError::Range { parameter: "duplicates", .. })));
}

#[test]
fn ranges_have_few_pairs_of_addresses_and_ranges_of_both_ports() {
    let set = matches(Profile::Ranges, 10_000);
    assert!(distinct(&set, |m| [m.get(Field::Ipv4Src), m.get(Field::Ipv4Dst)]) <= 20);
    assert!(share(&set, |m| m.tp_src_range().is_some() && m.tp_dst_range().is_some()) > 0.7);
    assert!(share(&set, |m| m.expand_ranges().len() > 16) > 0.7);
}

#[test]
fn groups_have_few_blocks_and_many_ports() {
    let set = matches(Profile::Groups, 10_000);
    let blocks = [Field::Ipv4Src, Field::Ipv4Dst].map(|f| distinct(&set, |m| m.get(f)));
    assert!(blocks.iter().all(|n| (15..=24).contains(n)), "{blocks:?}");
    assert!(distinct(&set, |m| ports(m, Field::TpDst)) > 2000);
    assert!([1, 6, 17].iter().all(|&p| share(&set, |m| m.get(Field::NwProto) == (p, 0xff)) > 0.01));
}

#[test]
fn a_block_list_drops_sources() {
    let set = rules(Profile::Blocklist, 10_000, |_| ());
    assert!(set.iter().all(|rule| rule.actions.is_empty()));
    let set: Vec<Match> = set.into_iter().map(|rule| rule.matches).collect();
    assert!(set.iter().all(|m| m.words().len() == 2 && matches!(ipv4_len(m, Field::Ipv4Src), 24 | 32)));
    let networks = share(&set, |m| ipv4_len(m, Field::Ipv4Src) == 24);
    assert!((0.03..0.05).contains(&networks), "{networks}");
}

#[test]
fn ipv6_clusters_in_allocations_sites_and_subnets() {
    let set = matches(Profile::Acl6, 10_000);
    assert!(set.iter().all(|m| m.get(Field::EthType) == (IPV6, 0xffff)));
    let hosts: Vec<Match> =
        set.iter().filter(|m| prefix_len(m, Field::Ipv6Dst) == Some(128)).cloned().collect();
    let count = |len: u32| distinct(&hosts, |m| m.get(Field::Ipv6Dst).0 >> (128 - len));
    let counts = [32, 48, 64, 128].map(count);
    assert!(counts.is_sorted() && counts[2] * 2 < counts[3] && counts[0] * 3 < counts[2], "{counts:?}");
    assert!(counts[0] > 20, "{counts:?}");
    for field in [Field::Ipv6Src, Field::Ipv6Dst] {
        assert!(set.iter().all(|m| prefix_len(m, field).is_some()));
        assert!(
            [32, 48, 64, 128].iter().all(|&len| share(&set, |m| prefix_len(m, field) == Some(len)) > 0.02)
        );
    }
}

#[test]
fn mixed_rules_are_of_both_versions() {
    let set = matches(Profile::Mixed, 10_000);
    let four = share(&set, |m| m.get(Field::EthType).0 == IPV4);
    assert!((0.57..0.63).contains(&four), "{four}");
}

#[test]
fn masks_are_hundreds() {
    let set = matches(Profile::Masks, 10_000);
    assert!(distinct(&set, |m| [Field::Ipv4Src, Field::Ipv4Dst].map(|f| ipv4_len(m, f))) > 1000);
    assert!(distinct(&set, shape_key) > 3000);
    let small = matches(Profile::Masks, 1000);
    assert!(distinct(&small, shape_key) > 200);
}

#[test]
fn nested_prefixes_are_chains_of_all_lengths() {
    for count in [100, 10_000] {
        let set = matches(Profile::Nested, count);
        // The longest chain that ends in each rule without ports of equal lengths, by what it lies in.
        let square: Vec<&Match> = set
            .iter()
            .filter(|m| ipv4_len(m, Field::Ipv4Src) == ipv4_len(m, Field::Ipv4Dst))
            .filter(|m| m.mask().word(word::PORTS) == 0)
            .collect();
        let depth = |inner: &Match| square.iter().filter(|outer| inner.is_within(outer)).count();
        let hosts = square.iter().filter(|m| ipv4_len(m, Field::Ipv4Src) == 32);
        let deepest = hosts.map(|m| depth(m)).max();
        assert!(deepest >= Some(30), "{count}: {deepest:?}");
    }
}

#[test]
fn disjoint_rules_share_no_packet() {
    for count in [2, 500] {
        let set = matches(Profile::Disjoint, count);
        assert_eq!(overlapping(&set), 0.0, "{count}");
    }
    let set = matches(Profile::Disjoint, 10_000);
    assert!(share(&set, |m| m.tp_src_range().is_some() || m.tp_dst_range().is_some()) > 0.5);
}

#[test]
fn adversarial_rules_overlap() {
    let shares = [Profile::Overlap, Profile::Cuts, Profile::Chains, Profile::Acl]
        .map(|profile| overlapping(&matches(profile, 300)));
    assert!(shares[0] > 0.8 && (0.4..0.6).contains(&shares[1]) && shares[2] > 0.35, "{shares:?}");
    assert!(shares[3] < 0.05, "{shares:?}");
}

#[test]
fn overlapping_rules_are_wild_in_nearly_everything() {
    for m in matches(Profile::Overlap, 10_000) {
        assert!([Field::Ipv4Src, Field::Ipv4Dst].iter().all(|&f| ipv4_len(&m, f) <= 3), "{m:?}");
        for field in [Field::TpSrc, Field::TpDst] {
            let (low, high) = ports(&m, field);
            assert!(low < 24_576 && high >= 40_960, "{m:?}");
        }
    }
}

#[test]
fn cuts_are_crossed_by_rules_of_the_other_dimension() {
    let set = matches(Profile::Cuts, 10_000);
    let lens = |m: &Match| (ipv4_len(m, Field::Ipv4Src), ipv4_len(m, Field::Ipv4Dst));
    assert!(set.iter().all(|m| matches!(lens(m), (24, 0) | (0, 24))));
    let sources = share(&set, |m| lens(m) == (24, 0));
    assert!((0.49..0.51).contains(&sources), "{sources}");
    let mut straddled: HashMap<u16, usize> = HashMap::new();
    for m in &set {
        for (low, high) in [Field::TpSrc, Field::TpDst].map(|f| ports(m, f)) {
            let inside = |power: &u16| (low, high) != (0, u16::MAX) && (low..high).contains(&(power - 1));
            (1..16).map(|k| 1u16 << k).filter(inside).for_each(|p| *straddled.entry(p).or_default() += 1);
        }
    }
    assert!(straddled.len() == 15 && straddled.values().all(|&n| n > 200), "{straddled:?}");
}

#[test]
fn chains_differ_in_ranges_only() {
    let set = matches(Profile::Chains, 10_000);
    assert!(set.iter().all(|m| m.words() == set[0].words()));
    assert!(set.iter().all(|m| m.tp_src_range().is_some() && m.tp_dst_range().is_some()));
}

/// So that a family that is exhausted ends, and says so.
#[test]
fn more_rules_than_there_are_is_refused() {
    struct One;
    impl crate::generate::families::Family for One {
        fn draw(&mut self, _: u32, _: &mut crate::generate::Random) -> Option<Match> {
            Some(Match::any())
        }
    }
    let got = crate::generate::families::draw_set(&mut One, 2, 1);
    assert_eq!(got, Err(RuleSetError::Rules { wanted: 2, made: 1 }));
}
