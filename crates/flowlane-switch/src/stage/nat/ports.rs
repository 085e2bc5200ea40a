//! The pool of outside addresses and ports: which are in use, and random allocation of free ones.
//!
//! One bit for each port of every address and protocol, and above it, for even and for odd ports apart, one bit for every
//! word of these that has a free one, and one bit for every 64 such words:
//!
//! | level | bits for each address and protocol | |
//! |---|---:|---|
//! | ports | 65,536 | set where a port is used |
//! | words | 2 × 1024 | set where 64 ports have a free one |
//! | rows | 2 × 16 | set where 4096 ports have a free one |
//!
//! The search for a port begins at a secret one (RFC 6056, algorithm 1 with a keyed hash). It reads up to six words, twice
//! if it wraps around, no matter how many ports are free: a flood against exhausted ports costs the same as other
//! packets. All memory is allocated at once, 8.3 KiB for each address and protocol, of which the system commits the bits
//! of ports when they are touched. The sessions of one inside address share an outside address while that has ports
//! (*paired*, RFC 4787 REQ-2).

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use flowlane::packet::parse::ip_proto;

use crate::stage::Shard;

/// The number of outside addresses that are tried for a session.
const ADDRESSES_TRIED: usize = 16;

/// The maximum number of outside addresses: 99 MiB if all are in use for all protocols.
pub const ADDRESSES_MAX: usize = 4096;

/// The words of the ports of one address and protocol.
const WORDS: usize = 65_536 / 64;

/// Even and odd ports, as bits of a word.
const EVEN: u64 = 0x5555_5555_5555_5555;
const ODD: u64 = !EVEN;

/// TCP, UDP, ICMP.
const PROTOCOLS: usize = 3;

/// The secret that determines the order of ports.
#[derive(Clone, Copy, Debug)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A random secret from the system.
    pub fn random() -> Self {
        let state = RandomState::new();
        Self([state.hash_one(0u8), state.hash_one(1u8)])
    }

    /// A fixed secret, to repeat a run.
    pub fn seeded(seed: u64) -> Self {
        Self([seed, 0])
    }

    /// Returns the SipHash of the secret and two numbers.
    fn hash(self, a: u64, b: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        [self.0[0], self.0[1], a, b].into_iter().for_each(|n| hasher.write_u64(n));
        hasher.finish()
    }
}

/// Addresses from one to another, both included.
pub type Range = (u32, u32);

/// Ports from one to another, both included.
type Ports = (u16, u16);

/// Returns the bits of a word's ports that are in a range.
fn within((low, high): Ports, word: usize) -> u64 {
    let (first, last) = (word * 64, word * 64 + 63);
    let (low, high) = (usize::from(low), usize::from(high));
    if high < first || last < low {
        return 0;
    }
    u64::MAX << low.saturating_sub(first) & u64::MAX >> last.saturating_sub(high)
}

/// The words with free ports, of one address and protocol, for even and odd ports.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    words: [[u64; WORDS / 64]; 2],
    rows: [u16; 2],
}

impl Open {
    /// All ports of a range.
    fn all(ports: Ports, own: &[u64]) -> Self {
        let mut open = Self::default();
        (0..WORDS).for_each(|word| open.note(word, within(ports, word) & own[word]));
        open
    }

    /// Records the free ports of a word.
    fn note(&mut self, word: usize, free: u64) {
        let (row, bit) = (word / 64, word % 64);
        for (parity, mask) in [EVEN, ODD].into_iter().enumerate() {
            let words = &mut self.words[parity][row];
            *words = *words & !(1 << bit) | u64::from(free & mask != 0) << bit;
            self.rows[parity] = self.rows[parity] & !(1 << row) | u16::from(*words != 0) << row;
        }
    }

