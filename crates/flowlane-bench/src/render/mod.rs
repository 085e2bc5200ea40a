//! Rendering of measured and simulated figures: text tables, SVG charts, and self-contained HTML pages.
//!
//! `flowlane bench` and `flowlane sim` share this module; no other code of the project writes SVG or HTML.
//!
//! ```text
//! Figure ──┬─ table ── text_table ──▶ terminal
//!          ├─ table ──┐
//!          └─ chart ──┤
//!                     ├─ page ──▶ one HTML file
//! Tornado ─ tornado ──┘
//!   (chart and tornado draw with svg)
//! ```
//!
//! The SVG is written directly instead of by a plotting crate: charts need lines, bars and text only, and their positions
//! are a few sums.

mod chart;
mod page;
pub(crate) mod svg;
mod table;
mod tornado;

pub use page::Page;
pub use table::{Align, text_table};
pub(crate) use table::{figure_table, ratio_table};
pub use tornado::{Tornado, TornadoBar};
