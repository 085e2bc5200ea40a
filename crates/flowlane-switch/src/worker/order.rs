//! Taking packets along their ways, as if each had come alone.
//!
//! What only the packet knows of (its own bytes, parsing it again, looking it up) is done for all lanes of a burst
//! together: [`ahead`](Worker::ahead). What others see (sending, meters, learning, what functions know) is done in the order
//! of the packets. So the result does not depend on how packets fall into bursts, and no packet overtakes another.
//!
//! Lanes that come to the same function one after the other, with nothing between them that others see, are worked on
//! together there, too ([`Company`]).

use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::Worker;
use super::egress::{Outcome, Packet};
use super::lookup::Lookup;
use super::validate::RunError;
use crate::function::Packets;
use crate::packet::recirculate::{parse_again, take_along};
use crate::pipeline::{PathId, Program};

/// Where a lane stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Before a path.
    Path(PathId),
    /// Before what a next hop says: the table of routes, which, and whether it leads on unseen.
    Hop(u8, u32, bool),
    /// Before what follows a verdict: the function, which, and whether it leads on unseen.
    Verdict(u8, u8, bool),
    /// Before a function.
    Function(u8),
    /// At the end, since its TTL has expired.
    Expired,
}

/// The ways of a burst's lanes.
pub(super) type Ways = [Way; LANES_MAX];

/// Ways that lead nowhere yet.
pub(super) const NOWHERE: Ways = [Way::Expired; LANES_MAX];

/// Where a lane has come.
enum Come {
    /// To its end.
    End,
    /// There, because of its TTL.
    Expired,
    /// To a table behind the caches.
    Behind(u8),
    /// Back to the caches: it has been parsed again.
    Again,
}

/// Lanes that wait before a function for those behind them.
#[derive(Clone, Copy, Default)]
struct Company {
    table: u8,
    lanes: LaneMask,
}

impl Lookup {
    /// What a lane does next; nothing where it stands before a function, or at its end.
    #[inline]
    fn program(&self, way: Way) -> Option<&Program> {
        match way {
            Way::Path(path) => Some(self.paths.program_of(path)),
            Way::Hop(table, hop, _) => self.pipeline.routes(table).map(|routes| routes.program(hop)),
            Way::Verdict(table, verdict, _) => {
                self.pipeline.function(table).and_then(|function| function.program(verdict))
            }
            Way::Function(_) | Way::Expired => None,
        }
    }

    /// Whether a lane goes on elsewhere without anybody's seeing it before.
    #[inline]
    fn leads_on_unseen(&self, way: Way) -> bool {
        match way {
            Way::Path(path) => self.paths.get(path).leads_on_unseen,
            Way::Hop(.., leads_on) | Way::Verdict(.., leads_on) => leads_on,
            Way::Function(_) | Way::Expired => false,
        }
    }
}

impl Worker {
    /// Takes lanes to the end of their ways.
    pub(super) fn advance(&mut self, port: usize, lanes: LaneMask, ways: &mut Ways) -> Result<(), RunError> {
        let lanes = self.ahead(port, lanes, ways)?;
        let mut company = Company::default();
        for lane in lanes.lanes() {
            let only = LaneMask(1 << lane);
            let mut way = ways[lane];
            if !company.lanes.is_empty() && self.is_seen(way) {
                self.enter(port, &mut company)?;
            }
            if !matches!(way, Way::Function(_) | Way::Expired) {
                way = match self.walk(port, lane, way)? {
                    Come::End => continue,
                    Come::Expired => Way::Expired,
                    Come::Behind(table) if self.lookup.pipeline.is_function(table) => Way::Function(table),
                    Come::Behind(table) => {
                        self.route(table, only, ways);
                        self.advance(port, only, ways)?;
                        continue;
                    }
                    Come::Again => {
                        self.look_up(port, only)?;
                        continue;
                    }
                };
            }
            match way {
                Way::Function(table) => {
                    if company.table != table {
                        self.enter(port, &mut company)?;
                    }
                    company.table = table;
                    company.lanes.0 |= only.0;
                }
                _ => {
                    self.enter(port, &mut company)?;
                    self.egress.expire(&self.burst.frames()[lane])?;
                }
            }
        }
        self.enter(port, &mut company)
    }

    /// Whether others see what a lane does before it comes to a function, if it does.
    #[inline]
    fn is_seen(&self, way: Way) -> bool {
        !matches!(way, Way::Function(_))
            && self.lookup.program(way).is_none_or(|program| !program.is_unseen())
    }

