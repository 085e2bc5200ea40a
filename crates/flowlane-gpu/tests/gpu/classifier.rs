//! Rules for flow keys: the device and the CPU give the answers of linear search.

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{Hit, LinearSearch, RuleEngine};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::{Changes, Device, GpuConfig, GpuError, GpuSearch, Method, Rebuild, SessionConfig};

use crate::host_device::on_host_device;

fn config(method: Option<Method>) -> GpuConfig {
    let session = SessionConfig { batch_max: 128, slots: 2, graphs: false };
    let list = AclConfig { threads: 1, seed: 0x5eed, ..AclConfig::default() };
    GpuConfig { method, session, list, changes: Changes { overlay_max: 1, rebuild: Rebuild::Manual } }
}

/// Rules of a profile with priorities that repeat, and packets of which most hit.
fn set(profile: Profile, count: usize) -> (Vec<(RuleId, Priority, Match)>, Vec<FlowKey>) {
    let generated = generate_rules(&RuleConfig::new(profile, count)).expect("a profile");
    let rule =
        |(i, rule): (usize, flowlane::rule::Rule)| (RuleId(i as u32), Priority(i as u32 % 3), rule.matches);
    let rules: Vec<_> = generated.into_iter().enumerate().map(rule).collect();
    let mut random = Random::new(7);
    let mut keys: Vec<FlowKey> =
        (0..400).map(|_| draw_key(&rules[random.index(rules.len())].2, &mut random)).collect();
    // Not IPv4, on which all rules match.
    keys.push(FlowKey::zero());
    (rules, keys)
}

fn borrowed(rules: &[(RuleId, Priority, Match)]) -> impl Iterator<Item = (RuleId, Priority, &Match)> {
    rules.iter().map(|(id, priority, matches)| (*id, *priority, matches))
}

fn linear(rules: &[(RuleId, Priority, Match)]) -> LinearSearch {
    let mut table = LinearSearch::new(rules.len() + 1);
    borrowed(rules).for_each(|(id, priority, m)| table.insert(id, priority, m).expect("room"));
    table
}

fn answers(table: &dyn RuleEngine, keys: &[FlowKey]) -> Vec<Option<Hit>> {
    let mut hits = vec![None; keys.len()];
    table.lookup_batch(keys, &mut hits);
    hits
}

#[test]
fn generated_sets_get_the_answers_of_linear_search_by_every_method() {
    on_host_device("generated_sets_get_the_answers_of_linear_search_by_every_method", "", || {
        let device = Device::open(0).expect("the host device");
        for profile in [Profile::Acl, Profile::Fw, Profile::Ipc] {
            let (rules, keys) = set(profile, 60);
            let expected = answers(&linear(&rules), &keys);
            for method in Method::ALL.map(Some).into_iter().chain([None]) {
                let built = GpuSearch::build(device.clone(), config(method), borrowed(&rules), &keys);
                let table = built.expect("it fits");
                assert_eq!(answers(&table, &keys), expected, "{method:?}, {}", profile.name());
                assert!(method.is_none() || table.method() == method);
                assert_eq!(table.failure(), None);
            }
        }
    });
}

#[test]
fn changes_count_at_once_and_are_on_the_device_when_published() {
    on_host_device("changes_count_at_once_and_are_on_the_device_when_published", "", || {
        let device = Device::open(0).expect("the host device");
        let (mut rules, keys) = set(Profile::Acl, 40);
        let built = GpuSearch::build(device, config(Some(Method::Pruned)), borrowed(&rules), &keys);
        let mut table = built.expect("it fits");
        assert!(table.remove(rules.remove(3).0));
        let mut all = Match::any();
        all.set(Field::EthType, 0x0800);
        rules.push((RuleId(900), Priority(2), all));
        table.insert(RuleId(900), Priority(2), &rules.last().expect("pushed").2).expect("room");
        let expected = answers(&linear(&rules), &keys);
        assert_eq!(table.method(), None, "the CPU answers");
        assert_eq!(answers(&table, &keys), expected);
        table.publish(&keys).expect("it fits");
        assert_eq!(table.method(), Some(Method::Pruned));
        assert_eq!(answers(&table, &keys), expected);
        assert_eq!(table.failure(), None);
    });
}

#[test]
fn a_device_that_disappears_makes_lookups_slower_and_not_wrong() {
    on_host_device("a_device_that_disappears_makes_lookups_slower_and_not_wrong", "vanish=5", || {
        let device = Device::open(0).expect("the host device");
        let (rules, keys) = set(Profile::Fw, 40);
        let expected = answers(&linear(&rules), &keys);
        // Without a method, the device would be measured, which fails.
        let built = GpuSearch::build(device, config(Some(Method::Filtered)), borrowed(&rules), &keys[..2]);
        let table = built.expect("it fits");
        assert_eq!(answers(&table, &keys), expected, "four batches, of which the device gives two");
        assert!(matches!(table.failure(), Some(GpuError::Device { .. })));
        assert_eq!(answers(&table, &keys), expected);
    });
}
