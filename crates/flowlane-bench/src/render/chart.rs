//! Charts of figures as SVG: lines or groups of bars over an axis, quartiles as thin strokes, and a legend on the
//! right.

use super::svg::{Anchor, GRID, GUIDE, INK, SERIES, Svg};
use super::table::number;
use crate::figure::{Figure, Point, Quantity, Series, Shape};

/// The size of a drawing, and the edges of the plot in it. The legend is to the right, the labels of the axes to the
/// left and below.
const SIZE: [f64; 2] = [960.0, 400.0];
const LEFT: f64 = 76.0;
const RIGHT: f64 = 682.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 340.0;

/// The most grid lines.
const GRID_LINES: f64 = 10.0;

/// The share of a position's width that its bars take.
const GROUP: f64 = 0.82;

/// Dashes of series, and of values from the literature.
const DASHES: &str = "4 4";
const GUIDE_DASHES: &str = "7 5";

/// Renders a figure as an SVG element.
pub(super) fn svg(figure: &Figure) -> String {
    let mut svg = Svg::new(SIZE);
    let axes = Axes { places: figure.places.len().max(1) as f64, highest: 1.06 * highest(figure) };
    axes.draw(figure, &mut svg);
    match figure.shape {
        Shape::Lines => lines(figure, &axes, &mut svg),
        Shape::Bars => bars(figure, &axes, &mut svg),
    }
    guides(figure, &axes, &mut svg);
    legend(figure, &mut svg);
    svg.finish()
}

/// Returns the quartiles and the median of a point with a finite median; a quartile that is not finite becomes the
/// median.
fn drawn(point: Option<&Point>, quantity: Quantity) -> Option<[f64; 3]> {
    let values = point?.value(quantity);
    let middle = values[1];
    let or_middle = |value: f64| if value.is_finite() { value } else { middle };
    middle.is_finite().then(|| values.map(or_middle))
}

/// Returns the largest drawn number.
fn highest(figure: &Figure) -> f64 {
    let points = figure.series.iter().flat_map(|s| &s.points);
    let points = points.filter_map(|point| {
        let [_, middle, high] = drawn(point.as_ref(), figure.quantity)?;
        // Limits the effect of noise on the scale.
        Some(high.min(middle * 1.3))
    });
    let guides = figure.guides.iter().flat_map(|g| &g.values).flatten().copied();
    points.chain(guides.filter(|value| value.is_finite())).fold(f64::MIN_POSITIVE, f64::max)
}

/// The scales: positions 0, 1, .. side by side, and numbers from 0 upwards.
struct Axes {
    places: f64,
    highest: f64,
}

impl Axes {
    /// Returns the coordinates of a number at a position; larger numbers than the scale are clipped to its end.
    fn at(&self, place: f64, value: f64) -> [f64; 2] {
        let x = LEFT + (place + 0.5) / self.places * (RIGHT - LEFT);
        [x, BOTTOM - (value / self.highest).min(1.0) * (BOTTOM - TOP)]
    }

    fn draw(&self, figure: &Figure, svg: &mut Svg) {
        let step = step(self.highest);
        for n in 0..=(self.highest / step) as u32 {
            let value = f64::from(n) * step;
            let [_, y] = self.at(0.0, value);
            svg.line(&[[LEFT, y], [RIGHT, y]], if n == 0 { INK[0] } else { GRID[0] }, 1, "");
            let label = if value.fract() == 0.0 { format!("{value:.0}") } else { number(value) };
            svg.text([LEFT - 8.0, y], Anchor::End, &label, INK[0]);
        }
        svg.line(&[[LEFT, TOP], [LEFT, BOTTOM]], INK[0], 1, "");
        for (place, name) in figure.places.iter().enumerate() {
            let [x, _] = self.at(place as f64, 0.0);
            svg.line(&[[x, BOTTOM], [x, BOTTOM + 5.0]], INK[0], 1, "");
            svg.text([x, BOTTOM + 16.0], Anchor::Middle, name, INK[0]);
        }
        svg.text([(LEFT + RIGHT) / 2.0, BOTTOM + 42.0], Anchor::Middle, &figure.axis, INK[0]);
        svg.text_up([16.0, (TOP + BOTTOM) / 2.0], &figure.y_label(), INK[0]);
    }
}

/// Returns the distance of grid lines: 1, 2 or 5 times a power of ten.
fn step(highest: f64) -> f64 {
    let least = highest / GRID_LINES;
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|n| n * power).into_iter().find(|step| *step >= least).unwrap_or(10.0 * power)
}

