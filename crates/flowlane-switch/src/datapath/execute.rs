//! Taking packets along their ways, as if each had come alone.
//!
//! What only the packet knows of (its own bytes, parsing it again, looking it up, its route) is done for all lanes of a burst
//! together: [`ahead`](Worker::ahead). What others see (sending, meters, learning) is done in the order of the packets.
//! Functions see a burst's packets in their order, too, each function all that come to it together: packets only go on to
//! later tables, so that all that will come to the first of the tables where some stand have come. Only a packet that is seen
//! before it goes on keeps those behind it waiting.
//!
//! So the result does not depend on how packets fall into bursts, and no packet overtakes another.

use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::rule::RuleId;

use super::Worker;
use super::egress::{Outcome, Packet};
use super::handoff::Entrance;
use super::lookup::Lookup;
use super::stages::Stage;
use super::validate::RunError;
use crate::datapath::{PathId, Pipeline};
use crate::packet::recirculate::{parse_again, take_along};
use crate::packet::{Burst, Handover};
use crate::ruleset::{SideEffects, StepSummary, Steps};
use crate::stage::{StageCall, StageTable};

/// Where a lane stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Before a path.
    Path(PathId),
    /// Before what a rule says, or a table to packets that match none: the table, and which.
    Rule(u8, Option<RuleId>, StepSummary),
    /// In a table that is not there.
    Nowhere,
    /// Before the actions of a verdict: the stage, and the verdict.
    Verdict(u8, u32, StepSummary),
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
    /// To a table, as it is.
    Behind(u8),
    /// Back to the caches: it has been parsed again.
    Again,
}

/// Lanes, by what comes next.
#[derive(Clone, Copy, Default)]
struct Standing {
    lanes: LaneMask,
    /// Before a function.
    functions: LaneMask,
    /// Before something that others see, from where they go on.
    held: LaneMask,
}

impl Lookup {
    /// What a lane does next. (Ways are read where they lie: copied in one piece, what was written in two would be waited for.)
    #[inline]
    fn steps(&self, way: &Way) -> &Steps {
        match *way {
            Way::Path(path) => self.paths.steps_without_marks(path),
            Way::Rule(table, rule, _) => {
                self.pipeline.ruleset().table(table).expect("a lane has come there").steps(rule)
            }
            Way::Nowhere => &self.nothing,
            Way::Verdict(table, verdict, _) => {
                self.pipeline.stage(table).expect("a lane has come there").steps(verdict)
            }
            Way::Function(_) | Way::Expired => unreachable!("these are no steps"),
        }
    }

    /// What a lane's next steps come to; nothing where it stands before a function.
    #[inline]
    fn gist(&self, way: &Way) -> Option<StepSummary> {
        match *way {
            Way::Path(path) => Some(self.paths.get(path).gist),
            Way::Rule(.., gist) | Way::Verdict(.., gist) => Some(gist),
            Way::Nowhere => Some(StepSummary::default()),
            Way::Expired => Some(StepSummary::Several(SideEffects::Terminal)),
            Way::Function(_) => None,
        }
    }

    /// Whether a lane enters a table as it is. One of rules is entered so from tables; from elsewhere caches are asked before.
    #[inline]
    fn enters(&self, way: &Way, table: u8) -> bool {
        self.tables_first || matches!(way, Way::Rule(..)) || self.pipeline.is_post_cache(table)
    }

    /// Counts a packet that has come to the end of a path.
    #[inline]
    fn count(&mut self, way: &Way, bytes: u64) {
        if let Way::Path(path) = *way {
            self.paths.count(path, bytes);
        }
    }
}

