//! Vectorised header extraction: the common stacks of headers by wide loads and byte permutes, everything
//! else by the scalar parser.
//!
//! ```text
//! frame   [ Ethernet, 0 to 2 VLAN tags ][ IPv4 or IPv6, UDP or TCP .. 64 bytes ]
//!               │ permute 16 or 32 bytes          │ permute 64 bytes
//! key     w20 .. w27: L2                    w28 .. w43: addresses, ports, protocol, flags
//! ```
//!
//! Every stack fills the same 24 words of the key; what a stack has not is zero there, as it must be. What
//! goes where is data (`STACKS`): how the bytes of the first header lie for 0, 1 and 2 tags, and how those from
//! the network header on lie for each network and transport. A stack is taken only where the
//! scalar parser would find nothing wrong and nothing unusual: no options or extension headers, no fragment,
//! lengths within the frame, headers within its captured bytes. So keys, offsets and faults are always the scalar
//! parser's ([`parse`](super::parse()), the definition), which the tests check frame by frame.
//!
//! A tunnel's frame is the outer stack with its UDP port; the inner frame is extracted in turn.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod quad;
#[cfg(target_arch = "x86_64")]
mod sse42;

use super::captured::Captured;
use super::fields::{VLAN_PRESENT, word};
use super::headers::{Headers, Network, Transport};
use super::key::FlowKey;
use super::parse::{ether_type, ip_proto, parse_captured};
use super::word_set::WordSet;
use crate::dispatch::{self, KernelSlot};
#[cfg(target_arch = "aarch64")]
use crate::isa::Neon;
use crate::isa::Variant;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx512Vbmi, Sse42};

/// Words of the key that L2 fills: from here on 8, and then 16 for L3 and L4.
const L2_WORD: usize = word::ETH;
const L3_WORD: usize = word::IPV6_SRC;
const L2_WORDS: usize = 8;
const L3_WORDS: usize = 16;
const _: () = assert!(L2_WORD + L2_WORDS == L3_WORD && L3_WORD + L3_WORDS == 44);

/// All words that a stack fills.
const COVERED: u64 = ((1 << (L2_WORDS + L3_WORDS)) - 1) << L2_WORD;

/// A mapping of bytes: byte i of the key's words (as they lie in memory) is byte `from[i]` of the frame where
/// bit i of `set` is set, else zero.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Moves<const N: usize> {
    from: [u8; N],
    set: u64,
}

impl<const N: usize> Moves<N> {
    // 255 is no byte of a frame: permutes of AArch64 give zero for it.
    const NONE: Self = Self { from: [255; N], set: 0 };

    /// `len` bytes that stand in the frame from `at` on in network order go to word `w` (counted from the
    /// first one), its lowest byte being `shift` bits up.
    const fn with(mut self, w: usize, shift: usize, at: u8, len: usize) -> Self {
        let mut i = 0;
        while i < len {
            // Words lie in memory in little-endian order: the last byte of the field comes first.
            let to = 4 * w + shift / 8 + i;
            self.from[to] = at + (len - 1 - i) as u8;
            self.set |= 1 << to;
            i += 1;
        }
        self
    }
}

/// How an Ethernet header lies.
#[derive(Clone, Copy)]
struct Tags {
    moves: Moves<32>,
    /// Set in the words: that tags are there.
    set: [u32; L2_WORDS],
}

const fn ethernet(tags: u8) -> Tags {
    let moves = Moves::NONE.with(0, 0, 0, 4).with(1, 0, 4, 4).with(2, 0, 8, 4);
    let mut moves = moves.with(3, 0, 12 + 4 * tags, 2);
    let mut set = [0; L2_WORDS];
    if tags > 0 {
        moves = moves.with(3, 16, 14, 2).with(4, 16, 12, 2);
        set[3] = (VLAN_PRESENT as u32) << 16;
    }
    if tags > 1 {
        moves = moves.with(4, 0, 18, 2);
        set[4] = VLAN_PRESENT as u32;
    }
    Tags { moves, set }
}

