//! A cache of flows in front of the tables: exact matches of all words on which rules match, first in first out.
//!
//! It is a real table that changes with the packets; a flow inserted by one packet of a batch is known to the next
//! packet of that batch.

use std::collections::VecDeque;

use flowlane::packet::key::FlowKey;

use super::Cached;
use crate::machine::Machine;
use crate::machine::op::{Class, Kind, Mismatch, Op};
use crate::machine::space::{Region, Space};
use crate::workload::rules::{Exact, MaskWord, exact};
use crate::workload::{Recorder, TablePlace};

/// Instructions of an insertion and the preceding removal, apart from stores: those of a lookup, and as many for the
/// changed slots.
const INSERTION: u32 = 150;

/// The value for packets without a rule.
const NONE: u32 = u32::MAX;

pub(crate) struct FlowCache {
    exact: Box<dyn Exact>,
    place: TablePlace,
    mask: Vec<MaskWord>,
    /// Flows in the order of insertion.
    order: VecDeque<Vec<u32>>,
    entries: usize,
}

impl FlowCache {
    /// Creates an empty cache of `entries` flows, keyed by these words of packets.
    pub(crate) fn new(words: &[u8], entries: usize, space: &mut Space, seed: u64) -> Self {
        let exact = exact(words.len(), entries, (seed >> 7) as u32);
        let mask = words.iter().map(|word| (*word, u32::MAX)).collect();
        Self { place: exact.place(space), exact, mask, order: VecDeque::new(), entries }
    }

    /// Inserts the cache's table into the shared cache.
    pub(crate) fn warm(&self, machine: &mut Machine) {
        let parts = [self.place.buckets, self.place.entries, self.place.header];
        machine.fill_llc(parts.into_iter().flat_map(|part| part.lines()));
    }

    /// Inserts the flows of packets that precede the simulation, without taking time.
    pub(crate) fn precede<'a>(&mut self, packets: impl Iterator<Item = (&'a FlowKey, Option<u32>)>) {
        for (key, expected) in packets {
            if self.exact.find(&self.mask, key).is_none() {
                self.add(self.words(key), expected);
            }
        }
    }

    fn words(&self, key: &FlowKey) -> Vec<u32> {
        self.mask.iter().map(|(word, _)| key.word(usize::from(*word))).collect()
    }

    /// Inserts an absent flow; the oldest is evicted.
    fn add(&mut self, words: Vec<u32>, expected: Option<u32>) {
        if self.order.len() >= self.entries
            && let Some(oldest) = self.order.pop_front()
        {
            self.exact.remove(&oldest);
        }
        self.exact.insert(&words, expected.unwrap_or(NONE));
        self.order.push_back(words);
    }

    /// Looks up a packet, and inserts it if it is unknown.
    pub(crate) fn ask(
        &mut self,
        key: &FlowKey,
        number: u64,
        at: Region,
        expected: Option<u32>,
    ) -> Result<Cached, Mismatch> {
        let words = self.words(key);
        let mut recorder = Recorder::new(&self.place, at);
        let (hash, simulated, library) = self.exact.recorded(&words, &mut recorder);
        let right = Some(expected.unwrap_or(NONE));
        let wrong = simulated.is_some() && simulated != right;
        if simulated != library || wrong {
            let library = if simulated == library { right } else { library };
            return Err(Mismatch { lookup: number, table: "the flow cache".into(), simulated, library });
        }
        let lookup = recorder.lookup(hash, simulated, library);
        if simulated.is_some() {
            return Ok(Cached { lookup, known: true, insertion: Vec::new() });
        }
        self.add(words, expected);
        let mut insertion = vec![Op::work(INSERTION, Class::Compute)];
        insertion
            .extend(lookup.walk.lines.first().map(|(line, _)| Op::new(Kind::Store(*line), Class::Compute)));
        let entry = self.place.entries.line(u64::from(hash) * 64 % self.place.entries.bytes());
        insertion.push(Op::new(Kind::Store(entry), Class::Compute));
        Ok(Cached { lookup, known: false, insertion })
    }
}
