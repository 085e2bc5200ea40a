//! A worker's caches of endpoints: never shared, of one generation of the table.

mod eight;
mod last;
pub(super) mod mapped;

use eight::{Comparing, EightEndpoints, Portable};
use last::LastEndpoint;
use mapped::{Keys, MappedEndpoints};

use super::endpoint::{EndpointReader, V4Key, V6Key};
use crate::isa::{Body, Variant};
use crate::packet::LaneMask;

/// How endpoints are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Design {
    /// Packet by packet, with the last packet's endpoint kept: VPP's, and the baseline of the others.
    OneEntry,
    /// Packet by packet, with eight endpoints kept, whose hashes are compared at once: the paper's.
    EightEntry,
    /// A batch at a time, with a direct-mapped cache of many endpoints.
    Batch,
}

impl Design {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OneEntry, Self::EightEntry, Self::Batch];

    /// The name, on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneEntry => "one-entry",
            Self::EightEntry => "eight-entry",
            Self::Batch => "batch",
        }
    }
}

/// What packet by packet designs keep of recent packets.
pub(super) trait Recent<const W: usize> {
    /// The endpoint of a key that is kept.
    fn find(&mut self, key: &[u32; W]) -> Option<u32>;
    /// Keeps a key's endpoint.
    fn keep(&mut self, key: &[u32; W], endpoint: u32);
    /// Forgets all.
    fn clear(&mut self);
}

/// One design's state for both IP versions.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a worker; the entries are what is read per packet")]
pub(super) enum Kept {
    One(LastEndpoint<4>, LastEndpoint<10>),
    Eight(EightEndpoints<4>, EightEndpoints<10>),
    Batch(MappedEndpoints),
}

/// A worker's cache in front of an endpoint table.
#[derive(Debug)]
pub struct EndpointCache {
    pub(super) table: EndpointReader,
    pub(super) kept: Kept,
    pub(super) body: Body,
    /// Of what packet by packet designs keep.
    generation: u64,
    pub(super) batch: Box<Keys>,
}

/// Something to be done with what a packet by packet design keeps, once the way to compare is known.
pub(super) trait PerPacket {
    /// Does it.
    fn run(self, table: &EndpointReader, v4: impl Recent<4>, v6: impl Recent<10>);
}

impl EndpointCache {
    /// An empty cache in front of a table, by the variant of this name; none where that may not be used here.
    pub fn with_variant(table: EndpointReader, design: Design, variant: Variant) -> Option<Self> {
        Body::of(variant).map(|body| Self::new(table, design, body))
    }

    /// An empty cache in front of a table.
    pub(super) fn new(table: EndpointReader, design: Design, body: Body) -> Self {
        let kept = match design {
            Design::OneEntry => Kept::One(LastEndpoint::new(), LastEndpoint::new()),
            Design::EightEntry => Kept::Eight(EightEndpoints::new(), EightEndpoints::new()),
            Design::Batch => Kept::Batch(MappedEndpoints::new()),
        };
        Self { table, kept, body, generation: 0, batch: Box::new(Keys::new()) }
    }

    /// Runs `what` with what this packet by packet design keeps, cleared where the table has changed. Does
    /// nothing with [`Design::Batch`].
    #[inline(always)]
    pub(super) fn per_packet(&mut self, what: impl PerPacket) {
        // Before anything is read of the table: what is kept is at least as new as this.
        let generation = self.table.generation();
        let stale = std::mem::replace(&mut self.generation, generation) != generation;
        match &mut self.kept {
            Kept::One(v4, v6) => run(&self.table, stale, v4, v6, what),
            Kept::Eight(v4, v6) => match self.body {
                #[cfg(target_arch = "x86_64")]
                Body::Avx512(proof) => {
                    let compare = eight::Wide512(proof);
                    // SAFETY: the witness proves AVX-512 F, BW, DQ and VL.
                    unsafe { avx512(&self.table, stale, v4, v6, compare, what) }
                }
                #[cfg(target_arch = "x86_64")]
                Body::Avx2(proof) => {
                    let compare = eight::Wide256(proof);
                    // SAFETY: the witness proves AVX2.
                    unsafe { avx2(&self.table, stale, v4, v6, compare, what) }
                }
                _ => comparing(&self.table, stale, v4, v6, Portable, what),
            },
            Kept::Batch(_) => {}
        }
    }

