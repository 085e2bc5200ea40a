//! Break-evens: the number of rules, of masks, of packets a second and of changes a second from which on an
//! alternative is better.

mod axis;
mod changes;
mod rates;

use std::sync::Arc;

use serde::Serialize;

use self::axis::Axis;
use self::changes::{PAUSES, changes, changing};
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

/// The runs of all curves, in their order.
pub(super) struct Curves {
    along: Vec<Approach>,
    cores: Vec<u32>,
    runs: Vec<Run>,
}

impl Curves {
    pub(super) fn of(base: &Base<'_>) -> Self {
        let mut along = vec![
            Approach::Scalar,
            base.software,
            Approach::HaloBlocking,
            Approach::HaloNonBlocking,
            Approach::NearL2,
            Approach::Tcam,
        ];
        along.dedup();
        let on = |workload: &Arc<Workload>, approach| base.run(&base.machine, workload, approach);
        let axes = base.plan.sizes.iter().chain(&base.plan.masks);
        let mut runs: Vec<Run> = axes
            .flat_map(|(_, workload)| along.iter().map(move |approach| on(workload, *approach)))
            .collect();
        let most = base.machine.core.cores;
        let cores: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|n| *n <= most).collect();
        let several = cores.iter().filter(|n| !base.question.effort.quick || **n <= 4);
        let cores: Vec<u32> = several.copied().collect();
        for cores in &cores {
            runs.extend(scaling(base).map(|a| Run { cores: *cores, ..on(&base.plan.base, a) }));
        }
        if most > 1 {
            for pause in PAUSES {
                let changed = |a| Run { update_pause: Some(pause), ..on(&base.plan.base, a) };
                runs.extend(changing(base).map(changed));
            }
        }
        Self { along, cores, runs }
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
        let (by_size, rest) = outcomes.split_at(plan.sizes.len() * self.along.len());
        let (by_masks, rest) = rest.split_at(plan.masks.len() * self.along.len());
        let (by_cores, by_changes) = rest.split_at(self.cores.len() * scaling(base).len());
        let mut charts = vec![stacks(base)];
        let mut answers = Vec::new();
        for (axis, workloads, outcomes, measured) in [
            ("rules", &plan.sizes, by_size, &measured.sizes),
            ("masks", &plan.masks, by_masks, &measured.masks),
        ] {
            let axis = Axis { base, axis, workloads, along: &self.along, outcomes, measured };
            answers.extend(axis.answers());
            charts.push(axis.chart());
            if axis.axis == "rules" {
                let (more, chart) = axis.energies();
                answers.extend(more);
                charts.push(chart);
            }
        }
        let (more, chart) = rates(base, measured, &self.cores, by_cores);
        answers.extend(more);
        charts.extend(chart);
        let (more, chart) = changes(base, measured, by_changes);
        answers.extend(more);
        charts.extend(chart);
        (answers, charts)
    }
}

/// Returns the cycle stacks of all approaches.
fn stacks(base: &Base<'_>) -> Chart {
    let parts: Vec<&'static str> = base.outcomes[0].stack.iter().map(|(name, _)| *name).collect();
    let series =
        |(n, name): (usize, &&'static str)| Series::new(*name, base.outcomes.iter().map(|o| o.stack[n].1));
    Chart {
        id: "stacks",
        title: "Where the time goes".into(),
        about: "What the instruction at the head of the core's window waits for, simulated; `device` is an accelerator or a \
                TCAM."
            .into(),
        axis: "approach",
        places: base.outcomes.iter().map(|o| o.approach.name().to_owned()).collect(),
        unit: "cycles a packet",
        lines: false,
        series: parts.iter().enumerate().map(series).collect(),
    }
}
