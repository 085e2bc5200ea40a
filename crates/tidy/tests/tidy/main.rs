//! House rules, checked over the source tree.
//!
//! | rule | source |
//! |---|---|
//! | modules of the library use those before them | ARCHITECTURE.md, the line of arrows |
//! | crates depend on what their row says | ARCHITECTURE.md, the table of crates |
//! | lists of modules and crates are complete | ARCHITECTURE.md, the library's `lib.rs` |
//! | modules at the top of a crate form no cycle | here |
//! | files ≤ 600 lines, functions ≤ 70, and nothing long grows | CONTRIBUTING.md |
//! | names of items and files have no empty words | here |
//! | documents name files that exist | here |
//! | manifests of published crates are complete, the minimum version of Rust is tested | docs/releasing.md |
//! | documents, comments and messages have no banned word or opening | CONTRIBUTING.md |
//!
//! `known.rs` records today's exceptions. Each rule is a function from a [`Tree`](tree::Tree) to complaints, and its
//! tests break it in a small tree.
//!
//! # Limits
//! Sources are read as tokens, not parsed, and no macro is expanded: paths composed by macros, items of glob imports and
//! methods of traits are not seen. Code under `#[cfg(test)]` (and loom's and Miri's) adds no
//! edge; other features count as enabled. A path in a document is recognised by the folder at its beginning.

mod cycles;
mod document;
mod known;
mod length;
mod modules;
mod names;
mod order;
mod packages;
mod source;
mod tree;
mod words;

use tree::Tree;

#[track_caller]
fn assert_tidy(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// Asserts that one of the complaints contains this text.
#[track_caller]
fn assert_says(complaints: &[String], text: &str) {
    assert!(complaints.iter().any(|complaint| complaint.contains(text)), "no `{text}` in {complaints:#?}");
}

#[test]
fn modules_of_library_and_switch_use_those_before_them() {
    assert_tidy(&order::modules(&Tree::of_this_repository()));
}

#[test]
fn modules_of_library_and_switch_are_listed() {
    assert_tidy(&order::modules_listed(&Tree::of_this_repository()));
}

#[test]
fn crates_depend_on_what_the_table_says() {
    assert_tidy(&order::crates(&Tree::of_this_repository()));
}

#[test]
fn modules_form_no_cycle() {
    assert_tidy(&cycles::cycles(&Tree::of_this_repository(), known::BACKWARDS));
}

#[test]
fn files_and_functions_are_short() {
    assert_tidy(&length::length(&Tree::of_this_repository(), known::LONG));
}

#[test]
fn names_have_no_empty_words() {
    assert_tidy(&names::names(&Tree::of_this_repository()));
}

#[test]
fn documents_name_files_that_exist() {
    assert_tidy(&document::links(&Tree::of_this_repository()));
}

#[test]
fn published_crates_have_what_readers_and_crates_io_ask_for() {
    assert_tidy(&packages::packages(&Tree::of_this_repository()));
}

#[test]
fn the_minimum_version_of_rust_is_the_one_that_is_tested() {
    assert_tidy(&packages::rust_version(&Tree::of_this_repository()));
}

#[test]
fn documents_and_comments_use_the_words_of_the_field() {
    let tree = Tree::of_this_repository();
    let mut found = words::words(&tree, known::WORDING);
    found.extend(words::words_shrunk(&tree, known::WORDING));
    assert_tidy(&found);
}