impl Worker {
    /// Takes lanes to the end of their ways.
    #[inline]
    pub(super) fn advance(
        &mut self,
        burst: &mut Burst,
        mut lanes: LaneMask,
        ways: &mut Ways,
    ) -> Result<(), RunError> {
        self.forward(burst, &mut lanes, ways)?;
        while !lanes.is_empty() {
            let standing = self.ahead(burst, lanes, ways)?;
            lanes = standing.lanes;
            self.forward(burst, &mut lanes, ways)?;
            // Those up to the first that is seen and then goes on: it may come to any function.
            let first_held = LaneMask(standing.held.0 & standing.held.0.wrapping_neg());
            let free = LaneMask(lanes.0 & first_held.0.wrapping_sub(1));
            let functions = LaneMask(standing.functions.0 & free.0);
            if !functions.is_empty() {
                lanes = self.enter(burst, lanes, functions, ways);
                continue;
            }
            for lane in LaneMask(free.0 | first_held.0).lanes() {
                if !self.tell(burst, lane, ways)? {
                    lanes.remove(lane);
                }
            }
        }
        Ok(())
    }

    /// Sends the packets in front of all others that are only to be sent, and drops those that are only to be dropped.
    #[inline]
    fn forward(&mut self, burst: &Burst, lanes: &mut LaneMask, ways: &Ways) -> Result<(), RunError> {
        for lane in lanes.lanes() {
            let frame = &burst.frames[lane];
            match self.lookup.gist(&ways[lane]) {
                Some(StepSummary::Output(to)) => self.egress.output(to, burst.port, frame)?,
                Some(StepSummary::Nothing) => {
                    self.egress.drops.by_rule += u64::from(burst.sent.0 >> lane & 1 == 0)
                }
                _ => break,
            }
            self.lookup.count(&ways[lane], frame.counted.into());
            lanes.remove(lane);
        }
        Ok(())
    }

    /// Takes a lane's next steps, which others see. Says whether it goes on.
    #[inline]
    fn tell(&mut self, burst: &mut Burst, lane: usize, ways: &mut Ways) -> Result<bool, RunError> {
        let come = match ways[lane] {
            Way::Expired => Come::Expired,
            way => self.walk(burst, lane, &way)?,
        };
        let only = LaneMask(1 << lane);
        match come {
            Come::End => return Ok(false),
            Come::Expired => {
                self.egress.expire(&burst.frames[lane])?;
                return Ok(false);
            }
            Come::Again => return Ok(!self.find_ways(burst, only, ways)?.is_empty()),
            Come::Behind(table) => self.come_to(burst, table, only, ways),
        }
        Ok(true)
    }

    /// Takes lanes on whose next steps nobody sees, all together, until there are none; says where the others stand.
    #[inline]
    fn ahead(&mut self, burst: &mut Burst, lanes: LaneMask, ways: &mut Ways) -> Result<Standing, RunError> {
        let mut standing = Standing { lanes, ..Standing::default() };
        let mut moved = lanes;
        while !moved.is_empty() {
            let mut unseen = LaneMask(0);
            for lane in moved.lanes() {
                match self.lookup.gist(&ways[lane]).map(StepSummary::seen) {
                    Some(SideEffects::Terminal) => {}
                    Some(SideEffects::None) => unseen.0 |= 1 << lane,
                    Some(SideEffects::ThenContinues) => standing.held.0 |= 1 << lane,
                    None => standing.functions.0 |= 1 << lane,
                }
            }
            if unseen.is_empty() {
                break;
            }
            let gone = unseen.0 & !self.ahead_once(burst, unseen, ways)?.0;
            standing.lanes.0 &= !gone;
            moved = LaneMask(unseen.0 & !gone);
        }
        Ok(standing)
    }

