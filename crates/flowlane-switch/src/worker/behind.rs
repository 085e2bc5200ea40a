//! Tables behind the caches: routes and functions. The packets of a burst that have come to one are worked on together.

use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::Worker;
use super::egress::{Arrival, Outcome};
use super::validate::RunError;
use crate::function::Packets;
use crate::packet::recirculate::parse_again;

/// Lanes that have come to tables behind the caches.
pub(super) struct Behind {
    lanes: LaneMask,
    tables: [u8; LANES_MAX],
    /// Those that have been sent somewhere already.
    sent: LaneMask,
}

impl Default for Behind {
    fn default() -> Self {
        Self { lanes: LaneMask(0), tables: [0; LANES_MAX], sent: LaneMask(0) }
    }
}

impl Behind {
    pub(super) fn add(&mut self, lane: usize, table: u8, sent: bool) {
        let bit = 1 << lane;
        self.lanes.0 |= bit;
        self.sent.0 = self.sent.0 & !bit | u64::from(sent) << lane;
        self.tables[lane] = table;
    }

    /// The first table, and the lanes that have come to it: nearly always all. Since packets only go on to later tables,
    /// all that will come there have come.
    fn next(&mut self) -> Option<(u8, LaneMask)> {
        let table = self.lanes.lanes().map(|lane| self.tables[lane]).min()?;
        let mut these = LaneMask(0);
        for lane in self.lanes.lanes().filter(|&lane| self.tables[lane] == table) {
            these.0 |= 1 << lane;
        }
        self.lanes.0 &= !these.0;
        Some((table, these))
    }

    fn is_sent(&self, lane: usize) -> bool {
        self.sent.0 >> lane & 1 == 1
    }
}

impl Worker {
    /// Takes lanes through the tables behind the caches; returns those that are to be looked up again.
    #[inline]
    pub(super) fn behind_all(
        &mut self,
        port: usize,
        mut behind: Behind,
        now_ns: u64,
    ) -> Result<LaneMask, RunError> {
        let mut again = LaneMask(0);
        while let Some((table, lanes)) = behind.next() {
            let lanes = match self.lookup.pipeline.function_mut(table) {
                Some(_) => self.function_all(port, table, lanes, &mut behind, now_ns)?,
                None => self.route_all(port, table, lanes, &behind, now_ns)?,
            };
            again.0 |= lanes.0;
        }
        Ok(again)
    }

    /// Looks up the lanes that have come to a table of routes, and does what their next hops say; returns the lanes
    /// that are to be looked up again.
    fn route_all(
        &mut self,
        port: usize,
        table: u8,
        lanes: LaneMask,
        behind: &Behind,
        now_ns: u64,
    ) -> Result<LaneMask, RunError> {
        let mut again = LaneMask(0);
        let in_port = self.egress.ports.slots()[port].number;
        let routes = self.lookup.pipeline.routes_mut(table).expect("a path leads to tables that are there");
        let found = routes.find(&self.keys, lanes);
        for lane in lanes.lanes() {
            let frame = &mut self.burst.frames_mut()[lane];
            let headers = &mut self.headers[lane];
            let steps = routes.take(&found, lane, frame.len() as u64);
            let sent = behind.is_sent(lane);
            let arrival = Arrival { key: &self.keys[lane], port, now_ns, sent };
            let outcome = self.egress.run(steps, frame, headers, arrival)?;
            if let Outcome::Again { table, .. } | Outcome::Enter { table, .. } = outcome {
                parse_again(frame, in_port.0, table, &[], headers, &mut self.keys[lane]);
                again.0 |= 1 << lane;
            }
        }
        Ok(again)
    }

    /// Lets a function work on the lanes that have come to it, and does what follows its verdicts; returns the lanes that
    /// are to be looked up again. Those that go on behind the caches are added to `behind`.
    fn function_all(
        &mut self,
        port: usize,
        table: u8,
        lanes: LaneMask,
        behind: &mut Behind,
        now_ns: u64,
    ) -> Result<LaneMask, RunError> {
        let timer = self.stages.start();
        let function = self.lookup.pipeline.function_mut(table).expect("the caller has looked");
        let mut packets =
            Packets { frames: self.burst.frames_mut(), keys: &mut self.keys, headers: &self.headers };
        let verdicts = function.process(&mut packets, lanes, now_ns);
        function.cycles += self.stages.start().since(timer);
        let (mut entering, mut again) = (Behind::default(), LaneMask(0));
        for lane in lanes.lanes() {
            let frame = &mut self.burst.frames_mut()[lane];
            let Some(verdict) = function.take(verdicts[lane], frame.len() as u64) else {
                self.egress.drops.function_refused += 1;
                continue;
            };
            let arrival = Arrival { key: &self.keys[lane], port, now_ns, sent: behind.is_sent(lane) };
            match self.egress.run(verdict.steps(), frame, &mut self.headers[lane], arrival)? {
                Outcome::Enter { table, sent, .. } => entering.add(lane, table, sent),
                Outcome::Again { table, .. } => {
                    again.0 |= 1 << lane;
                    entering.tables[lane] = table;
                }
                Outcome::Done | Outcome::Stopped { .. } => {}
            }
        }
        while let Some((table, lanes)) = entering.next() {
            if self.lookup.pipeline.is_behind(table) {
                lanes.lanes().for_each(|lane| behind.add(lane, table, entering.is_sent(lane)));
            } else {
                again.0 |= lanes.0;
            }
        }
        let in_port = self.egress.ports.slots()[port].number.0;
        for lane in again.lanes() {
            let (frame, headers) = (&self.burst.frames()[lane], &mut self.headers[lane]);
            parse_again(frame, in_port, entering.tables[lane], &[], headers, &mut self.keys[lane]);
        }
        Ok(again)
    }
}
