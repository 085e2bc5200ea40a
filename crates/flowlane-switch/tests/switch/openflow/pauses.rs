//! Packets that controllers pause and resume.

use flowlane_openflow::message::{PacketIn, PacketInFormat, Resume};

use super::*;

impl Controller {
    /// Subscribes for packet-ins that can be resumed.
    fn watch_pauses(&mut self) {
        self.subscribe();
        self.send(&Message::SetPacketInFormat(PacketInFormat::Nxt2));
        assert_eq!(self.barrier(), None);
    }

    fn paused(&mut self) -> PacketIn {
        match self.next() {
            Message::PacketIn(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    fn resume(&mut self, packet: PacketIn) -> Option<ErrorKind> {
        self.send(&Message::Resume(Resume(packet)));
        self.barrier()
    }
}

fn is_quiet(wires: &Wires) -> bool {
    std::thread::sleep(Duration::from_millis(30));
    wires.left.iter().all(|left| left.lock().unwrap().is_empty())
}

/// A packet goes on behind `pause` with what its rules had done: registers, values on the stack, open calls, its action set; by rules
/// that have gone meanwhile, too.
#[test]
fn a_paused_packet_goes_on_where_it_was() {
    for version in Version::ALL {
        with_switch(|path, wires| {
            let mut controller = Controller::connect(path, version);
            controller.watch_pauses();
            let rules = [
                "add table=0,udp actions=load:7->reg1[],push:reg1[],resubmit(,1),pop:reg2[],resubmit(,3)",
                "add table=1,udp,reg1=7 actions=mod_tp_dst:9,controller(pause,userdata=01.02),output:1,output:reg0[0..15]",
                "add table=3,reg2=7,reg5=9 actions=output:3",
            ];
            for rule in rules {
                assert_eq!(controller.change(rule), None, "{version:?}");
            }
            for (worker, round) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
                wires.arrive(worker, frame(53));
                let mut packet = controller.paused();
                assert_eq!((&packet.data, &packet.userdata[..]), (&frame(9), &[1, 2][..]), "{version:?}");
                assert_eq!((packet.table, packet.metadata.get(Field::Reg1).0), (1, 7));
                assert!(is_quiet(wires), "{version:?}");
                packet.metadata.set(Field::Reg0, 2).set(Field::Reg5, 9);
                packet.data = frame(round);
                if round == 4 {
                    // Where it goes on is known; the tables that it calls are those of now.
                    assert_eq!(controller.change("delete table=0"), None);
                }
                // It may be resumed more than once, as in Open vSwitch.
                for _ in 0..2 {
                    assert_eq!(controller.resume(packet.clone()), None, "{version:?}");
                    assert_eq!(wait_for(&wires.left[1]), frame(round), "output:reg0 behind `pause`");
                    assert_eq!(wait_for(&wires.left[2]), frame(round), "table 3 behind the call");
                }
                assert!(is_quiet(wires), "it came in at port 1");
                let mut other = packet.clone();
                *other.continuation.iter_mut().rev().nth(5).unwrap() ^= 1;
                let stale = Some(ErrorKind::Known(ErrorCode::NiciraResumeStale));
                assert_eq!(controller.resume(other), stale);
                assert_eq!(controller.resume(PacketIn { continuation: Vec::new(), ..packet }), stale);
            }
        });
    }
}

/// A packet that is paused in a copy, a bucket or an action set leaves the others' way alone.
#[test]
fn copies_pause_for_themselves() {
    with_switch(|path, wires| {
        let mut controller = Controller::connect(path, Version::OpenFlow13);
        controller.watch_pauses();
        // A bucket is an action set, of which `controller` and `output` are one part.
        let actions = vec![Action::call(5)];
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
        let (command, kind, buckets) = (GroupCommand::Add, GroupKind::Indirect, vec![bucket]);
        controller.send(&Message::GroupMod(GroupMod { command, kind, group: 4, buckets, selection: None }));
        for (actions, first, then) in [
            ("clone(controller(pause),output:2),output:3", &[2][..], &[1][..]),
            ("group:4,write_actions(output:3)", &[2], &[1]),
            ("write_actions(output:3),goto_table:5", &[], &[1, 2]),
            ("write_actions(output:3,group:4)", &[], &[1]),
            ("controller(pause),controller(pause),output:2", &[], &[]),
        ] {
            assert_eq!(controller.change("add table=5 actions=controller(pause),output:2"), None);
            assert_eq!(controller.change(&format!("add udp actions={actions}")), None, "{actions}");
            for _ in 0..2 {
                wires.arrive(0, frame(53));
                let packet = controller.paused();
                first.iter().for_each(|port: &usize| {
                    assert_eq!(wait_for(&wires.left[*port]), frame(53), "{actions}")
                });
                assert!(is_quiet(wires), "{actions}");
                controller.send(&Message::Resume(Resume(packet)));
                if then.is_empty() {
                    let again = controller.paused();
                    assert!(is_quiet(wires), "{actions}");
                    assert_eq!(controller.resume(again), None);
                    assert_eq!(wait_for(&wires.left[1]), frame(53), "{actions}");
                }
                then.iter().for_each(|port: &usize| {
                    assert_eq!(wait_for(&wires.left[*port]), frame(53), "{actions}")
                });
                assert!(is_quiet(wires), "{actions}");
            }
            assert_eq!(controller.change("delete"), None);
        }
    });
}
