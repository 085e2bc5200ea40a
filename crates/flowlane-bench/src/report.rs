//! Reports: the figures of topics, with the machine and the command.

use std::fmt::Write;

use serde::Serialize;

use crate::figure::Figure;
use crate::machine::{self, Machine, bytes};
use crate::measure::{Clock, Finished, Meter, TimeStampCounter};
use crate::options::{BenchError, Options};
use crate::render::{Page, figure_table, ratio_table};
use crate::topic::{Context, Topic};

const ABOUT: &str = "Implementations take turns within one run, and figures are medians; strokes in the plots span the \
                     middle half of the readings. Ratios within a figure are worth more than its single figures. Where a \
                     column says paper, it is what the text of “Leveraging SIMD Parallelism for Accelerating Network \
                     Applications” (APNet 2020) states, at most, on its machine.";

/// The figures of a topic.
#[derive(Clone, Debug, Serialize)]
pub struct TopicReport {
    pub name: &'static str,
    pub title: &'static str,
    pub figures: Vec<Figure>,
}

/// The figures of topics, with their machine, date and command.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the library.
    pub version: &'static str,
    pub machine: Machine,
    /// The start of the measurement, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The options.
    pub options: Options,
    /// The duration.
    pub seconds: f64,
    /// The length of a time-stamp cycle.
    pub ns_per_cycle: f64,
    /// The topics.
    pub topics: Vec<TopicReport>,
}

impl Report {
    /// Measures topics; `watch` receives the current activity and the finished share, `finished` the results of each
    /// comparison as soon as there are some.
    ///
    /// # Errors
    /// Returns an error if the options name something that does not exist or is not available.
    pub fn measure(
        topics: &[Topic],
        options: &Options,
        command: String,
        watch: &mut dyn FnMut(&str, f64),
        finished: &mut Finished<'_>,
    ) -> Result<Self, BenchError> {
        options.check()?;
        let clock = TimeStampCounter::new();
        let begun = clock.ticks();
        let (machine, date) = (Machine::here(), machine::date());
        let mut meter = Meter::new(&clock, options.effort, watch).reporting(finished);
        let context = Context { options, machine: &machine };
        for topic in topics {
            meter.announce(topic.comparisons(&context));
        }
        let mut reports = Vec::new();
        for topic in topics {
            let figures = topic.measure(&mut meter, &context)?;
            reports.push(TopicReport { name: topic.name(), title: topic.title(), figures });
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            date,
            command,
            options: options.clone(),
            seconds: clock.nanoseconds(clock.ticks().wrapping_sub(begun) as f64) / 1e9,
            ns_per_cycle: clock.nanoseconds(1.0),
            machine,
            topics: reports,
        })
    }
}

impl Report {
    /// Renders the report as a self-contained HTML page.
    pub fn html(&self) -> String {
        let titles: Vec<&str> = self.topics.iter().map(|t| t.title).collect();
        let about = format!("Measured by Flowlane {}", self.version);
        let mut page = Page::new(&titles.join(", "), &about, &self.facts());
        page.paragraph(ABOUT);
        if self.topics.len() > 1 {
            page.links(self.topics.iter().map(|t| (t.name, t.title)));
        }
        for topic in &self.topics {
            page.section(topic.name, topic.title, "");
            topic.figures.iter().for_each(|figure| page.figure(figure));
        }
        page.finish()
    }

    /// Renders the report as text: for each figure a table, and a table of its ratios.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for topic in &self.topics {
            for figure in &topic.figures {
                let _ = writeln!(
                    out,
                    "\n{}: {}, medians\n{}",
                    figure.title,
                    figure.y_label(),
                    figure_table(figure)
                );
                if !figure.about.is_empty() {
                    let _ = writeln!(out, "{}", figure.about);
                }
                if !figure.ratios.is_empty() {
                    let _ = writeln!(out, "\n{}", ratio_table(figure));
                }
            }
        }
        let _ = writeln!(out, "\n{}", self.machine.line());
        let _ = writeln!(out, "{}; {:.1} s; {:.3} ns a cycle", self.date, self.seconds, self.ns_per_cycle);
        out
    }

    fn facts(&self) -> [(&'static str, String); 6] {
        let machine = &self.machine;
        let data = machine.caches.iter().filter(|c| c.kind != "instructions");
        let caches: Vec<String> = data.map(|c| format!("L{} {}", c.level, bytes(c.bytes as u64))).collect();
        [
            ("machine", format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.system)),
            ("caches", caches.join(", ")),
            ("variants", machine.variants.join(", ")),
            ("date", format!("{}, {:.0} s", self.date, self.seconds)),
            ("cycle", format!("{:.3} ns (time-stamp counter)", self.ns_per_cycle)),
            ("command", self.command.clone()),
        ]
    }
}
