//! Those that have sessions: inside addresses, and outside addresses with their ports.

use std::collections::HashMap;

use super::nat::Ports;
use super::tuple::Tuple;

/// Words of 64 ports.
const WORDS: usize = 1 << 10;

/// Ports that are listed, before there is a bit for each port: 8 KiB.
const LISTED_MAX: usize = 32;

/// An inside address of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Host(u16, bool, u128);

impl Host {
    /// The inside address of a session.
    pub(super) fn of(original: &Tuple) -> Self {
        Self(original.zone, original.is_ipv6, original.source.address)
    }
}

/// An outside address of a zone, for a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Outside(u16, u8, bool, u128);

impl Outside {
    /// An outside address for sessions with this original tuple.
    pub(super) fn of(original: &Tuple, address: u128) -> Self {
        Self(original.zone, original.proto, original.is_ipv6, address)
    }
}

/// The holders that a session counts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) host: Option<Host>,
    pub(super) port: Option<(Outside, u16)>,
}

impl Held {
    /// All that the session of these tuples holds; the port only where it serves all other ends.
    pub(super) fn of([original, reply]: &[Tuple; 2]) -> Self {
        let end = reply.destination;
        let is_port_taken = original.destination.address == 0;
        let port = is_port_taken.then_some((Outside::of(reply, end.address), end.port));
        Self { host: Some(Host::of(original)), port }
    }
}

/// Ports in use.
#[derive(Debug)]
enum Used {
    Few(Vec<u16>),
    Many { words: Box<[u64]>, count: u32 },
}

impl Used {
    fn count(&self) -> u32 {
        match self {
            Self::Few(ports) => ports.len() as u32,
            Self::Many { count, .. } => *count,
        }
    }

    /// The ports from 64 × `at` on, as bits.
    fn word(&self, at: usize) -> u64 {
        match self {
            Self::Few(ports) => {
                let here = ports.iter().filter(|port| usize::from(**port) / 64 == at);
                here.fold(0, |bits, port| bits | 1 << (port % 64))
            }
            Self::Many { words, .. } => words[at],
        }
    }

    fn has(&self, port: u16) -> bool {
        self.word(usize::from(port) / 64) >> (port % 64) & 1 == 1
    }

    fn add(&mut self, port: u16) {
        if self.has(port) {
            return;
        }
        match self {
            Self::Few(ports) if ports.len() < LISTED_MAX => ports.push(port),
            Self::Few(ports) => {
                let mut words = vec![0u64; WORDS].into_boxed_slice();
                ports.push(port);
                ports.iter().for_each(|port| words[usize::from(*port) / 64] |= 1 << (port % 64));
                *self = Self::Many { words, count: ports.len() as u32 };
            }
            Self::Many { words, count } => {
                words[usize::from(port) / 64] |= 1 << (port % 64);
                *count += 1;
            }
        }
    }

    fn remove(&mut self, port: u16) {
        if !self.has(port) {
            return;
        }
        match self {
            Self::Few(ports) => ports.retain(|other| *other != port),
            Self::Many { words, count } => {
                words[usize::from(port) / 64] &= !(1 << (port % 64));
                *count -= 1;
            }
        }
    }
}

/// The sessions of each inside address, and the ports in use of each outside address.
#[derive(Debug, Default)]
pub(super) struct Holders {
    sessions: HashMap<Host, u32>,
    ports: HashMap<Outside, Used>,
    /// Sessions that have ended, by zone.
    ended: HashMap<u16, u64>,
}

impl Holders {
    /// Returns the sessions of an inside address.
    pub(super) fn sessions(&self, host: Host) -> u32 {
        self.sessions.get(&host).copied().unwrap_or(0)
    }

    /// Returns the number of an outside address's ports in use.
    pub(super) fn ports(&self, outside: Outside) -> u32 {
        self.ports.get(&outside).map_or(0, Used::count)
    }

    /// Returns the free ports of an outside address among others, from the first of them on.
    pub(super) fn free(&self, outside: Outside, among: Ports) -> impl Iterator<Item = u16> {
        let used = self.ports.get(&outside);
        among.words().flat_map(move |(at, wanted)| {
            let mut free = wanted & !used.map_or(0, |used| used.word(at));
            std::iter::from_fn(move || {
                let bit = (free != 0).then(|| free.trailing_zeros())?;
                free &= free - 1;
                Some((at as u32 * 64 + bit) as u16)
            })
        })
    }

