//! Eight separators in a register.

use std::arch::x86_64::*;

use super::View;
use super::batch::{self, Lanes};
use super::layout::{LEAF_SPANS, Word};
use crate::isa::Avx2;

/// Private to [`lookup`], whose target features it needs.
#[derive(Clone, Copy)]
struct Ymm;

impl Ymm {
    /// How many of eight separators are below `key`.
    #[inline(always)]
    fn below(view: View<'_>, line: u32, half: usize, key: i32) -> usize {
        debug_assert!((line as usize) < view.lines.len());
        // SAFETY: words that lead to lines lead to lines of the table, whole ones. Nothing is written there as
        // long as readers may be there. Only `all` makes bodies with this type, and it has AVX2.
        unsafe {
            let start = view.lines.as_ptr().add(line as usize).cast::<__m256i>();
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(key), _mm256_load_si256(start.add(half)));
            _mm256_movemask_ps(_mm256_castsi256_ps(below)).count_ones() as usize
        }
    }
}

impl Lanes for Ymm {
    #[inline(always)]
    fn separators_below(self, view: View<'_>, line: u32, key: i32) -> usize {
        Self::below(view, line, 0, key) + Self::below(view, line, 1, key)
    }

    #[inline(always)]
    fn span(self, view: View<'_>, line: u32, key: i32) -> Word {
        let span = Self::below(view, line, 0, key);
        Word(
            view.lines[line as usize][LEAF_SPANS + span % LEAF_SPANS]
                .load(std::sync::atomic::Ordering::Relaxed),
        )
    }
}

/// Looks any number of addresses up.
pub(super) fn lookup(_: Avx2, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
    unsafe { all(view, addresses, next_hops) }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn all(view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    batch::lookup(Ymm, view, addresses, next_hops);
}
