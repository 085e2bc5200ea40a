//! The report's tables, which are CSV here; the command line renders them as text and as a page.

use super::{Bottleneck, BreakEven, Relief, Report, Trust};
use crate::config::Approach;
use crate::report::{Csv, Sheet, number};

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

/// Formats a number, or a dash.
fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

fn sheet(id: &'static str, title: &str, about: &str, head: &[&str], rows: Vec<Vec<String>>) -> Sheet {
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    Sheet { id, title: title.into(), about: about.into(), head, rows }
}

impl Report {
    /// Returns measured software, followed by simulated approaches.
    pub fn side_by_side(&self) -> Sheet {
        let measured = self.measured.base.iter().map(|m| {
            let cycles = self.measured.cycles(m);
            let half = cycles.map_or_else(String::new, |[l, _, h]| format!("{} to {}", number(l), number(h)));
            let (median, kib) = (cycles.map(|[_, median, _]| median), m.bytes as f64 / 1024.0);
            let numbers = [m.ns[1], m.millions_per_second(), kib, m.build_ms].map(number);
            let names = [m.name.clone(), "measured".to_owned(), optional(median), half];
            names.into_iter().chain(numbers).chain([None; 3].map(optional)).collect()
        });
        let simulated = self.lines.iter().map(|line| {
            let o = &line.outcome;
            let kind = if o.cache_flows > 0 { "simulated, flow cache" } else { "simulated" };
            let bytes = match o.approach {
                Approach::Tcam | Approach::SramTcam => self.facts.tcam_bytes,
                _ => self.facts.table_bytes as f64,
            };
            let names = [label(o.approach), kind].map(str::to_owned);
            let numbers = [o.ns(), o.millions_per_second, bytes / 1024.0].map(Some);
            let energy = line.energy.map(|e| [e.query_nj, e.static_mw, e.area_tiles]);
            let energy = energy.map_or([None; 3], |energy| energy.map(Some));
            let numbers = numbers.into_iter().chain([None]).chain(energy).map(optional);
            names.into_iter().chain([number(o.cycles), String::new()]).chain(numbers).collect()
        });
        let about = "One core, in cycles of that core. Measured: medians and middle halves of rounds in which all took turns. \
                     Energy, power and area are Table 4's: of accelerators those of all slices.";
        let head = [
            "approach",
            "kind",
            "cycles",
            "middle half",
            "ns",
            "M/s",
            "table KiB",
            "built in ms",
            "query nJ",
            "idle mW",
            "tiles",
        ];
        sheet("side-by-side", "Side by side", about, &head, measured.chain(simulated).collect())
    }

    /// Returns software both measured and simulated.
    pub fn trusted(&self) -> Sheet {
        let row = |t: &Trust| {
            let numbers = [t.measured_cycles, Some(t.simulated_cycles), t.ratio, Some(t.time_ratio)];
            let names = [t.measured.clone(), label(t.simulated).to_owned()];
            names.into_iter().chain(numbers.map(optional)).collect()
        };
        let head = ["measured", "simulated as", "cycles here", "simulated", "ratio", "ratio in time"];
        let title = "How far to trust it";
        sheet("trust", title, &self.trust_sentence(), &head, self.trust.iter().map(row).collect())
    }

    /// Returns the effect of each ideal part.
    pub fn reliefs(&self) -> Sheet {
        let of = |bottleneck: &Bottleneck| {
            let name = label(bottleneck.approach);
            let row = |relief: &Relief| {
                let [cycles, times] = [relief.cycles, relief.times].map(number);
                vec![name.to_owned(), relief.part.to_owned(), cycles, times, relief.evidence.clone()]
            };
            bottleneck.reliefs.iter().map(row).collect::<Vec<_>>()
        };
        let about = "Each part of the simulated machine was made ideal, one after the other; the one that gives most is \
                     named, with observations of it in parentheses.";
        let head = ["approach", "ideal", "cycles", "times faster", "seen"];
        let rows = self.bottlenecks.iter().flat_map(of).collect();
        sheet("bottlenecks", "What each waits for", about, &head, rows)
    }

    /// Returns the effect of each parameter, after the unchanged machine.
    pub fn parameters(&self) -> Sheet {
        let t = &self.tornado;
        let row = |parameter: &str, setting: &str, (cycles, times, tcam): (f64, Option<f64>, f64)| {
            vec![parameter.to_owned(), setting.to_owned(), number(cycles), optional(times), number(tcam)]
        };
        let bars = t.bars.iter().flat_map(|bar| bar.settings.iter().map(|s| (bar.parameter, s)));
        let bars = bars.map(|(name, s)| row(name, &s.setting, (s.cycles, s.advantage, s.tcam_cycles)));
        let own = row("as it is", "", (t.cycles, t.advantage, t.tcam_cycles));
        let about = "Numbers of the simulated machine halved and doubled, choices switched: those in the table. The software \
                     is always the one that is fastest on the unchanged machine.";
        let head = ["parameter", "setting", "cycles", "times the software", "TCAM, cycles"];
        sheet("parameters", "What it hangs on", about, &head, [own].into_iter().chain(bars).collect())
    }

    /// Returns the answers.
    pub fn answers(&self) -> Sheet {
        let row = |e: &BreakEven| vec![e.axis.to_owned(), e.question.clone(), e.answer.clone()];
        let about = "Between two places that were looked at, ratios are taken as powers.";
        let rows = self.break_evens.iter().map(row).collect();
        sheet("break-evens", "From when on", about, &["by", "what", "when"], rows)
    }

    /// Returns the sentence that explains why no speedups over software are given, which precedes the report.
    pub fn doubt_sentence(&self) -> Option<String> {
        let doubt = self.doubt.as_ref()?;
        Some(format!("No speedups over software are given: {doubt}."))
    }

    /// Summarises the trust in a sentence.
    fn trust_sentence(&self) -> String {
        if let Some(sentence) = self.doubt_sentence() {
            return sentence;
        }
        let ratios = self.trust.iter().filter_map(|t| t.ratio);
        let [least, most] = ratios.fold([f64::MAX, f64::MIN], |[l, m], r| [l.min(r), m.max(r)]);
        format!(
            "The simulator gives {least:.2} to {most:.2} times the cycles that the same software takes here, in cycles of both \
             cores: its results for accelerators are worth no more than that."
        )
    }

    /// Returns all tables and curves as CSV, each with its head, after the hash of the machine.
    pub fn csv(&self) -> String {
        let mut csv = Csv::of_machines([(self.preset.as_str(), self.machine_hash.as_str())]);
        if let Some(doubt) = &self.doubt {
            csv.line(["no ratio".to_owned(), doubt.clone()]);
        }
        let sheets = [self.side_by_side(), self.trusted(), self.reliefs(), self.parameters(), self.answers()];
        sheets.iter().for_each(|sheet| csv.sheet(sheet));
        csv.charts(&self.charts);
        csv.finish()
    }
}
