//! The report as lines of text: CSV. Tables and pages are the command line's.

use std::fmt::Write;

use super::Report;
use crate::config::Approach;
use crate::paper::{number, quoted};

/// A name that says what an approach is.
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

impl Report {
    /// All tables, one after the other, each with its head; the hash of the machine first.
    pub fn csv(&self) -> String {
        let mut out = format!("machine,{}\n", self.machine_hash);
        let mut line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
            let _ = writeln!(out, "{}", cells.join(","));
        };
        let text = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        line(&text(&["approach", "kind", "cycles", "ns", "millions_per_second", "query_nj", "static_mw", "area_tiles"]));
        for m in &self.measured.base {
            let numbers = [m.cycles[1], m.ns[1], m.millions_per_second()].map(number);
            let [cycles, ns, millions] = numbers;
            line(&[m.name.clone(), "measured".into(), cycles, ns, millions, "".into(), "".into(), "".into()]);
        }
        for simulated in &self.lines {
            let o = &simulated.outcome;
            let mut cells = text(&[o.approach.name(), "simulated"]);
            cells.extend([o.cycles, o.ns(), o.millions_per_second].map(number));
            let energy = simulated.energy.map(|e| [e.query_nj, e.static_mw, e.area_tiles].map(number));
            cells.extend(energy.unwrap_or_default());
            line(&cells);
        }
        line(&text(&["measured", "simulated", "measured_cycles", "simulated_cycles", "ratio_cycles", "ratio_time"]));
        for t in &self.trust {
            let mut cells = text(&[&t.measured, t.simulated.name()]);
            cells.extend(t.cycles.iter().chain(&t.ratios).map(|n| number(*n)));
            line(&cells);
        }
        line(&text(&["approach", "ideal part", "cycles", "times", "evidence"]));
        for bottleneck in &self.bottlenecks {
            for relief in &bottleneck.reliefs {
                let mut cells = text(&[bottleneck.approach.name(), relief.part]);
                cells.extend([number(relief.cycles), number(relief.times), relief.evidence.clone()]);
                line(&cells);
            }
        }
        line(&text(&["parameter", "setting", "cycles", "advantage", "tcam_cycles"]));
        for bar in &self.tornado.bars {
            for s in &bar.settings {
                let mut cells = text(&[bar.parameter, &s.setting]);
                cells.extend([s.cycles, s.advantage, s.tcam_cycles].map(number));
                line(&cells);
            }
        }
        line(&text(&["axis", "question", "answer"]));
        for even in &self.break_evens {
            line(&text(&[even.axis, &even.question, &even.answer]));
        }
        line(&text(&["figure", "series", "place", "value", "unit"]));
        for chart in &self.charts {
            for series in &chart.series {
                for (place, value) in chart.places.iter().zip(&series.values) {
                    let value = value.map_or(String::new(), number);
                    line(&text(&[chart.id, &series.name, place, &value, chart.unit]));
                }
            }
        }
        out
    }
}