    /// Takes the next steps of lanes, which nobody sees; gives those that go on.
    fn ahead_once(
        &mut self,
        burst: &mut Burst,
        lanes: LaneMask,
        ways: &mut Ways,
    ) -> Result<LaneMask, RunError> {
        let (mut left, mut again, mut behind) = (lanes, LaneMask(0), LaneMask(0));
        let mut tables = [0; LANES_MAX];
        for lane in lanes.lanes() {
            let come = match self.lookup.gist(&ways[lane]) {
                Some(StepSummary::Enter(table)) if self.lookup.enters(&ways[lane], table) => {
                    self.lookup.count(&ways[lane], burst.frames[lane].counted.into());
                    Come::Behind(table)
                }
                _ => self.walk(burst, lane, &ways[lane])?,
            };
            match come {
                Come::End => left.remove(lane),
                Come::Expired => ways[lane] = Way::Expired,
                Come::Again => again.0 |= 1 << lane,
                Come::Behind(table) => {
                    behind.0 |= 1 << lane;
                    tables[lane] = table;
                }
            }
        }
        left.0 &= !again.0 | self.find_ways(burst, again, ways)?.0;
        self.come_to_all(burst, &tables, behind, ways);
        Ok(left)
    }

    /// Takes a lane along its way as far as it is known.
    #[inline]
    fn walk(&mut self, burst: &mut Burst, lane: usize, way: &Way) -> Result<Come, RunError> {
        let steps = self.lookup.steps(way);
        let mut packet = Packet {
            frame: &mut burst.frames[lane],
            headers: &mut burst.headers[lane],
            key: &mut burst.keys[lane],
            port: burst.port,
            now_ns: burst.times_ns[lane],
            sent: burst.sent.0 >> lane & 1 == 1,
        };
        let bytes = packet.frame.counted.into();
        let outcome = self.egress.run(steps.steps(), &mut packet)?;
        burst.sent.0 |= u64::from(packet.sent) << lane;
        let come = match outcome {
            Outcome::Stopped { at } | Outcome::Expired { at } => {
                let expired = matches!(outcome, Outcome::Expired { .. });
                if let Way::Path(path) = *way {
                    self.lookup.credit_until(path, at, bytes);
                }
                return Ok(if expired { Come::Expired } else { Come::End });
            }
            Outcome::Done => Come::End,
            Outcome::Enter { table, carry } if self.lookup.enters(way, table) => {
                take_along(carry, packet.key);
                Come::Behind(table)
            }
            Outcome::Enter { table, carry } | Outcome::Again { table, carry } => {
                let in_port = self.egress.ports.slots()[burst.port].number.0;
                let was = packet.headers.malformed.is_some();
                parse_again(packet.frame, in_port, table, carry, packet.headers, packet.key);
                match self.egress.faults.admit(packet.headers, was) {
                    true => Come::Again,
                    false => Come::End,
                }
            }
        };
        self.lookup.count(way, bytes);
        Ok(come)
    }

    /// Lanes that no cache knows go through the tables.
    pub(super) fn enter_tables(&mut self, burst: &mut Burst, lanes: LaneMask, ways: &mut Ways) {
        let mut tables = [0; LANES_MAX];
        lanes.lanes().for_each(|lane| tables[lane] = Pipeline::entry(&burst.keys[lane]));
        self.come_to_all(burst, &tables, lanes, ways);
    }

    /// Lanes have come to a table each: those of one table together.
    #[inline]
    fn come_to_all(
        &mut self,
        burst: &mut Burst,
        tables: &[u8; LANES_MAX],
        mut lanes: LaneMask,
        ways: &mut Ways,
    ) {
        while let Some(first) = lanes.lanes().next() {
            let same = lanes.lanes().filter(|&lane| tables[lane] == tables[first]);
            let these = same.fold(LaneMask(0), |these, lane| LaneMask(these.0 | 1 << lane));
            self.come_to(burst, tables[first], these, ways);
            lanes.0 &= !these.0;
        }
    }

