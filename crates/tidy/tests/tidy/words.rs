//! Documents, comments and messages use the words of the field and sentences that make sense alone.
//!
//! Counts are kept for each document and, in Rust sources, for each crate and [`Place`]. [`Wording`] entries record the
//! counts that are allowed. Words are compared without regard to case and across line breaks; code (between backticks or in
//! fenced blocks) is left out.

use std::collections::BTreeMap;

use crate::known::Wording;
use crate::source::{Kind, pieces};
use crate::tree::Tree;

/// Words and phrases, and the words to write instead.
const BANNED: &[(&str, &str)] = &[
    ("so many", "the number, `as many as`, `up to`"),
    ("stands", "is, lies, is recorded, means"),
    ("told", "given, reported, passed"),
    ("whoever", "the caller, the worker, the reader: the thing by its name"),
    ("anew", "again; for packets recirculated, for tables rebuilt"),
    ("nobody", "no thread, no caller, none"),
    ("somebody", "another thread, a caller"),
    ("anybody", "any thread, any caller"),
    ("at hand", "available, this"),
    ("besides", "also, in addition"),
    ("comes to", "reaches, results in, equals"),
    ("is had", "exists, is available"),
    ("what is", "the thing by its name"),
    ("what was", "the thing by its name"),
    ("what are", "the things by their name"),
];

/// Openings of doc comments, and how to begin instead.
const OPENINGS: &[(&str, &str)] = &[
    ("the same", "say in full what the item does"),
    ("as above", "say in full what the item does"),
    ("likewise", "say in full what the item does"),
    ("what", "name the thing, or begin with a verb in the third person"),
    ("who", "name the thing"),
    ("whoever", "name the thing"),
    ("whether", "begin with `Returns whether`"),
];

/// Where words of Rust sources are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// Markdown.
    Page,
    /// Doc comments of modules, of `pub` items with their variants and methods, and of `--help`.
    Public,
    /// All other comments.
    Private,
    /// String literals of `src`: messages and `--help`.
    Text,
}

/// A complaint, and the line that it is about.
type Found = (usize, String);

/// No banned word and no banned opening beyond the counts of `known`. Where a comment moves from one place of a crate to
/// another, since an item is no longer `pub`, say, the sum counts.
pub(crate) fn words(tree: &Tree, known: &[Wording]) -> Vec<String> {
    let mut complaints = Vec::new();
    let found = found(tree);
    for ((of, place), lines) in &found {
        let recorded = known.iter().find(|k| (k.of, k.place) == (of, *place)).map_or(0, |k| k.count);
        let sum: usize =
            found.iter().filter(|((other, _), _)| other == of).map(|(_, lines)| lines.len()).sum();
        let recorded_sum: usize = known.iter().filter(|k| k.of == of).map(|k| k.count).sum();
        if lines.len() > recorded && sum > recorded_sum {
            complaints.extend(lines.iter().cloned());
            complaints.push(format!(
                "{of} ({place:?}): {} banned words and openings, more than the {recorded} of known.rs; reword those that \
                 are new",
                lines.len()
            ));
        }
    }
    complaints
}

/// Entries of `known` that exceed the counts of the sources, with the numbers to write.
pub(crate) fn words_shrunk(tree: &Tree, known: &[Wording]) -> Vec<String> {
    let found = found(tree);
    let shrunk = known.iter().filter_map(|Wording { of, place, count }| {
        let is = found.get(&((*of).to_owned(), *place)).map_or(0, Vec::len);
        (is < *count).then(|| {
            let advice = if is == 0 { "strike the entry".to_owned() } else { format!("write {is}") };
            format!(
                "crates/tidy/tests/tidy/known.rs: {of} ({place:?}) has {is}, not {count} any more; {advice}"
            )
        })
    });
    shrunk.collect()
}

/// All that is found, by document or crate, and by place.
fn found(tree: &Tree) -> BTreeMap<(String, Place), Vec<String>> {
    let mut all: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut add = |of: &str, place, file: &str, found: Vec<Found>| {
        if !found.is_empty() {
            let lines = found.into_iter().map(|(line, text)| format!("{file}:{line}: {text}"));
            all.entry((of.to_owned(), place)).or_default().extend(lines);
        }
    };
    for (file, text) in tree.ending(".md").filter(|(file, _)| is_page(file)) {
        let of = if file.starts_with("crates/") { folder(file) } else { file };
        add(of, Place::Page, file, banned(text.lines().zip(1..)));
    }
    for (file, text) in tree.ending(".rs") {
        for block in blocks(file, text) {
            let lines = || block.lines.iter().map(|(line, text)| (text.as_str(), *line));
            add(folder(file), block.place, file, banned(lines()));
            add(folder(file), block.place, file, block.opening());
        }
    }
    all
}

fn is_page(file: &str) -> bool {
    matches!(file, "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md")
        || file.starts_with("docs/")
        || file.starts_with("crates/") && file.ends_with("/README.md")
}

