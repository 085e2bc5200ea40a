//! Keys of UDP packets, as the caches' workloads have them.

use flowlane::generate::Random;
use flowlane::packet::fields::word;
use flowlane::packet::{Field, FlowKey, FlowMask};

/// Packets that the switch receives at a time.
pub(crate) const BURST: usize = 64;

/// What differs from packet to packet: ports, source, destination. Kept apart from the rest of a key so that a
/// workload of many packets does not push what is measured out of the caches.
pub(crate) type Packet = [u32; 3];

/// The words of a key that a [`Packet`] has, in its order.
pub(crate) const PACKET_WORDS: [usize; 3] = [word::PORTS, word::IPV4_SRC, word::IPV4_DST];

/// The key of some UDP packet.
pub(crate) fn key(packet: &Packet) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, 1);
    key.set(Field::EthSrc, 0x0202_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::NwProto, 17);
    key.set(Field::NwTtl, 64);
    // So that the words are present; what they hold follows.
    key.set(Field::Ipv4Src, 1);
    key.set(Field::Ipv4Dst, 1);
    key.set(Field::TpSrc, 1);
    key.set(Field::TpDst, 1);
    write(packet, &mut key);
    key
}

/// Writes a packet into a key, as a parser would have just before: a burst's keys are in the nearest cache.
#[inline]
pub(crate) fn write(packet: &Packet, key: &mut FlowKey) {
    for (w, value) in PACKET_WORDS.into_iter().zip(packet) {
        key.set_word(w, *value);
    }
}

pub(crate) fn random(random: &mut Random) -> Packet {
    [(); 3].map(|()| random.bits() as u32)
}

/// Mask number `i`, of up to 120: source prefixes of 8 to 31 bits with the whole destination, and beyond 24 masks the
/// destination port, the source port, both, or the port that packets came in through.
pub(crate) fn mask(i: usize) -> FlowMask {
    let mut mask = FlowMask::zero();
    mask.add_field(Field::EthType);
    mask.add_field(Field::NwProto);
    mask.add_field(Field::IpFrag);
    mask.add_field(Field::Ipv4Dst);
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << (24 - i % 24)));
    let further: &[Field] = match i / 24 {
        0 => &[],
        1 => &[Field::TpDst],
        2 => &[Field::TpSrc],
        3 => &[Field::TpSrc, Field::TpDst],
        _ => &[Field::InPort],
    };
    further.iter().for_each(|field| mask.add_field(*field));
    mask
}
