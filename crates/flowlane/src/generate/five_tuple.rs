//! The 5-tuple profiles: measured distributions (see [`super::rules`]), and drawing from them.

use super::random::{Random, Weighted};
use super::rules::{Draw, Profile};
use crate::packet::Field;
use crate::rule::Match;

/// The class of a port condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ports {
    /// Any.
    Wc,
    /// 1024 to 65535.
    Hi,
    /// Another range.
    Ar,
    /// One port.
    Em,
}

use Ports::{Ar, Em, Hi, Wc};

const ANY: u8 = 0;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;

type Lengths = &'static [(u8, u16)];

/// Rules of one scope: the lengths of both prefixes and the protocol with its ports are drawn
/// independently of each other within it. Weights are percent.
struct Scope {
    weight: f64,
    src: Lengths,
    dst: Lengths,
    classes: &'static [(u8, Ports, Ports, u16)],
}

/// Where prefixes come from.
#[derive(Clone, Copy)]
struct Addresses {
    /// Probability that a prefix of this length that is in the set already is used again.
    same: f64,
    /// Of the new ones, the share in a /24 that is new; of these, in a /16 that is new; of these, in a /8.
    new: [f64; 3],
    /// Whether prefixes that were used often are used again more often.
    popular: bool,
}

struct Tables {
    scopes: &'static [Scope],
    src: Addresses,
    dst: Addresses,
    /// Exact destination and source ports with their weights. Port 0 means one of `other_ports`
    /// random registered ports.
    dst_ports: &'static [(u16, u16)],
    src_ports: &'static [(u16, u16)],
    other_ports: usize,
    ranges: &'static [(u16, u16, u16)],
}

/// Nearly everything, with the traces of smoothing.
const WILD: Lengths = &[(0, 64), (1, 32), (2, 4)];

#[rustfmt::skip]
static ACL: Tables = Tables {
    scopes: &[
        Scope {
            weight: 97.0,
            src: &[(32, 56), (31, 25), (23, 6), (30, 5), (24, 4), (22, 2), (29, 1), (25, 1)],
            dst: &[(32, 53), (31, 21), (22, 7), (30, 5), (23, 4), (24, 2), (21, 2), (25, 2), (16, 1), (17, 1), (15, 1), (28, 1)],
            classes: &[(TCP, Wc, Em, 61), (TCP, Wc, Wc, 15), (TCP, Wc, Ar, 12), (ANY, Wc, Wc, 8), (ICMP, Wc, Wc, 3), (UDP, Wc, Em, 1)],
        },
        Scope {
            weight: 2.3,
            src: &[(23, 47), (22, 28), (24, 21), (21, 1), (9, 1)],
            dst: &[(5, 15), (7, 13), (3, 13), (0, 11), (4, 10), (1, 10), (2, 10), (6, 9), (8, 9)],
            classes: &[(TCP, Wc, Wc, 61), (ANY, Wc, Wc, 30), (ICMP, Wc, Wc, 9)],
        },
        Scope {
            weight: 0.2,
            src: &[(0, 79), (1, 21)],
            dst: &[(13, 26), (9, 26), (12, 21), (14, 11), (11, 5), (10, 5), (15, 5)],
            classes: &[(TCP, Wc, Wc, 74), (ANY, Wc, Wc, 21), (ICMP, Wc, Wc, 5)],
        },
    ],
    src: Addresses { same: 0.59, new: [0.11, 0.29, 0.97], popular: false },
    dst: Addresses { same: 0.93, new: [0.75, 0.73, 0.52], popular: true },
    dst_ports: &[(1521, 18), (1526, 6), (1433, 4), (135, 3), (1525, 3), (20, 2), (0, 64)],
    src_ports: &[(0, 1)],
    other_ports: 67,
    ranges: &[(1600, 1649, 9), (1300, 1349, 14), (7500, 7599, 6), (32200, 32207, 4), (2200, 2210, 4), (1025, 65535, 4), (5001, 65535, 4), (62600, 62609, 3)],
};

