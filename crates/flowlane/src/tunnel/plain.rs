//! Plain tunnel packets: the common stacks, recognised by five words of 64 bits from the IPv4 header on.
//!
//! ```text
//! byte   0        8        16       24       32       40
//!        | v  len | proto  | dst    | UDP    | VNI    |
//!        | frag   | sum src| ports  | flags  | inner  |
//! word   0        1        2        3        4
//! ```
//!
//! A packet is plain where it would pass [`validate`](super::validate) with nothing unusual on the way: IPv4
//! without options or fragments, no UDP checksum (or one that need not be verified), VXLAN, or GENEVE with
//! Ethernet inside and without options. Other packets take that path. Words are little-endian on every machine, so
//! that the place of a byte is the same everywhere.

use super::endpoint::{V4Key, tag};
use super::{Policy, TunnelKind};
use crate::hash::multilinear;
use crate::packet::{Headers, Network};

/// Bytes of a frame that are looked at, from the network header on.
pub(super) const PLAIN_BYTES: usize = 40;

/// Words of 64 bits that are looked at.
pub(super) const PLAIN_WORDS: usize = PLAIN_BYTES / 8;

/// Bytes before the inner packet, from the network header on: IPv4, UDP, tunnel.
pub(super) const OUTER_BYTES: usize = 20 + 8 + 8;

/// A word in which some bits are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) value: u64,
    pub(super) bits: u64,
}

impl Wanted {
    /// Adds some bits of the byte at `place`.
    fn byte(mut self, place: usize, value: u8, bits: u8) -> Self {
        self.value |= u64::from(value) << (8 * place);
        self.bits |= u64::from(bits) << (8 * place);
        self
    }

    /// Returns the bits of `word` that are not as wanted.
    #[inline(always)]
    pub(super) fn wrong(self, word: u64) -> u64 {
        (word ^ self.value) & self.bits
    }
}

/// Words 2 and 3 of packets of one kind of tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    pub(super) kind: TunnelKind,
    pub(super) ports: Wanted,
    pub(super) tunnel: Wanted,
}

/// The definition of plain packets under a policy.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Words 0 and 1: IPv4 of 20 bytes, no fragment; UDP.
    pub(super) network: [Wanted; 2],
    pub(super) stacks: Vec<Stack>,
    pub(super) verify_ipv4_checksum: bool,
}

/// A plain packet, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainPacket {
    /// The tunnel's protocol.
    pub kind: TunnelKind,
    /// By which its endpoint is looked up.
    pub key: V4Key,
    /// Bytes of the inner packet.
    pub inner_len: u16,
}

/// Returns a VNI in a key, as a number.
#[inline(always)]
pub(super) fn vni(id: u32) -> u32 {
    u32::from_be_bytes(id.to_ne_bytes()) >> 8
}

impl Plain {
    /// Derives the definition from a policy.
    pub fn new(policy: &Policy) -> Self {
        let version = Wanted::default().byte(0, 0x45, 0xff).byte(6, 0, 0x3f).byte(7, 0, 0xff);
        let protocol = Wanted::default().byte(1, 17, 0xff);
        let checksum = if policy.verify_udp_checksum { 0xff } else { 0 };
        let udp = Wanted::default().byte(2, 0, checksum).byte(3, 0, checksum);
        // Behind the UDP header: the I flag; version, options' length, flags O and C, Ethernet.
        let vxlan = udp.byte(4, 0x08, 0x08);
        let geneve = udp.byte(4, 0, 0xff).byte(5, 0, 0xc0).byte(6, 0x65, 0xff).byte(7, 0x58, 0xff);
        let stack = |port: Option<u16>, kind, tunnel| {
            let [high, low] = port?.to_be_bytes();
            Some(Stack { kind, ports: Wanted::default().byte(6, high, 0xff).byte(7, low, 0xff), tunnel })
        };
        let stacks = [
            stack(policy.vxlan_port, TunnelKind::Vxlan, vxlan),
            // With equal ports the first has it, as in `Policy::kind_of`.
            stack(policy.geneve_port.filter(|p| Some(*p) != policy.vxlan_port), TunnelKind::Geneve, geneve),
        ];
        Self {
            network: [version, protocol],
            stacks: stacks.into_iter().flatten().collect(),
            verify_ipv4_checksum: policy.verify_ipv4_checksum,
        }
    }

    /// Returns the packet, where it is plain.
    #[inline(always)]
    pub fn read(&self, frame: &[u8], headers: &Headers, vrf: u32) -> Option<PlainPacket> {
        let words = words(frame, headers)?;
        let network = self.network[0].wrong(words[0]) | self.network[1].wrong(words[1]);
        let of = |stack: &&Stack| stack.ports.wrong(words[2]) | stack.tunnel.wrong(words[3]) == 0;
        let stack = self.stacks.iter().find(of)?;
        let udp_len = (words[3] as u16).swap_bytes();
        if network != 0 || udp_len < 16 || self.verify_ipv4_checksum && !checksum_is_right(&words) {
            return None;
        }
        let key = key(&words, tag(stack.kind, vrf));
        Some(PlainPacket { kind: stack.kind, key, inner_len: udp_len - 16 })
    }
}

/// Returns the words from an IPv4 header on, where the frame has them and the parser found nothing wrong.
#[inline(always)]
pub(super) fn words(frame: &[u8], headers: &Headers) -> Option<[u64; PLAIN_WORDS]> {
    if headers.network != Network::Ipv4 || headers.malformed.is_some() {
        return None;
    }
    let bytes: &[u8; PLAIN_BYTES] = frame.get(usize::from(headers.l3)..)?.first_chunk()?;
    let words = bytes.as_chunks::<8>().0;
    Some(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
}

/// Returns whether the 20 bytes of the IPv4 header sum up to all ones.
#[inline(always)]
pub(super) fn checksum_is_right(words: &[u64; PLAIN_WORDS]) -> bool {
    let halves = |word: u64| (word & 0xffff_ffff) + (word >> 32);
    let sum = halves(words[0]) + halves(words[1]) + (words[2] & 0xffff_ffff);
    // Below 5 · 2³²: three folds leave 16 bits.
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// Returns the key of a plain packet.
#[inline(always)]
pub(super) fn key(words: &[u64; PLAIN_WORDS], tag: u32) -> V4Key {
    // As they lie in memory: `u32::from_le` undoes what `from_le_bytes` did.
    let [from, to, id] =
        [(words[1] >> 32) as u32, words[2] as u32, words[4] as u32 & 0x00ff_ffff].map(u32::from_le);
    [from, to, id, tag]
}

/// Returns the hash of a key, as the endpoint table has it.
#[inline(always)]
pub(super) fn hash(multipliers: &V4Key, key: &V4Key) -> u32 {
    let terms = key.iter().zip(multipliers).map(|(&x, &m)| multilinear::term(m, x));
    multilinear::finish(terms.fold(0, u64::wrapping_add))
}
