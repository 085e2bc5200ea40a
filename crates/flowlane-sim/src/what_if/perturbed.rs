//! Lookups on perturbed machines: bottlenecks and the tornado.
//!
//! Each part of the machine is made ideal, one after the other, and the part with the largest gain is named.
//! Observations of it (utilisation, share of the time) are evidence, not the reason. Each parameter is halved and
//! doubled, or switched, and compared with the unchanged machine.

use std::sync::Arc;

use serde::Serialize;

use super::run::{Method, Outcome, Run};
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
    /// The ways to look up, each with the parts that concern it.
    ideal: Vec<(Method, Vec<&'static Part>)>,
    varied: Vec<Variation>,
    /// The ways to look up that are simulated with each variation.
    along: Vec<Method>,
    runs: Vec<Run>,
}

impl Perturbations {
    pub(super) fn of(base: &Base<'_>) -> Self {
        let mut runs = Vec::new();
        let recorded = base.recorded().map(|(method, ..)| method);
        let methods = recorded.clone().into_iter().chain(APPROACHES.map(Method::from));
        let mut concerned = |method: Method| {
            let parts = parts_of(method.approach(), &base.machine).map(|(part, machine)| {
                runs.push(base.run(&Arc::new(machine), &base.plan.base, method.clone()));
                part
            });
            let parts = parts.collect();
            (method, parts)
        };
        let ideal: Vec<_> = methods.map(&mut concerned).collect();
        let varied = variations(&base.machine);
        let along: Vec<Method> =
            [base.accelerator, Approach::Tcam].map(Method::from).into_iter().chain(recorded).collect();
        for variation in &varied {
            let machine = Arc::new(variation.machine.clone());
            let run = |method: &Method| base.run(&machine, &base.plan.base, method.clone());
            runs.extend(along.iter().map(run));
        }
        Self { ideal, varied, along, runs }
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Evaluates the runs.
    pub(super) fn finish(&self, base: &Base<'_>, outcomes: &[Outcome]) -> (Vec<Bottleneck>, Tornado) {
        let mut rest = outcomes;
        let bottleneck = |(method, parts): &(Method, Vec<&'static Part>)| {
            let (own, after) = rest.split_at(parts.len());
            rest = after;
            let all: Vec<_> = parts.iter().copied().zip(own.iter().map(|o| o.cycles)).collect();
            let plain = match method {
                Method::Model(approach) => Some(base.outcome(*approach)),
                Method::Recorded(_) => base.recorded().map(|(_, _, replayed)| replayed),
            };
            Bottleneck::of(plain.expect("it was simulated"), &all)
        };
        let bottlenecks = self.ideal.iter().map(bottleneck).collect();
        // The time of the software is carried to each machine by its replays.
        let recorded = base.recorded().filter(|_| base.no_ratio().is_none());
        let software_ns = |replayed: Option<&Outcome>| {
            let (_, ns, plain) = recorded.as_ref()?;
            Some(ns * replayed?.ns() / plain.ns())
        };
        let times = |replayed, ours: &Outcome| Some(software_ns(replayed)? / ours.ns());
        let settings = self.varied.iter().zip(rest.chunks(self.along.len()));
        let settings = settings.map(|(variation, of)| {
            let setting = Setting {
                setting: variation.setting.clone(),
                cycles: of[0].cycles,
                advantage: times(of.get(2), &of[0]),
                tcam_cycles: of[1].cycles,
            };
            (variation.parameter, setting)
        });
        let accelerator = base.outcome(base.accelerator);
        let plain = recorded.as_ref().map(|(_, _, plain)| *plain);
        let tornado = Tornado {
            accelerator: base.accelerator,
            software: base.recorded().map(|(method, ..)| method.name().to_owned()),
            cycles: accelerator.cycles,
            advantage: times(plain, accelerator),
            tcam_cycles: base.outcome(Approach::Tcam).cycles,
            bars: bars(accelerator.cycles, settings),
        };
        (bottlenecks, tornado)
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

/// The bottleneck of a way to look up.
#[derive(Clone, Debug, Serialize)]
pub struct Bottleneck {
    pub name: String,
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
        Self { name: outcome.name.clone(), cycles: outcome.cycles, part, sentence, reliefs }
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
    /// The software that it is compared with: the fastest that was recorded, if any.
    pub software: Option<String>,
    /// The accelerator's cycles of a packet.
    pub cycles: f64,
    /// The accelerator's speedup over the software, as measured here and carried to the machine; `None` if the comparison is
    /// not trusted.
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
