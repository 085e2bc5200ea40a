//! A page of the reference, as Markdown and as a manual page.

use roff::{Inline, Roff, bold, roman};

/// A page: its blocks, in order.
pub(crate) struct Page {
    /// The name that `man` finds it by.
    pub(super) name: &'static str,
    /// The section of the manual.
    pub(super) section: u8,
    /// The name of the file in `docs/`, without `.md`.
    pub(super) file: &'static str,
    pub(super) about: &'static str,
    pub(super) blocks: Vec<Block>,
}

/// A part of a page. Text has code in backticks, and no other Markdown.
pub(super) enum Block {
    Heading(String),
    Subheading(String),
    Text(String),
    Code(String),
    /// A table, with the names of its columns. The first column is what a reader looks for.
    Rows(&'static [&'static str], Vec<Vec<String>>),
}

impl Page {
    /// The name of the file of the manual page.
    pub(crate) fn file_of_manual(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    /// The name of the file in Markdown.
    pub(crate) fn file_of_markdown(&self) -> String {
        format!("{}.md", self.file)
    }

    /// The page in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("# {}: {}\n", self.name, self.about);
        for block in &self.blocks {
            out.push('\n');
            match block {
                Block::Heading(text) => out += &format!("## {text}\n"),
                Block::Subheading(text) => out += &format!("### {text}\n"),
                Block::Text(text) => out += &format!("{text}\n"),
                Block::Code(code) => out += &format!("```text\n{}\n```\n", code.trim_end()),
                Block::Rows(columns, rows) => {
                    out += &format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
                    for row in rows {
                        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
                        out += &format!("| {} |\n", cells.join(" | "));
                    }
                }
            }
        }
        out
    }

    /// The page as `man` reads it.
    pub(crate) fn manual(&self) -> String {
        let mut roff = Roff::new();
        let section = self.section.to_string();
        roff.control("TH", [self.name, &section, "", concat!("flowlane ", env!("CARGO_PKG_VERSION"))]);
        roff.control("SH", ["NAME"]);
        roff.text([roman(format!("{} - {}", self.name, self.about))]);
        for block in &self.blocks {
            match block {
                // Names of sections stay as they are written.
                Block::Heading(text) if text.contains('`') => _ = roff.control("SH", [plain(text).as_str()]),
                Block::Heading(text) => _ = roff.control("SH", [text.to_uppercase().as_str()]),
                Block::Subheading(text) => _ = roff.control("SS", [plain(text).as_str()]),
                Block::Text(text) => {
                    roff.control("PP", []);
                    roff.text(inline(text));
                }
                Block::Code(code) => {
                    roff.control("PP", []).control("RS", ["4"]).control("nf", []);
                    code.lines().for_each(|line| _ = roff.text([roman(line)]));
                    roff.control("fi", []).control("RE", []);
                }
                Block::Rows(columns, rows) => rows.iter().for_each(|row| manual_row(&mut roff, columns, row)),
            }
        }
        roff.render()
    }
}

/// A row of a table: the first cell, and the others below it.
fn manual_row(roff: &mut Roff, columns: &[&str], row: &[String]) {
    roff.control("TP", []);
    roff.text(inline(&row[0]));
    let mut about = Vec::new();
    for (n, (column, cell)) in columns.iter().zip(row).enumerate().skip(1) {
        match cell.as_str() {
            "" => {}
            cell if n + 1 == row.len() => about.extend(inline(cell)),
            cell => about.extend(inline(&format!("{column}: {cell}. "))),
        }
    }
    roff.text(about);
}

/// Text without backticks.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Text, with code in bold.
fn inline(text: &str) -> Vec<Inline> {
    let part = |(i, part): (usize, &str)| if i % 2 == 1 { bold(part) } else { roman(part) };
    text.split('`').enumerate().map(part).collect()
}
