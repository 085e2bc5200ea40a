//! A subtable: the megaflows of one mask.
//!
//! ```text
//! terms    (word, mask, multiplier) ..        the bits that are compared, and hashed
//! filter   32-bit words, 8 bits a slot        two bits of one word a megaflow: rejects nearly all misses
//! buckets  8 tags, 8 megaflows; ..            a cache line each; a full one overflows into the next
//! tail     words beyond those in the megaflow's line, for wide masks
//! ```
//!
//! A packet that this mask has no megaflow for costs its hash and one word of the filter. The filter is a
//! blocked Bloom filter with k = 2 and blocks of 32 bits (Putze, Sanders, Singler 2007): at 13 to 26 bits a
//! megaflow 1 to 3 % of misses pass. Removed megaflows leave their bits behind; the filter is rebuilt
//! when half of the megaflows that it was built for are gone.

use super::super::bucket::{Bucket, SLOTS, entries, place};
use super::flow::{KEY_WORDS, Megaflow};
use crate::hash::multilinear::{self, Multilinear};
use crate::memory::{Memory, prefetch};
use crate::packet::key::{BitIter, FlowKey, FlowMask, WORDS};

/// The most slots of a bucket that are in use on average; more fill too many buckets.
const LOAD_MAX: usize = 5;

/// A word that is looked at, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) mask: u32,
    pub(super) multiplier: u32,
    pub(super) word: u8,
    /// Its column of the transposed batch.
    pub(super) place: u8,
}

