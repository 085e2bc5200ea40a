//! Figures as SVG: lines over places, or groups of bars; the quartiles as thin strokes; the legend beside.
//!
//! Every colour is one of a few fixed ones, so that a style sheet can exchange them (`html.rs` does, for dark
//! screens): SVG's attributes yield to style sheets.

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::prelude::Cartesian2d;
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use crate::figure::{Figure, Shape};
use crate::text::number;

/// Text and axes, on light paper and on dark.
pub(crate) const INK: [&str; 2] = ["#1B1F24", "#E6EDF3"];
/// The grid.
pub(crate) const GRID: [&str; 2] = ["#D9DEE4", "#30363D"];
/// What is stated elsewhere.
pub(crate) const GUIDE: [&str; 2] = ["#6E7781", "#9198A1"];
/// Series, in their order: after Okabe and Ito, told apart by people who see few colours.
pub(crate) const SERIES: [[&str; 2]; 10] = [
    ["#0072B2", "#56B4E9"],
    ["#D55E00", "#FF8A3D"],
    ["#009E73", "#2BD4A5"],
    ["#AA4499", "#DD77CC"],
    ["#8C6D00", "#F0E442"],
    ["#444444", "#BBBBBB"],
    ["#882255", "#F58FB8"],
    ["#117733", "#7FD18C"],
    ["#332288", "#A99CF0"],
    ["#994F00", "#D9A066"],
];

const SIZE: (u32, u32) = (960, 400);
const LEGEND_PIXELS: u32 = 270;
const FONT: &str = "sans-serif";

type Svg<'a> = SVGBackend<'a>;
type Area<'a> = DrawingArea<Svg<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, Svg<'b>, Cartesian2d<Places, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The axis of places: 0, 1, .. with their names.
struct Places(Vec<String>);

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + ((value + 0.5) / self.0.len() as f64 * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|place| place as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.0.len() as f64 - 0.5
    }
}

impl ValueFormatter<f64> for Places {
    fn format_ext(&self, value: &f64) -> String {
        self.0.get(value.round() as usize).cloned().unwrap_or_default()
    }
}

fn colour(hex: &str) -> RGBColor {
    let part =
        |from: usize| hex.get(from..from + 2).and_then(|p| u8::from_str_radix(p, 16).ok()).unwrap_or(0);
    RGBColor(part(1), part(3), part(5))
}

fn series_colour(n: usize) -> RGBColor {
    colour(SERIES[n % SERIES.len()][0])
}

fn text(pixels: i32) -> TextStyle<'static> {
    (FONT, pixels).into_font().color(&colour(INK[0]))
}

/// The figure as an SVG document.
pub(crate) fn svg(figure: &Figure) -> String {
    let mut out = String::new();
    let drawn = draw(figure, &mut out);
    // It is written to memory, which does not fail.
    debug_assert!(drawn.is_ok(), "{drawn:?}");
    // The page says how large it is; the drawing only how it is proportioned.
    let (width, height) = SIZE;
    out.replacen(&format!("width=\"{width}\" height=\"{height}\""), "role=\"img\"", 1)
}

fn draw(figure: &Figure, out: &mut String) -> Drawn {
    let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
    let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND_PIXELS);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(52)
        .y_label_area_size(68)
        .build_cartesian_2d(Places(figure.places.clone()), 0.0..highest(figure) * 1.06)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(colour(GRID[0]).mix(0.0))
        .bold_line_style(colour(GRID[0]))
        .axis_style(colour(INK[0]))
        .label_style(text(15))
        .axis_desc_style(text(16))
        .x_desc(figure.axis.as_str())
        .y_desc(figure.y_label())
        .y_label_formatter(&|v| if v.fract() == 0.0 { format!("{v:.0}") } else { number(*v) })
        .draw()?;
    match figure.shape {
        Shape::Lines => lines(figure, &mut chart)?,
        Shape::Bars => bars(figure, &mut chart)?,
    }
    for guide in &figure.guides {
        let points = guide.values.iter().enumerate().filter_map(|(place, v)| Some((place as f64, (*v)?)));
        // A lone point, or a line through all.
        let style = ShapeStyle::from(&colour(GUIDE[0])).stroke_width(2);
        chart.draw_series(DashedLineSeries::new(points, 7, 5, style))?;
    }
    draw_legend(figure, &legend)?;
    root.present()
}

