//! Conditions within each other and apart from keys, beside what follows from the definition alone.
//!
//! The conditions on two fields are independent. So a condition that some key fulfils is within
//! another if every key that fulfils it and differs from that one in a single field fulfils the other, too; all values of each
//! field are tried.

use proptest::prelude::*;

use super::*;

/// Fields that stand for all: they lie in different words, or in different halves of one.
const FIELDS: [(Field, u128); 5] = [
    (Field::TpSrc, 0xffff),
    (Field::TpDst, 0xffff),
    (Field::NwProto, 0xff),
    (Field::VlanTci, 0xffff),
    (Field::IcmpType, 0xff),
];

/// The condition on a field.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Nothing,
    Masked(u128, u128),
    /// Of ports only.
    Within(u16, u16),
}

type Recipe = [Asked; FIELDS.len()];

fn made(recipe: &Recipe) -> Match {
    let mut out = Match::any();
    for ((field, most), asked) in FIELDS.into_iter().zip(recipe) {
        match *asked {
            Asked::Nothing => {}
            Asked::Masked(value, mask) => _ = out.set_masked(field, value & most, mask),
            Asked::Within(low, high) => _ = out.set_range(field, low, high),
        }
    }
    out
}

fn any_masked() -> impl Strategy<Value = Asked> {
    let prefix = (any::<u16>(), 0..=16u32).prop_map(|(value, bits)| {
        let mask = u16::MAX.checked_shl(bits).unwrap_or(0);
        Asked::Masked(value.into(), mask.into())
    });
    let masked = (any::<u16>(), any::<u16>()).prop_map(|(v, m)| Asked::Masked(v.into(), m.into()));
    let exact = (0..4u128).prop_map(|value| Asked::Masked(value, 0xffff));
    prop_oneof![2 => Just(Asked::Nothing), 2 => exact, 1 => prefix, 1 => masked]
}

fn any_port() -> impl Strategy<Value = Asked> {
    let range = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Asked::Within(a.min(b), a.max(b)));
    let narrow =
        (any::<u16>(), 0..64u16).prop_map(|(low, more)| Asked::Within(low, low.saturating_add(more)));
    prop_oneof![2 => any_masked(), 1 => range, 1 => narrow]
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    [any_port().boxed(), any_port().boxed(), any_masked().boxed(), any_masked().boxed(), any_masked().boxed()]
}

/// Nearly equal conditions: bits left out, ranges wider or narrower by a little, a range instead of a mask.
fn loosened(asked: Asked, is_port: bool, (kind, dropped, by): (u8, u16, u16)) -> Asked {
    match asked {
        Asked::Masked(value, mask) if kind % 4 == 0 => Asked::Masked(value, mask & !u128::from(dropped)),
        Asked::Masked(value, mask) if is_port && kind % 4 == 1 => {
            let (low, mask) = ((value & mask) as u16, mask as u16);
            Asked::Within(low.saturating_sub(by % 3), (low | !mask).saturating_add(by / 3 % 3))
        }
        Asked::Within(low, high) if kind % 4 == 0 => {
            Asked::Within(low.saturating_sub(by), high.saturating_add(by))
        }
        // A prefix that holds the range, or one bit too long for it.
        Asked::Within(low, high) if kind % 4 == 1 => {
            let bits = (16 - (low ^ high).leading_zeros()).saturating_sub(u32::from(by % 2));
            Asked::Masked(low.into(), u16::MAX.checked_shl(bits).unwrap_or(0).into())
        }
        Asked::Within(low, high) if kind % 4 == 2 => Asked::Within(low, high.saturating_sub(1).max(low)),
        _ if kind % 8 == 3 => Asked::Nothing,
        same => same,
    }
}

/// Two recipes, the second of which asks for much the same, or has nothing to do with the first.
fn any_pair() -> impl Strategy<Value = (Recipe, Recipe)> {
    let changes = prop::array::uniform5((any::<u8>(), any::<u16>(), 0..9u16));
    (any_recipe(), any_recipe(), changes, 0..4u8).prop_map(|(recipe, other, changes, apart)| {
        let near = std::array::from_fn(|i| loosened(recipe[i], i < 2, changes[i]));
        (recipe, if apart == 0 { other } else { near })
    })
}

