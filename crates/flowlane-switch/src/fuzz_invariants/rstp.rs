//! RSTP: frames of any bytes, and a bridge that gets them.

use flowlane::rule::action::PortNo;

use crate::state::rstp::{Bpdu, BridgeId, BridgeSettings, PortSettings, Rstp, TICK_MS, Times, is_bpdu};

/// BPDUs that a port sends at once.
const HOLD_COUNT: u8 = 3;

/// Frames for a bridge with two ports: the input is one of them, and holds others, each behind its length and a pause. A refused frame
/// changes nothing, BPDUs are sent no more often than the bridge's limit says, and a sound neighbour makes a tree with it afterwards.
pub fn rstp(bytes: &[u8]) {
    read_alone(bytes);
    let (mut bridge, mut now_ms, mut sent) = (bridge(1), 0, [0; 2]);
    let mut rest = bytes;
    while let [len, pause, behind @ ..] = rest {
        let (frame, next) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = next;
        now_ms += 100 * u64::from(*pause);
        read_alone(frame);
        let before = bridge.clone();
        if bridge.receive(PortNo(1 + u32::from(*len & 1)), frame).is_err() {
            assert_eq!((bridge.root(), states(&bridge)), (before.root(), states(&before)));
        }
        for (port, bpdu) in bridge.run(now_ms) {
            assert!(bpdu.len() == 60 && is_bpdu(&bpdu));
            sent[port.0 as usize - 1] += 1;
        }
        // Some at once, and one a second.
        let most = usize::from(HOLD_COUNT) + (now_ms / TICK_MS) as usize;
        assert!(sent.iter().all(|count| *count <= most), "{sent:?}");
        assert!(bridge.run(now_ms).is_empty() && bridge.deadline_ms() > now_ms);
    }
    agree(bridge, now_ms);
}

fn states(bridge: &Rstp) -> Vec<(bool, bool)> {
    bridge.ports().map(|(_, status)| (status.learns, status.forwards)).collect()
}

/// Any bytes are read, or refused; those that are read can be written.
fn read_alone(frame: &[u8]) {
    if let Ok(bpdu) = Bpdu::read(frame) {
        assert!(is_bpdu(frame));
        _ = Bpdu::read(&bpdu.frame([2; 6]));
    }
}

fn bridge(number: u8) -> Rstp {
    let id = BridgeId::new(0x8000, [2, 0, 0, 0, 0, number]);
    let settings = BridgeSettings { id, times: Times::default(), hold_count: HOLD_COUNT, speaks_rapid: true };
    let port = |number: u16| PortSettings {
        mac: [2; 6],
        id: 0x8000 | number,
        cost: 20_000,
        is_edge: false,
        finds_edge: true,
        is_point_to_point: true,
    };
    let mut bridge = Rstp::new(settings, 0);
    bridge.set_ports(&[1, 2].map(|number: u16| (PortNo(number.into()), port(number), true)));
    bridge
}

/// A sound neighbour and the bridge use one of two links, once the bridge has forgotten the former one.
fn agree(bridge: Rstp, mut now_ms: u64) {
    let mut ends = [bridge, self::bridge(2)];
    // Nothing is heard for a minute.
    for _ in 0..60 {
        now_ms += TICK_MS;
        ends.iter_mut().for_each(|end| _ = end.run(now_ms));
    }
    for _ in 0..90 {
        for end in 0..2 {
            for (port, frame) in ends[end].run(now_ms) {
                _ = ends[1 - end].receive(port, &frame);
            }
        }
        now_ms += TICK_MS;
    }
    let is_open =
        |port: u32| ends.iter().all(|end| end.status(PortNo(port)).is_some_and(|status| status.forwards));
    assert_eq!([1, 2].map(is_open), [true, false]);
}
