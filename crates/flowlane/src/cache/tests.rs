use super::*;
use crate::classify::{Hit, LinearSearch, RuleEngine, TupleSearch};
use crate::isa::{self, Variant};
use crate::packet::Field;
use crate::packet::batch::LaneMask;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

struct Random(u64);

impl Random {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % below
    }
}

fn random_key(r: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, r.next(2).into());
    key.set(Field::Ipv4Src, u128::from(r.next(8) << 29 | r.next(4)));
    key.set(Field::Ipv4Dst, u128::from(r.next(8) << 29 | r.next(4)));
    key.set(Field::TpDst, u128::from(r.next(70)));
    key
}

fn random_match(r: &mut Random) -> Match {
    let mut m = Match::any();
    for field in [Field::Ipv4Src, Field::Ipv4Dst] {
        let length = [0, 1, 2, 3, 31, 32][r.next(6) as usize];
        if length > 0 {
            m.set_masked(field, random_key(r).get(field), u128::from(u32::MAX << (32 - length)));
        }
    }
    if r.next(3) == 0 {
        let (a, b) = (r.next(70) as u16, r.next(70) as u16);
        m.set_range(Field::TpDst, a.min(b), a.max(b));
    }
    m
}

/// The cache's value of a hit.
fn value(hit: Option<Hit>) -> u32 {
    hit.map_or(u32::MAX, |h| h.rule.0)
}

/// The worst bug a switch can have is a wrong megaflow: random rules, random packets, every answer from
/// the caches is the tables' own.
#[test]
fn cached_and_uncached_answers_are_equal() {
    let mut known = 0;
    for seed in 0..40 {
        let r = &mut Random(seed);
        let mut engines: [Box<dyn RuleEngine>; 2] =
            [Box::new(LinearSearch::new(1000)), Box::new(TupleSearch::new(1000, 7))];
        for id in 0..r.next(60) {
            let (priority, matches) = (Priority(r.next(4)), random_match(r));
            engines.iter_mut().for_each(|e| e.insert(RuleId(id), priority, &matches).unwrap());
        }
        for engine in &engines {
            let flows_max = [8, 100, 10_000][r.next(3) as usize];
            let masks_max = [2, 100][r.next(2) as usize];
            let config = MegaflowConfig { flows_max, masks_max, seed: 3, ..Default::default() };
            let mut megaflows = MegaflowCache::new(config);
            let mut exact = ExactMatchCache::new(64, 2, 9);
            let mut signatures = SignatureCache::new(64, 2, 9);
            let packets: Vec<FlowKey> = (0..400).map(|_| random_key(r)).collect();
            for now in 0..2000 {
                let key = packets[r.next(400) as usize].clone();
                let wanted = value(engine.lookup(&key));
                let (keys, one) = (std::slice::from_ref(&key), LaneMask(1));
                let mut by_key = [FlowRef::NONE];
                exact.lookup_batch(&megaflows, keys, one, &mut by_key);
                let mut by_hash = [FlowRef::NONE];
                signatures.lookup_batch(&megaflows, keys, one, &mut by_hash);
                for (name, found) in [("exact", by_key[0]), ("signature", by_hash[0])] {
                    if let Some(flow) = megaflows.get(found) {
                        assert_eq!(flow.value, wanted, "{name}, {} seed {seed}", engine.name());
                        known += 1;
                    }
                }
                if let Some(found) = megaflows.lookup(&key) {
                    let flow = megaflows.get_mut(found).unwrap();
                    assert_eq!(flow.value, wanted, "megaflow, {} seed {seed}", engine.name());
                    flow.used = now;
                    exact.offer_batch(keys, one, &[found]);
                    signatures.offer_batch(keys, one, &[found]);
                } else {
                    let mut mask = FlowMask::zero();
                    let hit = engine.lookup_wildcards(&key, &mut mask);
                    let _ = megaflows.insert(&key, &mask, value(hit), 0, now);
                }
                if now % 100 == 0 {
                    megaflows.rank();
                }
                assert!(megaflows.len() <= flows_max && megaflows.masks().count() <= masks_max);
            }
        }
    }
    assert!(known > 10_000, "{known}");
}