/// A key that fulfils a condition.
fn witness(matches: &Match) -> FlowKey {
    let mut key = matches.key();
    let low = |key: &mut FlowKey, field, range: PortRange| key.set(field, range.low().into());
    matches.tp_src_range().into_iter().for_each(|range| low(&mut key, Field::TpSrc, range));
    matches.tp_dst_range().into_iter().for_each(|range| low(&mut key, Field::TpDst, range));
    assert!(matches.matches(&key), "{matches}");
    key
}

/// The keys that differ from one in a field, and by what.
fn with_any(field: Field, max: u128, key: &FlowKey) -> impl Iterator<Item = FlowKey> {
    let mut key = key.clone();
    (0..=max).map(move |value| {
        key.set(field, value);
        key.clone()
    })
}

fn is_within_by_definition(inner: &Match, outer: &Match) -> bool {
    let start = witness(inner);
    let fulfilled = |key: &FlowKey| !inner.matches(key) || outer.matches(key);
    FIELDS.into_iter().all(|(field, max)| with_any(field, max, &start).all(|key| fulfilled(&key)))
}

fn is_disjoint_by_definition(matches: &Match, key: &FlowKey, mask: &FlowMask) -> bool {
    let start = witness(matches);
    let agrees = |other: &FlowKey, field| (other.get(field) ^ key.get(field)) & mask.get(field) == 0;
    FIELDS.into_iter().any(|(field, max)| {
        with_any(field, max, &start).all(|other| !agrees(&other, field) || !matches.matches(&other))
    })
}

/// A key and a mask of which a cache might say that they are of one flow.
fn any_flow() -> impl Strategy<Value = (FlowKey, FlowMask)> {
    let fields = prop::array::uniform5((any::<u16>(), any_masked()));
    fields.prop_map(|fields| {
        let (mut key, mut mask) = (FlowKey::zero(), FlowMask::zero());
        for ((field, most), (value, asked)) in FIELDS.into_iter().zip(fields) {
            let (value, bits) = match asked {
                Asked::Masked(value, bits) => (value, bits),
                _ => (value.into(), 0),
            };
            key.set(field, value & most);
            mask.set(field, bits & most);
        }
        (key, mask)
    })
}

/// A key that fulfils a condition and has, where that is left open, the values of another.
fn drawn(matches: &Match, random: &FlowKey) -> FlowKey {
    let (mut key, fixed, wanted) = (FlowKey::zero(), matches.word_mask(), matches.key());
    (0..crate::packet::key::WORDS).for_each(|w| {
        key.set_word(w, random.word(w) & !fixed.word(w) | wanted.word(w));
    });
    for (field, range) in [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())] {
        let Some(range) = range else { continue };
        let count = u128::from(range.high() - range.low()) + 1;
        key.set(field, u128::from(range.low()) + random.get(field) % count);
    }
    key
}

fn any_key() -> impl Strategy<Value = FlowKey> {
    prop::collection::vec(any::<u32>(), crate::packet::key::WORDS).prop_map(|words| {
        let mut key = FlowKey::zero();
        words.iter().enumerate().for_each(|(w, &word)| key.set_word(w, word));
        key
    })
}

fn is_prefix(mask: u128) -> bool {
    (mask as u16).leading_ones() == (mask as u16).count_ones()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_condition_is_within_another_if_all_its_keys_fulfil_that((inner, outer) in any_pair()) {
        let (inner, outer) = (made(&inner), made(&outer));
        let within = inner.is_within(&outer);
        prop_assert_eq!(within, is_within_by_definition(&inner, &outer), "{} within {}", inner, outer);
        prop_assert!(inner.is_within(&inner) && inner.is_within(&Match::any()));
        prop_assert_eq!(within && outer.is_within(&inner), inner == outer, "{} and {}", inner, outer);
    }

    #[test]
    fn a_condition_is_apart_from_a_flow_if_none_of_its_keys_fulfils_it(
        recipe in any_recipe(),
        (key, mask) in any_flow(),
    ) {
        let matches = made(&recipe);
        let (apart, truth) = (matches.is_disjoint(&key, &mask), is_disjoint_by_definition(&matches, &key, &mask));
        prop_assert!(truth || !apart, "{} and {:?} in {:?}", matches, key, mask);
        let sides = [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())];
        let exact = sides.into_iter().all(|(field, range)| range.is_none() || is_prefix(mask.get(field)));
        prop_assert!(apart || !truth || !exact, "{} and {:?} in {:?}", matches, key, mask);
    }
}