#[rustfmt::skip]
static FW: Tables = Tables {
    scopes: &[
        Scope {
            weight: 60.6,
            src: WILD,
            dst: &[(32, 47), (31, 43), (30, 9)],
            classes: &[(TCP, Wc, Em, 68), (UDP, Wc, Em, 21), (TCP, Hi, Hi, 3), (UDP, Hi, Em, 2), (UDP, Hi, Hi, 2), (UDP, Em, Wc, 2), (UDP, Em, Em, 2)],
        },
        Scope {
            weight: 25.5,
            src: &[(32, 30), (31, 26), (30, 10), (29, 4), (27, 4), (28, 4), (21, 4), (22, 3), (23, 3), (20, 3), (26, 2), (25, 2), (24, 1), (11, 1)],
            dst: WILD,
            classes: &[(UDP, Em, Wc, 36), (TCP, Wc, Wc, 23), (GRE, Wc, Wc, 14), (ICMP, Wc, Wc, 10), (UDP, Em, Hi, 5), (TCP, Wc, Em, 4), (UDP, Em, Em, 4), (ANY, Wc, Wc, 3), (UDP, Wc, Em, 1)],
        },
        Scope {
            weight: 10.5,
            src: &[(32, 49), (31, 24), (28, 9), (29, 6), (30, 6), (27, 4), (26, 2)],
            dst: &[(32, 40), (31, 17), (28, 7), (22, 7), (21, 7), (29, 6), (30, 5), (20, 4), (27, 4), (23, 1)],
            classes: &[(TCP, Wc, Wc, 20), (TCP, Hi, Hi, 18), (GRE, Wc, Wc, 10), (UDP, Hi, Hi, 9), (UDP, Em, Hi, 9), (TCP, Wc, Em, 8), (ICMP, Wc, Wc, 7), (UDP, Em, Em, 7), (UDP, Hi, Em, 7), (ANY, Wc, Wc, 3), (UDP, Wc, Em, 2)],
        },
        Scope {
            weight: 3.4,
            src: &[(0, 51), (1, 32), (8, 6), (7, 6), (2, 5)],
            dst: &[(0, 60), (1, 35), (2, 5)],
            classes: &[(TCP, Wc, Em, 40), (UDP, Wc, Em, 19), (UDP, Em, Wc, 11), (TCP, Wc, Wc, 9), (ICMP, Wc, Wc, 8), (GRE, Wc, Wc, 6), (UDP, Ar, Hi, 2), (UDP, Hi, Ar, 2)],
        },
    ],
    src: Addresses { same: 0.02, new: [1.0, 1.0, 0.06], popular: false },
    dst: Addresses { same: 0.02, new: [1.0, 1.0, 0.04], popular: false },
    dst_ports: &[(22, 16), (80, 11), (25, 10), (53, 9), (123, 7), (21, 3), (161, 3), (443, 3), (23, 2), (119, 2), (88, 2), (0, 32)],
    src_ports: &[(123, 28), (53, 20), (161, 13), (69, 10), (88, 8), (67, 7), (0, 14)],
    other_ports: 29,
    ranges: &[(33434, 33600, 1)],
};

#[rustfmt::skip]
static IPC: Tables = Tables {
    scopes: &[
        Scope {
            weight: 78.2,
            src: &[(32, 20), (24, 16), (23, 16), (25, 11), (31, 10), (22, 5), (26, 5), (16, 4), (17, 3), (27, 3), (28, 2), (30, 2), (15, 2), (21, 1)],
            dst: &[(32, 28), (24, 14), (25, 11), (31, 11), (23, 8), (26, 6), (16, 5), (27, 4), (15, 3), (17, 3), (28, 3), (22, 2), (29, 1)],
            classes: &[(ANY, Wc, Wc, 35), (UDP, Wc, Em, 20), (TCP, Wc, Em, 13), (UDP, Em, Wc, 8), (TCP, Em, Wc, 7), (UDP, Wc, Hi, 7), (TCP, Wc, Wc, 2), (TCP, Wc, Ar, 2), (TCP, Ar, Wc, 2), (ICMP, Wc, Wc, 1), (UDP, Wc, Ar, 1), (UDP, Em, Em, 1), (ESP, Wc, Wc, 1)],
        },
        Scope {
            weight: 12.7,
            src: WILD,
            dst: &[(32, 27), (31, 21), (24, 11), (25, 10), (23, 9), (30, 7), (26, 4), (22, 4), (16, 2), (15, 1), (27, 1)],
            classes: &[(UDP, Wc, Em, 30), (ANY, Wc, Wc, 19), (TCP, Wc, Em, 18), (TCP, Em, Wc, 13), (UDP, Em, Wc, 11), (UDP, Wc, Hi, 3), (TCP, Wc, Wc, 2), (TCP, Wc, Ar, 1), (ICMP, Wc, Wc, 1), (TCP, Ar, Wc, 1)],
        },
        Scope {
            weight: 8.8,
            src: &[(23, 22), (32, 18), (24, 16), (22, 12), (31, 8), (25, 5), (15, 3), (21, 3), (26, 3), (16, 3), (17, 2), (28, 1), (30, 1), (29, 1)],
            dst: WILD,
            classes: &[(ANY, Wc, Wc, 36), (UDP, Wc, Em, 27), (TCP, Wc, Em, 16), (TCP, Em, Wc, 6), (UDP, Em, Wc, 6), (TCP, Ar, Wc, 2), (TCP, Wc, Wc, 2), (TCP, Wc, Ar, 1), (UDP, Hi, Wc, 1), (ICMP, Wc, Wc, 1)],
        },
        Scope {
            weight: 0.3,
            src: WILD,
            dst: WILD,
            classes: &[(TCP, Wc, Em, 34), (UDP, Wc, Em, 34), (ICMP, Wc, Wc, 11), (TCP, Wc, Wc, 11)],
        },
    ],
    src: Addresses { same: 0.82, new: [0.59, 0.30, 0.17], popular: false },
    dst: Addresses { same: 0.67, new: [0.46, 0.27, 0.22], popular: false },
    dst_ports: &[(69, 19), (514, 18), (80, 12), (53, 7), (25, 5), (1433, 3), (137, 3), (162, 2), (0, 31)],
    src_ports: &[(161, 27), (53, 13), (80, 9), (25, 9), (1433, 7), (143, 4), (22, 4), (0, 27)],
    other_ports: 37,
    ranges: &[(109, 110, 30), (20, 23, 26), (20, 21, 26), (1645, 1646, 14), (1812, 1813, 5), (5000, 5001, 2)],
};

