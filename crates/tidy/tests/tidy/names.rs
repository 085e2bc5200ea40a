//! A ban on empty words in names.

use crate::source::tokens;
use crate::tree::Tree;

/// Words without a meaning of their own.
const BANNED: [&str; 10] =
    ["manager", "managers", "helper", "helpers", "util", "utils", "utilities", "misc", "common", "stuff"];

/// Keywords that a name follows.
const KINDS: [&str; 9] = ["struct", "enum", "union", "trait", "type", "mod", "fn", "const", "static"];

/// Reports banned words in the names of items, and of the folders and files of crates. (A function or constant
/// `common_bits` is allowed: the word means something in it.)
pub(crate) fn names(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree.ending(".rs") {
        let mut tokens = tokens(text);
        tokens.retain(|token| token.text != "mut");
        for pair in tokens.windows(2) {
            let (kind, name) = (pair[0].text, pair[1]);
            if !KINDS.contains(&kind) || !name.is_name() {
                continue;
            }
            let is_value = matches!(kind, "fn" | "const" | "static");
            let is_adjective = |word: &str| word == "common" && is_value && words(name.text).len() > 1;
            if let Some(word) = banned(name.text).find(|word| !is_adjective(word)) {
                found.push(format!(
                    "{file}:{}: `{word}` in `{kind} {}` says nothing; name it after what it does",
                    name.line, name.text
                ));
            }
        }
    }
    for path in tree.paths().filter(|path| path.starts_with("crates/")) {
        for name in path.split('/') {
            let stem = name.split('.').next().unwrap_or_default();
            if let Some(word) = banned(stem).next() {
                found.push(format!("{path}: `{word}` in `{name}` says nothing; name it after its content"));
            }
        }
    }
    found
}

/// Returns the banned words of a name.
fn banned(name: &str) -> impl Iterator<Item = String> + use<> {
    words(name).into_iter().filter(|word| BANNED.contains(&word.as_str()))
}

/// Splits `SomeName`, `some_name`, `SOME_NAME` and `some-name` into words, in small letters.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut was_small) = (vec![String::new()], false);
    for (at, c) in name.char_indices() {
        // The last capital of several begins a word, too: `IOError`.
        let is_small_next = name[at + c.len_utf8()..].starts_with(char::is_lowercase);
        if matches!(c, '_' | '-') || c.is_uppercase() && (was_small || is_small_next) {
            words.push(String::new());
        }
        was_small = !c.is_uppercase();
        words.last_mut().expect("there is one").extend(c.to_lowercase().filter(|c| !matches!(c, '_' | '-')));
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
        assert!(check("const COMMON_BITS: u32 = 1; const fn f(a: *const u8) {}").is_empty());
        assert_says(
            &check("\nstruct TableManager;"),
            "a.rs:2: `manager` in `struct TableManager` says nothing",
        );
        assert_says(&check("pub mod utils;"), "`utils` in `mod utils`");
        assert_says(&check("mod common { }"), "`common` in `mod common`");
        assert_says(&check("fn parse_helper() {}"), "`helper` in `fn parse_helper`");
        assert_says(&check("fn common_helper() {}"), "`helper` in `fn common_helper`");
        assert_says(&check("trait MiscHelper {}"), "`misc` in `trait MiscHelper`");
        assert_says(&check("const PORT_UTILS: u8 = 1;"), "`utils` in `const PORT_UTILS`");
        assert_says(&check("static COMMON: u8 = 1;"), "`common` in `static COMMON`");
        assert_says(&check("static mut MISC: u8 = 1;"), "`misc` in `static MISC`");
        assert_says(&check("enum IOStuff {}"), "`stuff` in `enum IOStuff`");
    }

    #[test]
    fn files_and_folders_of_crates_have_no_empty_words() {
        let named = |path| names(&Tree::of(&[(path, "")]));
        assert!(named("crates/x/src/device.cl").is_empty() && named("docs/common.md").is_empty());
        assert_says(
            &named("crates/x/opencl/common.cl"),
            "crates/x/opencl/common.cl: `common` in `common.cl` says nothing",
        );
        assert_says(&named("crates/x/src/util/mod.rs"), "`util` in `util`");
        assert_says(&named("crates/x/port-helpers.sh"), "`helpers` in `port-helpers.sh`");
    }
}
