//! Engines on CUDA devices: without a driver, without a device, and with a device whose kernels run on the CPU (see
//! `crates/flowlane-gpu/host`); and engines on the CPU through OpenCL, with and without OpenCL.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

const RULES: &str = "\
@10.0.0.0/8\t192.168.0.0/16\t0 : 65535\t80 : 80\t0x06/0xFF
@10.1.0.0/16\t0.0.0.0/0\t0 : 65535\t0 : 1023\t0x00/0x00
@0.0.0.0/0\t192.168.1.0/24\t1024 : 65535\t53 : 53\t0x11/0xFF
";
const TRACE: &str = "\
167772161\t3232235521\t1000\t80\t6\t0
167837697\t1\t1000\t443\t6\t0
1\t3232235777\t2000\t53\t17\t0
1\t2\t3\t4\t6\t0
";

/// Creates input files in a directory.
fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("some.rules"), RULES).expect("written");
    std::fs::write(folder.path().join("some.trace"), TRACE).expect("written");
    folder
}

fn flowlane(folder: &Path) -> Command {
    let mut command = Command::cargo_bin("flowlane").expect("it is built");
    // OpenCL's compiler cache is removed with the test.
    command.current_dir(folder).env("POCL_CACHE_DIR", folder.join("pocl"));
    command
}

fn classify(folder: &Path, engine: &str) -> Command {
    let mut command = flowlane(folder);
    command.args(["classify", "--rules", "some.rules", "--trace", "some.trace", "--engine", engine]);
    command
}

/// Compiles a library `libcuda.so.1`; `None` without a compiler. The file appears atomically, because tests run
/// concurrently.
fn driver(folder: &Path, sources: &[PathBuf]) -> Option<()> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let made = folder.join(format!("libcuda.{}", std::process::id()));
    let output = Process::new(compiler)
        .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o"])
        .arg(&made)
        .args(["-x", "c++"])
        .args(sources)
        .output();
    let Ok(output) = output else {
        println!("skipped: no C++ compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(made, folder.join("libcuda.so.1")).expect("renamed");
    Some(())
}

/// Returns the driver whose device is the CPU, compiled once.
fn host_device(folder: &Path) -> Option<()> {
    static COMPILED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flowlane-gpu/host");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
        std::fs::create_dir_all(&folder).expect("a folder for test files");
        driver(&folder, &["kernels", "threads", "driver"].map(|file| host.join(format!("{file}.cpp"))))?;
        Some(folder.join("libcuda.so.1"))
    });
    std::fs::copy(compiled.as_ref()?, folder.join("libcuda.so.1")).expect("copied");
    Some(())
}

#[test]
fn gpu_engines_without_a_driver_exit_with_3() {
    let folder = files();
    if std::fs::exists("/dev/nvidiactl").unwrap_or(false) {
        println!("skipped: there is a driver");
        return;
    }
    let why = contains("no CUDA driver").and(contains("take an engine for the CPU"));
    classify(folder.path(), "gpu").assert().code(3).stderr(why);
    classify(folder.path(), "auto").assert().success();
    let mut cpu = Command::cargo_bin("flowlane").expect("it is built");
    cpu.arg("cpu").assert().success().stdout(contains("none: no CUDA driver"));
}

#[test]
fn without_a_device_gpu_engines_fail_and_auto_uses_the_cpu() {
    let folder = files();
    let source = folder.path().join("none.cpp");
    let none = "extern \"C\" __attribute__((visibility(\"default\"))) int cuInit(unsigned) { return 100; }\n\
         extern \"C\" __attribute__((visibility(\"default\"))) int cuGetErrorName(int, const char **name) {\n\
         *name = \"CUDA_ERROR_NO_DEVICE\"; return 0; }\n";
    std::fs::write(&source, none).expect("written");
    let Some(()) = driver(folder.path(), &[source]) else { return };
    let mut gpu = classify(folder.path(), "gpu-bloom");
    gpu.env("LD_LIBRARY_PATH", folder.path());
    gpu.assert().code(3).stderr(contains("no CUDA device").and(contains("CUDA_ERROR_NO_DEVICE")));
    classify(folder.path(), "auto").env("LD_LIBRARY_PATH", folder.path()).assert().success();
}

