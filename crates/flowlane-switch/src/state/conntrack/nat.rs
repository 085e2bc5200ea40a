//! Translation of new connections: the reply tuples that one may have.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;

use flowlane::packet::parse::ip_proto;
use flowlane::rule::action::{Nat, NatRange};

use super::entry::Translated;
use super::tuple::Tuple;

/// Ports that are tried one after the other, before others are tried from other places on.
const TRIED_IN_ORDER: u32 = 128;

/// The fewest that are tried from such a place.
const TRIED_MIN: u32 = 16;

/// Addresses that are tried.
const ADDRESSES_TRIED: u128 = 4;

/// Numbers that follow from a connection, and that cannot be guessed.
pub(super) trait Draw {
    /// Returns one of a connection, or of its source address alone, the same at all times.
    fn draw(&self, tuple: &Tuple, by_address: bool, number: u32) -> u32;
}

/// The secret by which addresses and ports are drawn. Other hosts see these, so it is the key of SipHash: the multilinear hash can be
/// solved for its key.
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

    pub(super) fn hash(self, value: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the ends that a new connection has translated.
pub(super) fn translated(nat: &Nat) -> Translated {
    let is_source = nat.range.map(|range| range.is_source);
    Translated { source: is_source == Some(true), destination: is_source == Some(false) }
}

/// Ports from one to another, each `step` behind the one before, and the first to be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    low: u16,
    high: u16,
    step: u16,
    first: u16,
}

impl Ports {
    /// Its own, then those of its class: below 512, from 600 below 1024, the others.
    fn like(port: u16) -> Self {
        let (low, high) = match port {
            ..512 => (1, 511),
            512..1024 => (600, 1023),
            1024.. => (1024, u16::MAX),
        };
        Self { low, high, step: 1, first: port }
    }

    /// All ports of a range.
    pub(super) fn all((low, high): (u16, u16)) -> Self {
        Self { low, high, step: 1, first: low }
    }

    /// The even or the odd ports of a range, like another one; `None` if there are none.
    pub(super) fn even_or_odd((low, high): (u16, u16), like: u16) -> Option<Self> {
        let low = if low & 1 == like & 1 { low } else { low.checked_add(1)? };
        (low <= high).then_some(Self { low, high, step: 2, first: low })
    }

    fn count(self) -> u32 {
        (u32::from(self.high) - u32::from(self.low)) / u32::from(self.step) + 1
    }

    fn at(self, place: u32) -> u16 {
        self.low + (place % self.count()) as u16 * self.step
    }

    /// Begins with a port that is drawn.
    pub(super) fn from(self, drawn: u32) -> Self {
        Self { first: self.at(drawn), ..self }
    }

    /// Returns the first to be tried.
    #[cfg(test)]
    pub(super) fn first(self) -> u16 {
        self.first
    }

    /// Returns the ports as bits, from the first to be tried on: those from 64 × the number on, which may be the same in the last word
    /// as in the first.
    pub(super) fn words(self) -> impl Iterator<Item = (usize, u64)> {
        let Self { low, high, step, first } = self;
        let [low, high, first] = [low, high, first].map(usize::from);
        let alike = match step {
            1 => u64::MAX,
            _ => 0x5555_5555_5555_5555 << (low % 2),
        };
        let (begin, count) = (low / 64, high / 64 - low / 64 + 1);
        (0..=count).map(move |n| {
            let at = begin + (first / 64 - begin + n) % count;
            let from = u64::MAX << low.saturating_sub(at * 64).min(63);
            let to = u64::MAX >> (at * 64 + 63).saturating_sub(high).min(63);
            let behind = u64::MAX << (first % 64);
            let turn = match n {
                0 => behind,
                n if n == count => !behind,
                _ => u64::MAX,
            };
            (at, alike & from & to & turn)
        })
    }

