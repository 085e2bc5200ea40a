//! Tunnel endpoints packet by packet, with few kept: what the library's batches with many are compared with.
//!
//! *One-entry* is VPP's (compare with the last packet's key, else ask the table) and the baseline; *eight-entry* is the paper's
//! (Intel, *AVX-512 – Packet Processing with Intel AVX-512 Instruction Set*, 2021, §5.2): one comparison of eight 64-bit hashes
//! (two with AVX2), with the key verified. Both stand in front of the library's endpoint table and do the work of its node:
//! validation, endpoint, place of the inner packet. What they keep is cleared when the table has changed.
//!
//! Rejected: *keys passed by reference* to the table. Put together word by word and read as a whole they wait for their
//! stores: one-entry 27.5 cycles instead of 18.3 (one endpoint), eight-entry 55 instead of 27.

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

/// How many endpoints are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Design {
    /// The last packet's: VPP's, and the baseline of the others.
    OneEntry,
    /// Eight, whose hashes are compared at once: the paper's.
    EightEntry,
}

impl Design {
    /// Both.
    pub const ALL: [Self; 2] = named_enum::all();

    /// The name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One design's state for both IP versions.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a worker; the entries are what is read per packet")]
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
    /// Of what is kept.
    generation: u64,
}

/// Something to be done with what is kept, once the way to compare is known.
trait PerPacket {
    /// Does it.
    fn run(self, table: &EndpointReader, v4: impl Recent<4>, v6: impl Recent<10>);
}

impl EndpointCache {
    /// An empty cache in front of a table, by the variant of this name; none where that may not be used here. One entry has
    /// no vectors.
    pub fn with_variant(table: EndpointReader, design: Design, variant: Variant) -> Option<Self> {
        let kept = match design {
            Design::OneEntry => Kept::One(LastEndpoint::new(), LastEndpoint::new()),
            Design::EightEntry => Kept::Eight(EightEndpoints::new(), EightEndpoints::new()),
        };
        Backend::of(variant).map(|body| Self { table, kept, body, generation: 0 })
    }

    /// Runs `what` with what is kept, cleared where the table has changed.
    #[inline(always)]
    fn per_packet(&mut self, what: impl PerPacket) {
        // Before anything is read of the table: what is kept is at least as new as this.
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

    /// Looks up to 64 packets up, whose keys ([`V4Key`]) are known. Returns the lanes that have an endpoint, and
    /// writes their numbers.
    ///
    /// # Panics
    /// Where there are more than 64 keys, or fewer places than keys.
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

/// A node that terminates tunnels, one packet after the other: [`flowlane::tunnel::Decapsulator`] by these designs.
#[derive(Debug)]
pub struct Decapsulator {
    cache: EndpointCache,
    policy: Policy,
    plain: Plain,
    refused: RefusedCounts,
}

impl Decapsulator {
    /// A node that terminates what `policy` says and `table` holds, by the variant of this name; none where that may not be
    /// used here.
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

    /// How many packets were refused so far, by reason.
    pub fn refused(&self) -> &RefusedCounts {
        &self.refused
    }

    /// Terminates the tunnels among the `live` ones of up to 64 frames that came in through `vrf`, of which the parser said
    /// `headers`: what the library's node does.
    ///
    /// # Panics
    /// Where there are more than 64 frames, or fewer headers than frames, or `vrf` is beyond [`VRF_MAX`].
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

/// A batch of frames, and what they are judged by.
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
