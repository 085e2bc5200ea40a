//! Allowed dependencies between modules and between crates. The documents are their only source.

use std::collections::BTreeSet;

use crate::document::{quoted, rows};
use crate::modules::Modules;
use crate::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The crates with an order of modules, which ARCHITECTURE and the crate's own documentation give: library and switch.
const ORDERED: [&str; 2] = ["crates/flowlane/src/lib.rs", "crates/flowlane-switch/src/lib.rs"];

/// Reports modules of the library and the switch that use a module that is not before them in ARCHITECTURE's order.
pub(crate) fn modules(tree: &Tree) -> Vec<String> {
    let orders = orders(tree.text(ARCHITECTURE).unwrap_or_default());
    let mut found = Vec::new();
    for (root, groups) in ORDERED.iter().zip(orders) {
        let place = |name: &str| groups.iter().position(|group| group.contains(&name));
        let edges = Modules::of(tree, root).edges();
        let backwards =
            edges.iter().filter(|edge| edge.parent.is_empty() && place(&edge.from) <= place(&edge.to));
        found.extend(backwards.map(|edge| {
            format!(
                "{}: module `{}` uses `{}`, which is not before it in {ARCHITECTURE}'s order; move the \
                 shared part to a module before both, or the using code to one after them",
                edge.at, edge.from, edge.to
            )
        }));
    }
    found
}

/// Reports differences between the modules and their lists: ARCHITECTURE's orders, the crate's own order if it has one, and
/// the table of modules, which is in the crate's documentation or, if that is for users, in ARCHITECTURE.
pub(crate) fn modules_listed(tree: &Tree) -> Vec<String> {
    let architecture = tree.text(ARCHITECTURE).unwrap_or_default();
    let mut orders = orders(architecture);
    let mut found = Vec::new();
    for root in ORDERED.into_iter().filter(|root| tree.text(root).is_some()) {
        let modules = Modules::of(tree, root);
        let there: BTreeSet<&str> = modules.top().collect();
        let text = tree.text(root).unwrap_or_default();
        let common = orders.next().unwrap_or_default();
        found.extend(differences(
            ARCHITECTURE,
            "order of modules",
            &there,
            common.iter().flatten().copied().collect(),
        ));
        if let Some(own) = self::orders(text).next() {
            found.extend(differences(
                root,
                "order of modules",
                &there,
                own.iter().flatten().copied().collect(),
            ));
            if own != common {
                found.push(format!("{root}: the order of modules is not {ARCHITECTURE}'s; make them equal"));
            }
        }
        let (own_table, common_table) = ("//! | module | what |", "| module | what |");
        let mut own_rows = rows(text, own_table).peekable();
        found.extend(match own_rows.peek() {
            Some(_) => table_differs(root, &there, own_rows),
            None => table_differs(ARCHITECTURE, &there, rows(architecture, common_table)),
        });
    }
    found
}

fn table_differs<'a>(
    file: &str,
    there: &BTreeSet<&str>,
    rows: impl Iterator<Item = Vec<&'a str>>,
) -> Vec<String> {
    let rows: Vec<Vec<&str>> = rows.collect();
    let listed = rows.iter().flat_map(|row| quoted(row[0])).collect();
    differences(file, "table of modules", there, listed)
}

/// Reports differences between ARCHITECTURE's table of crates and the manifests.
pub(crate) fn crates(tree: &Tree) -> Vec<String> {
    let text = tree.text(ARCHITECTURE).unwrap_or_default();
    let listed: Vec<_> = rows(text, "| crate | holds | depends on |").collect();
    let there: BTreeSet<&str> = tree.crates().filter_map(|folder| name(tree, folder)).collect();
    let names = listed.iter().filter_map(|row| quoted(row[0]).next()).collect();
    let mut found = differences(ARCHITECTURE, "table of crates", &there, names);
    for folder in tree.crates() {
        let manifest = tree.text(&format!("{folder}/Cargo.toml")).unwrap_or_default();
        let row = listed.iter().find(|row| quoted(row[0]).next() == name(tree, folder));
        let Some(row) = row else { continue };
        let allowed: BTreeSet<&str> = quoted(row[2]).filter(|name| there.contains(name)).collect();
        let used: BTreeSet<&str> = dependencies(manifest).filter(|name| there.contains(name)).collect();
        for name in used.difference(&allowed) {
            found.push(format!(
                "{folder}/Cargo.toml: depends on `{name}`, which {ARCHITECTURE}'s table of crates does not allow; do \
                 without, or change the table on purpose"
            ));
        }
        for name in allowed.difference(&used) {
            found.push(format!(
                "{ARCHITECTURE}: the table of crates says that `{folder}` depends on `{name}`, and it does not; strike it"
            ));
        }
    }
    found
}

fn name<'a>(tree: &'a Tree, folder: &str) -> Option<&'a str> {
    let manifest = tree.text(&format!("{folder}/Cargo.toml"))?;
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// Returns the names in a manifest's `[dependencies]`, those of targets included, without those for tests and builds.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end().trim_end_matches(']');
            inside = section == "dependencies"
                || section.starts_with("target.") && section.ends_with(".dependencies");
            return section.strip_prefix("dependencies.");
        }
        let end = line.find(['.', '=', ' '])?;
        (inside && end > 0).then(|| &line[..end])
    })
}