#[test]
fn gpu_engines_agree_with_linear_search_and_report_device_limits() {
    let folder = files();
    let Some(()) = host_device(folder.path()) else { return };
    let with = |engine: &str, device: &str| {
        let mut command = classify(folder.path(), engine);
        command.env("LD_LIBRARY_PATH", folder.path()).env("FLOWLANE_HOST_DEVICE", device);
        command
    };
    let linear = classify(folder.path(), "linear").assert().success();
    let answers = String::from_utf8(linear.get_output().stdout.clone()).expect("text");
    for engine in ["gpu-linear", "gpu-tuple", "gpu-bloom", "gpu-vector", "gpu-filtered", "gpu-pruned", "gpu"]
    {
        let done = with(engine, "").arg("--check").assert().success();
        done.stdout(answers.clone()).stderr(contains("host device"));
    }
    let vanished = contains("then the CPU: the device failed");
    with("gpu-linear", "vanish=3").arg("--check").assert().success().stderr(vanished);
    with("gpu-linear", "memory=100").assert().code(3).stderr(contains("bytes of device memory"));
    with("gpu-linear", "").args(["--device", "4"]).assert().code(3).stderr(contains("not number 4"));
    with("gpu-quick", "")
        .assert()
        .code(2)
        .stderr(contains("no engine `gpu-quick`").and(contains("gpu-pruned")));
    let mut cpu = Command::cargo_bin("flowlane").expect("it is built");
    cpu.arg("cpu").env("LD_LIBRARY_PATH", folder.path());
    cpu.assert().success().stdout(contains("capability 9.0"));
}

#[test]
fn bench_gpu_runs_with_a_device_and_reports_its_absence() {
    let folder = files();
    let Some(()) = host_device(folder.path()) else { return };
    let bench = || {
        let mut command = flowlane(folder.path());
        command.env("LD_LIBRARY_PATH", folder.path()).args(["bench", "gpu", "--quick", "--rounds", "1"]);
        command
    };
    bench().assert().success().stdout(contains("Figure 7").and(contains("gpu-pruned")));
    let none = bench().env("FLOWLANE_HOST_DEVICE", "no-device").assert().success();
    none.stdout(
        contains("Figure 6(b)").and(contains("CUDA_ERROR_NO_DEVICE")).and(contains("Figure 7").not()),
    );
}

/// Creates an invalid file with the name of OpenCL's library, found first.
fn no_opencl(folder: &Path) {
    std::fs::write(folder.join("libOpenCL.so.1"), "no library").expect("written");
}

#[test]
fn opencl_engines_without_opencl_exit_with_3_and_bench_omits_them() {
    let folder = files();
    no_opencl(folder.path());
    let path = folder.path();
    for engine in ["opencl-linear", "opencl-tuple", "opencl-bloom"] {
        let said = contains("no OpenCL").and(contains("take another engine"));
        classify(path, engine).env("LD_LIBRARY_PATH", path).assert().code(3).stderr(said);
    }
    let unknown = contains("no engine `opencl-quick`").and(contains("opencl-bloom"));
    classify(path, "opencl-quick").assert().code(2).stderr(unknown);
    let cpu = flowlane(path).env("LD_LIBRARY_PATH", path).arg("cpu").assert().success();
    cpu.stdout(contains("none: no OpenCL"));
    let mut bench = flowlane(path);
    bench.env("LD_LIBRARY_PATH", path).args(["bench", "gpu", "--quick", "--rounds", "1"]);
    let left_out = contains("dynamic").and(contains("Left out:")).and(contains("no OpenCL"));
    bench.assert().success().stdout(left_out.and(contains("opencl-bloom  ").not()));
}

