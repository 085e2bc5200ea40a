//! Packets without an Ethernet header, to controllers and back.

use flowlane_openflow::message::{PacketIn, PacketInFormat, Resume};

use super::*;

impl Controller {
    /// The next packet.
    fn packet(&mut self) -> PacketIn {
        match self.next() {
            Message::PacketIn(packet) => packet,
            other => panic!("{other:?}"),
        }
    }
}

/// As Open vSwitch 3.1 sends them: without the header, and with the type among the metadata.
#[test]
fn packets_without_ethernet_are_sent_and_resumed_as_such() {
    with_switch(|path, wires| {
        let whole = frame(53);
        for version in [Version::OpenFlow13, Version::OpenFlow14, Version::OpenFlow15] {
            let mut controller = Controller::connect(path, version);
            controller.subscribe();
            assert_eq!(controller.change("add actions=decap,controller"), None);
            for format in [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2] {
                controller.send(&Message::SetPacketInFormat(format));
                wires.arrive(0, whole.clone());
                let packet = controller.packet();
                assert_eq!((&packet.data[..], packet.total_len), (&whole[14..], whole.len() as u32 - 14));
                assert_eq!(packet.metadata.get(Field::PacketType).0, 0x1_0800, "{version:?} {format:?}");
            }
            let rules = [
                "add actions=decap,controller(pause),resubmit(,1)",
                "add table=1,packet_type=(1,0x800) actions=encap(ethernet),output:3",
                "add table=1,ip actions=output:2",
            ];
            for rule in rules {
                assert_eq!(controller.change(rule), None, "{version:?}");
            }
            wires.arrive(1, whole.clone());
            let packet = controller.packet();
            assert_eq!(packet.data, whole[14..], "{version:?}");
            controller.send(&Message::Resume(Resume(packet)));
            assert_eq!(controller.barrier(), None);
            assert_eq!(wait_for(&wires.left[2]), [&[0; 12][..], &whole[12..]].concat(), "{version:?}");
            assert_eq!(controller.change("delete"), None);
        }
    });
}
