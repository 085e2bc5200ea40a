//! Trees with a [grid](crate::classify::acl::tree::grid) at their root, where cuts by bits leave long leaves.

use super::piece::{self, Buckets, Piece};
use super::{Plan, one_of_every, sign};
use crate::classify::acl::tree::field::Field;
use crate::classify::acl::tree::grid::{Axis, Grid};
use crate::classify::acl::tree::leaf::{Block, RULES};
use crate::classify::acl::{Condition, Entry, WordKind};

/// Most classes of a field, as a power of two.
const CLASS_BITS_MAX: u32 = 9;

/// Most cells, for each rule.
const CELLS_PER_RULE: usize = 16;

/// Most copies of a rule in lists, on average: beyond that a grid tells the rules apart as little as bits do.
const COPIES_PER_RULE: usize = 256;

/// Most cells that rules are looked for in, those whose lists have ended too: a tenth of a second.
const VISITS_MAX: usize = 1 << 27;

/// A grid, and the rules of each of its cells.
pub(super) struct Gridded {
    pub(super) grid: Grid,
    buckets: Buckets,
    /// The ranks of rules that are left to other parts: few that would end no list.
    pub(super) rest: Vec<u32>,
}

/// Divides the two fields that tell most rules apart; `None` where rules are in too many cells. `entries` are in the order of their ranks.
pub(super) fn of<const W: usize>(plan: &Plan<'_, W>, entries: &[&Entry<W>]) -> Option<Gridded> {
    let mut fields: Vec<(f64, Field, Vec<u32>)> = Field::all(plan.kinds)
        .filter_map(|field| {
            let bounds = bounds(plan, entries, field)?;
            let mut distinct = bounds.clone();
            distinct.dedup();
            // The bounds, times the bits that number them: one that all rules have tells nothing.
            Some((bounds.len() as f64 * (distinct.len().max(1) as f64).log2(), field, bounds))
        })
        .collect();
    fields.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(_, rows, row_bounds), (_, columns, column_bounds), ..] = &fields[..] else { return None };
    let pair = [*rows, *columns];
    let hull = hull(plan, entries);
    let categories = entries.iter().fold(0, |all, entry| all | entry.categories);
    let ends_lists = |entry: &Entry<W>| entry.categories == categories && is_wide(plan, entry, &hull, pair);
    let ranked = entries.iter().enumerate().map(|(rank, entry)| (rank as u32, *entry, ends_lists(entry)));
    let (wide, narrow): (Vec<_>, Vec<_>) = ranked.partition(|(.., is_wide)| *is_wide);
    let leaves_few = narrow.len() <= wide.len();
    let rest = if leaves_few { narrow.iter().map(|(rank, ..)| *rank).collect() } else { Vec::new() };
    let mut rules = wide;
    if !leaves_few {
        rules.extend(narrow);
        rules.sort_unstable_by_key(|(rank, ..)| *rank);
    }
    let cells_max = (CELLS_PER_RULE * entries.len()).next_power_of_two().ilog2();
    let bits = CLASS_BITS_MAX.min(cells_max / 2);
    // Fewer classes where rules are in too many cells.
    let made = (bits.saturating_sub(2).max(1)..=bits).rev().find_map(|bits| {
        let axis = |field: Field, bounds: &[u32]| Axis::new(field, &some(bounds, (1 << bits) - 1));
        let grid = Grid { axes: [axis(*rows, row_bounds), axis(*columns, column_bounds)] };
        let buckets = lists(plan, &rules, &grid)?;
        Some((grid, buckets))
    });
    let (grid, buckets) = made?;
    Some(Gridded { grid, buckets, rest })
}

/// Returns the values at which ranges of a field begin, or others end, ascending; `None` where some rule has no range there.
fn bounds<const W: usize>(plan: &Plan<'_, W>, entries: &[&Entry<W>], field: Field) -> Option<Vec<u32>> {
    let mut out = Vec::with_capacity(2 * entries.len());
    for entry in entries {
        let range = field.range(plan.kinds, &entry.condition)?;
        out.extend((*range.start() > 0).then_some(*range.start()));
        out.extend((*range.end() < field.max).then(|| range.end() + 1));
    }
    out.sort_unstable();
    Some(out)
}

/// Returns at most `max` different ones of these, ascending: all, or about as many of the given between any two.
fn some(bounds: &[u32], max: usize) -> Vec<u32> {
    let mut out = bounds.to_vec();
    out.dedup();
    if out.len() > max {
        let step = bounds.len().div_ceil(max);
        out = bounds.iter().skip(step / 2).step_by(step).copied().collect();
        out.dedup();
    }
    out
}

