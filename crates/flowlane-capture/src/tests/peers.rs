//! Numbers of packets, compared with those of tcpdump and capinfos where they are installed.

use std::path::Path;
use std::process::Command;

use super::records::samples;
use super::*;

/// The packets that a program counts; `None` if it is not installed, or reports a damaged file.
fn counted(program: &str, arguments: &[&str], path: &Path) -> Option<u64> {
    let done = Command::new(program).args(arguments).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let mut numbers = text.split_whitespace().rev().filter_map(|word| word.parse().ok());
    numbers.next().filter(|_| done.status.success())
}

/// The packets of a capture, unreadable ones included; `None` if the file is damaged, or none of its packets can be read.
fn packets(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).unwrap();
    match read_all(&bytes) {
        (frames, None) => Some(frames.len() as u64),
        (frames, Some(CaptureError::Skipped { records, end: None, .. })) => {
            Some(frames.len() as u64 + records)
        }
        _ => None,
    }
}

#[test]
fn as_many_packets_are_read_as_tcpdump_and_capinfos_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = captures();
    for (name, bytes) in samples() {
        all.push(folder.path().join(name));
        std::fs::write(all.last().unwrap(), bytes).unwrap();
    }
    for (program, arguments) in [("tcpdump", &["--count", "-r"][..]), ("capinfos", &["-c", "-M", "-T", "-r"])]
    {
        let mut compared = 0;
        for path in &all {
            let Some(theirs) = counted(program, arguments, path) else { continue };
            let Some(ours) = packets(path) else { continue };
            assert_eq!(ours, theirs, "{program}: {}", path.display());
            compared += 1;
        }
        match compared {
            0 => println!("skipped: {program} is not installed"),
            n => println!("{program}: {n} captures compared"),
        }
    }
}
