//! The routes of a table while the switch runs: those of the configuration, and those that come from elsewhere.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use flowlane::route::Prefix;
use flowlane::route::read::{self, AnyPrefix, NextHop, RouteOptions};
use flowlane::rule::ReadErrors;
use serde::{Deserialize, Serialize};

use super::connected::is_special;
use super::{RoutesSetup, text};
use crate::stage::route::{HopSpec, RouteTable, RouteTableError};

/// Where a route comes from. Of two routes for a prefix, the later one here is in force.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Origin {
    /// The addresses of the router's ports.
    Port,
    /// The system.
    Kernel,
    Configuration,
    /// The control socket.
    Socket,
}

/// A route in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteReport {
    pub prefix: String,
    pub next_hop: String,
    pub origin: Origin,
}

/// The routes of a table, by where they come from.
#[derive(Clone)]
pub struct LiveRoutes {
    /// Those of the configuration.
    base: RoutesSetup,
    kernel: BTreeMap<AnyPrefix, NextHop>,
    socket: BTreeMap<AnyPrefix, NextHop>,
}

/// Routes of both families to the positions of next hops.
type Positions = (Vec<(Prefix<u32>, usize)>, Vec<(Prefix<u128>, usize)>);

/// Next hops, and the routes to them.
struct Merged {
    hops: Vec<(String, HopSpec)>,
    v4: Vec<(Prefix<u32>, usize)>,
    v6: Vec<(Prefix<u128>, usize)>,
}

impl LiveRoutes {
    pub(in crate::mgmt::setup) fn of(base: RoutesSetup) -> Self {
        Self { base, kernel: BTreeMap::new(), socket: BTreeMap::new() }
    }

    /// The table's number.
    pub fn number(&self) -> u8 {
        self.base.number()
    }

    /// Returns whether next hops may be neighbours, so that routes of the system make sense.
    pub fn has_router(&self) -> bool {
        self.base.links.has_router()
    }

    /// Sets the routes of the system. Returns the number of those that do not lead through the router's ports, which are left out.
    pub fn set_kernel(&mut self, routes: impl IntoIterator<Item = (AnyPrefix, NextHop)>) -> usize {
        self.kernel.clear();
        let mut left_out = 0;
        let mut trial = self.base.clone();
        let mut known: HashMap<NextHop, bool> = HashMap::new();
        for (prefix, hop) in routes {
            // The system's own, as fe80::/64.
            if is_special(prefix) {
                continue;
            }
            let is_known =
                *known.entry(hop.clone()).or_insert_with_key(|hop| trial.position(0, Some(hop)).is_ok());
            if is_known {
                self.kernel.insert(prefix, hop);
            } else {
                left_out += 1;
            }
        }
        left_out
    }

    /// Adds routes, as `ip route` prints them. Returns their number.
    ///
    /// # Errors
    /// The errors of the text; nothing is added then.
    pub fn add(&mut self, text: &str, name: &str) -> Result<usize, ReadErrors> {
        let trial = RefCell::new(self.base.clone());
        self.add_tried(text, name, &trial)
    }

    /// Returns the routes that were added, each as `ip route` prints it.
    pub fn saved(&self) -> impl Iterator<Item = String> {
        self.socket.iter().map(|(prefix, hop)| text::of_route(*prefix, hop))
    }

