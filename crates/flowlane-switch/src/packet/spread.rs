//! Which worker a frame is for, where its port does not say.
//!
//! By a hash of what both directions of a flow have in common, as network cards spread them: addresses, and ports where all
//! fragments have them. So a flow keeps its order, and its answers come to the same worker. Where each worker owns a shard of a
//! stateful stage, a [`Steer`] sends each frame to its owner at once, and no handoff is needed.

use flowlane::packet::parse::{ether_type, ip_proto};

/// The EtherType's place behind two addresses, and tags that are looked behind.
const ETHER_TYPE: usize = 12;
const TAGS_MAX: usize = 4;

/// More fragments, and the offset.
const FRAGMENT: u16 = 0x3fff;

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A number that both directions of a flow share, and that says nothing of others'. 0 for what has no addresses.
#[inline]
pub(crate) fn flow_of(frame: &[u8]) -> u64 {
    of_ip(frame).or_else(|| of_stations(frame)).unwrap_or(0)
}

/// Sums are the same both ways; the terms are mixed before, so that near addresses do not make near sums.
#[inline]
fn mix(value: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele and others 2014).
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[inline]
fn of_ip(frame: &[u8]) -> Option<u64> {
    let mut at = ETHER_TYPE;
    for _ in 0..TAGS_MAX {
        match word(frame, at)? {
            ether_type::VLAN | ether_type::QINQ => at += 4,
            ether_type::IPV4 => return of_ipv4(frame.get(at + 2..)?),
            ether_type::IPV6 => return of_ipv6(frame.get(at + 2..)?),
            _ => return None,
        }
    }
    None
}

#[inline]
fn of_ipv4(ip: &[u8]) -> Option<u64> {
    let addresses = long(ip, 12)?;
    let both = mix(addresses >> 32).wrapping_add(mix(addresses & 0xffff_ffff));
    let is_whole = word(ip, 6)? & FRAGMENT == 0;
    Some(with_ports(both, ip[9], is_whole.then(|| ip.get(usize::from(ip[0] & 15) * 4..)).flatten()))
}

#[inline]
fn of_ipv6(ip: &[u8]) -> Option<u64> {
    let address = |at: usize| Some(mix(long(ip, at)?.wrapping_add(mix(long(ip, at + 8)?))));
    Some(with_ports(address(8)?.wrapping_add(address(24)?), ip[6], ip.get(40..)))
}

#[inline]
fn with_ports(both: u64, protocol: u8, payload: Option<&[u8]>) -> u64 {
    let has = matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
    let ports = payload.filter(|_| has).and_then(|payload| Some((word(payload, 0)?, word(payload, 2)?)));
    ports.map_or(both, |(a, b)| both.wrapping_add(mix(a.into())).wrapping_add(mix(b.into())))
}

/// By the stations that speak to each other.
fn of_stations(frame: &[u8]) -> Option<u64> {
    let station = |at: usize| Some(mix(long(frame, at)? >> 16));
    Some(station(0)?.wrapping_add(station(6)?))
}

/// Knows better than by its flow which worker a frame is for.
///
/// It receives all frames of a port, in their order, and gives every caller the same answer.
pub trait Steer: Send {
    /// The worker that a frame is for that came at this time; none where it is for anyone.
    fn worker(&mut self, frame: &[u8], now_ns: u64) -> Option<usize>;
}

/// A worker's share of frames.
pub struct Spread {
    /// The worker's place.
    me: usize,
    /// Workers.
    of: usize,
    steer: Option<Box<dyn Steer>>,
}

impl Spread {
    /// The share of worker `me` of `of` workers, by flow.
    pub fn new(me: usize, of: usize) -> Self {
        Self { me, of, steer: None }
    }

    /// All frames, for one worker.
    pub fn all() -> Self {
        Self::new(0, 1)
    }

    /// By this, where it knows.
    pub fn steered(self, steer: Option<Box<dyn Steer>>) -> Self {
        Self { steer, ..self }
    }

    /// The worker's place.
    pub fn me(&self) -> usize {
        self.me
    }

    /// The worker that a frame is for.
    #[inline]
    pub fn worker(&mut self, frame: &[u8], now_ns: u64) -> usize {
        if self.of == 1 {
            return 0;
        }
        let steered = self.steer.as_mut().and_then(|steer| steer.worker(frame, now_ns));
        steered.unwrap_or_else(|| ((u128::from(mix(flow_of(frame))) * self.of as u128) >> 64) as usize)
    }

    /// Returns whether a frame is for this worker.
    #[inline]
    pub fn is_mine(&mut self, frame: &[u8], now_ns: u64) -> bool {
        self.of == 1 || self.worker(frame, now_ns) == self.me
    }
}

#[cfg(test)]
mod tests {
    use flowlane::generate::build_frame;
    use flowlane::packet::Field;
    use flowlane::rule::Match;

    use super::*;

    fn frame(fields: &[(Field, u128)]) -> Vec<u8> {
        let mut matches = Match::any();
        fields.iter().for_each(|&(field, value)| _ = matches.set(field, value));
        let mut frame = Vec::new();
        build_frame(&matches.key(), 60, &mut frame);
        frame
    }

    fn both_ways(ip: u16, [a, b]: [u128; 2], [from, to]: [u128; 2], tag: bool) -> [Vec<u8>; 2] {
        use Field::{
            EthDst, EthSrc, EthType, Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Src, NwProto, TpDst, TpSrc, VlanTci,
        };
        let (source, destination) =
            if ip == ether_type::IPV4 { (Ipv4Src, Ipv4Dst) } else { (Ipv6Src, Ipv6Dst) };
        let one = |ends: [u128; 2], ports: [u128; 2], stations: [u128; 2]| {
            let mut fields =
                vec![(EthSrc, stations[0]), (EthDst, stations[1]), (EthType, ip.into()), (NwProto, 6)];
            fields.extend([(source, ends[0]), (destination, ends[1]), (TpSrc, ports[0]), (TpDst, ports[1])]);
            if tag {
                fields.push((VlanTci, 0x1005));
            }
            frame(&fields)
        };
        [one([a, b], [from, to], [2, 4]), one([b, a], [to, from], [4, 2])]
    }

    #[test]
    fn both_directions_come_to_one_worker_and_flows_are_spread_evenly() {
        for (ip, tag) in [(ether_type::IPV4, false), (ether_type::IPV4, true), (ether_type::IPV6, false)] {
            let mut counts = [0; 4];
            for flow in 0..4000u128 {
                let [there, back] =
                    both_ways(ip, [0x0a00_0001 + flow / 16, 0x0a00_0002], [1000 + flow % 16, 80], tag);
                assert_eq!(flow_of(&there), flow_of(&back), "{flow}");
                counts[Spread::new(0, 4).worker(&there, 0)] += 1;
            }
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn fragments_go_together_and_what_has_no_addresses_goes_somewhere() {
        let [mut first, _] = both_ways(ether_type::IPV4, [1, 2], [3, 4], false);
        let mut later = first.clone();
        (first[20], later[20], later[21]) = (0x20, 0, 9);
        later[34..38].fill(0x55);
        assert_eq!(flow_of(&first), flow_of(&later));
        assert_ne!(flow_of(&first), flow_of(&both_ways(ether_type::IPV4, [1, 2], [3, 4], false)[0]));
        for len in 0..60 {
            let worker = Spread::new(0, 3).worker(&first[..len], 0);
            assert!(worker < 3);
        }
    }
}
