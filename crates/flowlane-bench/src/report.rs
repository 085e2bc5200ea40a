//! A report: what topics gave, and what it was measured on.

use serde::Serialize;

use crate::figure::Figure;
use crate::machine::{self, Machine};
use crate::measure::{Clock, Meter, TimeStampCounter};
use crate::options::{BenchError, Options};
use crate::topic::{Context, Topic};

/// What a topic gave.
#[derive(Clone, Debug, Serialize)]
pub struct TopicReport {
    pub name: &'static str,
    pub title: &'static str,
    pub figures: Vec<Figure>,
}

/// What was measured, on what, when, by which command.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the library.
    pub version: &'static str,
    pub machine: Machine,
    /// When measuring began, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// What was asked for.
    pub options: Options,
    /// How long measuring took.
    pub seconds: f64,
    /// Nanoseconds of a time-stamp cycle.
    pub ns_per_cycle: f64,
    /// What each topic gave.
    pub topics: Vec<TopicReport>,
}

impl Report {
    /// Measures topics; `watch` is told what is being done, and which share of all is done.
    ///
    /// # Errors
    /// Where the options name what there is not, or not here.
    pub fn measure(
        topics: &[Topic],
        options: &Options,
        command: String,
        watch: &mut dyn FnMut(&str, f64),
    ) -> Result<Self, BenchError> {
        options.check()?;
        let clock = TimeStampCounter::new();
        let begun = clock.ticks();
        let (machine, date) = (Machine::here(), machine::date());
        let mut meter = Meter::new(&clock, options.effort, watch);
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
