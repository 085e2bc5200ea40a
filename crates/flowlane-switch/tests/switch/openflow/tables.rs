//! Tables that are full, and actions that packets of their rule may lack the headers for.

use flowlane::packet::FieldRef;
use flowlane::rule::{Command, FlowMod};
use flowlane_openflow::message::AsyncConfig;
use flowlane_openflow::stats::{TableConfig, Vacancy, table_reason};
use flowlane_switch::control::{Changes, PortChange};
use flowlane_switch::ruleset::PortFlags;

use super::*;

/// The rules that a table of this switch takes.
const RULES_MAX: usize = 1000;

#[test]
fn a_full_table_that_evicts_loses_the_least_important_rule_with_a_timeout() {
    with_switch(|path, _| {
        let mut controller = Controller::connect(path, Version::OpenFlow14);
        for number in 0..RULES_MAX - 2 {
            controller.send_change(&format!("add table=1,priority={number},cookie=9,udp actions=drop"));
        }
        for (cookie, importance) in [(1, 7), (2, 5)] {
            let timed = "table=1,hard_timeout=500,udp";
            controller.send_change(&format!(
                "add {timed},priority={},cookie={cookie},importance={importance} actions=drop",
                2000 + cookie
            ));
        }
        assert_eq!(controller.barrier(), None);
        let full = Some(ErrorKind::Known(ErrorCode::FlowModTableFull));
        let change =
            |controller: &mut Controller, line: &str| (controller.change(line), timed_cookies(controller));
        let one_more = "add table=1,priority=3001,cookie=9,udp actions=drop";
        assert_eq!(change(&mut controller, one_more), (full, vec![1, 2]));
        let (table, config, eviction, vacancy) = (1, 1 << 2, None, None);
        controller.send(&Message::TableMod(TableConfig { table, config, eviction, vacancy }));
        assert_eq!(controller.barrier(), None);
        assert_eq!(change(&mut controller, one_more), (None, vec![1]));
        let second = "add table=1,priority=3002,cookie=9,udp actions=drop";
        assert_eq!(change(&mut controller, second), (None, vec![]));
        let third = "add table=1,priority=3003,cookie=9,udp actions=drop";
        assert_eq!(change(&mut controller, third), (full, vec![]));
    });
}

/// As Open vSwitch 3.1 sends them to a table with a `flow_limit`: each event arms the other.
#[test]
fn events_are_sent_when_a_table_fills_and_empties() {
    with_switch(|path, _| {
        for version in [Version::OpenFlow14, Version::OpenFlow15] {
            let mut controller = Controller::connect(path, version);
            let reasons = 1 << table_reason::VACANCY_DOWN | 1 << table_reason::VACANCY_UP;
            let table_status = [Some(reasons), Some(0)];
            controller.send(&Message::SetAsync(AsyncConfig { table_status, ..AsyncConfig::default() }));
            controller.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 100 }));
            let set = |config: u32, down: u8, up: u8| {
                let vacancy = Some(Vacancy { down, up, current: 0 });
                Message::TableMod(TableConfig { table: 1, config, eviction: None, vacancy })
            };
            controller.send(&set(1 << 3, 99, 98));
            let refused = Some(ErrorKind::Known(ErrorCode::PropertyBadValue));
            assert_eq!(controller.barrier(), refused, "{version:?}");
            controller.send(&set(1 << 3, 98, 99));
            assert_eq!(controller.barrier(), None);
            let mut event = |number: usize, line: &str| {
                let line = format!("{line} table=1,priority={number}");
                controller.send_change(&if line.starts_with("add") { line + " actions=drop" } else { line });
                controller.send(&Message::BarrierRequest);
                let mut answers = vec![controller.next()];
                // The dispatcher of notices may come before the answer, or behind it.
                std::thread::sleep(Duration::from_millis(20));
                controller.send(&Message::BarrierRequest);
                while answers.iter().filter(|answer| **answer == Message::BarrierReply).count() < 2 {
                    answers.push(controller.next());
                }
                answers.into_iter().find_map(|answer| match answer {
                    Message::TableStatus(status) => {
                        Some((status.reason, status.config.vacancy.unwrap().current))
                    }
                    _ => None,
                })
            };
            let events: Vec<_> =
                (1..=30).filter_map(|number| Some((number, event(number, "add")?))).collect();
            assert_eq!(events, [(21, (table_reason::VACANCY_DOWN, 97))], "{version:?}");
            let gone = (1..=30).filter_map(|number| Some((number, event(number, "delete_strict")?)));
            assert_eq!(gone.collect::<Vec<_>>(), [(30, (table_reason::VACANCY_UP, 100))], "{version:?}");
            controller.send(&set(0, 98, 99));
            assert_eq!(controller.barrier(), None);
        }
    });
}

/// The cookies of the rules that have a timeout.
fn timed_cookies(controller: &mut Controller) -> Vec<u64> {
    let mut cookies: Vec<u64> = controller.flows().into_iter().map(|(_, cookie, _)| cookie).collect();
    cookies.retain(|cookie| *cookie != 9);
    cookies.sort_unstable();
    cookies
}

#[test]
fn an_action_whose_header_packets_may_lack_is_refused() {
    with_switch(|path, _| {
        let refused = Some(ErrorKind::Known(ErrorCode::ActionMatchInconsistent));
        for version in Version::ALL {
            let mut controller = Controller::connect(path, version);
            let mut add = |matches: Match, action: Action| {
                let flow_mod = FlowMod::new(Command::Add, Rule::new(matches, vec![action]));
                let flow_mod = FlowMod { table: Some(0), ..flow_mod };
                let (format, buffer_id) = (FlowFormat::Nxm, None);
                controller.send(&Message::FlowMod(FlowModMessage { format, flow_mod, buffer_id }));
                controller.barrier()
            };
            let mut ip = Match::any();
            ip.set(Field::EthType, 0x0800);
            let source = FieldRef::of_mask(Field::Ipv4Src, u32::MAX.into()).unwrap();
            assert_eq!(add(Match::any(), Action::Push(source)), refused, "{version:?}");
            assert_eq!(add(ip.clone(), Action::Push(source)), None, "{version:?}");
            // OpenFlow 1.0 leaves alone packets without the header.
            let of_all = if version == Version::OpenFlow10 { None } else { refused };
            assert_eq!(add(Match::any(), Action::dec_ttl()), of_all, "{version:?}");
            assert_eq!(add(ip, Action::dec_ttl()), None, "{version:?}");
        }
    });
}

#[test]
fn a_packet_out_of_a_port_that_receives_nothing_is_dropped() {
    with_switch(|path, wires| {
        let mut controller = Controller::connect(path, Version::OpenFlow13);
        let mut metadata = Match::any();
        metadata.set(Field::InPort, 1);
        let out = |port: u16| {
            let (actions, data) = (vec![Action::Output(PortNo(2))], frame(port));
            Message::PacketOut(PacketOut { buffer_id: None, metadata: metadata.clone(), actions, data })
        };
        let served = wires.served.get().unwrap();
        let mask = PortFlags::NO_RECEIVE;
        for (flags, port) in [(PortFlags::NO_RECEIVE, 7), (PortFlags::default(), 8)] {
            let ports = &[PortChange { port: PortNo(1), flags, mask }];
            served.control().change_all(&Changes { ports, ..Changes::default() }).unwrap();
            controller.send(&out(port));
            assert_eq!(controller.barrier(), None);
        }
        // The first one would have left before.
        assert_eq!(wait_for(&wires.left[1]), frame(8));
    });
}
