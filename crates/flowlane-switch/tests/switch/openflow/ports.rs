//! Ports that controllers change.

use std::path::Path;

use flowlane::rule::action::PortNo;
use flowlane::rule::{ReadOptions, read_changes};
use flowlane_openflow::message::{
    BundleAdd, BundleControl, BundleControlKind, ErrorKind, FlowModMessage, Message, Reply, Request, Role,
    SwitchConfig,
};
use flowlane_openflow::port::{Port, PortMod, PortReason, PortStatus, config, state};
use flowlane_openflow::stats::FlowFormat;
use flowlane_openflow::{ErrorCode, Version};

use super::{Controller, Wires, frame, with_switch};

impl Controller {
    fn port(&mut self, number: u32) -> Port {
        let ports = match self.codec.version {
            Version::OpenFlow10 => match self.ask(&Message::FeaturesRequest) {
                Message::FeaturesReply(features) => features.ports,
                other => panic!("{other:?}"),
            },
            _ => match self.statistics(Request::PortDescription(None)) {
                Ok(Reply::PortDescription(ports)) => ports,
                other => panic!("{other:?}"),
            },
        };
        ports.into_iter().find(|port| port.number == PortNo(number)).unwrap()
    }

    fn ask_port_mod(&mut self, change: PortMod) -> Option<ErrorKind> {
        self.send(&Message::PortMod(change));
        self.barrier()
    }

    /// Sets the configuration of a port, and waits until it is in force.
    fn configure(&mut self, number: u32, config: u32) {
        let hw_addr = self.port(number).hw_addr;
        let (port, mask) = (PortNo(number), u32::MAX);
        assert_eq!(self.ask_port_mod(PortMod { port, hw_addr, config, mask, advertise: Some(0) }), None);
        assert_eq!(self.port(number).config, config);
    }