/// Masks of all widths (with more words than fit a megaflow's line, too), some in common, some not.
fn shape(r: &mut Random) -> FlowMask {
    let mut mask = FlowMask::zero();
    mask.add_field(Field::EthType);
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << r.next(32)));
    let fields = [Field::VlanVid, Field::Ipv6Dst, Field::Ipv6Src, Field::TpDst, Field::TunId, Field::EthSrc];
    // And words of the second half of a key.
    for field in fields.into_iter().chain([Field::Reg15, Field::XxReg3]) {
        if r.next(3) == 0 {
            mask.add_field(field);
        }
    }
    mask
}

/// A packet's key, of one of a few shapes, with few values to a field.
fn shaped_key(r: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, 1);
    key.set(Field::EthType, [0x0800, 0x86dd][r.next(2) as usize]);
    key.set(Field::EthSrc, r.next(2).into());
    if r.next(2) == 0 {
        key.set(Field::Ipv4Src, u128::from(r.next(4) << 30 | r.next(3)));
    } else {
        key.set(Field::Ipv6Src, u128::from(r.next(2)) << 100);
        key.set(Field::Ipv6Dst, u128::from(r.next(2)));
    }
    for (field, values) in
        [(Field::VlanVid, 2), (Field::TpDst, 3), (Field::TunId, 2), (Field::Reg15, 2), (Field::Reg12, 2)]
    {
        if r.next(2) == 0 {
            key.set(field, r.next(values).into());
        }
    }
    key
}

/// Every variant: as it is, all bursts by the variant, and all one by one under one mask and under
/// several at a time.
fn configs() -> Vec<MegaflowConfig> {
    let mut out = Vec::new();
    isa::testing::for_each_variant(|variant| {
        let one_by_one = [4, 7, 16].map(|in_flight| (Some(65), Some(in_flight)));
        for (threshold, in_flight) in
            [(None, None), (Some(1), None), (Some(65), Some(1))].into_iter().chain(one_by_one)
        {
            let variant = Some(variant);
            out.push(MegaflowConfig { variant, threshold, in_flight, seed: 11, ..Default::default() });
        }
    });
    out
}

/// Batches of all lengths and shapes, hits, misses and both, overlapping megaflows, and removals between
/// them: every variant finds the very megaflow that the scalar body finds.
#[test]
fn every_variant_finds_what_the_scalar_one_finds() {
    for config in configs() {
        let scalar = MegaflowConfig { variant: Some(Variant::Scalar), in_flight: Some(1), ..config };
        for round in 0..12 {
            let r = &mut Random(round);
            let mut caches = [MegaflowCache::new(scalar), MegaflowCache::new(config)];
            // Near and far make no difference to the result.
            caches[1].far_from = [0, 100, usize::MAX][round as usize / 3 % 3];
            let masks: Vec<FlowMask> = (0..[1, 3, 40][round as usize % 3]).map(|_| shape(r)).collect();
            for step in 0..70usize {
                for _ in 0..r.next(12) {
                    let (key, mask) = (shaped_key(r), &masks[r.next(masks.len() as u32) as usize]);
                    let made = caches.each_mut().map(|c| c.insert(&key, mask, 7, 0, 0).unwrap());
                    assert_eq!(made[0], made[1]);
                }
                let keys: Vec<FlowKey> = (0..step.min(64)).map(|_| shaped_key(r)).collect();
                let all = LaneMask::first(keys.len());
                let some = u64::from(r.next(1 << 16)) << 32 | u64::from(r.next(1 << 16)) << 9;
                for live in [all, LaneMask(all.0 & some), LaneMask(all.0 & 0x8000_0000_0001_0001)] {
                    let mut found = [[FlowRef::NONE; 64]; 2];
                    let mut left = [LaneMask(0); 2];
                    for (i, cache) in caches.iter_mut().enumerate() {
                        left[i] = cache.lookup_batch(&keys, live, &mut found[i]);
                    }
                    let variant = caches[1].variant();
                    assert_eq!(left[0], left[1], "{variant}, round {round}, step {step}");
                    assert_eq!(found[0], found[1], "{variant}, round {round}, step {step}");
                    for lane in live.lanes() {
                        let hit = found[1][lane];
                        assert_eq!(hit.is_none(), left[1].0 >> lane & 1 == 1);
                        assert!(hit.is_none() || caches[1].matches(hit, &keys[lane]));
                    }
                }
                if step % 10 == 9 {
                    let drop = caches[0].flows().filter(|_| r.next(2) == 0).collect::<Vec<_>>();
                    caches.iter_mut().for_each(|c| drop.iter().for_each(|&f| assert!(c.remove(f).is_some())));
                    caches.iter_mut().for_each(MegaflowCache::rank);
                }
            }
            let counters = caches
                .each_ref()
                .map(|c| (c.counters().lookups, c.counters().hits, c.counters().probes, c.len()));
            assert_eq!(counters[0], counters[1]);
        }
    }
}