    /// Returns the first word from this one on with a free port of this parity.
    fn word_from(&self, word: usize, parity: u64) -> Option<usize> {
        let [even, odd] = [EVEN, ODD].map(|mask| if parity & mask == 0 { 0 } else { u64::MAX });
        let words = |row: usize| self.words[0][row] & even | self.words[1][row] & odd;
        let (row, bit) = (word / 64, word % 64);
        let here = if word < WORDS { words(row) & u64::MAX << bit } else { 0 };
        if here != 0 {
            return Some(row * 64 + here.trailing_zeros() as usize);
        }
        let rows = u64::from(self.rows[0]) & even | u64::from(self.rows[1]) & odd;
        let behind = rows & u64::MAX << (row + 1);
        (behind != 0).then(|| {
            let row = behind.trailing_zeros() as usize;
            row * 64 + words(row).trailing_zeros() as usize
        })
    }
}

/// The outside addresses and the use of their ports.
#[derive(Debug)]
pub struct Pool {
    ranges: Vec<Range>,
    /// The addresses, in order.
    addresses: Vec<u32>,
    /// One bit for each port in use, by address and protocol.
    used: Vec<u64>,
    /// The words with free ports that sessions may get, by address and protocol.
    open: Vec<Open>,
    /// The number of free ports that sessions may get, by address and protocol.
    free: Vec<u32>,
    /// The ports that sessions may get; ICMP identifiers are not restricted.
    ports: Ports,
    /// The ports of this shard, by word.
    own: Box<[u64]>,
    secret: Secret,
    drawn: u64,
}

/// Returns the index of a protocol's bits.
fn class(proto: u8) -> usize {
    match proto {
        ip_proto::TCP => 0,
        ip_proto::UDP => 1,
        _ => 2,
    }
}

/// Returns the ports of a protocol that sessions may get.
fn ports_of(class: usize, ports: Ports) -> Ports {
    if class == 2 { (0, u16::MAX) } else { ports }
}

impl Pool {
    /// A pool of the addresses in these ranges; sessions get those of `ports`, both ends included, that are in this shard.
    pub fn new(ranges: &[Range], ports: Ports, secret: Secret, shard: Shard) -> Self {
        let mut addresses: Vec<u32> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let places = addresses.len() * PROTOCOLS;
        let own: Box<[u64]> = (0..WORDS).map(|word| shard.ports(word)).collect();
        let kinds = [0, 1, 2].map(|class| Open::all(ports_of(class, ports), &own));
        let free_of = |class| -> u32 {
            (0..WORDS).map(|word| (within(ports_of(class, ports), word) & own[word]).count_ones()).sum()
        };
        let free = [0, 1, 2].map(free_of);
        Self {
            ranges: ranges.to_vec(),
            used: vec![0; places * WORDS],
            open: kinds.into_iter().cycle().take(places).collect(),
            free: free.into_iter().cycle().take(places).collect(),
            addresses,
            ports,
            own,
            secret,
            drawn: 0,
        }
    }

    /// Returns whether an address is in the pool.
    #[inline]
    pub fn contains(&self, address: u32) -> bool {
        self.ranges.iter().any(|&(first, last)| first <= address && address <= last)
    }

    /// Chooses the outside address of a session of this inside address, and returns its index: the first of those tried
    /// that has a free port, or has one `returned` to it.
    pub fn choose(&self, proto: u8, inside: u32, mut returned: impl FnMut(u32) -> bool) -> Option<u32> {
        let has_free = |at: usize| self.open[at * PROTOCOLS + class(proto)].rows != [0; 2];
        let mut tried = self.tried(inside);
        tried.find(|&at| has_free(at) || returned(self.addresses[at])).map(|at| at as u32)
    }

    /// Returns the number of free ports of the addresses that sessions of this inside address may get.
    pub fn free(&self, proto: u8, inside: u32) -> usize {
        self.tried(inside).map(|at| self.free[at * PROTOCOLS + class(proto)] as usize).sum()
    }

    /// Draws a free port of a [chosen](Self::choose) address for a session of this inside port. A port of UDP is even if
    /// the inside port is, while there are such (RFC 4787 REQ-4).
    ///
    /// # Panics
    /// If the address has no free port.
    pub fn draw(&mut self, proto: u8, address: u32, inside_port: u16) -> (u32, u16) {
        self.drawn += 1;
        let start = self.secret.hash(1, self.drawn);
        let parity = match (proto, inside_port & 1) {
            (ip_proto::UDP, 0) => EVEN,
            (ip_proto::UDP, _) => ODD,
            _ => u64::MAX,
        };
        let place = address as usize * PROTOCOLS + class(proto);
        let port = self.find_free(place, parity, start).or_else(|| self.find_free(place, u64::MAX, start));
        let port = port.expect("the address was chosen for its free ports");
        self.set(place, port, true);
        (self.addresses[address as usize], port)
    }

