//! Markdown, and a check that the files named in documents exist.

use crate::tree::Tree;

/// Returns the texts between the backticks of a line.
pub(crate) fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the cells of the rows below this table head; the table may be in a comment.
pub(crate) fn rows<'a>(text: &'a str, head: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let lines = text.lines().skip_while(move |line| *line != head).skip(2);
    let rows =
        lines.map(|line| line.trim_start_matches("//!").trim()).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

/// Reports links to missing files, and paths between backticks that do not exist.
///
/// A path is complete from the root, or the end of one (`worker/mod.rs`): its first name is that of a folder of the tree,
/// or it ends in `.rs`. Code blocks, URLs, rustdoc's links to items, placeholders (`classify/NAME/`), and the
/// paths of earlier versions (CHANGELOG) are not checked.
pub(crate) fn links(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree.ending(".md") {
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.trim_start().starts_with("```");
            if is_code {
                continue;
            }
            for link in destinations(line).filter(|link| !is_there(tree, file, link)) {
                found.push(format!(
                    "{file}:{number}: links to `{link}`, which does not exist; fix or strike the link"
                ));
            }
            let paths = quoted(line).filter(|text| file != "CHANGELOG.md" && is_path(tree, text));
            for path in paths.filter(|path| !tree.has_ending(path)) {
                found.push(format!(
                    "{file}:{number}: names `{path}`, which does not exist; write its current path"
                ));
            }
        }
    }
    found
}

/// Returns the files that a line links to, without anchors.
fn destinations(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let files = ends.map(|link| link.split('#').next().unwrap_or_default());
    files.filter(|link| link.contains(['.', '/']) && !link.contains(':'))
}

fn is_there(tree: &Tree, file: &str, link: &str) -> bool {
    let mut names: Vec<&str> = file.split('/').collect();
    names.pop();
    for name in link.trim_end_matches('/').split('/') {
        match name {
            "." => {}
            ".." if names.is_empty() => return false,
            ".." => _ = names.pop(),
            name => names.push(name),
        }
    }
    tree.has(&names.join("/"))
}

fn is_path(tree: &Tree, text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let to_fill_in = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase());
    let mut names = text.split('/');
    let first = names.next().unwrap_or_default();
    let names_folder = text.contains('/') && !first.is_empty() && tree.has_ending(first);
    text.chars().all(plain) && !text.split('/').any(to_fill_in) && (names_folder || text.ends_with(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    fn broken(file: &str, text: &str) -> Vec<String> {
        links(&Tree::of(&[(file, text), ("docs/a.md", ""), ("crates/x/src/worker/mod.rs", "")]))
    }

    #[test]
    fn links_to_missing_files_are_found() {
        assert!(
            broken("README.md", "[a](docs/a.md#b), [b](https://x.y/z.md), [c](crate::c), [d](#e)").is_empty()
        );
        assert!(
            broken("docs/b.md", "[a](a.md) [b](../docs/) ![c](../crates/x/src/worker/mod.rs \"title\")")
                .is_empty()
        );
        assert_says(
            &broken("README.md", "a\n[b](docs/b.md#c)"),
            "README.md:2: links to `docs/b.md`, which does not exist",
        );
        assert_says(&broken("docs/b.md", "[a](docs/a.md)"), "docs/b.md:1: links to `docs/a.md`");
    }

    #[test]
    fn missing_paths_between_backticks_are_found() {
        assert!(
            broken("README.md", "`docs/a.md`, `worker/mod.rs`, `x/src/`, `a/b`, `10.0.0.0/8`, `docs/NAME/`")
                .is_empty()
        );
        assert!(broken("README.md", "```sh\ncat `docs/b.md`\n```").is_empty());
        assert!(broken("CHANGELOG.md", "`docs/b.md`").is_empty());
        assert_says(
            &broken("README.md", "see `docs/b.md`"),
            "README.md:1: names `docs/b.md`, which does not exist",
        );
        assert_says(&broken("README.md", "`worker/egress.rs`"), "names `worker/egress.rs`");
    }
}
