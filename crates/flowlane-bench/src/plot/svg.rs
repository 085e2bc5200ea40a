//! Drawings as SVG, of the few shapes that plots are made of.
//!
//! Every colour is one of a few fixed ones, so that a style sheet can exchange them (the page does, for dark screens): SVG's
//! attributes yield to style sheets.

use std::fmt::Write;

/// Text and axes, on light paper and on dark.
pub(crate) const INK: [&str; 2] = ["#1B1F24", "#E6EDF3"];
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

/// A text as HTML and SVG have it between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Which point of a text is placed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A drawing that is being made; places are `[x, y]` in pixels from its upper left corner.
#[derive(Debug)]
pub(super) struct Svg {
    out: String,
}

impl Svg {
    /// The page says how large it is; the drawing only how it is proportioned.
    pub(super) fn new([width, height]: [f64; 2]) -> Self {
        let (view, namespace) = (format!("0 0 {width} {height}"), "http://www.w3.org/2000/svg");
        Self { out: format!("<svg role=\"img\" viewBox=\"{view}\" xmlns=\"{namespace}\">\n") }
    }

    /// A line through points; `dashes` are pixels of line and of gap in turn, none for a line without gaps.
    pub(super) fn line(&mut self, points: &[[f64; 2]], colour: &str, pixels: u32, dashes: &str) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let (points, dashes) = (points.join(" "), format!("stroke-dasharray=\"{dashes}\""));
        let _ = writeln!(
            self.out,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{pixels}\" {dashes}/>"
        );
    }

    /// A filled rectangle.
    pub(super) fn bar(&mut self, [left, top]: [f64; 2], [width, height]: [f64; 2], colour: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// A filled circle around a point.
    pub(super) fn dot(&mut self, [x, y]: [f64; 2], colour: &str) {
        let _ = writeln!(self.out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }

    /// A text, its middle at the height of the place.
    pub(super) fn text(&mut self, place: [f64; 2], anchor: Anchor, text: &str, colour: &str) {
        self.turned(place, anchor, text, colour, 0);
    }

    /// A text that is read from below, around the place.
    pub(super) fn text_up(&mut self, place: [f64; 2], text: &str, colour: &str) {
        self.turned(place, Anchor::Middle, text, colour, -90);
    }

    fn turned(&mut self, [x, y]: [f64; 2], anchor: Anchor, text: &str, colour: &str, degrees: i32) {
        let turn = match degrees {
            0 => String::new(),
            _ => format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\""),
        };
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"13\" dominant-baseline=\"central\" \
             text-anchor=\"{}\" fill=\"{colour}\"{turn}>{}</text>",
            anchor.name(),
            escaped(text)
        );
    }

    pub(super) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}