/// More than a thousand masks, with megaflows coming, evicted, removed and ranked between bursts of few packets: queries
/// that are under way together find what one mask after the other finds, and count as many probes.
#[test]
fn interleaved_queries_find_and_count_what_one_mask_after_the_other_does() {
    let mut masks_most = 0;
    isa::testing::for_each_variant(|variant| {
        for (round, far_from) in [0, 500, usize::MAX].into_iter().enumerate() {
            let r = &mut Random(round as u64 + 70);
            let base = MegaflowConfig {
                flows_max: [3000, 200, 3000][round],
                masks_max: [2000, 2000, 30][round],
                join_from: usize::MAX,
                seed: 5,
                ..Default::default()
            };
            let one = MegaflowConfig { variant: Some(Variant::Scalar), in_flight: Some(1), ..base };
            let (variant, threshold, in_flight) = (Some(variant), Some(65), Some([16, 8, 4][round]));
            let ahead = MegaflowConfig { variant, threshold, in_flight, ..base };
            let mut caches = [MegaflowCache::new(one), MegaflowCache::new(ahead)];
            caches[1].far_from = far_from;
            for step in 0..100 {
                for _ in 0..if step == 0 { 3000 } else { r.next(24) } {
                    let (key, mask) = (shaped_key(r), shape(r));
                    let made = caches.each_mut().map(|c| c.insert(&key, &mask, 7, 0, step));
                    assert_eq!(made[0], made[1]);
                }
                let keys: Vec<FlowKey> =
                    (0..[1, 2, 4, 8, 32, 64][r.next(6) as usize]).map(|_| shaped_key(r)).collect();
                let live = LaneMask::first(keys.len());
                let mut found = [[FlowRef::NONE; 64]; 2];
                let mut place = found.iter_mut();
                let left = caches.each_mut().map(|c| c.lookup_batch(&keys, live, place.next().unwrap()));
                assert_eq!(left[0], left[1], "{variant:?}, round {round}, step {step}");
                assert_eq!(found[0], found[1], "{variant:?}, round {round}, step {step}");
                assert_eq!(caches[1].compare_variants(&keys, live), Ok(()));
                assert_eq!(caches[0].counters(), caches[1].counters());
                masks_most = masks_most.max(caches[1].masks().count());
                match r.next(8) {
                    0 => caches.iter_mut().for_each(MegaflowCache::rank),
                    1 => {
                        let drop: Vec<FlowRef> = caches[0].flows().filter(|_| r.next(40) == 0).collect();
                        caches
                            .iter_mut()
                            .for_each(|c| drop.iter().for_each(|&f| assert!(c.remove(f).is_some())));
                    }
                    _ => {}
                }
            }
            let counters = caches[0].counters();
            assert!([true, counters.evicted > 0, counters.refused > 0][round], "{counters:?}");
            assert!(caches[0].masks().map(|(m, _)| m.clone()).eq(caches[1].masks().map(|(m, _)| m.clone())));
        }
    });
    assert!(masks_most > 1000, "{masks_most}");
}

