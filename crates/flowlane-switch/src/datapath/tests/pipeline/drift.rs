//! What rules write into the key is what they do to the packet.

use crate::datapath::translate;
use flowlane::classify::LinearSearch;
use flowlane::packet::{Field, FlowKey, parse};
use flowlane::rule::{Action, Match, Rule};

use crate::datapath::Pipeline;
use crate::packet::edit::tests::fields::{change, sound_or_broken, writable};
use crate::packet::edit::tests::reference::Random;
use crate::packet::{Frame, edit};
use crate::ruleset::{Miss, Step};

/// Tables 0 and 1: `actions` for every packet, then a rule for packets of exactly this key.
fn pipeline(actions: Vec<Action>, wanted: &FlowKey) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for number in [1, 0] {
        pipeline.add_table(number, "", Box::new(LinearSearch::new(4)), Miss::Drop);
    }
    let mut exact = Match::any();
    for info in Field::all() {
        exact.set(info.field, wanted.get(info.field));
    }
    let last = Rule { table: 1, ..Rule::new(exact, vec![Action::Normal]) };
    pipeline.add_rule(last).expect("there is table 1");
    pipeline.add_rule(Rule::new(Match::any(), actions)).expect("there is table 0");
    pipeline
}

fn actions(r: &mut Random) -> Vec<Action> {
    let fields = writable();
    let mut actions = Vec::new();
    // The options' addresses are rare, and may be zero after a change.
    let discovery = [Field::NdSll, Field::NdTll, Field::NdTarget, Field::NdReserved, Field::NdOptionsType];
    let near = [&discovery[..], &[Field::TpSrc, Field::EthDst, Field::VlanVid]].concat();
    for _ in 0..1 + r.below(3) {
        let field = if r.one_in(3) { r.pick(&near) } else { r.pick(&fields) };
        let (value, mask) = change(r, field);
        actions.push(match r.below(8) {
            0 => Action::PushVlan(r.pick(&[0x8100, 0x88a8])),
            1 => Action::PopVlan,
            _ => Action::set_field(field, value, mask),
        });
    }
    actions.push(Action::Goto(1));
    actions
}

#[test]
fn the_key_that_rules_have_written_is_that_of_the_packet_parsed_anew() {
    let mut r = Random(77);
    let (mut followed, mut changed) = (0, 0);
    for round in 0..20_000 {
        let bytes = sound_or_broken(&mut r);
        let (mut key, mut anew) = (FlowKey::zero(), FlowKey::zero());
        let mut headers = parse(&bytes, 1, &mut key);
        let actions = actions(&mut r);
        let steps = translate(&pipeline(actions.clone(), &key), &key).steps;
        // There the packet itself tells.
        if steps.iter().any(|step| matches!(step, Step::Recirculate { .. })) {
            continue;
        }
        let mut frame = Frame::default();
        frame.fill(&bytes);
        for step in &steps {
            match *step {
                Step::Do(Action::SetField { field, value, mask, .. }) => {
                    let done = edit::set_field(&mut frame, &mut headers, field, value, mask);
                    assert!(done, "{round}: {field:?} of {:?} {bytes:02x?}", headers.malformed);
                }
                Step::Do(Action::PushVlan(tpid)) => assert!(edit::push_vlan(&mut frame, &mut headers, tpid)),
                Step::Do(Action::PopVlan) => assert!(edit::pop_vlan(&mut frame, &mut headers)),
                _ => {}
            }
        }
        parse(frame.bytes(), 1, &mut anew);
        changed += usize::from(frame.bytes() != bytes);
        followed += 1;
        let steps = translate(&pipeline(actions.clone(), &anew), &key).steps;
        let found = steps.iter().any(|step| matches!(step, Step::Matched { table: 1, rule: Some(_), .. }));
        assert!(found, "{round}: {actions:?} {:?} {anew:?} {bytes:02x?}", headers.malformed);
    }
    assert!(followed > 15_000 && changed > 8_000, "{followed} {changed}");
}

/// The key of a neighbour solicitation with the address of its source.
fn solicitation() -> FlowKey {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend([[7; 16].as_slice(), &[1, 1, 2, 0, 0, 0, 0, 6]].concat());
    let bytes = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255], &[3; 32], &message].concat();
    let mut key = FlowKey::zero();
    parse(&bytes, 1, &mut key);
    key
}

#[test]
fn an_option_of_another_type_has_another_address() {
    let key = solicitation();
    for (kind, again) in [(1, false), (2, true), (14, true)] {
        let actions = vec![Action::set_field(Field::NdOptionsType, kind, 0xff), Action::Goto(1)];
        let steps = translate(&pipeline(actions, &key), &key).steps;
        let found = steps.iter().any(|step| matches!(step, Step::Recirculate { table: 1, .. }));
        assert_eq!(found, again, "{kind}: {steps:?}");
    }
}

#[test]
fn an_option_whose_address_became_zero_can_be_set_again() {
    let key = solicitation();
    let set = |value| Action::set_field(Field::NdSll, value, (1 << 48) - 1);
    let steps = translate(&pipeline(vec![set(0), set(5)], &key), &key).steps;
    assert_eq!(steps[1..], [Step::Do(set(0)), Step::Do(set(5))]);
}

/// Packets that agree in what a path depended on go the same way: whether they have a field is a part of that.
#[test]
fn packets_under_one_mask_are_changed_alike() {
    let mut r = Random(78);
    let mut alike = 0;
    for _ in 0..60 {
        let actions = actions(&mut r);
        let pipeline = pipeline(actions.clone(), &FlowKey::zero());
        let mut keys = Vec::new();
        for _ in 0..120 {
            let mut key = FlowKey::zero();
            parse(&sound_or_broken(&mut r), 1, &mut key);
            keys.push((translate(&pipeline, &key), key));
        }
        for (made, key) in &keys {
            for (other, other_key) in &keys {
                if key.agrees(other_key, &made.mask) {
                    assert_eq!(made.steps, other.steps, "{actions:?} {key:?} {other_key:?}");
                    alike += 1;
                }
            }
        }
    }
    assert!(alike > 60 * 121, "{alike}");
}
