//! Keys of recirculated packets: after header changes that the key cannot follow, or with fields in no header that rules
//! wrote.

use flowlane::packet::fields::{Field, FieldClass, PACKET_TYPE_ETHERTYPE, word};
use flowlane::packet::key::{FlowKey, WORDS};
use flowlane::packet::{FieldRef, Headers, WordSet, pack_some_words, parse};

use super::{Frame, edit};

/// The bits of `recirc_id` that hold the table that a recirculated packet enters, plus one. Those above count its
/// [rounds](rounds).
const ENTRY: u128 = 0x1ff;

/// The bits above that hold a packet's rounds.
const ROUNDS: u128 = 0xff;

/// Returns the first table of packets with this key; a recirculated packet's key holds it.
#[inline]
pub(crate) fn entry(key: &FlowKey) -> u8 {
    (key.get(Field::RecircId) & ENTRY).saturating_sub(1) as u8
}

/// The bit of `recirc_id` that says that the packet has no Ethernet header: every megaflow is of packets with or without.
const BARE: u32 = 1 << 23;

/// Returns whether a packet of this key has no Ethernet header. Its key has been parsed again, since no port receives such packets.
#[inline]
pub(crate) fn is_bare(key: &FlowKey) -> bool {
    key.word(word::RECIRC_ID) & BARE != 0
}

/// Lets a packet enter a table next, as its key is.
pub(crate) fn enter(key: &mut FlowKey, table: u8) {
    key.set_masked(Field::RecircId, u128::from(table) + 1, ENTRY);
}

/// Returns the rounds of a packet: calls that have led back, to the table that the packet was in or an earlier one, and have not
/// returned. Open vSwitch calls them depth.
pub(crate) fn rounds(key: &FlowKey) -> u8 {
    (key.get(Field::RecircId) >> ENTRY.count_ones() & ROUNDS) as u8
}

/// Sets the rounds of a packet.
pub(crate) fn set_rounds(key: &mut FlowKey, rounds: u8) {
    let shift = ENTRY.count_ones();
    key.set_masked(Field::RecircId, u128::from(rounds) << shift, ROUNDS << shift);
}

/// Builds the new key of a recirculated packet: headers parsed, metadata and registers as they were or
/// as rules set them.
pub(crate) fn parse_again(
    frame: &Frame,
    in_port: u32,
    table: u8,
    carry: &[(u8, u32, u32)],
    headers: &mut Headers,
    key: &mut FlowKey,
) {
    const KEPT: WordSet =
        WordSet::of_class(FieldClass::Header).with(word::RECIRC_ID).with(word::PACKET_TYPE).complement();
    let (kept, rounds) = (key.present().intersection(KEPT), rounds(key));
    let mut values = [0; WORDS];
    pack_some_words(key, kept, &mut values);
    *headers = parse(frame.bytes(), in_port, key);
    for (w, value) in kept.iter().zip(values) {
        key.set_word(w, value);
    }
    key.set(Field::RecircId, u128::from(table) + 1);
    set_rounds(key, rounds);
    note_type(frame, key);
    take_along(carry, key);
}

/// Writes the type of a packet without an Ethernet header into its key.
pub(crate) fn note_type(frame: &Frame, key: &mut FlowKey) {
    if frame.is_bare() {
        key.or_word(word::RECIRC_ID, BARE);
        let eth_type = frame.bytes().get(12..14).map_or(0, |b| u32::from(u16::from_be_bytes([b[0], b[1]])));
        key.set_word(word::PACKET_TYPE, PACKET_TYPE_ETHERTYPE | eth_type);
    }
}

/// Returns whether a field is an address or a port: of an end of a connection.
#[inline]
pub(crate) fn is_end(field: Field) -> bool {
    use Field::{Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Src, TpDst, TpSrc};
    matches!(field, Ipv4Src | Ipv4Dst | Ipv6Src | Ipv6Dst | TpSrc | TpDst)
}

/// Gives the key of a translated packet, which has been parsed again, the ends that it had before.
pub(crate) fn keep_ends(before: &FlowKey, key: &mut FlowKey) {
    let mut ends = WordSet::default().with(word::IPV4_SRC).with(word::IPV4_DST).with(word::PORTS);
    for w in 0..4 {
        ends = ends.with(word::IPV6_SRC + w).with(word::IPV6_DST + w);
    }
    let both = before.present().intersection(key.present()).intersection(ends);
    both.iter().for_each(|w| key.set_word(w, before.word(w)));
}

/// Moves a field of a packet whose key no longer follows its headers: header fields are read from and written to the
/// frame, others in the key. So are the ends of a translated packet.
pub(crate) fn move_field(
    frame: &mut Frame,
    headers: &mut Headers,
    (key, is_translated): (&mut FlowKey, bool),
    from: FieldRef,
    to: FieldRef,
) {
    let is_in_frame = in_headers(from.field()) && !(is_translated && is_end(from.field()));
    let value = match is_in_frame {
        true => read(frame, headers, from.field()),
        false => key.get(from.field()),
    };
    set_field(frame, headers, key, to.field(), to.place(from.extract(value)), to.mask());
}

/// Reads a header field, even one behind tags pushed onto two VLAN tags: the parser does not look behind these.
fn read(frame: &Frame, headers: &Headers, field: Field) -> u128 {
    use Field::{EthDst, EthSrc, VlanPcp, VlanTci, VlanTci1, VlanTpid, VlanVid};
    let outermost = matches!(field, EthDst | EthSrc | VlanTci | VlanVid | VlanPcp | VlanTpid | VlanTci1);
    let unseen = if outermost { 0 } else { usize::from(headers.vlan_tags.saturating_sub(2)) };
    let mut now = FlowKey::zero();
    // With tags skipped, the parsed MAC addresses are wrong; they are not read then.
    parse(frame.bytes().get(4 * unseen..).unwrap_or_default(), 0, &mut now);
    now.get(field)
}

/// Sets a header field in the packet and in the key, another field in the key.
pub(crate) fn set_field(
    frame: &mut Frame,
    headers: &mut Headers,
    key: &mut FlowKey,
    field: Field,
    value: u128,
    mask: u128,
) {
    match in_headers(field) {
        true => {
            let mask = mask & edit::bits(field);
            if edit::set_field(frame, headers, field, value, mask) {
                key.set_masked(field, value, mask);
            }
        }
        false => key.set_masked(field, value, mask),
    }
}

/// Returns whether the key is valid after [`set_field`]: not if a tag may be pushed, or the ICMP message may become one with
/// other fields, or an option one with another address.
pub(crate) fn is_followed(field: Field) -> bool {
    use Field::{IcmpCode, IcmpType, NdOptionsType, VlanPcp, VlanTci, VlanVid};
    !matches!(field, VlanTci | VlanVid | VlanPcp | IcmpType | IcmpCode | NdOptionsType)
}

/// Returns whether a field is in the packet's headers, and not in metadata, tunnel or register words.
pub(crate) fn in_headers(field: Field) -> bool {
    field.info().class == FieldClass::Header
}

/// Sets the key's words in no header that rules have set.
pub(crate) fn take_along(carry: &[(u8, u32, u32)], key: &mut FlowKey) {
    for &(w, value, mask) in carry {
        let w = usize::from(w);
        key.set_word(w, key.word(w) & !mask | value);
    }
}
