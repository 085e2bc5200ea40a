//! Manifests of the crates that can be published, and the minimum version of Rust.

use super::tree::Tree;

/// crates.io takes at most this many keywords, and as many categories.
const TAGS_MAX: usize = 5;

/// crates.io takes keywords of at most this many bytes.
const KEYWORD_MAX: usize = 20;

/// The categories of crates.io that suit the project's crates.
const CATEGORIES: [&str; 6] = [
    "algorithms",
    "command-line-utilities",
    "data-structures",
    "database",
    "network-programming",
    "parser-implementations",
];

/// Returns what crates.io would refuse, or a reader miss, in the manifests of published crates.
pub(crate) fn packages(tree: &Tree) -> Vec<String> {
    let published = || tree.crates().filter(|folder| is_published(tree, folder));
    let mut found: Vec<String> = published().flat_map(|folder| manifest(tree, folder)).collect();
    let root = tree.text("Cargo.toml").unwrap_or_default();
    let version = value(root, "version").unwrap_or_default();
    for name in published().filter_map(|folder| folder.strip_prefix("crates/")) {
        let exact = format!("version = \"={version}\"");
        let dependency = root.lines().find(|line| line.starts_with(&format!("{name} = {{")));
        if !dependency.is_some_and(|line| line.contains(&exact)) {
            found.push(format!(
                "Cargo.toml: `{name}` in [workspace.dependencies] needs `{exact}`, since published crates use hidden modules"
            ));
        }
    }
    found
}

/// Returns a complaint where the minimum version of Rust is not the one that builds and tests everything.
pub(crate) fn rust_version(tree: &Tree) -> Vec<String> {
    let toolchain =
        tree.text("rust-toolchain.toml").and_then(|text| value(text, "channel")).unwrap_or_default();
    let manifests = ["Cargo.toml", "bindings/c/Cargo.toml", "bindings/python/Cargo.toml"];
    let mut found = Vec::new();
    for path in manifests {
        let minimum = tree.text(path).and_then(|text| value(text, "rust-version")).unwrap_or_default();
        if minimum.is_empty() || (toolchain != minimum && !toolchain.starts_with(&format!("{minimum}."))) {
            found.push(format!(
                "{path}: rust-version is `{minimum}`, and rust-toolchain.toml has `{toolchain}`; the minimum is what CI builds with"
            ));
        }
        for document in ["README.md", "docs/rust.md"] {
            if !tree.text(document).is_some_and(|text| text.contains(&format!("Rust {minimum} or later"))) {
                found.push(format!("{document}: does not say `Rust {minimum} or later`"));
            }
        }
    }
    found
}

fn is_published(tree: &Tree, folder: &str) -> bool {
    let manifest = tree.text(&format!("{folder}/Cargo.toml")).unwrap_or_default();
    !manifest.lines().any(|line| line == "publish.workspace = true" || line == "publish = false")
}

fn manifest(tree: &Tree, folder: &str) -> Vec<String> {
    let path = format!("{folder}/Cargo.toml");
    let text = tree.text(&path).unwrap_or_default();
    let mut found = Vec::new();
    let mut complain = |problem: String| found.push(format!("{path}: {problem}"));
    if value(text, "description").is_none_or(str::is_empty) {
        complain("no `description`".to_owned());
    }
    match value(text, "readme") {
        Some(readme) if tree.has(&format!("{folder}/{readme}")) => {}
        _ => complain("no `readme` that exists".to_owned()),
    }
    for inherited in ["version", "edition", "rust-version", "license"] {
        if !text.lines().any(|line| line == format!("{inherited}.workspace = true")) {
            complain(format!("no `{inherited}.workspace = true`"));
        }
    }
    for (key, is_known) in [
        ("keywords", (&|tag: &str| tag.len() <= KEYWORD_MAX && !tag.contains(' ')) as &dyn Fn(&str) -> bool),
        ("categories", &|tag: &str| CATEGORIES.contains(&tag)),
    ] {
        let tags = list(text, key);
        if !(1..=TAGS_MAX).contains(&tags.len()) || !tags.iter().all(|tag| is_known(tag)) {
            complain(format!("`{key}` are {tags:?}; crates.io takes 1 to {TAGS_MAX} that it knows"));
        }
    }
    found
}

/// Returns the text of `key = "…"`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
    rest.strip_suffix('"')
}

/// Returns the texts of `key = ["…", "…"]`.
fn list<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = ["));
    line.map_or_else(Vec::new, |line| line.split('"').skip(1).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    const ROOT: &str = "[workspace.package]\nversion = \"0.2.0\"\nrust-version = \"1.95\"\npublish = false\n\n\
        [workspace.dependencies]\nflowlane = { path = \"crates/flowlane\", version = \"=0.2.0\" }\n";
    const OWN: &str = "[package]\nname = \"flowlane\"\ndescription = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\nreadme = \"README.md\"\nkeywords = [\"packet\"]\n\
        categories = [\"algorithms\"]\n";

    fn tree(root: &str, own: &str) -> Tree {
        Tree::of(&[
            ("Cargo.toml", root),
            ("crates/flowlane/Cargo.toml", own),
            ("crates/flowlane/README.md", ""),
            ("crates/flowlane-cli/Cargo.toml", "[package]\npublish.workspace = true\n"),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.95.0\"\n"),
            ("bindings/c/Cargo.toml", "rust-version = \"1.95\"\n"),
            ("bindings/python/Cargo.toml", "rust-version = \"1.95\"\n"),
            ("README.md", "With Rust 1.95 or later"),
            ("docs/rust.md", "Rust 1.95 or later."),
        ])
    }

    #[test]
    fn incomplete_manifests_are_found() {
        assert!(packages(&tree(ROOT, OWN)).is_empty());
        for (key, with) in [
            ("description = \"x\"", "description = \"\""),
            ("readme = \"README.md\"", "readme = \"READYOU.md\""),
            ("license.workspace = true", ""),
            ("rust-version.workspace = true", "rust-version = \"1.80\""),
            ("keywords = [\"packet\"]", "keywords = [\"packet classification\"]"),
            ("keywords = [\"packet\"]", "keywords = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]"),
            ("categories = [\"algorithms\"]", "categories = [\"networks\"]"),
        ] {
            let broken = packages(&tree(ROOT, &OWN.replace(key, with)));
            let name = key.split([' ', '.']).next().expect("a key");
            assert_says(&broken, name);
            assert_eq!(broken.len(), 1, "{broken:?}");
        }
        let loose = ROOT.replace("=0.2.0\" }", "0.1\" }");
        assert_says(&packages(&tree(&loose, OWN)), "needs `version = \"=0.2.0\"`");
    }

    #[test]
    fn a_minimum_that_is_not_tested_is_found() {
        assert!(rust_version(&tree(ROOT, OWN)).is_empty());
        let older = rust_version(&tree(&ROOT.replace("1.95", "1.80"), OWN));
        assert_says(&older, "rust-version is `1.80`, and rust-toolchain.toml has `1.95.0`");
        assert_says(&older, "README.md: does not say `Rust 1.80 or later`");
    }
}
