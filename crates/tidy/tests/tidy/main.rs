//! House rules, checked over the source tree.
//!
//! | rule | where it is said |
//! |---|---|
//! | modules of the library use those before them | ARCHITECTURE.md, the line of arrows |
//! | crates depend on what their row says | ARCHITECTURE.md, the table of crates |
//! | lists of modules and crates are complete | ARCHITECTURE.md, the library's `lib.rs` |
//! | modules at the top of a crate use each other in no circle | here |
//! | files ≤ 600 lines, functions ≤ 70, and nothing long grows | CONTRIBUTING.md |
//! | names of items and files without words that say nothing | here |
//! | documents name files that are there | here |
//! | documents, comments and messages have no banned word or opening | CONTRIBUTING.md |
//!
//! What breaks a rule today stands in `known.rs`. Each rule is a function from a [`Tree`](tree::Tree) to complaints, and its
//! tests break it in a small tree.
//!
//! # Limits
//! Sources are read as tokens, not parsed, and no macro is expanded: a path that a macro puts together from pieces is not
//! seen, nor what a glob import brings, nor a trait's method. Code under `#[cfg(test)]` (and loom's and Miri's) makes no
//! edge; other features are taken as on. Documents' paths without a folder of the tree in front are not known for paths.

mod cycles;
mod document;
mod known;
mod length;
mod modules;
mod names;
mod order;
mod source;
mod tree;
mod words;

use tree::Tree;

#[track_caller]
fn assert_tidy(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// That one of the complaints has this text.
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
fn modules_use_each_other_in_no_circle() {
    assert_tidy(&cycles::cycles(&Tree::of_this_repository(), known::BACKWARDS));
}

#[test]
fn files_and_functions_are_short() {
    assert_tidy(&length::length(&Tree::of_this_repository(), known::LONG));
}

#[test]
fn names_say_something() {
    assert_tidy(&names::names(&Tree::of_this_repository()));
}

#[test]
fn documents_name_files_that_are_there() {
    assert_tidy(&document::links(&Tree::of_this_repository()));
}

#[test]
fn documents_and_comments_use_the_words_of_the_field() {
    let tree = Tree::of_this_repository();
    // Entries that are larger than they need be do not fail the test while the wording of several crates is changed.
    println!("{}", words::words_shrunk(&tree, known::WORDING).join("\n"));
    assert_tidy(&words::words(&tree, known::WORDING));
}