    /// Returns the address with this index.
    pub fn address(&self, index: u32) -> u32 {
        self.addresses[index as usize]
    }

    /// Returns the indices of the addresses that are tried for an inside address, in order.
    fn tried(&self, inside: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.addresses.len();
        let first = (self.secret.hash(0, inside.into()) % count.max(1) as u64) as usize;
        (0..count.min(ADDRESSES_TRIED)).map(move |i| (first + i) % count)
    }

    /// Takes this port. Returns whether it was free.
    pub fn take(&mut self, proto: u8, address: u32, port: u16) -> bool {
        let Ok(at) = self.addresses.binary_search(&address) else { return false };
        self.set(at * PROTOCOLS + class(proto), port, true)
    }

    /// Returns a port to the pool.
    pub fn give_back(&mut self, proto: u8, address: u32, port: u16) {
        if let Ok(at) = self.addresses.binary_search(&address) {
            self.set(at * PROTOCOLS + class(proto), port, false);
        }
    }

    /// Returns the bytes allocated.
    pub fn table_bytes(&self) -> usize {
        let ports = size_of_val(&*self.used) + size_of_val(&*self.open) + size_of_val(&*self.free);
        ports + size_of_val(&*self.addresses)
    }

    /// Marks a port as used or free. Returns whether that is a change.
    fn set(&mut self, place: usize, port: u16, used: bool) -> bool {
        let (word, bit) = (usize::from(port) / 64, port % 64);
        let bits = &mut self.used[place * WORDS + word];
        let before = *bits;
        *bits = before & !(1 << bit) | u64::from(used) << bit;
        let may = within(ports_of(place % PROTOCOLS, self.ports), word) & self.own[word];
        self.open[place].note(word, !*bits & may);
        self.free[place] = self.free[place] + (!*bits & may).count_ones() - (!before & may).count_ones();
        *bits != before
    }

