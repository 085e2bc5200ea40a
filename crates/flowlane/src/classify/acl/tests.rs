//! Tests of layouts and conditions.

use super::*;
use crate::classify::{Hit, LinearSearch, RuleEngine};
use crate::generate::{Profile, Random, RuleConfig, Trace, TraceConfig, generate_rules};
use crate::packet::Field;
use crate::packet::batch::LaneMask;
use crate::packet::key::FlowKey;
use crate::rule::{Match, Priority, RuleId};

fn field(name: &str, offset: usize, bytes: usize, kind: FieldKind) -> FieldSpec {
    FieldSpec { name: name.to_owned(), offset, bytes, kind }
}

#[test]
fn fields_of_any_width_match_as_their_bytes_do() {
    let widths = [1, 2, 3, 4, 5, 6, 7, 8, 11, 16];
    let mut random = Random::new(1);
    for bytes in widths {
        let layout =
            Layout::<8>::new(&[field("a", 1, 1, FieldKind::Range), field("b", 3, bytes, FieldKind::Ternary)])
                .unwrap();
        for _ in 0..500 {
            let ones = u128::MAX >> (128 - 8 * bytes as u32);
            let wide = |r: &mut Random| (u128::from(r.bits()) << 64 | u128::from(r.bits())) & ones;
            let mask = wide(&mut random) & wide(&mut random) & wide(&mut random);
            let (value, low) = (wide(&mut random), random.below(256) as u8);
            let high = random.below(256) as u8;
            let (low, high) = (low.min(high), low.max(high));
            let asked = [(1, Value::Masked(value, mask)), (0, Value::Range(low.into(), high.into()))];
            let condition = layout.condition(&asked).unwrap();
            let mut record = vec![0; layout.record_bytes()];
            record.iter_mut().for_each(|b| *b = random.bits() as u8);
            let same = random.chance(0.5);
            let b = wide(&mut random);
            let b = if same { value & mask | b & !mask } else { b };
            record[3..3 + bytes].copy_from_slice(&b.to_be_bytes()[16 - bytes..]);
            let expected = b & mask == value & mask && (low..=high).contains(&record[1]);
            assert_eq!(condition.matches(layout.kinds(), &layout.key(&record)), expected, "{bytes} bytes");
        }
    }
}

#[test]
fn ranges_of_every_width_include_their_ends() {
    for bytes in 1..=4 {
        let layout = Layout::<2>::new(&[field("r", 0, bytes, FieldKind::Range)]).unwrap();
        let max = (1u64 << (8 * bytes)) - 1;
        let condition = layout.condition(&[(0, Value::Range(3, u128::from(max - 1)))]).unwrap();
        for (value, expected) in [(0, false), (2, false), (3, true), (max - 1, true), (max, false)] {
            let key = layout.key(&value.to_be_bytes()[8 - bytes..]);
            assert_eq!(condition.matches(layout.kinds(), &key), expected, "{value} of {bytes} bytes");
        }
        let any = layout.condition(&[]).unwrap();
        assert!(any.matches(layout.kinds(), &layout.key(&[0xff; 4])));
        let exact = layout.condition(&[(0, Value::Exact(7))]).unwrap();
        assert!(exact.matches(layout.kinds(), &layout.key(&7u64.to_be_bytes()[8 - bytes..])));
        assert!(!exact.matches(layout.kinds(), &layout.key(&8u64.to_be_bytes()[8 - bytes..])));
    }
}

#[test]
fn unsuitable_values_are_refused_with_the_field_name() {
    let layout = Layout::<4>::new(&[
        field("proto", 0, 1, FieldKind::Exact),
        field("src", 1, 4, FieldKind::Prefix),
        field("port", 5, 2, FieldKind::Range),
    ])
    .unwrap();
    let refused = |number, value| layout.condition(&[(number, value)]).unwrap_err().to_string();
    assert!(refused(0, Value::Exact(256)).contains("does not fit into field `proto` of 1 bytes"));
    assert!(refused(0, Value::Masked(0, 0xf0)).contains("declared Exact"));
    assert!(refused(1, Value::Masked(0, 0xff00_ff00)).contains("declared Prefix"));
    assert!(refused(1, Value::Prefix(0, 33)).contains("src"));
    assert!(
        refused(2, Value::Range(443, 80))
            .contains("443-80 of field `port` is empty; write the smaller value first")
    );
    assert!(refused(3, Value::Exact(0)).contains("no field number 3"));
    assert!(matches!(
        Layout::<4>::new(&[field("wide", 0, 5, FieldKind::Range)]),
        Err(LayoutError::Width { bytes: 5, .. })
    ));
    let many: Vec<_> = (0..5).map(|i| field("f", 4 * i, 4, FieldKind::Exact)).collect();
    assert_eq!(Layout::<4>::new(&many).unwrap_err(), LayoutError::Words { needed: 5, words: 4 });
}

