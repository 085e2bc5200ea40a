//! Break-evens: the number of rules, of masks, of packets a second and of changes a second from which on an
//! alternative is better.

mod axis;
mod changes;
mod rates;

use std::sync::Arc;

use serde::Serialize;

use self::axis::Axis;
use self::changes::{CHANGING, PAUSES, changes};
use self::rates::{rates, scaling};

use super::crossing::Crossing;
use super::measured::Measured;
use super::{Base, Outcome, Run};
use crate::config::Approach;
use crate::report::{Chart, Series};
use crate::workload::rules::Workload;

type Values = Vec<Option<f64>>;

/// The sample of packets for the mean number of tables searched.
const SAMPLE: usize = 512;

/// A question, and the answer along an axis.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BreakEven {
    /// The varied quantity.
    pub axis: &'static str,
    /// The question.
    pub question: String,
    /// The answer in words.
    pub answer: String,
    /// The answer in numbers, if it is the crossing of two curves.
    pub crossing: Option<Crossing>,
}

/// Returns the mean number of tables that an ordered search visits for a packet.
pub(super) fn asked(workload: &Workload) -> f64 {
    let own = crate::workload::rules::Own::new(&mut workload.tables.space.clone());
    let step = (workload.packets.len() / SAMPLE).max(1);
    let some = workload.packets.iter().zip(&workload.expected).step_by(step);
    let asked: Vec<usize> = some
        .filter_map(|(key, rule)| workload.tables.search(key, (0, own.key(0)), *rule, false).ok())
        .map(|search| search.asked)
        .collect();
    asked.iter().sum::<usize>() as f64 / asked.len().max(1) as f64
}

/// The approaches along the axes.
const ALONG: [Approach; 4] =
    [Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::NearL2, Approach::Tcam];

/// The runs of all curves, in their order.
pub(super) struct Curves {
    cores: Vec<u32>,
    runs: Vec<Run>,
}

impl Curves {
    pub(super) fn of(base: &Base<'_>) -> Self {
        let on = |workload: &Arc<Workload>, method| base.run(&base.machine, workload, method);
        let axes = base.plan.sizes.iter().chain(&base.plan.masks);
        let mut runs: Vec<Run> =
            axes.flat_map(|(_, workload)| ALONG.map(|approach| on(workload, approach.into()))).collect();
        let most = base.machine.core.cores;
        let cores: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|n| *n <= most).collect();
        let several = cores.iter().filter(|n| !base.question.effort.quick || **n <= 4);
        let cores: Vec<u32> = several.copied().collect();
        for cores in &cores {
            runs.extend(scaling(base).map(|method| Run { cores: *cores, ..on(&base.plan.base, method) }));
        }
        if most > 1 {
            for pause in PAUSES {
                let changed =
                    |a: Approach| Run { update_pause: Some(pause), ..on(&base.plan.base, a.into()) };
                runs.extend(CHANGING.map(changed));
            }
        }
        Self { cores, runs }
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Evaluates the runs.
    pub(super) fn finish(
        &self,
        base: &Base<'_>,
        measured: &Measured,
        outcomes: &[Outcome],
    ) -> (Vec<BreakEven>, Vec<Chart>) {
        let plan = base.plan;
        let (by_size, rest) = outcomes.split_at(plan.sizes.len() * ALONG.len());
        let (by_masks, rest) = rest.split_at(plan.masks.len() * ALONG.len());
        let (by_cores, by_changes) = rest.split_at(self.cores.len() * scaling(base).count());
        let mut charts = vec![stacks(base)];
        let mut answers = Vec::new();
        for (axis, workloads, outcomes, measured) in [
            ("rules", &plan.sizes, by_size, &measured.sizes),
            ("masks", &plan.masks, by_masks, &measured.masks),
        ] {
            let axis = Axis { base, axis, workloads, outcomes, measured };
            answers.extend(axis.answers());
            charts.push(axis.chart());
            if axis.axis == "rules" {
                let (more, chart) = axis.energies();
                answers.extend(more);
                charts.push(chart);
            }
        }
        let (more, chart) = rates(base, &self.cores, by_cores);
        answers.extend(more);
        charts.extend(chart);
        let (more, chart) = changes(base, measured, by_changes);
        answers.extend(more);
        charts.extend(chart);
        (answers, charts)
    }
}

/// Returns the cycle stacks of everything simulated.
fn stacks(base: &Base<'_>) -> Chart {
    let outcomes: Vec<&Outcome> =
        base.software.iter().filter_map(|s| s.replayed.as_ref()).chain(&base.outcomes).collect();
    let parts: Vec<&'static str> = outcomes[0].stack.iter().map(|(name, _)| *name).collect();
    let series =
        |(n, name): (usize, &&'static str)| Series::new(*name, outcomes.iter().map(|o| o.stack[n].1));
    Chart {
        id: "stacks",
        title: "Where the time goes".into(),
        about: "What the instruction at the head of the core's window waits for, simulated; `device` is an accelerator or a \
                TCAM."
            .into(),
        axis: "approach",
        places: outcomes.iter().map(|o| o.name.clone()).collect(),
        unit: "cycles a packet",
        lines: false,
        series: parts.iter().enumerate().map(series).collect(),
    }
}