    /// Counts a session.
    pub(super) fn add(&mut self, Held { host, port }: Held) {
        if let Some(host) = host {
            *self.sessions.entry(host).or_default() += 1;
        }
        if let Some((outside, port)) = port {
            self.ports.entry(outside).or_insert(Used::Few(Vec::new())).add(port);
        }
    }

    /// Counts a session that has ended.
    pub(super) fn end(&mut self, tuples: &[Tuple; 2]) {
        *self.ended.entry(tuples[0].zone).or_default() += 1;
        let Held { host, port } = Held::of(tuples);
        if let Some(host) = host
            && let Some(sessions) = self.sessions.get_mut(&host)
        {
            *sessions -= 1;
            if *sessions == 0 {
                self.sessions.remove(&host);
            }
        }
        if let Some((outside, port)) = port
            && let Some(used) = self.ports.get_mut(&outside)
        {
            used.remove(port);
            if used.count() == 0 {
                self.ports.remove(&outside);
            }
        }
    }

    /// Returns the number of sessions of a zone that have ended.
    pub(super) fn ended(&self, zone: u16) -> u64 {
        self.ended.get(&zone).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flowlane::generate::Random;

    use super::*;

    #[test]
    fn free_ports_are_those_that_no_session_has() {
        let mut random = Random::new(3);
        let outside = Outside(0, 17, false, 1);
        let session = |port| Held { host: None, port: Some((outside, port)) };
        for (low, high) in [(1024, u16::MAX), (0, u16::MAX), (5000, 5003), (0, 1)] {
            for parity in 0..3u16 {
                let range = (low, high);
                let ports = match parity {
                    2 => Ports::all(range),
                    like => Ports::even_or_odd(range, like).unwrap(),
                };
                let (mut holders, mut used) = (Holders::default(), BTreeSet::new());
                let taken = random.below(2 + 3 * (u64::from(high) - u64::from(low)));
                for _ in 0..taken {
                    let port = low + random.below(u64::from(high - low) + 1) as u16;
                    used.insert(port);
                    holders.add(session(port));
                }
                assert_eq!(holders.ports(outside) as usize, used.len());
                let first = ports.from(random.bits() as u32);
                let free: Vec<u16> = holders.free(outside, first).collect();
                let wanted = |port: &u16| (parity == 2 || port % 2 == parity) && !used.contains(port);
                let all: BTreeSet<u16> = (low..=high).filter(wanted).collect();
                assert_eq!(free.iter().copied().collect::<BTreeSet<u16>>(), all);
                assert_eq!(free.len(), all.len(), "each once");
                let from = first.first();
                let next = all.range(from..).next().or(all.first());
                assert_eq!(free.first(), next, "from {from} on");
            }
        }
    }

    #[test]
    fn ports_are_free_again_when_their_sessions_end() {
        let end = |address: u128, port| super::super::End { address, port, icmp_type: 0 };
        let tuples = |n: u16| {
            let original =
                Tuple { source: end(9, n), destination: end(0, 0), zone: 3, proto: 17, is_ipv6: false };
            let reply = Tuple { source: end(0, 0), destination: end(1, 2000 + n), ..original };
            [original, reply]
        };
        let mut holders = Holders::default();
        let outside = Outside::of(&tuples(0)[0], 1);
        for few_or_many in [3, 200] {
            (0..few_or_many).for_each(|n| holders.add(Held::of(&tuples(n))));
            assert_eq!(holders.ports(outside), u32::from(few_or_many));
            assert_eq!(holders.sessions(Host::of(&tuples(0)[0])), u32::from(few_or_many));
            assert_eq!(holders.free(outside, Ports::all((2000, 2300))).next(), Some(2000 + few_or_many));
            (0..few_or_many).for_each(|n| holders.end(&tuples(n)));
            assert_eq!(holders.ports(outside), 0);
        }
        assert!(holders.ports.is_empty() && holders.sessions.is_empty());
        assert_eq!(holders.ended(3), 203);
    }
}
