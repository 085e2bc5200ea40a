//! Frames with offload metadata: large ones to segment, and ones without their checksum.

use std::sync::atomic::AtomicBool;

use flowlane::classify::LinearSearch;

use super::*;
use crate::control::Control;
use crate::packet::{Cut, Offload};
use crate::port::offload::segment;
use crate::state::vlan::{PortVlan, VlanMode};

/// The frames sent: whether each has offload metadata, and its bytes.
type Whole = Vec<(bool, Vec<u8>)>;

/// A port like a kernel's: it returns a large frame per call, unsegmented if it may keep offloads.
struct Kernel {
    frame: Vec<u8>,
    keeps: bool,
    left: u32,
    sent: Arc<Mutex<Whole>>,
    carries: bool,
}

const LEFT: Offload =
    Offload { checksum: Some((34, 16)), cut: Some(Cut { kind: 1, size: 1000, headers: 54 }) };

impl Port for Kernel {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        if self.left == 0 {
            return Ok(Received::Finished);
        }
        self.left -= 1;
        if self.keeps {
            let frame = frames.next_frame().unwrap();
            frame.fill(&self.frame);
            frame.offload = Some(LEFT);
        } else {
            segment(&self.frame, 1000, |piece| frames.next_frame().unwrap().fill(piece));
        }
        Ok(Received::More)
    }

    fn keep_offloads(&mut self, keep: bool) {
        self.keeps = keep;
    }

    fn carries_offloads(&self) -> bool {
        self.carries
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.sent.lock().unwrap().push((frame.offload.is_some(), frame.bytes().to_vec()));
        Ok(true)
    }
}

fn large() -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload: Vec<u8> = (0..4500u32).map(|i| (i * 7) as u8).collect();
    let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 9);
    packet.tcp(1, 2, 3, 5).ack(1).write(&mut bytes, &payload).unwrap();
    bytes
}

/// Sends a large frame through these rules to a port that carries offloads or not. Returns the frames sent, and the bytes of the
/// first rule.
fn through(rules: &[&str], carries: bool) -> (Whole, u64) {
    through_vlan(rules, carries, false)
}

/// Sends it as [`through`] does, perhaps from an access port of VLAN 10 to a trunk.
fn through_vlan(rules: &[&str], carries: bool, in_vlan: bool) -> (Whole, u64) {
    let (sent, mut egress) = (Arc::default(), Egress::new(Fdb::new(1000, 300, 1), 1));
    let port = |left, sent: &Arc<_>| {
        let sent = Arc::clone(sent);
        Box::new(Kernel { frame: large(), keeps: false, left, sent, carries })
    };
    egress.ports.add(PortSlot::new(PortNo(1), "in", "", port(1, &Arc::default())));
    egress.ports.add(PortSlot::new(PortNo(2), "out", "", port(0, &sent)));
    let access = Arc::new(PortVlan::new(VlanMode::Access, 10, &[]));
    egress.ports.set_vlans(&in_vlan.then_some((1, access)).into_iter().collect());
    let mut pipeline = Pipeline::new();
    for table in 0..2 {
        pipeline.add_table(table, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    }
    let options = flowlane::rule::ReadOptions::default();
    for rule in flowlane::rule::read(&rules.join("\n"), "rules", None, &options).unwrap() {
        pipeline.add_rule(rule).unwrap();
    }
    let mut worker = Worker::new(Lookup::new(pipeline, CacheConfig::default()), egress, 32, Clock::Wall);
    let control = Control::attach(&mut worker).unwrap();
    worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let bytes = control.statistics(|_, _| true)[0].count.bytes;
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (sent, bytes)
}

/// While rules only forward, large frames stay whole for ports that carry offloads, and are segmented for others; if a rule does
/// more, frames are received without offloads. The output is the same, as are the counters if segmentation is at one place.
#[test]
fn large_frames_stay_whole_as_long_as_nothing_is_done_to_them() {
    let mut pieces = Vec::new();
    assert!(segment(&large(), 1000, |piece| pieces.push((false, piece.to_vec()))));
    assert_eq!(pieces.len(), 5);
    let forward = ["actions=goto_table:1", "table=1,actions=output:2"];
    assert_eq!(through(&forward, true), (vec![(true, large())], large().len() as u64));
    assert_eq!(through(&forward, false), (pieces.clone(), large().len() as u64));
    let in_pieces = pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
    // A rule that no packet matches is enough.
    let edit = [forward[0], forward[1], "priority=9,arp,actions=dec_ttl,output:2"];
    assert_eq!(through(&edit, true), (pieces, in_pieces));
}

/// Offsets of an offload are those of the frame as received: it is segmented before a port's VLAN adds a header.
#[test]
fn large_frames_are_segmented_before_they_get_a_header() {
    let mut pieces = Vec::new();
    segment(&large(), 1000, |piece| {
        let tagged = [&piece[..12], &[0x81, 0, 0, 10], &piece[12..]].concat();
        pieces.push((false, tagged));
    });
    for carries in [false, true] {
        assert_eq!(through_vlan(&["actions=normal"], carries, true).0, pieces);
        assert_eq!(through_vlan(&["actions=normal"], carries, false).0.len(), if carries { 1 } else { 5 });
    }
}