    /// Looks up to 64 packets up, whose keys ([`V4Key`]) are known. Returns the lanes that have an endpoint, and
    /// writes their numbers.
    ///
    /// # Panics
    /// Where there are more than 64 keys, or fewer places than keys.
    pub fn lookup_batch(&mut self, keys: &[V4Key], endpoints: &mut [u32]) -> LaneMask {
        assert!(keys.len() <= 64 && endpoints.len() >= keys.len(), "at most 64 keys, and a place for each");
        if let Kept::Batch(mapped) = &mut self.kept {
            self.batch.keys[..keys.len()].copy_from_slice(keys);
            self.table.hash_v4(keys, &mut self.batch.hashes);
            let hits = mapped.lookup(&self.table, &mut self.batch, LaneMask::first(keys.len()).0);
            endpoints[..keys.len()].copy_from_slice(&self.batch.endpoints[..keys.len()]);
            return LaneMask(hits);
        }
        let mut hits = LaneMask(0);
        self.per_packet(KeysOnly { keys, endpoints, hits: &mut hits });
        hits
    }
}

#[inline(always)]
fn run(
    table: &EndpointReader,
    stale: bool,
    mut v4: impl Recent<4>,
    mut v6: impl Recent<10>,
    what: impl PerPacket,
) {
    if stale {
        v4.clear();
        v6.clear();
    }
    what.run(table, v4, v6);
}

#[inline(always)]
fn comparing<C: eight::Compare>(
    table: &EndpointReader,
    stale: bool,
    v4: &mut EightEndpoints<4>,
    v6: &mut EightEndpoints<10>,
    compare: C,
    what: impl PerPacket,
) {
    run(table, stale, Comparing { cache: v4, compare }, Comparing { cache: v6, compare }, what);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn avx512(
    table: &EndpointReader,
    stale: bool,
    v4: &mut EightEndpoints<4>,
    v6: &mut EightEndpoints<10>,
    compare: eight::Wide512,
    what: impl PerPacket,
) {
    comparing(table, stale, v4, v6, compare, what);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn avx2(
    table: &EndpointReader,
    stale: bool,
    v4: &mut EightEndpoints<4>,
    v6: &mut EightEndpoints<10>,
    compare: eight::Wide256,
    what: impl PerPacket,
) {
    comparing(table, stale, v4, v6, compare, what);
}

/// The endpoint of a key, from what is kept or from the table.
#[inline(always)]
pub(super) fn endpoint_v4(table: &EndpointReader, recent: &mut impl Recent<4>, key: &V4Key) -> Option<u32> {
    let kept = recent.find(key);
    if kept.is_some() {
        return kept;
    }
    let [source, destination, id, tag] = *key;
    let found = from_table(table, source, destination, id, tag)?;
    recent.keep(key, found);
    Some(found)
}

/// The table's answer. By words, so that a key whose address nobody takes stays in registers: written word by word
/// and read as a whole, it would wait for its stores (28 cycles a packet of the eight-entry design, measured).
#[inline(never)]
fn from_table(table: &EndpointReader, source: u32, destination: u32, id: u32, tag: u32) -> Option<u32> {
    table.lookup_v4(&[source, destination, id, tag]).map(|found| found.0)
}

/// The same of a packet with IPv6 addresses.
#[inline(always)]
pub(super) fn endpoint_v6(table: &EndpointReader, recent: &mut impl Recent<10>, key: &V6Key) -> Option<u32> {
    let kept = recent.find(key);
    if kept.is_some() {
        return kept;
    }
    let found = table.lookup_v6(key)?.0;
    recent.keep(key, found);
    Some(found)
}

/// A lookup of keys alone.
struct KeysOnly<'a> {
    keys: &'a [V4Key],
    endpoints: &'a mut [u32],
    hits: &'a mut LaneMask,
}

impl PerPacket for KeysOnly<'_> {
    #[inline(always)]
    fn run(self, table: &EndpointReader, mut v4: impl Recent<4>, _: impl Recent<10>) {
        for (lane, (key, endpoint)) in self.keys.iter().zip(self.endpoints).enumerate() {
            if let Some(found) = endpoint_v4(table, &mut v4, key) {
                *endpoint = found;
                self.hits.0 |= 1 << lane;
            }
        }
    }
}
