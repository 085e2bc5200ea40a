//! Packets that are looked up in a user's rules, behind a flow cache if there is one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::flow_cache::FlowCache;
use super::{Packet, Source};
use crate::machine::cache::Line;
use crate::machine::op::Mismatch;
use crate::workload::rules::{Own, Workload};

/// The progress of a program, shared with its caller and with programs that end with it.
#[derive(Default)]
pub(crate) struct Progress {
    /// Whether the program has ended.
    pub(crate) ended: Cell<bool>,
    /// Packets that the flow cache knew.
    pub(crate) known: Cell<u64>,
}

/// The packets of a workload, round after round.
pub(crate) struct RulePackets {
    pub(crate) workload: Arc<Workload>,
    pub(crate) own: Own,
    pub(crate) cache: Option<FlowCache>,
    pub(crate) next: usize,
    pub(crate) progress: Rc<Progress>,
}

impl Source for RulePackets {
    fn packet(&mut self, all: bool) -> Result<Packet, Mismatch> {
        let (number, at) = (self.next as u64, self.next % self.workload.packets.len());
        self.next += 1;
        let (key, expected) = (&self.workload.packets[at], self.workload.expected[at]);
        let place = self.own.key(number);
        let cached = self.cache.as_mut().map(|cache| cache.ask(key, number, place, expected)).transpose()?;
        let known = cached.as_ref().is_some_and(|c| c.known);
        self.progress.known.update(|n| n + u64::from(known));
        let tables = match known {
            true => Vec::new(),
            false => self.workload.tables.search(key, (number, place), expected, all)?.tables,
        };
        Ok(Packet { key: place.line(0), cached, tables })
    }

    fn tables(&self) -> usize {
        self.workload.tables.len()
    }

    fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    fn branches(&self) -> bool {
        true
    }

    fn lines(&self) -> (&[Line], &[Line]) {
        (&self.own.stack, &self.own.results)
    }

    fn end(&mut self) {
        self.progress.ended.set(true);
    }
}