/// The crate's folder of a file: its first two names, or `fuzz`.
fn folder(file: &str) -> &str {
    let names = if file.starts_with("fuzz/") { 1 } else { 2 };
    file.match_indices('/').nth(names - 1).map_or(file, |(at, _)| &file[..at])
}

/// Comments that follow each other, or one string literal.
struct Block {
    place: Place,
    /// The kind of item that a doc comment is about: `fn`, `struct` and so on, or nothing.
    item: String,
    is_doc: bool,
    lines: Vec<(usize, String)>,
}

impl Block {
    fn opening(&self) -> Vec<Found> {
        let Some((line, text)) = self.lines.first().filter(|_| self.is_doc) else { return Vec::new() };
        let words: Vec<String> = text.split_whitespace().take(2).map(plain).collect();
        // `Whether …` is a noun phrase, which suits a field.
        let is_field = self.item != "fn";
        let begins = |opening: &str| {
            let mut parts = opening.split(' ');
            let is = words.iter().zip(parts.by_ref()).all(|(word, part)| word == part);
            is && parts.next().is_none() && !(opening == "whether" && is_field)
        };
        let found = OPENINGS.iter().find(|(opening, _)| begins(opening));
        let text = |(opening, instead): &(&str, &str)| {
            (*line, format!("a doc comment opens with \"{opening}\"; {instead}"))
        };
        found.map(text).into_iter().collect()
    }
}

/// The comments and, in `src`, the string literals of a file.
fn blocks(file: &str, text: &str) -> Vec<Block> {
    let source: Vec<&str> = text.lines().collect();
    let public = public_lines(&source);
    let mut blocks: Vec<Block> = Vec::new();
    let mut marks: Vec<&str> = Vec::new();
    for (kind, piece) in pieces(text) {
        if kind == Kind::Text && file.contains("/src/") {
            let lines = (piece.line..).zip(piece.text.lines().map(str::to_owned)).collect();
            blocks.push(Block { place: Place::Text, item: String::new(), is_doc: false, lines });
            marks.push("");
        } else if kind == Kind::Comment {
            let mark = ["///", "//!", "//", "/*"].into_iter().find(|mark| piece.text.starts_with(mark));
            let mark = mark.unwrap_or_default();
            let text = piece.text[mark.len()..].trim().to_owned();
            let same = marks.last() == Some(&mark);
            let last = blocks
                .last_mut()
                .filter(|block| same && block.lines.last().is_some_and(|l| l.0 + 1 == piece.line));
            if let Some(block) = last {
                block.lines.push((piece.line, text));
                continue;
            }
            let is_public = mark == "//!" || mark == "///" && public[piece.line - 1];
            let place = if is_public { Place::Public } else { Place::Private };
            let item = if mark == "///" { item(&source[piece.line..]) } else { String::new() };
            blocks.push(Block { place, item, is_doc: mark == "///", lines: vec![(piece.line, text)] });
            marks.push(mark);
        }
    }
    blocks
}

/// The first line of the item that these lines lead to, behind comments and attributes.
fn head<'a>(lines: &[&'a str]) -> &'a str {
    let (mut depth, mut found) = (0, "");
    for line in lines.iter().map(|line| line.trim()) {
        if depth == 0 && !line.starts_with("//") && !line.starts_with("#[") {
            found = line;
            break;
        }
        if !line.starts_with("//") {
            depth += line.matches('[').count();
            depth = depth.saturating_sub(line.matches(']').count());
        }
    }
    found
}

fn item(lines: &[&str]) -> String {
    let kinds = ["fn", "struct", "enum", "trait", "union", "type", "const", "static", "mod"];
    let words = head(lines).split(|c: char| !c.is_alphanumeric() && c != '_');
    // `const fn` is a function.
    let found = words.take_while(|word| *word != "where").filter(|word| kinds.contains(word)).take(2);
    found.max_by_key(|word| *word == "fn").unwrap_or_default().to_owned()
}

/// Of each line, whether a doc comment there is about a public item, one of its variants or methods, or an argument of the
/// command line.
fn public_lines(source: &[&str]) -> Vec<bool> {
    let mut public = vec![false; source.len()];
    let (mut is_argument, mut end) = (false, None::<String>);
    for (at, line) in source.iter().enumerate() {
        let code = line.trim_start();
        if code.starts_with("///") {
            public[at] = end.is_some() || head(&source[at..]).starts_with("pub ");
        } else if code.starts_with("#[derive(") {
            is_argument |=
                ["Args", "Parser", "Subcommand", "ValueEnum"].iter().any(|name| code.contains(name));
        }
        if end.as_ref().is_some_and(|end| line.starts_with(end.as_str())) {
            end = None;
        }
        let name = code.strip_prefix("pub(crate) ").or_else(|| code.strip_prefix("pub ")).unwrap_or(code);
        let is_type = name.starts_with("struct ") || name.starts_with("enum ");
        let has_public_parts =
            code.starts_with("pub enum ") || code.starts_with("pub trait ") || is_type && is_argument;
        if end.is_none() && has_public_parts && !line.ends_with([';', '}']) {
            end = Some(format!("{}}}", &line[..line.len() - code.len()]));
        }
        is_argument &= !is_type;
    }
    public
}