    /// Lanes have come to a table: finds their rules or next hops.
    fn come_to(&mut self, burst: &mut Burst, number: u8, lanes: LaneMask, ways: &mut Ways) {
        let pipeline = &mut self.lookup.pipeline;
        if pipeline.ordered_stages().has(number) {
            lanes.lanes().for_each(|lane| ways[lane] = Way::Function(number));
        } else if let Some(stage) = pipeline.stage_mut(number) {
            let verdicts = stage.process(StageCall::of(number, burst), burst, lanes);
            for lane in lanes.lanes() {
                let verdict = verdicts[lane];
                let steps = stage.count(verdict, burst.frames[lane].len() as u64);
                let gist = steps.map_or_else(StepSummary::default, Steps::gist);
                ways[lane] = Way::Verdict(number, verdict, gist);
            }
        } else if let Some((table, counters)) = pipeline.entered(number) {
            let timer = self.stages.start();
            let mut hits = [None; LANES_MAX];
            pipeline.find(number, &burst.keys, lanes, &mut hits);
            for lane in lanes.lanes() {
                let rule = hits[lane].map(|hit| hit.rule);
                counters.count(rule, 1, burst.frames[lane].counted.into());
                ways[lane] = Way::Rule(number, rule, table.gist(rule));
            }
            self.stages.stop(Stage::Tables, lanes.len() as u64, timer);
        } else {
            lanes.lanes().for_each(|lane| ways[lane] = Way::Nowhere);
        }
    }

    /// Whether packets that have come to a function may be for other workers.
    fn is_to_ask_for_owners(&self, burst: &Burst, table: u8) -> bool {
        // Who has given them has asked; what two workers do one after the other the first of them asks for, too.
        let function = self.lookup.pipeline.stage(table);
        self.links.is_some()
            && (burst.handover == Handover::No || function.is_some_and(StageTable::has_halves))
    }

    /// Of lanes that have come to a function, hands those over that other workers' shares of it are for. Gives the lanes that
    /// have gone.
    fn hand_over(&mut self, burst: &mut Burst, table: u8, lanes: LaneMask) -> LaneMask {
        let (Some(links), Some(function)) = (&mut self.links, self.lookup.pipeline.stage_mut(table)) else {
            return LaneMask(0);
        };
        let owners = function.owners(burst, lanes);
        for lane in owners.elsewhere.lanes() {
            if owners.rejected.0 >> lane & 1 == 1 {
                self.egress.drops.function_refused += 1;
                function.packets += 1;
                continue;
            }
            let is_half = owners.split.0 >> lane & 1 == 1;
            let entrance = if is_half { Entrance::OtherHalf(table) } else { Entrance::Function(table) };
            links.hand(owners.worker[lane].into(), burst, lane, entrance);
            self.handed += 1;
        }
        owners.elsewhere
    }

    /// Of lanes that have come to functions, lets the first function work on those that have come to it; gives `lanes`
    /// without those that it refuses.
    fn enter(&mut self, burst: &mut Burst, mut lanes: LaneMask, come: LaneMask, ways: &mut Ways) -> LaneMask {
        let timer = self.stages.start();
        let table_of = |lane: usize| match ways[lane] {
            Way::Function(table) => table,
            _ => unreachable!("it has come to a function"),
        };
        let table = come.lanes().map(table_of).min().expect("some have come");
        let these = come.lanes().filter(|&lane| table_of(lane) == table);
        let mut these = these.fold(LaneMask(0), |these, lane| LaneMask(these.0 | 1 << lane));
        if self.is_to_ask_for_owners(burst, table) {
            let handed = self.hand_over(burst, table, these);
            (lanes.0, these.0) = (lanes.0 & !handed.0, these.0 & !handed.0);
        }
        let functions = self.lookup.pipeline.ordered_stages();
        let function = self.lookup.pipeline.stage_mut(table).expect("a path leads to tables that are there");
        let verdicts = function.process(StageCall::of(table, burst), burst, these);
        burst.handover = Handover::No;
        function.cycles += self.stages.start().since(timer);
        for lane in these.lanes() {
            let bytes = burst.frames[lane].len() as u64;
            let Some(steps) = function.count(verdicts[lane], bytes) else {
                self.egress.drops.function_refused += 1;
                lanes.remove(lane);
                continue;
            };
            ways[lane] = match steps.gist() {
                StepSummary::Enter(next) if functions.has(next) => Way::Function(next),
                gist => Way::Verdict(table, verdicts[lane], gist),
            };
        }
        lanes
    }
}
