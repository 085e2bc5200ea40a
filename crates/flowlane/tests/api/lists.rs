//! Several lists in one pass.

use std::collections::BTreeMap;

use flowlane::{CATEGORIES_MAX, Categories, ClassifierBuilder, FlowKey, NONE};

use crate::acl::{ENGINES, Packet, Plain, columns, matching, packet, plain};
use crate::random::Random;

#[test]
fn each_category_answers_from_its_own_rules() {
    for seed in 0..16 {
        let r = &mut Random::new(100 + seed);
        let config = ClassifierBuilder::new().engine(ENGINES[seed as usize % 4]).seed(seed);
        let bits = |r: &mut Random| 1 << r.below(16) | r.below(1 << 16) as u16 & r.below(1 << 16) as u16;
        let mut rules: BTreeMap<u32, (Plain, u16)> =
            (0..[4, 30, 200][seed as usize % 3]).map(|n| (n, (plain(r), bits(r)))).collect();
        let given =
            rules.iter().map(|(n, (rule, bits))| (*n, rule.rule(), Categories::from_bits(*bits).unwrap()));
        let mut acl = config.build_categories(given).unwrap();
        for _ in 0..seed % 3 * 10 {
            let (rule, own) = (plain(r), bits(r));
            let number = acl.insert_in([rule.rule()], Categories::from_bits(own).unwrap()).unwrap().start;
            rules.insert(number, (rule, own));
            let gone = r.below(number);
            assert_eq!(acl.remove(gone).is_some(), rules.remove(&gone).is_some());
            let (changed, rule) = (r.below(number), plain(r));
            acl.replace(changed, rule.rule()).unwrap();
            rules.entry(changed).and_modify(|(old, _)| *old = rule);
        }
        let packets: Vec<Packet> = (0..130).map(|_| packet(r)).collect();
        let keys: Vec<FlowKey> = packets.iter().map(|p| p.key()).collect();
        for categories in [1, 2, 3, 7, CATEGORIES_MAX] {
            for len in [130, 0, 1, 43] {
                let wanted: Vec<u32> = (0..len * categories)
                    .map(|place| {
                        let own = rules.iter().filter(|(_, (_, bits))| bits >> (place % categories) & 1 == 1);
                        let own = own.map(|(number, (rule, _))| (*number, rule));
                        matching(own, |n| n, packets[place / categories]).first().copied().unwrap_or(NONE)
                    })
                    .collect();
                let mut found = vec![7; len * categories];
                acl.lookup_categories(&keys[..len], categories, &mut found);
                assert_eq!(found, wanted, "seed {seed}, {len} keys, {categories} categories");
                found.fill(7);
                columns(&packets[..len], |c| acl.lookup_column_categories(c, categories, &mut found));
                assert_eq!(found, wanted, "seed {seed}, {len} rows, {categories} categories");
            }
        }
    }
}

#[test]
fn categories_are_some_of_those_there_are() {
    assert!(Categories::of([]).unwrap_err().to_string().contains("1 to 16 categories"));
    assert!(Categories::of([3, 16]).unwrap_err().to_string().contains("category 16; they are 0 to 15"));
    let all = Categories::of(0..CATEGORIES_MAX).unwrap();
    assert!(all.bits() == u16::MAX && all.contains(15) && !all.contains(16));
    assert_eq!(Categories::default(), Categories::of([0]).unwrap());
}
