//! Packets whose headers have moved: behind a label, a third tag, or parsed again.

use flowlane::rule::action::HEADERS_PUSHED_MAX;

use super::*;
use crate::ruleset::RulesetError;

fn rule(table: u8, actions: Vec<Action>) -> Rule {
    Rule { table, ..Rule::new(Match::any(), actions) }
}

/// A UDP packet, with these bytes between addresses and IPv4 header.
fn udp(between: &[u8], ttl: u8, to: [u8; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
    eth.ipv4([10, 0, 0, 1], to, ttl).udp(7, 53).write(&mut bytes, b"q").unwrap();
    [&bytes[..12], between, &bytes[14..]].concat()
}

/// Label stack entries, the last with the bottom bit; each with its number as label, and TTL 9.
fn labels(count: u8) -> Vec<u8> {
    let entry = |i| [0, i, u8::from(i + 1 == count), 9];
    [&[0x88, 0x47][..], &(0..count).flat_map(entry).collect::<Vec<u8>>()].concat()
}

/// Injects a packet; returns the worker and the frames sent, with their ports.
fn send(rules: &[Rule], policy: MalformedPolicy, frame: &[u8]) -> (Worker, Vec<(u32, Vec<u8>)>) {
    let (mut worker, sent) = worker(rules, 4, CacheConfig::default(), By::Tuple);
    worker.egress.faults.policy = policy;
    worker.inject(0, &[frame]).unwrap();
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (worker, sent)
}

fn sent(rules: &[Rule], frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    send(rules, MalformedPolicy::Drop, frame).1
}

fn to_nine() -> Action {
    set(Field::Ipv4Dst, 0x0909_0909)
}

fn out(port: u32) -> Action {
    Action::Output(PortNo(port))
}

#[test]
fn what_a_rule_does_behind_pop_mpls_is_done_to_what_is_behind_the_label() {
    let actions = vec![Action::PopMpls(0x0800), Action::dec_ttl(), to_nine(), out(2)];
    let wanted = udp(&[8, 0], 63, [9, 9, 9, 9]);
    assert_eq!(sent(&[rule(0, actions.clone())], &udp(&labels(1), 64, [10, 0, 0, 2])), [(2, wanted.clone())]);
    // More labels than the parser reads.
    let five = [vec![Action::PopMpls(0x8847); 4], actions].concat();
    assert_eq!(sent(&[rule(0, five)], &udp(&labels(5), 64, [10, 0, 0, 2])), [(2, wanted)]);
    // A packet whose TTL expires there goes to the controller, and no further.
    let actions = vec![Action::PopMpls(0x0800), Action::dec_ttl(), out(2)];
    let told = sent(&[rule(0, actions)], &udp(&labels(1), 1, [10, 0, 0, 2]));
    assert_eq!(told, [(CONTROLLER, udp(&[8, 0], 1, [10, 0, 0, 2]))]);
}

#[test]
fn move_reads_and_writes_what_is_behind_the_label() {
    let swap = vec![
        Action::PopMpls(0x0800),
        Action::Move { from: Field::Ipv4Src.into(), to: Field::Reg0.into() },
        Action::Move { from: Field::Ipv4Dst.into(), to: Field::Ipv4Src.into() },
        Action::Move { from: Field::Reg0.into(), to: Field::Ipv4Dst.into() },
        Action::Goto(1),
    ];
    let mut from_register = Match::any();
    from_register.set(Field::Reg0, 0x0a00_0001);
    let seen = Rule { table: 1, ..Rule::new(from_register, vec![out(2)]) };
    let frame = udp(&labels(1), 64, [10, 0, 0, 2]);
    let mut wanted = udp(&[8, 0], 64, [10, 0, 0, 2]);
    wanted[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    assert_eq!(sent(&[rule(0, swap), seen], &frame), [(2, wanted)]);
}

#[test]
fn all_tags_of_a_frame_can_be_removed() {
    let tags = [[0x81, 0, 0, 5].repeat(4), vec![8, 0]].concat();
    let actions = [vec![Action::PopVlan; 4], vec![to_nine(), out(2)]].concat();
    let wanted = udp(&[8, 0], 64, [9, 9, 9, 9]);
    assert_eq!(sent(&[rule(0, actions)], &udp(&tags, 64, [10, 0, 0, 2])), [(2, wanted)]);
}

#[test]
fn as_many_headers_are_pushed_as_a_rule_may_and_more_are_refused() {
    let push = |n: usize| [vec![Action::PushVlan(0x8100); n], vec![to_nine(), out(2)]].concat();
    let tags = [[0x81, 0, 0, 0].repeat(HEADERS_PUSHED_MAX), vec![8, 0]].concat();
    let got = sent(&[rule(0, push(HEADERS_PUSHED_MAX))], &udp(&[8, 0], 64, [10, 0, 0, 2]));
    assert_eq!(got, [(2, udp(&tags, 64, [9, 9, 9, 9]))]);
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
    let refused = pipeline.add_rule(rule(0, push(HEADERS_PUSHED_MAX + 1)));
    assert_eq!(refused, Err(RulesetError::Pushes(HEADERS_PUSHED_MAX + 1)));
}

#[test]
fn what_is_parsed_anew_and_is_malformed_is_counted_and_dropped_or_forwarded_as_configured() {
    let mut lie = udp(&labels(1), 64, [10, 0, 0, 2]);
    lie[20] = 0x70; // The IPv4 total length.
    let reason = Malformed::Ipv4TotalLength as usize;
    let within = vec![Action::PopMpls(0x0800), to_nine(), out(2)];
    let between = [rule(0, vec![Action::PopMpls(0x0800), Action::Goto(1)]), rule(1, vec![out(2)])];
    for rules in [&[rule(0, within)][..], &between] {
        let (worker, sent) = send(rules, MalformedPolicy::Drop, &lie);
        assert_eq!((worker.egress.faults.found[reason], sent), (1, vec![]));
        let (worker, sent) = send(rules, MalformedPolicy::Forward, &lie);
        let wanted = [&lie[..12], &[8, 0], &lie[18..]].concat();
        assert_eq!((worker.egress.faults.found[reason], sent), (1, vec![(2, wanted)]));
    }
    // Behind the third tag, which the parser does not look behind.
    let mut tagged = udp(&[&[0x81, 0, 0, 5].repeat(3)[..], &[8, 0]].concat(), 64, [10, 0, 0, 2]);
    tagged[28] = 0x70;
    let rules = [rule(0, vec![Action::PopVlan, Action::Goto(1)]), rule(1, vec![out(2)])];
    let (worker, sent) = send(&rules, MalformedPolicy::Drop, &tagged);
    assert_eq!((worker.egress.faults.found[reason], sent), (1, vec![]));
}

#[test]
fn a_packet_that_was_sent_before_it_was_parsed_anew_is_not_dropped() {
    let rules = [rule(0, vec![out(2), Action::PopMpls(0x0800), Action::Goto(1)]), rule(1, vec![])];
    let (worker, sent) = send(&rules, MalformedPolicy::Drop, &udp(&labels(1), 64, [10, 0, 0, 2]));
    assert_eq!((sent.len(), worker.egress.drops.by_rule), (1, 0));
    let rules = [rule(0, vec![Action::PopMpls(0x0800), Action::Goto(1)]), rule(1, vec![])];
    let (worker, sent) = send(&rules, MalformedPolicy::Drop, &udp(&labels(1), 64, [10, 0, 0, 2]));
    assert_eq!((sent.len(), worker.egress.drops.by_rule), (0, 1));
}
