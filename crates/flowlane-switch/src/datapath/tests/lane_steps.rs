//! Control flow within rules: calls, copies, groups, action sets, stacks of values.

use flowlane::packet::FieldRef;
use flowlane::rule::action::SetForm;
use flowlane::rule::group::{Bucket, Group, GroupKind, Selection};

use super::*;
use crate::ruleset::{CompiledGroup, Event};

const TABLES: u8 = 5;

/// A part of a register.
fn part(r: &mut Random) -> FieldRef {
    let field = r.pick(&[Field::Reg0, Field::Reg1]);
    r.pick(&[
        FieldRef::whole(field),
        FieldRef::new(field, 0, 16).unwrap(),
        FieldRef::new(field, 8, 3).unwrap(),
    ])
}

/// An action of a rule of a table that may lead to later tables; `depth`: how deep it may be nested.
fn action_of(r: &mut Random, table: u8, depth: usize) -> Action {
    let later = |r: &mut Random| table + 1 + r.next(u32::from(TABLES - table)) as u8;
    match r.next(24) {
        0..4 => Action::call(later(r)),
        4 => {
            Action::Resubmit { in_port: Some(PortNo(1 + r.next(4))), table: Some(later(r)), original: false }
        }
        5 | 6 if depth > 0 => Action::Clone((0..r.next(4)).map(|_| action_of(r, table, depth - 1)).collect()),
        // Buckets may lead to the last table.
        7 if table + 1 < TABLES => Action::Group(r.next(4)),
        8 if r.next(4) == 0 => Action::Exit,
        9 if r.next(2) == 0 => Action::Push(FieldRef::whole(Field::TpDst)),
        9 => Action::Push(part(r)),
        10 if r.next(4) == 0 => Action::Pop(FieldRef::whole(Field::EthSrc)),
        10 => Action::Pop(part(r)),
        11 => Action::OutputField { port: part(r), max_len: u16::MAX },
        12 => set(r.pick(&[Field::Reg0, Field::Reg1]), r.next(5).into()),
        13 => set_port(r),
        _ => random_action(r),
    }
}

/// Sets a port of any protocol, or of one.
fn set_port(r: &mut Random) -> Action {
    let (field, value) = (r.pick(&[Field::TpSrc, Field::TpDst]), r.pick(&[53, 80]));
    let protocol = r.pick(&[None, Some(6), Some(17), Some(132)]);
    Action::SetField { field, value, mask: 0xffff, form: SetForm::SetField, protocol }
}

/// Actions that a set may have.
fn written(r: &mut Random, table: u8) -> Action {
    match r.next(8) {
        0 if table + 1 < TABLES => Action::Group(r.next(4)),
        1 => Action::call(table + 1 + r.next(u32::from(TABLES - table)) as u8),
        2 => Action::PopVlan,
        3 => Action::dec_ttl(),
        4 => set_port(r),
        _ => Action::Output(PortNo(1 + r.next(4))),
    }
}

fn rules_of(r: &mut Random) -> Vec<Rule> {
    let mut rules = Vec::new();
    for table in 0..TABLES {
        for _ in 0..1 + r.next(6) {
            let mut actions: Vec<Action> = (0..r.next(5)).map(|_| action_of(r, table, 2)).collect();
            match r.next(6) {
                0 => actions.push(Action::ClearActions),
                1 | 2 => {
                    actions.push(Action::WriteActions((0..r.next(4)).map(|_| written(r, table)).collect()))
                }
                _ => {}
            }
            if r.next(3) == 0 {
                actions.push(Action::Goto(table + 1 + r.next(u32::from(TABLES - table)) as u8));
            }
            let (matches, priority) = (random_match(r), Priority(r.next(4)));
            rules.push(Rule { table, priority, cookie: 0, matches, actions });
        }
    }
    rules
}

fn groups_of(r: &mut Random) -> Vec<Group> {
    let kinds = [GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];
    let mut group = |id: u32| {
        let kind = r.pick(&kinds);
        let buckets = if kind == GroupKind::Indirect { 1 } else { r.next(4) };
        let bucket = |r: &mut Random, number| {
            let mut actions: Vec<Action> = (0..r.next(3)).map(|_| random_action(r)).collect();
            actions.push(match r.next(4) {
                0 => Action::call(TABLES - r.next(2) as u8),
                1 if id > 0 => Action::Group(id - 1),
                _ => Action::Output(PortNo(1 + r.next(4))),
            });
            let watch_port = (r.next(3) == 0).then(|| PortNo(1 + r.next(6)));
            Bucket { id: number, weight: r.next(3) as u16, watch_port, watch_group: None, actions }
        };
        let buckets = (0..buckets).map(|number| bucket(r, number)).collect();
        Group { id, kind, selection: Selection::Default, basis: 0, buckets }
    };
    (0..3).map(&mut group).collect()
}

