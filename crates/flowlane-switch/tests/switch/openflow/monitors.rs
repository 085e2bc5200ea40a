//! Monitors of flows.

use std::collections::BTreeSet;

use flowlane_openflow::message::MultipartReply;
use flowlane_openflow::stats::{FlowEvent, FlowMonitorRequest, FlowUpdate};

use super::*;

/// A monitor of all changes, with actions and own changes in full.
const ALL: u16 = 0x3f;
const INITIAL: u16 = 1;
const NO_ABBREV: u16 = 0x20;

fn request(id: u32, command: u8, flags: u16, table: Option<u8>) -> FlowMonitorRequest {
    let (out_port, out_group, matches) = (None, None, Match::any());
    FlowMonitorRequest { id, command, flags, out_port, out_group, table, matches }
}

impl Controller {
    fn monitor(&mut self, request: FlowMonitorRequest) {
        self.monitors(vec![request]);
    }

    fn monitors(&mut self, requests: Vec<FlowMonitorRequest>) {
        let body = Request::FlowMonitor(requests);
        self.send(&Message::MultipartRequest(MultipartRequest { more: false, body }));
    }

    /// Returns the next changes, and the identifier of their message.
    fn updates(&mut self) -> (Vec<FlowUpdate>, u32) {
        match self.next_with_xid() {
            (Message::MultipartReply(MultipartReply { body: Reply::FlowMonitor(updates), .. }), xid) => {
                (updates, xid)
            }
            (Message::FlowMonitorPaused, xid) => (vec![FlowUpdate::Paused], xid),
            (Message::FlowMonitorResumed, xid) => (vec![FlowUpdate::Resumed], xid),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next changes as text: the event, the table, the time-outs, the cookie and the number of actions of each.
    fn changes(&mut self) -> Vec<String> {
        let text = |update| match update {
            FlowUpdate::Full { event, timeouts_s, rule } => {
                let Rule { table, cookie, actions, .. } = rule;
                format!("{event:?} {table} {timeouts_s:?} {cookie:x} {}", actions.len())
            }
            other => format!("{other:?}"),
        };
        let mut changes: Vec<String> = self.updates().0.into_iter().map(text).collect();
        changes.sort_unstable();
        changes
    }

    fn refused_monitor(&mut self, request: FlowMonitorRequest) -> ErrorKind {
        self.monitor(request);
        match self.next() {
            Message::Error(error) => error.kind,
            other => panic!("{other:?}"),
        }
    }
}

/// The changes, and what Open vSwitch 3.1 prints for them: `ovs-ofctl monitor br0 watch:`.
fn changes_are_reported(path: &Path, version: Version) {
    let mut other = Controller::connect(path, Version::OpenFlow10);
    assert_eq!(other.change("add priority=9,cookie=5,tcp actions=output:2"), None);
    assert_eq!(other.change("add table=3,priority=7,udp actions=output:1"), None);
    let mut controller = Controller::connect(path, version);
    // As `ovs-ofctl` asks: in OpenFlow 1.4 by the bit of own changes alone, which leaves out none.
    let flags = if version < Version::OpenFlow14 { ALL } else { ALL & !NO_ABBREV | 0x40 };
    controller.monitor(request(4, 0, flags, None));
    let (request_xid, first) = (controller.xid, controller.updates());
    assert_eq!((first.1, first.0.len()), (request_xid, 2), "{version:?}");
    let initial = if version < Version::OpenFlow14 { FlowEvent::Added } else { FlowEvent::Initial };
    assert!(
        first.0.iter().all(|update| matches!(update, FlowUpdate::Full { event, .. } if *event == initial))
    );
    let long = "add table=1,priority=3,cookie=9,idle_timeout=50,hard_timeout=60,in_port=1 actions=output:2";
    let modify = "modify table=1,in_port=1 actions=output:1";
    for (change, expected) in [
        (long, "Added 1 (50, 60) 9 1"),
        (modify, "Modified 1 (50, 60) 9 1"),
        // Nothing changes.
        (modify, ""),
        ("add table=1,priority=3,in_port=1 actions=drop", "Added 1 (0, 0) 0 0"),
        ("delete table=1", "Removed(2) 1 (0, 0) 0 0"),
        ("delete tcp", "Removed(2) 0 (0, 0) 5 1"),
        ("add table=2,priority=3,hard_timeout=1,in_port=1 actions=drop", "Added 2 (0, 1) 0 0"),
        ("delete table=3", "Removed(2) 3 (0, 0) 0 1"),
        ("", "Removed(1) 2 (0, 1) 0 0"),
    ] {
        if !change.is_empty() {
            assert_eq!(other.change(change), None, "{change}");
        }
        if !expected.is_empty() {
            assert_eq!(controller.changes(), [expected], "{version:?} {change}");
        }
    }
    let cancel = match version {
        Version::OpenFlow10 | Version::OpenFlow13 => Message::FlowMonitorCancel(4),
        Version::OpenFlow14 | Version::OpenFlow15 => {
            let body = Request::FlowMonitor(vec![request(4, 2, 0, None)]);
            Message::MultipartRequest(MultipartRequest { more: false, body })
        }
    };
    controller.send(&cancel);
    if version >= Version::OpenFlow14 {
        assert_eq!(controller.updates(), (vec![], controller.xid));
    }
    assert_eq!(controller.barrier(), None);
    assert_eq!(other.change("add table=1 actions=drop"), None);
    assert_eq!(other.change("delete"), None);
    let Message::Error(error) = controller.ask(&cancel) else { panic!("there is no monitor, and no change") };
    assert_eq!(error.kind, ErrorCode::MonitorUnknownMonitor.into());
}

#[test]
fn a_rule_of_several_monitors_is_listed_once() {
    with_switch(|path, _| {
        let mut controller = Controller::connect(path, Version::OpenFlow14);
        assert_eq!(controller.change("add table=1,priority=9,tcp actions=output:2"), None);
        assert_eq!(controller.change("add table=2,priority=9,tcp actions=output:2"), None);
        let watching = (0..256).map(|id| request(id, 0, ALL, (id > 0).then_some(1)));
        controller.monitors(watching.collect());
        assert_eq!(controller.changes(), ["Initial 1 (0, 0) 0 1", "Initial 2 (0, 0) 0 1"]);
    });
}

#[test]
fn changes_of_rules_are_reported_to_controllers_that_watch() {
    with_switch(|path, _| Version::ALL.into_iter().for_each(|version| changes_are_reported(path, version)));
}

#[test]
fn own_changes_are_abbreviated_and_monitors_select() {
    with_switch(|path, _| {
        for version in Version::ALL {
            let mut controller = Controller::connect(path, version);
            let mut other = Controller::connect(path, version);
            controller.monitor(request(1, 0, ALL & !NO_ABBREV & !INITIAL, Some(2)));
            assert_eq!(controller.updates().0, [], "{version:?}");
            let mut options =
                read_changes("add table=2,udp actions=drop", "one", &ReadOptions::default()).unwrap();
            let (format, buffer_id) = (FlowFormat::Nxm, None);
            let one = FlowModMessage { format, flow_mod: options.remove(0), buffer_id };
            controller.send(&Message::FlowMod(one));
            assert_eq!(controller.updates(), (vec![FlowUpdate::Abbreviated { xid: controller.xid }], 0));
            // Of another table, and of another controller.
            assert_eq!(other.change("add table=3,udp actions=drop"), None);
            assert_eq!(other.change("delete"), None);
            assert_eq!(controller.changes(), ["Removed(2) 2 (0, 0) 0 0"], "{version:?}");
            let kind = ErrorKind::Known;
            let again = request(1, 0, ALL, None);
            assert_eq!(controller.refused_monitor(again), kind(ErrorCode::MonitorMonitorExists));
            let nothing = request(2, 0, INITIAL, None);
            assert_eq!(controller.refused_monitor(nothing), kind(ErrorCode::MonitorBadFlags));
            let many = (10..).find(|&id| {
                controller.monitor(request(id, 0, ALL & !INITIAL, None));
                matches!(controller.next(), Message::Error(_))
            });
            assert_eq!(many, Some(10 + 255), "{version:?}");
        }
    });
}

/// A controller that does not read is paused, and gets then the last state of each rule that has changed.
#[test]
fn a_controller_that_reads_late_is_paused() {
    const RULES: u32 = 900;
    with_switch(|path, _| {
        for version in [Version::OpenFlow10, Version::OpenFlow13, Version::OpenFlow14] {
            let mut other = Controller::connect(path, version);
            let mut controller = Controller::connect(path, version);
            controller.monitor(request(4, 0, ALL, None));
            assert_eq!(controller.updates().0, []);
            for n in 0..RULES {
                let rule = format!("add table=1,ip,nw_src=10.0.{}.{} actions=output:2", n / 256, n % 256);
                other.send_change(&rule);
            }
            assert_eq!(other.barrier(), None);
            // Each changes all of them, and more than waits without a pause.
            for port in 0..30 {
                assert_eq!(other.change(&format!("modify table=1 actions=output:{}", 1 + port % 2)), None);
            }
            assert_eq!(other.change("delete ip,nw_src=10.0.0.0/16"), None);
            assert_eq!(other.change("add table=2 actions=drop"), None);
            let (mut there, mut was_paused, mut count) = (BTreeSet::new(), false, 0);
            loop {
                let mut is_resumed = false;
                for update in controller.updates().0 {
                    match update {
                        FlowUpdate::Full { event, rule, .. } => {
                            let key = format!("{} {:?}", rule.table, rule.matches);
                            let is_right = match event {
                                FlowEvent::Removed(_) => there.remove(&key),
                                FlowEvent::Modified => there.contains(&key),
                                FlowEvent::Added | FlowEvent::Initial => there.insert(key),
                            };
                            assert!(is_right, "{version:?} {event:?} {rule:?}");
                            count += 1;
                        }
                        FlowUpdate::Paused => was_paused = true,
                        FlowUpdate::Resumed => is_resumed = true,
                        FlowUpdate::Abbreviated { .. } => panic!("not its own"),
                    }
                }
                if is_resumed {
                    break;
                }
            }
            assert!(was_paused && count < 20 * RULES, "{version:?}: {count}");
            assert_eq!(there.len(), 1, "{version:?}");
            assert_eq!(other.change("delete"), None);
            assert_eq!(controller.changes(), ["Removed(2) 2 (0, 0) 0 0"], "{version:?}");
        }
    });
}
