//! A frame's time is its own, however many frames are received together.

use std::sync::Arc;

use flowlane_switch::datapath::{CacheConfig, Lookup};
use flowlane_switch::state::fdb::Fdb;
use flowlane_switch::state::meter::{Meter, Rate};

use super::{PLAIN, Switch, ethernet, pipeline, udp4};
use crate::against_model::worker::Options;
use crate::packets::Random;

const SECOND: u64 = 1_000_000_000;

/// Returns a switch with these rules and bursts of this size.
fn switch(text: &str, burst: usize) -> Switch {
    let mut switch = Switch::new(&[], Options::plain(&mut Random::new(1)).with_burst(burst));
    switch.worker.lookup = Lookup::new(pipeline(text), CacheConfig::default());
    switch
}

/// Switches frames that arrive at these times (in seconds) and ports; returns times and ports of those sent.
fn passed(switch: &mut Switch, frames: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let frame = ethernet(0x0800, &udp4(PLAIN));
    let timed: Vec<_> = frames.iter().map(|&(s, port)| (s * SECOND, port, &frame[..])).collect();
    switch.run_at(&timed).unwrap().into_iter().map(|(time, port, _)| (time / SECOND, port)).collect()
}

#[test]
fn a_meter_goes_by_each_frames_time() {
    for burst in [1, 8, 64] {
        let mut switch = switch("in_port=1,actions=meter:1,output:2", burst);
        switch.worker.egress.add_meter(1, Arc::new(Meter::new(Rate::Pps(1), 1)));
        let slow: Vec<_> = (1..=60).map(|s| (s, 1)).collect();
        assert_eq!(passed(&mut switch, &slow).len(), 60, "one a second, bursts of {burst}");
        // Three in each of ten seconds: the first passes.
        let fast: Vec<_> = (300..330).map(|third| (third / 3, 1)).collect();
        let wanted: Vec<_> = (100..110).map(|s| (s, 2)).collect();
        assert_eq!(passed(&mut switch, &fast), wanted, "three a second, bursts of {burst}");
    }
}

#[test]
fn the_time_of_one_ports_frames_is_not_anothers() {
    for burst in [1, 8, 64] {
        let text = "in_port=1,actions=meter:1,output:2\nin_port=3,actions=meter:2,output:4";
        let mut switch = switch(text, burst);
        for number in [1, 2] {
            switch.worker.egress.add_meter(number, Arc::new(Meter::new(Rate::Pps(1), 1)));
        }
        let both: Vec<_> = (1..=60).flat_map(|s| [(s, 1), (s, 3)]).collect();
        let sent = passed(&mut switch, &both);
        assert_eq!(sent.len(), 120, "one a second through each of two ports, bursts of {burst}");
    }
}

#[test]
fn learned_addresses_age_by_each_frames_time() {
    for burst in [1, 8] {
        let mut switch = switch("actions=normal", burst);
        switch.worker.egress.macs = Fdb::new(16, 300, 1);
        let frame = ethernet(0x0800, &udp4(PLAIN));
        let mut back = frame.clone();
        back[..6].copy_from_slice(&frame[6..12]);
        back[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let ports = |switch: &mut Switch, frames: &[(u64, u32, &[u8])]| -> Vec<(u64, u32)> {
            switch.run_at(frames).unwrap().into_iter().map(|(time, port, _)| (time / SECOND, port)).collect()
        };
        assert_eq!(ports(&mut switch, &[(SECOND, 1, &frame)]), [(1, 2), (1, 3), (1, 4)]);
        let sent = ports(&mut switch, &[(10 * SECOND, 2, &back), (400 * SECOND, 2, &back)]);
        assert_eq!(sent, [(10, 1), (400, 1), (400, 3), (400, 4)], "bursts of {burst}");
    }
}
