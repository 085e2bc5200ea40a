//! Tornado charts: bars around a base, one for each parameter, for its effect to the left and to the right.

use super::svg::{Anchor, GRID, GUIDE, INK, SERIES, Svg};
use super::table::number;

/// The dimensions in pixels: a row, its bar, the names on the left, and the settings at both ends of the bars.
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
const NAMES: f64 = 290.0;
const ENDS: f64 = 130.0;
const WIDTH: f64 = 960.0;
const HEAD: f64 = 40.0;

/// A tornado chart: the effects of parameters around a base.
#[derive(Clone, Debug)]
pub struct Tornado {
    /// The identifier, without spaces.
    pub id: String,
    /// The heading.
    pub title: String,
    /// The description.
    pub about: String,
    /// The unit of the numbers.
    pub unit: String,
    /// The result without changes.
    pub base: f64,
    /// The bars, from top to bottom.
    pub bars: Vec<TornadoBar>,
}

/// A bar of a [`Tornado`].
#[derive(Clone, Debug)]
pub struct TornadoBar {
    /// The name of the parameter.
    pub name: String,
    /// Its settings and their results.
    pub settings: Vec<(String, f64)>,
}

/// Renders the chart as an SVG element.
pub(super) fn svg(tornado: &Tornado) -> String {
    let values = || tornado.bars.iter().flat_map(ends).map(|(_, value)| *value);
    let least = values().fold(tornado.base, f64::min);
    let most = values().fold(tornado.base, f64::max);
    let span = (most - least).max(tornado.base.abs() * 1e-6).max(f64::MIN_POSITIVE);
    let (from, wide) = (NAMES + ENDS, WIDTH - NAMES - 2.0 * ENDS);
    let x = |value: f64| from + (value - least) / span * wide;
    let height = HEAD + ROW * tornado.bars.len() as f64 + 12.0;
    let mut svg = Svg::new([WIDTH, height]);
    let base = x(tornado.base);
    let title = format!("{} {}", number(tornado.base), tornado.unit);
    svg.text([base, 12.0], Anchor::Middle, &title, INK[0]);
    for (n, bar) in tornado.bars.iter().enumerate() {
        let y = HEAD + ROW * n as f64;
        let middle = y + BAR / 2.0;
        svg.line(&[[NAMES, middle], [WIDTH, middle]], GRID[0], 1, "");
        svg.text([NAMES - 10.0, middle], Anchor::End, &bar.name, INK[0]);
        let by = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let lower = ends(bar).filter(|(_, value)| *value < tornado.base).min_by(by);
        let higher = ends(bar).filter(|(_, value)| *value > tornado.base).max_by(by);
        for (end, colour, anchor, away) in [(lower, 0, Anchor::End, -6.0), (higher, 1, Anchor::Start, 6.0)] {
            let Some((setting, value)) = end else { continue };
            let (left, right) = (x(*value).min(base), x(*value).max(base));
            svg.bar([left, y], [(right - left).max(1.0), BAR], SERIES[colour][0]);
            svg.text([x(*value) + away, middle], anchor, &format!("{setting}: {}", number(*value)), GUIDE[0]);
        }
    }
    svg.line(&[[base, 24.0], [base, height - 6.0]], INK[0], 1, "");
    svg.finish()
}

/// Returns the finite results of a bar.
fn ends(bar: &TornadoBar) -> impl Iterator<Item = &(String, f64)> {
    bar.settings.iter().filter(|(_, value)| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::svg::tests::elements;

    #[test]
    fn bars_go_from_the_base_to_what_comes_out() {
        let bar = |settings: &[(&str, f64)]| TornadoBar {
            name: "n".into(),
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let bars = vec![
            bar(&[("half", 50.0), ("double", 200.0)]),
            bar(&[("a", 120.0), ("b", 150.0)]),
            bar(&[("same", 100.0), ("none", f64::NAN), ("endless", f64::INFINITY)]),
        ];
        let of = |bars| Tornado {
            id: String::new(),
            title: String::new(),
            about: String::new(),
            unit: "cycles".into(),
            base: 100.0,
            bars,
        };
        let drawn = svg(&of(bars));
        // One bar on each side, the wider of two on one side, and none without an effect.
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert!(
            drawn.contains("half: 50") && drawn.contains("b: 150") && !drawn.contains("a: 120"),
            "{drawn}"
        );
        // 150 units are 410 pixels, a third of them on the left.
        assert!(drawn.contains("width=\"136.7\"") && drawn.contains("width=\"273.3\""), "{drawn}");
        assert_eq!(elements(&drawn)[0].0, "svg");
        assert_eq!(elements(&svg(&of(Vec::new())))[0].0, "svg");
    }
}