/// Returns a number that nearly all masks have different: they are found by it. FNV-1a (Fowler, Noll, Vo) of words.
pub(super) fn digest(mask: &FlowMask) -> u64 {
    mask.present_words().filter(|&w| mask.word(w) != 0).fold(0xcbf2_9ce4_8422_2325, |digest, w| {
        (digest ^ (w as u64) << 32 ^ u64::from(mask.word(w))).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[derive(Debug)]
pub(super) struct Subtable {
    pub(super) mask: FlowMask,
    /// Its [`digest`].
    pub(super) digest: u64,
    /// In the order of the key's words.
    pub(super) terms: Vec<Term>,
    /// Those that not every mask of the cache has: the others' sum is computed once a batch.
    pub(super) own_terms: Vec<Term>,
    /// Hits since the last ranking; halved there.
    pub(super) hits: u64,
    pub(super) filter: Filter,
    /// Where the first words lie in a key, and their masks; word 0 under no mask where there are fewer.
    pub(super) places: [u32; KEY_WORDS],
    pub(super) masks: [u32; KEY_WORDS],
    /// Which words of a megaflow's line are compared with those.
    pub(super) stored: u8,
    buckets: Memory<Bucket>,
    tail: Vec<u32>,
    tail_free: Vec<u32>,
    len: usize,
    /// Megaflows removed since the filter was made.
    stale: usize,
}

/// Which two bits of a word of the filter are a hash's. (The lowest bit of the hash is not used: tags lack it.)
#[inline(always)]
fn filter_bits(hash: u32) -> [u32; 2] {
    [hash >> 1 & 31, hash >> 6 & 31]
}

#[derive(Debug)]
pub(super) struct Filter {
    /// A power of two, at least two.
    pub(super) words: Vec<u32>,
    /// `hash >> shift` is the place of the hash's word.
    pub(super) shift: u32,
}

impl Filter {
    /// 8 bits a slot.
    fn for_buckets(buckets: usize) -> Self {
        let words = buckets * SLOTS * 8 / 32;
        Self { words: vec![0; words], shift: 32 - words.ilog2() }
    }

    fn add(&mut self, hash: u32) {
        let [a, b] = filter_bits(hash);
        self.words[(hash >> self.shift) as usize] |= 1 << a | 1 << b;
    }

    #[inline(always)]
    pub(super) fn may_have(&self, hash: u32) -> bool {
        let word = self.words[(hash >> self.shift) as usize];
        let [a, b] = filter_bits(hash);
        word >> a & word >> b & 1 == 1
    }

    /// Asks for what [`may_have`](Self::may_have) reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.words, (hash >> self.shift) as usize);
    }
}

impl Subtable {
    pub(super) fn new(mask: &FlowMask, hash: &Multilinear) -> Self {
        let terms: Vec<Term> = mask
            .present_words()
            .filter(|&w| mask.word(w) != 0)
            .map(|w| Term { word: w as u8, place: 0, mask: mask.word(w), multiplier: hash.multiplier(w) })
            .collect();
        let mut made = Self {
            mask: mask.clone(),
            digest: digest(mask),
            own_terms: terms.clone(),
            hits: 0,
            filter: Filter::for_buckets(1),
            places: [0; KEY_WORDS],
            masks: [0; KEY_WORDS],
            stored: 0,
            buckets: Memory::zeroed(1),
            tail: Vec::new(),
            tail_free: Vec::new(),
            len: 0,
            stale: 0,
            terms,
        };
        for (i, term) in made.terms[..made.inline_words()].iter().enumerate() {
            (made.places[i], made.masks[i]) = (term.word.into(), term.mask);
            made.stored |= 1 << i;
        }
        made
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hash of `key` under the mask: the definition.
    #[inline(always)]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        let key = key.words();
        let masked = |t: &Term| key[usize::from(t.word) % WORDS] & t.mask;
        let terms = self.terms.iter().map(|t| multilinear::term(t.multiplier, masked(t)));
        multilinear::finish(terms.fold(0, u64::wrapping_add))
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.buckets, self.home(hash));
    }

    /// The bucket in which a key of this hash is looked for first. (The lowest bit is not in the tags.)
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash >> 1) as usize & (self.buckets.len() - 1)
    }

    /// The buckets in which a key of this hash may be: those before the last are full.
    #[inline(always)]
    fn chain(&self, hash: u32) -> impl Iterator<Item = &Bucket> {
        let (home, wrap) = (self.home(hash), self.buckets.len() - 1);
        let mut ended = false;
        // A table is never full: the walk ends.
        (home..)
            .map(move |at| &self.buckets[at & wrap])
            .take_while(move |bucket| !std::mem::replace(&mut ended, bucket.has_room()))
    }

    /// The home bucket of a hash.
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u32) -> &Bucket {
        &self.buckets[self.home(hash)]
    }

    /// The first megaflow of this hash beyond its home bucket.
    #[inline(always)]
    pub(super) fn overflowed(&self, hash: u32) -> Option<u32> {
        if self.bucket(hash).has_room() { None } else { self.walk(hash) }
    }

    #[cold]
    fn walk(&self, hash: u32) -> Option<u32> {
        let tag = hash | 1;
        let slots = self.chain(hash).flat_map(|b| b.tags.iter().zip(&b.flows));
        slots.into_iter().find(|&(&t, _)| t == tag).map(|(_, flow)| flow - 1)
    }

    /// The megaflow of `key`, whose hash is `hash`.
    #[inline(always)]
    pub(super) fn find(&self, flows: &[Megaflow], key: &FlowKey, hash: u32) -> Option<u32> {
        for bucket in self.chain(hash) {
            for slot in BitIter(bucket.matching(hash | 1).into()) {
                let flow = bucket.flows[slot % SLOTS] - 1;
                if self.matches(&flows[flow as usize], key) {
                    return Some(flow);
                }
            }
        }
        None
    }

    /// Returns whether `key` is the megaflow's, in the bits of the mask.
    #[inline(always)]
    pub(super) fn matches(&self, flow: &Megaflow, key: &FlowKey) -> bool {
        self.line_matches(flow, key) && self.tail_matches(flow, key)
    }

    /// Returns whether the words in the megaflow's line are the key's.
    #[inline(always)]
    pub(super) fn line_matches(&self, flow: &Megaflow, key: &FlowKey) -> bool {
        let words = key.words();
        let mut different = 0;
        for (i, stored) in flow.key[..self.inline_words()].iter().enumerate() {
            different |= words[self.places[i] as usize % WORDS] & self.masks[i] ^ stored;
        }
        different == 0
    }

    /// Returns whether the words beyond those in the megaflow's line are the key's.
    #[inline(always)]
    pub(super) fn tail_matches(&self, flow: &Megaflow, key: &FlowKey) -> bool {
        let inline = self.inline_words();
        if inline == self.terms.len() {
            return true;
        }
        let tail = &self.tail[flow.key[KEY_WORDS - 1] as usize..];
        let key = key.words();
        let mut different = 0;
        for (t, stored) in self.terms[inline..].iter().zip(tail) {
            different |= key[usize::from(t.word) % WORDS] & t.mask ^ stored;
        }
        different == 0
    }

    /// Words of the key that lie in the megaflow's line.
    #[inline(always)]
    fn inline_words(&self) -> usize {
        if self.terms.len() <= KEY_WORDS { self.terms.len() } else { KEY_WORDS - 1 }
    }

    /// The masked key of a megaflow.
    pub(super) fn key(&self, flow: &Megaflow) -> FlowKey {
        let mut key = FlowKey::zero();
        let inline = self.inline_words();
        let tail = if inline < self.terms.len() { flow.key[KEY_WORDS - 1] as usize } else { 0 };
        for (i, t) in self.terms.iter().enumerate() {
            let word = if i < inline { flow.key[i] } else { self.tail[tail + i - inline] };
            key.or_word(t.word.into(), word);
        }
        key
    }

    /// Adds a megaflow for `key`, which must not be there, and writes its key into its line.
    pub(super) fn insert(&mut self, key: &FlowKey, index: u32, flow: &mut Megaflow) {
        if self.len + 1 > self.buckets.len() * LOAD_MAX {
            self.grow();
        }
        let inline = self.inline_words();
        let masked = |t: &Term| key.word(t.word.into()) & t.mask;
        for (stored, t) in flow.key.iter_mut().zip(&self.terms[..inline]) {
            *stored = masked(t);
        }
        if inline < self.terms.len() {
            let from = self.tail_free.pop().unwrap_or_else(|| {
                self.tail.resize(self.tail.len() + self.terms.len() - inline, 0);
                (self.tail.len() - (self.terms.len() - inline)) as u32
            });
            for (stored, t) in self.tail[from as usize..].iter_mut().zip(&self.terms[inline..]) {
                *stored = masked(t);
            }
            flow.key[KEY_WORDS - 1] = from;
        }
        let hash = self.hash(key);
        place(&mut self.buckets, hash | 1, index + 1);
        self.filter.add(hash);
        self.len += 1;
    }

    /// Removes a megaflow.
    pub(super) fn remove(&mut self, index: u32, flow: &Megaflow) {
        let hash = self.hash(&self.key(flow));
        let wrap = self.buckets.len() - 1;
        let mut at = self.home(hash);
        let slot = loop {
            let bucket = &self.buckets[at];
            if let Some(slot) = bucket.flows.iter().position(|&f| f == index + 1) {
                break slot;
            }
            assert!(!bucket.has_room(), "megaflow {index} is not in its subtable");
            at = (at + 1) & wrap;
        };
        self.close_gap(at, slot);
        if self.inline_words() < self.terms.len() {
            self.tail_free.push(flow.key[KEY_WORDS - 1]);
        }
        self.len -= 1;
        self.stale += 1;
        if self.stale > self.len.max(SLOTS) {
            self.make_filter();
        }
    }

    /// Bytes allocated.
    pub(super) fn table_bytes(&self) -> usize {
        (self.terms.capacity() + self.own_terms.capacity()) * size_of::<Term>()
            + self.buckets.size_bytes()
            + (self.filter.words.capacity() + self.tail.capacity() + self.tail_free.capacity()) * 4
    }

    /// Empties a slot. Where its bucket was full, one that had to go further comes back, and so on.
    fn close_gap(&mut self, mut at: usize, mut slot: usize) {
        let wrap = self.buckets.len() - 1;
        'gap: loop {
            let was_full = !self.buckets[at].has_room();
            let bucket = &mut self.buckets[at];
            // Slots in use come first, so that a look at the last says whether there is room.
            let last = bucket.flows.iter().take_while(|&&f| f != 0).count() - 1;
            (bucket.tags[slot], bucket.flows[slot]) = (bucket.tags[last], bucket.flows[last]);
            (bucket.tags[last], bucket.flows[last]) = (0, 0);
            if !was_full {
                return;
            }
            let mut from = at;
            loop {
                from = (from + 1) & wrap;
                let bucket = &self.buckets[from];
                let passed = |tag: u32| {
                    let home = (tag >> 1) as usize & wrap;
                    from.wrapping_sub(home) & wrap >= from.wrapping_sub(at) & wrap
                };
                let moved = (0..SLOTS).find(|&i| bucket.flows[i] != 0 && passed(bucket.tags[i]));
                if let Some(moved) = moved {
                    let (tag, flow) = (bucket.tags[moved], bucket.flows[moved]);
                    let room = &mut self.buckets[at];
                    (room.tags[last], room.flows[last]) = (tag, flow);
                    (at, slot) = (from, moved);
                    continue 'gap;
                }
                if bucket.has_room() {
                    return;
                }
            }
        }
    }

    fn grow(&mut self) {
        let mut buckets = Memory::<Bucket>::zeroed(self.buckets.len() * 2);
        for (tag, flow) in entries(&self.buckets) {
            place(&mut buckets, tag, flow);
        }
        self.buckets = buckets;
        self.make_filter();
    }

    fn make_filter(&mut self) {
        self.filter = Filter::for_buckets(self.buckets.len());
        // The tag is the hash, but for the lowest bit.
        for (tag, _) in entries(&self.buckets) {
            self.filter.add(tag);
        }
        self.stale = 0;
    }
}
