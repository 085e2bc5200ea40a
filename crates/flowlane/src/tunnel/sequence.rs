//! The sequence numbers of a tunnel's packets (RFC 2890).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The sequence numbers of a tunnel that leave, from 0 on. Clones count together, so that the workers of a switch share the numbers of
/// a tunnel.
#[derive(Clone, Debug, Default)]
pub struct Sequence(Arc<AtomicU32>);

impl Sequence {
    /// Takes the next number.
    #[inline]
    pub(super) fn take(&self) -> u32 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// How far a sequence is makes no difference between two tunnels.
impl PartialEq for Sequence {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sequence {}
