//! Tunnel endpoints: what identifies one, and the table of those that this node terminates.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::TunnelKind;
use crate::cuckoo::{CuckooConfig, CuckooReader, CuckooWriter};
use crate::hash::multilinear::Multilinear;
use crate::isa::Variant;
use crate::packet::tunnel::erspan::SESSION_MAX;

/// Words of a key with IPv4 addresses: source, destination, VNI or TEID, tag. The first three are as they
/// stand on the wire, whatever the byte order of the machine.
pub type V4Key = [u32; 4];

/// Words of a key with IPv6 addresses: source, destination, VNI or TEID, tag.
pub type V6Key = [u32; 10];

/// In the tag of an endpoint that takes packets from any source.
const OPEN: u32 = 0x80;

/// The largest VRF: it shares a word with the tunnel's kind.
pub const VRF_MAX: u32 = 0x00ff_ffff;

/// The largest VNI of VXLAN and GENEVE.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// Slots that the tables begin with; they grow in place.
const ENDPOINTS_AT_FIRST: usize = 256;

/// The key of a tunnel endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// The tunnel's protocol.
    pub kind: TunnelKind,
    /// VNI (24 bits) or TEID (32 bits).
    pub id: u32,
    /// The routing instance that outer packets came in through, at most [`VRF_MAX`].
    pub vrf: u32,
    /// The outer source: the remote end. None: any remote. An endpoint with a packet's source goes before one
    /// without.
    pub source: Option<IpAddr>,
    /// The outer destination: an address of this node, or a multicast group that it listens to.
    pub destination: IpAddr,
}

/// The number by which the owner knows an endpoint: an index into what it keeps of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u32);

/// An endpoint that cannot be inserted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The table has as many as it may have.
    #[error(
        "the table holds {endpoints} tunnel endpoints, of at most {endpoints_max}; remove some, or make it with a larger \
         limit"
    )]
    Full {
        /// Endpoints in the table.
        endpoints: usize,
        /// The limit that it was made with.
        endpoints_max: usize,
    },
    /// Source and destination are of different families.
    #[error(
        "the outer source {source_address} and destination {destination} are of different IP versions; give both of one"
    )]
    Families {
        /// The source.
        source_address: IpAddr,
        /// The destination.
        destination: IpAddr,
    },
    /// A VNI beyond 24 bits.
    #[error("the VNI {id} has more than 24 bits; the largest is {VNI_MAX}")]
    Vni {
        /// The VNI.
        id: u32,
    },
    /// A session of ERSPAN beyond 10 bits.
    #[error("the session {id} has more than 10 bits; the largest is {SESSION_MAX}")]
    Session {
        /// The session.
        id: u32,
    },
    /// A VRF beyond 24 bits.
    #[error("the VRF {vrf} has more than 24 bits; number VRFs from 0 to {VRF_MAX}")]
    Vrf {
        /// The VRF.
        vrf: u32,
    },
}

/// Returns the last word of a key.
#[inline(always)]
pub(super) fn tag(kind: TunnelKind, vrf: u32) -> u32 {
    vrf << 8 | kind as u32
}

/// Returns a VNI or TEID as it is in keys: a VNI's three bytes are followed by a byte that does not count.
#[inline(always)]
pub(super) fn id_on_wire(kind: TunnelKind, id: u32) -> u32 {
    let id = if kind.id_max() == VNI_MAX { id << 8 } else { id };
    u32::from_ne_bytes(id.to_be_bytes())
}

/// Returns the words of an address in network byte order.
#[inline(always)]
pub(super) fn words<const W: usize>(octets: &[u8]) -> [u32; W] {
    std::array::from_fn(|i| {
        u32::from_ne_bytes([octets[4 * i], octets[4 * i + 1], octets[4 * i + 2], octets[4 * i + 3]])
    })
}

/// A key of either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// IPv4.
    V4(V4Key),
    /// IPv6.
    V6(V6Key),
}

impl Endpoint {
    /// The key by which packets of this endpoint are looked up; none where it has IPv6 addresses, is open to any
    /// source, or cannot be inserted.
    pub fn v4_key(&self) -> Option<V4Key> {
        match self.key() {
            Ok(Key::V4(key)) if self.source.is_some() => Some(key),
            _ => None,
        }
    }