    fn changed_port(&mut self) -> Port {
        match self.told() {
            Message::PortStatus(status) => {
                assert_eq!(status.reason, PortReason::Modify);
                status.port
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A frame for the address of bridges.
fn stp() -> Vec<u8> {
    let mut bytes = frame(53);
    bytes[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0]);
    bytes
}

impl Wires {
    /// Lets a frame arrive at each worker while a port has a configuration; returns the numbers of frames that leave by each port.
    fn left_with(&self, controller: &mut Controller, port: u32, config: u32, bytes: Vec<u8>) -> [usize; 3] {
        controller.configure(port, config);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let trace = self.served.get().unwrap().trace(Some(1), &hex, "", &[]).unwrap();
        (0..2).for_each(|worker| self.arrive(worker, bytes.clone()));
        self.wait();
        // It is in force when the workers have switched the frames.
        controller.configure(port, 0);
        let left = self.left.each_ref().map(|left| left.lock().unwrap().drain(..).count());
        let traced = |number| 2 * trace.sent.iter().filter(|sent| sent.port == Some(number)).count();
        assert_eq!(left, [1, 2, 3].map(traced), "a trace says what happens");
        left
    }
}

fn refusals(controller: &mut Controller) {
    let hw_addr = controller.port(1).hw_addr;
    let change = |port, hw_addr| PortMod { port: PortNo(port), hw_addr, config: 1, mask: 1, advertise: None };
    let advertise = (controller.codec.version < Version::OpenFlow14).then_some(0);
    for (port, hw_addr, code) in
        [(9, hw_addr, ErrorCode::PortModBadPort), (2, hw_addr, ErrorCode::PortModBadHwAddr)]
    {
        let refused = controller.ask_port_mod(PortMod { advertise, ..change(port, hw_addr) });
        assert_eq!(refused, Some(code.into()));
    }
    assert_eq!((controller.port(1).config, controller.port(2).config), (0, 0));
}

fn ports(path: &Path, version: Version, wires: &Wires) {
    let mut controller = Controller::connect(path, version);
    let live = if version == Version::OpenFlow10 { 0 } else { state::LIVE };
    assert_eq!(controller.port(1).state, live);
    refusals(&mut controller);
    assert_eq!(controller.change("add actions=output:2,output:3"), None);
    let left =
        |controller: &mut Controller, port, config| wires.left_with(controller, port, config, frame(53));
    assert_eq!(left(&mut controller, 2, 0), [0, 2, 2], "{version:?}");
    assert_eq!(left(&mut controller, 2, config::NO_FWD), [0, 0, 2], "{version:?}");
    assert_eq!(left(&mut controller, 2, config::PORT_DOWN), [0, 0, 2], "{version:?}");
    assert_eq!(left(&mut controller, 2, config::NO_RECV), [0, 2, 2], "{version:?}");
    assert_eq!(left(&mut controller, 1, config::NO_RECV), [0, 0, 0], "{version:?}");
    assert_eq!(left(&mut controller, 1, config::PORT_DOWN), [0, 0, 0], "{version:?}");
    assert_eq!(left(&mut controller, 1, config::NO_FWD), [0, 2, 2], "{version:?}");
    let stp = |controller: &mut Controller, config| wires.left_with(controller, 1, config, stp());
    assert_eq!(stp(&mut controller, config::NO_RECV), [0, 2, 2], "{version:?}");
    if version == Version::OpenFlow10 {
        assert_eq!(stp(&mut controller, config::NO_RECV_STP), [0, 0, 0]);
    }
    for (action, flooded) in [("flood", [0, 0, 2]), ("normal", [0, 0, 2]), ("all", [0, 2, 2])] {
        assert_eq!(controller.change(&format!("add actions={action}")), None);
        assert_eq!(left(&mut controller, 2, config::NO_FWD), [0, 0, 2], "{version:?}: {action}");
        if version == Version::OpenFlow10 {
            assert_eq!(left(&mut controller, 2, config::NO_FLOOD), flooded, "{action}");
        }
    }
    controller.configure(2, config::PORT_DOWN);
    assert_eq!(controller.port(2).state, state::LINK_DOWN);
    // Fast failover takes another port.
    assert_eq!(controller.change("add actions=bundle(eth_src,0,active_backup,ofport,members:2,3)"), None);
    (0..2).for_each(|worker| wires.arrive(worker, frame(53)));
    wires.wait();
    controller.configure(2, 0);
    assert_eq!(wires.left.each_ref().map(|left| left.lock().unwrap().drain(..).count()), [0, 0, 2]);
    // A packet-in that no rule asks for.
    controller.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 0xffff }));
    assert_eq!(controller.change("add actions=resubmit(,7)"), None);
    assert_eq!(left(&mut controller, 1, config::NO_PACKET_IN), [0, 0, 0]);
    wires.arrive(0, frame(54));
    let Message::PacketIn(packet) = controller.next() else { panic!("a packet-in") };
    assert_eq!(packet.data, frame(54));
    assert_eq!(controller.change("delete"), None);
}

#[test]
fn controllers_change_ports() {
    with_switch(|path, wires| {
        Version::ALL.into_iter().for_each(|version| ports(path, version, wires));
    });
}

/// All controllers, also secondary ones, are notified, and meet the flags that their version has.
#[test]
fn controllers_are_notified_of_changed_ports() {
    with_switch(|path, _| {
        let mut driver = Controller::connect(path, Version::OpenFlow10);
        let connect = |version| Controller::connect(path, version);
        let mut all: Vec<Controller> = Version::ALL.into_iter().map(connect).collect();
        all[2].take_role(Role::Secondary);
        all.iter_mut().for_each(Controller::subscribe);
        driver.configure(2, config::NO_FLOOD | config::NO_FWD);
        driver.configure(2, config::NO_FLOOD | config::NO_FWD);
        driver.configure(2, config::PORT_DOWN);
        for one in &mut all {
            let of_10 = if one.codec.version == Version::OpenFlow10 { config::NO_FLOOD } else { 0 };
            let [first, second] = [one.changed_port(), one.changed_port()];
            assert_eq!((first.number, first.config), (PortNo(2), config::NO_FWD | of_10));
            assert_eq!((second.config, second.state), (config::PORT_DOWN, state::LINK_DOWN));
            assert_eq!(second.hw_addr, one.port(2).hw_addr);
        }
    });
}

