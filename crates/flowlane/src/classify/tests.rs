//! Tests of every engine against the definition of a match.

use super::*;
use crate::packet::Field;
use crate::packet::batch::LaneMask;

/// A small reproducible generator: failures name its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % below
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.next(one_in) == 0
    }
}

/// A rule over a universe so small that rules overlap all the time.
pub(super) fn random_match(r: &mut Random) -> Match {
    let mut m = Match::any();
    if r.chance(3) {
        m.set(Field::InPort, r.next(3).into());
    }
    if r.chance(4) {
        m.set_masked(Field::EthDst, r.next(4).into(), u128::from(r.next(4)) | 0xff00_0000_0000);
    }
    for field in [Field::Ipv4Src, Field::Ipv4Dst] {
        if !r.chance(3) {
            let length = [0, 1, 2, 4, 8, 30, 31, 32][r.next(8) as usize];
            let mask = if length == 0 { 0 } else { u32::MAX << (32 - length) };
            m.set_masked(field, address(r).into(), mask.into());
        }
    }
    if r.chance(8) {
        m.set(Field::EthType, 0x0800);
    }
    // Words of the second half of a key.
    if r.chance(6) {
        m.set(Field::Reg15, r.next(2).into());
    }
    if r.chance(8) {
        m.set_masked(Field::XxReg3, u128::from(r.next(2)) << 96, 1 << 96);
    }
    if r.chance(12) {
        // A mask that is no prefix, and so no range.
        m.set_masked(Field::TpSrc, port(r).into(), 0x0401);
    }
    if r.chance(8) {
        m.set_masked(Field::Ipv4Src, address(r).into(), 0x8000_0001);
    }
    if r.chance(2) {
        m.set(Field::NwProto, [6, 17][r.next(2) as usize]);
    }
    for field in [Field::TpSrc, Field::TpDst] {
        if r.chance(3) {
            let (a, b) = (port(r), port(r));
            m.set_range(field, a.min(b), a.max(b));
        }
    }
    m
}

fn address(r: &mut Random) -> u32 {
    r.next(16) << 28 | r.next(2) << 20 | r.next(8)
}

fn port(r: &mut Random) -> u16 {
    [0, 1, 2, 80, 81, 1023, 1024, 65534, 65535][r.next(9) as usize]
}

pub(super) fn random_key(r: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, r.next(3).into());
    key.set(Field::EthDst, u128::from(r.next(4)));
    key.set(Field::EthType, if r.chance(3) { 0x86dd } else { 0x0800 });
    key.set(Field::Ipv4Src, address(r).into());
    key.set(Field::Ipv4Dst, address(r).into());
    key.set(Field::NwProto, [6, 17][r.next(2) as usize]);
    key.set(Field::TpSrc, port(r).into());
    key.set(Field::TpDst, port(r).into());
    if r.chance(2) {
        key.set(Field::Reg15, r.next(2).into());
        key.set(Field::Reg12, r.next(2).into());
    }
    key
}

pub(super) fn engines() -> Vec<Box<dyn RuleEngine>> {
    let lists = acl::AclEngine::ALL.map(|engine| -> Box<dyn RuleEngine> {
        Box::new(AclSearch::new(acl::AclConfig { rules_max: 1000, ..Default::default() }.with_engine(engine)))
    });
    let others: [Box<dyn RuleEngine>; 2] =
        [Box::new(LinearSearch::new(1000)), Box::new(TupleSearch::new(1000, 12345))];
    others.into_iter().chain(lists).collect()
}

/// Finds the winner without any engine: among the matching rules the highest priority, then the smallest
/// position in order of insertion.
pub(super) fn definition(rules: &[(RuleId, Priority, Match)], key: &FlowKey) -> Option<Hit> {
    let matching = rules.iter().filter(|(_, _, m)| m.matches(key));
    let best = matching.rev().max_by_key(|(_, p, _)| *p)?;
    Some(Hit { rule: best.0, priority: best.1 })
}