    /// Returns the key under which the table has this endpoint.
    fn key(&self) -> Result<Key, EndpointError> {
        let Self { kind, id, vrf, source, destination } = *self;
        if vrf > VRF_MAX {
            return Err(EndpointError::Vrf { vrf });
        }
        if id > kind.id_max() {
            return Err(match kind {
                TunnelKind::Erspan => EndpointError::Session { id },
                _ => EndpointError::Vni { id },
            });
        }
        let tag = tag(kind, vrf) | if source.is_none() { OPEN } else { 0 };
        let id = id_on_wire(kind, id);
        match (source, destination) {
            (Some(IpAddr::V4(_)) | None, IpAddr::V4(to)) => {
                let from = match source {
                    Some(IpAddr::V4(from)) => from.octets(),
                    _ => [0; 4],
                };
                let ([from], [to]) = (words(&from), words(&to.octets()));
                Ok(Key::V4([from, to, id, tag]))
            }
            (Some(IpAddr::V6(_)) | None, IpAddr::V6(to)) => {
                let from = match source {
                    Some(IpAddr::V6(from)) => from.octets(),
                    _ => [0; 16],
                };
                let mut key = [0; 10];
                key[..4].copy_from_slice(&words::<4>(&from));
                key[4..8].copy_from_slice(&words::<4>(&to.octets()));
                key[8..].copy_from_slice(&[id, tag]);
                Ok(Key::V6(key))
            }
            (Some(source_address), destination) => {
                Err(EndpointError::Families { source_address, destination })
            }
        }
    }
}

/// Returns the packet's key without its source: that of an endpoint that takes packets from anywhere.
#[inline(always)]
pub(super) fn opened<const W: usize>(key: &[u32; W]) -> [u32; W] {
    let mut key = *key;
    key[..(W - 2) / 2].fill(0);
    key[W - 1] |= OPEN;
    key
}

/// How a table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// Most endpoints, of both IP versions together.
    pub endpoints_max: usize,
    /// Of the hashes; should be secret.
    pub seed: u32,
    /// The variant of the lookups, where it may be used here; none: the one chosen for tables of this size.
    pub variant: Option<Variant>,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self { endpoints_max: 1 << 17, seed: 0x7e57_5eed, variant: None }
    }
}

/// State that table and readers share beside the endpoints.
#[derive(Debug)]
struct Shared {
    /// Goes up with every change, after it. Its lower half is never 0, so that an empty place of a cache, which
    /// is all zeros, is of no generation.
    generation: AtomicU64,
    /// Endpoints that take packets from any source, of both families.
    open: AtomicU64,
}

/// The endpoints that this node terminates: the one handle that changes them.
pub struct EndpointTable {
    v4: CuckooWriter<4>,
    v6: CuckooWriter<10>,
    shared: Arc<Shared>,
    config: EndpointConfig,
}

impl fmt::Debug for EndpointTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointTable({} of {} endpoints)", self.len(), self.config.endpoints_max)
    }
}

fn table<const W: usize>(config: &EndpointConfig) -> CuckooWriter<W> {
    let cuckoo = CuckooConfig::new(config.endpoints_max, config.seed).growing_from(ENDPOINTS_AT_FIRST);
    CuckooWriter::new(&config.variant.and_then(|v| cuckoo.with_variant(v)).unwrap_or(cuckoo))
}

impl EndpointTable {
    /// An empty table. Memory is reserved for the most endpoints of either IP version, and committed as they come.
    ///
    /// # Panics
    /// Where the system has no memory for it.
    pub fn new(config: &EndpointConfig) -> Self {
        let shared = Shared { generation: AtomicU64::new(1), open: AtomicU64::new(0) };
        Self { v4: table(config), v6: table(config), shared: Arc::new(shared), config: *config }
    }

    /// Returns another reader, for a worker.
    pub fn reader(&self) -> EndpointReader {
        EndpointReader {
            v4: self.v4.reader(),
            v6: self.v6.reader(),
            shared: Arc::clone(&self.shared),
            hash: Multilinear::new(self.config.seed.into()),
        }
    }

    /// Returns the number of endpoints.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes reserved for the most endpoints.
    pub fn table_bytes(&self) -> usize {
        let (v4, v6) = (&self.v4, &self.v6);
        v4.table_bytes() + v4.writer_bytes() + v6.table_bytes() + v6.writer_bytes()
    }

    /// Has packets of `endpoint` found as `id`; returns as what they were found before. Batches that begin when
    /// this has returned see the change.
    ///
    /// # Errors
    /// If the endpoint is invalid, or there are too many; the table is unchanged then.
    pub fn insert(
        &mut self,
        endpoint: &Endpoint,
        id: EndpointId,
    ) -> Result<Option<EndpointId>, EndpointError> {
        let key = endpoint.key()?;
        let full = EndpointError::Full { endpoints: self.len(), endpoints_max: self.config.endpoints_max };
        let known = match &key {
            Key::V4(key) => self.v4.lookup(key),
            Key::V6(key) => self.v6.lookup(key),
        };
        if known.is_none() && self.len() >= self.config.endpoints_max {
            return Err(full);
        }
        let before = match &key {
            Key::V4(key) => self.v4.insert(key, id.0),
            Key::V6(key) => self.v6.insert(key, id.0),
        };
        let before = before.map_err(|_| full)?;
        if before.is_none() && endpoint.source.is_none() {
            self.shared.open.fetch_add(1, Relaxed);
        }
        self.changed();
        Ok(before.map(EndpointId))
    }

