//! Figures, the results of a topic: series over the positions of an axis, with ratios next to those of the
//! literature.

use serde::Serialize;

use crate::measure::{Measured, Spread};

/// The quantity that the numbers of a figure measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Millions of operations a second; higher is better.
    MillionsPerSecond,
    /// Time-stamp cycles an operation; lower is better.
    Cycles,
    /// A number in the figure's unit that was not measured as time.
    Plain,
}

/// The shape of a chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Points joined by lines, for ordered positions.
    Lines,
    /// Groups of bars, for unordered positions.
    Bars,
}

/// A measurement of a series at one position.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Time-stamp cycles an operation.
    pub cycles: Spread,
    /// Nanoseconds an operation.
    pub ns: Spread,
    /// Millions of operations a second, from the median.
    pub millions_per_second: f64,
    /// The number of timed passes.
    pub rounds: usize,
}

impl From<&Measured> for Point {
    fn from(m: &Measured) -> Self {
        Self { cycles: m.cycles, ns: m.ns, millions_per_second: 1e3 / m.ns.median, rounds: m.rounds }
    }
}

impl Point {
    /// Returns the lower quartile, the median and the upper quartile in a quantity.
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

/// One implementation, with its measurements along the axis.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub name: String,
    /// The measurements; one for each position of the axis.
    pub points: Vec<Option<Point>>,
    /// The index of the colour, equal for the same implementation in related figures.
    #[serde(skip)]
    pub colour: usize,
    /// Whether the line is dashed.
    #[serde(skip)]
    pub dashed: bool,
}

/// A dashed line: a ratio of the literature, applied to one of our series.
#[derive(Clone, Debug, Serialize)]
pub struct Guide {
    /// The label.
    pub name: String,
    /// The values; one for each position of the axis.
    pub values: Vec<Option<f64>>,
}

/// A ratio and its position.
#[derive(Clone, Debug, Serialize)]
pub struct Extreme {
    pub ratio: f64,
    /// The position on the axis, or a description of the measurement.
    pub at: String,
}

/// The speedup of one series over another, measured and stated.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The two series, as `A over B`.
    pub what: String,
    /// The largest measured ratio; `None` if one of the two was not measured.
    pub most: Option<Extreme>,
    /// The smallest measured ratio, if there are several positions.
    pub least: Option<Extreme>,
    /// The geometric mean over the positions, if there are several.
    pub mean: Option<f64>,
    /// The ratio that the paper states.
    pub stated: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The identifier, without spaces.
    pub id: String,
    pub title: String,
    /// A description of the measurement.
    pub about: String,
    /// The label of the axis.
    pub axis: String,
    pub places: Vec<String>,
    /// The quantity of the numbers.
    pub quantity: Quantity,
    /// The unit of the quantity, such as `lookups` or `key`.
    pub unit: String,
    /// The shape of the chart.
    pub shape: Shape,
    pub series: Vec<Series>,
    /// Dashed lines of the literature.
    pub guides: Vec<Guide>,
    pub ratios: Vec<Ratio>,
    /// Whether tables have a row for each position instead of one for each series.
    #[serde(skip)]
    pub tall: bool,
}

impl Figure {
    /// Creates an empty figure of lines.
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

    /// Sets the axis and its positions.
    pub fn over(mut self, axis: impl Into<String>, places: impl IntoIterator<Item = String>) -> Self {
        self.axis = axis.into();
        self.places = places.into_iter().collect();
        self
    }

    /// Measures in cycles for each `unit`.
    pub fn cycles(self, unit: &str) -> Self {
        Self { quantity: Quantity::Cycles, unit: unit.into(), ..self }
    }

    /// Measures in millions of `unit` a second.
    pub fn millions_of(self, unit: &str) -> Self {
        Self { quantity: Quantity::MillionsPerSecond, unit: unit.into(), ..self }
    }

    /// Holds numbers in `unit` that were not measured as time.
    pub fn plain(self, unit: &str) -> Self {
        Self { quantity: Quantity::Plain, unit: unit.into(), ..self }
    }

    /// Adds a series of such numbers, one for each position of the axis.
    pub fn curve(mut self, name: &str, values: &[Option<f64>]) -> Self {
        let exact = |v: f64| Spread { least: v, lower_quartile: v, median: v, upper_quartile: v };
        let point = |v: f64| Point { cycles: exact(v), ns: exact(v), millions_per_second: v, rounds: 1 };
        let points = values.iter().map(|value| value.map(point)).collect();
        let colour = self.series.len();
        self.series.push(Series { name: name.into(), points, colour, dashed: false });
        self
    }

    /// Tabulates a row for each position.
    pub fn tall(self) -> Self {
        Self { tall: true, ..self }
    }

    /// Draws bars.
    pub fn bars(self) -> Self {
        Self { shape: Shape::Bars, ..self }
    }

    /// Returns the label of the vertical axis.
    pub fn y_label(&self) -> String {
        match self.quantity {
            Quantity::MillionsPerSecond => format!("million {} per second", self.unit),
            Quantity::Cycles => format!("cycles per {}", self.unit),
            Quantity::Plain => self.unit.clone(),
        }
    }

    /// Adds a measurement at a position to a series, which is created if necessary.
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

    /// Sets colours and dashes by the names of series; series for which `like` returns `None` keep theirs.
    pub fn paint(&mut self, like: impl Fn(&str) -> Option<(usize, bool)>) {
        for series in &mut self.series {
            (series.colour, series.dashed) = like(&series.name).unwrap_or((series.colour, series.dashed));
        }
    }

    /// Returns the median time of a series at a position.
    pub fn ns(&self, series: &str, place: usize) -> Option<f64> {
        let found = self.series.iter().find(|s| s.name == series)?;
        found.points.get(place)?.as_ref().map(|p| p.ns.median)
    }

    /// Adds the ratio of two series: its geometric mean, its best and its worst position.
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

    /// Adds a dashed line at `times` the throughput of a series, as the literature states.
    pub fn guide(&mut self, name: impl Into<String>, series: &str, times: f64) {
        let values = (0..self.places.len()).map(|place| self.ns(series, place));
        let values = values.map(|ns| ns.map(|ns| 1e3 / ns * times)).collect();
        self.guides.push(Guide { name: name.into(), values });
    }
}
