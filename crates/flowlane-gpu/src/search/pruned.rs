//! Pruned tuple search: `kernels/pruned.cu`.

use std::collections::HashMap;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};

use super::tuple_table::{Order, Prepared, TupleTable, pointer};
use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

const THREADS: u32 = 256;
/// Blocks for each multiprocessor: 2048 threads.
const BLOCKS: usize = 8;
/// The total size of the bitmaps of one word; a word that exceeds it does not prune.
const BITMAP_BYTES_MAX: usize = 256 << 20;

/// The bitmaps of one word, by ranges of its values.
#[derive(Debug)]
struct Spans {
    index: CudaSlice<u32>,
    begins: CudaSlice<u32>,
    bitmaps: CudaSlice<u32>,
    bits: CudaSlice<u32>,
    word: u32,
}

#[derive(Debug)]
pub(super) struct Pruned {
    kernel: CudaFunction,
    table: TupleTable,
    spans: [Spans; 2],
    bitmap_words: u32,
    blocks: u32,
}

/// The table in the layout of the kernels: `Pruning`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PruningArgument {
    of: [SpansArgument; 2],
    bitmap_words: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SpansArgument {
    pointers: [u64; 4],
    word: u32,
}

// SAFETY: plain numbers, in the order and the sizes of `Pruning` in `pruned.cu`; any bits are valid there.
unsafe impl DeviceRepr for PruningArgument {}

/// Returns whether a mask is a prefix mask.
fn is_prefix(mask: u32) -> bool {
    (!mask).wrapping_add(1) & !mask == 0
}