    /// Removes an endpoint; returns as what it was found. No batch that begins when this has returned finds it,
    /// from whatever cache.
    pub fn remove(&mut self, endpoint: &Endpoint) -> Option<EndpointId> {
        let before = match &endpoint.key().ok()? {
            Key::V4(key) => self.v4.remove(key),
            Key::V6(key) => self.v6.remove(key),
        }?;
        if endpoint.source.is_none() {
            self.shared.open.fetch_sub(1, Relaxed);
        }
        self.changed();
        Some(EndpointId(before))
    }

    /// Begins a new generation: what caches hold is of the one before.
    fn changed(&self) {
        let next = self.shared.generation.load(Relaxed) + 1;
        let next = if next as u32 == 0 { next + 1 } else { next };
        // Release: a reader that sees the new generation sees the table's change.
        self.shared.generation.store(next, Release);
    }
}

/// A worker's handle for lookups; clone it for every worker.
#[derive(Clone, Debug)]
pub struct EndpointReader {
    v4: CuckooReader<4>,
    v6: CuckooReader<10>,
    shared: Arc<Shared>,
    hash: Multilinear,
}

impl EndpointReader {
    /// Increases with every change. A lookup after reading it sees at least this generation.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Acquire)
    }

    #[inline(always)]
    fn any_open(&self) -> bool {
        self.shared.open.load(Relaxed) != 0
    }

    /// Returns the multipliers of the words of a [`V4Key`], whose hash they give.
    pub(super) fn multipliers(&self) -> V4Key {
        std::array::from_fn(|w| self.hash.multiplier(w))
    }

    /// The hashes of keys.
    pub(super) fn hash_v4(&self, keys: &[V4Key], hashes: &mut [u32]) {
        self.v4.hash_batch(keys, hashes);
    }

    /// Returns the endpoint of a packet with IPv4 addresses.
    #[inline]
    pub fn lookup_v4(&self, key: &V4Key) -> Option<EndpointId> {
        let found = self.v4.lookup(key);
        let found = if found.is_none() && self.any_open() { self.v4.lookup(&opened(key)) } else { found };
        found.map(EndpointId)
    }

    /// Returns the endpoint of a packet with IPv6 addresses.
    #[inline]
    pub fn lookup_v6(&self, key: &V6Key) -> Option<EndpointId> {
        let found = self.v6.lookup(key);
        let found = if found.is_none() && self.any_open() { self.v6.lookup(&opened(key)) } else { found };
        found.map(EndpointId)
    }

    /// Looks up to 64 keys up, whose hashes are known. Returns a bit for each that is there, and writes its
    /// endpoint.
    #[inline]
    pub(super) fn batch_v4(&self, keys: &[V4Key], hashes: &[u32], found: &mut [u32]) -> u64 {
        let hits = self.v4.lookup_batch_with_hashes(keys, hashes, found);
        with_open(&self.v4, self.any_open(), keys, hits, found)
    }

    /// Looks up a batch of keys with IPv6 addresses.
    pub(super) fn batch_v6(&self, keys: &[V6Key], found: &mut [u32]) -> u64 {
        let hits = self.v6.lookup_batch(keys, found);
        with_open(&self.v6, self.any_open(), keys, hits, found)
    }
}

/// Asks for those that were not found once more, without their sources.
#[inline(always)]
fn with_open<const W: usize>(
    table: &CuckooReader<W>,
    any_open: bool,
    keys: &[[u32; W]],
    mut hits: u64,
    found: &mut [u32],
) -> u64 {
    let misses = (u64::MAX >> (64 - keys.len().max(1))) & !hits;
    if any_open && misses != 0 && !keys.is_empty() {
        let (mut open, mut values) = ([[0; W]; 64], [0; 64]);
        keys.iter().zip(&mut open).for_each(|(key, open)| *open = opened(key));
        let open_hits = table.lookup_batch(&open[..keys.len()], &mut values) & misses;
        for lane in crate::packet::LaneMask(open_hits).lanes() {
            found[lane] = values[lane];
        }
        hits |= open_hits;
    }
    hits
}