#[test]
fn every_engine_agrees_with_the_definition_while_rules_change() {
    for seed in 0..40 {
        let r = &mut Random(seed);
        let mut engines = engines();
        let mut rules: Vec<(RuleId, Priority, Match)> = Vec::new();
        for step in 0..120 {
            let (priority, matches) = (Priority(r.next(5)), random_match(r));
            match r.next(4) {
                0 if !rules.is_empty() => {
                    let (id, ..) = rules.remove(r.next(rules.len() as u32) as usize);
                    engines.iter_mut().for_each(|e| assert!(e.remove(id)));
                }
                1 if !rules.is_empty() => {
                    let at = r.next(rules.len() as u32) as usize;
                    rules[at] = (rules[at].0, priority, matches.clone());
                    engines.iter_mut().for_each(|e| assert!(e.replace(rules[at].0, priority, &matches)));
                }
                _ => {
                    let id = RuleId(step);
                    rules.push((id, priority, matches.clone()));
                    engines.iter_mut().for_each(|e| e.insert(id, priority, &matches).unwrap());
                }
            }
            let keys: Vec<FlowKey> = (0..r.next(70)).map(|_| random_key(r)).collect();
            let wanted: Vec<_> = keys.iter().map(|key| definition(&rules, key)).collect();
            for engine in &engines {
                let mut hits = vec![None; keys.len()];
                engine.lookup_batch(&keys, &mut hits);
                assert_eq!(hits, wanted, "{} seed {seed} step {step}", engine.name());
                // Some lanes only; other lanes keep their stale hits.
                let (some, stale) =
                    (LaneMask::first(keys.len().min(64)), Hit { rule: RuleId(9999), priority });
                let some =
                    LaneMask(some.0 & (u64::from(r.next(u32::MAX)) << 31 | u64::from(r.next(u32::MAX))));
                let mut hits = vec![Some(stale); keys.len()];
                engine.lookup_lanes(&keys, some, &mut hits);
                for (lane, hit) in hits.iter().enumerate() {
                    let is_asked = lane < 64 && some.0 >> lane & 1 == 1;
                    let wanted = if is_asked { wanted[lane] } else { Some(stale) };
                    assert_eq!(*hit, wanted, "{} seed {seed} step {step} lane {lane}", engine.name());
                }
            }
            for _ in 0..20 {
                let key = random_key(r);
                let wanted = definition(&rules, &key);
                for engine in &engines {
                    assert_eq!(engine.lookup(&key), wanted, "{} seed {seed} step {step}", engine.name());
                    assert_eq!(engine.len(), rules.len());
                }
            }
        }
    }
}

