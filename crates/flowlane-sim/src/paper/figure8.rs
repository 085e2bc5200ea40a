//! Figure 8b: flow counts estimated by a flow register, by its size.

use flowlane::flow_register::FlowRegister;
use flowlane::generate::Random;

use super::{Row, Stated};
use crate::report::{Chart, Effort, Series};

const BITS: [u32; 5] = [8, 16, 32, 64, 128];
const FLOWS: [u64; 8] = [4, 8, 16, 32, 64, 96, 128, 256];

/// Returns the mean of the estimates, and the number of full registers.
fn estimates(bits: u32, flows: u64, rounds: u64, seed: u64) -> (f64, f64, u64) {
    let (mut sum, mut squares, mut full) = (0.0, 0.0, 0);
    for round in 0..rounds {
        let mut random = Random::for_purpose(seed ^ round << 20 ^ u64::from(bits) << 8, "flows");
        let mut register = FlowRegister::new(bits);
        (0..flows).for_each(|_| register.note(random.bits() as u32));
        // A full register counts as one with a single unset bit.
        let estimate = register.flows().unwrap_or_else(|| {
            full += 1;
            register.flows_most()
        });
        sum += estimate;
        squares += (estimate - flows as f64) * (estimate - flows as f64);
    }
    (sum / rounds as f64, squares / rounds as f64, full)
}

pub(super) fn figure(effort: Effort) -> (Vec<Row>, Vec<Chart>) {
    let rounds = if effort.quick { 200 } else { 5000 };
    let of = |bits: u32| -> Vec<f64> {
        FLOWS.iter().map(|flows| estimates(bits, *flows, rounds, effort.seed).0).collect()
    };
    let all: Vec<Vec<f64>> = BITS.iter().map(|bits| of(*bits)).collect();
    let (mean, squares, full) = estimates(32, 64, rounds, effort.seed);
    let rows = vec![
        Row::predicted("Figure 8b", "32 bits, 64 flows: mean estimate", Stated::Exact { value: 64.0 })
            .is(mean)
            .assumption("mathematics: hashes are taken as random, and no machine has a part in it")
            .note(format!(
                "\"accurately estimate around 2x more flows than the size\"; root mean square error {:.0} %, and {:.1} % \
                 of registers were full",
                100.0 * sqrt(squares) / 64.0,
                100.0 * full as f64 / rounds as f64
            )),
    ];
    let mut series: Vec<Series> =
        BITS.iter().zip(all).map(|(bits, values)| Series::new(format!("{bits} bits"), values)).collect();
    series.push(Series::new("flows", FLOWS.iter().map(|n| *n as f64)));
    let about =
        "Mean estimates over random flows; a register with no bit left says as many as with one left.";
    let chart = Chart::new("figure-8b", "Figure 8b: flows counted by linear counting", about)
        .over("flows", FLOWS)
        .curves("flows estimated", series);
    (rows, vec![chart])
}

/// Computes a square root with additions, multiplications and divisions only.
fn sqrt(x: f64) -> f64 {
    let mut root = x.max(1.0);
    for _ in 0..60 {
        root = (root + x / root) / 2.0;
    }
    root
}