/// The search under several masks at once ends however many masks there are, where nothing is found.
#[test]
fn misses_end_after_the_last_of_many_masks() {
    for (masks, in_flight) in [(300, 4), (300, 16), (2000, 4), (2000, 16)] {
        let config = MegaflowConfig {
            masks_max: masks,
            join_from: masks,
            threshold: Some(65),
            in_flight: Some(in_flight),
            ..MegaflowConfig::default()
        };
        let mut cache = MegaflowCache::new(config);
        let mut key = FlowKey::zero();
        for bits in 1..=masks as u64 {
            let mut mask = FlowMask::zero();
            mask.set(Field::Ipv4Src, bits.into());
            key.set(Field::Ipv4Src, bits.into());
            cache.insert(&key, &mask, 7, 0, 0).unwrap();
        }
        assert_eq!(cache.masks().count(), masks);
        for lanes in [1, 2, 8, 64] {
            let keys = vec![FlowKey::zero(); lanes];
            let live = LaneMask::first(lanes);
            let probes = cache.counters().probes;
            assert_eq!(cache.lookup_batch(&keys, live, &mut [FlowRef::NONE; 64]), live);
            assert_eq!(cache.counters().probes - probes, (lanes * masks) as u64);
        }
    }
}

#[test]
fn further_masks_are_joined() {
    let config = MegaflowConfig { join_from: 10, masks_max: 200, seed: 5, ..MegaflowConfig::default() };
    let mut cache = MegaflowCache::new(config);
    let r = &mut Random(3);
    let mut inserted: Vec<(FlowKey, FlowMask)> = Vec::new();
    for n in 0..1000 {
        let (key, mask) = (shaped_key(r), shape(r));
        let flow = cache.insert(&key, &mask, n, 0, 0).unwrap();
        let (kept, own) = cache.matching(flow).unwrap();
        assert!(own.covers(&mask) && cache.matches(flow, &key));
        assert!(own.present_words().all(|w| kept.word(w) == key.word(w) & own.word(w)));
        // One at a time, and in batches.
        assert!(cache.lookup(&key).is_some());
        if n % 7 == 0 {
            let left = cache.lookup_batch(std::slice::from_ref(&key), LaneMask(1), &mut [FlowRef::NONE]);
            assert_eq!(left, LaneMask(0));
        }
        inserted.push((key, mask));
    }
    let own = inserted.iter().take(10).all(|(_, mask)| cache.masks().any(|(other, _)| other == mask));
    assert!(own, "the first masks are kept as they are");
    // A mask is added only where the union grows.
    assert!((11..60).contains(&cache.masks().count()), "{}", cache.masks().count());
    assert_eq!(cache.counters().refused, 0);
    let found = inserted.iter().filter(|(key, _)| cache.lookup(key).is_some()).count();
    assert_eq!(found, inserted.len());
}

/// The live check compares with the definition also where nothing was looked up since the masks changed.
#[test]
fn variants_are_compared_right_after_a_mask_came() {
    let mut cache = MegaflowCache::new(MegaflowConfig { in_flight: Some(16), ..MegaflowConfig::default() });
    let r = &mut Random(9);
    for i in 0..200 {
        let key = shaped_key(r);
        cache.insert(&key, &shape(r), i, 0, 0).unwrap();
        let keys = vec![key; 1 + r.next(12) as usize];
        assert_eq!(cache.compare_variants(&keys, LaneMask::first(keys.len())), Ok(()));
        assert!(cache.lookup(&keys[0]).is_some());
    }
}