    /// Returns the first free port of a parity from that of `start` on, wrapping around.
    fn find_free(&self, place: usize, parity: u64, start: u64) -> Option<u16> {
        let ports @ (low, high) = ports_of(place % PROTOCOLS, self.ports);
        let span = u64::from(high - low) + 1;
        let begin = usize::from(low) + (start % span) as usize;
        let (used, open) = (&self.used[place * WORDS..][..WORDS], &self.open[place]);
        let first = |word: usize, from: u64| {
            let free = !used[word] & self.own[word] & within(ports, word) & parity & from;
            (free != 0).then(|| (word * 64) as u16 + free.trailing_zeros() as u16)
        };
        let from = |word: usize| open.word_from(word, parity).and_then(|word| first(word, u64::MAX));
        let word = begin / 64;
        first(word, u64::MAX << (begin % 64)).or_else(|| from(word + 1)).or_else(|| from(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use flowlane::generate::Random;

    use super::*;

    /// Chooses an address and draws a port.
    fn draw(pool: &mut Pool, proto: u8, inside: u32, inside_port: u16) -> Option<(u32, u16)> {
        let address = pool.choose(proto, inside, |_| false)?;
        Some(pool.draw(proto, address, inside_port))
    }

    #[test]
    fn every_port_is_drawn_once_and_within_the_range() {
        for (low, high) in [(1024, 65_535), (63, 65), (64, 64), (0, 127), (65_535, 65_535), (100, 1000)] {
            let mut pool = Pool::new(&[(10, 11)], (low, high), Secret::seeded(7), Shard::default());
            let wanted = 2 * (usize::from(high - low) + 1);
            let mut seen = HashSet::new();
            for i in 0..wanted {
                let (address, port) = draw(&mut pool, ip_proto::TCP, 5, i as u16).expect("one is free");
                assert!((10..=11).contains(&address) && (low..=high).contains(&port));
                assert!(seen.insert((address, port)), "{address}:{port} twice");
            }
            assert_eq!(draw(&mut pool, ip_proto::TCP, 5, 1), None);
            // Another protocol has its own.
            assert!(draw(&mut pool, ip_proto::UDP, 5, 1).is_some());
            pool.give_back(ip_proto::TCP, 11, high);
            assert_eq!(draw(&mut pool, ip_proto::TCP, 99, 1), Some((11, high)));
            assert!(!pool.take(ip_proto::TCP, 11, high) && !pool.take(ip_proto::TCP, 12, high));
        }
    }

    /// Finds the result of [`Pool::find_free`] port by port.
    fn find_by_hand(pool: &Pool, place: usize, parity: u64, start: u64) -> Option<u16> {
        let (low, high) = ports_of(place % PROTOCOLS, pool.ports);
        let begin = usize::from(low) + (start % (u64::from(high - low) + 1)) as usize;
        let free = |port: &u16| {
            let (word, bit) = (usize::from(*port) / 64, 1 << (port % 64));
            pool.used[place * WORDS + word] & bit == 0 && parity & bit != 0
        };
        (begin as u16..=high).find(free).or_else(|| (low..=begin as u16).find(free))
    }

    #[test]
    fn find_free_agrees_with_a_search_port_by_port() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let (low, high) =
                [(1024, 65_535), (0, 65_535), (5000, 5000), (4090, 4100), (63, 64), (1000, 9000)]
                    [seed as usize % 6];
            let mut pool = Pool::new(&[(7, 8)], (low, high), Secret::seeded(seed), Shard::default());
            // All but a few are in use, those included that sessions do not get.
            for place in 0..2 * PROTOCOLS {
                (0..=u16::MAX).for_each(|port| _ = pool.set(place, port, true));
            }
            for _ in 0..400 {
                let place = random.index(2 * PROTOCOLS);
                let near = [0, low, high, low / 64 * 64, high | 63, 4096][random.index(6)];
                let port = near.wrapping_add(random.below(5) as u16).wrapping_sub(2);
                let free = random.chance(0.5);
                let was = pool.used[place * WORDS + usize::from(port) / 64] >> (port % 64) & 1 == 1;
                assert_eq!(pool.set(place, port, !free), was == free, "seed {seed}, port {port}");
                let parity = [EVEN, ODD, u64::MAX][random.index(3)];
                let start = [random.bits(), u64::from(port.wrapping_sub(low))][random.index(2)];
                assert_eq!(
                    pool.find_free(place, parity, start),
                    find_by_hand(&pool, place, parity, start),
                    "seed {seed}: {parity:x} from {start} of {low} to {high}"
                );
            }
        }
    }

    #[test]
    fn an_inside_address_keeps_its_outside_address_and_udp_its_parity() {
        let mut pool = Pool::new(&[(1, 40)], (1024, 65_535), Secret::seeded(7), Shard::default());
        let mut addresses = HashSet::new();
        for inside in 0..100 {
            let draws: Vec<_> =
                (0..20).filter_map(|port| draw(&mut pool, ip_proto::UDP, inside, port)).collect();
            assert!(draws.iter().all(|(address, _)| *address == draws[0].0));
            assert!(draws.iter().zip(0..).all(|((_, port), inside_port)| port & 1 == inside_port & 1));
            addresses.insert(draws[0].0);
        }
        assert!(addresses.len() > 30, "{} of 40 addresses for 100 hosts", addresses.len());
    }

    #[test]
    fn ports_depend_on_the_secret_and_do_not_follow_each_other() {
        let draw = |secret| {
            let mut pool = Pool::new(&[(1, 1)], (1024, 65_535), secret, Shard::default());
            (0..200)
                .filter_map(|_| draw(&mut pool, ip_proto::TCP, 5, 5))
                .map(|(_, port)| port)
                .collect::<Vec<_>>()
        };
        let first = draw(Secret::seeded(1));
        assert_eq!(first, draw(Secret::seeded(1)));
        assert_ne!(first, draw(Secret::seeded(2)));
        assert_ne!(draw(Secret::random()), draw(Secret::random()));
        let near = first.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
        assert!(near < 10, "{near} of 200 ports are next to the one before");
    }
}
