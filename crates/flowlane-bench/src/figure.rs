//! What a topic gives: figures, each a set of series over the same places of an axis, with ratios beside what
//! the literature states.

use serde::Serialize;

use crate::measure::{Measured, Spread};

/// What the numbers of a figure are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Millions of operations a second: more is better.
    MillionsPerSecond,
    /// Time-stamp cycles an operation: less is better.
    Cycles,
    /// The figure's unit says it all: numbers that were not measured.
    Plain,
}

/// How a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Points joined by lines: places of the axis that follow each other.
    Lines,
    /// Groups of bars: places that do not.
    Bars,
}

/// One place of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Time-stamp cycles an operation.
    pub cycles: Spread,
    /// Nanoseconds an operation.
    pub ns: Spread,
    /// Millions of operations a second, by the median.
    pub millions_per_second: f64,
    /// Timed passes.
    pub rounds: usize,
}

impl From<&Measured> for Point {
    fn from(m: &Measured) -> Self {
        Self { cycles: m.cycles, ns: m.ns, millions_per_second: 1e3 / m.ns.median, rounds: m.rounds }
    }
}

impl Point {
    /// The number that a figure of this quantity shows, between those of the quartiles.
    pub fn value(&self, quantity: Quantity) -> [f64; 3] {
        match quantity {
            Quantity::Cycles | Quantity::Plain => {
                [self.cycles.lower_quartile, self.cycles.median, self.cycles.upper_quartile]
            }
            Quantity::MillionsPerSecond => {
                [1e3 / self.ns.upper_quartile, self.millions_per_second, 1e3 / self.ns.lower_quartile]
            }
        }
    }
}

/// One implementation, at each place of the axis where it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub name: String,
    /// As many as the axis has places.
    pub points: Vec<Option<Point>>,
    /// Which of the plots' colours it has: the same for the same thing in figures that belong together.
    #[serde(skip)]
    pub colour: usize,
    /// Whether it is drawn dashed.
    #[serde(skip)]
    pub dashed: bool,
}

/// A dashed line: what the literature states, applied to a series of ours.
#[derive(Clone, Debug, Serialize)]
pub struct Guide {
    /// What it is.
    pub name: String,
    /// As many as the axis has places.
    pub values: Vec<Option<f64>>,
}

/// A ratio at a place.
#[derive(Clone, Debug, Serialize)]
pub struct Extreme {
    pub ratio: f64,
    /// The place of the axis, or what was measured there.
    pub at: String,
}

/// How many times faster one thing is than another, here and as stated.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What over what.
    pub what: String,
    /// Here, at its largest, and where; none where one of the two was not measured.
    pub most: Option<Extreme>,
    /// Here, at its smallest, where the ratio is one over several places.
    pub least: Option<Extreme>,
    /// Here, the geometric mean over the places, where there are several.
    pub mean: Option<f64>,
    /// As stated, by the paper that the figure follows.
    pub stated: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name, without spaces.
    pub id: String,
    pub title: String,
    /// What was measured, and how.
    pub about: String,
    /// What the axis is.
    pub axis: String,
    pub places: Vec<String>,
    /// What the numbers are.
    pub quantity: Quantity,
    /// Of what: `lookups`, `key`.
    pub unit: String,
    /// How it is drawn.
    pub shape: Shape,
    pub series: Vec<Series>,
    /// Dashed lines.
    pub guides: Vec<Guide>,
    pub ratios: Vec<Ratio>,
    /// Whether tables have a row for each place instead of one for each series: where there are many places.
    #[serde(skip)]
    pub tall: bool,
}

