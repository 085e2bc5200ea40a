//! SVG drawings from the few shapes of charts.
//!
//! A shape with a coordinate that is not finite is left out.
//!
//! All colours are from a fixed palette, so that a style sheet can replace them (the page does, for dark screens):
//! style sheets take precedence over SVG attributes.

use std::fmt::Write;

/// Colours of text and axes, on light and dark backgrounds.
pub(crate) const INK: [&str; 2] = ["#1B1F24", "#E6EDF3"];
pub(crate) const GRID: [&str; 2] = ["#D9DEE4", "#30363D"];
/// Colours of values from the literature.
pub(crate) const GUIDE: [&str; 2] = ["#6E7781", "#9198A1"];
/// Colours of series, after Okabe and Ito: distinguishable with colour blindness.
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

/// Escapes a text for HTML and SVG, between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The point of a text that is placed.
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

/// A drawing in construction; coordinates are `[x, y]` in pixels from the upper left corner.
#[derive(Debug)]
pub(super) struct Svg {
    out: String,
}

impl Svg {
    /// Begins a drawing. The size sets its proportions; the page sets its width.
    pub(super) fn new([width, height]: [f64; 2]) -> Self {
        let (view, namespace) = (format!("0 0 {width} {height}"), "http://www.w3.org/2000/svg");
        Self { out: format!("<svg role=\"img\" viewBox=\"{view}\" xmlns=\"{namespace}\">\n") }
    }

    /// Draws a line through at least two points; `dashes` are pixels of line and gap in turn, empty for a solid line.
    pub(super) fn line(&mut self, points: &[[f64; 2]], colour: &str, pixels: u32, dashes: &str) {
        let points: Vec<String> =
            points.iter().filter(|p| is_place(*p)).map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        if points.len() < 2 {
            return;
        }
        let points = points.join(" ");
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let _ = writeln!(
            self.out,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{pixels}\"{dashes}/>"
        );
    }

    /// Draws a filled rectangle.
    pub(super) fn bar(&mut self, [left, top]: [f64; 2], [width, height]: [f64; 2], colour: &str) {
        if !is_place(&[left, top, width, height]) {
            return;
        }
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// Draws a filled circle around a point.
    pub(super) fn dot(&mut self, [x, y]: [f64; 2], colour: &str) {
        if !is_place(&[x, y]) {
            return;
        }
        let _ = writeln!(self.out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }

    /// Draws a text, centred vertically.
    pub(super) fn text(&mut self, place: [f64; 2], anchor: Anchor, text: &str, colour: &str) {
        self.turned(place, anchor, text, colour, 0);
    }

    /// Draws a text that reads upwards.
    pub(super) fn text_up(&mut self, place: [f64; 2], text: &str, colour: &str) {
        self.turned(place, Anchor::Middle, text, colour, -90);
    }

    fn turned(&mut self, [x, y]: [f64; 2], anchor: Anchor, text: &str, colour: &str, degrees: i32) {
        if !is_place(&[x, y]) {
            return;
        }
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

fn is_place(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.is_finite())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Parses one XML element without declarations and comments, and returns the names and attributes of all
    /// elements. Panics unless tags are paired or self-closing, attributes are unique and quoted, and `&` only occurs
    /// in character references.
    pub(in crate::render) fn elements(text: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
        let (mut open, mut found) = (Vec::new(), Vec::new());
        let mut rest = text.trim_end();
        while !rest.is_empty() {
            let (before, tag) = rest.split_once('<').expect("nothing behind the last tag");
            assert_plain(before);
            assert!(!open.is_empty() || found.is_empty(), "a second element: {rest}");
            let (inside, after) = tag.split_once('>').expect("a tag ends");
            rest = after;
            if let Some(name) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "tags are closed in their order");
                continue;
            }
            let (inside, is_closed) =
                inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
            let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
            found.push((name, read(attributes)));
            if !is_closed {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?} are not closed");
        found
    }

    /// Parses the attributes of a tag.
    fn read(mut text: &str) -> Vec<(&str, &str)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        while !text.is_empty() {
            let (name, behind) = text.split_once("=\"").expect("a name, and a value in quotes");
            let (value, behind) = behind.split_once('"').expect("a quote ends");
            assert!(name.chars().all(|c| c.is_ascii_alphabetic() || c == '-'), "`{name}` is no name");
            assert!(found.iter().all(|(other, _)| *other != name), "{name} occurs twice");
            assert!(!value.is_empty(), "{name} is empty");
            assert_plain(value);
            found.push((name, value));
            text = behind.strip_prefix(' ').unwrap_or_else(|| {
                assert!(behind.is_empty(), "`{behind}` follows a quote");
                behind
            });
        }
        found
    }

    #[track_caller]
    fn assert_plain(text: &str) {
        let named = ["amp;", "lt;", "gt;", "quot;"];
        let is_named = |behind: &str| named.iter().any(|name| behind.starts_with(name));
        assert!(!text.contains(['<', '>', '"']) && text.split('&').skip(1).all(is_named), "{text}");
    }

    #[test]
    fn drawings_are_elements_of_xml() {
        let mut svg = Svg::new([20.0, 10.0]);
        svg.line(&[[0.0, 1.0], [2.26, 3.0]], "#000", 1, "4 4");
        svg.bar([1.0, 2.0], [3.0, 4.0], "#111");
        svg.dot([1.0, 2.0], "#222");
        svg.text([1.0, 2.0], Anchor::Start, "a < b & \"c\" > d", "#333");
        svg.text_up([1.0, 2.0], "e", "#333");
        let drawn = svg.finish();
        let found = elements(&drawn);
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["svg", "polyline", "rect", "circle", "text", "text"]);
        assert!(drawn.contains(">a &lt; b &amp; &quot;c&quot; &gt; d</text>"), "{drawn}");
        assert!(found[1].1.contains(&("points", "0.0,1.0 2.3,3.0")), "{drawn}");
    }

    #[test]
    fn malformed_xml_is_detected() {
        let is_refused = |text: &'static str| std::panic::catch_unwind(|| elements(text)).is_err();
        assert!(!is_refused("<svg a=\"1\"><b c=\"2\" d=\"3\"/>e &amp; f</svg>\n"));
        for broken in [
            "<svg>",
            "<svg></b>",
            "<svg/><svg/>",
            "<svg a=1/>",
            "<svg a=\"1\"b=\"2\"/>",
            "<svg a=\"1\" a=\"2\"/>",
            "<svg a=\"\"/>",
            "<svg>a & b</svg>",
            "<svg a=\"<\"/>",
        ] {
            assert!(is_refused(broken), "{broken}");
        }
    }

    #[test]
    fn shapes_with_infinite_coordinates_are_not_drawn() {
        let mut svg = Svg::new([20.0, 10.0]);
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            svg.line(&[[0.0, 1.0], [number, 2.0]], "#000", 1, "");
            svg.line(&[[0.0, 1.0], [2.0, number], [3.0, 4.0]], "#000", 1, "");
            svg.bar([1.0, 2.0], [3.0, number], "#111");
            svg.dot([number, 2.0], "#222");
            svg.text([1.0, number], Anchor::End, "a", "#333");
        }
        let drawn = svg.finish();
        let found = elements(&drawn);
        assert_eq!(found.len(), 1 + 3);
        assert!(found[1..].iter().all(|(_, attributes)| attributes.contains(&("points", "0.0,1.0 3.0,4.0"))));
    }
}
