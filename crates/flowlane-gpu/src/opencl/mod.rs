//! The paper's kernels on the cores of a CPU: `opencl/`, compiled by the machine's OpenCL.
//!
//! Varvello and others port their CUDA kernels to OpenCL to hold a device against a CPU of eight cores (VI-B, Figure 6). These
//! are ports of ours, over the same tables. They are here to be compared with: the CPU's own engines are in
//! [`flowlane::classify::acl`].
//!
//! Nothing is linked: the library is loaded when a device is asked for, and [`GpuError`](crate::GpuError) says what is missing.
//!
//! ```no_run
//! use flowlane::classify::acl::{Condition, Entry, Layout, RankKey};
//! use flowlane::rule::{Priority, RuleId};
//! use flowlane_gpu::opencl::{ClDevice, ClMethod, ClTable};
//!
//! let device = ClDevice::open(0)?;
//! let kinds = *Layout::ipv4_five_tuple().kinds();
//! let condition = Condition::any(&kinds);
//! let entry = Entry { condition, rank: RankKey::new(Priority(1), 0), rule: RuleId(7), categories: 1 };
//! let table = ClTable::build(&device, ClMethod::Bloom, &kinds, &[entry], 0x5eed, 8192)?;
//! let mut hits = [None];
//! table.lookup_batch(&[[0, 6, 1, 2]], &mut hits)?;
//! assert_eq!(hits[0].map(|hit| hit.rule), Some(RuleId(7)));
//! # Ok::<(), flowlane_gpu::GpuError>(())
//! ```

mod classifier;
mod device;
mod library;
mod program;
mod table;

pub use self::classifier::ClSearch;
pub use self::device::{ClDevice, ClProperties, all};
pub use self::program::ClMethod;
pub use self::table::ClTable;
