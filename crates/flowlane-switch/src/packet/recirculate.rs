//! Keys of packets that are looked up again: after headers changed beyond what the key can follow, or with what rules wrote
//! that is in no header.

use flowlane::packet::fields::{Field, FieldClass, word};
use flowlane::packet::key::{FlowKey, WORDS};
use flowlane::packet::{FieldRef, Headers, WordSet, pack_some_words, parse};

use super::{Frame, edit};

/// Gives a recirculated packet its new key: its headers parsed, its metadata and registers as they were
/// or as rules set them.
pub(crate) fn parse_again(
    frame: &Frame,
    in_port: u32,
    table: u8,
    carry: &[(u8, u32, u32)],
    headers: &mut Headers,
    key: &mut FlowKey,
) {
    const KEPT: WordSet = WordSet::of_class(FieldClass::Header).with(word::RECIRC_ID).complement();
    let kept = key.present().intersection(KEPT);
    let mut values = [0; WORDS];
    pack_some_words(key, kept, &mut values);
    *headers = parse(frame.bytes(), in_port, key);
    for (w, value) in kept.iter().zip(values) {
        key.set_word(w, value);
    }
    key.set(Field::RecircId, u128::from(table) + 1);
    take_along(carry, key);
}

/// Moves a field of a packet whose key the rules no longer follow: what is in headers is read and written there, the rest
/// in the key.
pub(crate) fn move_field(
    frame: &mut Frame,
    headers: &mut Headers,
    key: &mut FlowKey,
    from: FieldRef,
    to: FieldRef,
) {
    let value = match in_headers(from.field()) {
        true => read(frame, headers, from.field()),
        false => key.get(from.field()),
    };
    set_field(frame, headers, key, to.field(), to.place(from.extract(value)), to.mask());
}

/// A field of the packet's headers, also of those behind tags that were pushed onto two: a parser does not look behind
/// these.
fn read(frame: &Frame, headers: &Headers, field: Field) -> u128 {
    use Field::{EthDst, EthSrc, VlanPcp, VlanTci, VlanTci1, VlanTpid, VlanVid};
    let outermost = matches!(field, EthDst | EthSrc | VlanTci | VlanVid | VlanPcp | VlanTpid | VlanTci1);
    let unseen = if outermost { 0 } else { usize::from(headers.vlan_tags.saturating_sub(2)) };
    let mut now = FlowKey::zero();
    // Where the addresses are expected stands something else then; they are not asked for.
    parse(frame.bytes().get(4 * unseen..).unwrap_or_default(), 0, &mut now);
    now.get(field)
}

/// Sets a field where it is, in the packet or in the key; the key follows the packet.
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
            if edit::set_field(frame, headers, field, value, mask) {
                key.set_masked(field, value, mask);
            }
        }
        false => key.set_masked(field, value, mask),
    }
}

/// Whether the key is right behind [`set_field`]: not where a tag is pushed, or the message becomes another one with other
/// fields.
pub(crate) fn is_followed(field: Field) -> bool {
    use Field::{IcmpCode, IcmpType, VlanPcp, VlanTci, VlanVid};
    !matches!(field, VlanTci | VlanVid | VlanPcp | IcmpType | IcmpCode)
}

/// Returns whether a field is in the packet's headers, and not in metadata, tunnel or register words.
pub(crate) fn in_headers(field: Field) -> bool {
    field.info().class == FieldClass::Header
}

/// Sets words that rules have set and that are in no header.
pub(crate) fn take_along(carry: &[(u8, u32, u32)], key: &mut FlowKey) {
    for &(w, value, mask) in carry {
        let w = usize::from(w);
        key.set_word(w, key.word(w) & !mask | value);
    }
}
