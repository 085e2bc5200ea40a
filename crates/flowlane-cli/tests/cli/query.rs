//! Tests of `flowlane query`, and of its documentation.

use std::path::Path;
use std::process::Command;

use super::support::{flowlane, run};

/// A command of the documentation with its output.
struct Shown {
    line: usize,
    command: String,
    output: String,
}

/// Returns the commands of a page: lines with `$` in console blocks, continued by lines with `>`.
fn commands(page: &str) -> Vec<Shown> {
    let (mut all, mut is_inside) = (Vec::<Shown>::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with("```") {
            is_inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_inside) {
            all.push(Shown { line: number, command: command.to_owned(), output: String::new() });
        } else if let (true, Some(last)) = (is_inside, all.last_mut()) {
            match line.strip_prefix("> ") {
                Some(more) => last.command += &format!("\n{more}"),
                None => last.output += &format!("{line}\n"),
            }
        }
    }
    all
}

#[test]
fn examples_of_the_query_page_are_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/query.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let binaries = Path::new(flowlane().get_program()).parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(binaries).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let path = path.unwrap();
    let (mut made, mut is_as_shown) = (text.clone(), true);
    for shown in commands(&text) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{}", shown.command)]).current_dir(folder.path());
        let done = shell.env("PATH", &path).env("FLOWLANE_TUNE", "/dev/null").output().unwrap();
        let output = String::from_utf8(done.stdout).unwrap();
        let is_same = output == shown.output;
        if !is_same {
            println!("query.md:{}: {}\n{output}", shown.line, shown.command);
        }
        is_as_shown &= is_same && done.status.success();
        let last = shown.command.lines().last().unwrap();
        let last = if shown.command.contains('\n') { format!("> {last}\n") } else { format!("$ {last}\n") };
        let from = made.find(&last).unwrap() + last.len();
        made.replace_range(from..from + shown.output.len(), &output);
    }
    // Updates the page, to be reviewed.
    if std::env::var_os("FLOWLANE_WRITE_PAGES").is_some() {
        std::fs::write(&page, made).unwrap();
    }
    assert!(is_as_shown, "the page is out of date; FLOWLANE_WRITE_PAGES=1 updates it");
}

/// Creates a directory with rules and a capture for them.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fw.flows"), "tcp,tp_dst=80,actions=output:1\nudp,actions=drop\n")
        .unwrap();
    run(folder.path(), "generate pcap --rules fw.flows --count 500 --output t.pcap", 0);
    folder
}

fn query(folder: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let done = flowlane().current_dir(folder).arg("query").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(done.stdout), text(done.stderr));
    assert_eq!(done.status.code(), Some(code), "{arguments:?}\n{out}\n{err}");
    (out, err)
}

#[test]
fn counts_agree_with_classify() {
    let folder = folder();
    run(folder.path(), "classify --rules fw.flows --trace t.pcap --hits hits.csv --output /dev/null", 0);
    let hits = std::fs::read_to_string(folder.path().join("hits.csv")).unwrap();
    let by_rule: Vec<&str> = hits.lines().skip(1).filter(|line| !line.ends_with(",0")).collect();
    let sql = "SELECT matches('fw.flows') AS rule, priority('fw.flows'), count(*) FROM packets GROUP BY 1, 2 ORDER BY 1";
    let (out, _) = query(folder.path(), &[sql, "t.pcap", "--format", "csv"], 0);
    assert_eq!(out.lines().next(), Some("rule,priority('fw.flows'),count(*)"));
    assert_eq!(out.lines().skip(1).collect::<Vec<_>>(), by_rule);
}