fn colour(series: &Series) -> &'static str {
    SERIES[series.colour % SERIES.len()][0]
}

fn lines(figure: &Figure, axes: &Axes, svg: &mut Svg) {
    for series in &figure.series {
        let values: Vec<[[f64; 2]; 3]> = series
            .points
            .iter()
            .enumerate()
            .filter_map(|(place, p)| {
                Some(drawn(p.as_ref(), figure.quantity)?.map(|value| axes.at(place as f64, value)))
            })
            .collect();
        let middles: Vec<[f64; 2]> = values.iter().map(|[_, middle, _]| *middle).collect();
        svg.line(&middles, colour(series), 2, if series.dashed { DASHES } else { "" });
        for [low, middle, high] in values {
            svg.line(&[low, high], colour(series), 1, "");
            svg.dot(middle, colour(series));
        }
    }
}

fn bars(figure: &Figure, axes: &Axes, svg: &mut Svg) {
    for place in 0..figure.places.len() {
        let there = |s: &&Series| drawn(s.points[place].as_ref(), figure.quantity).is_some();
        let width = GROUP / figure.series.iter().filter(there).count().max(1) as f64;
        let mut left = place as f64 - GROUP / 2.0;
        for series in &figure.series {
            let Some([low, middle, high]) = drawn(series.points[place].as_ref(), figure.quantity) else {
                continue;
            };
            let [from, to] = [0.06, 0.94].map(|share| axes.at(left + width * share, middle));
            svg.bar(from, [to[0] - from[0], BOTTOM - from[1]], colour(series));
            let spread = [low, high].map(|value| axes.at(left + width / 2.0, value));
            svg.line(&spread, INK[0], 1, "");
            left += width;
        }
    }
}

/// Draws values from the literature: a line through their positions, or across a single one.
fn guides(figure: &Figure, axes: &Axes, svg: &mut Svg) {
    for guide in &figure.guides {
        let values = (0u32..).map(f64::from).zip(&guide.values);
        let mut points: Vec<(f64, f64)> =
            values.filter_map(|(place, value)| Some((place, value.filter(|v| v.is_finite())?))).collect();
        if let [(place, value)] = points[..] {
            points = vec![(place - GROUP / 2.0, value), (place + GROUP / 2.0, value)];
        }
        let points: Vec<[f64; 2]> = points.into_iter().map(|(place, value)| axes.at(place, value)).collect();
        svg.line(&points, GUIDE[0], 2, GUIDE_DASHES);
    }
}