    /// Adds routes that were [saved](Self::saved). Returns the number of those that fit: ports and next hops may be others.
    pub fn restore<'a>(&mut self, routes: impl Iterator<Item = &'a str>) -> usize {
        let declared = self.base.hops.len();
        let trial = RefCell::new(self.base.clone());
        let mut add = |text: &str| {
            let added = self.add_tried(text, "state", &trial).unwrap_or(0);
            trial.borrow_mut().hops.truncate(declared);
            added
        };
        routes.map(&mut add).sum()
    }

    /// Adds routes. `trial` gets their next hops.
    fn add_tried(
        &mut self,
        text: &str,
        name: &str,
        trial: &RefCell<RoutesSetup>,
    ) -> Result<usize, ReadErrors> {
        let hops = RefCell::new(BTreeMap::new());
        let check = |number: u64, hop: Option<&NextHop>| {
            let hop = hop.ok_or("write its next hop as `ip route` does: via ADDRESS, dev PORT")?;
            if !hops.borrow().contains_key(&number) {
                trial.borrow_mut().position(number, Some(hop))?;
                hops.borrow_mut().insert(number, hop.clone());
            }
            Ok(())
        };
        let routes_max = self.base.section.routes_max;
        let options = RouteOptions {
            routes_max,
            next_hop_absent: &|_| 0,
            check_next_hop: &check,
            ..RouteOptions::default()
        };
        let routes = read::read(text, name, None, &options)?;
        let hops = hops.into_inner();
        let v4 = routes.v4.iter().map(|(prefix, number)| (AnyPrefix::V4(*prefix), number));
        let v6 = routes.v6.iter().map(|(prefix, number)| (AnyPrefix::V6(*prefix), number));
        let mut added = 0;
        for (prefix, number) in v4.chain(v6).filter(|(prefix, _)| !is_special(*prefix)) {
            if let Some(hop) = hops.get(number) {
                self.socket.insert(prefix, hop.clone());
                added += 1;
            }
        }
        Ok(added)
    }

    /// Removes a route that was added. Returns whether there was one.
    pub fn remove(&mut self, prefix: AnyPrefix) -> bool {
        self.socket.remove(&prefix).is_some()
    }

    /// Builds the table with the routes as they are now, and the settings of another.
    ///
    /// # Errors
    /// Where they do not fit.
    pub fn build(&self, like: &RouteTable) -> Result<RouteTable, RouteTableError> {
        let Merged { hops, v4, v6 } = self.merged();
        like.with_routes(hops, &v4, &v6)
    }

    /// All routes, those in force last.
    fn merged(&self) -> Merged {
        let mut setup = self.base.clone();
        let kernel = positions(&mut setup, &self.kernel);
        let socket = positions(&mut setup, &self.socket);
        let RoutesSetup { hops, v4, v6, own_v4, own_v6, .. } = setup;
        let ((own4, configured4), (own6, configured6)) = (v4.split_at(own_v4), v6.split_at(own_v6));
        let v4 = [own4, &kernel.0, configured4, &socket.0].concat();
        let v6 = [own6, &kernel.1, configured6, &socket.1].concat();
        Merged { hops, v4, v6 }
    }

    /// Lists the routes in force, in order.
    pub fn list(&self) -> Vec<RouteReport> {
        let Merged { hops, v4, v6 } = self.merged();
        let kernel =
            |v6: bool| self.kernel.keys().filter(|prefix| matches!(prefix, AnyPrefix::V6(_)) == v6).count();
        let mut in_force: BTreeMap<AnyPrefix, (usize, Origin)> = BTreeMap::new();
        let origin = |n: usize, own: usize, kernel: usize, configured: usize| match n {
            n if n < own => Origin::Port,
            n if n < own + kernel => Origin::Kernel,
            n if n < kernel + configured => Origin::Configuration,
            _ => Origin::Socket,
        };
        let base = &self.base;
        for (n, (prefix, hop)) in v4.into_iter().enumerate() {
            let origin = origin(n, base.own_v4, kernel(false), base.v4.len());
            in_force.insert(AnyPrefix::V4(prefix), (hop, origin));
        }
        for (n, (prefix, hop)) in v6.into_iter().enumerate() {
            let origin = origin(n, base.own_v6, kernel(true), base.v6.len());
            in_force.insert(AnyPrefix::V6(prefix), (hop, origin));
        }
        let report = |(prefix, (hop, origin)): (AnyPrefix, (usize, Origin))| {
            let (prefix, next_hop) = (prefix.to_string(), hops[hop].0.clone());
            RouteReport { prefix, next_hop, origin }
        };
        in_force.into_iter().map(report).collect()
    }
}

