//! Why packets are sent to controllers.

use flowlane_openflow::message::{AsyncConfig, PacketInFormat, reason};

use super::*;

impl Controller {
    /// Lets a frame arrive, and returns the reason of its packet-in and the bytes that this has; none where none is sent.
    fn reason_of(&mut self, wires: &Wires, frame: Vec<u8>) -> Option<(u8, usize)> {
        wires.arrive(0, frame);
        wires.wait();
        // The agent's dispatcher sends it, for which a barrier does not wait.
        std::thread::sleep(Duration::from_millis(50));
        match self.ask(&Message::BarrierRequest) {
            Message::BarrierReply => None,
            Message::PacketIn(packet) => {
                assert_eq!(self.next(), Message::BarrierReply);
                Some((packet.reason, packet.data.len()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn wants_packets(&mut self, reasons: u32) {
        let all = [Some(0b111), Some(0)];
        let packet_in = [Some(reasons), Some(0)];
        self.send(&Message::SetAsync(AsyncConfig {
            packet_in,
            port_status: all,
            flow_removed: all,
            ..AsyncConfig::default()
        }));
        assert_eq!(self.barrier(), None);
    }
}

/// As Open vSwitch 3.1 answers to the same.
#[test]
fn table_miss_rules_send_packets_that_no_rule_matches() {
    with_switch(|path, wires| {
        let len = frame(53).len();
        for version in Version::ALL {
            let mut controller = Controller::connect(path, version);
            controller.subscribe();
            let is_10 = version == Version::OpenFlow10;
            let missed = if is_10 { reason::ACTION } else { reason::NO_MATCH };
            for format in [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2] {
                controller.send(&Message::SetPacketInFormat(format));
                assert_eq!(controller.barrier(), None);
                for (rules, expected) in [
                    (&["priority=0 actions=controller"][..], missed),
                    (&["priority=0 actions=controller(id=0,userdata=01)"], missed),
                    (&["priority=9 actions=resubmit(,1)", "table=1,priority=0 actions=controller"], missed),
                    (&["priority=0 actions=controller(reason=no_match)"], reason::NO_MATCH),
                    (&["priority=1 actions=controller"], reason::ACTION),
                    (&["priority=0,ip actions=controller"], reason::ACTION),
                    (&["priority=0,in_port=1 actions=controller"], reason::ACTION),
                ] {
                    for rule in rules {
                        assert_eq!(controller.change(&format!("add {rule}")), None);
                    }
                    let sent = controller.reason_of(wires, frame(53));
                    assert_eq!(sent, Some((expected, len)), "{version:?} {format:?} {rules:?}");
                    assert_eq!(controller.change("delete"), None);
                }
            }
            // They are chosen as packets that no rule matches, in OpenFlow 1.0, too.
            controller.send(&Message::SetPacketInFormat(PacketInFormat::Standard));
            assert_eq!(controller.change("add priority=0 actions=controller"), None);
            for (reasons, is_sent) in [(1 << reason::NO_MATCH, true), (1 << reason::ACTION, false)] {
                controller.wants_packets(reasons);
                let sent = controller.reason_of(wires, frame(53));
                assert_eq!(sent.map(|(reason, _)| reason), is_sent.then_some(missed), "{version:?}");
            }
            assert_eq!(controller.change("delete"), None);
        }
    });
}

/// Only packets that no rule matches are cut to the controller's length: actions say themselves how much they send.
#[test]
fn buckets_and_action_sets_have_reasons_of_their_own() {
    with_switch(|path, wires| {
        let mut first = Controller::connect(path, Version::OpenFlow13);
        let bucket = Bucket {
            id: 0,
            weight: 0,
            watch_port: None,
            watch_group: None,
            actions: vec![Action::controller(u16::MAX)],
        };
        let group = GroupMod {
            command: GroupCommand::Add,
            kind: GroupKind::All,
            group: 5,
            buckets: vec![bucket],
            selection: None,
        };
        first.send(&Message::GroupMod(group));
        assert_eq!(first.barrier(), None);
        for version in [Version::OpenFlow13, Version::OpenFlow14, Version::OpenFlow15] {
            let mut controller = Controller::connect(path, version);
            controller.subscribe();
            controller.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 20 }));
            let is_old = version == Version::OpenFlow13;
            for (actions, expected) in
                [("group:5", reason::GROUP), ("write_actions(controller)", reason::ACTION_SET)]
            {
                assert_eq!(controller.change(&format!("add priority=0 actions={actions}")), None);
                let expected = if is_old { reason::ACTION } else { expected };
                let sent = controller.reason_of(wires, frame(53));
                assert_eq!(sent, Some((expected, frame(53).len())), "{version:?}");
            }
            // The last table sends what no rule matches, as its configuration says.
            assert_eq!(controller.change("add priority=0 actions=resubmit(,7)"), None);
            assert_eq!(controller.reason_of(wires, frame(53)), Some((reason::NO_MATCH, 20)), "{version:?}");
            assert_eq!(controller.change("delete"), None);
        }
    });
}
