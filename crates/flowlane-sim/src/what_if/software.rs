//! Measured software on a simulated machine, and the error of the simulation.
//!
//! Software that was recorded is replayed on the machine that was fitted to the host, which gives the error, and on the
//! machine of the question. The measured time is carried to that machine by the ratio of the two replays, so that an error
//! which both have cancels out. On the host itself, the ratio is one.

use std::sync::Arc;

use serde::Serialize;

use super::measured::{Measured, Measurement};
use super::run::{Method, Outcome, Recording, Run};
use crate::config::MachineConfig;
use crate::workload::rules::Workload;

/// The factor by which a simulation may be off for speedups to be given.
pub const APART_MOST: f64 = 2.0;

/// The text in place of a speedup that is not given.
pub(super) const NO_RATIO: &str = "no ratio, for the reason that is given first";

/// A measured method on the machine of the question.
#[derive(Clone, Debug, Serialize)]
pub struct Software {
    pub name: String,
    /// Whether packets are looked up one by one.
    pub single: bool,
    /// The nanoseconds of a packet on that machine; `None` if it is another one and the method was not recorded.
    pub ns: Option<f64>,
    /// The time on that machine relative to the host.
    pub times: Option<f64>,
    /// The replay on that machine.
    #[serde(skip)]
    pub(super) replayed: Option<Outcome>,
    #[serde(skip)]
    pub(super) recording: Option<Arc<Recording>>,
}

/// A method both measured and replayed on the host's machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trust {
    pub method: String,
    /// Measured cycles of a packet; `None` if the core's clock is unknown: ticks of the time-stamp counter are not
    /// cycles.
    pub measured_cycles: Option<f64>,
    pub simulated_cycles: f64,
    /// Simulated over measured.
    pub ratio: Option<f64>,
}

/// The least and the largest ratio of simulated to measured cycles.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Band {
    pub least: f64,
    pub most: f64,
}

impl Band {
    /// Returns the band of several methods; `None` without any, or if a ratio is unknown.
    pub fn of(trust: &[Trust]) -> Option<Self> {
        let ratios = trust.iter().map(|t| t.ratio).collect::<Option<Vec<f64>>>().filter(|r| !r.is_empty())?;
        let fold = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).expect("there are some");
        Some(Self { least: fold(f64::min), most: fold(f64::max) })
    }

    /// Returns the range of a simulated time, were it as far off as the software.
    pub fn around(self, simulated: f64) -> [f64; 2] {
        [simulated / self.most, simulated / self.least]
    }
}

/// The runs that replay the recorded software on the host's machine and on another one.
pub(super) struct Replays {
    recordings: Vec<Option<Arc<Recording>>>,
    pub(super) runs: Vec<Run>,
    same: bool,
}

impl Replays {
    pub(super) fn of(measured: &Measured, machine: &Arc<MachineConfig>, workload: &Arc<Workload>) -> Self {
        let recorded = |m: &Measurement| {
            let trace = m.recording.clone()?;
            Some(Arc::new(Recording { name: m.name.clone(), trace }))
        };
        let recordings: Vec<_> = measured.base.iter().map(recorded).collect();
        let same = measured.host.as_ref() == Some(&**machine);
        let host = measured.host.clone().map(Arc::new).filter(|_| !same);
        let machines = host.iter().chain([machine]);
        let run = |machine: &Arc<MachineConfig>, recording: &Arc<Recording>| {
            Run::new(machine, workload, Method::Recorded(recording.clone()))
        };
        let of = |machine| recordings.iter().flatten().map(move |r| run(machine, r));
        let runs = machines.flat_map(of).collect();
        Self { recordings, runs, same }
    }

    /// Evaluates the runs: the software on the machine of the question, and the error on the host's.
    pub(super) fn finish(&self, measured: &Measured, outcomes: &[Outcome]) -> (Vec<Software>, Vec<Trust>) {
        let count = self.recordings.iter().flatten().count();
        let there = &outcomes[outcomes.len() - count..];
        let host = measured.host.is_some().then(|| &outcomes[..count]);
        let (mut software, mut trust, mut next) = (Vec::new(), Vec::new(), 0);
        for (m, recording) in measured.base.iter().zip(&self.recordings) {
            let at = recording.is_some().then_some(next);
            next += usize::from(recording.is_some());
            let (here, replayed) = (at.and_then(|n| host?.get(n)), at.map(|n| there[n].clone()));
            let times = match (self.same, here, &replayed) {
                (true, ..) => Some(1.0),
                (false, Some(here), Some(there)) => Some(there.ns() / here.ns()),
                _ => None,
            };
            let ns = times.map(|times| m.ns[1] * times);
            let (name, single, recording) = (m.name.clone(), m.single, recording.clone());
            trust.extend(here.map(|here| trusted(measured, m, here)));
            software.push(Software { name, single, ns, times, replayed, recording });
        }
        (software, trust)
    }
}