fn legend(figure: &Figure, svg: &mut Svg) {
    const STEP: f64 = 22.0;
    const LEFT: f64 = RIGHT + 12.0;
    const TEXT: f64 = LEFT + 32.0;
    let mut y = 20.0;
    for series in &figure.series {
        match figure.shape {
            Shape::Lines => {
                let dashes = if series.dashed { DASHES } else { "" };
                svg.line(&[[LEFT, y], [LEFT + 24.0, y]], colour(series), 2, dashes);
                svg.dot([LEFT + 12.0, y], colour(series));
            }
            Shape::Bars => svg.bar([LEFT + 4.0, y - 6.0], [16.0, 12.0], colour(series)),
        }
        svg.text([TEXT, y], Anchor::Start, &series.name, INK[0]);
        y += STEP;
    }
    for guide in &figure.guides {
        svg.line(&[[LEFT, y], [LEFT + 26.0, y]], GUIDE[0], 2, GUIDE_DASHES);
        // Long names take two lines.
        let (first, second) =
            guide.name.split_once(" over ").map_or((guide.name.as_str(), None), |(a, b)| (a, Some(b)));
        svg.text([TEXT, y], Anchor::Start, first, INK[0]);
        if let Some(second) = second {
            y += STEP - 5.0;
            svg.text([TEXT, y], Anchor::Start, &format!("over {second}"), INK[0]);
        }
        y += STEP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Guide;
    use crate::render::svg::tests::elements;

    fn figure(places: usize) -> Figure {
        Figure::new("a", "b", "c").over("x < y", (0..places).map(|n| format!("p & {n}"))).plain("\"times\"")
    }

    fn with_guide(mut figure: Figure, values: &[Option<f64>]) -> Figure {
        figure.guides.push(Guide { name: "paper".into(), values: values.to_vec() });
        figure
    }

    /// Returns the points of the lines of a colour in the plot, without the legend.
    fn strokes(drawn: &str, colour: &str) -> Vec<String> {
        let of = |(name, attributes): (&str, Vec<(&str, &str)>)| {
            let value = |name: &str| Some(attributes.iter().find(|(own, _)| *own == name)?.1.to_owned());
            let points = value("points").filter(|_| value("stroke").as_deref() == Some(colour))?;
            let left: f64 = points.split(',').next()?.parse().ok()?;
            (name == "polyline" && left < RIGHT).then_some(points)
        };
        elements(drawn).into_iter().filter_map(of).collect()
    }

    #[test]
    fn figures_are_elements_of_xml() {
        let values = [Some(1.0), None, Some(3.0)];
        let lines = with_guide(figure(3).curve("l < m", &values), &values);
        for figure in [figure(0), lines.clone(), lines.bars()] {
            let drawn = svg(&figure);
            assert_eq!(elements(&drawn)[0].0, "svg");
        }
    }

    #[test]
    fn lines_go_through_their_numbers() {
        // The highest number is at 1/1.06 of the plot's height.
        let drawn = svg(&figure(4).curve("a", &[Some(100.0), None, Some(50.0), Some(0.0)]));
        let wide = (RIGHT - LEFT) / 4.0;
        let at = |place: f64, share: f64| {
            let (x, y) = (LEFT + (place + 0.5) * wide, BOTTOM - share / 1.06 * (BOTTOM - TOP));
            format!("{x:.1},{y:.1}")
        };
        let found = strokes(&drawn, SERIES[0][0]);
        assert_eq!(found[0], [at(0.0, 1.0), at(2.0, 0.5), at(3.0, 0.0)].join(" "));
        assert_eq!(found[0], "151.8,26.8 454.8,183.4 606.2,340.0");
    }

    #[test]
    fn numbers_that_are_not_finite_are_not_drawn() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let values = [Some(1.0), Some(number), Some(2.0)];
            let without = values.map(|value| value.filter(|v| v.is_finite()));
            for shape in [Shape::Lines, Shape::Bars] {
                let of = |values: &[Option<f64>]| {
                    let figure = with_guide(figure(3).curve("a", values), values);
                    svg(&Figure { shape, ..figure })
                };
                assert_eq!(of(&values), of(&without), "{number}");
            }
        }
    }

    #[test]
    fn a_quartile_that_is_not_finite_leaves_the_number() {
        let mut one = figure(1).curve("a", &[Some(2.0)]);
        let wanted = svg(&one);
        let point = one.series[0].points[0].as_mut().expect("it was given");
        (point.cycles.lower_quartile, point.cycles.upper_quartile) = (f64::NAN, f64::INFINITY);
        assert_eq!(svg(&one), wanted);
    }

    #[test]
    fn a_guide_of_one_place_is_a_line_across_it() {
        let drawn = svg(&with_guide(figure(3), &[None, Some(1.0), None]));
        let y = format!("{:.1}", BOTTOM - (BOTTOM - TOP) / 1.06);
        let (middle, half) = ((LEFT + RIGHT) / 2.0, GROUP / 2.0 * (RIGHT - LEFT) / 3.0);
        let across = format!("{:.1},{y} {:.1},{y}", middle - half, middle + half);
        assert_eq!(strokes(&drawn, GUIDE[0]), [across]);
    }

    #[test]
    fn the_grid_has_round_numbers_and_few_lines() {
        assert_eq!([0.9, 1.0, 30.0, 99.0, 4321.0].map(step), [0.1, 0.1, 5.0, 10.0, 500.0]);
        for highest in [f64::MIN_POSITIVE, 1e-9, 0.7, 3.0, 1e12] {
            let lines = highest / step(highest);
            assert!((1.0..=GRID_LINES + 1e-9).contains(&lines), "{highest}: {lines}");
        }
    }

    #[test]
    fn numbers_are_drawn_to_scale_and_never_above_the_plot() {
        let plain = Figure::new("a", "b", "c").over("x", ["p".to_owned(), "q".to_owned()]).plain("times");
        let figure = plain.curve("one", &[Some(1.0), Some(2.0)]).bars();
        let drawn = svg(&figure);
        // The higher bar is 1/1.06 of the plot's height; two in the plot, one in the legend.
        let height = |share: f64| format!("height=\"{:.1}\"", share / 1.06 * (BOTTOM - TOP));
        assert!(drawn.contains(&height(1.0)) && drawn.contains(&height(0.5)), "{drawn}");
        assert_eq!(drawn.matches("<rect").count(), 3);
        let axes = Axes { places: 2.0, highest: 1.0 };
        assert_eq!(axes.at(0.0, 7.0)[1], TOP);
    }
}