#[test]
fn output_files_are_complete_or_untouched() {
    let folder = folder();
    let path = folder.path().join("x.csv");
    std::fs::write(&path, "before\n").unwrap();
    let (_, err) =
        query(folder.path(), &["SELECT 1 / (packet - 400) FROM packets", "t.pcap", "-o", "x.csv"], 2);
    assert!(err.contains("Divide by zero"), "{err}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n");
    query(folder.path(), &["SELECT packet FROM packets ORDER BY 1", "t.pcap", "-o", "x.csv"], 0);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 501);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 3, "nothing else is left");
    // The queried capture is not overwritten.
    let own = ["SELECT packet FROM packets", "t.pcap", "--format", "csv", "-o", "t.pcap"];
    let (_, err) = query(folder.path(), &own, 2);
    assert!(err.contains("is an input of this command"), "{err}");
    query(folder.path(), &["SELECT count(*) FROM packets", "t.pcap"], 0);
    let (_, err) = query(folder.path(), &["SELECT 1", "-o", "x.what"], 2);
    assert!(err.contains("does not select an output format"), "{err}");
}

#[test]
fn a_killed_query_leaves_no_files() {
    let folder = folder();
    let aside = folder.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    let sql = "SELECT frame, value FROM packets, generate_series(1, 10000000) ORDER BY 1, 2";
    let asked = ["query", sql, "t.pcap", "-o", "x.csv", "--memory-max", "30000000"];
    let mut query = Command::new(flowlane().get_program())
        .args(asked)
        .current_dir(folder.path())
        .env("TMPDIR", &aside)
        .spawn()
        .unwrap();
    let has_any = |path: &Path| std::fs::read_dir(path).unwrap().count() > 0;
    let is_aside = || std::fs::read_dir(&aside).unwrap().any(|of| has_any(&of.unwrap().path()));
    while query.try_wait().unwrap().is_none() && !is_aside() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let stopped = Command::new("kill").args(["-TERM", &query.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let status = query.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
    let left = std::fs::read_dir(folder.path()).unwrap().map(|of| of.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["aside", "fw.flows", "t.pcap"]);
    assert!(!has_any(&aside), "what sorting has put aside is gone");
}

#[test]
fn tables_are_limited_to_100_rows_with_a_note() {
    let folder = folder();
    let (out, err) = query(folder.path(), &["SELECT packet FROM packets", "t.pcap"], 0);
    assert_eq!(out.lines().count(), 104);
    assert!(err.contains("after 100 rows; use --rows 0"), "{err}");
    let (out, err) = query(folder.path(), &["SELECT packet FROM packets", "t.pcap", "--rows", "0"], 0);
    assert_eq!((out.lines().count(), err.as_str()), (504, ""));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = folder();
    let mut reader = Command::new("sh");
    let binary = flowlane().get_program().to_owned();
    let asked = "\"$0\" query 'SELECT * FROM packets a, packets b' t.pcap --format csv 2>err.txt | head -1 > /dev/null";
    let done = reader.args(["-c", asked]).arg(binary).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success());
    assert_eq!(std::fs::read_to_string(folder.path().join("err.txt")).unwrap(), "");
}

#[test]
fn exceeding_the_memory_limit_exits_with_3() {
    let folder = folder();
    let sql = "SELECT a.frame, count(*) FROM packets a, packets b GROUP BY 1, b.frame";
    let (_, err) = query(folder.path(), &[sql, "t.pcap", "--memory-max", "100000"], 3);
    assert!(err.contains("raise --memory-max"), "{err}");
}

#[test]
fn columnar_verdicts_are_selected_by_name() {
    let folder = folder();
    std::fs::write(folder.path().join("more.flows"), "priority=7,ip,nw_proto=6,actions=output:9\n").unwrap();
    let lists = "classify --rules fw.flows --also more.flows --trace t.pcap";
    run(folder.path(), &format!("{lists} --output v.csv --threads 2"), 0);
    let wanted = std::fs::read_to_string(folder.path().join("v.csv")).unwrap();
    for name in ["v.parquet", "v.arrow"] {
        run(folder.path(), &format!("{lists} --output {name} --threads 2"), 0);
        let sql = format!("SELECT * FROM '{name}' ORDER BY packet");
        let (out, _) = query(folder.path(), &[&sql, "--format", "csv"], 0);
        assert!(out == wanted, "{name}");
    }
    let (_, err) = run(folder.path(), &format!("{lists} --output v.parquet --json"), 2);
    assert!(err.contains("--json does not apply to columnar output"), "{err}");
    assert!(!folder.path().join("v.parquet.partial").exists());
}