#[test]
fn wildcarded_bits_do_not_change_the_answer() {
    for seed in 100..140 {
        let r = &mut Random(seed);
        let mut engines = engines();
        for id in 0..30 {
            let (priority, matches) = (Priority(r.next(5)), random_match(r));
            engines.iter_mut().for_each(|e| e.insert(RuleId(id), priority, &matches).unwrap());
        }
        for step in 0..100 {
            let key = random_key(r);
            for engine in &engines {
                let mut looked_at = FlowMask::zero();
                let hit = engine.lookup_wildcards(&key, &mut looked_at);
                assert_eq!(hit, engine.lookup(&key), "{} seed {seed} step {step}", engine.name());
                for _ in 0..30 {
                    let mut other = random_key(r);
                    for w in looked_at.present_words() {
                        let bits = looked_at.word(w);
                        other.set_word(w, other.word(w) & !bits | key.word(w) & bits);
                    }
                    assert_eq!(
                        engine.lookup(&other),
                        hit,
                        "{} seed {seed} step {step}: {key:?} and {other:?} agree in {looked_at:?}",
                        engine.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let config = acl::AclConfig { rules_max: 1, ..Default::default() };
    let engines: [Box<dyn RuleEngine>; 3] =
        [Box::new(LinearSearch::new(1)), Box::new(TupleSearch::new(1, 0)), Box::new(AclSearch::new(config))];
    for mut engine in engines {
        engine.insert(RuleId(0), Priority(1), &Match::any()).unwrap();
        assert_eq!(
            engine.insert(RuleId(0), Priority(1), &Match::any()),
            Err(InsertError::Duplicate(RuleId(0)))
        );
        assert_eq!(
            engine.insert(RuleId(1), Priority(9), &Match::any()),
            Err(InsertError::Full { rules_max: 1 })
        );
        assert_eq!(engine.lookup(&FlowKey::zero()).unwrap().rule, RuleId(0));
    }
}

#[test]
fn ports_stay_wild_where_addresses_decide() {
    let mut tuple = TupleSearch::new(10, 0);
    let mut web = Match::any();
    web.set(Field::Ipv4Dst, 0x0a00_0001).set(Field::TpDst, 80);
    tuple.insert(RuleId(0), Priority(2), &web).unwrap();
    tuple.insert(RuleId(1), Priority(1), &Match::any()).unwrap();
    let mut key = FlowKey::zero();
    key.set(Field::Ipv4Dst, 0x0b00_0001);
    let mut looked_at = FlowMask::zero();
    tuple.lookup_wildcards(&key, &mut looked_at);
    // 10/8 and 11/8 differ in the eighth bit.
    assert_eq!(looked_at.get(Field::Ipv4Dst), 0xff00_0000);
    assert_eq!(looked_at.get(Field::TpDst), 0);
}

/// As OVN's tables do, whose rules for other logical datapaths, protocols and addresses rule a packet out in several ways.
#[test]
fn ports_and_addresses_stay_wild_where_metadata_a_protocol_or_what_is_looked_at_decides() {
    let mut tuple = TupleSearch::new(10, 0);
    let rule = |metadata: u128, fields: &[(Field, u128)]| {
        let mut rule = Match::any();
        rule.set(Field::Metadata, metadata).set(Field::EthType, 0x800);
        fields.iter().for_each(|(field, value)| _ = rule.set(*field, *value));
        rule
    };
    let rules = [
        rule(2, &[(Field::Ipv4Src, 0xc0a8_0001)]),
        rule(1, &[(Field::NwProto, 17), (Field::TpSrc, 546)]),
        rule(1, &[(Field::NwProto, 6), (Field::Ipv4Src, 0x0a00_0063), (Field::Ipv4Dst, 0x0a60_0001)]),
    ];
    for (id, matches) in (0..).zip(&rules) {
        tuple.insert(RuleId(id), Priority(9 - id), matches).unwrap();
    }
    let mut key = FlowKey::zero();
    for (field, value) in [
        (Field::Metadata, 1),
        (Field::EthType, 0x800),
        (Field::NwProto, 6),
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a60_0063),
        (Field::TpSrc, 40_000),
    ] {
        key.set(field, value);
    }
    let mut looked_at = FlowMask::zero();
    looked_at.add_field(Field::Ipv4Dst);
    assert_eq!(tuple.lookup_wildcards(&key, &mut looked_at), None);
    let others = [Field::Ipv4Src, Field::TpSrc].map(|field| looked_at.get(field));
    assert_eq!(others, [0, 0]);
}

#[test]
fn an_emptied_table_keeps_no_subtable() {
    let mut tuple = TupleSearch::new(1000, 0);
    let r = &mut Random(5);
    for id in 0..200 {
        tuple.insert(RuleId(id), Priority(r.next(9)), &random_match(r)).unwrap();
    }
    for id in 0..200 {
        assert!(tuple.remove(RuleId(id)));
        assert!(!tuple.remove(RuleId(id)));
    }
    assert_eq!((tuple.len(), tuple.subtables()), (0, 0));
}

#[test]
fn words_that_all_rules_share_become_gates() {
    for engine in acl::AclEngine::ALL {
        let config = acl::AclConfig::default().with_engine(engine);
        let r = &mut Random(7);
        let rules: Vec<Match> = (0..300)
            .map(|_| {
                let mut m = random_match(r);
                m.set(Field::EthType, 0x0800).set(Field::InPort, 1);
                m
            })
            .collect();
        let given = rules.iter().enumerate().map(|(i, m)| (RuleId(i as u32), Priority(1), m));
        let list = AclSearch::build(config, given.clone()).unwrap();
        let given: Vec<_> = given.map(|(id, p, m)| (id, p, m.clone())).collect();
        let keys: Vec<FlowKey> = (0..300).map(|_| random_key(r)).collect();
        let mut hits = vec![None; keys.len()];
        list.lookup_batch(&keys, &mut hits);
        for (key, hit) in keys.iter().zip(hits) {
            assert_eq!(hit, definition(&given, key));
            let explained = list.explain(key);
            assert_eq!(explained.winner, hit.map(|h| h.rule));
            let others: Vec<_> =
                given.iter().filter(|(id, ..)| Some(*id) != explained.winner).cloned().collect();
            assert_eq!(explained.runner_up, hit.and_then(|_| definition(&others, key)).map(|h| h.rule));
        }
    }
}

#[test]
fn replacement_succeeds_without_memory() {
    let config = acl::AclConfig { memory_max: 20_000, ..Default::default() };
    let mut list = AclSearch::new(config);
    let r = &mut Random(3);
    let full = (0..).find(|id| list.insert(RuleId(*id), Priority(1), &random_match(r)).is_err()).unwrap();
    assert_eq!(list.len(), full as usize);
    assert!(list.replace(RuleId(0), Priority(9), &Match::any()));
    assert_eq!(list.lookup(&FlowKey::zero()).unwrap().rule, RuleId(0));
}

/// Returns a random list after a few changes, and its rules in order.
fn changed_table(seed: u32, r: &mut Random) -> (AclSearch, Vec<(RuleId, Priority, Match)>) {
    let engines =
        [acl::AclEngine::Auto, acl::AclEngine::Tree, acl::AclEngine::Dynamic, acl::AclEngine::Brute];
    let mut rules: Vec<(RuleId, Priority, Match)> = Vec::new();
    for id in 0..[3, 40, 200][seed as usize % 3] {
        let mut matches = random_match(r);
        // In some rounds all rules have one or two equal words.
        if !seed.is_multiple_of(4) {
            matches.set(Field::EthType, 0x0800);
        }
        if seed % 4 > 1 {
            matches.set(Field::InPort, 1);
        }
        rules.push((RuleId(id), Priority(r.next(5)), matches));
    }
    let config = acl::AclConfig::default().with_engine(engines[seed as usize / 4 % 4]);
    let mut table =
        AclSearch::build(config, rules.iter().map(|(id, p, m)| (*id, *p, m))).expect("there is room");
    // With changes since the build.
    for _ in 0..r.next(3) {
        let gone = rules.swap_remove(r.next(rules.len() as u32) as usize).0;
        assert!(table.remove(gone));
    }
    rules.sort_by_key(|(id, ..)| *id);
    (table, rules)
}

#[test]
fn columns_agree_with_keys() {
    use crate::packet::columns::{FlowColumns, Values};
    for seed in 0..48u32 {
        let r = &mut Random(seed.into());
        let (table, rules) = changed_table(seed, r);
        let check = |columns: &FlowColumns<'_>| {
            let mut found = vec![7; columns.len()];
            table.lookup_columns(columns, &mut found);
            for (row, found) in found.into_iter().enumerate() {
                let wanted = definition(&rules, &columns.key(row)).map_or(u32::MAX, |hit| hit.rule.0);
                assert_eq!(found, wanted, "seed {seed}, row {row} of {}", columns.len());
            }
        };
        let keys: Vec<FlowKey> = (0..300).map(|_| random_key(r)).collect();
        let column = |field: Field| keys.iter().map(move |key| key.get(field));
        let bytes = |field: Field, bytes: usize| -> Vec<u8> {
            column(field).flat_map(|v| v.to_be_bytes()[16 - bytes..].to_vec()).collect()
        };
        let (ports, macs) = (bytes(Field::InPort, 4), bytes(Field::EthDst, 6));
        let (from, protocols, tp_src) =
            (bytes(Field::Ipv4Src, 4), bytes(Field::NwProto, 1), bytes(Field::TpSrc, 2));
        let to: Vec<u32> = column(Field::Ipv4Dst).map(|v| v as u32).collect();
        let types: Vec<u16> = column(Field::EthType).map(|v| v as u16).collect();
        let tp_dst: Vec<u64> = column(Field::TpDst).map(|v| v as u64).collect();
        let registers = bytes(Field::XxReg3, 16);
        for rows in [300, 1, 0, 128, 129] {
            let columns = FlowColumns::new(rows)
                .with(Field::InPort, Values::Bytes(&ports[..rows * 4], 4))
                .and_then(|c| c.with(Field::EthDst, Values::Bytes(&macs[..rows * 6], 6)))
                .and_then(|c| c.with(Field::Ipv4Src, Values::Bytes(&from[..rows * 4], 4)))
                .and_then(|c| c.with(Field::Ipv4Dst, Values::U32(&to[..rows])))
                .and_then(|c| c.with(Field::EthType, Values::U16(&types[..rows])))
                .and_then(|c| c.with(Field::NwProto, Values::U8(&protocols[..rows])))
                .and_then(|c| c.with(Field::TpSrc, Values::Bytes(&tp_src[..rows * 2], 2)))
                .and_then(|c| c.with(Field::TpDst, Values::U64(&tp_dst[..rows])))
                .and_then(|c| c.with(Field::XxReg3, Values::Bytes(&registers[..rows * 16], 16)))
                .unwrap();
            assert!((0..rows).all(|row| columns.key(row) == keys[row]));
            check(&columns);
        }
        // Packets of one ethertype, which all rules may match, or none.
        for eth_type in [0x0800, 0x86dd] {
            let columns = FlowColumns::new(300)
                .with(Field::EthType, Values::One(eth_type))
                .and_then(|c| c.with(Field::Ipv4Dst, Values::U32(&to)))
                .and_then(|c| c.with(Field::InPort, Values::One(1)));
            check(&columns.unwrap());
        }
    }
}
