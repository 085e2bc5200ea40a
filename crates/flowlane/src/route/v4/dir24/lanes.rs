//! A register of addresses at a time; half a register where next hops have eight bytes.

use super::scalar;
use super::table::Table;
use crate::isa::simd::{Kernel, Vector};
use crate::route::cell::Cell;

/// Looks up a batch of addresses.
pub(super) struct LookupBatch<'a, W: Cell> {
    pub(super) table: &'a Table<W>,
    pub(super) addresses: &'a [u32],
    /// As long as `addresses`.
    pub(super) next_hops: &'a mut [u64],
}

impl<W: Cell, V: Vector> Kernel<V> for LookupBatch<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: V) {
        let Self { table, addresses, next_hops } = self;
        let whole = addresses.len() - addresses.len() % V::LANES;
        let (groups, rest) = addresses.split_at(whole);
        let (answers, rest_answers) = next_hops.split_at_mut(whole);
        for (addresses, next_hops) in groups.chunks_exact(V::LANES).zip(answers.chunks_exact_mut(V::LANES)) {
            match W::BYTES {
                1 => lookup::<V, W, 1>(isa, table, addresses, next_hops),
                2 => lookup::<V, W, 2>(isa, table, addresses, next_hops),
                4 => lookup::<V, W, 4>(isa, table, addresses, next_hops),
                _ => lookup_wide(isa, table, addresses, next_hops),
            }
        }
        scalar::lookup_batch(table, rest, rest_answers);
    }
}

/// Looks up a register of addresses. Entries of up to four bytes are read as four: padding follows the last one.
#[inline(always)]
fn lookup<V: Vector, W: Cell, const BYTES: usize>(
    isa: V,
    table: &Table<W>,
    addresses: &[u32],
    next_hops: &mut [u64],
) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    let keep = isa.splat(u32::MAX >> (32 - 8 * BYTES));
    let addresses = isa.load(addresses);
    // SAFETY: an index has 24 bits, and the table 2²⁴ entries and padding.
    let mut entries = unsafe { isa.gather::<BYTES>(tbl24, isa.shr(addresses, 8)) };
    entries = isa.and(entries, keep);
    let long = isa.odd(entries);
    if isa.any(long) {
        let within = isa.and(addresses, isa.splat(0xff));
        let index = isa.or(isa.shl(isa.shr(entries, 1), 8), within);
        // SAFETY: an odd entry holds the number of one of the table's groups.
        entries = unsafe { isa.gather_in::<BYTES>(tbl8, index, long, entries) };
        entries = isa.and(entries, keep);
    }
    isa.store_widened(isa.shr(entries, 1), next_hops);
}

/// Looks up a register of addresses, half a register at a time, in entries of eight bytes.
#[inline(always)]
fn lookup_wide<V: Vector, W: Cell>(isa: V, table: &Table<W>, addresses: &[u32], next_hops: &mut [u64]) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    for half in [0, V::LANES / 2] {
        let addresses = isa.load_half(&addresses[half..]);
        // SAFETY: an index has 24 bits, and the table 2²⁴ entries.
        let mut entries = unsafe { isa.gather_wide(tbl24, isa.shr_half(addresses, 8)) };
        let long = isa.odd_wide(entries);
        if isa.any_wide(long) {
            let group = isa.narrow(isa.shl_wide(isa.shr_wide(entries, 1), 8));
            let index = isa.or_half(group, isa.and_half(addresses, 0xff));
            // SAFETY: an odd entry holds the number of one of the table's groups.
            entries = unsafe { isa.gather_wide_in(tbl8, index, long, entries) };
        }
        isa.store_wide(isa.shr_wide(entries, 1), &mut next_hops[half..]);
    }
}
