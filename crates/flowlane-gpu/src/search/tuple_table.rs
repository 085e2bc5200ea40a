//! One hash table for the rules of all classes: `kernels/tuple_table.cuh`.

use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr};
use flowlane::generate::Random;

use super::classes::{Class, group};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

const BUCKET_SLOTS: usize = 8;
const TAG_SHIFT: u32 = 24;
/// Half of the slots are free, so that few buckets overflow.
const RULES_PER_BUCKET: usize = BUCKET_SLOTS / 2;
/// Record numbers are below 2^24 − 1.
const RULES_MAX: usize = (1 << TAG_SHIFT) - 2;

/// The order of the classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// By mask, so that neighbours share most of their bits.
    Masks,
    /// By best rule, best first.
    Best,
}

/// The table on a device.
#[derive(Debug)]
pub(super) struct TupleTable {
    classes: CudaSlice<u32>,
    buckets: CudaSlice<u32>,
    records: CudaSlice<u32>,
    hash: CudaSlice<u64>,
    places: CudaSlice<u32>,
    pub(super) class_count: u32,
    bucket_count: u32,
}

/// The table in the layout of the kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct TupleTableArgument {
    pointers: [u64; 5],
    class_count: u32,
    bucket_count: u32,
}

// SAFETY: plain numbers, in the order and the sizes of `TupleTable` in `tuple_table.cuh`; any bits are valid there.
unsafe impl DeviceRepr for TupleTableArgument {}

/// The table on the host.
#[derive(Debug)]
pub(super) struct Prepared<const W: usize> {
    /// The classes, with the words of masks and values in the order of `places`.
    pub(super) classes: Vec<Class<W>>,
    places: [usize; W],
    multilinear: Vec<u64>,
}

/// Returns the order of the words: those with the fewest distinct masks first.
fn places<const W: usize>(classes: &[Class<W>]) -> [usize; W] {
    let mut places: [usize; W] = std::array::from_fn(|w| w);
    places.sort_by_cached_key(|w| {
        let mut masks: Vec<u32> = classes.iter().map(|class| class.mask[*w]).collect();
        masks.sort_unstable();
        masks.dedup();
        masks.len()
    });
    places
}

impl<const W: usize> Prepared<W> {
    pub(super) fn new(rules: &TernaryRules<W>, order: Order, seed: u64) -> Result<Self, GpuError> {
        let mut classes = group(rules, usize::MAX);
        if classes.iter().map(|class| class.rules.len()).sum::<usize>() > RULES_MAX {
            return Err(GpuError::Entries { rules: rules.hits.len(), entries_max: RULES_MAX });
        }
        let places = places(&classes);
        for class in &mut classes {
            class.mask = places.map(|w| class.mask[w]);
            class.rules.iter_mut().for_each(|rule| rule.value = places.map(|w| rule.value[w]));
        }
        if order == Order::Masks {
            classes.sort_by_key(|class| class.mask);
        }
        let mut random = Random::for_purpose(seed, "tuple table");
        Ok(Self { classes, places, multilinear: (0..=W).map(|_| random.bits()).collect() })
    }

    /// Hashes a value of a class.
    pub(super) fn hash(&self, class: usize, value: &[u32; W]) -> u32 {
        let products = self.multilinear.iter().zip(value).map(|(k, word)| k.wrapping_mul((*word).into()));
        let sum = products.fold(self.multilinear[W], u64::wrapping_add);
        (sum >> 32) as u32 ^ (class as u32).wrapping_mul(0x9e37_79b1)
    }

    pub(super) fn rules(&self) -> usize {
        self.classes.iter().map(|class| class.rules.len()).sum()
    }

    /// Returns the position of a word of the key in this table's order.
    pub(super) fn place_of(&self, word: usize) -> usize {
        self.places.iter().position(|w| *w == word).expect("every word has a place")
    }

    /// Returns the class descriptors in the layout of the kernels.
    fn class_words(&self) -> Vec<u32> {
        let mut words = Vec::with_capacity(self.classes.len() * (W + 2));
        let mut before: Option<&Class<W>> = None;
        for class in &self.classes {
            let differs = |before: &Class<W>| (0..W).find(|w| before.mask[*w] != class.mask[*w]);
            words.push(before.and_then(differs).unwrap_or(0) as u32);
            words.push(class.rules.iter().map(|rule| rule.standing).max().unwrap_or(0));
            words.extend(class.mask);
            before = Some(class);
        }
        words
    }

    /// Builds the buckets and records.
    fn slots(&self, bucket_count: usize) -> (Vec<u32>, Vec<u32>) {
        let record_words = (W + 2).next_multiple_of(4);
        let mut buckets = vec![0; bucket_count * BUCKET_SLOTS];
        let mut records = Vec::with_capacity(self.rules() * record_words);
        for (c, class) in self.classes.iter().enumerate() {
            for rule in &class.rules {
                let number = (records.len() / record_words) as u32;
                records.extend([c as u32, rule.standing]);
                records.extend(rule.value);
                records.resize((number as usize + 1) * record_words, 0);
                let x = self.hash(c, &rule.value);
                let mixed = u64::from(x.wrapping_mul(0x85eb_ca6b));
                let first = ((mixed * bucket_count as u64) >> 32) as usize * BUCKET_SLOTS;
                let behind = (0..buckets.len()).map(|i| (first + i) % buckets.len());
                let free = behind.into_iter().find(|slot| buckets[*slot] == 0).expect("half of all are free");
                buckets[free] = (x & 0xff) << TAG_SHIFT | (number + 1);
            }
        }
        (buckets, records)
    }

    pub(super) fn upload(&self, device: &Device) -> Result<TupleTable, GpuError> {
        let what = "a tuple table";
        let bucket_count = (self.rules() / RULES_PER_BUCKET).max(1);
        let record_bytes = 4 * (W + 2).next_multiple_of(4) * self.rules();
        device.reserve(what, record_bytes + 4 * BUCKET_SLOTS * bucket_count)?;
        let (buckets, records) = self.slots(bucket_count);
        Ok(TupleTable {
            classes: device.upload(what, &self.class_words())?,
            buckets: device.upload(what, &buckets)?,
            records: device.upload(what, &records)?,
            hash: device.upload(what, &self.multilinear)?,
            places: device.upload(what, &self.places.map(|w| w as u32))?,
            class_count: self.classes.len() as u32,
            bucket_count: bucket_count as u32,
        })
    }
}

/// Returns the device address of a slice.
pub(super) fn pointer<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

impl TupleTable {
    /// Returns the table in the layout of the kernels, with pointers into this table.
    pub(super) fn argument(&self) -> TupleTableArgument {
        let words = |slice: &CudaSlice<u32>| pointer(slice);
        let pointers = [
            words(&self.classes),
            words(&self.buckets),
            words(&self.records),
            pointer(&self.hash),
            words(&self.places),
        ];
        TupleTableArgument { pointers, class_count: self.class_count, bucket_count: self.bucket_count }
    }

    pub(super) fn table_bytes(&self) -> usize {
        let words = [&self.classes, &self.buckets, &self.records, &self.places];
        words.iter().map(|slice| slice.num_bytes()).sum::<usize>() + self.hash.num_bytes()
    }
}
