//! The decapsulation node: from a batch of parsed outer frames to endpoints and inner packets.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::cache::{EndpointCache, Keys};
use super::endpoint::{EndpointId, EndpointReader, Key, V6Key, VRF_MAX};
use super::plain::{OUTER_BYTES, Plain, PlainPacket, vni};
use super::validate::{Valid, validate};
use super::{OptionMap, Policy, Refused, RefusedCounts, TunnelKind};
use crate::isa::{Backend, Variant};
use crate::packet::tunnel::Inner;
use crate::packet::{Headers, LaneMask};

/// Most frames of a batch: one bit each in the masks.
pub const BATCH_MAX: usize = 64;

/// Result of a batch. A frame in neither mask is no tunnel packet, and is processed as it is.
#[derive(Clone, Debug)]
pub struct Decapsulated {
    /// Frames that came from a known endpoint.
    pub terminated: LaneMask,
    /// Frames to a tunnel's port that were refused.
    pub refused: LaneMask,
    /// Why, of the refused.
    pub reasons: [Refused; BATCH_MAX],
    /// Of the terminated: the endpoint's number.
    pub endpoints: [u32; BATCH_MAX],
    /// Of the terminated: VNI or TEID.
    pub ids: [u32; BATCH_MAX],
    /// Of the terminated: where the inner packet begins in the frame.
    pub inner_at: [u16; BATCH_MAX],
    /// Of the terminated: the length of the inner packet. The rest of the frame is padding.
    pub inner_len: [u16; BATCH_MAX],
    /// Of the terminated: the tunnel's protocol.
    pub kinds: [TunnelKind; BATCH_MAX],
    /// Of the terminated: what the inner packet begins with.
    pub inner: [Inner; BATCH_MAX],
}

impl Default for Decapsulated {
    fn default() -> Self {
        Self::new()
    }
}

impl Decapsulated {
    /// For the first batch; each batch overwrites what it needs.
    pub fn new() -> Self {
        Self {
            terminated: LaneMask(0),
            refused: LaneMask(0),
            reasons: [Refused::UnknownEndpoint; BATCH_MAX],
            endpoints: [0; BATCH_MAX],
            ids: [0; BATCH_MAX],
            inner_at: [0; BATCH_MAX],
            inner_len: [0; BATCH_MAX],
            kinds: [TunnelKind::Vxlan; BATCH_MAX],
            inner: [Inner::Ethernet; BATCH_MAX],
        }
    }

    /// Returns the endpoint of a terminated lane.
    pub fn endpoint(&self, lane: usize) -> EndpointId {
        EndpointId(self.endpoints[lane])
    }

    /// Says of a lane that it is refused, and counts it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn refuse(&mut self, lane: usize, reason: Refused, counts: &mut RefusedCounts) {
        self.refused.0 |= 1 << lane;
        self.reasons[lane] = reason;
        counts.count(reason);
    }

    /// All of a plain packet but its endpoint.
    #[doc(hidden)]
    #[inline(always)]
    pub fn describe_plain(&mut self, lane: usize, headers: &Headers, packet: &PlainPacket) {
        self.ids[lane] = vni(packet.key[2]);
        self.inner_at[lane] = headers.l3.wrapping_add(OUTER_BYTES as u16);
        self.inner_len[lane] = packet.inner_len;
        self.kinds[lane] = packet.kind;
        self.inner[lane] = Inner::Ethernet;
    }

    /// All of a packet but its endpoint.
    #[doc(hidden)]
    #[inline(always)]
    pub fn describe(&mut self, lane: usize, valid: &Valid) {
        self.ids[lane] = valid.id;
        self.inner_at[lane] = valid.inner_at;
        self.inner_len[lane] = valid.inner_len;
        self.kinds[lane] = valid.kind;
        self.inner[lane] = valid.inner;
    }
}

/// A worker's node that terminates tunnels.
#[derive(Debug)]
pub struct Decapsulator {
    cache: EndpointCache,
    backend: Backend,
    policy: Policy,
    plain: Plain,
    refused: RefusedCounts,
    others: Box<Others>,
}

/// A batch of frames with what the parser said of them.
#[derive(Clone, Copy)]
struct Batch<'a> {
    frames: &'a [&'a [u8]],
    headers: &'a [Headers],
    vrf: u32,
    live: u64,
}

impl Decapsulator {
    /// Creates a node that terminates what `policy` says and `table` holds, by the widest variant that there is.
    pub fn new(table: EndpointReader, policy: Policy) -> Self {
        Self::with_backend(table, policy, Backend::first_of(&[Variant::Avx512, Variant::Avx2]))
    }

    /// Creates a node with an explicit variant; none where that may not be used here.
    pub fn with_variant(table: EndpointReader, policy: Policy, variant: Variant) -> Option<Self> {
        Backend::of(variant).map(|backend| Self::with_backend(table, policy, backend))
    }

