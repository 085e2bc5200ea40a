//! LACP: frames of any bytes, and a bond that gets them.

use flowlane::rule::action::PortNo;

use crate::state::lacp::{
    FAST_MS, FRAME_BYTES, Lacp, LacpSettings, LinkSettings, Pdu, SystemId, is_slow_protocol,
};

/// Frames for a bond of two links: the input is one of them, and holds others, each behind its length and a pause. A refused frame
/// changes nothing, no more than three PDUs are sent in a second, and a sound neighbour is heard afterwards.
pub fn lacp(bytes: &[u8]) {
    read_alone(bytes);
    let (mut bond, mut now_ms, mut sent_ms) = (bond(1), 0, Vec::new());
    let mut rest = bytes;
    while let [len, pause, behind @ ..] = rest {
        let (frame, next) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = next;
        now_ms += 10 * u64::from(*pause);
        read_alone(frame);
        let uses = |bond: &Lacp| [1, 2].map(|port| bond.may_enable(PortNo(port)));
        let before = uses(&bond);
        if bond.receive(PortNo(1 + u32::from(*len & 1)), frame, now_ms).is_err() {
            assert_eq!(uses(&bond), before);
        }
        for (port, sent) in bond.run(now_ms) {
            assert!(sent.len() == FRAME_BYTES && Pdu::read(&sent).is_ok());
            sent_ms.push((port, now_ms));
        }
        let lately =
            |port: u32| sent_ms.iter().filter(|(of, at)| of.0 == port && at + FAST_MS > now_ms).count();
        // Three of a second that has ended, and three of the next.
        assert!(lately(1) <= 6 && lately(2) <= 6);
        assert!(bond.run(now_ms).is_empty() && bond.deadline_ms() > now_ms);
        assert!(!bond.describe("bond").is_empty() && !bond.describe_counters("bond").is_empty());
    }
    agree(bond, now_ms);
}

/// Any bytes are read, or refused; PDUs in them are those that the datapath takes.
fn read_alone(frame: &[u8]) {
    if let Ok(pdu) = Pdu::read(frame) {
        assert!(is_slow_protocol(frame));
        let written = pdu.frame([2; 6]);
        assert_eq!(Pdu::read(&written), Ok(pdu));
    }
}

fn bond(system: u8) -> Lacp {
    let system = SystemId { priority: 7, mac: [2, 0, 0, 0, 0, system] };
    let mut lacp = Lacp::new(LacpSettings { is_active: true, is_fast: true, system, falls_back: false });
    let link = |n: u16| LinkSettings { name: format!("m{n}"), mac: [2; 6], id: n, priority: 1, key: 0 };
    lacp.set_links(&[1, 2].map(|n: u16| (PortNo(n.into()), link(n), true)), 0);
    lacp
}

/// A sound neighbour and the bond use both links, once the bond has forgotten the former one.
fn agree(bond: Lacp, mut now_ms: u64) {
    let mut ends = [bond, self::bond(2)];
    now_ms += 10_000;
    for _ in 0..400 {
        for end in 0..2 {
            for (port, frame) in ends[end].run(now_ms) {
                _ = ends[1 - end].receive(port, &frame, now_ms);
            }
        }
        now_ms += 10;
    }
    assert!(ends.iter().all(|end| [1, 2].iter().all(|port| end.may_enable(PortNo(*port)))));
}
