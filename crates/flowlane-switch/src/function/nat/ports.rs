//! Which outside addresses and ports are in use, and drawing free ones that nobody can foretell.
//!
//! A bit a port, for every address and protocol: 8 KiB each, made when the first port is drawn. A port is looked for from
//! a secret place on (RFC 6056, algorithm 1 with a keyed hash), so that the search is short while there are free ones, and
//! finds the last one, too. The sessions of one inside address share an outside address while that has ports (*paired*,
//! RFC 4787 REQ-2).

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use flowlane::packet::parse::ip_proto;

/// Outside addresses that are tried for a session.
const ADDRESSES_TRIED: usize = 16;

/// Most outside addresses: 96 MiB of bits, where all of them are in use for all protocols.
pub const ADDRESSES_MAX: usize = 4096;

/// Bits of the ports of one address and protocol.
const WORDS: usize = 65_536 / 64;

/// What the order of ports is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Secret([u64; 2]);

impl Secret {
    /// One from the system.
    pub fn random() -> Self {
        let state = RandomState::new();
        Self([state.hash_one(0u8), state.hash_one(1u8)])
    }

    /// One that is always the same, to repeat a run.
    pub fn seeded(seed: u64) -> Self {
        Self([seed, 0])
    }

    /// SipHash of the secret and two numbers.
    fn hash(self, a: u64, b: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        [self.0[0], self.0[1], a, b].into_iter().for_each(|n| hasher.write_u64(n));
        hasher.finish()
    }
}

/// Addresses from one to another, both included.
pub type Range = (u32, u32);

/// Outside addresses, their ports, and who uses them.
#[derive(Debug)]
pub struct Pool {
    ranges: Vec<Range>,
    /// The addresses, in order.
    addresses: Vec<u32>,
    /// Of each address: TCP, UDP, ICMP.
    used: Vec<[Option<Box<[u64; WORDS]>>; 3]>,
    /// Ports that sessions get; ICMP identifiers are any.
    ports: (u16, u16),
    secret: Secret,
    drawn: u64,
}

/// The place of a protocol's bits.
fn class(proto: u8) -> usize {
    match proto {
        ip_proto::TCP => 0,
        ip_proto::UDP => 1,
        _ => 2,
    }
}

impl Pool {
    /// A pool of the addresses in these ranges; sessions get the ports of `ports`, both ends included.
    pub fn new(ranges: &[Range], ports: (u16, u16), secret: Secret) -> Self {
        let mut addresses: Vec<u32> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let used = addresses.iter().map(|_| [const { None }; 3]).collect();
        Self { ranges: ranges.to_vec(), addresses, used, ports, secret, drawn: 0 }
    }

    /// Whether an address is one of the pool's.
    #[inline]
    pub fn contains(&self, address: u32) -> bool {
        self.ranges.iter().any(|&(first, last)| first <= address && address <= last)
    }

    /// Draws a free port for a session of this inside address and port; none where those of the addresses that are tried
    /// are in use. Ports of UDP are even where the inside port is, while there are such (RFC 4787 REQ-4).
    pub fn draw(&mut self, proto: u8, inside: u32, inside_port: u16) -> Option<(u32, u16)> {
        let count = self.addresses.len();
        let first = (self.secret.hash(0, inside.into()) % count.max(1) as u64) as usize;
        self.drawn += 1;
        let start = self.secret.hash(1, self.drawn);
        let ports = if class(proto) == 2 { (0, u16::MAX) } else { self.ports };
        let parity = match (proto, inside_port & 1) {
            (ip_proto::UDP, 0) => 0x5555_5555_5555_5555,
            (ip_proto::UDP, _) => 0xaaaa_aaaa_aaaa_aaaa,
            _ => u64::MAX,
        };
        for at in (0..count.min(ADDRESSES_TRIED)).map(|i| (first + i) % count) {
            let used = self.used[at][class(proto)].get_or_insert_with(|| Box::new([0; WORDS]));
            let free =
                find_free(used, ports, parity, start).or_else(|| find_free(used, ports, u64::MAX, start));
            if let Some(port) = free {
                used[usize::from(port) / 64] |= 1 << (port % 64);
                return Some((self.addresses[at], port));
            }
        }
        None
    }

    /// Takes a port that is named; says whether it was free.
    pub fn take(&mut self, proto: u8, address: u32, port: u16) -> bool {
        let Ok(at) = self.addresses.binary_search(&address) else { return false };
        let used = self.used[at][class(proto)].get_or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = (&mut used[usize::from(port) / 64], 1 << (port % 64));
        let free = *word & bit == 0;
        *word |= bit;
        free
    }