/// A word without the marks around it, in small letters.
fn plain(word: &str) -> String {
    // A placeholder of a message is no word.
    if word.contains('{') {
        return String::new();
    }
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

/// Banned words of these lines.
fn banned<'a>(lines: impl Iterator<Item = (&'a str, usize)>) -> Vec<Found> {
    let mut found = Vec::new();
    let (mut is_code, mut before) = (false, String::new());
    // Words up to the end of the sentence, to tell questions.
    let mut asked: Vec<Found> = Vec::new();
    for (text, line) in lines {
        if text.trim_start().starts_with("```") {
            is_code = !is_code;
            before.clear();
        }
        if is_code {
            continue;
        }
        for (part, is_quoted) in text.split('`').zip([false, true].into_iter().cycle()) {
            for word in part.split_whitespace() {
                let (now, ends) = (
                    if is_quoted { String::new() } else { plain(word) },
                    word.ends_with(['.', '?', '!', ':', '|']),
                );
                let pair = format!("{before} {now}");
                let hit = BANNED.iter().find(|(banned, _)| *banned == now || *banned == pair);
                if let Some((banned, instead)) = hit {
                    asked.push((line, format!("\"{banned}\"; write instead: {instead}")));
                }
                if ends {
                    // A question may ask what something is.
                    let is_question = word.ends_with('?');
                    found.extend(
                        asked.drain(..).filter(|(_, text)| !is_question || !text.starts_with("\"what")),
                    );
                }
                before = if ends || word.ends_with([',', ';']) { String::new() } else { now };
            }
        }
    }
    found.extend(asked);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    fn check(file: &str, text: &str) -> Vec<String> {
        words(&Tree::of(&[(file, text)]), &[])
    }

    #[test]
    fn documents_use_no_banned_word() {
        assert_says(&check("README.md", "a\nit Stands here"), "README.md:2: \"stands\"; write instead: is");
        assert_says(&check("docs/lab/a.md", "there are so\nmany"), "docs/lab/a.md:2: \"so many\"");
        assert_says(&check("crates/x/src/y/README.md", "whoever"), "crates/x (Page): 1 banned words");
        assert!(
            check("README.md", "`stands`\n```\ntold\n```\nWhat is it? not so. Many, outstanding").is_empty()
        );
        assert_says(&check("README.md", "What is full evicts."), "\"what is\"");
        assert!(check("CHANGELOG.md", "anew").is_empty() && check("fuzz/README.md", "anew").is_empty());
    }

    #[test]
    fn comments_use_no_banned_word() {
        let public = |text: &str| check("crates/x/src/a.rs", text).pop().unwrap_or_default();
        assert!(public("//! Told.").contains("crates/x (Public): 1"));
        assert!(public("/// Told.\n#[inline]\npub fn a() {}").contains("(Public)"));
        assert!(public("/// Told.\npub(crate) fn a() {}").contains("(Private)"));
        assert!(public("pub enum A {\n    /// Told.\n    B,\n}").contains("(Public)"));
        assert!(public("pub enum A {\n    B,\n}\n/// Told.\nstruct C;").contains("(Private)"));
        assert!(public("#[derive(Args)]\nstruct A {\n    /// Told.\n    b: u8,\n}").contains("(Public)"));
        assert!(public("fn a() { \"told\" }").contains("(Text)"));
        assert!(public("fn a() { \"{what} is\" }").is_empty());
        assert!(public("// So\n// many.").contains("(Private)"));
        assert!(public("let told = 1; // It holds.").is_empty());
    }

    #[test]
    fn doc_comments_open_with_sentences() {
        let found = |text: &str| check("crates/x/src/a.rs", text);
        assert_says(
            &found("\n/// The same with\n/// two.\nfn a() {}"),
            "a.rs:2: a doc comment opens with \"the same\"",
        );
        assert_says(&found("/// What a packet has.\nstruct A;"), "opens with \"what\"; name the thing");
        assert_says(&found("/// Whether it is.\npub const fn a() {}"), "begin with `Returns whether`");
        assert!(found("struct A {\n    /// Whether it is.\n    b: bool,\n}\n// The same.").is_empty());
        assert!(found("/// The sum.\nfn a() {}").is_empty());
    }

    #[test]
    fn recorded_counts_only_shrink() {
        let tree = Tree::of(&[("README.md", "told told")]);
        let known = |count| [Wording { of: "README.md", place: Place::Page, count }];
        assert!(words(&tree, &known(2)).is_empty() && words_shrunk(&tree, &known(2)).is_empty());
        assert_says(
            &words(&tree, &known(1)),
            "README.md (Page): 2 banned words and openings, more than the 1",
        );
        assert_says(&words_shrunk(&tree, &known(3)), "README.md (Page) has 2, not 3 any more; write 2");
        assert_says(&words_shrunk(&Tree::of(&[]), &known(1)), "has 0, not 1 any more; strike the entry");
    }
}
