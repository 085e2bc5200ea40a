//! Limits on the lengths of files and functions.

use std::collections::BTreeMap;

use crate::known::Long;
use crate::source::{Token, group, tokens};
use crate::tree::Tree;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Reports files of more than 600 lines and functions of more than 70, braces and comments included. `known` ones are
/// longer, by exactly the recorded lines, so that they only shrink.
pub(crate) fn length(tree: &Tree, known: &[Long]) -> Vec<String> {
    let mut found = Vec::new();
    let mut long = Vec::new();
    for (file, text) in tree.ending(".rs") {
        let lines = text.lines().count();
        let whole = ("", lines, 1, FILE_LINES_MAX);
        let functions =
            functions(text).into_iter().map(|(name, (lines, at))| (name, lines, at, FUNCTION_LINES_MAX));
        for (name, lines, at, max) in
            std::iter::once(whole).chain(functions).filter(|(_, lines, _, max)| lines > max)
        {
            let known = known.iter().find(|k| (k.file, k.function) == (file, name));
            let what = if name.is_empty() { "the file".to_owned() } else { format!("`{name}`") };
            match known {
                None => found
                    .push(format!("{file}:{at}: {what} has {lines} lines, more than {max}; make two of it")),
                Some(k) if lines > k.lines => {
                    let was = k.lines;
                    found.push(format!(
                        "{file}:{at}: {what} has grown from {was} lines to {lines}; make two of it"
                    ));
                }
                Some(k) if lines < k.lines => found.push(format!(
                    "{file}:{at}: {what} has {lines} lines, not {} any more; write {lines} in known.rs",
                    k.lines
                )),
                Some(_) => {}
            }
            long.extend(known.map(|_| (file, name)));
        }
    }
    found.extend(known.iter().filter(|k| !long.contains(&(k.file, k.function))).map(|k| {
        format!(
            "crates/tidy/tests/tidy/known.rs: `{}` of {} is no longer too long; strike the entry",
            k.function, k.file
        )
    }));
    found
}

/// Returns the number of lines and the first line of each function; of several functions with one name, of the longest.
fn functions(text: &str) -> BTreeMap<&str, (usize, usize)> {
    let tokens = tokens(text);
    let mut longest = BTreeMap::new();
    for at in 0..tokens.len() {
        let [start, name, ..] = &tokens[at..] else { break };
        if start.text == "fn"
            && name.is_name()
            && let Some(body) = body(&tokens[at..])
        {
            let end = tokens[at + body + group(&tokens[at + body..]) - 1].line;
            let lines = (end - start.line + 1, start.line);
            let entry = longest.entry(name.text).or_insert(lines);
            *entry = lines.max(*entry);
        }
    }
    longest
}

/// Returns the index of the brace that opens a function's body, if it has one.
fn body(tokens: &[Token<'_>]) -> Option<usize> {
    let mut at = 0;
    loop {
        match tokens.get(at)?.text {
            "{" => return Some(at),
            ";" => return None,
            "(" | "[" => at += group(&tokens[at..]),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    fn text(lines: usize) -> String {
        format!("trait T {{ fn none(self); }}\nfn long(a: [u8; 2]) {{\n{}}}\n", "a;\n".repeat(lines - 2))
    }

    fn check(text: &str, known: &[Long]) -> Vec<String> {
        length(&Tree::of(&[("a.rs", text)]), known)
    }

    #[test]
    fn functions_have_at_most_70_lines() {
        assert!(check(&text(70), &[]).is_empty());
        assert_says(&check(&text(71), &[]), "a.rs:2: `long` has 71 lines, more than 70");
    }

    #[test]
    fn files_have_at_most_600_lines() {
        assert!(check(&"\n".repeat(600), &[]).is_empty());
        assert_says(&check(&"\n".repeat(601), &[]), "a.rs:1: the file has 601 lines, more than 600");
    }

    #[test]
    fn recorded_lengths_only_shrink() {
        let known = [Long { file: "a.rs", function: "long", lines: 80 }];
        assert!(check(&text(80), &known).is_empty());
        assert_says(&check(&text(81), &known), "`long` has grown from 80 lines to 81");
        assert_says(
            &check(&text(79), &known),
            "a.rs:2: `long` has 79 lines, not 80 any more; write 79 in known.rs",
        );
        assert_says(&check(&text(70), &known), "`long` of a.rs is no longer too long; strike the entry");
    }
}
