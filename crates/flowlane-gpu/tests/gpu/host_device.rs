//! Tests of kernels without a GPU: a driver whose device is the CPU (`host/`), compiled with sanitizers, takes the place
//! of `libcuda` in a process of its own.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Set in the process that has the driver.
pub(crate) const INSIDE: &str = "FLOWLANE_HOST_DEVICE_TEST";

/// The folder of the driver and the library of the sanitizer; `None` without a C++ compiler.
fn driver() -> Option<&'static (PathBuf, PathBuf)> {
    static DRIVER: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    DRIVER.get_or_init(compile).as_ref()
}

fn compiler() -> OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// Sanitizers of the driver; the first error ends the process.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[track_caller]
fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn compile() -> Option<(PathBuf, PathBuf)> {
    let asan = Command::new(compiler()).arg("-print-file-name=libasan.so").output().ok()?;
    let asan = PathBuf::from(String::from_utf8(asan.stdout).ok()?.trim());
    if !asan.is_absolute() {
        return None;
    }
    let sources: Vec<PathBuf> = ["host", "kernels"].into_iter().flat_map(files).collect();
    // Compiled once for these sources, whichever test or test run comes first.
    let mut hasher = DefaultHasher::new();
    sources.iter().for_each(|file| fs::read(file).expect("a source").hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-device-{:016x}", hasher.finish()));
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return Some((folder, asan));
    }
    fs::create_dir_all(&folder).expect("the folder for test files can be written");
    // The sources are compiled at the same time. Line tables are enough for the reports of the sanitizers.
    let flags = ["-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"];
    let objects: Vec<(PathBuf, Child)> = sources
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "cpp"))
        .map(|source| {
            let name = source.file_stem().expect("a file").to_string_lossy();
            let object = folder.join(format!("{}-{name}.o", std::process::id()));
            let mut command = Command::new(compiler());
            command.args(flags).args(SANITIZERS).args(["-c", "-x", "c++"]).arg(source).arg("-o").arg(&object);
            (object, command.stderr(Stdio::piped()).spawn().expect("the compiler answered before"))
        })
        .collect();
    let mut link = Command::new(compiler());
    link.args(SANITIZERS).arg("-shared");
    for (object, compiling) in objects {
        check(&compiling.wait_with_output().expect("the compiler ends"));
        link.arg(object);
    }
    let unfinished = folder.join(format!("{}.so", std::process::id()));
    check(&link.arg("-o").arg(&unfinished).output().expect("the compiler answered before"));
    fs::rename(&unfinished, &library).expect("the same folder");
    Some((folder, asan))
}

/// The files of a folder of this crate, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Runs this test of this binary in a process that has the driver, with a device that misbehaves as `device` says.
pub(crate) fn run(test: &str, device: &str) -> Option<Output> {
    let Some((folder, asan)) = driver() else {
        println!("skipped: no C++ compiler with an address sanitizer");
        return None;
    };
    let output = Command::new(std::env::current_exe().expect("a test binary"))
        .args([test, "--nocapture"])
        .env(INSIDE, "1")
        .env("FLOWLANE_HOST_DEVICE", device)
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", asan)
        .env("ASAN_OPTIONS", "detect_leaks=0,detect_stack_use_after_return=0")
        .output()
        .expect("the binary runs");
    Some(output)
}

/// Runs the body where the driver is: in this process if that is the one, or else in another, which must succeed.
pub(crate) fn on_host_device(test: &str, device: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let Some(output) = run(test, device) else { return };
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {}\n{text}", output.status);
    print!("{text}");
}