fn lines(rules: &[Rule]) -> String {
    rules.iter().map(|rule| format!("{rule}\n")).collect()
}

#[test]
fn control_flow_is_that_of_its_definition_whichever_way_a_packet_takes() {
    let mut sent_frames = 0;
    for seed in 0..150u64 {
        let r = &mut Random(seed ^ 0x1a9e);
        let (rules, groups) = (rules_of(r), groups_of(r));
        let caches = CacheConfig {
            adaptive: r.pick(&[false, true]),
            megaflows_max: r.pick(&[1, 20, 1000]),
            ..CacheConfig::default()
        };
        let (mut cached, cached_sent) = worker(&rules, TABLES, caches, By::pick(seed));
        let (mut plain, plain_sent) = worker(&rules, TABLES, no_caches(), By::pick(seed / 7));
        for group in &groups {
            let compiled = Arc::new(CompiledGroup::new(group.clone()));
            for pipeline in [&mut plain.lookup.pipeline, &mut cached.lookup.pipeline] {
                pipeline.apply(Event::Group { id: group.id, group: Some(compiled.clone()) });
            }
        }
        for round in 0..4 {
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..40).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut all = Vec::new();
            for (i, bytes) in borrowed.iter().enumerate() {
                let wanted = interpret(&plain.lookup.pipeline, port as u32 + 1, bytes);
                let at = format!(
                    "seed {seed} round {round} packet {i} {bytes:02x?}\n{}\n{groups:?}",
                    lines(&rules)
                );
                plain.inject(port, &[bytes]).unwrap();
                assert_eq!(std::mem::take(&mut *plain_sent.lock().unwrap()), wanted, "plain: {at}");
                assert_eq!(traced(&plain, port, bytes), Some(wanted.clone()), "traced: {at}");
                cached.inject(port, &[bytes]).unwrap();
                assert_eq!(std::mem::take(&mut *cached_sent.lock().unwrap()), wanted, "cached: {at}");
                all.extend(wanted);
            }
            sent_frames += all.len();
            plain.inject(port, &borrowed).unwrap();
            cached.inject(port, &borrowed).unwrap();
            for sent in [&plain_sent, &cached_sent] {
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                let differs = sent.iter().zip(&all).position(|(one, other)| one != other);
                assert!(
                    sent == all,
                    "seed {seed} round {round}: frame {differs:?} of {}, {}: {:?} and {:?}\n{}\n{groups:?}",
                    sent.len(),
                    all.len(),
                    differs.map(|at| &sent[at]),
                    differs.map(|at| &all[at]),
                    lines(&rules)
                );
            }
        }
        assert_eq!(counters(&mut cached), counters(&mut plain), "seed {seed}\n{}", lines(&rules));
    }
    assert!(sent_frames > 5000, "{sent_frames}");
}

/// A rule that makes two copies, each of which reaches it again, ends.
#[test]
fn copies_without_end_are_refused_and_counted() {
    let again = || Action::Clone(vec![Action::call(0)]);
    let rules = [Rule::new(Match::any(), vec![again(), again(), Action::Output(PortNo(2))])];
    for caches in [no_caches(), CacheConfig::default()] {
        let (mut worker, _) = worker(&rules, 1, caches, By::Tuple);
        let frame = packet(&mut Random(1));
        worker.inject(0, &[&frame, &frame]).unwrap();
        assert!(worker.egress.drops.call_depth > 1000);
        assert!(traced(&worker, 0, &frame).is_some());
    }
}