#[test]
fn what_was_inserted_is_read_back_however_wide_its_mask_is() {
    let r = &mut Random(5);
    let config = MegaflowConfig { masks_max: 10_000, join_from: 10_000, ..MegaflowConfig::default() };
    let mut cache = MegaflowCache::new(config);
    for i in 0..2000 {
        let (key, mask) = (shaped_key(r), shape(r));
        let made = cache.insert(&key, &mask, i, 1, 2).unwrap();
        assert_eq!(cache.matching(made), Some((key.masked(&mask), mask)));
        if r.next(3) == 0 {
            assert_eq!(cache.remove(made).unwrap().value, i);
            assert!(cache.matching(made).is_none());
        }
    }
}

#[test]
fn a_reference_to_a_removed_megaflow_is_dead_even_when_its_place_is_reused() {
    let mut cache = MegaflowCache::new(MegaflowConfig::default());
    let mut mask = FlowMask::zero();
    mask.add_field(Field::InPort);
    let key = FlowKey::zero();
    let first = cache.insert(&key, &mask, 1, 0, 0).unwrap();
    assert_eq!(cache.remove(first).unwrap().value, 1);
    let second = cache.insert(&key, &mask, 2, 0, 0).unwrap();
    assert!(cache.get(first).is_none());
    assert_eq!(cache.get(second).unwrap().value, 2);
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_full_cache_evicts_the_least_recently_used_it_sees() {
    let mut cache =
        MegaflowCache::new(MegaflowConfig { flows_max: 16, masks_max: 4, seed: 0, ..Default::default() });
    let mut mask = FlowMask::zero();
    mask.add_field(Field::InPort);
    let mut keys = Vec::new();
    for i in 0..17u32 {
        let mut key = FlowKey::zero();
        key.set_word(0, i);
        cache.insert(&key, &mask, i, 0, 100 - i).unwrap();
        keys.push(key);
    }
    assert_eq!((cache.len(), cache.counters().evicted), (16, 1));
    // Number 15 was the one used longest ago when number 16 came.
    assert!(cache.lookup(&keys[15]).is_none());
    assert!(cache.lookup(&keys[16]).is_some());
}

#[test]
fn ranking_puts_the_mask_that_hits_first() {
    let mut cache = MegaflowCache::new(MegaflowConfig::default());
    let mut key = FlowKey::zero();
    for (i, field) in [Field::InPort, Field::Ipv4Src, Field::Ipv4Dst].into_iter().enumerate() {
        let mut mask = FlowMask::zero();
        mask.add_field(field);
        key.set(field, 5);
        cache.insert(&key, &mask, i as u32, 0, 0).unwrap();
    }
    let mut third = FlowKey::zero();
    third.set(Field::Ipv4Dst, 5);
    for _ in 0..10 {
        assert_eq!(cache.lookup(&third).map(|f| cache.get(f).unwrap().value), Some(2));
    }
    cache.rank();
    assert_ne!(cache.masks().next().unwrap().0.get(Field::Ipv4Dst), 0);
    // References survive.
    for flow in cache.flows().collect::<Vec<_>>() {
        assert!(cache.matching(flow).is_some());
        cache.remove(flow).unwrap();
    }
    assert_eq!((cache.len(), cache.masks().count()), (0, 0));
}

/// The budgets that the README states.
#[test]
fn megaflows_take_at_most_100_mib_a_million_and_no_more_are_kept() {
    for (flows_max, mib_max) in [(MegaflowConfig::FLOWS_MAX_DEFAULT, 20), (1_000_000, 100)] {
        megaflows_keep_their_budget(flows_max, mib_max);
    }
}

fn megaflows_keep_their_budget(flows_max: usize, mib_max: usize) {
    let mut cache =
        MegaflowCache::new(MegaflowConfig { flows_max, masks_max: 64, seed: 5, ..Default::default() });
    for i in 0..flows_max as u32 + 1000 {
        let mut mask = FlowMask::zero();
        for field in [Field::RecircId, Field::InPort, Field::EthType, Field::Ipv4Dst, Field::NwProto] {
            mask.add_field(field);
        }
        // Sixteen masks, of six words each.
        mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << (i % 16)));
        let mut key = FlowKey::zero();
        key.set(Field::Ipv4Dst, i.into());
        cache.insert(&key, &mask, i, 0, i).unwrap();
    }
    assert_eq!((cache.len(), cache.masks().count()), (flows_max, 16));
    assert_eq!(cache.counters().evicted, 1000);
    let mib = cache.table_bytes().div_ceil(1 << 20);
    println!("{flows_max}: {mib} MiB, {} bytes a megaflow", cache.table_bytes() / flows_max);
    assert!(mib <= mib_max, "{flows_max} megaflows take {mib} MiB");
}