/// A network and a transport header behind a number of tags.
#[repr(C, align(64))]
struct Stack {
    /// The first bytes of its frames, in those bits that `compared` has: EtherTypes, version and
    /// length of the network header, no fragment, protocol.
    wanted: [u8; 32],
    compared: [u8; 32],
    moves: Moves<64>,
    ethernet: Tags,
    /// The words that it has.
    present: WordSet,
    /// The words that it neither has nor fills with zeros.
    others: WordSet,
    /// The headers that the parser finds. Where a TCP header has options, the payload is further on.
    headers: Headers,
    /// Bytes of both headers at least.
    least: u16,
    /// Where the network header says how long the packet is, less than 8, and the number to add to that.
    len_at: u8,
    len_more: u8,
    /// Bytes of the network header.
    network_len: u8,
    tcp: bool,
    v6: bool,
}

/// Where a word lies among those of L3 and L4.
const fn place(w: usize) -> usize {
    w - L3_WORD
}

const fn stack(tpids: &[u16], v6: bool, tcp: bool) -> Stack {
    let tags = tpids.len() as u8;
    let network_len = if v6 { 40 } else { 20 };
    let mut moves = Moves::NONE.with(place(word::PORTS), 0, network_len, 4);
    let mut present = 0b1111 << word::ETH | 1 << word::IN_PORT | 1 << word::PORTS | 1 << word::NW_PROTO;
    if tags > 0 {
        present |= 1 << word::VLAN_INNER;
    }
    if v6 {
        let mut i = 0;
        while i < 8 {
            moves = moves.with(i, 0, 8 + 4 * i as u8, 4);
            i += 1;
        }
        moves = moves.with(place(word::NW_PROTO), 24, 6, 1).with(place(word::NW_PROTO), 8, 7, 1);
        moves = moves.with(place(word::IPV6_LABEL), 0, 1, 3);
        present |= 0xff << word::IPV6_SRC | 1 << word::IPV6_LABEL;
    } else {
        moves = moves.with(place(word::NW_PROTO), 24, 9, 1).with(place(word::NW_PROTO), 16, 1, 1);
        moves = moves.with(place(word::NW_PROTO), 8, 8, 1);
        moves = moves.with(place(word::IPV4_SRC), 0, 12, 4).with(place(word::IPV4_DST), 0, 16, 4);
        present |= 1 << word::IPV4_SRC | 1 << word::IPV4_DST;
    }
    if tcp {
        moves = moves.with(place(word::FLAGS), 16, network_len + 12, 2);
        present |= 1 << word::FLAGS;
    }
    let l3 = 14 + 4 * tags as u16;
    let l4 = l3 + network_len as u16;
    let transport_len = if tcp { 20 } else { 8 };
    let headers = Headers {
        l3,
        l4,
        payload: l4 + transport_len,
        network: if v6 { Network::Ipv6 } else { Network::Ipv4 },
        transport: if tcp { Transport::Tcp } else { Transport::Udp },
        vlan_tags: tags,
        mpls_labels: 0,
        snap: false,
        fragment: 0,
        segments_left: false,
        malformed: None,
    };
    let (wanted, compared) = first_bytes(tpids, v6, tcp);
    Stack {
        wanted,
        compared,
        moves,
        ethernet: ethernet(tags),
        least: network_len as u16 + transport_len,
        len_at: if v6 { 4 } else { 2 },
        len_more: if v6 { 40 } else { 0 },
        network_len,
        tcp,
        v6,
        headers,
        present: WordSet::from_halves(present, 0),
        others: WordSet::from_halves(present | COVERED, 0).complement(),
    }
}