    /// Returns ports to be tried: from the first on, then fewer and fewer from places that are drawn.
    pub(super) fn tried(self, draw: impl Fn(u32) -> u32) -> impl Iterator<Item = u16> {
        let begin = u32::from(self.first.saturating_sub(self.low)) / u32::from(self.step);
        let in_order = (1..self.count().min(TRIED_IN_ORDER)).map(move |step| self.at(begin + step));
        let rounds = (1..).map(|round| (round, TRIED_IN_ORDER >> round));
        let rounds = rounds.take_while(|(_, count)| *count >= TRIED_MIN);
        let has_others = self.count() > TRIED_IN_ORDER;
        let others = rounds.filter(move |_| has_others).flat_map(move |(round, count)| {
            let begin = draw(round) % self.count();
            (0..count).map(move |step| self.at(begin + step))
        });
        std::iter::once(self.first).chain(in_order).chain(others)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The addresses that are tried; the connection's own where the rule names none. No address of the other version of IP: a group may
/// send a packet of either to the rule's action.
fn addresses(nat: &Nat, range: &NatRange, original: &Tuple, draw: &impl Draw) -> impl Iterator<Item = u128> {
    let own = if range.is_source { original.source } else { original.destination };
    let (low, high) = range.addresses.map_or((0, 0), |(low, high)| (number(low), number(high)));
    // As in Open vSwitch, `src=0.0.0.0` keeps the address, and moves ports only where they are in use.
    let (low, count) =
        if (low, high) == (0, 0) { (own.address, 1) } else { (low, (high - low).saturating_add(1)) };
    let count =
        if range.addresses.is_none_or(|(low, _)| low.is_ipv6() == original.is_ipv6) { count } else { 0 };
    let begin = u128::from(draw.draw(original, nat.persistent, 0)) % count.max(1);
    (0..count.min(ADDRESSES_TRIED)).map(move |step| low + (begin + step) % count)
}

/// Returns the reply tuples that a new connection may have, the best first.
pub(super) fn replies<'a>(
    nat: &'a Nat,
    range: &'a NatRange,
    original: &'a Tuple,
    draw: &'a impl Draw,
) -> impl Iterator<Item = Tuple> + 'a {
    addresses(nat, range, original, draw).flat_map(move |address| {
        let mut reply = original.reversed();
        if range.is_source {
            reply.destination.address = address;
        } else {
            reply.source.address = address;
        }
        ports(nat, range, (original, reply), draw)
    })
}

/// Returns the tuples with ports that are tried. These are drawn by the original tuple, which has the inside address: reply tuples of
/// hosts that use one port differ in the port alone.
fn ports<'a>(
    nat: &'a Nat,
    range: &'a NatRange,
    (original, reply): (&'a Tuple, Tuple),
    draw: &'a impl Draw,
) -> Box<dyn Iterator<Item = Tuple> + 'a> {
    let drawn = move |round: u32| draw.draw(original, false, round);
    let given =
        range.ports.map(|(low, high)| Ports::all((low, high)).from(draw.draw(original, nat.persistent, 0)));
    let own = Ports::like(reply.destination.port);
    match reply.proto {
        ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP => {}
        ip_proto::ICMP => {
            let identifiers = Ports { first: reply.destination.port, ..Ports::all((0, u16::MAX)) };
            return Box::new(identifiers.tried(drawn).map(move |id| {
                let mut reply = reply;
                (reply.source.port, reply.destination.port) = (id, id);
                reply
            }));
        }
        _ => return Box::new(std::iter::once(reply)),
    }
    let with_source = move |port: u16| {
        let mut reply = reply;
        reply.destination.port = port;
        reply
    };
    if range.is_source {
        return Box::new(given.unwrap_or(own).tried(drawn).map(with_source));
    }
    let Some(given) = given else { return Box::new(own.tried(drawn).map(with_source)) };
    // The destination's ports first; then the source moves for the first of them.
    let with_destination = move |port: u16| {
        let mut reply = reply;
        reply.source.port = port;
        reply
    };
    let moved = own.tried(drawn).skip(1).map(move |port| {
        let mut reply = with_destination(given.first);
        reply.destination.port = port;
        reply
    });
    Box::new(given.tried(drawn).map(with_destination).chain(moved))
}
