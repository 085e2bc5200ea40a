use flowlane::generate::Trace;
use flowlane::generate::{Profile, Random, RuleConfig, TraceConfig, draw_key, generate_rules};

use super::*;

fn generated(profile: Profile, rules: usize, packets: usize, seed: u64) -> (Vec<Match>, Vec<FlowKey>) {
    let rules = generate_rules(&RuleConfig { seed, ..RuleConfig::new(profile, rules) }).unwrap();
    let trace = Trace::generate(&rules, &TraceConfig { seed, ..TraceConfig::new(packets) }).unwrap();
    (in_order(&rules), trace.keys().cloned().collect())
}

fn assert_agrees(workload: &Workload) {
    let linear = |key: &FlowKey| workload.rules.iter().position(|rule| rule.matches(key)).map(|n| n as u32);
    let own = Own::new(&mut workload.tables.space.clone());
    let mut batch = vec![None; workload.packets.len()];
    workload.tables.lookup_batch(&workload.packets, &mut batch);
    for (n, key) in workload.packets.iter().enumerate() {
        let rule = linear(key);
        assert_eq!(workload.expected[n], rule, "packet {n}");
        assert_eq!(workload.tables.lookup(key), rule, "packet {n}");
        assert_eq!(batch[n], rule, "packet {n}");
        for all in [false, true] {
            let search = workload.tables.search(key, (n as u64, own.key(n as u64)), rule, all).unwrap();
            assert!(search.asked <= search.tables.len() && search.rule == rule);
            assert!(!all || search.tables.len() == workload.tables.len());
        }
    }
}

#[test]
fn tables_by_mask_answer_as_linear_search_does() {
    for (profile, seed) in [(Profile::Acl, 1), (Profile::Fw, 2), (Profile::Ipc, 3)] {
        let (rules, packets) = generated(profile, 400, 700, seed);
        let workload = Workload::new("", rules, packets, seed).unwrap();
        assert!(workload.tables.len() > 4, "{profile:?}");
        assert_eq!(workload.tables.sizes().iter().sum::<usize>(), workload.rules.len());
        assert_agrees(&workload);
    }
}

#[test]
fn scaled_rules_and_packets_answer_as_linear_search_does() {
    let (rules, packets) = generated(Profile::Acl, 300, 300, 7);
    let some = sampled(&rules, 40, 1);
    assert_eq!(some.len(), 40);
    assert_agrees(&Workload::new("", some, packets.clone(), 1).unwrap());
    let masks = |rules: &[Match]| Workload::new("", rules.to_vec(), packets.clone(), 1).unwrap().tables.len();
    let (more, moved) = copied(&rules, &packets, 4, 1);
    assert!(more.len() > 3 * rules.len(), "{}", more.len());
    assert_eq!(masks(&more), masks(&rules));
    let copies = Workload::new("", more, moved, 1).unwrap();
    assert_agrees(&copies);
    // Packets match copies of the rules that they matched.
    let before = Workload::new("", rules.clone(), packets.clone(), 1).unwrap();
    assert!(copies.misses() <= before.misses());
    assert_eq!(masks(&with_masks(&rules, 3)), 3);
    let wider = narrowed(&rules, 2);
    assert!(masks(&wider) > masks(&rules));
    assert_agrees(&Workload::new("", wider, packets.clone(), 1).unwrap());
}

#[test]
fn rules_of_many_words_and_overlapping_ranges_are_no_other_rules() {
    use flowlane::packet::fields::Field;
    let mut random = Random::new(5);
    let mut rules = Vec::new();
    for _ in 0..60 {
        let mut rule = Match::any();
        rule.set(Field::NwProto, 6 + 11 * u128::from(random.below(2)));
        let low = random.port(0, 60_000);
        rule.set_range(Field::TpDst, low, random.port(low, 65_535));
        if random.chance(0.3) {
            rule.set_range(Field::TpSrc, 1, 1 + random.port(0, 50_000));
        }
        if random.chance(0.2) {
            rule.set(Field::Ipv6Src, random.bits().into()).set(Field::Ipv6Dst, u128::from(random.below(3)));
        }
        rules.push(rule);
    }
    rules.push(Match::any());
    let packets = (0..500).map(|_| draw_key(&rules[random.index(rules.len())], &mut random)).collect();
    let workload = Workload::new("", rules, packets, 3).unwrap();
    assert!(workload.tables.words().len() > 8);
    assert!(workload.tcam_entries() > 200 && workload.tcam_bits() > 250);
    assert_agrees(&workload);
}

#[test]
fn invalid_workloads_are_rejected_with_a_reason() {
    let (rules, packets) = generated(Profile::Acl, 20, 20, 1);
    assert_eq!(Workload::new("", vec![], packets.clone(), 1).unwrap_err(), WorkloadError::NoRules);
    assert_eq!(Workload::new("", rules, vec![], 1).unwrap_err(), WorkloadError::NoPackets);
    let mut wide = Match::any();
    (0..20).for_each(|word| _ = wide.set_word(word, 1, 1));
    let error = Workload::new("", vec![wide], packets, 1).unwrap_err();
    assert_eq!(error, WorkloadError::Wide { rule: 0, words: 20 });
}

#[test]
fn another_rule_than_the_expected_one_is_a_mismatch() {
    let (rules, packets) = generated(Profile::Acl, 50, 50, 1);
    let workload = Workload::new("", rules, packets, 1).unwrap();
    let at = Own::new(&mut workload.tables.space.clone()).key(0);
    let error = workload.tables.search(&workload.packets[0], (0, at), Some(77_777), true).unwrap_err();
    assert_eq!((error.lookup, error.library), (0, Some(77_777)));
}
