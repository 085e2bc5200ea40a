//! Names say what something is.

use crate::source::tokens;
use crate::tree::Tree;

/// Words that say nothing about what they are part of.
const BANNED: [&str; 10] =
    ["manager", "managers", "helper", "helpers", "util", "utils", "utilities", "misc", "common", "stuff"];

/// No banned word in the names of types, modules and functions. (But `common_bits` may be a function of the bits that
/// two have in common: there the word says something.)
pub(crate) fn names(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree.ending(".rs") {
        for pair in tokens(text).windows(2) {
            let (kind, name) = (pair[0].text, pair[1]);
            let words = words(name.text);
            let is_adjective = |word: &str| word == "common" && kind == "fn" && words.len() > 1;
            let is_banned = |word: &&String| BANNED.contains(&word.as_str()) && !is_adjective(word);
            let is_named = matches!(kind, "struct" | "enum" | "union" | "trait" | "type" | "mod" | "fn")
                && name.is_name();
            if let Some(word) = words.iter().find(|word| is_named && is_banned(word)) {
                found.push(format!(
                    "{file}:{}: `{word}` in `{kind} {}` says nothing; name it after what it does",
                    name.line, name.text
                ));
            }
        }
    }
    found
}

/// The words of `SomeName` and `some_name`, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().expect("there is one").extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    fn check(text: &str) -> Vec<String> {
        names(&Tree::of(&[("a.rs", text)]))
    }

    #[test]
    fn names_have_no_empty_words() {
        assert!(check("struct Table; fn common_bits() { let helper = utils(); } // mod utils").is_empty());
        assert_says(
            &check("\nstruct TableManager;"),
            "a.rs:2: `manager` in `struct TableManager` says nothing",
        );
        assert_says(&check("pub mod utils;"), "`utils` in `mod utils`");
        assert_says(&check("mod common { }"), "`common` in `mod common`");
        assert_says(&check("fn parse_helper() {}"), "`helper` in `fn parse_helper`");
        assert_says(&check("trait MiscHelper {}"), "`misc` in `trait MiscHelper`");
    }
}
