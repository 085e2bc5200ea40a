use super::hash_rules;
use crate::generate::assemble::shape_key;
use crate::generate::{Profile, RuleConfig, RuleSetError, generate_rules};
use crate::packet::Field;
use crate::packet::fields::word;
use crate::rule::{Match, Priority, Rule};
use std::collections::HashSet;

/// The profiles that have a choice of masks and overlap.
const SHAPED: [Profile; 4] = [Profile::Acl, Profile::Fw, Profile::Ipc, Profile::OpenFlow];

pub(super) fn rules(profile: Profile, count: usize, change: impl FnOnce(&mut RuleConfig)) -> Vec<Rule> {
    let mut config = RuleConfig::new(profile, count);
    change(&mut config);
    generate_rules(&config).expect("a rule set")
}

fn masks(rules: &[Rule]) -> usize {
    rules.iter().map(|r| shape_key(&r.matches)).collect::<HashSet<_>>().len()
}

/// Returns whether every packet of `inner` is one of `outer`.
fn contains(outer: &Match, inner: &Match) -> bool {
    let key = inner.key();
    let bits = |m: &Match| {
        m.words().iter().fold(Match::any(), |mut o, w| {
            o.set_word(w.word.into(), w.value, w.mask);
            o
        })
    };
    let (outer_mask, inner_mask) = (bits(outer).mask(), bits(inner).mask());
    let words = outer_mask.present_words().all(|w| {
        let ports = w == word::PORTS && (inner.tp_src_range().is_some() || inner.tp_dst_range().is_some());
        let (outer_bits, differ) = (outer_mask.word(w), key.word(w) ^ outer.key().word(w));
        ports || (outer_bits & !inner_mask.word(w) == 0 && differ & outer_bits == 0)
    });
    let range = |m: &Match, field| match (field, m.tp_src_range(), m.tp_dst_range()) {
        (Field::TpSrc, Some(r), _) | (Field::TpDst, _, Some(r)) => (r.low(), r.high()),
        _ => {
            let (value, mask) = m.get(field);
            (value as u16, value as u16 | !(mask as u16))
        }
    };
    words
        && [Field::TpSrc, Field::TpDst].into_iter().all(|field| {
            let (a, b) = (range(outer, field), range(inner, field));
            a.0 <= b.0 && b.1 <= a.1
        })
}

/// The share of rules that lie inside another.
fn nested_share(rules: &[Rule]) -> f64 {
    let inside =
        |i: usize| (0..rules.len()).any(|j| i != j && contains(&rules[j].matches, &rules[i].matches));
    (0..rules.len()).filter(|&i| inside(i)).count() as f64 / rules.len() as f64
}

#[test]
fn rule_sets_never_change() {
    let recorded = [
        (Profile::Acl, 14017120797855805629),
        (Profile::Fw, 11950528443687748148),
        (Profile::Ipc, 4017079646112349907),
        (Profile::OpenFlow, 10169795267007821017),
    ];
    let got = recorded.map(|(profile, _)| (profile, hash_rules(&rules(profile, 500, |c| c.seed = 7))));
    assert_eq!(got, recorded);
}

#[test]
fn another_seed_gives_other_rules() {
    for profile in Profile::ALL {
        assert_ne!(rules(profile, 50, |c| c.seed = 1), rules(profile, 50, |c| c.seed = 2), "{profile}");
    }
}

#[test]
fn every_rule_is_different_and_the_first_is_the_most_important() {
    for profile in Profile::ALL {
        let set = rules(profile, 2000, |_| ());
        assert_eq!(set.iter().map(|r| &r.matches).collect::<HashSet<_>>().len(), 2000, "{profile}");
        let want: Vec<_> = (1..=2000).rev().map(Priority).collect();
        assert_eq!(set.iter().map(|r| r.priority).collect::<Vec<_>>(), want, "{profile}");
    }
}

#[test]
fn no_rule_stands_before_one_that_lies_inside_it() {
    for profile in SHAPED {
        let set = rules(profile, 400, |c| c.overlap = Some(0.8));
        for (i, rule) in set.iter().enumerate() {
            let hidden = set[i + 1..].iter().position(|later| contains(&rule.matches, &later.matches));
            assert_eq!(hidden, None, "{profile} rule {i}");
        }
    }
}