    /// Takes lanes on that lead elsewhere without anybody's seeing it, all together, until there are none; gives the lanes
    /// that go on here.
    fn ahead(&mut self, port: usize, mut lanes: LaneMask, ways: &mut Ways) -> Result<LaneMask, RunError> {
        loop {
            let (mut again, mut routed) = (LaneMask(0), LaneMask(0));
            let mut tables = [0; LANES_MAX];
            for lane in lanes.lanes() {
                if !self.lookup.leads_on_unseen(ways[lane]) {
                    continue;
                }
                match self.walk(port, lane, ways[lane])? {
                    Come::End => lanes.remove(lane),
                    Come::Expired => ways[lane] = Way::Expired,
                    Come::Again => again.0 |= 1 << lane,
                    Come::Behind(table) if self.lookup.pipeline.is_function(table) => {
                        ways[lane] = Way::Function(table);
                    }
                    Come::Behind(table) => {
                        routed.0 |= 1 << lane;
                        tables[lane] = table;
                    }
                }
            }
            if again.is_empty() && routed.is_empty() {
                return Ok(lanes);
            }
            let gone = again.0 & !self.find_ways(port, again, ways)?.0;
            lanes.0 &= !gone;
            while let Some(first) = routed.lanes().next() {
                let same = routed.lanes().filter(|&lane| tables[lane] == tables[first]);
                let these = same.fold(LaneMask(0), |these, lane| LaneMask(these.0 | 1 << lane));
                self.route(tables[first], these, ways);
                routed.0 &= !these.0;
            }
        }
    }

    /// Takes a lane along its way as far as it is known.
    #[inline]
    fn walk(&mut self, port: usize, lane: usize, way: Way) -> Result<Come, RunError> {
        let program = self.lookup.program(way).expect("it stands before something to be done");
        let mut packet = Packet {
            frame: &mut self.burst.frames_mut()[lane],
            headers: &mut self.headers[lane],
            key: &mut self.keys[lane],
            port,
            now_ns: self.times_ns[lane],
            sent: self.sent.0 >> lane & 1 == 1,
        };
        let bytes = packet.frame.len() as u64;
        let outcome = self.egress.run(program.steps(), &mut packet)?;
        self.sent.0 |= u64::from(packet.sent) << lane;
        let come = match outcome {
            Outcome::Stopped { at } | Outcome::Expired { at } => {
                let expired = matches!(outcome, Outcome::Expired { .. });
                if let Way::Path(path) = way {
                    self.lookup.credit_until(path, at, bytes);
                }
                return Ok(if expired { Come::Expired } else { Come::End });
            }
            Outcome::Done => Come::End,
            Outcome::Enter { table, carry } if self.lookup.pipeline.is_behind(table) => {
                take_along(carry, packet.key);
                Come::Behind(table)
            }
            Outcome::Enter { table, carry } | Outcome::Again { table, carry } => {
                let in_port = self.egress.ports.slots()[port].number.0;
                let was = packet.headers.malformed.is_some();
                parse_again(packet.frame, in_port, table, carry, packet.headers, packet.key);
                match self.egress.faults.admit(packet.headers, was) {
                    true => Come::Again,
                    false => Come::End,
                }
            }
        };
        if let Way::Path(path) = way {
            self.lookup.paths.count(path, bytes);
        }
        Ok(come)
    }

    /// Finds the next hops of lanes that have come to a table of routes.
    fn route(&mut self, table: u8, lanes: LaneMask, ways: &mut Ways) {
        let routes = self.lookup.pipeline.routes_mut(table).expect("a path leads to tables that are there");
        let found = routes.find(&self.keys, lanes);
        for lane in lanes.lanes() {
            let hop = routes.take(&found, lane, self.burst.frames()[lane].len() as u64);
            ways[lane] = Way::Hop(table, hop, routes.program(hop).leads_on_unseen());
        }
    }

    /// Lets a function work on the lanes that have come to it, and does what follows its verdicts.
    fn enter(&mut self, port: usize, company: &mut Company) -> Result<(), RunError> {
        let Company { table, lanes } = std::mem::take(company);
        if lanes.is_empty() {
            return Ok(());
        }
        let timer = self.stages.start();
        let function =
            self.lookup.pipeline.function_mut(table).expect("a path leads to tables that are there");
        let mut packets = Packets {
            frames: self.burst.frames_mut(),
            keys: &mut self.keys,
            headers: &self.headers,
            times_ns: &self.times_ns,
        };
        let verdicts = function.process(&mut packets, lanes);
        function.cycles += self.stages.start().since(timer);
        let (mut ways, mut left) = (NOWHERE, lanes);
        for lane in lanes.lanes() {
            match function.take(verdicts[lane], self.burst.frames()[lane].len() as u64) {
                Some(program) => {
                    ways[lane] = Way::Verdict(table, verdicts[lane], program.leads_on_unseen());
                }
                None => {
                    self.egress.drops.function_refused += 1;
                    left.remove(lane);
                }
            }
        }
        self.advance(port, left, &mut ways)
    }
}
