//! Multicast snooping: frames of any bytes, and a table that learns from them.

use flowlane::rule::action::PortNo;

use crate::state::multicast::{GroupFrame, Snooping, SnoopingSettings, read};

/// Groups in the table.
const GROUPS_MAX: usize = 12;

/// Frames for a table: the input is one of them, and holds others, each behind its length and a pause. The table does not grow beyond its
/// limit, a frame is sent through no port twice, one with a wrong checksum changes nothing, and a sound report is heard afterwards.
pub fn multicast(bytes: &[u8]) {
    let settings = SnoopingSettings {
        groups_max: GROUPS_MAX,
        ageing_s: 15,
        flood_ports: [PortNo(6)].into(),
        report_ports: [PortNo(1)].into(),
        ..SnoopingSettings::default()
    };
    let (snooping, mut now_s) = (Snooping::new(settings), 0);
    receive(&snooping, bytes, 0, now_s);
    let mut rest = bytes;
    while let [len, pause, behind @ ..] = rest {
        let (frame, next) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = next;
        now_s += u32::from(*pause);
        receive(&snooping, frame, *len, now_s);
        snooping.sweep(now_s);
    }
    is_heard(&snooping, now_s);
}

fn receive(snooping: &Snooping, frame: &[u8], port: u8, now_s: u32) {
    // Checksums are computed by a device, so that the input need not have them.
    let Some(read_frame) = read(frame, false) else {
        assert_eq!(read(frame, true), None);
        return;
    };
    if let GroupFrame::Report(memberships) = read_frame {
        assert!(memberships.count() <= frame.len());
    }
    let (port, vid) = (PortNo(u32::from(port & 7)), u16::from(port >> 6));
    let mut ports = Vec::new();
    let before = snooping.ports_for(&read_frame, vid, now_s, &mut ports);
    snooping.learn(&read_frame, vid, port, now_s);
    assert!(snooping.len() <= GROUPS_MAX);
    let mut after = Vec::new();
    // What a frame makes a port learn does not concern the frame itself: a trace, which learns nothing, tells the truth.
    assert_eq!((snooping.ports_for(&read_frame, vid, now_s, &mut after), &after), (before, &ports));
    assert!(ports.is_sorted_by(|one, next| one < next));
    if before {
        assert!(!matches!(read_frame, GroupFrame::Query { .. } | GroupFrame::OfLink));
    }
    assert!(snooping.list(now_s).iter().all(|listener| listener.port != PortNo(6)));
}

/// A host that reports a group gets its packets, also where the table is full.
fn is_heard(snooping: &Snooping, now_s: u32) {
    let report = b"\x01\0\x5e\x05\x06\x07\x02\0\0\0\0\x01\x08\0\x45\0\0\x1c\0\0\0\0\x01\x02\0\0\
        \x0a\0\0\x01\xef\x05\x06\x07\x16\0\xf4\xf2\xef\x05\x06\x07";
    let report = read(report, true).expect("a report");
    assert!(matches!(report, GroupFrame::Report(memberships) if memberships.count() == 1));
    let group = std::net::Ipv4Addr::new(239, 5, 6, 7).to_ipv6_mapped();
    snooping.learn(&report, 9, PortNo(3), now_s);
    let mut ports = Vec::new();
    assert!(snooping.ports_for(&GroupFrame::ToGroup(group), 9, now_s, &mut ports));
    assert_eq!(ports, [PortNo(3), PortNo(6)]);
}
