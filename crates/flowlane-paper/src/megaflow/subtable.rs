//! The megaflows of one mask: a hash table that only grows.
//!
//! ```text
//! buckets   8 tags, 8 megaflows; ..     a cache line each; a full one overflows into the next
//! lines     value, masked key; ..       whole cache lines for a megaflow
//! ```

use flowlane::memory::prefetch;
use flowlane::packet::FlowKey;
use flowlane::packet::FlowMask;

use super::columns::{Term, hash, masked, terms};

/// Slots of a bucket.
const SLOTS: usize = 8;

/// At most so many slots of a bucket are in use on average; more fill too many buckets.
const LOAD_MAX: usize = 5;

/// Words of a cache line.
const LINE: usize = 16;

/// Eight tags (a hash, its lowest bit set; 0 where it is free) and, for each, the number of a megaflow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u32; SLOTS],
    flows: [u32; SLOTS],
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u32; LINE]);

#[derive(Debug)]
pub(super) struct Subtable {
    pub(super) mask: FlowMask,
    pub(super) terms: Vec<Term>,
    seed: u32,
    /// A power of two.
    buckets: Vec<Bucket>,
    lines: Vec<Line>,
    len: usize,
}

impl Subtable {
    pub(super) fn new(mask: &FlowMask, seed: u32) -> Self {
        let (terms, buckets) = (terms(mask), vec![Bucket::default()]);
        Self { mask: mask.clone(), terms, seed, buckets, lines: Vec::new(), len: 0 }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        hash(&self.terms, self.seed, key)
    }

    /// Asks for the bucket in which a key of this hash is looked for first.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.buckets, self.home(hash));
    }

    /// The lowest bit is not in the tags.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash >> 1) as usize & (self.buckets.len() - 1)
    }

    /// The value of the megaflow of `key`, whose hash is `hash`.
    #[inline(always)]
    pub(super) fn find(&self, key: &FlowKey, hash: u32) -> Option<u32> {
        self.place(key, hash).map(|place| self.lines[place].0[0])
    }

    /// Where the lines of the megaflow of `key` begin.
    #[inline(always)]
    fn place(&self, key: &FlowKey, hash: u32) -> Option<usize> {
        let (tag, wrap) = (hash | 1, self.buckets.len() - 1);
        let mut at = self.home(hash);
        // A table is never full: the walk ends.
        loop {
            let bucket = &self.buckets[at];
            for (own, flow) in bucket.tags.iter().zip(bucket.flows) {
                let place = flow as usize * self.lines_each();
                if *own == tag && self.matches(place, key) {
                    return Some(place);
                }
            }
            if bucket.tags[SLOTS - 1] == 0 {
                return None;
            }
            at = (at + 1) & wrap;
        }
    }

    #[inline(always)]
    fn matches(&self, place: usize, key: &FlowKey) -> bool {
        let stored = |at: usize| self.lines[place + at / LINE].0[at % LINE];
        let words = masked(&self.terms, key).zip(1..);
        words.fold(0, |different, (word, at)| different | (word ^ stored(at))) == 0
    }

    fn lines_each(&self) -> usize {
        (1 + self.terms.len()).div_ceil(LINE)
    }

    /// Adds the megaflow of `key`, or gives the one that there is another value.
    pub(super) fn insert(&mut self, key: &FlowKey, value: u32) {
        let hash = self.hash(key);
        if let Some(place) = self.place(key, hash) {
            self.lines[place].0[0] = value;
            return;
        }
        if self.len + 1 > self.buckets.len() * LOAD_MAX {
            let mut buckets = vec![Bucket::default(); self.buckets.len() * 2];
            let slots = self.buckets.iter().flat_map(|bucket| bucket.tags.into_iter().zip(bucket.flows));
            slots.filter(|(tag, _)| *tag != 0).for_each(|(tag, flow)| put(&mut buckets, tag, flow));
            self.buckets = buckets;
        }
        let place = self.lines.len();
        self.lines.resize(place + self.lines_each(), Line([0; LINE]));
        let words = self.lines[place..].iter_mut().flat_map(|line| &mut line.0);
        words.zip(std::iter::once(value).chain(masked(&self.terms, key))).for_each(|(to, word)| *to = word);
        put(&mut self.buckets, hash | 1, self.len as u32);
        self.len += 1;
    }
}

/// Puts a slot into the first free place from its home on.
fn put(buckets: &mut [Bucket], tag: u32, flow: u32) {
    let wrap = buckets.len() - 1;
    let mut at = (tag >> 1) as usize & wrap;
    loop {
        let bucket = &mut buckets[at];
        if let Some(free) = bucket.tags.iter().position(|&tag| tag == 0) {
            (bucket.tags[free], bucket.flows[free]) = (tag, flow);
            return;
        }
        at = (at + 1) & wrap;
    }
}