/// Which fields a 5-tuple rule looks at, and how.
#[derive(Clone)]
pub(super) struct Shape {
    protocol: u8,
    src_ports: Ports,
    dst_ports: Ports,
    src_len: u8,
    dst_len: u8,
}

/// Draws matches of a 5-tuple profile; of `acl` where the profile is none of `acl`, `fw` and `ipc`.
pub(super) struct FiveTuple {
    random: Random,
    scopes: Weighted<usize>,
    lengths: Vec<[Weighted<u8>; 2]>,
    classes: Vec<Weighted<(u8, Ports, Ports)>>,
    dst_ports: Weighted<u16>,
    src_ports: Weighted<u16>,
    ranges: Weighted<(u16, u16)>,
    src: AddressPool,
    dst: AddressPool,
}

impl FiveTuple {
    pub(super) fn new(profile: Profile, seed: u64) -> Self {
        let tables = match profile {
            Profile::Fw => &FW,
            Profile::Ipc => &IPC,
            _ => &ACL,
        };
        let mut random = Random::for_purpose(seed, profile.name());
        let lengths = |lengths: Lengths| Weighted::new(lengths.iter().map(|&(l, w)| (l, f64::from(w))));
        let mut ports = |ports: &[(u16, u16)]| {
            let other = tables.other_ports as f64;
            let named = ports.iter().filter(|p| p.0 != 0).map(|&(port, w)| (port, f64::from(w)));
            let rest: u16 = ports.iter().filter(|p| p.0 == 0).map(|p| p.1).sum();
            let registered: Vec<_> = (0..tables.other_ports)
                .map(|_| (random.port(1024, 49151), f64::from(rest) / other))
                .collect();
            Weighted::new(named.chain(registered))
        };
        let (dst_ports, src_ports) = (ports(tables.dst_ports), ports(tables.src_ports));
        Self {
            random,
            scopes: Weighted::new(tables.scopes.iter().enumerate().map(|(i, s)| (i, s.weight))),
            lengths: tables.scopes.iter().map(|s| [lengths(s.src), lengths(s.dst)]).collect(),
            classes: tables
                .scopes
                .iter()
                .map(|s| Weighted::new(s.classes.iter().map(|&(p, src, dst, w)| ((p, src, dst), w.into()))))
                .collect(),
            dst_ports,
            src_ports,
            ranges: Weighted::new(tables.ranges.iter().map(|&(low, high, w)| ((low, high), w.into()))),
            src: AddressPool::new(tables.src),
            dst: AddressPool::new(tables.dst),
        }
    }

    /// A random protocol with ports, as rules of the profile have it: IPv4, any addresses.
    pub(super) fn service(&mut self) -> Match {
        let shape = Shape { src_len: 0, dst_len: 0, ..self.shape(0) };
        self.fill(&shape)
    }

