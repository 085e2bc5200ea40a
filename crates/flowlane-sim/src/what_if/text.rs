//! The report's tables, which are CSV here; the command line renders them as text and as a page.

use std::fmt::Write;

use super::{Bottleneck, BreakEven, Latency, Relief, Report, Trust, core_nj};
use crate::config::Approach;
use crate::report::{Csv, Sheet, number};

/// Returns a descriptive label of an approach.
pub fn label(approach: Approach) -> &'static str {
    match approach {
        Approach::HaloBlocking => "HALO, blocking",
        Approach::HaloNonBlocking => "HALO, non-blocking",
        Approach::NearL2 => "an engine beside L2",
        Approach::Tcam => "a TCAM",
        Approach::SramTcam => "an SRAM-TCAM",
        other => other.name(),
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
    /// Returns software, followed by simulated approaches.
    pub fn side_by_side(&self) -> Sheet {
        let cycle_ns = self.machine.cycle_ps() as f64 / 1000.0;
        let range = |[low, high]: [f64; 2]| format!("{} to {}", number(low), number(high));
        let software = self.measured.base.iter().zip(&self.software).map(|(m, s)| {
            let ns = s.times.map(|times| m.ns.map(|ns| ns * times));
            // On the host, its own clock is the better one.
            let cycles = match (s.times, self.measured.cycles(m)) {
                (Some(1.0), own) => own,
                _ => ns.map(|ns| ns.map(|ns| ns / cycle_ns)),
            };
            let kind = if s.times == Some(1.0) { "measured" } else { "measured, carried over" };
            let half = cycles.map_or_else(String::new, |[low, _, high]| range([low, high]));
            let median = ns.map(|[_, median, _]| median);
            let names = [s.name.clone(), kind.to_owned(), optional(cycles.map(|c| c[1])), half];
            let rate = median.map(|ns| 1000.0 / ns);
            let nj = median.map(|ns| core_nj(&self.machine, ns));
            let numbers = [median, rate, Some(m.bytes as f64 / 1024.0), Some(m.build_ms), nj];
            names.into_iter().chain(numbers.into_iter().chain([None; 3]).map(optional)).collect()
        });
        let simulated = self.lines.iter().map(|line| {
            let o = &line.outcome;
            let kind = if o.cache_flows > 0 { "simulated, flow cache" } else { "simulated" };
            let bytes = match o.approach {
                Approach::Tcam | Approach::SramTcam => self.facts.tcam_bytes,
                _ => self.facts.table_bytes as f64,
            };
            let around = self.band.map_or_else(String::new, |band| range(band.around(o.cycles)));
            let names = [o.name.clone(), kind.to_owned(), number(o.cycles), around];
            let numbers =
                [Some(o.ns()), Some(o.millions_per_second), Some(bytes / 1024.0), None, Some(line.core_nj)];
            let energy = line.energy.map(|e| [e.query_nj, e.static_mw, e.area_tiles]);
            let energy = energy.map_or([None; 3], |energy| energy.map(Some));
            names.into_iter().chain(numbers.into_iter().chain(energy).map(optional)).collect()
        });
        let about = "One core, in cycles of that core. Measured: medians, and middle halves of rounds in which all took turns. \
                     Simulated: were the simulation as far off as that of the measured software, it would lie in the range. \
                     The core's energy is its share of the chip's power for the packet's time; energy of queries, power and \
                     area are Table 4's: of accelerators those of all slices.";
        let head = [
            "approach",
            "kind",
            "cycles",
            "range",
            "ns",
            "M/s",
            "table KiB",
            "built in ms",
            "core nJ",
            "query nJ",
            "idle mW",
            "tiles",
        ];
        sheet("side-by-side", "Side by side", about, &head, software.chain(simulated).collect())
    }

    /// Returns what each column rests on.
    pub fn bases(&self) -> Sheet {
        let (machine, tcam) = (&self.machine, &self.machine.tcam);
        let band = match self.band {
            Some(band) => format!(
                "; recorded software, simulated on this machine, takes {:.2} to {:.2} times as long as measured",
                band.least, band.most
            ),
            None => "; no software says how near the simulation comes".to_owned(),
        };
        let tables = format!("on {}, with these rules in one cuckoo table for each mask{band}", self.preset);
        let device = |cycles: u64| {
            format!(
                "an assumption, not a model: {cycles} cycles for an answer, {} between two, {} on the way there; energy and \
                 area are interpolated in the HALO paper's Table 4",
                tcam.busy_cycles, tcam.attach_cycles
            )
        };
        let gpu = self.measured.no_gpu.clone().unwrap_or_else(|| {
            "measured here, with the transfers to the device and back; its energy is not measured".to_owned()
        });
        let mut software = format!("measured on {}", self.measured.cpu);
        if let Some(why) = &self.measured.not_recorded {
            let _ = write!(software, "; not all of it was recorded: {why}");
        }
        let rows = [
            ("software", software),
            ("HALO", format!("simulated {tables}")),
            ("an engine beside L2", format!("simulated {tables}. It is a design of this project after QEI")),
            ("a TCAM", device(tcam.lookup_cycles)),
            ("an SRAM-TCAM", device(tcam.sram_lookup_cycles)),
            ("a GPU", gpu),
            (
                "energy of cores",
                format!(
                    "{} mW for a working core, its share of the chip's nominal power",
                    machine.core.active_mw
                ),
            ),
        ];
        let rows = rows.map(|(name, basis)| vec![name.to_owned(), basis]).to_vec();
        sheet("bases", "On which it rests", "", &["column", "rests on"], rows)
    }

    /// Returns latencies under load.
    pub fn latency(&self) -> Sheet {
        let row = |l: &Latency| {
            let [median, high, highest] = l.ns.map(number);
            vec![l.name.clone(), number(l.offered), median, high, highest, number(100.0 * l.lost)]
        };
        let about = "Packets arrive at random in a ring of 1024; one core takes up to 32 at a time, and a packet ends with its \
                     call. At half and nine tenths of each one's own rate, and at the rate that was asked for. \
                     Times of calls are measured, or simulated.";
        let head = ["approach", "M/s offered", "median ns", "99 % ns", "99.9 % ns", "lost %"];
        sheet("latencies", "Latency under load", about, &head, self.latencies.iter().map(row).collect())
    }

    /// Returns software both measured and simulated.
    pub fn trusted(&self) -> Sheet {
        let row = |t: &Trust| {
            let numbers = [t.measured_cycles, Some(t.simulated_cycles), t.ratio];
            std::iter::once(t.method.clone()).chain(numbers.map(optional)).collect()
        };
        let head = ["recorded software", "cycles here", "simulated", "ratio"];
        let title = "How far to trust it";
        sheet("trust", title, &self.trust_sentence(), &head, self.trust.iter().map(row).collect())
    }

    /// Returns the effect of each ideal part.
    pub fn reliefs(&self) -> Sheet {
        let of = |bottleneck: &Bottleneck| {
            let name = &bottleneck.name;
            let row = |relief: &Relief| {
                let [cycles, times] = [relief.cycles, relief.times].map(number);
                vec![name.clone(), relief.part.to_owned(), cycles, times, relief.evidence.clone()]
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
                     is the fastest that was recorded; its measured time is carried to each machine by replays.";
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
        let band = self.band.expect("without one there is a doubt");
        format!(
            "Recorded instructions of the same software take {:.2} to {:.2} times as many cycles on the model of this machine as \
             measured: other simulated results have no smaller error.",
            band.least, band.most
        )
    }

    /// Returns all tables in their order.
    pub fn sheets(&self) -> [Sheet; 7] {
        let (beside, trusted) = (self.side_by_side(), self.trusted());
        let (reliefs, parameters) = (self.reliefs(), self.parameters());
        [beside, self.bases(), trusted, self.latency(), reliefs, parameters, self.answers()]
    }

    /// Returns all tables and curves as CSV, each with its head, after the hash of the machine.
    pub fn csv(&self) -> String {
        let mut csv = Csv::of_machines([(self.preset.as_str(), self.machine_hash.as_str())]);
        if let Some(doubt) = &self.doubt {
            csv.line(["no ratio".to_owned(), doubt.clone()]);
        }
        self.sheets().iter().for_each(|sheet| csv.sheet(sheet));
        csv.charts(&self.charts);
        csv.finish()
    }
}
