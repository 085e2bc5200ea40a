use flowlane::generate::Random;
use flowlane::isa::testing::for_each_variant;
use flowlane::packet::Field;

use super::columns::{hash, terms};
use super::*;

/// Draws masks of all widths (some longer than one line), with shared and distinct words.
fn shape(random: &mut Random) -> FlowMask {
    let mut mask = FlowMask::zero();
    mask.add_field(Field::EthType);
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << random.below(32)));
    for field in [Field::VlanVid, Field::Ipv6Dst, Field::Ipv6Src, Field::TpDst, Field::TunId, Field::EthSrc] {
        if random.below(3) == 0 {
            mask.add_field(field);
        }
    }
    mask
}

/// Draws a packet's key of one of a few shapes, with few values in each field.
fn shaped_key(random: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, 1);
    key.set(Field::EthType, [0x0800, 0x86dd][random.index(2)]);
    key.set(Field::EthSrc, random.below(2).into());
    if random.below(2) == 0 {
        key.set(Field::Ipv4Src, u128::from(random.below(4) << 30 | random.below(3)));
    } else {
        key.set(Field::Ipv6Src, u128::from(random.below(2)) << 100);
        key.set(Field::Ipv6Dst, random.below(2).into());
    }
    for (field, values) in [(Field::VlanVid, 2), (Field::TpDst, 3), (Field::TunId, 2)] {
        if random.below(2) == 0 {
            key.set(field, random.below(values).into());
        }
    }
    key
}

/// Batches of all lengths and shapes, with hits and misses, overlapping megaflows, few and many masks, hashed in
/// columns or one by one: every variant finds the megaflow of the first mask that has one, as a list of masked keys
/// does.
#[test]
fn every_variant_finds_what_a_list_has() {
    for_each_variant(|variant| {
        let both =
            [None, Some(1), Some(65)].into_iter().flat_map(|threshold| [1, 3, 40].map(|n| (threshold, n)));
        for (round, (threshold, masks)) in (0..).zip(both) {
            let random = &mut Random::new(round);
            let mut cache = MajorityCache::with_variant(1000, 11, variant).expect("is available");
            cache.threshold = threshold.unwrap_or(cache.threshold);
            let masks: Vec<FlowMask> = (0..masks).map(|_| shape(random)).collect();
            let mut list: Vec<(FlowMask, Vec<(FlowKey, u32)>)> = Vec::new();
            for step in 0..70usize {
                for value in 0..random.below(12) as u32 {
                    let (key, mask) = (shaped_key(random), &masks[random.index(masks.len())]);
                    cache.insert(&key, mask, value);
                    let place = list.iter().position(|(own, _)| own == mask);
                    let place = place.unwrap_or_else(|| {
                        list.push((mask.clone(), Vec::new()));
                        list.len() - 1
                    });
                    list[place].1.retain(|(own, _)| *own != key.masked(mask));
                    list[place].1.push((key.masked(mask), value));
                }
                let keys: Vec<FlowKey> = (0..step.min(64)).map(|_| shaped_key(random)).collect();
                let all = LaneMask::first(keys.len());
                for live in [all, LaneMask(all.0 & random.bits()), LaneMask(all.0 & 0x8000_0000_0001_0001)] {
                    let mut found = [u32::MAX; LANES_MAX];
                    let left = cache.lookup_batch(&keys, live, &mut found);
                    for lane in 0..keys.len() {
                        let of = |(mask, flows): &(FlowMask, Vec<(FlowKey, u32)>)| {
                            let wanted = keys[lane].masked(mask);
                            flows.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value)
                        };
                        let is_live = live.0 >> lane & 1 == 1;
                        let wanted = if is_live { list.iter().find_map(of) } else { None };
                        assert_eq!(found[lane], wanted.unwrap_or(u32::MAX), "{variant}, {round}, {step}");
                        assert_eq!(left.0 >> lane & 1 == 1, is_live && wanted.is_none());
                    }
                }
            }
        }
    });
}

#[test]
#[should_panic(expected = "there is room for as many megaflows as were asked for")]
fn a_megaflow_for_which_there_is_no_room_panics() {
    let mut cache = MajorityCache::with_variant(2, 11, Variant::Scalar).expect("is always available");
    let (mut key, mut mask) = (FlowKey::zero(), FlowMask::zero());
    mask.add_field(Field::InPort);
    for port in 0..2 {
        key.set(Field::InPort, port);
        cache.insert(&key, &mask, 7);
        // Replacing a megaflow takes no capacity.
        cache.insert(&key, &mask, 8);
    }
    let mut found = [0];
    assert!(cache.lookup_batch(&[key], LaneMask(1), &mut found).is_empty() && found == [8]);
    cache.insert(&FlowKey::zero(), &FlowMask::zero(), 7);
}

#[test]
fn hashing_side_by_side_is_hashing_one_by_one() {
    let random = &mut Random::new(3);
    for_each_variant(|variant| {
        for count in 0..=LANES_MAX {
            let mask = shape(random);
            let one = shaped_key(random);
            let keys: Vec<FlowKey> = (0..count)
                .map(|_| {
                    let mut key = one.clone();
                    one.present_words().for_each(|w| key.set_word(w, random.bits() as u32));
                    key
                })
                .collect();
            let hasher = MaskHasher::new(variant, &mask, 7, &keys).expect("all have the same words");
            let mut hashes = [0; LANES_MAX];
            hasher.hash_batch(&mut hashes);
            for (key, found) in keys.iter().zip(hashes) {
                assert_eq!(found, hash(&terms(&mask), 7, key), "{variant}, {count} keys");
            }
        }
    });
}

#[test]
fn keys_of_different_words_cannot_be_hashed_side_by_side() {
    let mut keys = vec![FlowKey::zero(); 2];
    keys[1].set(Field::InPort, 1);
    assert!(MaskHasher::new(Variant::Scalar, &FlowMask::zero(), 7, &keys).is_none());
}