#[test]
fn opencl_engines_agree_with_linear_search() {
    let folder = files();
    let linear = classify(folder.path(), "linear").assert().success();
    let answers = String::from_utf8(linear.get_output().stdout.clone()).expect("text");
    let cpu = flowlane(folder.path()).arg("cpu").assert().success();
    let cpu = String::from_utf8(cpu.get_output().stdout.clone()).expect("text");
    if !cpu.contains("OpenCL device 0") {
        println!("skipped: no OpenCL for the CPU");
        return;
    }
    for engine in ["opencl-linear", "opencl-tuple", "opencl-bloom"] {
        let done = classify(folder.path(), engine).args(["--check", "--batch", "3"]).assert().success();
        done.stdout(answers.clone()).stderr(contains("opencl").and(contains("device")));
    }
    let fewer = contains("not number 9");
    classify(folder.path(), "opencl-tuple").args(["--device", "9"]).assert().code(3).stderr(fewer);
    let small = contains("bytes of device memory");
    classify(folder.path(), "opencl-tuple").args(["--memory-max", "9"]).assert().code(3).stderr(small);
}

/// Runs the example with a device table, with a changed configuration.
fn gswitch(folder: &Path, change: impl Fn(String) -> String, device: Option<&str>) -> serde_json::Value {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    std::fs::copy(examples.join("quickstart.pcap"), folder.join("quickstart.pcap")).expect("copied");
    let config = std::fs::read_to_string(examples.join("gswitch.toml")).expect("an example");
    std::fs::write(folder.join("gswitch.toml"), change(config)).expect("written");
    let mut switch = Command::cargo_bin("flowlane").expect("it is built");
    switch.current_dir(folder).args(["switch", "run", "gswitch.toml", "--packets", "400", "--json"]);
    if let Some(device) = device {
        switch.env("LD_LIBRARY_PATH", folder).env("FLOWLANE_HOST_DEVICE", device);
    }
    let done = switch.assert().success();
    serde_json::from_slice(&done.get_output().stdout).expect("JSON")
}

#[test]
fn switches_with_and_without_a_device_table_forward_alike() {
    let folder = files();
    let Some(()) = host_device(folder.path()) else { return };
    let without = gswitch(folder.path(), |config| config.replace("\"gpu\"", "\"tuple\""), None);
    assert!(without["waiting"].is_null() && without["ports"][2]["tx_packets"].as_u64() > Some(100));
    let small = |config: String| config.replace("8192", "100");
    // With few packets in flight, replies arrive before the last packets.
    let cached = |config: String| config.replace("8192", "20").replace("megaflows_max = 0", "");
    let same = |with: &serde_json::Value| {
        assert_eq!(with["ports"], without["ports"]);
        for table in 0..2 {
            assert_eq!(with["tables"][table]["rules"], without["tables"][table]["rules"]);
            assert_eq!(with["tables"][table]["missed_packets"], without["tables"][table]["missed_packets"]);
        }
    };
    let gathered = gswitch(folder.path(), small, Some(""));
    same(&gathered);
    assert_eq!(gathered["waiting"]["asked_packets"], gathered["ports"][0]["rx_packets"]);
    assert!(gathered["tables"][0]["trouble"].is_null());
    let misses = gswitch(folder.path(), cached, Some(""));
    same(&misses);
    let asked = misses["waiting"]["asked_packets"].as_u64().expect("a number");
    let received = misses["ports"][0]["rx_packets"].as_u64().expect("a number");
    assert!((1..received).contains(&asked), "only what the caches do not know: {asked} of {received}");
    // Measuring engines uses launches as well; then the device disappears.
    let fixed = |config: String| small(config).replace("\"auto\"", "\"filtered\"");
    let vanished = gswitch(folder.path(), fixed, Some("vanish=5"));
    same(&vanished);
    assert!(vanished["tables"][0]["trouble"].as_str().is_some_and(|why| why.contains("the device failed")));
}

#[test]
fn a_switch_with_a_missing_device_exits_with_3() {
    let folder = files();
    if std::fs::exists("/dev/nvidiactl").unwrap_or(false) {
        println!("skipped: there is a driver");
        return;
    }
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gswitch.toml");
    let flowlane = |args: &[&str]| {
        let mut command = Command::cargo_bin("flowlane").expect("it is built");
        command.current_dir(folder.path()).arg("switch").args(args).arg(&config);
        command.assert()
    };
    flowlane(&["check"]).success();
    flowlane(&["run"]).code(3).stderr(contains("engine = \"gpu\"").and(contains("no CUDA driver")));
}