#[test]
fn the_predefined_layouts_have_their_fields() {
    assert_eq!((Layout::openflow_12().words(), Layout::openflow_12().record_bytes()), (9, 35));
    let layout = Layout::ipv4_five_tuple();
    let mut matches = Match::any();
    matches.set_masked(Field::Ipv4Src, 0x0a00_0000, 0xff00_0000).set(Field::NwProto, 6);
    matches.set_range(Field::TpDst, 1024, 65535).set_range(Field::TpSrc, 80, 80);
    let condition = layout.flow_condition(&matches).unwrap();
    let mut key = FlowKey::zero();
    for (field, value) in
        [(Field::Ipv4Src, 0x0a01_0203), (Field::NwProto, 6), (Field::TpSrc, 80), (Field::TpDst, 1024)]
    {
        key.set(field, value);
    }
    assert!(condition.matches(layout.kinds(), &layout.flow_key(&key)));
    key.set(Field::TpDst, 1023);
    assert!(!condition.matches(layout.kinds(), &layout.flow_key(&key)));
    matches.set(Field::InPort, 1);
    assert_eq!(layout.flow_condition(&matches).unwrap_err(), ValueError::NotInLayout(0));
}

#[test]
fn the_test_sets_hit_and_miss() {
    let (entries, keys) = testing::generated(Profile::Fw, 300, 1000, 1);
    let kinds = *Layout::ipv4_five_tuple().kinds();
    let hits = keys.iter().filter(|k| best(&entries, &kinds, k, 0).is_some()).count();
    assert!((800..=1000).contains(&hits), "{hits}");
    let kinds = [WordKind::Ternary, WordKind::Range32, WordKind::Range16];
    let (entries, keys) = testing::overlapping(&kinds, 6, 1000, 1);
    let hits = keys.iter().filter(|k| best(&entries, &kinds, k, 0).is_some()).count();
    assert!((50..1000).contains(&hits), "{hits}");
}

#[test]
fn a_published_set_hits() {
    let Some((entries, keys)) = testing::published("acl1_1k", 200) else { return };
    let kinds = *Layout::ipv4_five_tuple().kinds();
    assert!(keys.iter().filter(|k| best(&entries, &kinds, k, 0).is_some()).count() >= 180);
}

/// Calls of few results have room of their own, and others that of a batch: around the limit, by keys and by lanes.
#[test]
fn calls_of_any_number_of_keys_find_the_rules_of_linear_search() {
    let rules = generate_rules(&RuleConfig { seed: 3, ..RuleConfig::new(Profile::Acl, 60) }).unwrap();
    let trace = Trace::generate(&rules, &TraceConfig { seed: 4, ..TraceConfig::new(64) }).unwrap();
    let keys: Vec<FlowKey> = trace.keys().cloned().collect();
    let mut linear = LinearSearch::new(rules.len());
    let mut list =
        AclSearch::build(AclConfig::default(), std::iter::empty::<(RuleId, Priority, &Match)>()).unwrap();
    for (n, rule) in (0..).zip(&rules) {
        linear.insert(RuleId(n), rule.priority, &rule.matches).unwrap();
        list.insert(RuleId(n), rule.priority, &rule.matches).unwrap();
    }
    let expected: Vec<_> = keys.iter().map(|key| linear.lookup(key)).collect();
    assert!(expected.iter().flatten().count() > 16);
    for len in (0..=2 * FEW + 2).chain([keys.len()]) {
        let mut hits = vec![None; len];
        list.lookup_batch(&keys[..len], &mut hits);
        assert_eq!(hits, expected[..len], "{len} keys");
        // Every third lane, from the last one on.
        let lanes: Vec<usize> = (0..keys.len()).rev().step_by(3).take(len).collect();
        let mut hits = vec![Some(Hit { rule: RuleId(u32::MAX), priority: Priority(0) }); keys.len()];
        list.lookup_lanes(&keys, LaneMask(lanes.iter().map(|lane| 1 << lane).sum()), &mut hits);
        for (lane, hit) in hits.iter().enumerate() {
            let asked = lanes.contains(&lane);
            assert_eq!(*hit == expected[lane], asked, "{len} keys, lane {lane}: {hit:?}");
        }
    }
}
