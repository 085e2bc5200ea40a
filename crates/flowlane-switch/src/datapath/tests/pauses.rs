//! Packets that wait for a controller.

use std::time::Duration;

use flowlane::rule::{ReadOptions, flow_syntax};

use super::*;
use crate::datapath::{PacketIn, PacketIns};

/// Those for which the queue has no room take no place from those that controllers get.
#[test]
fn a_flood_of_paused_packets_leaves_those_that_controllers_get() {
    let rules = flow_syntax::read("actions=controller(pause),output:2", "rules", &ReadOptions::default());
    let (mut worker, _) = worker(&rules.unwrap(), 1, CacheConfig::default(), By::Tuple);
    let packet_ins = Arc::new(PacketIns::default());
    worker.egress.packet_ins = Some(packet_ins.clone());
    let frame = [2; 60];
    for _ in 0..200 {
        worker.inject(0, &[&frame[..]; 32]).unwrap();
    }
    let sent = packet_ins.take(Duration::ZERO);
    assert_eq!(sent.len(), 1024);
    let token = |packet: &PacketIn| packet.paused.expect("it has been paused");
    assert!(sent.iter().all(|packet| packet_ins.paused.find(&token(packet)).is_some()));
    assert_eq!(worker.egress.drops.no_controller, 6400 - 1024);
}
