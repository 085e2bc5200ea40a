//! Next hops and their numbers.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Where to send a packet: to a neighbour, out of a device, or to a neighbour behind a device; and in what.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Gateway {
    /// The neighbour's address; none where the destination itself is the neighbour.
    pub address: Option<IpAddr>,
    /// The device's name.
    pub device: Option<Box<str>>,
    /// The encapsulation, as `ip route` prints it behind `encap`: `mpls 100`.
    pub encapsulation: Option<Box<str>>,
}

/// The meaning of a next hop's number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NextHop {
    /// One path.
    Via(Gateway),
    /// Several, with their weights: see [`ecmp`](crate::route::ecmp).
    Group(Vec<(Gateway, u32)>),
    /// A nexthop object of Linux, whose paths the text does not have.
    Object(u32),
    /// The machine itself.
    Local,
    /// Dropped, silently.
    Blackhole,
    /// Dropped, with the message that the destination cannot be reached.
    Unreachable,
    /// Dropped, with the message that it is forbidden.
    Prohibit,
    /// As if there were no route here: the next table is asked.
    Throw,
}

impl NextHop {
    /// Returns the neighbour with this address.
    pub fn neighbour(address: IpAddr) -> Self {
        Self::Via(Gateway { address: Some(address), ..Gateway::default() })
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        if let Some(address) = &self.address {
            write!(f, "{address}")?;
            space = " ";
        }
        if let Some(device) = &self.device {
            write!(f, "{space}dev {device}")?;
            space = " ";
        }
        match &self.encapsulation {
            Some(encapsulation) => write!(f, "{space}encap {encapsulation}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Via(gateway) => gateway.fmt(f),
            Self::Group(members) => {
                f.write_str("group of ")?;
                members.iter().enumerate().try_for_each(|(i, (gateway, weight))| {
                    write!(f, "{}{gateway} weight {weight}", if i == 0 { "" } else { ", " })
                })
            }
            Self::Object(id) => write!(f, "nhid {id}"),
            Self::Local => f.write_str("local"),
            Self::Blackhole => f.write_str("blackhole"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Prohibit => f.write_str("prohibit"),
            Self::Throw => f.write_str("throw"),
        }
    }
}

/// Numbers for next hops: from 1 on, in the order in which they were met. 0 is left for no route.
#[derive(Clone, Default, Debug)]
pub struct NextHops {
    known: Vec<NextHop>,
    numbers: HashMap<NextHop, u64>,
}

impl NextHops {
    /// Returns the number of a next hop, a new one where it has none yet.
    pub fn number(&mut self, next_hop: NextHop) -> u64 {
        if let Some(&number) = self.numbers.get(&next_hop) {
            return number;
        }
        self.known.push(next_hop.clone());
        let number = self.known.len() as u64;
        self.numbers.insert(next_hop, number);
        number
    }

    /// Returns the meaning of a number; none where it is not one of these.
    pub fn get(&self, number: u64) -> Option<&NextHop> {
        self.known.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Returns all of them with their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &NextHop)> {
        (1..).zip(&self.known)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns whether there are none: next hops are numbers of the file's own.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
