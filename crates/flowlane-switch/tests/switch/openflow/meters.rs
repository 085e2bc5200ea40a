//! Meters that controllers change.

use std::path::Path;
use std::time::Instant;

use flowlane_openflow::message::{ErrorKind, Message, MultipartRequest, Reply, Request, SwitchConfig};
use flowlane_openflow::meter::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, MeterCommand, MeterConfig, MeterMod, MeterStats, flags,
};
use flowlane_openflow::{ErrorCode, Version};

use super::{Controller, Wires, frame, with_switch};

impl Controller {
    pub(super) fn statistics(&mut self, body: Request) -> Result<Reply, ErrorKind> {
        match self.ask(&Message::MultipartRequest(MultipartRequest { more: false, body })) {
            Message::MultipartReply(reply) => Ok(reply.body),
            Message::Error(error) => Err(error.kind),
            other => panic!("{other:?}"),
        }
    }

    fn change_meter(&mut self, command: MeterCommand, meter: MeterConfig) -> Option<ErrorKind> {
        self.send(&Message::MeterMod(MeterMod { command, meter }));
        self.barrier()
    }

    fn delete_meter(&mut self, meter: u32) -> Option<ErrorKind> {
        let meter = MeterConfig { meter, flags: 0, bands: Vec::new() };
        self.change_meter(MeterCommand::Delete, meter)
    }