/// The largest number that is drawn.
fn highest(figure: &Figure) -> f64 {
    let points = figure.series.iter().flat_map(|s| &s.points).flatten();
    let points = points.map(|p| {
        let [_, middle, high] = p.value(figure.quantity);
        // A spell of noise must not press the rest to the floor.
        high.min(middle * 1.3)
    });
    let guides = figure.guides.iter().flat_map(|g| &g.values).flatten().copied();
    points.chain(guides).fold(f64::MIN_POSITIVE, f64::max)
}

fn lines(figure: &Figure, chart: &mut Chart<'_, '_>) -> Drawn {
    for series in &figure.series {
        let colour = series_colour(series.colour);
        let values: Vec<(f64, [f64; 3])> = series
            .points
            .iter()
            .enumerate()
            .filter_map(|(place, p)| Some((place as f64, p.as_ref()?.value(figure.quantity))))
            .collect();
        let middles = values.iter().map(|(x, [_, y, _])| (*x, *y));
        let style = ShapeStyle::from(&colour).stroke_width(2);
        if series.dashed {
            chart.draw_series(DashedLineSeries::new(middles, 4, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(middles, style))?;
        }
        chart.draw_series(values.iter().map(|(x, [low, _, high])| {
            PathElement::new(vec![(*x, *low), (*x, *high)], ShapeStyle::from(&colour).stroke_width(1))
        }))?;
        chart.draw_series(values.iter().map(|(x, [_, y, _])| Circle::new((*x, *y), 3, colour.filled())))?;
    }
    Ok(())
}

/// The share of a place's width that its bars take.
const GROUP: f64 = 0.82;

fn bars(figure: &Figure, chart: &mut Chart<'_, '_>) -> Drawn {
    for place in 0..figure.places.len() {
        let there = |s: &&crate::figure::Series| s.points[place].is_some();
        let width = GROUP / figure.series.iter().filter(there).count().max(1) as f64;
        let mut left = place as f64 - GROUP / 2.0;
        for series in &figure.series {
            let Some(point) = &series.points[place] else { continue };
            let [low, middle, high] = point.value(figure.quantity);
            let centre = left + width / 2.0;
            let bar = [(left + width * 0.06, 0.0), (left + width * 0.94, middle)];
            chart.draw_series([Rectangle::new(bar, series_colour(series.colour).filled())])?;
            let spread = PathElement::new(vec![(centre, low), (centre, high)], colour(INK[0]));
            chart.draw_series([spread])?;
            left += width;
        }
    }
    Ok(())
}

fn draw_legend(figure: &Figure, area: &Area<'_>) -> Drawn {
    const STEP: i32 = 22;
    let style = text(15).pos(Pos::new(HPos::Left, VPos::Center));
    let mut y = 20;
    for series in &figure.series {
        let colour = series_colour(series.colour);
        match figure.shape {
            Shape::Lines => {
                let style = ShapeStyle::from(&colour).stroke_width(2);
                let parts: &[(i32, i32)] = if series.dashed { &[(3, 8), (24, 29)] } else { &[(4, 28)] };
                for (from, to) in parts {
                    area.draw(&PathElement::new(vec![(*from, y), (*to, y)], style))?;
                }
                area.draw(&Circle::new((16, y), 3, colour.filled()))?;
            }
            Shape::Bars => area.draw(&Rectangle::new([(8, y - 6), (24, y + 6)], colour.filled()))?,
        }
        area.draw(&Text::new(series.name.clone(), (36, y), style.clone()))?;
        y += STEP;
    }
    for guide in &figure.guides {
        let style_of_line = ShapeStyle::from(&colour(GUIDE[0])).stroke_width(2);
        for x in [4, 14, 24] {
            area.draw(&PathElement::new(vec![(x, y), (x + 6, y)], style_of_line))?;
        }
        // Long names in two lines.
        let (first, second) =
            guide.name.split_once(" over ").map_or((guide.name.as_str(), None), |(a, b)| (a, Some(b)));
        area.draw(&Text::new(first.to_owned(), (36, y), style.clone()))?;
        if let Some(second) = second {
            y += STEP - 5;
            area.draw(&Text::new(format!("over {second}"), (36, y), style.clone()))?;
        }
        y += STEP;
    }
    Ok(())
}