fn trusted(measured: &Measured, m: &Measurement, here: &Outcome) -> Trust {
    let measured_cycles = measured.cycles(m).map(|[_, median, _]| median);
    let simulated_cycles = here.cycles;
    let ratio = measured_cycles.map(|cycles| simulated_cycles / cycles);
    Trust { method: m.name.clone(), measured_cycles, simulated_cycles, ratio }
}

/// Returns why no speedups over software are given; `None` if they are.
pub(super) fn doubt(measured: &Measured, trust: &[Trust]) -> Option<String> {
    if measured.base.is_empty() {
        return Some("no software was measured".to_owned());
    }
    if trust.is_empty() {
        let why = measured.not_recorded.as_deref().unwrap_or("no machine was fitted to the host");
        return Some(format!(
            "no software was simulated beside its measurement, so that no error is known ({why})"
        ));
    }
    let Some(Band { least, most }) = Band::of(trust) else {
        return Some(
            "the length of a cycle of this core was not measured, and ticks of the time-stamp counter are no cycles"
                .to_owned(),
        );
    };
    let apart = (least * APART_MOST < 1.0 || most > APART_MOST).then(|| {
        format!(
            "simulated cycles of the same software are {least:.2} to {most:.2} times those measured: more than {APART_MOST} \
             times apart"
        )
    });
    let disturbed = measured.disturbed.and_then(|disturbed| disturbed.sentence());
    let reasons: Vec<String> = apart.into_iter().chain(disturbed).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the fastest of several, with its nanoseconds.
pub(super) fn fastest<'a>(of: impl IntoIterator<Item = &'a Software>) -> Option<(&'a Software, f64)> {
    let known = of.into_iter().filter_map(|s| Some((s, s.ns?)));
    known.min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_calibration::Disturbed;

    fn of(ratios: &[Option<f64>]) -> Vec<Trust> {
        let one = |ratio: &Option<f64>| Trust {
            method: "a".to_owned(),
            measured_cycles: ratio.map(|_| 100.0),
            simulated_cycles: ratio.map_or(80.0, |ratio| 100.0 * ratio),
            ratio: *ratio,
        };
        ratios.iter().map(one).collect()
    }

    fn measured(disturbed: Option<Disturbed>) -> Measured {
        let one = Measurement {
            name: "a".into(),
            single: true,
            ns: [30.0; 3],
            build_ms: 1.0,
            bytes: 1,
            update_us: None,
            calls: Vec::new(),
            threads: Vec::new(),
            recording: None,
        };
        Measured { base: vec![one], disturbed, ..Measured::default() }
    }

    #[test]
    fn a_band_has_all_ratios_and_is_around_what_is_simulated() {
        let band = Band::of(&of(&[Some(1.25), Some(0.8), Some(1.0)])).unwrap();
        assert_eq!((band.least, band.most), (0.8, 1.25));
        assert_eq!(band.around(100.0), [80.0, 125.0]);
        assert_eq!((Band::of(&[]), Band::of(&of(&[Some(1.0), None]))), (None, None));
    }

    #[test]
    fn software_that_is_off_by_more_than_twice_either_way_allows_no_ratio() {
        let plain = measured(None);
        let doubt_of = |ratios: &[Option<f64>]| doubt(&plain, &of(ratios));
        assert_eq!(doubt_of(&[Some(1.9), Some(0.55)]), None);
        assert!(doubt_of(&[Some(1.0), Some(2.1)]).unwrap().contains("1.00 to 2.10 times"));
        assert!(doubt_of(&[Some(1.1), Some(0.45)]).unwrap().contains("0.45 to 1.10"));
        // Ticks do not give cycles.
        assert!(doubt_of(&[Some(1.0), None]).unwrap().contains("ticks"));
        assert!(doubt_of(&[]).unwrap().contains("no error is known"));
        assert!(doubt(&Measured::default(), &[]).unwrap().contains("no software was measured"));
        let disturbed = measured(Some(Disturbed { waited: Some(0.9), ..Disturbed::default() }));
        assert!(doubt(&disturbed, &of(&[Some(1.0)])).unwrap().contains("disturbed"));
        // The difference is described first.
        let both = doubt(&disturbed, &of(&[Some(3.0)])).unwrap();
        assert!(both.starts_with("simulated cycles") && both.contains("disturbed"), "{both}");
    }
}