/// See [`Stack::wanted`].
const fn first_bytes(tpids: &[u16], v6: bool, tcp: bool) -> ([u8; 32], [u8; 32]) {
    let tags = tpids.len();
    let (mut wanted, mut compared) = ([0; 32], [0; 32]);
    let mut at = 12;
    while at <= 12 + 4 * tags {
        let last = at == 12 + 4 * tags;
        let eth_type = if !last {
            tpids[(at - 12) / 4]
        } else if v6 {
            ether_type::IPV6
        } else {
            ether_type::IPV4
        };
        [wanted[at], wanted[at + 1]] = eth_type.to_be_bytes();
        [compared[at], compared[at + 1]] = [0xff; 2];
        at += 4;
    }
    let l3 = 14 + 4 * tags;
    let proto = if tcp { ip_proto::TCP } else { ip_proto::UDP };
    if v6 {
        (wanted[l3], compared[l3]) = (0x60, 0xf0);
        (wanted[l3 + 6], compared[l3 + 6]) = (proto, 0xff);
    } else {
        (wanted[l3], compared[l3]) = (0x45, 0xff);
        // More fragments, offset.
        [compared[l3 + 6], compared[l3 + 7]] = [0x3f, 0xff];
        (wanted[l3 + 9], compared[l3 + 9]) = (proto, 0xff);
    }
    (wanted, compared)
}

/// The Ethernet headers that have a fast path, by the types of their tags: none, a customer tag, a service tag,
/// both (802.1ad), two customer tags.
const TPIDS: [&[u16]; 5] = [
    &[],
    &[ether_type::VLAN],
    &[ether_type::QINQ],
    &[ether_type::QINQ, ether_type::VLAN],
    &[ether_type::VLAN, ether_type::VLAN],
];

/// The stacks that have a fast path: by [`TPIDS`], IPv4 before IPv6, UDP before TCP.
static STACKS: [[Stack; 4]; TPIDS.len()] = {
    const fn all(tpids: &[u16]) -> [Stack; 4] {
        [
            stack(tpids, false, false),
            stack(tpids, false, true),
            stack(tpids, true, false),
            stack(tpids, true, true),
        ]
    }
    [all(TPIDS[0]), all(TPIDS[1]), all(TPIDS[2]), all(TPIDS[3]), all(TPIDS[4])]
};

/// The bits that moved words keep: the label's 20 bits, and of TCP's offset and flags the flags' 12.
static KEPT: [u32; L3_WORDS] = {
    let mut kept = [u32::MAX; L3_WORDS];
    kept[place(word::IPV6_LABEL)] = 0x000f_ffff;
    kept[place(word::FLAGS)] = 0x0fff_0000;
    kept
};

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// The stack of a frame, if it has one: what [`Mover::is`] compares, branch by branch.
///
/// A call: inlined, it would take all bytes out of the vectors in which they were compared before it branches.
#[inline(never)]
fn classify(frame: &[u8; FRAME_LEAST]) -> Option<&'static Stack> {
    const VLAN: [u8; 2] = ether_type::VLAN.to_be_bytes();
    const QINQ: [u8; 2] = ether_type::QINQ.to_be_bytes();
    match [12, 16, 20].map(|at| [frame[at], frame[at + 1]]) {
        [VLAN, VLAN, inner] => behind(frame, 4, inner, 22),
        [QINQ, VLAN, inner] => behind(frame, 3, inner, 22),
        [QINQ, inner, _] => behind(frame, 2, inner, 18),
        [VLAN, inner, _] => behind(frame, 1, inner, 18),
        [inner, ..] => behind(frame, 0, inner, 14),
    }
}