#[test]
fn there_are_as_many_masks_as_asked_for() {
    for profile in SHAPED {
        for (count, wanted) in [(1, 1), (100, 1), (1000, 2), (1000, 7), (1000, 20), (1000, 300), (3000, 1500)]
        {
            for overlap in [0.0, 0.5] {
                let set = rules(profile, count, |c| {
                    c.masks = Some(wanted);
                    c.overlap = Some(overlap);
                });
                assert_eq!((set.len(), masks(&set)), (count, wanted), "{profile} overlap {overlap}");
            }
        }
    }
}

#[test]
fn impossible_parameters_are_refused() {
    let masks = RuleConfig { masks: Some(11), ..RuleConfig::new(Profile::Acl, 10) };
    assert_eq!(generate_rules(&masks), Err(RuleSetError::Masks { wanted: 11, possible: 10 }));
    let overlap = RuleConfig { overlap: Some(1.5), ..RuleConfig::new(Profile::Fw, 10) };
    assert!(matches!(generate_rules(&overlap), Err(RuleSetError::Range { parameter: "overlap", .. })));
    let nan = RuleConfig { overlap: Some(f64::NAN), ..RuleConfig::new(Profile::Fw, 10) };
    assert!(matches!(generate_rules(&nan), Err(RuleSetError::Range { .. })));
    assert_eq!(generate_rules(&RuleConfig::new(Profile::Ipc, 0)), Ok(Vec::new()));
    assert!("acl2".parse::<Profile>().is_err());
}

#[test]
fn more_overlap_nests_more_rules() {
    for profile in SHAPED {
        // Many small sets: a rule that happens to match nearly everything holds all others of its set.
        let set = |seed, overlap| rules(profile, 100, |c| (c.seed, c.overlap) = (seed, Some(overlap)));
        let share = |overlap| (0..40).map(|seed| nested_share(&set(seed, overlap))).sum::<f64>() / 40.0;
        let shares = [0.0, 0.3, 0.6, 0.9].map(share);
        assert!(shares.is_sorted(), "{profile} {shares:?}");
        assert!(shares[3] > shares[0] + 0.15, "{profile} {shares:?}");
    }
}

#[test]
fn profiles_have_the_measured_shares() {
    // Percent of rules: TCP, UDP, exact destination port, both prefixes longer than /8; ± 4.
    for (profile, want) in
        [(Profile::Acl, [87, 1, 61, 97]), (Profile::Fw, [57, 33, 61, 11]), (Profile::Ipc, [28, 38, 36, 78])]
    {
        let set = rules(profile, 10_000, |c| c.overlap = Some(0.0));
        let share = |f: &dyn Fn(&Match) -> bool| set.iter().filter(|r| f(&r.matches)).count() / 100;
        let long = |m: &Match, field| m.get(field).1.count_ones() > 8;
        let got = [
            share(&|m| m.get(Field::NwProto) == (6, 0xff)),
            share(&|m| m.get(Field::NwProto) == (17, 0xff)),
            share(&|m| m.tp_dst_range().is_none() && m.get(Field::TpDst).1 == 0xffff),
            share(&|m| long(m, Field::Ipv4Src) && long(m, Field::Ipv4Dst)),
        ];
        let near = got.iter().zip(want).all(|(&g, w)| g.abs_diff(w) <= 4);
        assert!(near, "{profile}: {got:?}, measured {want:?}");
    }
}

#[test]
fn rules_have_what_their_fields_need() {
    for profile in SHAPED {
        for rule in rules(profile, 2000, |c| c.overlap = Some(0.6)) {
            let m = &rule.matches;
            let looks_at = |field| m.mask().get(field) != 0;
            let ip =
                [Field::Ipv4Src, Field::Ipv4Dst, Field::NwProto, Field::IpDscp].into_iter().any(looks_at);
            assert!(!ip || m.get(Field::EthType) == (0x0800, 0xffff), "{m:?}");
            let ports = looks_at(Field::TpSrc) || looks_at(Field::TpDst);
            assert!(!ports || matches!(m.get(Field::NwProto), (6 | 17, 0xff)), "{m:?}");
            assert!(!looks_at(Field::VlanPcp) || m.get(Field::VlanTci).0 & 0x1000 != 0, "{m:?}");
        }
    }
}
