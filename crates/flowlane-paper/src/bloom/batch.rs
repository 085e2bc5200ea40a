//! One batch of keys, with room for its survivors.

use flowlane::bloom::Bits;

/// Keys with payloads, and room for as many of them as may survive.
pub(super) struct Batch<'a> {
    /// As long as `payloads`.
    pub(super) keys: &'a [u32],
    pub(super) payloads: &'a [u32],
    pub(super) out: Out<'a>,
}

/// Where survivors go.
pub(super) struct Out<'a> {
    /// As long as `payloads`, and as the batch.
    pub(super) keys: &'a mut [u32],
    pub(super) payloads: &'a mut [u32],
    /// Survivors so far.
    pub(super) len: usize,
}

impl<'a> Batch<'a> {
    /// Checks what the kernels' unsafe loads and stores rely on.
    ///
    /// # Panics
    /// Where there are not as many payloads as keys, or less room than keys.
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

/// One algorithm.
#[cfg(target_arch = "x86_64")]
pub(super) trait Survive {
    /// Leaves the survivors in the batch's `out`, `U` vectors side by side.
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>);
}

/// Decides the keys that are still in their lanes: those that are not `done`, a bit each.
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

/// One key after the other: what is left of a batch when fewer keys than lanes are.
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
