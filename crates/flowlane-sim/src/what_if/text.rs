//! The report as CSV. The command line renders tables and pages.

use super::Report;
use crate::config::Approach;
use crate::report::{Csv, number};

/// Returns a descriptive label of an approach.
pub fn label(approach: Approach) -> &'static str {
    match approach {
        Approach::Software => "single lookups as rte_hash has them",
        Approach::Scalar => "single lookups",
        Approach::Bulk => "batches with prefetches",
        Approach::Avx512 => "batches with prefetches and AVX-512",
        Approach::HaloBlocking => "HALO, blocking",
        Approach::HaloNonBlocking => "HALO, non-blocking",
        Approach::NearL2 => "an engine beside L2",
        Approach::Tcam => "a TCAM",
        Approach::SramTcam => "an SRAM-TCAM",
        Approach::TupleSearch => "the library's tuple search",
    }
}

/// Formats a number, or nothing.
fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

impl Report {
    /// Returns all tables as CSV, each with its head, after the hash of the machine.
    pub fn csv(&self) -> String {
        let mut csv = Csv::of_machines([(self.preset.as_str(), self.machine_hash.as_str())]);
        if let Some(doubt) = &self.doubt {
            csv.line(["no ratio".to_owned(), doubt.clone()]);
        }
        self.side_by_side(&mut csv);
        self.machine_parts(&mut csv);
        csv.head(&["axis", "question", "answer"]);
        for even in &self.break_evens {
            csv.line([even.axis.to_owned(), even.question.clone(), even.answer.clone()]);
        }
        csv.charts(&self.charts);
        csv.finish()
    }

    fn side_by_side(&self, csv: &mut Csv) {
        let head = [
            "approach",
            "kind",
            "cycles",
            "ns",
            "millions_per_second",
            "query_nj",
            "static_mw",
            "area_tiles",
        ];
        csv.head(&head);
        for m in &self.measured.base {
            let cycles = self.measured.cycles(m).map(|[_, median, _]| median);
            let numbers = [cycles, Some(m.ns[1]), Some(m.millions_per_second())].map(optional);
            let names = [m.name.clone(), "measured".to_owned()];
            csv.line(names.into_iter().chain(numbers).chain([const { String::new() }; 3]));
        }
        for line in &self.lines {
            let o = &line.outcome;
            let numbers = [o.cycles, o.ns(), o.millions_per_second].map(number);
            let kind = if o.cache_flows > 0 { "simulated, flow cache" } else { "simulated" };
            let names = [o.approach.name().to_owned(), kind.to_owned()];
            let energy = line.energy.map(|e| [e.query_nj, e.static_mw, e.area_tiles].map(number));
            csv.line(names.into_iter().chain(numbers).chain(energy.unwrap_or_default()));
        }
        csv.head(&[
            "measured",
            "simulated",
            "measured_cycles",
            "simulated_cycles",
            "ratio_cycles",
            "ratio_time",
        ]);
        for t in &self.trust {
            let numbers = [t.measured_cycles, Some(t.simulated_cycles), t.ratio, Some(t.time_ratio)];
            let names = [t.measured.clone(), t.simulated.name().to_owned()];
            csv.line(names.into_iter().chain(numbers.map(optional)));
        }
    }

    fn machine_parts(&self, csv: &mut Csv) {
        csv.head(&["approach", "ideal part", "cycles", "times", "evidence"]);
        for bottleneck in &self.bottlenecks {
            for relief in &bottleneck.reliefs {
                let names = [bottleneck.approach.name().to_owned(), relief.part.to_owned()];
                let rest = [number(relief.cycles), number(relief.times), relief.evidence.clone()];
                csv.line(names.into_iter().chain(rest));
            }
        }
        csv.head(&["parameter", "setting", "cycles", "advantage", "tcam_cycles"]);
        for bar in &self.tornado.bars {
            for s in &bar.settings {
                let numbers = [Some(s.cycles), s.advantage, Some(s.tcam_cycles)].map(optional);
                csv.line([bar.parameter.to_owned(), s.setting.clone()].into_iter().chain(numbers));
            }
        }
    }
}