proptest! {
    /// Of all fields, whatever their words.
    #[test]
    fn keys_drawn_within_a_condition_are_within_what_it_is_in(
        parts in prop::collection::vec((0..Field::all().len(), any::<u128>(), any::<u128>()), 0..6),
        (dropped, random) in (any_key(), any_key()),
    ) {
        let mut inner = Match::any();
        for (field, value, mask) in parts {
            let info = &Field::all()[field];
            inner.set_masked(info.field, value & info.ones(), mask);
        }
        let (mut outer, mut other) = (Match::any(), inner.clone());
        for w in inner.words() {
            let word = usize::from(w.word);
            outer.set_word(word, w.value, w.mask & dropped.word(word));
            other.set_word(word, !w.value, w.mask & dropped.word(word) & 3);
        }
        prop_assert!(inner.is_within(&outer), "{} within {}", inner, outer);
        prop_assert!(outer.matches(&drawn(&inner, &random)));
        prop_assert_eq!(inner.is_within(&other), inner == other, "{} within {}", inner, other);
        prop_assert!(inner == other || !other.matches(&drawn(&inner, &random)));
    }

    /// As `tp_dst=80-90,word38=80/0xf8` makes it.
    #[test]
    fn a_port_may_have_a_range_and_a_mask_at_once(
        (a, b) in (any::<u16>(), any::<u16>()),
        (mask, dropped) in (any::<u16>(), any::<u16>()),
        narrower in 0..3u16,
    ) {
        let (low, high) = (a.min(b), a.max(b));
        let mut inner = ports(low, high);
        inner.set_word(word::PORTS, low.into(), mask.into());
        let mut masked = Match::any();
        masked.set_word(word::PORTS, low.into(), (mask & !dropped).into());
        // From the first port that the mask and the range allow, at the least, to the last.
        let (first, last) = (low, high.min(low & mask | !mask));
        let range = ports(first, last.saturating_sub(narrower).max(first));
        prop_assert!(inner.is_within(&masked), "{} within {}", inner, masked);
        // A range that is a prefix has become a mask.
        let certain = narrower == 0 && range.tp_dst_range().is_some();
        prop_assert!(!certain || inner.is_within(&range), "{} within {}", inner, range);
        let all_are_in = |outer: &Match| {
            with_any(Field::TpDst, 0xffff, &FlowKey::zero()).all(|k| !inner.matches(&k) || outer.matches(&k))
        };
        prop_assert!(all_are_in(&masked));
        prop_assert!(!inner.is_within(&range) || all_are_in(&range), "{} within {}", inner, range);
    }

    #[test]
    fn no_key_of_a_flow_that_is_apart_from_a_condition_fulfils_it(
        recipe in any_recipe(),
        (key, mask) in any_flow(),
        random in any_key(),
    ) {
        let matches = made(&recipe);
        // Of the flow, and as near to the condition as that allows.
        let mut near = drawn(&matches, &random);
        for (field, _) in FIELDS {
            near.set_masked(field, key.get(field), mask.get(field));
        }
        prop_assert!(key.agrees(&near, &mask));
        prop_assert!(!(matches.is_disjoint(&key, &mask) && matches.matches(&near)), "{} and {:?}", matches, near);
    }

    #[test]
    fn a_whole_key_is_apart_from_what_it_does_not_fulfil(recipe in any_recipe(), random in any_key()) {
        let matches = made(&recipe);
        let mut all = FlowMask::zero();
        (0..crate::packet::key::WORDS).for_each(|w| all.set_word(w, u32::MAX));
        for key in [drawn(&matches, &random), random] {
            prop_assert_eq!(matches.is_disjoint(&key, &all), !matches.matches(&key), "{} and {:?}", matches, key);
        }
    }
}

