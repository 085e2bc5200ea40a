use std::collections::HashMap;

use super::*;

/// A small generator, so that failures name a seed.
fn next(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

#[test]
fn behaves_as_a_map_of_masked_keys_under_churn() {
    for seed in 0..20u64 {
        let mut state = seed;
        let mut mask = FlowMask::zero();
        mask.or_word(word::VLAN_ETH_TYPE, 0xffff);
        mask.or_word(word::IPV4_SRC, 0xff00);
        mask.or_word(word::PORTS, 0xf);
        let mut table = MaskedTable::new(&mask, seed as u32);
        let mut model: HashMap<(u32, u32, u32), u32> = HashMap::new();
        for step in 0..5000u32 {
            let mut key = FlowKey::zero();
            key.set_word(word::VLAN_ETH_TYPE, next(&mut state) & 0x1_000f);
            key.set_word(word::IPV4_SRC, next(&mut state) & 0x3ff);
            key.set_word(word::PORTS, next(&mut state) & 0xff);
            let small = (
                key.word(word::VLAN_ETH_TYPE) & 0xffff,
                key.word(word::IPV4_SRC) & 0xff00,
                key.word(word::PORTS) & 0xf,
            );
            let found = table.find(&key, table.hash(&key));
            assert_eq!(found.map(|e| table.value(e)), model.get(&small).copied(), "seed {seed} step {step}");
            match found {
                Some(entry) if next(&mut state).is_multiple_of(3) => {
                    table.remove(entry);
                    model.remove(&small);
                }
                Some(_) => {}
                None => {
                    table.insert(&key, step);
                    model.insert(small, step);
                }
            }
            assert_eq!(table.len(), model.len());
        }
        assert_eq!(table.entries().count(), model.len());
    }
}

#[test]
fn an_empty_mask_holds_one_key() {
    let mut table = MaskedTable::new(&FlowMask::zero(), 1);
    let mut key = FlowKey::zero();
    table.insert(&key, 7);
    key.set_word(5, 99);
    assert_eq!(table.find(&key, table.hash(&key)).map(|e| table.value(e)), Some(7));
}

#[test]
fn stage_hashes_depend_on_earlier_stages_only() {
    let mut mask = FlowMask::zero();
    for w in [word::IN_PORT, word::VLAN_ETH_TYPE, word::IPV4_SRC, word::PORTS] {
        mask.or_word(w, u32::MAX);
    }
    let table = MaskedTable::new(&mask, 3);
    let mut key = FlowKey::zero();
    let before: Vec<_> = table.stage_hashes(&key).collect();
    assert_eq!(before.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2]);
    key.set_word(word::PORTS, 1);
    assert_eq!(table.stage_hashes(&key).collect::<Vec<_>>(), before);
    key.set_word(word::IPV4_SRC, 1);
    let after: Vec<_> = table.stage_hashes(&key).collect();
    assert_eq!(after[..2], before[..2]);
    assert_ne!(after[2], before[2]);
}