impl Figure {
    /// An empty figure of lines.
    pub fn new(id: impl Into<String>, title: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            about: about.into(),
            axis: String::new(),
            places: Vec::new(),
            quantity: Quantity::MillionsPerSecond,
            unit: "lookups".into(),
            shape: Shape::Lines,
            series: Vec::new(),
            guides: Vec::new(),
            ratios: Vec::new(),
            tall: false,
        }
    }

    /// With this axis.
    pub fn over(mut self, axis: impl Into<String>, places: impl IntoIterator<Item = String>) -> Self {
        self.axis = axis.into();
        self.places = places.into_iter().collect();
        self
    }

    /// In cycles for one of these.
    pub fn cycles(self, unit: &str) -> Self {
        Self { quantity: Quantity::Cycles, unit: unit.into(), ..self }
    }

    /// In millions of these a second.
    pub fn millions_of(self, unit: &str) -> Self {
        Self { quantity: Quantity::MillionsPerSecond, unit: unit.into(), ..self }
    }

    /// Of numbers that were not measured.
    pub fn plain(self, unit: &str) -> Self {
        Self { quantity: Quantity::Plain, unit: unit.into(), ..self }
    }

    /// With a series of such numbers, as many as the axis has places.
    pub fn curve(mut self, name: &str, values: &[Option<f64>]) -> Self {
        let exact = |v: f64| Spread { least: v, lower_quartile: v, median: v, upper_quartile: v };
        let point = |v: f64| Point { cycles: exact(v), ns: exact(v), millions_per_second: v, rounds: 1 };
        let points = values.iter().map(|value| value.map(point)).collect();
        let colour = self.series.len();
        self.series.push(Series { name: name.into(), points, colour, dashed: false });
        self
    }

    /// With a row of the table for each place.
    pub fn tall(self) -> Self {
        Self { tall: true, ..self }
    }

    /// Drawn as bars.
    pub fn bars(self) -> Self {
        Self { shape: Shape::Bars, ..self }
    }

    /// The label of the numbers' axis.
    pub fn y_label(&self) -> String {
        match self.quantity {
            Quantity::MillionsPerSecond => format!("million {} per second", self.unit),
            Quantity::Cycles => format!("cycles per {}", self.unit),
            Quantity::Plain => self.unit.clone(),
        }
    }

    /// Notes what was measured at a place, under the measurement's own name or another.
    pub fn add(&mut self, series: &str, place: usize, measured: &Measured) {
        let places = self.places.len();
        let found = self.series.iter().position(|s| s.name == series).unwrap_or_else(|| {
            let name = series.to_owned();
            let colour = self.series.len();
            self.series.push(Series { name, points: vec![None; places], colour, dashed: false });
            self.series.len() - 1
        });
        self.series[found].points[place] = Some(measured.into());
    }

    /// Has series drawn as `like` says of their names: colour, and whether dashed; those of which it says
    /// nothing stay as they are.
    pub fn paint(&mut self, like: impl Fn(&str) -> Option<(usize, bool)>) {
        for series in &mut self.series {
            (series.colour, series.dashed) = like(&series.name).unwrap_or((series.colour, series.dashed));
        }
    }

    /// The time of a series at a place.
    pub fn ns(&self, series: &str, place: usize) -> Option<f64> {
        let found = self.series.iter().find(|s| s.name == series)?;
        found.points.get(place)?.as_ref().map(|p| p.ns.median)
    }

    /// Notes how many times faster a series is than another, at its best place and at its worst.
    pub fn gain(&mut self, series: &str, over: &str, stated: Option<f64>) {
        let ratios: Vec<Extreme> = (0..self.places.len())
            .filter_map(|place| {
                let ratio = self.ns(over, place)? / self.ns(series, place)?;
                Some(Extreme { ratio, at: self.places[place].clone() })
            })
            .collect();
        let logs: f64 = ratios.iter().map(|extreme| extreme.ratio.ln()).sum();
        let order = |a: &&Extreme, b: &&Extreme| a.ratio.total_cmp(&b.ratio);
        self.ratios.push(Ratio {
            what: format!("{series} over {over}"),
            most: ratios.iter().max_by(order).cloned(),
            least: ratios.iter().min_by(order).filter(|_| ratios.len() > 1).cloned(),
            mean: (ratios.len() > 1).then(|| (logs / ratios.len() as f64).exp()),
            stated,
        });
    }

    /// Draws what is stated as a dashed line: so many times the throughput of a series.
    pub fn guide(&mut self, name: impl Into<String>, series: &str, times: f64) {
        let values = (0..self.places.len()).map(|place| self.ns(series, place));
        let values = values.map(|ns| ns.map(|ns| 1e3 / ns * times)).collect();
        self.guides.push(Guide { name: name.into(), values });
    }
}