/// Rules that lead back end after as many rounds as in Open vSwitch, however often the packet is parsed again, and rounds that have
/// returned do not count.
#[test]
fn packets_that_go_round_end_after_64_rounds() {
    let (back, out) = (|| Action::call(0), || Action::Output(PortNo(2)));
    let parsed = || vec![Action::PushMpls(0x8847), Action::PopMpls(0x88b5)];
    let with = |actions: Vec<Action>, last: Action| [vec![out()], actions, vec![last]].concat();
    let ways = [
        (with(vec![], back()), 65, 1),
        (with(parsed(), back()), 65, 1),
        (with(parsed(), Action::Goto(1)), 65, 1),
        (with(vec![], Action::call(1)), 65, 1),
        (with(vec![Action::Clone(vec![out()])], back()), 130, 1),
        (with(vec![], Action::WriteActions(vec![back()])), 2, 0),
        // Nothing follows: the packet itself goes on there.
        (with(vec![], Action::Clone(vec![back()])), 65, 1),
        // A copy for each, one within the other.
        (with(vec![Action::Clone(vec![back()])], Action::ClearActions), 33, 1),
        // Nothing follows that others can tell.
        (with(vec![Action::Clone(vec![back()])], Action::set_field(Field::Reg0, 1, 1)), 65, 1),
        // Rules do not see that packets have come again.
        (with(parsed(), Action::call(5)), 2, 0),
        // Forward, and in a row.
        (vec![Action::call(2); 100], 100, 0),
    ];
    let first = || {
        let mut first = Match::any();
        first.set(Field::RecircId, 0);
        first
    };
    let rule = |table, actions| Rule { table, ..Rule::new(Match::any(), actions) };
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 50]].concat();
    for (way, sent_frames, refused) in ways {
        let forward = [rule(0, way.clone()), rule(1, vec![back()]), rule(2, vec![Action::call(3)])];
        let again = Rule { matches: first(), ..rule(5, vec![Action::call(4)]) };
        let to_and_fro = [rule(3, vec![Action::call(4)]), rule(4, vec![out()]), again];
        let rules = [&forward[..], &to_and_fro].concat();
        for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
            let (mut worker, sent) = worker(&rules, 6, caches, By::Tuple);
            for _ in 0..2 {
                worker.egress.drops.call_depth = 0;
                worker.inject(0, &[&frame]).unwrap();
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                assert_eq!((sent.len(), worker.egress.drops.call_depth), (sent_frames, refused), "{way:?}");
                assert_eq!(traced(&worker, 0, &frame), Some(sent), "{way:?}");
            }
        }
    }
}

/// As many calls back as a flood has, one after the other.
#[test]
fn rounds_that_have_returned_do_not_count() {
    let rules = [
        Rule::new(Match::any(), vec![Action::call(2)]),
        Rule { table: 1, ..Rule::new(Match::any(), vec![Action::Output(PortNo(2))]) },
        Rule { table: 2, ..Rule::new(Match::any(), vec![Action::call(1); 1000]) },
    ];
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let (mut worker, sent) = worker(&rules, 3, caches, By::Tuple);
        let frame = packet(&mut Random(1));
        for _ in 0..2 {
            worker.inject(0, &[&frame]).unwrap();
            assert_eq!(std::mem::take(&mut *sent.lock().unwrap()).len(), 1000);
        }
        assert_eq!(worker.egress.drops.call_depth, 0);
    }
}

/// Packets decide what a field holds.
#[test]
fn a_field_may_hold_any_number_of_a_port() {
    let whole = FieldRef::new(Field::Reg0, 0, 16).unwrap();
    let output = Action::OutputField { port: whole, max_len: u16::MAX };
    let frame = packet(&mut Random(1));
    let mut sent_somewhere = 0;
    for number in (0..6).chain([0xfeff, 0xff00]).chain(0xfff0..=0xffff) {
        let known = vec![set(Field::Reg0, number), output.clone()];
        // Behind a label, cached paths do not know the packet's fields.
        let moved = [vec![Action::PushMpls(0x8847)], known.clone()].concat();
        for actions in [known, moved] {
            let rules = [Rule::new(Match::any(), actions)];
            let (mut plain, plain_sent) = worker(&rules, 1, no_caches(), By::Tuple);
            let caches = CacheConfig { adaptive: false, ..CacheConfig::default() };
            let (mut cached, cached_sent) = worker(&rules, 1, caches, By::Tuple);
            let wanted = match number {
                // `normal` has a test of its own.
                0xfffa => traced(&plain, 0, &frame).unwrap(),
                _ => interpret(&plain.lookup.pipeline, 1, &frame),
            };
            for _ in 0..2 {
                for (worker, sent) in [(&mut plain, &plain_sent), (&mut cached, &cached_sent)] {
                    worker.inject(0, &[&frame]).unwrap();
                    assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), wanted, "{number:#x}");
                    assert_eq!(traced(worker, 0, &frame), Some(wanted.clone()), "{number:#x}");
                }
            }
            sent_somewhere += usize::from(!wanted.is_empty());
        }
    }
    assert_eq!(sent_somewhere, 2 * (3 + 5), "ports 2 to 4, in_port, normal, flood, all and controller");
}
