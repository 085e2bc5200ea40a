//! Break-evens by the number of rules and of masks: time and energy.

use std::sync::Arc;

use super::{ALONG, BreakEven, Values};
use crate::config::Approach;
use crate::machine::cost::{ACCELERATOR, TCAM};
use crate::report::{Chart, Series};
use crate::what_if::crossing::{Crossing, crossing, place_text};
use crate::what_if::measured::Measurement;
use crate::what_if::text::label;
use crate::what_if::{Base, Outcome, energy};
use crate::workload::rules::Workload;

/// Workloads along an axis, with their simulations and measurements.
pub(super) struct Axis<'a> {
    pub(super) base: &'a Base<'a>,
    pub(super) axis: &'static str,
    pub(super) workloads: &'a [(f64, Arc<Workload>)],
    pub(super) outcomes: &'a [Outcome],
    pub(super) measured: &'a [Vec<Measurement>],
}

/// The software that accelerators are compared with, and whether it looks up packets one by one.
const RIVALS: [(&str, bool); 2] =
    [("the fastest software one by one", true), ("the fastest software", false)];

/// Adds the answers at both ends of a band.
fn with_band(answer: &str, ends: &[Option<Crossing>; 2]) -> String {
    let short = |end: &Option<Crossing>| end.as_ref().map_or_else(String::new, Crossing::short);
    let [fast, slow] = [short(&ends[0]), short(&ends[1])];
    if fast == slow { answer.to_owned() } else { format!("{answer}; in the band: {fast}, or {slow}") }
}

