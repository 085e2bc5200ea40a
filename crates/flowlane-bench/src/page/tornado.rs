//! Bars around a base, as SVG: what each thing that is varied moves, to the left and to the right.

use std::fmt::Write;

use super::Tornado;
use crate::html::escaped;
use crate::plot::{GRID, GUIDE, INK, SERIES};
use crate::text::number;

/// Pixels: of a row, its bar, the names at the left, and the settings at both ends of the bars.
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
const NAMES: f64 = 290.0;
const ENDS: f64 = 130.0;
const WIDTH: f64 = 960.0;
const HEAD: f64 = 40.0;

/// The plot as an SVG element.
pub(super) fn svg(tornado: &Tornado) -> String {
    let values = || tornado.bars.iter().flat_map(|bar| bar.settings.iter().map(|(_, value)| *value));
    let least = values().fold(tornado.base, f64::min);
    let most = values().fold(tornado.base, f64::max);
    let span = (most - least).max(tornado.base.abs() * 1e-6).max(f64::MIN_POSITIVE);
    let (from, wide) = (NAMES + ENDS, WIDTH - NAMES - 2.0 * ENDS);
    let x = |value: f64| from + (value - least) / span * wide;
    let height = HEAD + ROW * tornado.bars.len() as f64 + 12.0;
    let mut out =
        format!("<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n");
    let base = x(tornado.base);
    let text = |out: &mut String, x: f64, y: f64, anchor: &str, text: &str, colour: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"14\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
            escaped(text)
        );
    };
    let title = format!("{} {}", number(tornado.base), tornado.unit);
    text(&mut out, base, 16.0, "middle", &title, INK[0]);
    for (n, bar) in tornado.bars.iter().enumerate() {
        let y = HEAD + ROW * n as f64;
        let middle = y + BAR / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M {NAMES} {middle:.1} H {WIDTH}\" stroke=\"{}\" stroke-width=\"1\" fill=\"none\"/>",
            GRID[0]
        );
        text(&mut out, NAMES - 10.0, middle + 5.0, "end", &bar.name, INK[0]);
        let by = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let lower = bar.settings.iter().filter(|(_, value)| *value < tornado.base).min_by(by);
        let higher = bar.settings.iter().filter(|(_, value)| *value > tornado.base).max_by(by);
        for (end, colour, anchor, away) in [(lower, 0, "end", -6.0), (higher, 1, "start", 6.0)] {
            let Some((setting, value)) = end else { continue };
            let (left, right) = (x(*value).min(base), x(*value).max(base));
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{}\"/>",
                (right - left).max(1.0),
                SERIES[colour][0]
            );
            let name = format!("{setting}: {}", number(*value));
            text(&mut out, x(*value) + away, middle + 5.0, anchor, &name, GUIDE[0]);
        }
    }
    let bottom = height - 6.0;
    let _ = writeln!(
        out,
        "<path d=\"M {base:.1} 24 V {bottom:.1}\" stroke=\"{}\" stroke-width=\"1\" fill=\"none\"/>\n</svg>",
        INK[0]
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::TornadoBar;

    #[test]
    fn bars_go_from_the_base_to_what_comes_out() {
        let bar = |settings: &[(&str, f64)]| TornadoBar {
            name: "n".into(),
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let bars = vec![
            bar(&[("half", 50.0), ("double", 200.0)]),
            bar(&[("a", 120.0), ("b", 150.0)]),
            bar(&[("same", 100.0)]),
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
        // One at each side; the wider of two at one side; nothing where nothing moves.
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert!(
            drawn.contains("half: 50") && drawn.contains("b: 150") && !drawn.contains("a: 120"),
            "{drawn}"
        );
        // 150 units are 410 pixels: those to the left are a third of them.
        assert!(drawn.contains("width=\"136.7\"") && drawn.contains("width=\"273.3\""), "{drawn}");
        assert!(svg(&of(Vec::new())).ends_with("</svg>\n"));
    }
}