    /// Gives a port back.
    pub fn give_back(&mut self, proto: u8, address: u32, port: u16) {
        if let Ok(at) = self.addresses.binary_search(&address)
            && let Some(used) = &mut self.used[at][class(proto)]
        {
            used[usize::from(port) / 64] &= !(1 << (port % 64));
        }
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        let bits = self.used.iter().flatten().flatten().count() * size_of::<[u64; WORDS]>();
        bits + self.addresses.capacity() * size_of::<u32>() + self.used.capacity() * size_of::<[usize; 3]>()
    }
}

/// The first free port of `ports` and a parity from a place on that `start` names; round to that place again.
fn find_free(used: &[u64; WORDS], (low, high): (u16, u16), parity: u64, start: u64) -> Option<u16> {
    let span = u64::from(high - low) + 1;
    let from = usize::from(low) + (start % span) as usize;
    let bits = |word: usize, low: usize, high: usize| {
        // Ports of this word from `low` to `high`, both included.
        let (first, last) = (word * 64, word * 64 + 63);
        if high < first || last < low {
            return 0;
        }
        let above = u64::MAX << low.saturating_sub(first);
        let below = u64::MAX >> last.saturating_sub(high).min(63);
        !used[word] & above & below & parity
    };
    let search = |low: usize, high: usize| {
        (low / 64..=high / 64)
            .find_map(|word| {
                let free = bits(word, low, high);
                (free != 0).then(|| word * 64 + free.trailing_zeros() as usize)
            })
            .map(|port| port as u16)
    };
    let before = || (from > usize::from(low)).then(|| search(low.into(), from - 1)).flatten();
    search(from, high.into()).or_else(before)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_port_is_drawn_once_and_within_the_range() {
        for (low, high) in [(1024, 65_535), (63, 65), (64, 64), (0, 127), (65_535, 65_535), (100, 1000)] {
            let mut pool = Pool::new(&[(10, 11)], (low, high), Secret::seeded(7));
            let wanted = 2 * (usize::from(high - low) + 1);
            let mut seen = HashSet::new();
            for i in 0..wanted {
                let (address, port) = pool.draw(ip_proto::TCP, 5, i as u16).expect("one is free");
                assert!((10..=11).contains(&address) && (low..=high).contains(&port));
                assert!(seen.insert((address, port)), "{address}:{port} twice");
            }
            assert_eq!(pool.draw(ip_proto::TCP, 5, 1), None);
            // Another protocol has its own.
            assert!(pool.draw(ip_proto::UDP, 5, 1).is_some());
            pool.give_back(ip_proto::TCP, 11, high);
            assert_eq!(pool.draw(ip_proto::TCP, 99, 1), Some((11, high)));
            assert!(!pool.take(ip_proto::TCP, 11, high) && !pool.take(ip_proto::TCP, 12, high));
        }
    }

    #[test]
    fn an_inside_address_keeps_its_outside_address_and_udp_its_parity() {
        let mut pool = Pool::new(&[(1, 40)], (1024, 65_535), Secret::seeded(7));
        let mut addresses = HashSet::new();
        for inside in 0..100 {
            let draws: Vec<_> = (0..20).filter_map(|port| pool.draw(ip_proto::UDP, inside, port)).collect();
            assert!(draws.iter().all(|(address, _)| *address == draws[0].0));
            assert!(draws.iter().zip(0..).all(|((_, port), inside_port)| port & 1 == inside_port & 1));
            addresses.insert(draws[0].0);
        }
        assert!(addresses.len() > 30, "{} of 40 addresses for 100 hosts", addresses.len());
    }

    #[test]
    fn ports_depend_on_the_secret_and_do_not_follow_each_other() {
        let draw = |secret| {
            let mut pool = Pool::new(&[(1, 1)], (1024, 65_535), secret);
            (0..200).filter_map(|_| pool.draw(ip_proto::TCP, 5, 5)).map(|(_, port)| port).collect::<Vec<_>>()
        };
        let first = draw(Secret::seeded(1));
        assert_eq!(first, draw(Secret::seeded(1)));
        assert_ne!(first, draw(Secret::seeded(2)));
        assert_ne!(draw(Secret::random()), draw(Secret::random()));
        let near = first.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
        assert!(near < 10, "{near} of 200 ports are next to the one before");
    }
}
