//! Access lists against a search rule by rule.

use std::collections::BTreeMap;

use flowlane::{
    AclEngine, Action, Categories, Classifier, ClassifierBuilder, Error, ErrorKind, Field, FlowColumns,
    FlowKey, FlowMask, Match, NONE, Priority, Rule, Values, read_rules,
};

use crate::random::Random;

pub(crate) const ENGINES: [AclEngine; 4] =
    [AclEngine::Auto, AclEngine::Tree, AclEngine::Dynamic, AclEngine::Brute];

/// A packet, as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    kind: u16,
    from: u32,
    to: u32,
    protocol: u8,
    port: u16,
}

/// A rule, as it is compared here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub priority: u32,
    kind: Option<u16>,
    from: (u32, u32),
    to: (u32, u32),
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

fn mask(len: u32) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

pub(crate) fn packet(r: &mut Random) -> Packet {
    Packet {
        kind: if r.below(8) == 0 { 0x86dd } else { 0x0800 },
        from: r.below(3) << 24 | r.below(3) << 16 | r.below(2),
        to: r.below(3) << 24 | r.below(3) << 16 | r.below(2),
        protocol: [6, 17, 1][r.below(3) as usize],
        port: r.below(40) as u16,
    }
}

impl Packet {
    pub(crate) fn key(self) -> FlowKey {
        let mut key = FlowKey::zero();
        key.set(Field::EthType, self.kind.into());
        key.set(Field::Ipv4Src, self.from.into());
        key.set(Field::Ipv4Dst, self.to.into());
        key.set(Field::NwProto, self.protocol.into());
        key.set(Field::TpDst, self.port.into());
        key
    }
}

pub(crate) fn plain(r: &mut Random) -> Plain {
    let mut prefix = || {
        let mask = mask([0, 8, 16, 32][r.below(4) as usize]);
        ((r.below(3) << 24 | r.below(3) << 16 | r.below(2)) & mask, mask)
    };
    let (from, to) = (prefix(), prefix());
    let low = r.below(40) as u16;
    if r.below(6) == 0 {
        // For packets of any kind, whose addresses and ports a rule cannot name.
        let any = (0, 0);
        return Plain { priority: r.below(6), kind: None, from: any, to: any, protocol: None, ports: None };
    }
    Plain {
        priority: r.below(6),
        kind: Some(0x0800),
        from,
        to,
        protocol: (r.below(3) > 0).then(|| [6, 17][r.below(2) as usize]),
        ports: (r.below(3) > 0).then(|| (low, low + r.below(9) as u16)),
    }
}

impl Plain {
    pub(crate) fn matches(self, p: Packet) -> bool {
        self.kind.is_none_or(|kind| kind == p.kind)
            && p.from & self.from.1 == self.from.0
            && p.to & self.to.1 == self.to.0
            && self.protocol.is_none_or(|protocol| protocol == p.protocol)
            && self.ports.is_none_or(|(low, high)| (low..=high).contains(&p.port))
    }

    pub(crate) fn rule(self) -> Rule {
        let mut matches = Match::any();
        if let Some(kind) = self.kind {
            matches.set(Field::EthType, kind.into());
        }
        matches.set_masked(Field::Ipv4Src, self.from.0.into(), self.from.1.into());
        matches.set_masked(Field::Ipv4Dst, self.to.0.into(), self.to.1.into());
        if let Some(protocol) = self.protocol {
            matches.set(Field::NwProto, protocol.into());
        }
        if let Some((low, high)) = self.ports {
            matches.set_range(Field::TpDst, low, high);
        }
        let mut rule = Rule::new(matches, Vec::new());
        rule.priority = Priority(self.priority);
        rule
    }
}

/// The numbers of the rules that match, the best first: by priority, then in the order in which they came.
pub(crate) fn matching<'a>(
    rules: impl Iterator<Item = (u32, &'a Plain)>,
    place: impl Fn(u32) -> u32,
    p: Packet,
) -> Vec<u32> {
    let mut found: Vec<_> =
        rules.filter(|(_, rule)| rule.matches(p)).map(|(n, rule)| (rule.priority, n)).collect();
    found.sort_by_key(|(priority, number)| (std::cmp::Reverse(*priority), place(*number)));
    found.into_iter().map(|(_, number)| number).collect()
}