/// Returns the condition that all rules have in common.
fn hull<const W: usize>(plan: &Plan<'_, W>, entries: &[&Entry<W>]) -> Condition<W> {
    use WordKind::{Range16, Range32, Ternary};
    let mut hull = entries[0].condition;
    for Entry { condition, .. } in entries {
        for (w, kind) in plan.kinds.iter().enumerate() {
            let (low, high) = (condition.low[w], condition.high[w]);
            let halves = |of: fn(u32, u32) -> u32, a: u32, b: u32| {
                of(a >> 16, b >> 16) << 16 | of(a & 0xffff, b & 0xffff)
            };
            (hull.low[w], hull.high[w]) = match kind {
                Ternary => {
                    let mask = hull.high[w] & high & !(hull.low[w] ^ low);
                    (low & mask, mask)
                }
                Range32 => (hull.low[w].min(low), hull.high[w].max(high)),
                Range16 => (halves(u32::min, hull.low[w], low), halves(u32::max, hull.high[w], high)),
            };
        }
    }
    hull
}

/// Returns whether a rule has every key that any rule has, as far as the other fields go.
fn is_wide<const W: usize>(
    plan: &Plan<'_, W>,
    entry: &Entry<W>,
    hull: &Condition<W>,
    pair: [Field; 2],
) -> bool {
    let mut others = Field::all(plan.kinds).filter(|field| !pair.contains(field));
    others.all(|field| {
        let (own, all) = (&entry.condition, hull);
        match plan.kinds[field.word] {
            // No bit that not all have in common.
            WordKind::Ternary => own.high[field.word] & !all.high[field.word] == 0,
            _ => {
                let of = |condition| field.range(plan.kinds, condition).expect("it is a range");
                let (own, all) = (of(own), of(all));
                own.start() <= all.start() && own.end() >= all.end()
            }
        }
    })
}

/// The rules of each cell, best first, up to the first that has the whole cell.
fn lists<const W: usize>(
    plan: &Plan<'_, W>,
    rules: &[(u32, &Entry<W>, bool)],
    grid: &Grid,
) -> Option<Buckets> {
    let [rows, columns] = &grid.axes;
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); grid.cells()];
    // Cells whose lists have ended, and how many have not in each row.
    let mut ended = vec![false; grid.cells()];
    let mut open = vec![1usize << columns.bits; 1 << rows.bits];
    // Each copy is half of a rule in a leaf at least.
    let room = plan.budget.bytes() / (size_of::<Block>() / RULES / 2);
    let mut copies_left = (COPIES_PER_RULE * rules.len() + grid.cells()).min(room);
    let mut visits_left = VISITS_MAX;
    for &(rank, entry, is_wide) in rules {
        let range = |axis: &Axis| axis.field.range(plan.kinds, &entry.condition).expect("all have ranges");
        let (of_row, of_column) = (range(rows), range(columns));
        let covers = |range: &std::ops::RangeInclusive<u32>, axis: &Axis, class: u32| {
            let values = axis.values(class);
            range.start() <= values.start() && values.end() <= range.end()
        };
        let (first, last) = (columns.class(*of_column.start()), columns.class(*of_column.end()));
        for row in rows.class(*of_row.start())..=rows.class(*of_row.end()) {
            if open[row as usize] == 0 {
                continue;
            }
            visits_left = visits_left.checked_sub((last - first) as usize + 1)?;
            let ends_row = is_wide && covers(&of_row, rows, row);
            for column in first..=last {
                let cell = (row << columns.bits | column) as usize;
                if ended[cell] {
                    continue;
                }
                lists[cell].push(rank);
                copies_left = copies_left.checked_sub(1)?;
                if ends_row && covers(&of_column, columns, column) {
                    ended[cell] = true;
                    open[row as usize] -= 1;
                }
            }
        }
    }
    Some(Buckets::of(&lists))
}

/// The part of a tree with this grid.
pub(super) fn part<const W: usize>(plan: &Plan<'_, W>, gridded: &Gridded) -> Option<Piece<W>> {
    let mut state = 1;
    let step = plan.rules.len().div_ceil(4096).max(1);
    let packets = one_of_every(step, plan.ranks);
    let packets = packets.map(|&rank| (sign::packet(&plan.rules[rank as usize], &mut state), rank));
    let cell = |packet: &[u32; W]| gridded.grid.index(packet) as usize;
    piece::node_of(plan, [0; W], &gridded.buckets, cell, packets, 0)
}
