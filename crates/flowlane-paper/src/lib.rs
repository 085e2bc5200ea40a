//! The designs of published papers, as baselines for measurements.
//!
//! No packet path uses this crate: `flowlane bench` measures it, `flowlane classify` selects the OpenCL engines by
//! name, and the tests here compare every design with the library's definitions.
//!
//! | module | design | source |
//! |---|---|---|
//! | [`bloom`] | lanes that are refilled as their keys are decided | *Leveraging SIMD Parallelism for Accelerating Network Applications*, §3.1 |
//! | [`megaflow`] | columns of the majority's miniflows; hashes of a batch under a mask | *Leveraging SIMD Parallelism*, §3.2 |
//! | [`tunnel`] | endpoints packet by packet, with one or eight cached | VPP; Intel, *Packet Processing with Intel AVX-512*, §5.2 |
//! | `opencl` | linear, tuple and Bloom search on the cores of a CPU (feature `opencl`) | *Multi-Layer Packet Classification with Graphics Processing Units*, VI-B |

#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(
        dead_code,
        unreachable_code,
        unused_mut,
        unused_variables,
        reason = "all its bodies are for x86-64"
    )
)]
pub mod bloom;
pub mod megaflow;
#[cfg(feature = "opencl")]
pub mod opencl;
pub mod tunnel;
