//! Running the binary, and finding test data.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assert_cmd::Command;

/// The `flowlane` binary, isolated from the user's kernel selection and OpenCL cache.
pub(crate) fn flowlane() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.env("FLOWLANE_TUNE", "/dev/null").env_remove("CLICOLOR_FORCE");
    command.env("POCL_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/pocl"));
    command
}

/// Runs the binary with arguments split at spaces; checks the exit code; returns standard output and standard error.
#[track_caller]
pub(crate) fn run(folder: &Path, arguments: &str, code: i32) -> (String, String) {
    let output = flowlane().current_dir(folder).args(arguments.split_whitespace()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(!out.contains('\x1b') && !err.contains('\x1b'), "colours without a terminal\n{out}\n{err}");
    assert_eq!(output.status.code(), Some(code), "flowlane {arguments}\n{out}\n{err}");
    (out, err)
}

/// Returns the directory of examples in the repository.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Returns a directory of the test data, if present.
pub(crate) fn data(folder: &str) -> Option<PathBuf> {
    flowlane::testing::data(folder)
}

/// Waits until something is so, for longer than it takes on a busy machine.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
