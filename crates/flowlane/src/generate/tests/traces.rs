use super::hash;
use crate::generate::{
    Locality, Profile, Random, RuleConfig, Trace, TraceConfig, TraceError, draw_key, generate_rules,
};
use crate::packet::Field;
use crate::packet::fields::word;
use crate::packet::key::FlowKey;
use crate::rule::{Match, Rule, RuleId};
use std::collections::HashMap;

fn rules(profile: Profile, count: usize) -> Vec<Rule> {
    generate_rules(&RuleConfig::new(profile, count)).expect("a rule set")
}

fn trace(rules: &[Rule], packets: usize, change: impl FnOnce(&mut TraceConfig)) -> Trace {
    let mut config = TraceConfig::new(packets);
    change(&mut config);
    Trace::generate(rules, &config).expect("a trace")
}

fn hash_trace(trace: &Trace) -> u64 {
    hash(trace.packets().flat_map(|flow| {
        let rule = flow.rule.map_or(u64::MAX, |r| r.0.into());
        let words = (0..64).map(|number| u64::from(flow.key.word(word::of_number(number))));
        words.chain([rule]).collect::<Vec<_>>()
    }))
}

#[test]
fn traces_never_change() {
    let set = rules(Profile::Fw, 200);
    let got = ["uniform", "zipf:1.1", "pareto:1,0.1"].map(|locality| {
        let fresh = trace(&set, 300, |c| {
            c.locality = locality.parse().expect(locality);
            c.miss = 0.2;
        });
        let shared = trace(&set, 300, |c| {
            c.locality = locality.parse().expect(locality);
            c.flows = Some(50);
        });
        (hash_trace(&fresh), hash_trace(&shared))
    });
    assert_eq!(
        got,
        [
            (455666785800239310, 8022613997914218315),
            (7596020687106482252, 17254427786192317399),
            (7011653427826363362, 2795911359938381086)
        ]
    );
}

#[test]
fn keys_match_the_rule_they_were_drawn_from_or_none() {
    for profile in Profile::ALL {
        let set = rules(profile, 1000);
        let trace = trace(&set, 3000, |c| c.miss = 0.25);
        let mut misses = 0;
        for flow in trace.packets() {
            match flow.rule {
                Some(rule) => assert!(set[rule.0 as usize].matches.matches(&flow.key), "{profile} {rule:?}"),
                None => {
                    misses += 1;
                    assert!(!set.iter().any(|r| r.matches.matches(&flow.key)), "{profile} {:?}", flow.key);
                }
            }
        }
        assert!((650..850).contains(&misses), "{profile} {misses}");
    }
}

#[test]
fn keys_have_a_protocol_with_ports_where_the_rule_looks_at_ports() {
    let mut random = Random::new(3);
    let mut m = Match::any();
    m.set_range(Field::TpDst, 100, 200).set_masked(Field::NwProto, 0x10, 0x10);
    for _ in 0..100 {
        let key = draw_key(&m, &mut random);
        assert_eq!((key.get(Field::EthType), key.get(Field::NwProto)), (0x0800, 17));
    }
    let mut v6 = Match::any();
    v6.set(Field::NdTarget, 1).set_masked(Field::Ipv6Src, 5 << 100, 7 << 100);
    let key = draw_key(&v6, &mut random);
    assert_eq!([Field::EthType, Field::NwProto, Field::IcmpType].map(|f| key.get(f)), [0x86dd, 58, 135]);
    let mut tagged = Match::any();
    tagged.set_masked(Field::VlanTci, 0x1000, 0x1000);
    let key = draw_key(&tagged, &mut random);
    assert!(key.get(Field::VlanVid) != 0 && key.get(Field::VlanTpid) == 0x8100);
}

#[test]
fn flows_are_distinct_and_as_many_as_asked_for() {
    let set = rules(Profile::Acl, 100);
    let trace = trace(&set, 20_000, |c| {
        c.flows = Some(500);
        c.locality = Locality::Zipf(1.0);
    });
    assert_eq!((trace.len(), trace.flows().len()), (20_000, 500));
    let words: std::collections::HashSet<_> = trace.flows().iter().map(|f| *f.key.words()).collect();
    assert_eq!(words.len(), 500);
    let mut counts = vec![0u32; 500];
    trace.order().iter().for_each(|&i| counts[i as usize] += 1);
    let harmonic: f64 = (1..=500).map(|r| 1.0 / f64::from(r)).sum();
    let want = 20_000.0 / harmonic;
    assert!((f64::from(counts[0]) - want).abs() < want / 10.0, "{} of {want}", counts[0]);
}

#[test]
fn zipf_without_flows_favours_rules() {
    let set = rules(Profile::Ipc, 100);
    let mut hits: HashMap<Option<RuleId>, u32> = HashMap::new();
    let trace = trace(&set, 20_000, |c| c.locality = Locality::Zipf(1.0));
    trace.packets().for_each(|f| *hits.entry(f.rule).or_default() += 1);
    let most = hits.values().max().copied().unwrap_or(0);
    assert!((3500..4200).contains(&most), "{most}"); // 20000 / H(100)
    assert_eq!(trace.flows().len(), 20_000);
}

#[test]
fn pareto_repeats_headers_in_a_row() {
    let set = rules(Profile::Fw, 100);
    let trace = trace(&set, 10_000, |c| c.locality = Locality::Pareto { a: 1.0, b: 1.0 });
    assert!(trace.order().is_sorted());
    assert!(trace.flows().len() < 5_000 && trace.len() == 10_000, "{}", trace.flows().len());
    let none = self::trace(&set, 1_000, |c| c.locality = Locality::Pareto { a: 1.0, b: 0.0 });
    assert_eq!(none.flows().len(), 1_000);
}

#[test]
fn what_the_rules_cannot_give_is_refused() {
    let everything = [Rule::new(Match::any(), Vec::new())];
    let missing = TraceConfig { miss: 0.5, ..TraceConfig::new(10) };
    assert_eq!(Trace::generate(&everything, &missing), Err(TraceError::NoMiss { rules: 1 }));
    assert_eq!(Trace::generate(&[], &TraceConfig::new(1)), Err(TraceError::NoRules));
    let all_miss = TraceConfig { miss: 1.0, ..TraceConfig::new(10) };
    assert_eq!(Trace::generate(&[], &all_miss).map(|t| t.len()), Ok(10));
    let wrong = TraceConfig { miss: -0.1, ..TraceConfig::new(10) };
    assert_eq!(Trace::generate(&everything, &wrong), Err(TraceError::Miss(-0.1)));
    let exact = [Rule::new(
        Match::from_key(&FlowKey::zero(), &{
            let mut all = crate::packet::FlowMask::zero();
            (0..64).for_each(|w| all.set_word(w, u32::MAX));
            all
        }),
        Vec::new(),
    )];
    let flows = TraceConfig { flows: Some(2), ..TraceConfig::new(10) };
    assert_eq!(Trace::generate(&exact, &flows), Err(TraceError::Flows { wanted: 2, made: 1 }));
}

#[test]
fn rules_that_match_all_ip_are_missed_by_another_ethertype() {
    let mut m = Match::any();
    m.set(Field::EthType, 0x0800);
    let mut v6 = Match::any();
    v6.set(Field::EthType, 0x86dd);
    let set = [Rule::new(m, Vec::new()), Rule::new(v6, Vec::new())];
    let trace = trace(&set, 10, |c| c.miss = 1.0);
    assert!(trace.keys().all(|k| k.get(Field::EthType) == 0x88b5));
}