/// The positions of routes' next hops, which are added to a table's.
fn positions(setup: &mut RoutesSetup, routes: &BTreeMap<AnyPrefix, NextHop>) -> Positions {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    // Many routes have few next hops.
    let mut known: HashMap<&NextHop, Option<usize>> = HashMap::new();
    for (prefix, hop) in routes {
        let position = *known.entry(hop).or_insert_with(|| setup.position(0, Some(hop)).ok());
        let Some(position) = position else { continue };
        match *prefix {
            AnyPrefix::V4(prefix) => v4.push((prefix, position)),
            AnyPrefix::V6(prefix) => v6.push((prefix, position)),
        }
    }
    (v4, v6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mgmt::setup::Setup;
    use flowlane::route::read::Gateway;

    const CONFIG: &str = "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"null\"\naddresses = [\"192.0.2.1/24\"]\n\
        [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\naddresses = [\"198.51.100.1/24\", \"2001:db8::1/64\"]\n\
        [router]\nroutes = [\"10.0.0.0/8 via 192.0.2.9\"]\n";

    fn live() -> (LiveRoutes, RouteTable) {
        let setup = Setup::parse(CONFIG).unwrap_or_else(|error| panic!("{error}"));
        let table = setup.routes[0].open(1, false, &setup.source).unwrap();
        (LiveRoutes::of(setup.routes[0].clone()), table)
    }

    fn of_kernel(prefix: &str, via: &str) -> (AnyPrefix, NextHop) {
        let (address, len) = prefix.split_once('/').unwrap();
        let prefix = AnyPrefix::truncated(address.parse().unwrap(), len.parse().unwrap());
        (prefix, NextHop::neighbour(via.parse().unwrap()))
    }

    /// The route to an address in the built table, and in the list.
    fn taken(routes: &LiveRoutes, table: &RouteTable, address: &str) -> Option<(String, Origin)> {
        let built = routes.build(table).unwrap();
        let (prefix, hop) = built.route_to(address.parse().unwrap())?;
        let listed = routes.list().into_iter().find(|route| route.prefix == prefix).unwrap();
        assert_eq!(listed.next_hop, hop, "{address}");
        Some((format!("{prefix} {hop}"), listed.origin))
    }

    #[test]
    fn later_origins_go_before_earlier_ones() {
        let (mut routes, table) = live();
        let at = |routes: &LiveRoutes| taken(routes, &table, "10.1.2.3");
        let hop = |last: u8, port: &str| {
            format!("10.0.0.0/8 {port}.{last} dev {}", if port.starts_with("192") { "lan" } else { "wan" })
        };
        assert_eq!(at(&routes), Some((hop(9, "192.0.2"), Origin::Configuration)));
        let kernel = [
            of_kernel("10.0.0.0/8", "198.51.100.7"),
            of_kernel("10.1.0.0/16", "198.51.100.7"),
            of_kernel("10.9.0.0/16", "203.0.113.1"),
        ];
        assert_eq!(routes.set_kernel(kernel), 1, "no port is near the last one");
        assert_eq!(at(&routes), Some(("10.1.0.0/16 198.51.100.7 dev wan".to_owned(), Origin::Kernel)));
        assert_eq!(taken(&routes, &table, "10.2.0.1"), Some((hop(9, "192.0.2"), Origin::Configuration)));
        routes
            .add(
                "10.0.0.0/8 via 198.51.100.8\ndefault via 192.0.2.7\n2001:db8:9::/48 via 2001:db8::7",
                "test",
            )
            .unwrap();
        assert_eq!(taken(&routes, &table, "10.2.0.1"), Some((hop(8, "198.51.100"), Origin::Socket)));
        assert_eq!(taken(&routes, &table, "2001:db8:9::1").unwrap().1, Origin::Socket);
        assert_eq!(
            taken(&routes, &table, "192.0.2.1"),
            Some(("192.0.2.1/32 local".to_owned(), Origin::Port))
        );
        assert_eq!(routes.set_kernel([]), 0);
        assert!(routes.remove(of_kernel("10.0.0.0/8", "192.0.2.1").0));
        assert!(!routes.remove(of_kernel("10.0.0.0/8", "192.0.2.1").0));
        assert_eq!(at(&routes), Some((hop(9, "192.0.2"), Origin::Configuration)));
    }

    #[test]
    fn routes_that_lead_nowhere_are_refused_whole() {
        let (mut routes, table) = live();
        for wrong in [
            "10.0.0.0/8 via 203.0.113.1",
            "10.0.0.0/8 via 192.0.2.9 dev dmz",
            "10.0.0.0/8 7",
            "10.0.0.0/8",
            "default via 192.0.2.7\n10.0.0.0/8 via 203.0.113.1",
            "2001:db8:9::/48 via fe80::1",
        ] {
            assert!(routes.add(wrong, "test").is_err(), "{wrong}");
        }
        assert!(routes.socket.is_empty());
        assert_eq!(taken(&routes, &table, "203.0.113.1"), None);
    }

    #[test]
    fn saved_routes_are_those_that_were_added() {
        let (mut routes, table) = live();
        let text = "default via 192.0.2.7\n10.0.0.0/8 via 198.51.100.8 dev wan\nblackhole 10.1.0.0/16\n\
            unreachable 10.2.0.0/16\nprohibit 10.3.0.0/16\nlocal 10.4.0.1\n10.5.0.0/16 dev lan\n\
            10.6.0.0/16\n\tnexthop via 192.0.2.8 dev lan weight 1\n\tnexthop via 198.51.100.9 dev wan weight 3\n\
            10.7.0.0/16 via inet6 2001:db8::8 dev wan\n2001:db8:9::/48 via fe80::7 dev wan\n\
            ::/0 via 2001:db8::7\nblackhole 2001:db8:a::/48";
        assert_eq!(routes.add(text, "test").unwrap(), 12);
        let saved: Vec<String> = routes.saved().collect();
        let (mut other, _) = live();
        assert_eq!(other.restore(saved.iter().map(|text| &**text)), 12, "{saved:#?}");
        assert_eq!(other.socket, routes.socket);
        let list = |routes: &LiveRoutes| format!("{:?}", routes.list());
        assert_eq!(list(&other), list(&routes));
        other.build(&table).unwrap();
        // Where a port has another name, its routes are left out.
        let config = CONFIG.replace("\"wan\"", "\"dmz\"");
        let setup = Setup::parse(&config).unwrap();
        let mut fewer = LiveRoutes::of(setup.routes[0].clone());
        assert_eq!(fewer.restore(saved.iter().map(|text| &**text)), 8, "{:?}", fewer.socket);
        assert_eq!(fewer.restore(["no route", ""].into_iter()), 0);
    }

    /// Counters of next hops that stay are kept, and a verdict of the former table does no harm in a smaller one.
    #[test]
    fn a_table_takes_the_place_of_another() {
        let (mut routes, table) = live();
        routes.add("default via 192.0.2.7", "test").unwrap();
        let mut before = routes.build(&table).unwrap();
        let position = before.next_hops().iter().position(|hop| hop.name == "192.0.2.9 dev lan").unwrap();
        before.count(position as u32 + 1, 100);
        routes.remove(AnyPrefix::truncated(std::net::IpAddr::from([0; 4]), 0));
        let mut after = routes.build(&before).unwrap();
        after.take_counters(&before);
        let hop = after.next_hops().iter().find(|hop| hop.name == "192.0.2.9 dev lan").unwrap();
        assert_eq!((hop.packets, hop.bytes), (1, 100));
        assert!(after.next_hops().len() < before.next_hops().len());
        after.steps(before.next_hops().len() as u32 + 2);
    }

    /// Groups of the system, and next hops behind a port by its name.
    #[test]
    fn groups_share_their_flows() {
        let (mut routes, table) = live();
        let member = |address: &str| {
            let (address, device) = (Some(address.parse().unwrap()), Some("wan".into()));
            (Gateway { address, device, encapsulation: None }, 1)
        };
        let group = NextHop::Group(vec![member("198.51.100.7"), member("198.51.100.8")]);
        assert_eq!(routes.set_kernel([(of_kernel("0.0.0.0/0", "192.0.2.1").0, group)]), 0);
        let (text, origin) = taken(&routes, &table, "203.0.113.1").unwrap();
        assert!(text.starts_with("0.0.0.0/0 ") && origin == Origin::Kernel, "{text}");
    }
}
