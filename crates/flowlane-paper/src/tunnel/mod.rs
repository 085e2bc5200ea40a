//! Tunnel endpoints packet by packet with a small cache: the baselines for the library's batches.
//!
//! *One-entry* is VPP's design and the baseline: it compares with the last packet's key and otherwise looks up the
//! table. *Eight-entry* is the paper's (Intel, *AVX-512 – Packet Processing with Intel AVX-512 Instruction Set*,
//! 2021, §5.2): one comparison of eight 64-bit hashes (two with AVX2), with the key verified. Both precede the
//! library's endpoint table and do the work of its node: validation, endpoint, offset of the inner packet. A change
//! of the table clears the cache.
//!
//! Rejected: *passing keys by reference* to the table. Keys that are assembled word by word and read as a whole wait
//! for their stores: one-entry 27.5 cycles instead of 18.3 (one endpoint), eight-entry 55 instead of 27.

mod eight;
mod last;
mod recent;
#[cfg(test)]
mod tests;

use eight::{Comparing, EightEndpoints, Portable};
use flowlane::isa::{Backend, Variant};
use flowlane::named_enum;
use flowlane::packet::{Headers, LaneMask};
use flowlane::tunnel::one_by_one::{Key, Plain, validate};
use flowlane::tunnel::{
    BATCH_MAX, Decapsulated, EndpointReader, Policy, Refused, RefusedCounts, V4Key, VRF_MAX,
};
use last::LastEndpoint;
use recent::{Recent, endpoint_v4, endpoint_v6};
use strum::{IntoStaticStr, VariantArray};

/// The design of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Design {
    /// One entry, the last packet's: VPP's design and the baseline.
    OneEntry,
    /// Eight entries, whose hashes are compared at once: the paper's design.
    EightEntry,
}

impl Design {
    /// All designs.
    pub const ALL: [Self; 2] = named_enum::all();

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The cache of one design for both IP versions.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each worker; every packet reads the entries")]
enum Kept {
    One(LastEndpoint<4>, LastEndpoint<10>),
    Eight(EightEndpoints<4>, EightEndpoints<10>),
}

/// A worker's cache in front of an endpoint table.
#[derive(Debug)]
pub struct EndpointCache {
    table: EndpointReader,
    kept: Kept,
    body: Backend,
    /// The generation of the table that the cache corresponds to.
    generation: u64,
}

/// An operation on the cache, monomorphised for its comparison method.
trait PerPacket {
    /// Runs the operation.
    fn run(self, table: &EndpointReader, v4: impl Recent<4>, v6: impl Recent<10>);
}

impl EndpointCache {
    /// Builds an empty cache in front of a table, or returns `None` if the CPU lacks the variant. The one-entry
    /// design has only a scalar variant.
    pub fn with_variant(table: EndpointReader, design: Design, variant: Variant) -> Option<Self> {
        let kept = match design {
            Design::OneEntry => Kept::One(LastEndpoint::new(), LastEndpoint::new()),
            Design::EightEntry => Kept::Eight(EightEndpoints::new(), EightEndpoints::new()),
        };
        Backend::of(variant).map(|body| Self { table, kept, body, generation: 0 })
    }

    /// Runs `what` with the cache, which is cleared first if the table has changed.
    #[inline(always)]
    fn per_packet(&mut self, what: impl PerPacket) {
        // Read before the table, so that the cache is at least as new as this generation.
        let generation = self.table.generation();
        let stale = std::mem::replace(&mut self.generation, generation) != generation;
        match &mut self.kept {
            Kept::One(v4, v6) => run(&self.table, stale, v4, v6, what),
            Kept::Eight(v4, v6) => match self.body {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(proof) => {
                    let compare = eight::Wide512(proof);
                    // SAFETY: the witness proves AVX-512 F, BW, DQ and VL.
                    unsafe { avx512(&self.table, stale, v4, v6, compare, what) }
                }
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(proof) => {
                    let compare = eight::Wide256(proof);
                    // SAFETY: the witness proves AVX2.
                    unsafe { avx2(&self.table, stale, v4, v6, compare, what) }
                }
                _ => comparing(&self.table, stale, v4, v6, Portable, what),
            },
        }
    }

