//! Keys of UDP packets for the workloads of caches.

use flowlane::generate::Random;
use flowlane::packet::fields::word;
use flowlane::packet::{Field, FlowKey, FlowMask};

/// The number of packets that the switch receives at once.
pub(crate) const BURST: usize = 64;

/// The words that differ between packets: ports, source, destination. They are stored apart from the rest of the key,
/// so that a large workload does not evict the contenders' data from the caches.
pub(crate) type Packet = [u32; 3];

/// The indices of the words of a [`Packet`], in its order.
pub(crate) const PACKET_WORDS: [usize; 3] = [word::PORTS, word::IPV4_SRC, word::IPV4_DST];

/// Returns the key of a UDP packet.
pub(crate) fn key(packet: &Packet) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, 1);
    key.set(Field::EthSrc, 0x0202_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::NwProto, 17);
    key.set(Field::NwTtl, 64);
    // Marks the words as present; their values follow.
    key.set(Field::Ipv4Src, 1);
    key.set(Field::Ipv4Dst, 1);
    key.set(Field::TpSrc, 1);
    key.set(Field::TpDst, 1);
    write(packet, &mut key);
    key
}

/// Writes a packet into a key, as a parser would have done just before: a burst's keys are in the nearest cache.
#[inline]
pub(crate) fn write(packet: &Packet, key: &mut FlowKey) {
    for (w, value) in PACKET_WORDS.into_iter().zip(packet) {
        key.set_word(w, *value);
    }
}

pub(crate) fn random(random: &mut Random) -> Packet {
    [(); 3].map(|()| random.bits() as u32)
}

/// Returns mask `i`, up to 120: source prefixes of 8 to 31 bits with the whole destination; beyond 24 masks also the
/// destination port, the source port, both, or the input port.
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