/// The stack of a frame with this Ethernet header, whose network header is at `l3`.
#[inline(always)]
fn behind(
    frame: &[u8; FRAME_LEAST],
    ethernet: usize,
    eth_type: [u8; 2],
    l3: usize,
) -> Option<&'static Stack> {
    const IPV4: [u8; 2] = ether_type::IPV4.to_be_bytes();
    const IPV6: [u8; 2] = ether_type::IPV6.to_be_bytes();
    let (is_plain, proto, v6) = match eth_type {
        // No options; neither a fragment nor more of them.
        IPV4 => (frame[l3] == 0x45 && be16(frame, l3 + 6) & 0x3fff == 0, frame[l3 + 9], 0),
        IPV6 => (frame[l3] >> 4 == 6, frame[l3 + 6], 2),
        _ => return None,
    };
    match proto {
        ip_proto::UDP if is_plain => Some(&STACKS[ethernet][v6]),
        ip_proto::TCP if is_plain => Some(&STACKS[ethernet][v6 + 1]),
        _ => None,
    }
}

/// Where the lengths of the packet (the frame from its network header on) are right: how much longer than
/// the least its transport header is. `missing` bytes are cut off at its end.
#[inline(always)]
fn check(packet: &[u8], missing: usize, stack: &Stack) -> Option<usize> {
    let (least, network_len) = (usize::from(stack.least), usize::from(stack.network_len));
    // The least that any stack has, so that the compiler knows the bounds.
    if packet.len() < least || packet.len() < 28 {
        return None;
    }
    let packet_len = be16(packet, usize::from(stack.len_at) % 8) + usize::from(stack.len_more);
    // Numbers below the least wrap, so that one comparison finds those, too.
    let beyond = packet_len.wrapping_sub(least);
    if beyond > packet.len() + missing - least {
        return None;
    }
    if stack.tcp {
        let options = (usize::from(*packet.get(network_len + 12)? >> 4) * 4).wrapping_sub(20);
        return (options <= beyond).then_some(options);
    }
    let len = be16(packet.get(network_len + 4..network_len + 6)?, 0);
    // 0 means 'to the end'.
    (len.wrapping_sub(8) <= beyond || len == 0).then_some(0)
}

/// Bytes of the shortest stack: Ethernet, IPv4, UDP.
const FRAME_LEAST: usize = 42;

/// The operations of an instruction set. Called from its `parse_all`, which has its instructions.
trait Mover: Copy {
    /// Returns whether the first bytes of the frame are the stack's.
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool;

    /// Fills the words of Ethernet and those of network and transport. `packet` is the frame from its network
    /// header on; all of the stack's headers are there.
    fn move_bytes(
        self,
        frame: &[u8; FRAME_LEAST],
        packet: &[u8],
        stack: &Stack,
        l2: &mut [u32; L2_WORDS],
        l3: &mut [u32; L3_WORDS],
    );
}

#[inline(always)]
fn extract(
    mover: impl Mover,
    stack: &mut &'static Stack,
    frame: Captured<'_>,
    in_port: u32,
    key: &mut FlowKey,
    headers: &mut Headers,
) -> Option<()> {
    let head: &[u8; FRAME_LEAST] = frame.bytes().first_chunk()?;
    if !mover.is(head, stack) {
        *stack = classify(head)?;
        debug_assert!(mover.is(head, stack), "both compare the same bytes");
    }
    let stack = *stack;
    let packet = &frame.bytes()[usize::from(stack.headers.l3)..];
    let options = check(packet, frame.len() - frame.bytes().len(), stack)?;
    let words = key.words_mut();
    words[word::IN_PORT] = in_port;
    let (l2, rest) = words[L2_WORD..].split_first_chunk_mut().expect("L2 is within the key");
    let l3 = rest.first_chunk_mut().expect("L3 is within the key");
    mover.move_bytes(head, packet, stack, l2, l3);
    if stack.v6 {
        // The traffic class lies across two bytes.
        l3[place(word::NW_PROTO)] |= (be16(packet, 0) as u32 & 0x0ff0) << 12;
    }
    key.finish_others(stack.present, stack.others);
    // In place: written piece by piece elsewhere and copied, it would stall the copy.
    *headers = stack.headers;
    headers.payload = stack.headers.payload + options as u16;
    Some(())
}