    /// Looks up at most 64 packets by key ([`V4Key`]), writes their endpoints, and returns the lanes that have one.
    ///
    /// # Panics
    /// Panics if there are more than 64 keys, or if `endpoints` is shorter than `keys`.
    pub fn lookup_batch(&mut self, keys: &[V4Key], endpoints: &mut [u32]) -> LaneMask {
        assert!(keys.len() <= 64 && endpoints.len() >= keys.len(), "at most 64 keys, and a place for each");
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

/// A lookup of keys without frames.
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

/// A node that terminates tunnels packet by packet: [`flowlane::tunnel::Decapsulator`] with the papers' caches.
#[derive(Debug)]
pub struct Decapsulator {
    cache: EndpointCache,
    policy: Policy,
    plain: Plain,
    refused: RefusedCounts,
}

impl Decapsulator {
    /// Builds a node for a policy and a table, or returns `None` if the CPU lacks the variant.
    pub fn with_variant(
        table: EndpointReader,
        policy: Policy,
        design: Design,
        variant: Variant,
    ) -> Option<Self> {
        let cache = EndpointCache::with_variant(table, design, variant)?;
        let plain = Plain::new(&policy);
        Some(Self { cache, policy, plain, refused: RefusedCounts::default() })
    }

    /// Returns the number of refused packets by reason.
    pub fn refused(&self) -> &RefusedCounts {
        &self.refused
    }

    /// Terminates the tunnels among the `live` frames, at most 64, received through `vrf` with these parsed
    /// `headers`, as the library's node does.
    ///
    /// # Panics
    /// Panics if there are more than 64 frames, fewer headers than frames, or if `vrf` exceeds [`VRF_MAX`].
    pub fn decapsulate(
        &mut self,
        frames: &[&[u8]],
        headers: &[Headers],
        vrf: u32,
        live: LaneMask,
        out: &mut Decapsulated,
    ) {
        assert!(frames.len() <= BATCH_MAX, "a batch of {} frames is longer than {BATCH_MAX}", frames.len());
        assert!(vrf <= VRF_MAX, "the VRF {vrf} is larger than {VRF_MAX}");
        let headers = &headers[..frames.len()];
        let live = live.0 & LaneMask::first(frames.len()).0;
        (out.terminated, out.refused) = (LaneMask(0), LaneMask(0));
        let Self { cache, policy, plain, refused } = self;
        cache.per_packet(Node { frames, headers, vrf, live, policy, plain, refused, out });
    }
}

/// A batch of frames and the state that decides on them.
struct Node<'a> {
    frames: &'a [&'a [u8]],
    headers: &'a [Headers],
    vrf: u32,
    live: u64,
    policy: &'a Policy,
    plain: &'a Plain,
    refused: &'a mut RefusedCounts,
    out: &'a mut Decapsulated,
}

impl PerPacket for Node<'_> {
    #[inline(always)]
    fn run(self, table: &EndpointReader, mut v4: impl Recent<4>, mut v6: impl Recent<10>) {
        let Self { frames, headers, vrf, live, policy, plain, refused, out } = self;
        let both = frames.iter().zip(headers).enumerate();
        for (lane, (frame, headers)) in both.filter(|(lane, _)| live >> lane & 1 != 0) {
            let found = if let Some(packet) = plain.read(frame, headers, vrf) {
                out.describe_plain(lane, headers, &packet);
                endpoint_v4(table, &mut v4, &packet.key)
            } else {
                match validate(frame, headers, vrf, policy) {
                    None => continue,
                    Some(Err(reason)) => {
                        out.refuse(lane, reason, refused);
                        continue;
                    }
                    Some(Ok(valid)) => {
                        out.describe(lane, &valid);
                        match &valid.key {
                            Key::V4(key) => endpoint_v4(table, &mut v4, key),
                            Key::V6(key) => endpoint_v6(table, &mut v6, key),
                        }
                    }
                }
            };
            match found {
                Some(endpoint) => {
                    out.endpoints[lane] = endpoint;
                    out.terminated.0 |= 1 << lane;
                }
                None => out.refuse(lane, Refused::UnknownEndpoint, refused),
            }
        }
    }
}
