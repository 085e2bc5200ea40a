//! Tables of routes: the longest prefix of the destination says what happens.

use flowlane::packet::Field;
use flowlane::rule::Action;

use super::reading::Reading;
use super::writing;

/// A prefix of destinations, and the index of the actions for their packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) v6: bool,
    pub(crate) address: u128,
    pub(crate) len: u32,
    pub(crate) hop: usize,
}

/// A table of routes.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// Packets without a route go to the controller; else they are dropped.
    pub(crate) to_controller: bool,
    pub(crate) routes: Vec<Route>,
    /// The actions of each next hop.
    pub(crate) hops: Vec<Vec<Action>>,
}

impl Routes {
    /// The next hop of a packet.
    pub(super) fn hop(&self, frame: &[u8], reading: &Reading) -> Option<usize> {
        let v6 = reading.ip?.v6;
        let (field, width) = if v6 { (Field::Ipv6Dst, 128) } else { (Field::Ipv4Dst, 32) };
        let destination = writing::get(frame, reading, field)?;
        let covers = |route: &&Route| {
            route.v6 == v6 && (route.len == 0 || (route.address ^ destination) >> (width - route.len) == 0)
        };
        self.routes.iter().filter(covers).max_by_key(|route| route.len).map(|route| route.hop)
    }
}