/// Returns the two words whose prefixes separate the rules best: those with the most distinct values.
fn words<const W: usize>(prepared: &Prepared<W>) -> [usize; 2] {
    let different = |w: usize| {
        let place = prepared.place_of(w);
        let classes = prepared.classes.iter().filter(|class| is_prefix(class.mask[place]));
        let mut values: Vec<u32> =
            classes.flat_map(|class| class.rules.iter().map(|rule| rule.value[place])).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let mut words: Vec<usize> = (0..W).collect();
    words.sort_by_cached_key(|w| std::cmp::Reverse(different(*w)));
    [words[0], words[1]]
}

/// The classes that remain for each value of a word: the starts of value ranges, the bitmap of each, and the bitmaps.
struct Left {
    begins: Vec<u32>,
    bitmaps: Vec<u32>,
    bits: Vec<u32>,
}

/// Sweeps over the values of a word and adds or removes a class at each end of a prefix. If the bitmaps exceed the
/// limit, every value keeps all classes.
fn left_by<const W: usize>(
    prepared: &Prepared<W>,
    word: usize,
    bitmap_words: usize,
    bytes_max: usize,
) -> Left {
    let place = prepared.place_of(word);
    let mut now = vec![0u32; bitmap_words];
    // Prefixes that begin and end at each value; prefixes of one class do not overlap, since their lengths are equal.
    let mut changes: Vec<(u64, usize, bool)> = Vec::new();
    for (c, class) in prepared.classes.iter().enumerate() {
        let mask = class.mask[place];
        if mask == 0 || !is_prefix(mask) {
            now[c / 32] |= 1 << (c % 32);
            continue;
        }
        let mut values: Vec<u32> = class.rules.iter().map(|rule| rule.value[place]).collect();
        values.sort_unstable();
        values.dedup();
        for value in values {
            changes.push((value.into(), c, true));
            changes.push((u64::from(value | !mask) + 1, c, false));
        }
    }
    // At equal values, ends sort before beginnings.
    changes.sort_unstable_by_key(|(at, c, comes)| (*at, *comes, *c));
    let mut out = Left { begins: Vec::new(), bitmaps: Vec::new(), bits: Vec::new() };
    let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
    let mut at = 0;
    for change in changes.iter().chain([&(u64::MAX, 0, true)]) {
        if change.0 != at {
            let next = numbers.len() as u32;
            let number = *numbers.entry(now.clone()).or_insert(next);
            if number == next {
                out.bits.extend(&now);
            }
            out.begins.push(at as u32);
            out.bitmaps.push(number);
            at = change.0;
        }
        if at > u64::from(u32::MAX) || 4 * out.bits.len() > bytes_max {
            break;
        }
        let (_, c, comes) = *change;
        match comes {
            true => now[c / 32] |= 1 << (c % 32),
            false => now[c / 32] &= !(1 << (c % 32)),
        }
    }
    if 4 * out.bits.len() > bytes_max {
        let mut all = vec![0; bitmap_words];
        (0..prepared.classes.len()).for_each(|c| all[c / 32] |= 1 << (c % 32));
        return Left { begins: vec![0], bitmaps: vec![0], bits: all };
    }
    out
}

impl Spans {
    fn upload(device: &Device, left: &Left, word: usize) -> Result<Self, GpuError> {
        let first_at =
            |upper: u64| left.begins.partition_point(|begin| u64::from(*begin) < upper << 16) as u32;
        let index: Vec<u32> = (0..=1 << 16).map(first_at).collect();
        Ok(Self {
            index: device.upload("spans", &index)?,
            begins: device.upload("spans", &left.begins)?,
            bitmaps: device.upload("spans", &left.bitmaps)?,
            bits: device.upload("bitmaps of classes", &left.bits)?,
            word: word as u32,
        })
    }

    fn argument(&self) -> SpansArgument {
        let pointers = [&self.index, &self.begins, &self.bitmaps, &self.bits].map(pointer);
        SpansArgument { pointers, word: self.word }
    }

    fn bytes(&self) -> usize {
        [&self.index, &self.begins, &self.bitmaps, &self.bits].map(CudaSlice::num_bytes).iter().sum()
    }
}

impl Pruned {
    pub(super) fn build<const W: usize>(
        device: &Device,
        rules: &TernaryRules<W>,
        seed: u64,
    ) -> Result<Self, GpuError> {
        let prepared = Prepared::new(rules, Order::Best, seed)?;
        let bitmap_words = prepared.classes.len().div_ceil(32).max(1);
        let spans =
            |word| Spans::upload(device, &left_by(&prepared, word, bitmap_words, BITMAP_BYTES_MAX), word);
        let [first, second] = words(&prepared);
        Ok(Self {
            kernel: device.kernel(&format!("pruned_{W}"), 0)?,
            table: prepared.upload(device)?,
            spans: [spans(first)?, spans(second)?],
            bitmap_words: bitmap_words as u32,
            blocks: (BLOCKS * device.properties().multiprocessors.max(1)) as u32,
        })
    }
}

impl Search for Pruned {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let shape = LaunchConfig {
            grid_dim: (self.blocks.min(batch.count.div_ceil(THREADS)), 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let table = self.table.argument();
        let pruning = PruningArgument {
            of: [self.spans[0].argument(), self.spans[1].argument()],
            bitmap_words: self.bitmap_words,
        };
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&table).arg(&pruning).arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `pruned_W` in their order; `table` and `pruning` point into `self`, which was made
        // for W words: every value has a span, every span a bitmap of `bitmap_words` whose bits are
        // those of classes; `tuples` and `winners` have room for `count` tuples (`Batch`).
        unsafe { launch.launch(shape) }.map_err(GpuError::of("starting pruned tuple search"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes() + self.spans.iter().map(Spans::bytes).sum::<usize>()
    }

    fn classes(&self) -> Option<usize> {
        Some(self.table.class_count as usize)
    }
}

#[cfg(test)]
mod tests {
    use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind};
    use flowlane::rule::{Priority, RuleId};

    use super::*;

    #[test]
    fn a_word_with_too_many_bitmaps_does_not_prune() {
        // One class for each prefix length.
        let entry = |i: u32| Entry {
            condition: Condition { low: [1 << 31 >> i; 4], high: [u32::MAX << (31 - i); 4] },
            rank: RankKey::new(Priority(1), i),
            rule: RuleId(i),
            categories: 1,
        };
        let entries: Vec<Entry<4>> = (0..32).map(entry).collect();
        let rules = TernaryRules::new(&[WordKind::Ternary; 4], &entries, 100).expect("no ranges");
        let prepared = Prepared::new(&rules, Order::Best, 1).expect("32 rules");
        let left = left_by(&prepared, 0, 1, 1000);
        assert_eq!(left.begins.len(), left.bitmaps.len());
        assert!(left.begins.len() > 32 && left.bits.iter().any(|bits| bits.count_ones() == 1));
        let all = left_by(&prepared, 0, 1, 20);
        assert_eq!((all.begins, all.bitmaps, all.bits), (vec![0], vec![0], vec![u32::MAX]));
    }
}