#[inline(always)]
fn extract_all<'a>(
    mover: impl Mover,
    frames: impl Iterator<Item = Captured<'a>>,
    in_port: u32,
    keys: &mut [FlowKey],
    headers: &mut [Headers],
) {
    // Frames often come in the same shape as the one before.
    let mut stack = &STACKS[0][0];
    for ((frame, key), headers) in frames.zip(keys).zip(headers) {
        if extract(mover, &mut stack, frame, in_port, key, headers).is_none() {
            *headers = parse_captured(frame, in_port, key);
        }
    }
}

/// Which body extracts, with the proof that it may.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Sse42(Sse42),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Vbmi),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// The parser, by one of its variants.
///
/// ```
/// use flowlane::{Field, FlowKey, Parser};
///
/// // To everyone, from 02:00:00:00:00:01, of an experimental EtherType.
/// let mut frame = [0; 60];
/// frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
/// let mut key = FlowKey::zero();
/// let headers = Parser::new().parse_one(&frame, 1, &mut key);
/// assert_eq!(headers.malformed, None);
/// assert_eq!((key.get(Field::InPort), key.get(Field::EthType)), (1, 0x88b5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    body: Backend,
}

impl Parser {
    /// The variant of this name, where it may be used here. AVX-512 needs VBMI, too.
    #[doc(hidden)]
    pub fn with_variant(variant: Variant) -> Option<Self> {
        let body = match variant {
            Variant::Scalar => Some(Backend::Scalar),
            #[cfg(target_arch = "x86_64")]
            Variant::Sse42 => Sse42::detect().map(Backend::Sse42),
            #[cfg(target_arch = "x86_64")]
            Variant::Avx512 => Avx512Vbmi::detect().map(Backend::Avx512),
            #[cfg(target_arch = "aarch64")]
            Variant::Neon => Neon::detect().map(Backend::Neon),
            _ => None,
        };
        Some(Self { body: body? })
    }

    /// The variant chosen for this machine ([`Tuning`](crate::Tuning)).
    pub fn new() -> Self {
        dispatch::choose(KernelSlot::Parser, |text| Self::with_variant(text.parse().ok()?))
    }

    /// Which variant this is.
    #[doc(hidden)]
    pub fn variant(&self) -> Variant {
        match self.body {
            Backend::Scalar => Variant::Scalar,
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(_) => Variant::Sse42,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(_) => Variant::Avx512,
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(_) => Variant::Neon,
        }
    }

    /// Parses one frame: see [`parse_all`](Self::parse_all).
    pub fn parse_one(&self, frame: &[u8], in_port: u32, key: &mut FlowKey) -> Headers {
        self.parse_captured(frame.into(), in_port, key)
    }

    /// Parses what there is of one frame.
    pub fn parse_captured(&self, frame: Captured<'_>, in_port: u32, key: &mut FlowKey) -> Headers {
        let mut headers = [Headers::default()];
        self.parse_all(std::iter::once(frame), in_port, std::slice::from_mut(key), &mut headers);
        headers[0]
    }

    /// Parses frames, which came in through `in_port`, into `keys`, whatever those held before, and `headers`:
    /// as many as there are of all three. A frame is a slice, or a [truncated one](Captured).
    #[inline]
    pub fn parse_all<'a, F: Into<Captured<'a>>>(
        &self,
        frames: impl Iterator<Item = F>,
        in_port: u32,
        keys: &mut [FlowKey],
        headers: &mut [Headers],
    ) {
        let frames = frames.map(Into::into);
        match self.body {
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(isa) => isa.run(sse42::ParseAll { frames, in_port, keys, headers }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ, VL and VBMI, and the instructions on bits.
            Backend::Avx512(isa) => unsafe { avx512::parse_all(isa, frames, in_port, keys, headers) },
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(neon::ParseAll { frames, in_port, keys, headers }),
            Backend::Scalar => {
                for ((frame, key), headers) in frames.zip(keys).zip(headers) {
                    *headers = parse_captured(frame, in_port, key);
                }
            }
        }
    }
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}