    fn meter_stats(&mut self, meter: u32) -> MeterStats {
        match self.statistics(Request::Meter(meter)) {
            Ok(Reply::Meter(mut meters)) if meters.len() == 1 => meters.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a meter has seen packets.
    fn wait_for_packets(&mut self, meter: u32, packets: u64) -> MeterStats {
        let begun = Instant::now();
        loop {
            let stats = self.meter_stats(meter);
            if stats.packets == packets {
                return stats;
            }
            assert!(begun.elapsed().as_secs() < 10, "{stats:?}");
        }
    }
}

/// A meter of packets per second.
fn packets(meter: u32, rate: u32, burst: u32) -> MeterConfig {
    let flags = flags::PKTPS | flags::BURST | flags::STATS;
    MeterConfig { meter, flags, bands: vec![Band { kind: BandKind::Drop, rate, burst }] }
}

fn refusals(controller: &mut Controller) {
    let refused = |code| Some(ErrorKind::Known(code));
    let with_bands = |bands| MeterConfig { bands, ..packets(5, 1, 1) };
    let band = Band { kind: BandKind::Drop, rate: 1, burst: 1 };
    let remark = |levels| Band { kind: BandKind::DscpRemark(levels), ..band };
    let of_controller = MeterConfig { meter: METER_CONTROLLER, ..with_bands(vec![remark(1)]) };
    for (command, meter, code) in [
        (MeterCommand::Add, packets(1, 1, 1), ErrorCode::MeterModMeterExists),
        (MeterCommand::Modify, packets(5, 1, 1), ErrorCode::MeterModUnknownMeter),
        (MeterCommand::Add, packets(0, 1, 1), ErrorCode::MeterModInvalidMeter),
        (MeterCommand::Add, packets(METER_ALL, 1, 1), ErrorCode::MeterModInvalidMeter),
        (MeterCommand::Add, with_bands(vec![remark(0)]), ErrorCode::MeterModBadBandValue),
        (MeterCommand::Add, of_controller, ErrorCode::MeterModBadBand),
        (MeterCommand::Add, with_bands(vec![Band { rate: 0, ..band }]), ErrorCode::MeterModBadRate),
        (MeterCommand::Add, with_bands(vec![band; 9]), ErrorCode::MeterModOutOfBands),
    ] {
        assert_eq!(controller.change_meter(command, meter.clone()), refused(code), "{meter:?}");
    }
    assert_eq!(controller.change("add tcp actions=meter:5"), refused(ErrorCode::MeterModInvalidMeter));
    let unknown = Err(ErrorCode::MeterModUnknownMeter.into());
    assert_eq!(controller.statistics(Request::Meter(5)), unknown);
    assert_eq!(controller.statistics(Request::MeterConfig(5)), unknown);
    // As in Open vSwitch.
    assert_eq!(controller.delete_meter(5), None);
}

/// A meter that is added, changed and deleted while packets come to two workers.
fn meters(path: &Path, version: Version, wires: &Wires) {
    let mut controller = Controller::connect(path, version);
    controller.subscribe();
    let Ok(Reply::MeterFeatures(features)) = controller.statistics(Request::MeterFeatures) else {
        panic!("features")
    };
    assert_eq!((features.band_kinds, features.bands_max, features.capabilities), (6, 8, 0xf));
    let begun = Instant::now();
    assert_eq!(controller.change_meter(MeterCommand::Add, packets(1, 1, 5)), None);
    assert_eq!(controller.change("add cookie=4,udp,send_flow_rem actions=meter:1,output:2"), None);
    for n in 0..40 {
        wires.arrive(n % 2, frame(53));
    }
    let stats = controller.wait_for_packets(1, 40);
    let passed = wires.left[1].lock().unwrap().drain(..).count() as u64;
    assert!((5..=6 + begun.elapsed().as_secs()).contains(&passed), "{version:?}: {passed}");
    let bytes = frame(53).len() as u64;
    assert_eq!((stats.flows, stats.bytes), (1, 40 * bytes));
    assert_eq!(stats.bands, [(40 - passed, (40 - passed) * bytes)]);
    refusals(&mut controller);
    // Another rate for the rules that are there.
    assert_eq!(controller.change_meter(MeterCommand::Modify, packets(1, 1000, 1000)), None);
    for n in 0..20 {
        wires.arrive(n % 2, frame(53));
    }
    let stats = controller.wait_for_packets(1, 20);
    assert_eq!(stats.bands, [(0, 0)]);
    assert_eq!(wires.left[1].lock().unwrap().drain(..).count(), 20);
    assert_eq!(
        controller.statistics(Request::MeterConfig(METER_ALL)),
        Ok(Reply::MeterConfig(vec![packets(1, 1000, 1000)]))
    );
    // The rules that name it go with a meter.
    assert_eq!(controller.change("add table=2,cookie=6,tcp actions=output:2"), None);
    assert_eq!(controller.delete_meter(1), None);
    let removed = controller.removed();
    let reason = if version == Version::OpenFlow13 { 2 } else { 4 };
    assert_eq!((removed.cookie, removed.reason, removed.packets), (4, reason, 60));
    assert_eq!(controller.flows(), [(2, 6, 0)]);
    assert_eq!(controller.statistics(Request::MeterConfig(METER_ALL)), Ok(Reply::MeterConfig(Vec::new())));
    assert_eq!(controller.change("delete"), None);
}

/// A meter that drops packets, and then also raises their drop precedence, which a later table matches: AF11 becomes AF12, then AF13.
fn remarks(path: &Path, wires: &Wires) {
    let mut controller = Controller::connect(path, Version::OpenFlow13);
    assert_eq!(controller.change_meter(MeterCommand::Add, packets(1, 1000, 1000)), None);
    assert_eq!(controller.change("add udp actions=mod_nw_tos:40,goto_table:1"), None);
    assert_eq!(controller.change("add table=1,udp actions=meter:1,goto_table:2"), None);
    for (tos, output) in [(40, "in_port"), (48, "output:2"), (56, "output:3")] {
        assert_eq!(controller.change(&format!("add table=2,udp,nw_tos={tos} actions={output}")), None);
    }
    let mut arrive = |wires: &Wires, packets: u64| {
        (0..packets).for_each(|n| wires.arrive(n as usize % 2, frame(53)));
        let stats = controller.wait_for_packets(1, packets);
        let tos = |port: usize| -> Vec<u8> {
            wires.left[port].lock().unwrap().drain(..).map(|frame: Vec<u8>| frame[15]).collect()
        };
        (stats.bands, [tos(0), tos(1), tos(2)])
    };
    // The path is in the caches before the meter changes packets.
    let (bands, left) = arrive(wires, 20);
    assert_eq!((bands, left), (vec![(0, 0)], [vec![40; 20], vec![], vec![]]));
    let band = |kind, rate, burst| Band { kind, rate, burst };
    let bands = vec![
        band(BandKind::DscpRemark(1), 1, 4),
        band(BandKind::Drop, 3, 12),
        band(BandKind::DscpRemark(2), 2, 8),
    ];
    let begun = Instant::now();
    let meter = MeterConfig { bands: bands.clone(), ..packets(1, 1, 1) };
    let mut other = Controller::connect(path, Version::OpenFlow13);
    assert_eq!(other.change_meter(MeterCommand::Modify, meter.clone()), None);
    let (counted, left) = arrive(wires, 40);
    let more = 3 * (1 + begun.elapsed().as_secs() as usize);
    let lens = left.each_ref().map(Vec::len);
    for (len, wanted) in lens.into_iter().zip([4; 3]) {
        assert!((wanted..=wanted + more).contains(&len), "{left:?}");
    }
    for (marks, tos) in left.iter().zip([40, 48, 56]) {
        assert!(marks.iter().all(|mark| *mark == tos), "{left:?}");
    }
    let bytes = frame(53).len() as u64;
    let dropped = 40 - lens.iter().sum::<usize>() as u64;
    let wanted = [lens[1] as u64, dropped, lens[2] as u64].map(|packets| (packets, packets * bytes));
    assert_eq!(counted, wanted);
    let config = other.statistics(Request::MeterConfig(1));
    assert_eq!(config, Ok(Reply::MeterConfig(vec![meter])));
    assert_eq!(other.delete_meter(METER_ALL), None);
    assert_eq!(other.change("delete"), None);
    // Behind such a meter, a call that shows another port finds what earlier rules did, and the mark.
    let meter = MeterConfig { bands: vec![band(BandKind::DscpRemark(1), 1, 1)], ..packets(1, 1, 1) };
    assert_eq!(other.change_meter(MeterCommand::Add, meter), None);
    for rule in [
        "add udp actions=mod_nw_tos:40,push_vlan:0x8100,set_field:4101->vlan_vid,goto_table:1",
        "add table=1,udp actions=meter:1,resubmit(9,2)",
        "add table=2,in_port=9,dl_vlan=5,udp,nw_tos=40 actions=output:2",
        "add table=2,in_port=9,dl_vlan=5,udp,nw_tos=48 actions=output:3",
    ] {
        assert_eq!(other.change(rule), None, "{rule}");
    }
    let begun = Instant::now();
    (0..40).for_each(|n| wires.arrive(n % 2, frame(53)));
    other.wait_for_packets(1, 40);
    let more = 1 + begun.elapsed().as_secs() as usize;
    let [first, marked] = [1, 2].map(|port: usize| wires.left[port].lock().unwrap().drain(..).count());
    assert!(first + marked == 40 && first <= 1 + more, "{first} and {marked}");
    assert_eq!(other.delete_meter(METER_ALL), None);
    assert_eq!(other.change("delete"), None);
}

/// The meter of packets for controllers, and one that an action names.
fn packet_ins(path: &Path, wires: &Wires) {
    let mut controller = Controller::connect(path, Version::OpenFlow13);
    controller.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 0xffff }));
    assert_eq!(controller.change_meter(MeterCommand::Add, packets(METER_CONTROLLER, 1, 2)), None);
    assert_eq!(controller.change_meter(MeterCommand::Add, packets(3, 1, 4)), None);
    assert_eq!(controller.change("add udp,tp_dst=53 actions=controller"), None);
    assert_eq!(controller.change("add udp,tp_dst=54 actions=controller(meter_id=3)"), None);
    for (meter, port, burst) in [(METER_CONTROLLER, 53, 2), (3, 54, 4)] {
        let begun = Instant::now();
        (0..20).for_each(|_| wires.arrive(0, frame(port)));
        let mut packets = 0;
        while !matches!(controller.meter_stats_between(meter, &mut packets), stats if stats.packets == 20) {}
        assert!((burst..=burst + 1 + begun.elapsed().as_secs()).contains(&packets), "{packets}");
    }
    assert_eq!(controller.delete_meter(METER_ALL), None);
    assert_eq!(controller.flows().len(), 2, "rules without a meter of their own are left");
    // Where an action's meter does not exist, that of all limits its packets.
    assert_eq!(controller.change_meter(MeterCommand::Add, packets(METER_CONTROLLER, 1, 2)), None);
    let begun = Instant::now();
    (0..20).for_each(|_| wires.arrive(0, frame(54)));
    let mut count = 0;
    while !matches!(controller.meter_stats_between(METER_CONTROLLER, &mut count), stats if stats.packets == 20)
    {
    }
    assert!((2..=3 + begun.elapsed().as_secs()).contains(&count), "{count}");
    assert_eq!(controller.delete_meter(METER_ALL), None);
    assert_eq!(controller.change("delete"), None);
}

impl Controller {
    /// Returns statistics of a meter, and counts packets that come before.
    fn meter_stats_between(&mut self, meter: u32, packets: &mut u64) -> MeterStats {
        let body = Request::Meter(meter);
        // A packet-in is queued behind the answer at most by the dispatcher's delay.
        std::thread::sleep(std::time::Duration::from_millis(100));
        self.send(&Message::MultipartRequest(MultipartRequest { more: false, body }));
        loop {
            match self.next() {
                Message::PacketIn(_) => *packets += 1,
                Message::MultipartReply(reply) => match reply.body {
                    Reply::Meter(mut meters) => return meters.remove(0),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn controllers_change_meters_of_all_workers() {
    with_switch(|path, wires| {
        for version in [Version::OpenFlow13, Version::OpenFlow14, Version::OpenFlow15] {
            meters(path, version, wires);
        }
        packet_ins(path, wires);
        remarks(path, wires);
    });
}
