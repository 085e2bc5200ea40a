//! Every mistake in a configuration is reported at its place.
//!
//! `mistakes.txt` has the cases. A case begins with `=== ` and a part of the message; the configuration follows, with the part
//! that is to be underlined between `«` and `»`. `--- NAME` begins a further file. A line `@NAME` is replaced by a fragment below.

use std::ops::Range;

use flowlane::rule::line_column;
use flowlane_switch::mgmt::setup::{Setup, SetupError};

const CASES: &str = include_str!("mistakes.txt");

/// Before every configuration: the words of all keys, which are not where a mistake is, behind letters of several bytes.
const COMMENT: &str = "# Zürich→\tnumber = 1, number = 0, burst = 65, workers, [[port]] [[meter]] [[table]] [[nat_table]] [cache]\n\
                       # name, open, key =, pool, ports, inside, outside, remote, id, actions=output:7, goto_table:7, _max\n";

const FRAGMENTS: [(&str, &str); 6] = [
    ("@ports\n", "[[port]]\nnumber = 10\nopen = \"null\"\n[[port]]\nnumber = 1\nopen = \"null\"\n"),
    ("@table\n", "[[table]]\nnumber = 0\n"),
    ("@routes\n", "[[route_table]]\nnumber = 9\n"),
    ("@filter\n", "[[filter_table]]\nnumber = 5\n"),
    ("@assets\n", "[[asset_table]]\nnumber = 5\nknown = \"drop\"\n"),
    ("@nat\n", "[[nat_table]]\nnumber = 5\noutbound = \"drop\"\ninbound = \"drop\"\n"),
];

/// A text without its marks, and what they were around.
fn unmarked(text: &str) -> (String, Option<Range<usize>>) {
    let (Some(start), Some(end)) = (text.find('«'), text.find('»')) else { return (text.to_owned(), None) };
    (text.replace(['«', '»'], ""), Some(start..end - '«'.len_utf8()))
}

/// Returns the file of an error, its text, the place in that text, and the message.
fn of_error(error: SetupError) -> (String, String, Range<usize>, String) {
    match error {
        SetupError::Config(error) => {
            let said = format!("{}: {}", error.message, error.help.unwrap_or_default());
            (error.file.display().to_string(), error.text, error.span.unwrap_or(0..0), said)
        }
        SetupError::Lines { text, errors } => {
            let first = &errors.errors()[0];
            let span = first.offset..first.offset + first.len;
            assert_eq!((first.line, first.column), line_column(&text, span.start), "{errors}");
            (first.file.clone(), text, span, errors.to_string())
        }
    }
}

/// Writes the files of a case, reads the configuration, and compares the place of the error with the marked part.
fn check(case: &str) -> Result<(), String> {
    let (message, files) = case.split_once('\n').expect("a case has more than a message");
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut marked = None;
    for (n, file) in files.split("--- ").enumerate() {
        let (name, content) = match n {
            0 => ("switch.toml", file),
            _ => file.split_once('\n').expect("a file has a name"),
        };
        let (content, span) = unmarked(content);
        let path = folder.path().join(name);
        std::fs::write(&path, &content).expect("the folder can be written to");
        if let Some(span) = span {
            marked = Some((path.display().to_string(), content, span));
        }
    }
    let setup = Setup::read(&folder.path().join("switch.toml"));
    let Err(error) = setup.and_then(|setup| setup.check()) else { return Err("no error".to_owned()) };
    let (file, text, found, said) = of_error(error);
    if !said.contains(message) {
        return Err(format!("the message is `{said}`"));
    }
    let place = |file: &str, text: &str, span: &Range<usize>| {
        let (line, column) = line_column(text, span.start);
        format!("{file}:{line}:{column}: `{}`", &text[span.clone()])
    };
    let found = place(&file, &text, &found);
    let wanted = marked.map(|(file, text, span)| place(&file, &text, &span));
    match wanted {
        Some(wanted) if wanted != found => Err(format!("{said}: at {found}, not at {wanted}")),
        None if !found.ends_with(":1:1: ``") => Err(format!("{said}: at {found}, not at none")),
        _ => Ok(()),
    }
}

/// A case with the line ends of other systems.
fn with_crlf(case: &str) -> String {
    let (message, files) = case.split_once('\n').expect("a case has more than a message");
    let crlf = |(n, file): (usize, &str)| match file.split_once('\n') {
        Some((name, content)) if n > 0 => format!("{name}\n{}", content.replace('\n', "\r\n")),
        _ => file.replace('\n', "\r\n"),
    };
    let files: Vec<String> = files.split("--- ").enumerate().map(crlf).collect();
    format!("{message}\n{}", files.join("--- "))
}

#[test]
fn every_mistake_is_reported_with_its_line_and_column() {
    let mut failures = Vec::new();
    for case in CASES.split("\n=== ").skip(1) {
        let (message, config) = case.split_once('\n').expect("a case has more than a message");
        let config = FRAGMENTS.iter().fold(format!("{config}\n"), |text, (name, is)| text.replace(name, is));
        let case = format!("{message}\n{COMMENT}{config}");
        for case in [with_crlf(&case), case] {
            failures.extend(check(&case).err().map(|failure| format!("{failure}\n{case}")));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
}
