//! The host device sees errors that are planted in kernels (`host/faults.cu`): otherwise its silence about others would
//! mean nothing.

use crate::host_device::{INSIDE, on_host_device, run};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

const THREADS: u32 = 64;

/// Runs a kernel on multiples of three.
fn launch(kernel: &str) -> Vec<u32> {
    let context = CudaContext::new(0).expect("the host device");
    let stream = context.default_stream();
    let module =
        context.load_module(Ptx::from_binary(flowlane_gpu::device::KERNELS.to_vec())).expect("kernels");
    let function = module.load_function(kernel).expect("a kernel of the host device");
    let given: Vec<u32> = (0..THREADS).map(|i| i * 3).collect();
    let given = stream.clone_htod(&given).expect("room");
    let mut made = stream.alloc_zeros::<u32>(THREADS as usize).expect("room");
    let shape =
        LaunchConfig { grid_dim: (1, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 4 * THREADS };
    // SAFETY: two arrays of `THREADS` words, as the kernel has it; its further accesses are under test, in a process of
    // its own.
    unsafe { stream.launch_builder(&function).arg(&given).arg(&mut made).launch(shape) }.expect("a launch");
    stream.clone_dtoh(&made).expect("the device works")
}

/// The process that launches the kernel must die and say this.
fn dies_with(test: &str, kernel: &str, words: &[&str]) {
    if std::env::var_os(INSIDE).is_some() {
        launch(kernel);
        return;
    }
    let Some(output) = run(test, "") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{kernel} ended well:\n{text}");
    for word in words {
        assert!(text.contains(word), "{kernel} does not say `{word}`:\n{text}");
    }
}

#[test]
fn a_kernel_without_an_error_runs() {
    on_host_device("a_kernel_without_an_error_runs", "", || {
        let expected: Vec<u32> = (0..THREADS).map(|i| (THREADS - 1 - i) * 3).collect();
        assert_eq!(launch("fault_none"), expected);
    });
}

#[test]
fn a_write_behind_the_end_of_device_memory_is_caught_at_its_line() {
    let test = "a_write_behind_the_end_of_device_memory_is_caught_at_its_line";
    dies_with(test, "fault_bounds", &["heap-buffer-overflow", "fault_bounds", "faults.cu"]);
}

#[test]
fn a_write_behind_the_end_of_shared_memory_is_caught_at_its_line() {
    let test = "a_write_behind_the_end_of_shared_memory_is_caught_at_its_line";
    dies_with(test, "fault_shared", &["heap-buffer-overflow", "fault_shared", "faults.cu"]);
}

#[test]
fn a_collective_that_some_lanes_never_reach_is_said() {
    dies_with("a_collective_that_some_lanes_never_reach_is_said", "fault_stuck", &["wait for each other"]);
}

#[test]
fn a_missing_barrier_makes_wrong_answers() {
    on_host_device("a_missing_barrier_makes_wrong_answers", "", || {
        let expected: Vec<u32> = (0..THREADS).map(|i| (THREADS - 1 - i) * 3).collect();
        assert_ne!(launch("fault_barrier"), expected);
    });
}