    fn with_backend(table: EndpointReader, policy: Policy, backend: Backend) -> Self {
        let plain = Plain::new(&policy);
        Self {
            cache: EndpointCache::new(table),
            backend,
            policy,
            plain,
            refused: RefusedCounts::default(),
            others: Box::new(Others::new()),
        }
    }

    /// By which variant.
    pub fn variant(&self) -> Variant {
        self.backend.variant()
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Gives GENEVE options other fields.
    pub fn set_option_fields(&mut self, fields: OptionMap) {
        self.policy.option_fields = fields;
    }

    /// How many packets were refused so far, by reason.
    pub fn refused(&self) -> &RefusedCounts {
        &self.refused
    }

    /// Terminates the tunnels among the `live` ones of up to 64 frames that came in through `vrf`, of which the
    /// parser said `headers`. Frames are not changed: `out` gives the positions of inner packets.
    ///
    /// An endpoint whose removal was complete when the batch began is not found.
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
        let batch = Batch { frames, headers, vrf, live };
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
            Backend::Avx512(_) => unsafe { avx512::decapsulate(self, batch, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
            Backend::Avx2(_) => unsafe { portable::avx2(self, batch, out) },
            _ => self.whole_batch(batch, out, portable::read_plain),
        }
    }

    /// The whole node, with a way to read the plain packets of a batch.
    #[inline(always)]
    fn whole_batch(&mut self, batch: Batch<'_>, out: &mut Decapsulated, read: impl ReadPlain) {
        let Self { cache, plain, policy, refused, others, .. } = self;
        let EndpointCache { table, mapped, batch: keys } = cache;
        let multipliers = table.multipliers();
        let is_plain = read(plain, &multipliers, batch, keys, out);
        (others.v4, others.v6, others.v6_len) = (0, 0, 0);
        if batch.live & !is_plain != 0 {
            others.read(batch, !is_plain, policy, refused, keys, &multipliers, out);
        }
        let v4 = is_plain | others.v4;
        let mut found = mapped.lookup(table, keys, v4);
        out.endpoints = keys.endpoints;
        if others.v6_len != 0 {
            found |= others.lookup_v6(table, out);
        }
        let unknown = (v4 | others.v6) & !found;
        out.terminated = LaneMask(found);
        for lane in LaneMask(unknown).lanes() {
            out.refuse(lane, Refused::UnknownEndpoint, refused);
        }
    }
}

/// Reads the plain packets of a batch: what they are into the last, their keys and hashes into the one before.
/// Returns which lanes have one.
trait ReadPlain: Fn(&Plain, &[u32; 4], Batch<'_>, &mut Keys, &mut Decapsulated) -> u64 {}

impl<F> ReadPlain for F where F: Fn(&Plain, &[u32; 4], Batch<'_>, &mut Keys, &mut Decapsulated) -> u64 {}

/// The packets of a batch that are not plain: read one by one, looked up together.
#[derive(Debug)]
struct Others {
    v4: u64,
    v6: u64,
    v6_keys: [V6Key; BATCH_MAX],
    v6_lanes: [u8; BATCH_MAX],
    v6_len: usize,
}

impl Others {
    fn new() -> Self {
        Self { v4: 0, v6: 0, v6_keys: [[0; 10]; BATCH_MAX], v6_lanes: [0; BATCH_MAX], v6_len: 0 }
    }

    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "the parts of a decapsulator, borrowed apart")]
    fn read(
        &mut self,
        batch: Batch<'_>,
        lanes: u64,
        policy: &Policy,
        refused: &mut RefusedCounts,
        keys: &mut Keys,
        multipliers: &[u32; 4],
        out: &mut Decapsulated,
    ) {
        for lane in LaneMask(batch.live & lanes).lanes() {
            match validate(batch.frames[lane], &batch.headers[lane], batch.vrf, policy) {
                None => {}
                Some(Err(reason)) => out.refuse(lane, reason, refused),
                Some(Ok(valid)) => {
                    out.describe(lane, &valid);
                    match valid.key {
                        Key::V4(key) => {
                            self.v4 |= 1 << lane;
                            keys.keys[lane] = key;
                            keys.hashes[lane] = super::plain::hash(multipliers, &key);
                        }
                        Key::V6(key) => {
                            self.v6 |= 1 << lane;
                            self.v6_keys[self.v6_len] = key;
                            self.v6_lanes[self.v6_len] = lane as u8;
                            self.v6_len += 1;
                        }
                    }
                }
            }
        }
    }

    #[inline(never)]
    fn lookup_v6(&self, table: &EndpointReader, out: &mut Decapsulated) -> u64 {
        let mut found = [0; BATCH_MAX];
        let hits = table.batch_v6(&self.v6_keys[..self.v6_len], &mut found);
        LaneMask(hits).lanes().fold(0, |lanes, place| {
            let lane = usize::from(self.v6_lanes[place]);
            out.endpoints[lane] = found[place];
            lanes | 1 << lane
        })
    }
}
