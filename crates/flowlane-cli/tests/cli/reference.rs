//! Tests of the pages that are made from tables: documents are those of the program, and their examples are right.

use std::path::Path;

use tempfile::tempdir;

use crate::support::run;

const PAGES: [(&str, &str); 2] = [("switch.md", "flowlane.toml.5"), ("flows.md", "flowlane-flows.7")];

/// The first block of code of a page.
fn first_code(page: &str) -> &str {
    let code = page.split_once("```text\n").unwrap().1;
    code.split_once("```").unwrap().0
}

#[test]
fn documents_are_those_of_the_program() {
    let folder = tempdir().unwrap();
    run(folder.path(), "man made --format markdown", 0);
    for (page, _) in PAGES {
        let made = std::fs::read_to_string(folder.path().join("made").join(page)).unwrap();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        assert!(
            std::fs::read_to_string(kept).is_ok_and(|kept| kept == made),
            "docs/{page} is out of date; run `cargo run -- man docs --format markdown`"
        );
    }
}

#[test]
fn examples_of_documents_are_right() {
    let folder = tempdir().unwrap();
    run(folder.path(), "man . --format markdown", 0);
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    std::fs::write(folder.path().join("example.toml"), first_code(&page("switch.md"))).unwrap();
    run(folder.path(), "switch check example.toml", 0);
    std::fs::write(folder.path().join("example.flows"), first_code(&page("flows.md"))).unwrap();
    run(folder.path(), "rules show example.flows", 0);
}

#[test]
fn manual_pages_name_every_key_and_all_that_may_be_left_out_have_a_default() {
    let folder = tempdir().unwrap();
    run(folder.path(), "man .", 0);
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (_, manual) in PAGES {
        let title = manual.rsplit_once('.').unwrap();
        assert!(page(manual).contains(&format!(".TH {} {}", title.0, title.1)), "{manual}");
    }
    assert!(folder.path().join("flowlane-switch-run.1").exists());
    let (schema, _) = run(folder.path(), "switch schema", 0);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let sections =
        schema["$defs"].as_object().unwrap().values().filter_map(|one| one["properties"].as_object());
    let manual = page("flowlane.toml.5").replace("\\-", "-");
    for key in sections.flat_map(|keys| keys.keys()) {
        let ways = [format!("\\fB{key}\\fR\n"), format!("[{key}]"), format!(".{key}]")];
        assert!(ways.iter().any(|way| manual.contains(way)), "{key} is not on the page");
    }
    // A value that is chosen from several has a default, unless it is required.
    for (name, section) in schema["$defs"].as_object().unwrap() {
        let required = section["required"].as_array().cloned().unwrap_or_default();
        for (key, value) in section["properties"].as_object().into_iter().flatten() {
            let is_chosen = value["$ref"].as_str().is_some_and(|to| {
                !schema.pointer(to.trim_start_matches('#')).unwrap()["properties"].is_object()
            });
            let is_known = !is_chosen || required.iter().any(|one| one == key) || !value["default"].is_null();
            assert!(is_known, "{name}.{key} has no default");
        }
    }
}