impl Axis<'_> {
    fn places(&self) -> Vec<f64> {
        self.workloads.iter().map(|(at, _)| *at).collect()
    }

    fn outcomes_of(&self, approach: Approach) -> Vec<&Outcome> {
        let at = ALONG.iter().position(|a| *a == approach).expect("it was simulated along");
        self.outcomes.iter().skip(at).step_by(ALONG.len()).collect()
    }

    fn simulated(&self, approach: Approach) -> Values {
        self.outcomes_of(approach).into_iter().map(|outcome| Some(outcome.ns())).collect()
    }

    /// Returns the fastest measured values, on the machine of the question; none if they are not comparable with simulated
    /// ones.
    fn measured(&self, single: bool) -> Values {
        if self.refused().is_some() {
            return vec![None; self.workloads.len()];
        }
        let of = |n: usize| {
            let here = self.measured.get(n)?.iter().filter(|m| m.single || !single);
            here.filter_map(|m| Some(m.ns[1] * self.base.times(&m.name)?)).min_by(f64::total_cmp)
        };
        (0..self.workloads.len()).map(of).collect()
    }

    /// Returns the nanoseconds of a packet of everything compared, with labels.
    fn curves(&self) -> Vec<(String, Values)> {
        let simulated = |a: &Approach| (format!("{}, simulated", label(*a)), self.simulated(*a));
        let mut curves: Vec<(String, Values)> = ALONG.iter().map(simulated).collect();
        for (name, single) in RIVALS {
            let values = self.measured(single);
            if values.iter().any(Option::is_some) {
                curves.push((name.to_owned(), values));
            }
        }
        curves
    }

    pub(super) fn answers(&self) -> Vec<BreakEven> {
        let places = self.places();
        let mut out = Vec::new();
        for approach in [self.base.accelerator, Approach::NearL2] {
            for (name, single) in RIVALS {
                let theirs = self.measured(single);
                let refused = self.refused();
                let ours = self.simulated(approach);
                let crossed = crossing(&places, &ours, &theirs).filter(|_| refused.is_none());
                let question = format!("{} is faster than {name}", label(approach));
                let mut even = self.answer(question, crossed, refused.unwrap_or("not measured"));
                if even.crossing.is_some()
                    && let Some(band) = self.base.band
                {
                    // Were the simulation as far off as that of the software, either way.
                    let ends = [band.most, band.least].map(|ratio| {
                        let ours: Values = ours.iter().map(|ns| ns.map(|ns| ns / ratio)).collect();
                        crossing(&places, &ours, &theirs)
                    });
                    even.answer = with_band(&even.answer, &ends);
                }
                out.push(even);
            }
        }
        out
    }

    /// Returns why an accelerator is not compared with software; `None` if it is.
    fn refused(&self) -> Option<&'static str> {
        self.base.incomparable().or(self.base.no_ratio())
    }

    fn answer(&self, question: String, crossing: Option<Crossing>, otherwise: &str) -> BreakEven {
        let answer = crossing.as_ref().map_or_else(|| otherwise.to_owned(), Crossing::to_string);
        BreakEven { axis: self.axis, question, answer, crossing }
    }

    pub(super) fn chart(&self) -> Chart {
        let (id, title, axis) = match self.axis {
            "rules" => ("by-rules", "By the number of rules", "rules"),
            _ => ("by-masks", "By the number of masks", "masks (tables, tuples)"),
        };
        let about = match self.axis {
            "rules" => {
                "Fewer: some of the rules at random. More: the rules again with other addresses, and packets for them."
            }
            _ => {
                "Fewer: the rules of the masks that have most. More: the rules again, behind all, with shorter prefixes."
            }
        };
        Chart {
            id,
            title: title.into(),
            about: format!("{about} Software is measured, accelerators and TCAMs are simulated."),
            axis,
            places: self.places().into_iter().map(place_text).collect(),
            unit: "ns a packet",
            lines: true,
            series: self.curves().into_iter().map(|(name, values)| Series { name, values }).collect(),
        }
    }

    /// Returns the energy by the number of rules.
    pub(super) fn energies(&self) -> (Vec<BreakEven>, Chart) {
        let question = self.base.question;
        let of = |approach: Approach, like: Approach| -> Values {
            let outcomes = self.workloads.iter().zip(self.outcomes_of(like));
            let nj = outcomes.map(|((_, workload), outcome)| {
                let found =
                    energy(approach, outcome.queries, &question.machine, workload, question.extrapolate);
                Some(found.ok()??.query_nj)
            });
            nj.collect()
        };
        let accelerator = self.base.accelerator;
        let halo = of(accelerator, accelerator);
        let (tcam, sram) = (of(Approach::Tcam, Approach::Tcam), of(Approach::SramTcam, Approach::Tcam));
        let places = self.places();
        let mut answers = vec![self.fits()];
        for (name, theirs) in [("a TCAM", &tcam), ("an SRAM-TCAM", &sram)] {
            let question =
                format!("a packet's queries take less energy with {} than with {name}", label(accelerator));
            let crossed = crossing(&places, &halo, theirs);
            answers.push(self.answer(question, crossed, "outside of Table 4"));
        }
        let series = [(label(accelerator), halo), ("TCAM", tcam), ("SRAM-TCAM", sram)];
        let chart = Chart {
            id: "energy",
            title: "Energy of a packet's queries, by the number of rules".into(),
            about: format!(
                "Table 4, between its points by logarithms: a query of an accelerator takes {} nJ, one of a TCAM by its \
                 capacity. Without the power of doing nothing.",
                ACCELERATOR.query_nj
            ),
            axis: "rules",
            places: places.into_iter().map(place_text).collect(),
            unit: "nJ a packet",
            lines: true,
            series: series.map(|(name, values)| Series { name: name.to_owned(), values }).to_vec(),
        };
        (answers, chart)
    }

    /// Returns the number of such rules that the largest TCAM of Table 4 holds.
    fn fits(&self) -> BreakEven {
        let workload = &self.base.plan.base;
        let bytes_of_rule = workload.tcam_bytes() / workload.rules.len() as f64;
        let most = TCAM[3].capacity_bytes / bytes_of_rule;
        let answer = format!(
            "up to {} rules such as these ({:.1} entries of {} bits each)",
            place_text(most.floor()),
            workload.tcam_entries() as f64 / workload.rules.len() as f64,
            workload.tcam_bits()
        );
        let question = "the largest TCAM of Table 4 (1 MB) holds the rules".to_owned();
        BreakEven { axis: self.axis, question, answer, crossing: None }
    }
}
