//! Some registers of addresses at a time; half a register where next hops have eight bytes.

use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;

use super::scalar;
use super::table::Table;
use crate::isa::simd::{Kernel, Vector};
use crate::route::cell::Cell;

/// Registers of addresses that are looked up together.
const TOGETHER: usize = 4;

/// Registers of addresses that are looked up together where `tbl8` is read without a branch: of more, the first would wait for the last.
const TOGETHER_LONG: usize = 2;

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
        let (mut rest, mut answers) = (addresses, next_hops);
        if table.always_reads_groups() {
            (rest, answers) = groups::<V, W, TOGETHER_LONG, true>(isa, table, rest, answers);
            (rest, answers) = groups::<V, W, 1, true>(isa, table, rest, answers);
        } else {
            (rest, answers) = groups::<V, W, TOGETHER, false>(isa, table, rest, answers);
            (rest, answers) = groups::<V, W, 1, false>(isa, table, rest, answers);
        }
        scalar::lookup_batch(table, rest, answers);
    }
}

/// Looks up as many groups of `N` registers of addresses as there are, and returns the rest. `ALWAYS`: see [`lookup`].
#[inline(always)]
fn groups<'a, V: Vector, W: Cell, const N: usize, const ALWAYS: bool>(
    isa: V,
    table: &Table<W>,
    addresses: &'a [u32],
    next_hops: &'a mut [u64],
) -> (&'a [u32], &'a mut [u64]) {
    let size = N * V::LANES;
    let whole = addresses.len() - addresses.len() % size;
    let (groups, rest) = addresses.split_at(whole);
    let (answers, rest_answers) = next_hops.split_at_mut(whole);
    for (addresses, next_hops) in groups.chunks_exact(size).zip(answers.chunks_exact_mut(size)) {
        match W::BYTES {
            1 => lookup::<V, W, 1, N, ALWAYS>(isa, table, addresses, next_hops),
            2 => lookup::<V, W, 2, N, ALWAYS>(isa, table, addresses, next_hops),
            4 => lookup::<V, W, 4, N, ALWAYS>(isa, table, addresses, next_hops),
            _ => {
                let registers = addresses.chunks_exact(V::LANES).zip(next_hops.chunks_exact_mut(V::LANES));
                registers.for_each(|(addresses, next_hops)| {
                    lookup_wide::<V, W, ALWAYS>(isa, table, addresses, next_hops);
                });
            }
        }
    }
    (rest, rest_answers)
}

/// Looks up `N` registers of addresses. Entries of up to four bytes are read as four: padding follows the last one.
///
/// Without `ALWAYS` groups are read only where an entry leads to one; with it always, for the lanes that have such an entry. Which is faster
/// has to be measured ([`contest`](crate::route::contest)).
#[inline(always)]
fn lookup<V: Vector, W: Cell, const BYTES: usize, const N: usize, const ALWAYS: bool>(
    isa: V,
    table: &Table<W>,
    addresses: &[u32],
    next_hops: &mut [u64],
) {
    let ((tbl24, base), tbl8) = (table.first(), table.tbl8.as_ptr().cast::<u8>());
    let (keep, base) = (isa.splat(u32::MAX >> (32 - 8 * BYTES)), isa.splat(base as u32));
    let mut registers = [isa.splat(0); N];
    let mut entries = registers;
    let mut all = isa.splat(0);
    for (n, (register, entry)) in registers.iter_mut().zip(&mut entries).enumerate() {
        *register = isa.load(&addresses[n * V::LANES..]);
        // SAFETY: an index has 24 bits, and the table 2²⁴ entries and padding.
        let stored = unsafe { isa.gather::<BYTES>(tbl24, isa.shr(*register, 8)) };
        *entry = isa.and(isa.add(stored, base), keep);
        all = isa.or(all, *entry);
    }
    // Groups, and the caller's data, that were published with the entries are visible from here on, as behind acquiring loads.
    fence(Acquire);
    if ALWAYS || isa.any(isa.odd(all)) {
        for (register, entry) in registers.iter().zip(&mut entries) {
            let long = isa.odd(*entry);
            let within = isa.and(*register, isa.splat(0xff));
            let index = isa.or(isa.shl(isa.shr(*entry, 1), 8), within);
            // SAFETY: an odd entry holds the number of one of the table's groups.
            *entry = isa.and(unsafe { isa.gather_in::<BYTES>(tbl8, index, long, *entry) }, keep);
        }
        fence(Acquire);
    }
    for (n, entry) in entries.iter().enumerate() {
        isa.store_widened(isa.shr(*entry, 1), &mut next_hops[n * V::LANES..]);
    }
}

/// Looks up a register of addresses, half a register at a time, in entries of eight bytes.
#[inline(always)]
fn lookup_wide<V: Vector, W: Cell, const ALWAYS: bool>(
    isa: V,
    table: &Table<W>,
    addresses: &[u32],
    next_hops: &mut [u64],
) {
    let ((tbl24, base), tbl8) = (table.first(), table.tbl8.as_ptr().cast::<u8>());
    for half in [0, V::LANES / 2] {
        let addresses = isa.load_half(&addresses[half..]);
        // SAFETY: an index has 24 bits, and the table 2²⁴ entries.
        let mut entries = unsafe { isa.gather_wide(tbl24, isa.shr_half(addresses, 8)) };
        entries = isa.add_wide(entries, base);
        // As in `lookup`.
        fence(Acquire);
        let long = isa.odd_wide(entries);
        if ALWAYS || isa.any_wide(long) {
            let group = isa.narrow(isa.shl_wide(isa.shr_wide(entries, 1), 8));
            let index = isa.or_half(group, isa.and_half(addresses, 0xff));
            // SAFETY: an odd entry holds the number of one of the table's groups.
            entries = unsafe { isa.gather_wide_in(tbl8, index, long, entries) };
            fence(Acquire);
        }
        isa.store_wide(isa.shr_wide(entries, 1), &mut next_hops[half..]);
    }
}