/// Calls `with` with these packets as columns.
pub(crate) fn columns(packets: &[Packet], with: impl FnOnce(&FlowColumns<'_>)) {
    let of = |get: fn(&Packet) -> u32| packets.iter().map(get).collect::<Vec<u32>>();
    let (from, to) = (of(|p| p.from), of(|p| p.to));
    let kinds: Vec<u16> = packets.iter().map(|p| p.kind).collect();
    let protocols: Vec<u8> = packets.iter().map(|p| p.protocol).collect();
    let ports: Vec<u8> = packets.iter().flat_map(|p| p.port.to_be_bytes()).collect();
    let columns = FlowColumns::new(packets.len())
        .with(Field::EthType, Values::U16(&kinds))
        .and_then(|c| c.with(Field::Ipv4Src, Values::U32(&from)))
        .and_then(|c| c.with(Field::Ipv4Dst, Values::U32(&to)))
        .and_then(|c| c.with(Field::NwProto, Values::U8(&protocols)))
        .and_then(|c| c.with(Field::TpDst, Values::Bytes(&ports, 2)));
    with(&columns.expect("as many of each"));
}

/// Every lookup against the search rule by rule.
fn check(acl: &Classifier, rules: &BTreeMap<u32, Plain>, r: &mut Random) {
    let packets: Vec<Packet> = (0..300).map(|_| packet(r)).collect();
    let keys: Vec<FlowKey> = packets.iter().map(|p| p.key()).collect();
    let wanted: Vec<Vec<u32>> =
        packets.iter().map(|p| matching(rules.iter().map(|(n, rule)| (*n, rule)), |n| n, *p)).collect();
    let best: Vec<u32> = wanted.iter().map(|all| all.first().copied().unwrap_or(NONE)).collect();
    for len in [300, 0, 1, 63, 64, 65, 127, 128, 129] {
        let mut found = vec![7; len];
        acl.lookup_keys(&keys[..len], &mut found);
        assert_eq!(found, best[..len], "{len} keys, {}", acl.engine());
        columns(&packets[..len], |columns| acl.lookup_columns(columns, &mut found));
        assert_eq!(found, best[..len], "{len} rows, {}", acl.engine());
    }
    for ((key, wanted), packet) in keys.iter().zip(&wanted).zip(&packets).take(60) {
        assert_eq!(acl.lookup(key), wanted.first().copied());
        let explained = acl.explain(key);
        assert_eq!(explained.rule, wanted.first().copied(), "{packet:?}");
        assert_eq!(explained.next_rule, wanted.get(1).copied(), "{packet:?}");
        assert_eq!((explained.engine, explained.variant), (acl.engine(), acl.variant()));
        // What the answer does not depend on may be anything.
        let mut other = packet_like(key, &explained.depends_on, r);
        assert_eq!(acl.lookup(&other), explained.rule, "{packet:?} {:?}", explained.depends_on);
        other = packet_like(&other, &explained.depends_on, r);
        assert!(other.agrees(key, &explained.depends_on) && acl.lookup(&other) == explained.rule);
    }
    assert_eq!(acl.len(), rules.len());
    assert!(acl.rules().map(|(number, _)| number).eq(rules.keys().copied()));
}

/// A key that agrees with this one in these bits, and is drawn otherwise.
fn packet_like(key: &FlowKey, bits: &FlowMask, r: &mut Random) -> FlowKey {
    let mut like = packet(r).key();
    for info in Field::all() {
        like.set_masked(info.field, key.get(info.field), bits.get(info.field));
    }
    like
}

#[test]
fn highest_priority_wins_in_every_engine_after_changes() {
    for seed in 0..24 {
        let r = &mut Random::new(seed);
        let engine = ENGINES[seed as usize % 4];
        let mut rules: BTreeMap<u32, Plain> =
            (0..[3, 20, 400][seed as usize % 3]).map(|n| (n, plain(r))).collect();
        let config = ClassifierBuilder::new().engine(engine).threads(1).seed(seed);
        let mut acl = config.build(rules.values().map(|rule| rule.rule())).unwrap();
        check(&acl, &rules, r);
        let before = acl.snapshot();
        let at_first = before.len();
        for _ in 0..40 {
            match r.below(3) {
                0 => {
                    let rule = plain(r);
                    let number = acl.next_number();
                    assert_eq!(acl.insert(rule.rule()), Ok(number));
                    rules.insert(number, rule);
                }
                1 => {
                    let number = r.below(acl.next_number());
                    assert_eq!(acl.remove(number).is_some(), rules.remove(&number).is_some());
                }
                _ => {
                    let (number, rule) = (r.below(acl.next_number()), plain(r));
                    let old = acl.replace(number, rule.rule()).unwrap();
                    assert_eq!(old, rules.get(&number).map(|old| old.rule()));
                    rules.entry(number).and_modify(|old| *old = rule);
                }
            }
        }
        check(&acl, &rules, r);
        assert_eq!(before.len(), at_first, "a list that was kept stays");
        for field in acl.fields() {
            assert_ne!(acl.looked_at().get(field), 0);
        }
    }
}

#[test]
fn rule_numbers_are_stable_and_never_reused() {
    let rule = |port: u32| read_rules(&format!("udp,tp_dst={port},actions=drop"), "rules").unwrap().remove(0);
    let mut acl = ClassifierBuilder::new().build_numbered([(7, rule(1)), (3, rule(2))]).unwrap();
    assert_eq!(acl.next_number(), 8);
    assert_eq!(acl.insert_all([rule(3), rule(4)]), Ok(8..10));
    assert_eq!(acl.remove(9), Some(rule(4)));
    assert_eq!(acl.remove(9), None);
    assert_eq!(acl.insert(rule(5)), Ok(10));
    acl.reserve_numbers_below(20);
    acl.reserve_numbers_below(5);
    assert_eq!(acl.insert(rule(6)), Ok(20));
    assert_eq!(acl.rule(20).unwrap().to_string(), rule(6).to_string());
    assert_eq!(acl.replace(9, rule(1)), Ok(None));
}

#[test]
fn failed_changes_leave_no_trace() {
    let rule = |port: u32| read_rules(&format!("udp,tp_dst={port},actions=drop"), "rules").unwrap().remove(0);
    let mut acl = ClassifierBuilder::new().rules_max(3).build([rule(1), rule(2)]).unwrap();
    let error = acl.insert_all([rule(3), rule(4)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("limit of 3 rules"), "{error}");
    assert_eq!((acl.len(), acl.next_number()), (2, 2));
    let error = acl.insert_numbered([(5, rule(3)), (1, rule(4))], Categories::FIRST).unwrap_err();
    assert_eq!((error.kind(), acl.len(), acl.next_number()), (ErrorKind::Input, 2, 2));
    assert_eq!(
        acl.insert_numbered([(NONE, rule(3))], Categories::FIRST).unwrap_err().kind(),
        ErrorKind::Input
    );
    let build = |config: ClassifierBuilder| config.build([rule(1), rule(2)]).map(drop);
    assert_eq!(build(ClassifierBuilder::new().rules_max(1)).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(build(ClassifierBuilder::new().memory_max(10)).unwrap_err().kind(), ErrorKind::Limit);
    let twice = ClassifierBuilder::new().build_numbered([(1, rule(1)), (1, rule(2))]).unwrap_err();
    assert!(twice.to_string().contains("number 1"), "{twice}");
    let unknown = "treee".parse::<AclEngine>().unwrap_err();
    assert!(unknown.to_string().contains("`treee`; there are auto, brute, tree and dynamic"), "{unknown}");
}

#[test]
fn rules_that_a_text_could_not_say_are_refused() {
    let good = || read_rules("udp,tp_dst=53,actions=drop", "rules").unwrap().remove(0);
    let without_protocol = || {
        let mut matches = Match::any();
        matches.set(Field::TpDst, 53);
        Rule::new(matches, Vec::new())
    };
    let said = |error: Error| (error.kind(), error.row(), error.to_string());
    let text = read_rules("tp_dst=53,actions=drop", "rules").unwrap_err().to_string();
    let reason = "tp_dst needs `tcp`, `udp` or `sctp` (or `ip`, for any of them)";
    assert!(text.contains(reason), "{text}");
    let expected =
        |row, number| (ErrorKind::Input, Some(row), format!("rule {number}: {reason} in the match"));
    let builder = ClassifierBuilder::new();
    assert_eq!(said(builder.build([good(), without_protocol()]).unwrap_err()), expected(1, 1));
    assert_eq!(said(builder.build_numbered([(7, without_protocol())]).unwrap_err()), expected(0, 7));
    let mut acl = builder.build([good()]).unwrap();
    assert_eq!(said(acl.insert_all([good(), without_protocol()]).unwrap_err()), expected(1, 2));
    assert_eq!((acl.len(), acl.next_number()), (1, 1), "nothing was inserted");
    assert_eq!(acl.replace(0, without_protocol()).unwrap_err().to_string(), expected(0, 0).2);
    assert_eq!(acl.rule(0), Some(&good()), "nothing was replaced");
    let wide = Action::set_field(Field::NwTtl, 256, 0xff);
    let refused = acl.insert(Rule { actions: vec![wide], ..good() }).unwrap_err();
    let wide = "rule 1: 256 does not fit into the 8 bits of nw_ttl; the largest value is 255";
    assert_eq!(refused.to_string(), wide);
}
