//! A batch of keys with a buffer for its survivors.

use flowlane::bloom::Bits;

/// Keys with payloads, and a buffer for the survivors.
pub(super) struct Batch<'a> {
    /// The keys; as long as `payloads`.
    pub(super) keys: &'a [u32],
    pub(super) payloads: &'a [u32],
    pub(super) out: Out<'a>,
}

/// The buffer for survivors.
pub(super) struct Out<'a> {
    /// The keys; as long as `payloads` and the batch.
    pub(super) keys: &'a mut [u32],
    pub(super) payloads: &'a mut [u32],
    /// The number of survivors.
    pub(super) len: usize,
}

impl<'a> Batch<'a> {
    /// Checks the lengths on which the kernels' unsafe loads and stores rely.
    ///
    /// # Panics
    /// Panics if the numbers of keys and payloads differ, or if a buffer is shorter than the batch.
    pub(super) fn new(
        keys: &'a [u32],
        payloads: &'a [u32],
        out_keys: &'a mut [u32],
        out_payloads: &'a mut [u32],
    ) -> Self {
        assert_eq!(keys.len(), payloads.len(), "as many payloads as keys");
        let room = keys.len();
        let out = Out { keys: &mut out_keys[..room], payloads: &mut out_payloads[..room], len: 0 };
        Self { keys, payloads, out }
    }
}

/// A Bloom filter kernel.
#[cfg(target_arch = "x86_64")]
pub(super) trait Survive {
    /// Writes the survivors to the batch's `out`, with `U` vectors unrolled.
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>);
}

/// Decides the keys that are still in their lanes, those without a bit in `done`.
#[cfg(target_arch = "x86_64")]
pub(super) fn in_flight<const LANES: usize>(
    bits: Bits<'_>,
    keys: [u32; LANES],
    payloads: [u32; LANES],
    done: u16,
    out: &mut Out<'_>,
) {
    for lane in (0..LANES).filter(|lane| done >> lane & 1 == 0) {
        rest(bits, &keys[lane..=lane], &payloads[lane..=lane], out);
    }
}

/// Tests keys one by one: the rest of a batch that is shorter than the lanes.
#[inline]
pub(super) fn rest(bits: Bits<'_>, keys: &[u32], payloads: &[u32], out: &mut Out<'_>) {
    for (&key, &payload) in keys.iter().zip(payloads) {
        if bits.contains(key) {
            out.keys[out.len] = key;
            out.payloads[out.len] = payload;
            out.len += 1;
        }
    }
}