/// One in n on average, whatever the sizes of the batches; never more than there are.
#[test]
fn one_packet_in_so_many_is_picked() {
    for inverse in [1, 2, 7, 100] {
        let mut sampler = flow_hash::Sampler::new(inverse, 5);
        let (mut picked, mut packets) = (0u32, 0);
        for batch in (0..64).cycle().take(20_000) {
            let mut passed = 0;
            while let Some(at) = sampler.pick(batch - passed) {
                assert!(at < batch - passed);
                passed += at + 1;
                picked += 1;
            }
            packets += batch as u32;
        }
        let wanted = packets / inverse;
        assert!(picked.abs_diff(wanted) <= wanted / 20, "{picked} of {packets}, 1 in {inverse}");
    }
}

/// A stale entry, or one of another flow with the same hash, is never believed.
#[test]
fn a_signature_is_believed_only_where_the_masked_key_agrees() {
    let mut megaflows = MegaflowCache::new(MegaflowConfig::default());
    let mut cache = SignatureCache::new(8, 1, 0);
    let mut mask = FlowMask::zero();
    mask.add_field(Field::InPort);
    let keys: Vec<FlowKey> = (0..2)
        .map(|port| {
            let mut key = FlowKey::zero();
            key.set(Field::InPort, port);
            key
        })
        .collect();
    // Both have the same flow hash, since the port that they came in through is not in it.
    let flows = [0, 1].map(|i| megaflows.insert(&keys[i], &mask, i as u32, 0, 0).unwrap());
    cache.insert(&keys[0], flows[0]);
    let mut found = [FlowRef::NONE; 2];
    let left = cache.lookup_batch(&megaflows, &keys, LaneMask(3), &mut found);
    assert_eq!((found, left), ([flows[0], FlowRef::NONE], LaneMask(2)));
    megaflows.remove(flows[0]);
    assert_eq!(cache.lookup_batch(&megaflows, &keys, LaneMask(3), &mut found), LaneMask(3));
}

/// A packet is looked up again behind `ct`: neither entry takes the place of the other.
#[test]
fn both_lookups_of_a_packet_have_an_entry() {
    let mut megaflows = MegaflowCache::new(MegaflowConfig::default());
    let (mut signatures, mut exact) = (SignatureCache::new(64, 1, 0), ExactMatchCache::new(64, 1, 0));
    let mut mask = FlowMask::zero();
    mask.add_field(Field::RecircId);
    let mut keys = [FlowKey::zero(), FlowKey::zero()];
    keys.iter_mut().for_each(|key| key.set(Field::Ipv4Src, 0xc000_0201));
    keys[1].set(Field::RecircId, 2);
    keys[1].set(Field::CtState, 0x22);
    let flows = [0, 1].map(|i| megaflows.insert(&keys[i], &mask, i as u32, 0, 0).unwrap());
    for round in 0..4 {
        signatures.insert(&keys[round % 2], flows[round % 2]);
        exact.insert(&keys[round % 2], flows[round % 2]);
    }
    let mut found = [[FlowRef::NONE; 2]; 2];
    let left = [
        signatures.lookup_batch(&megaflows, &keys, LaneMask(3), &mut found[0]),
        exact.lookup_batch(&megaflows, &keys, LaneMask(3), &mut found[1]),
    ];
    assert_eq!((left, found), ([LaneMask(0); 2], [flows; 2]));
}
