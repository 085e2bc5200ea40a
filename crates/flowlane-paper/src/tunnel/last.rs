//! The endpoint of the previous packet: a cache of one entry.

use super::recent::{Recent, same};

/// The key and endpoint of the previous packet. A key's tag is never 0, so zeros match no key.
#[derive(Clone, Debug)]
pub(super) struct LastEndpoint<const W: usize> {
    key: [u32; W],
    endpoint: u32,
}

impl<const W: usize> LastEndpoint<W> {
    pub(super) fn new() -> Self {
        Self { key: [0; W], endpoint: 0 }
    }
}

impl<const W: usize> Recent<W> for &mut LastEndpoint<W> {
    #[inline(always)]
    fn find(&mut self, key: &[u32; W]) -> Option<u32> {
        same(&self.key, key).then_some(self.endpoint)
    }

    #[inline(always)]
    fn keep(&mut self, key: &[u32; W], endpoint: u32) {
        self.key = *key;
        self.endpoint = endpoint;
    }

    fn clear(&mut self) {
        **self = LastEndpoint::new();
    }
}
