//! A worker's cache of endpoints, direct-mapped, which is probed for a whole batch; and the endpoint table, a batch at a
//! time, for what it does not have. Never shared, of one generation of the table.

use super::endpoint::{EndpointReader, V4Key};
use crate::memory::{Memory, Zeroed};
use crate::packet::LaneMask;

/// Places: 128 KiB, of which a node with few endpoints touches few.
const PLACES: usize = 4096;

/// Batches in which the cache is tried before it is judged: time to fill it.
const TRIED: u32 = 256;
/// How many of these, the last, count.
const COUNTED: u32 = 64;
/// Batches in which it is left alone where it did not pay: trying costs less than a fiftieth.
const RESTED: u32 = 16_384;

/// A key with its endpoint, of a generation of the table: two to a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Place {
    key: V4Key,
    endpoint: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Place>() == 32);

// SAFETY: integers and padding: zero bytes are a value. It owns nothing; alignment 32.
unsafe impl Zeroed for Place {}

/// Keys of a batch with their hashes, side by side, and the endpoints found.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Keys {
    pub(crate) keys: [V4Key; 64],
    pub(crate) hashes: [u32; 64],
    pub(crate) endpoints: [u32; 64],
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self { keys: [[0; 4]; 64], hashes: [0; 64], endpoints: [0; 64] }
    }
}

/// The decision whether the cache is probed.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// Batches until the decision, with the hits and the lanes counted so far.
    Tried { left: u32, hits: u32, lanes: u32 },
    /// Not probed for this number of batches.
    Resting { left: u32 },
}

impl Use {
    const TRY: Self = Self::Tried { left: TRIED, hits: 0, lanes: 0 };

    /// Returns whether the cache is probed this time.
    fn asked(&mut self) -> bool {
        match self {
            Self::Tried { .. } => true,
            Self::Resting { left: 0 } => {
                *self = Self::TRY;
                true
            }
            Self::Resting { left } => {
                *left -= 1;
                false
            }
        }
    }

    /// Notes how it went.
    fn note(&mut self, batch_hits: u32, batch_lanes: u32) {
        if let Self::Tried { left, hits, lanes } = self {
            if *left <= COUNTED {
                *hits += batch_hits;
                *lanes += batch_lanes;
            }
            *left -= 1;
            if *left == 0 {
                // With a third of hits the table alone was faster (README.md).
                *self = if 2 * *hits >= *lanes { Self::TRY } else { Self::Resting { left: RESTED } };
            }
        }
    }
}

/// A worker's cache in front of an endpoint table, for lookups of keys alone; a [`Decapsulator`](super::Decapsulator) has its
/// own.
#[derive(Debug)]
pub struct EndpointCache {
    pub(super) table: EndpointReader,
    pub(super) mapped: MappedEndpoints,
    pub(super) batch: Box<Keys>,
}

impl EndpointCache {
    /// Creates an empty cache in front of a table.
    pub fn new(table: EndpointReader) -> Self {
        Self { table, mapped: MappedEndpoints::new(), batch: Box::new(Keys::new()) }
    }

    /// Looks up to 64 packets up, whose keys ([`V4Key`]) are known. Returns the lanes that have an endpoint, and
    /// writes their numbers.
    ///
    /// # Panics
    /// Where there are more than 64 keys, or fewer places than keys.
    pub fn lookup_batch(&mut self, keys: &[V4Key], endpoints: &mut [u32]) -> LaneMask {
        assert!(keys.len() <= 64 && endpoints.len() >= keys.len(), "at most 64 keys, and a place for each");
        self.batch.keys[..keys.len()].copy_from_slice(keys);
        self.table.hash_v4(keys, &mut self.batch.hashes);
        let hits = self.mapped.lookup(&self.table, &mut self.batch, LaneMask::first(keys.len()).0);
        endpoints[..keys.len()].copy_from_slice(&self.batch.endpoints[..keys.len()]);
        LaneMask(hits)
    }
}

/// Direct-mapped cache of one worker.
#[derive(Debug)]
pub(crate) struct MappedEndpoints {
    places: Memory<Place>,
    /// The upper half of the generation that the places are of; the lower is in each.
    era: u32,
    using: Use,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?} → {} ({})", self.key, self.endpoint, self.generation)
    }
}

impl MappedEndpoints {
    pub(crate) fn new() -> Self {
        Self { places: Memory::zeroed(PLACES), era: 0, using: Use::TRY }
    }

    /// Finds the endpoints of the lanes `live`, whose keys and hashes are there. Returns which have one.
    #[inline(always)]
    pub(crate) fn lookup(&mut self, table: &EndpointReader, batch: &mut Keys, live: u64) -> u64 {
        // Before anything is read of the table: cached entries are at least as new as this.
        let generation = table.generation();
        if (generation >> 32) as u32 != self.era {
            // Once in 2³² changes.
            self.era = (generation >> 32) as u32;
            self.places.iter_mut().for_each(|place| place.generation = 0);
        }
        if !self.using.asked() {
            return missing(table, batch, live, |_, _, _| ());
        }
        let hits = self.probe(generation as u32, batch) & live;
        self.using.note(hits.count_ones(), live.count_ones());
        let missed = live & !hits;
        if missed == 0 {
            return hits;
        }
        let places = &mut self.places;
        hits | missing(table, batch, missed, |key, hash, endpoint| {
            places[hash as usize % PLACES] = Place { key: *key, endpoint, generation: generation as u32 };
        })
    }

    /// Asks the cache for all lanes, without a branch; what it says of lanes without a packet means nothing.
    #[inline(always)]
    fn probe(&self, generation: u32, batch: &mut Keys) -> u64 {
        let places: &[Place; PLACES] = self.places.first_chunk().expect("as many as were asked for");
        let mut hits = 0;
        let lanes = batch.keys.iter().zip(&batch.hashes).zip(&mut batch.endpoints);
        for (lane, ((key, hash), endpoint)) in lanes.enumerate() {
            let place = &places[*hash as usize % PLACES];
            let hit = (place.key == *key) & (place.generation == generation);
            *endpoint = place.endpoint;
            hits |= u64::from(hit) << lane;
        }
        hits
    }
}

/// Asks the table for the lanes `missed`, and shows `keep` what it has. Returns which have an endpoint.
#[inline(always)]
fn missing(
    table: &EndpointReader,
    batch: &mut Keys,
    missed: u64,
    mut keep: impl FnMut(&V4Key, u32, u32),
) -> u64 {
    let mut found = [0; 64];
    if missed == u64::MAX {
        let hits = table.batch_v4(&batch.keys, &batch.hashes, &mut found);
        for lane in LaneMask(hits).lanes() {
            batch.endpoints[lane] = found[lane];
            keep(&batch.keys[lane], batch.hashes[lane], found[lane]);
        }
        return hits;
    }
    let (mut keys, mut hashes, mut lanes) = ([[0; 4]; 64], [0; 64], [0u8; 64]);
    let mut len = 0;
    for lane in LaneMask(missed).lanes() {
        (keys[len], hashes[len], lanes[len]) = (batch.keys[lane], batch.hashes[lane], lane as u8);
        len += 1;
    }
    let found_bits = table.batch_v4(&keys[..len], &hashes[..len], &mut found);
    let mut hits = 0;
    for place in LaneMask(found_bits).lanes() {
        let lane = usize::from(lanes[place]) % 64;
        batch.endpoints[lane] = found[place];
        hits |= 1 << lane;
        keep(&keys[place], hashes[place], found[place]);
    }
    hits
}