fn ports(low: u16, high: u16) -> Match {
    let mut out = Match::any();
    out.set_range(Field::TpDst, low, high);
    out
}

fn port(value: u16, mask: u16) -> Match {
    let mut out = Match::any();
    out.set_masked(Field::TpDst, value.into(), mask.into());
    out
}

#[test]
fn a_range_is_within_a_mask_if_all_its_ports_fulfil_that() {
    // 0x1201 to 0x12fe: the upper byte is the same in all of them.
    let range = ports(0x1201, 0x12fe);
    assert!(range.is_within(&port(0x1200, 0xff00)));
    assert!(range.is_within(&port(0x1000, 0x5000)), "no prefix");
    assert!(!range.is_within(&port(0x1200, 0xff80)));
    assert!(!range.is_within(&port(0x1201, 0xffff)));
    assert!(!range.is_within(&port(0x2200, 0xff00)));
    // The two ports differ in every bit.
    assert!(!ports(0x7fff, 0x8000).is_within(&port(0x8000, 0x8000)));
}

#[test]
fn a_mask_is_within_a_range_if_its_first_and_last_port_are() {
    assert!(port(80, 0xffff).is_within(&ports(80, 90)));
    assert!(port(90, 0xffff).is_within(&ports(80, 90)));
    assert!(!port(91, 0xffff).is_within(&ports(80, 90)));
    assert!(port(0x1200, 0xff00).is_within(&ports(0x1200, 0x1300)));
    assert!(!port(0x1200, 0xff00).is_within(&ports(0x1201, 0x1300)));
    // From 0x1200 to 0x1301, with holes.
    assert!(port(0x1200, 0xfefe).is_within(&ports(0x1200, 0x1301)));
    assert!(!port(0x1200, 0xfefe).is_within(&ports(0x1200, 0x1300)));
    assert!(!Match::any().is_within(&ports(1, 65535)));
}

#[test]
fn a_range_is_within_a_wider_one_of_the_same_port() {
    assert!(ports(81, 89).is_within(&ports(80, 90)));
    assert!(ports(80, 90).is_within(&ports(80, 90)));
    assert!(!ports(79, 90).is_within(&ports(80, 90)));
    assert!(!ports(80, 91).is_within(&ports(80, 90)));
    let mut source = Match::any();
    source.set_range(Field::TpSrc, 81, 89);
    assert!(!source.is_within(&ports(80, 90)));
    assert!(!ports(81, 89).is_within(&source));
}

#[test]
fn flows_of_other_values_and_of_ports_beside_a_range_are_apart() {
    let mut matches = ports(80, 90);
    matches.set(Field::NwProto, 6);
    let flow = |proto: u128, port: u128, mask: u128| {
        let (mut key, mut bits) = (FlowKey::zero(), FlowMask::zero());
        key.set(Field::NwProto, proto);
        key.set(Field::TpDst, port);
        bits.set(Field::NwProto, 0xff);
        bits.set(Field::TpDst, mask);
        matches.is_disjoint(&key, &bits)
    };
    assert!(flow(17, 85, 0xffff), "another protocol");
    assert!(flow(17, 85, 0), "another protocol, any port");
    assert!(!flow(6, 85, 0) && !flow(6, 85, 0xffff) && !flow(6, 80, 0xffff) && !flow(6, 90, 0xffff));
    assert!(flow(6, 79, 0xffff) && flow(6, 91, 0xffff) && flow(6, 0x1050, 0xffff));
    // 64 to 79, 80 to 95, 96 to 111.
    assert!(flow(6, 64, 0xfff0) && !flow(6, 80, 0xfff0) && flow(6, 96, 0xfff0));
    assert!(!Match::any().is_disjoint(&matches.key(), &matches.mask()));
}