    fn set_ports(&mut self, matches: &mut Match, field: Field, class: Ports) {
        let random = &mut self.random;
        let exact = if field == Field::TpSrc { &self.src_ports } else { &self.dst_ports };
        match class {
            Wc => {}
            Hi => {
                matches.set_range(field, 1024, 65535);
            }
            // A range that is a prefix is a mask of its own, and a shape must have one mask: widen it.
            Ar => {
                let (low, high) = self.ranges.draw(random).unwrap_or((1025, 65535));
                let size = u32::from(high - low) + 1;
                let prefix = size.is_power_of_two() && u32::from(low) % size == 0;
                matches.set_range(field, low, if prefix { high + 1 } else { high });
            }
            Em => {
                matches.set(field, exact.draw(random).unwrap_or(80).into());
            }
        }
    }
}

impl Draw for FiveTuple {
    type Shape = Shape;

    fn shape(&mut self, strain: u32) -> Shape {
        let random = &mut self.random;
        let scope = self.scopes.draw(random).unwrap_or(0);
        let [src, dst] = &self.lengths[scope];
        let (src_len, dst_len) = (src.draw(random).unwrap_or(32), dst.draw(random).unwrap_or(32));
        let (protocol, src_ports, dst_ports) = self.classes[scope].draw(random).unwrap_or((ANY, Wc, Wc));
        let mut stray = |len: u8| {
            let step = random.below(2 * u64::from(strain) + 1) as i64 - i64::from(strain);
            (i64::from(len) + step).clamp(0, 32) as u8
        };
        Shape { protocol, src_ports, dst_ports, src_len: stray(src_len), dst_len: stray(dst_len) }
    }

    fn fill(&mut self, shape: &Shape) -> Match {
        let mut out = Match::any();
        out.set(Field::EthType, 0x0800);
        if shape.protocol != ANY {
            out.set(Field::NwProto, shape.protocol.into());
        }
        for (field, len, pool) in
            [(Field::Ipv4Src, shape.src_len, &mut self.src), (Field::Ipv4Dst, shape.dst_len, &mut self.dst)]
        {
            let mask = prefix_mask(len);
            out.set_masked(field, (pool.draw(len, &mut self.random) & mask).into(), mask.into());
        }
        self.set_ports(&mut out, Field::TpSrc, shape.src_ports);
        self.set_ports(&mut out, Field::TpDst, shape.dst_ports);
        out
    }
}

/// The mask of an IPv4 prefix.
pub(super) fn prefix_mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

/// Prefixes that cluster as real ones do: in /24s, /16s and /8s in use, and often the very same.
struct AddressPool {
    model: Addresses,
    by_len: Vec<Vec<u32>>,
    /// /24s, /16s, /8s in use.
    blocks: [Vec<u32>; 3],
}

impl AddressPool {
    fn new(model: Addresses) -> Self {
        Self { model, by_len: vec![Vec::new(); 33], blocks: Default::default() }
    }

    fn draw(&mut self, len: u8, random: &mut Random) -> u32 {
        let used = &self.by_len[usize::from(len)];
        if len <= 8 {
            return random.bits() as u32;
        }
        if !used.is_empty() && random.chance(self.model.same) {
            let again = used[random.index(used.len())];
            if self.model.popular {
                self.by_len[usize::from(len)].push(again);
            }
            return again;
        }
        // Outward until a block in use takes it; from there inward, random bits.
        let mut address = random.bits() as u32;
        let mut fresh = 0;
        while fresh < 3 && (self.blocks[fresh].is_empty() || random.chance(self.model.new[fresh])) {
            fresh += 1;
        }
        let within = 24 - 8 * fresh as u8;
        if fresh < 3 {
            let blocks = &self.blocks[fresh];
            address = blocks[random.index(blocks.len())] | (address & !prefix_mask(within));
        } else {
            // Unicast: 1.0.0.0 to 223.255.255.255 but 127.0.0.0/8.
            let first = 1 + random.below(222) as u32;
            address = (address & 0x00ff_ffff) | ((if first >= 127 { first + 1 } else { first }) << 24);
        }
        address &= prefix_mask(len);
        for level in 0..fresh {
            let block_len = 24 - 8 * level as u8;
            if len >= block_len {
                self.blocks[level].push(address & prefix_mask(block_len));
            }
        }
        self.by_len[usize::from(len)].push(address);
        address
    }
}
