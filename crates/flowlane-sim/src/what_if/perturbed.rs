//! Approaches on perturbed machines: bottlenecks and the tornado.
//!
//! Each part of the machine is made ideal, one after the other, and the part with the largest gain is named.
//! Observations of it (utilisation, share of the time) are evidence, not the reason. Each parameter is halved and
//! doubled, or switched, and compared with the unchanged machine.

use std::sync::Arc;

use serde::Serialize;

use super::run::{Outcome, Run};
use super::{APPROACHES, Base};
use crate::config::{Approach, MachineConfig};
use crate::perturb::{LISTS, Part, Variation, variations};

/// Returns the parts that concern an approach, each with the machine in which it is ideal.
pub fn parts_of(
    approach: Approach,
    machine: &MachineConfig,
) -> impl Iterator<Item = (&'static Part, MachineConfig)> {
    let concerned = LISTS.parts.iter().filter(move |part| part.concerns(approach));
    concerned.filter_map(move |part| Some((part, part.idealised(machine)?)))
}

/// The runs on all perturbed machines, in their order.
pub(super) struct Perturbations {
    ideal: Vec<(Approach, &'static Part)>,
    varied: Vec<Variation>,
    runs: Vec<Run>,
}

impl Perturbations {
    pub(super) fn of(base: &Base<'_>) -> Self {
        let (mut ideal, mut runs) = (Vec::new(), Vec::new());
        let mut add = |machine: MachineConfig, approaches: &[Approach]| {
            let machine = Arc::new(machine);
            runs.extend(approaches.iter().map(|approach| base.run(&machine, &base.plan.base, *approach)));
        };
        for approach in APPROACHES {
            for (part, machine) in parts_of(approach, &base.machine) {
                ideal.push((approach, part));
                add(machine, &[approach]);
            }
        }
        let varied = variations(&base.machine);
        for variation in &varied {
            add(variation.machine.clone(), &[base.accelerator, base.software, Approach::Tcam]);
        }
        Self { ideal, varied, runs }
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Evaluates the runs.
    pub(super) fn finish(&self, base: &Base<'_>, outcomes: &[Outcome]) -> (Vec<Bottleneck>, Tornado) {
        let (ideal, varied) = outcomes.split_at(self.ideal.len());
        let bottleneck = |approach: Approach| {
            let all = self.ideal.iter().zip(ideal).filter(|((of, _), _)| *of == approach);
            let all: Vec<_> = all.map(|((_, part), outcome)| (*part, outcome.cycles)).collect();
            Bottleneck::of(base.outcome(approach), &all)
        };
        let times = |software: f64, cycles: f64| base.no_ratio().is_none().then_some(software / cycles);
        let settings = self.varied.iter().zip(varied.as_chunks::<3>().0);
        let settings = settings.map(|(variation, [accelerator, software, tcam])| {
            let setting = Setting {
                setting: variation.setting.clone(),
                cycles: accelerator.cycles,
                advantage: times(software.cycles, accelerator.cycles),
                tcam_cycles: tcam.cycles,
            };
            (variation.parameter, setting)
        });
        let cycles = |approach| base.outcome(approach).cycles;
        let tornado = Tornado {
            accelerator: base.accelerator,
            software: base.software,
            cycles: cycles(base.accelerator),
            advantage: times(cycles(base.software), cycles(base.accelerator)),
            tcam_cycles: cycles(Approach::Tcam),
            bars: bars(cycles(base.accelerator), settings),
        };
        (APPROACHES.map(bottleneck).into(), tornado)
    }
}

/// The gain of making a part ideal.
#[derive(Clone, Debug, Serialize)]
pub struct Relief {
    pub part: &'static str,
    /// The part of which it is a realisable setting.
    pub of: Option<&'static str>,
    /// The cycles of a packet with the ideal part.
    pub cycles: f64,
    /// The speedup.
    pub times: f64,
    /// Observations without the ideal part.
    pub evidence: String,
    #[serde(skip)]
    plain: &'static str,
}

/// The bottleneck of an approach.
#[derive(Clone, Debug, Serialize)]
pub struct Bottleneck {
    pub approach: Approach,
    /// The cycles of a packet.
    pub cycles: f64,
    /// The part with the largest gain; `None` if no gain exceeds a twentieth.
    pub part: Option<&'static str>,
    /// A description.
    pub sentence: String,
    /// All parts, largest gain first.
    pub reliefs: Vec<Relief>,
}

/// The smallest speedup that indicates a bottleneck.
const ENOUGH: f64 = 1.05;

impl Bottleneck {
    /// Finds the bottleneck from the cycles of an approach, as configured and with each part ideal.
    pub fn of(outcome: &Outcome, ideal: &[(&'static Part, f64)]) -> Self {
        let relief = |(part, cycles): &(&'static Part, f64)| Relief {
            part: &part.name,
            of: part.of.as_deref(),
            cycles: *cycles,
            times: outcome.cycles / cycles.max(1e-9),
            evidence: evidence(part, outcome),
            plain: &part.plain,
        };
        let mut reliefs: Vec<Relief> = ideal.iter().map(relief).collect();
        reliefs.sort_by(|a, b| b.times.total_cmp(&a.times));
        let most = reliefs.iter().find(|relief| relief.of.is_none());
        let named = most.filter(|relief| relief.times >= ENOUGH);
        let part = named.map(|relief| relief.part);
        let sentence = match (named, most) {
            (Some(relief), _) => sentence(outcome, relief, &reliefs),
            (None, Some(relief)) => format!(
                "no single part: even {} made ideal gives only {:.0} %",
                relief.part,
                100.0 * (relief.times - 1.0)
            ),
            (None, None) => "nothing of the machine concerns it".to_owned(),
        };
        Self { approach: outcome.approach, cycles: outcome.cycles, part, sentence, reliefs }
    }
}

/// Replaces the names in braces of a part's evidence by an outcome's observations.
fn evidence(part: &Part, outcome: &Outcome) -> String {
    let pieces = part.evidence.split(['{', '}']).enumerate();
    pieces.map(|(n, piece)| if n % 2 == 1 { seen(outcome, piece) } else { piece.to_owned() }).collect()
}

/// Formats an observation; the default is a part's share of the time.
fn seen(outcome: &Outcome, name: &str) -> String {
    let (busy, counters, loads) = (&outcome.busy, &outcome.counters, outcome.loads);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    match name {
        "instructions" => format!("{:.0}", outcome.instructions),
        "queries" => format!("{:.1}", outcome.queries),
        "mispredicted" => format!("{:.2}", outcome.mispredicted),
        "loads" => format!("{:.1}", loads.iter().sum::<f64>()),
        "far loads" => format!("{:.1}", loads[2] + loads[3]),
        "core walks" => counters.page_walks.to_string(),
        "accelerator walks" => counters.tlb_misses.to_string(),
        "metadata misses" => {
            let (hits, misses) = (counters.metadata_hits, counters.metadata_misses);
            percent(misses as f64 / (hits + misses).max(1) as f64)
        }
        "accelerator" => percent(busy.accelerator),
        "accelerators" => percent(busy.accelerators_mean),
        "slice" => percent(busy.slice),
        "link" => percent(busy.link),
        "memory bus" => percent(busy.memory_bus),
        "engine" => percent(busy.near_l2),
        _ => percent(outcome.share(name)),
    }
}

fn sentence(outcome: &Outcome, relief: &Relief, all: &[Relief]) -> String {
    let mut text = format!(
        "{}: {} ({}). Were that ideal, a packet would take {:.0} cycles instead of {:.0}",
        relief.part, relief.plain, relief.evidence, relief.cycles, outcome.cycles
    );
    let enough = || all.iter().filter(|other| other.times >= ENOUGH);
    let settings: Vec<String> = enough()
        .filter(|other| other.of == Some(relief.part))
        .map(|other| format!("{} alone {:.0}", other.part, other.cycles))
        .collect();
    if !settings.is_empty() {
        text.push_str(&format!("; with {}", settings.join(", with ")));
    }
    if let Some(next) = enough().find(|other| other.of.is_none() && other.part != relief.part) {
        text.push_str(&format!(". Next: {} ({:.0} cycles)", next.part, next.cycles));
    }
    text
}

/// The sensitivity of the result to each parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Tornado {
    /// The accelerator.
    pub accelerator: Approach,
    /// The software that it is compared with.
    pub software: Approach,
    /// The accelerator's cycles of a packet.
    pub cycles: f64,
    /// The accelerator's speedup over the software; `None` if the comparison is not trusted.
    pub advantage: Option<f64>,
    /// A TCAM's cycles of a packet.
    pub tcam_cycles: f64,
    /// The parameters, most influential first.
    pub bars: Vec<Bar>,
}

/// The result of a parameter's setting.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    pub setting: String,
    /// The accelerator's cycles of a packet.
    pub cycles: f64,
    /// The accelerator's speedup over the software that is fastest on the unchanged machine; `None` if the comparison
    /// is not trusted.
    pub advantage: Option<f64>,
    /// A TCAM's cycles of a packet.
    pub tcam_cycles: f64,
}

/// A parameter with all its settings except the machine's own.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub parameter: &'static str,
    pub settings: Vec<Setting>,
    /// The range of cycles, including the unchanged machine.
    pub swing: f64,
}

/// Returns the bars, widest first; equal ones in the order of the list.
fn bars(base_cycles: f64, settings: impl Iterator<Item = (&'static str, Setting)>) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for (parameter, setting) in settings {
        match bars.iter_mut().find(|bar| bar.parameter == parameter) {
            Some(bar) => bar.settings.push(setting),
            None => bars.push(Bar { parameter, settings: vec![setting], swing: 0.0 }),
        }
    }
    for bar in &mut bars {
        let cycles = bar.settings.iter().map(|s| s.cycles);
        let [least, most] = cycles.fold([base_cycles; 2], |[least, most], c| [least.min(c), most.max(c)]);
        bar.swing = most - least;
    }
    bars.sort_by(|a, b| b.swing.total_cmp(&a.swing));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_sorted_by_what_they_move_and_the_base_counts() {
        let setting = |cycles| Setting { setting: String::new(), cycles, advantage: None, tcam_cycles: 1.0 };
        let of = |base, settings: &[(&'static str, f64)]| {
            bars(base, settings.iter().map(|(name, cycles)| (*name, setting(*cycles))))
        };
        // A function of three numbers, 2a + b - c/2 at (10, 10, 10): halved and doubled.
        let f = |a: f64, b: f64, c: f64| 2.0 * a + b - c / 2.0;
        let base = f(10.0, 10.0, 10.0);
        let bars = of(
            base,
            &[
                ("c", f(10.0, 10.0, 5.0)),
                ("c", f(10.0, 10.0, 20.0)),
                ("a", f(5.0, 10.0, 10.0)),
                ("a", f(20.0, 10.0, 10.0)),
                ("b", f(10.0, 5.0, 10.0)),
                ("b", f(10.0, 20.0, 10.0)),
            ],
        );
        let swings: Vec<(&str, f64)> = bars.iter().map(|b| (b.parameter, b.swing)).collect();
        assert_eq!(swings, [("a", 30.0), ("b", 15.0), ("c", 7.5)]);
        // Both settings are on one side of the base, where the bar begins.
        assert_eq!(of(10.0, &[("x", 12.0), ("x", 14.0)])[0].swing, 4.0);
    }
}
