//! Flow-removed messages.

use std::path::Path;

use flowlane::packet::Field;
use flowlane::rule::Priority;
use flowlane_openflow::Version;
use flowlane_openflow::group::{GroupCommand, GroupKind, GroupMod};
use flowlane_openflow::message::{AsyncConfig, Message, Role, RoleRequest};
use flowlane_openflow::stats::{FlowFormat, FlowRemoved};

use super::{Controller, Queue, frame, with_switch};

const IDLE: u8 = 0;
const HARD: u8 = 1;
const DELETED: u8 = 2;
const GROUP_DELETED: u8 = 3;

impl Controller {
    pub(super) fn removed(&mut self) -> FlowRemoved {
        match self.told() {
            Message::FlowRemoved(removed) => removed,
            other => panic!("{other:?}"),
        }
    }

    fn group(&mut self, command: GroupCommand) {
        let (group, kind) = (5, GroupKind::All);
        let change = GroupMod { command, group, kind, buckets: Vec::new(), selection: None };
        self.send(&Message::GroupMod(change));
        assert_eq!(self.ask(&Message::BarrierRequest), Message::BarrierReply);
    }

    pub(super) fn take_role(&mut self, role: Role) {
        let generation_id = (self.codec.version != Version::OpenFlow10).then_some(1);
        let reply = self.ask(&Message::RoleRequest(RoleRequest { role, generation_id, short_id: None }));
        assert!(matches!(reply, Message::RoleReply(_)), "{reply:?}");
    }
}

/// One controller of each version, and one of OpenFlow 1.0 that prefers Nicira's layout.
fn controllers(path: &Path) -> Vec<Controller> {
    let mut all: Vec<Controller> =
        Version::ALL.into_iter().map(|version| Controller::connect(path, version)).collect();
    let mut nicira = Controller::connect(path, Version::OpenFlow10);
    nicira.send(&Message::SetFlowFormat(FlowFormat::Nxm));
    all.push(nicira);
    all.iter_mut().for_each(Controller::subscribe);
    all
}

/// Rules that expire or are deleted, with and without a message.
fn removals(path: &Path, arriving: &Queue) {
    let mut driver = Controller::connect(path, Version::OpenFlow13);
    let mut all = controllers(path);
    let mut secondary = Controller::connect(path, Version::OpenFlow14);
    secondary.take_role(Role::Secondary);
    secondary.subscribe();
    let mut change = |line: &str| assert_eq!(driver.change(line), None, "{line}");
    // Its packet is counted; the idle time of the other begins with its addition.
    change("add priority=5,cookie=7,idle_timeout=1,hard_timeout=90,udp,send_flow_rem actions=drop");
    arriving.lock().unwrap().push_back(frame(53));
    for told in all.iter_mut().map(Controller::removed) {
        assert_eq!((told.cookie, told.reason, told.priority), (7, IDLE, Priority(5)));
        assert_eq!((told.packets, told.bytes, told.idle_timeout_s), (1, frame(53).len() as u64, 1));
        assert!(told.duration_s >= 1);
        assert_eq!(told.matches.get(Field::NwProto).0, 17);
    }
    change("add table=3,cookie=8,hard_timeout=1,tcp,send_flow_rem actions=drop");
    change("add table=3,cookie=9,hard_timeout=1,icmp actions=drop");
    // Replacing a rule removes none.
    change("add cookie=10,arp,send_flow_rem actions=drop");
    change("add cookie=11,arp,send_flow_rem actions=output:2");
    change("modify arp actions=drop");
    let told: Vec<FlowRemoved> = all.iter_mut().map(Controller::removed).collect();
    for (told, controller) in told.iter().zip(&all) {
        assert_eq!((told.cookie, told.reason, told.packets), (8, HARD, 0));
        let is_10 = controller.codec.version == Version::OpenFlow10;
        assert_eq!(told.hard_timeout_s, if is_10 { 0 } else { 1 });
        let is_standard_10 = is_10 && told.format == FlowFormat::Standard;
        assert_eq!(told.table, if is_standard_10 { None } else { Some(3) });
    }
    assert_eq!(told.iter().filter(|told| told.format == FlowFormat::Nxm).count(), 1);
    change("delete arp");
    assert!(all.iter_mut().all(|one| {
        let told = one.removed();
        (told.cookie, told.reason) == (11, DELETED)
    }));
    driver.group(GroupCommand::Add);
    assert_eq!(driver.change("add cookie=12,arp,reg7=3,send_flow_rem actions=group:5"), None);
    driver.group(GroupCommand::Delete);
    for one in &mut all {
        let (told, version) = (one.removed(), one.codec.version);
        let reason = if version == Version::OpenFlow10 { DELETED } else { GROUP_DELETED };
        assert_eq!((told.cookie, told.reason), (12, reason), "{version:?}");
        // OpenFlow 1.0 has no register to match; Nicira's message has.
        assert_eq!(told.matches.get(Field::Reg7).0, 3, "{version:?}");
    }
    // Each takes the reasons that it wants; a secondary one gets none of them unless it does.
    let masks = |primary, secondary| AsyncConfig {
        flow_removed: [Some(primary), Some(secondary)],
        packet_in: [Some(0), Some(0)],
        port_status: [Some(0), Some(0)],
        ..AsyncConfig::default()
    };
    for one in &mut all {
        one.send(&Message::SetAsync(masks(1 << HARD, 0)));
        assert_eq!(one.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
    assert_eq!(driver.change("add cookie=13,arp,send_flow_rem actions=drop"), None);
    assert_eq!(driver.change("delete arp"), None);
    secondary.send(&Message::SetAsync(masks(0, 1 << HARD)));
    assert_eq!(secondary.ask(&Message::BarrierRequest), Message::BarrierReply);
    assert_eq!(driver.change("add cookie=14,hard_timeout=1,arp,send_flow_rem actions=drop"), None);
    for one in all.iter_mut().chain([&mut secondary]) {
        let told = one.removed();
        assert_eq!((told.cookie, told.reason), (14, HARD));
    }
    // A controller that has not asked for packets gets no message.
    assert_eq!(driver.ask(&Message::BarrierRequest), Message::BarrierReply);
    assert_eq!(driver.told.len(), 0);
}

#[test]
fn controllers_are_told_of_removed_rules() {
    with_switch(|path, wires| removals(path, &wires.arriving[0]));
}

/// A controller that reads nothing for a while gets all messages; the changes of others do not wait for it.
#[test]
fn a_controller_that_reads_late_misses_no_removal() {
    const RULES: u64 = 900;
    const ROUNDS: u64 = 12;
    with_switch(|path, _| {
        let mut late = Controller::connect(path, Version::OpenFlow13);
        late.subscribe();
        let mut driver = Controller::connect(path, Version::OpenFlow15);
        for round in 0..ROUNDS {
            let line = |n: u64| {
                let cookie = round * RULES + n;
                format!("add cookie={cookie},udp,tp_dst={n},nw_src=10.0.0.1,send_flow_rem actions=drop\n")
            };
            let lines: String = (0..RULES).map(line).collect();
            assert_eq!(driver.change(&lines), None);
            assert_eq!(driver.change("delete"), None);
        }
        let mut cookies: Vec<u64> = (0..ROUNDS * RULES).map(|_| late.removed().cookie).collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..ROUNDS * RULES));
    });
}
