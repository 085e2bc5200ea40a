//! Tables of numbers, as cells for a page and as plain text.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Attribute, Cell, CellAlignment, Table};

use crate::figure::{Figure, Point, Quantity, Ratio};

/// Formats a number with three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if 0.0 < v && v < 0.1 => format!("{value:.4}"),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a ratio, with its difference in percent.
pub(super) fn gain(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |r| format!("{r:.2} ({:+.0} %)", 100.0 * (r - 1.0)))
}

/// Returns the head of a figure's table: the axis, followed by its positions or the series.
pub(super) fn head(figure: &Figure) -> Vec<String> {
    let mut head = vec![figure.axis.clone()];
    if figure.tall {
        head.extend(figure.series.iter().map(|series| series.name.clone()));
    } else {
        head.extend(figure.places.iter().cloned());
    }
    if figure.quantity != Quantity::Plain {
        head.push("spread".to_owned());
    }
    head
}

/// Returns the rows of a figure's table: one for each series or position. The spread is the larger distance of a
/// quartile from the median, in percent, at its maximum in the row.
pub(super) fn rows(figure: &Figure) -> Vec<Vec<String>> {
    let row = |name: &String, points: &mut dyn Iterator<Item = &Option<Point>>| {
        let mut row = vec![name.clone()];
        let mut spread = 0.0f64;
        for point in points {
            row.push(point.as_ref().map_or("–".to_owned(), |point| {
                let [low, middle, high] = point.value(figure.quantity);
                spread = spread.max((high - middle).max(middle - low) / middle);
                number(middle)
            }));
        }
        if figure.quantity != Quantity::Plain {
            row.push(format!("±{:.0} %", 100.0 * spread));
        }
        row
    };
    if figure.tall {
        let places = figure.places.iter().enumerate();
        return places
            .map(|(place, name)| row(name, &mut figure.series.iter().map(|s| &s.points[place])))
            .collect();
    }
    figure.series.iter().map(|series| row(&series.name, &mut series.points.iter())).collect()
}

/// The head of the table of ratios.
pub(super) const RATIO_HEAD: [&str; 7] =
    ["times faster", "geometric mean", "at most", "where", "at least", "where", "paper, at most"];

/// Returns a row of the table of ratios.
pub(super) fn ratio_row(ratio: &Ratio) -> Vec<String> {
    let mut row = vec![ratio.what.clone(), gain(ratio.mean)];
    for extreme in [&ratio.most, &ratio.least] {
        row.push(gain(extreme.as_ref().map(|e| e.ratio)));
        row.push(extreme.as_ref().map_or_else(String::new, |e| e.at.clone()));
    }
    row.push(gain(ratio.stated));
    row
}

/// Renders the numbers of a figure as a text table.
pub(crate) fn figure_table(figure: &Figure) -> String {
    text_table(&head(figure), &rows(figure), Align::Right)
}

/// Renders the ratios of a figure as a text table.
pub(crate) fn ratio_table(figure: &Figure) -> String {
    let rows: Vec<Vec<String>> = figure.ratios.iter().map(ratio_row).collect();
    text_table(&RATIO_HEAD, &rows, Align::Right)
}

/// The alignment of all columns of a text table but the first, which is left-aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Text columns.
    Left,
    /// Number columns.
    Right,
}

/// Renders a table for the terminal, in the syntax of Markdown.
pub fn text_table(head: &[impl AsRef<str>], rows: &[Vec<String>], align: Align) -> String {
    let alignment = match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    };
    let cell = |column: usize, text: &str| match column {
        0 => Cell::new(text),
        _ => Cell::new(text).set_alignment(alignment),
    };
    let bold = |(i, text): (usize, &str)| cell(i, text).add_attribute(Attribute::Bold);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(head.iter().map(AsRef::as_ref).enumerate().map(bold));
    for row in rows {
        table.add_row(row.iter().enumerate().map(|(i, text)| cell(i, text)));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_say_something() {
        assert_eq!([1.234, 12.34, 123.4, 1234.5].map(number), ["1.23", "12.3", "123", "1234"]);
        assert_eq!([0.0, 0.00456, 0.12].map(number), ["0.00", "0.0046", "0.12"]);
        assert_eq!([Some(1.94), Some(0.8), None].map(gain), ["1.94 (+94 %)", "0.80 (-20 %)", "–"]);
    }
}