/// Ports that come and go have descriptions in all versions, and statistics.
#[test]
fn controllers_are_notified_of_ports_that_come_and_go() {
    with_switch(|path, wires| {
        let connect = |version| Controller::connect(path, version);
        let mut all: Vec<Controller> = Version::ALL.into_iter().map(connect).collect();
        all.iter_mut().for_each(Controller::subscribe);
        // Rules may name a port before it is there.
        assert_eq!(all[0].change("add actions=output:9"), None);
        let served = wires.served.get().unwrap();
        let section = serde_json::json!({ "open": "null", "number": 9, "name": "vm9" });
        served.add_port(section.clone()).unwrap();
        assert!(served.add_port(section).is_err());
        served.remove_port("vm9").unwrap();
        assert!(served.remove_port("vm9").is_err());
        for one in &mut all {
            let told = [one.told(), one.told()].map(|message| match message {
                Message::PortStatus(status) => status,
                other => panic!("{other:?}"),
            });
            assert_eq!(told.each_ref().map(|status| status.reason), [PortReason::Add, PortReason::Delete]);
            for PortStatus { port, .. } in &told {
                assert_eq!((port.number, &*port.name, port.config), (PortNo(9), "vm9", 0));
            }
            assert_eq!(told[0].port.hw_addr, told[1].port.hw_addr);
        }
        assert_eq!(all[0].change("delete"), None);
    });
}

/// Sends changes of a bundle and commits it; returns its errors, with the place of the request that each is for.
fn commit(controller: &mut Controller, messages: &[Message]) -> Vec<(usize, ErrorKind)> {
    let (bundle, atomic, ordered) = (9, true, true);
    let control = |kind| Message::BundleControl(BundleControl { bundle, kind, atomic, ordered });
    let Message::BundleControl(_) = controller.ask(&control(BundleControlKind::OpenRequest)) else {
        panic!("it is opened")
    };
    let first = controller.xid + 1;
    for message in messages.iter().cloned().map(Box::new) {
        controller.send(&Message::BundleAdd(BundleAdd { bundle, atomic, ordered, message }));
    }
    controller.send(&control(BundleControlKind::CommitRequest));
    let mut errors = Vec::new();
    while errors.last().is_none_or(|&(place, _)| place != messages.len()) {
        match controller.next_with_xid() {
            (Message::BundleControl(_), _) => return errors,
            (Message::Error(error), xid) => errors.push(((xid - first) as usize, error.kind)),
            other => panic!("{other:?}"),
        }
    }
    errors
}

/// Open vSwitch answers with the same errors to bundles that need not be atomic; it refuses ports in others, and leaves the changes
/// before a refused one.
#[test]
fn bundles_change_ports_with_rules_or_nothing() {
    for version in [Version::OpenFlow13, Version::OpenFlow14, Version::OpenFlow15] {
        with_switch(|path, _| {
            let mut watching = Controller::connect(path, version);
            watching.subscribe();
            let mut controller = Controller::connect(path, version);
            let hw_addr = controller.port(2).hw_addr;
            let port = |port, hw_addr| {
                let (config, mask, advertise) = (config::NO_FWD, config::NO_FWD, Some(0));
                Message::PortMod(PortMod { port: PortNo(port), hw_addr, config, mask, advertise })
            };
            let rule = |line: &str| {
                let mut mods = read_changes(line, "bundle", &ReadOptions::default()).unwrap();
                let (format, buffer_id) = (FlowFormat::Nxm, None);
                Message::FlowMod(FlowModMessage { format, flow_mod: mods.remove(0), buffer_id })
            };
            let (good, rules) = (port(2, hw_addr), rule("add table=1,udp actions=output:2"));
            for (refused, code) in [
                (port(77, hw_addr), ErrorCode::PortModBadPort),
                (port(2, [1; 6]), ErrorCode::PortModBadHwAddr),
                (rule("add table=99 actions=drop"), ErrorCode::RequestBadTableId),
            ] {
                let errors = commit(&mut controller, &[rules.clone(), good.clone(), refused]);
                assert_eq!(errors, [(2, code.into()), (3, ErrorCode::BundleMsgFailed.into())], "{version:?}");
                assert_eq!((controller.port(2).config, controller.flows()), (0, vec![]), "{version:?}");
            }
            assert_eq!(commit(&mut controller, &[good, rules]), []);
            assert_eq!((controller.port(2).config, controller.flows().len()), (config::NO_FWD, 1));
            // Of refused bundles no change was reported.
            let changed = watching.changed_port();
            assert_eq!((changed.number, changed.config), (PortNo(2), config::NO_FWD));
            assert_eq!((watching.barrier(), watching.told.len()), (None, 0));
        });
    }
}