/// Returns the modules of a document's lines `a ← b ← {c, d}`, in groups that use the groups before them.
fn orders(text: &str) -> impl Iterator<Item = Vec<Vec<&str>>> {
    let lines = text.lines().flat_map(quoted).filter(|text| text.contains(" ← "));
    lines.map(|order| {
        order.split(" ← ").map(|group| group.trim_matches(['{', '}']).split(", ").collect()).collect()
    })
}

fn differences(file: &str, list: &str, there: &BTreeSet<&str>, listed: BTreeSet<&str>) -> Vec<String> {
    let missing = there.difference(&listed).map(|name| format!("{file}: the {list} lacks `{name}`; add it"));
    let gone = listed
        .difference(there)
        .map(|name| format!("{file}: the {list} has `{name}`, which does not exist; strike it"));
    missing.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    const ORDER: &str = "`isa ← {bloom, cuckoo} ← rule`\n\n| crate | holds | depends on |\n|---|---|---|\n\
        | `flowlane` | a | – |\n| `flowlane-sim` | b | `flowlane` |\n";
    const LIB: &str = "//! `isa ← {bloom, cuckoo} ← rule`\n//!\n//! | module | what |\n//! |---|---|\n//! | [`isa`] | a |\n\
        //! | [`bloom`] | b |\n//! | [`cuckoo`] | c |\n//! | [`rule`] | d |\n\nmod isa; mod bloom; mod cuckoo; mod rule;\n";

    fn with(path: &'static str, text: &'static str) -> Tree {
        let mut files = vec![
            (ARCHITECTURE, ORDER),
            (ORDERED[0], LIB),
            ("crates/flowlane/src/rule.rs", "use crate::{isa, bloom};"),
            (
                "crates/flowlane/Cargo.toml",
                "[package]\nname = \"flowlane\"\n[dependencies]\nflate2 = \"1\"\n",
            ),
            (
                "crates/flowlane-sim/Cargo.toml",
                "name = \"flowlane-sim\"\n[dependencies]\nflowlane.workspace = true\n",
            ),
        ];
        files.retain(|(other, _)| *other != path);
        files.push((path, text));
        Tree::of(&files)
    }

    #[test]
    fn uses_of_later_modules_are_found() {
        assert!(modules(&with("x", "")).is_empty());
        let backwards = with("crates/flowlane/src/isa.rs", "\nuse crate::rule::Rule;");
        assert_says(&modules(&backwards), "crates/flowlane/src/isa.rs:2: module `isa` uses `rule`");
        let beside = with("crates/flowlane/src/bloom.rs", "fn f() { super::cuckoo::g() }");
        assert_says(&modules(&beside), "bloom.rs:1: module `bloom` uses `cuckoo`");
        let order = concat!("`isa ← {bloom, cuckoo} ← rule`\n", "`packet ← worker`");
        let switch = Tree::of(&[
            (ARCHITECTURE, order),
            (ORDERED[1], "mod packet; mod worker;"),
            ("crates/flowlane-switch/src/packet.rs", "use crate::worker::Worker;"),
        ]);
        assert_says(&modules(&switch), "packet.rs:1: module `packet` uses `worker`");
    }

    #[test]
    fn lists_of_modules_are_complete() {
        assert!(modules_listed(&with("x", "")).is_empty());
        let gone =
            with(ORDERED[0], "//! `isa ← {bloom, cuckoo} ← rule`\nmod isa; mod bloom; mod cuckoo; mod new;");
        assert_says(&modules_listed(&gone), "ARCHITECTURE.md: the order of modules lacks `new`");
        assert_says(
            &modules_listed(&gone),
            "ARCHITECTURE.md: the order of modules has `rule`, which does not exist",
        );
        let short = with(
            ORDERED[0],
            "//! | module | what |\n//! |---|---|\n//! | [`isa`] | a |\n\nmod isa; mod rule;",
        );
        assert_says(&modules_listed(&short), "lib.rs: the table of modules lacks `rule`");
        let for_users = with(ORDERED[0], "//! For users.\nmod isa; mod bloom; mod cuckoo; mod rule;");
        assert_says(&modules_listed(&for_users), "ARCHITECTURE.md: the table of modules lacks `isa`");
        let other = with(ARCHITECTURE, "`isa ← bloom ← cuckoo ← rule`");
        assert_says(&modules_listed(&other), "the order of modules is not ARCHITECTURE.md's");
    }

    #[test]
    fn crates_depend_on_what_the_table_says() {
        assert!(crates(&with("x", "")).is_empty());
        let more =
            "name = \"flowlane\"\n[target.'cfg(unix)'.dependencies]\nflowlane-sim = { path = \"x\" }\n";
        assert_says(&crates(&with("crates/flowlane/Cargo.toml", more)), "depends on `flowlane-sim`, which");
        let less = "name = \"flowlane-sim\"\n[dev-dependencies]\nflowlane.workspace = true\n";
        assert_says(
            &crates(&with("crates/flowlane-sim/Cargo.toml", less)),
            "depends on `flowlane`, and it does not",
        );
        let new = crates(&with("crates/new/Cargo.toml", "name = \"flowlane-new\"\n"));
        assert_says(&new, "the table of crates lacks `flowlane-new`");
    }
}
