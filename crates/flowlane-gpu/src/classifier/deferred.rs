//! Asynchronous batches: gathered, sent, and received in order.
//!
//! ```text
//! gather ─ the flow key, and its words for the device ──────────────┐
//! send ─ current rules ─┬─ the device has them ─────────────────────┴─► a slot of the session ─► receive
//!                       └─ the device lacks them, or has failed: the list answers at once ─────► receive
//! ```
//!
//! Keys are kept until their batch is received, 320 bytes each, so that the list can answer if the device fails.
//! Memory for all batches in flight is allocated once.

use std::collections::VecDeque;
use std::error::Error;

use flowlane::classify::{AsyncEngine, Hit, RuleEngine};
use flowlane::packet::{FlowKey, FlowMask};

use super::projected::FlowTable;
use super::{GpuSearch, locked};

/// The queue of batches sent to a device.
#[derive(Debug, Default)]
pub(super) struct Queue {
    gathered: Vec<FlowKey>,
    under_way: VecDeque<Sent>,
    /// Buffers of received batches, for reuse.
    spare: Vec<Sent>,
    /// Positions in the batch for which the device has no answer.
    unanswered: Vec<u32>,
}

/// A batch in flight.
#[derive(Debug, Default)]
struct Sent {
    keys: Vec<FlowKey>,
    /// Positions of the keys that were sent to the device.
    places: Vec<u32>,
    /// Answers that were available when the batch was sent, and their epoch.
    hits: Vec<Option<Hit>>,
    answered: Option<u64>,
}

impl AsyncEngine for GpuSearch {
    fn prepare(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.publish(&[])?)
    }

    fn trouble(&self) -> Option<String> {
        // A refused table is not an error while the previous table still answers.
        let refusal = || self.refusal().filter(|_| self.method().is_none());
        self.failure().or_else(refusal).map(|error| error.to_string())
    }

    fn looks_at(&self) -> &FlowMask {
        &self.looks_at
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn batch_max(&self) -> usize {
        self.config.session.batch_max.max(1)
    }

    fn gathered(&self) -> usize {
        self.queue.gathered.len()
    }

    fn gather(&mut self, key: &FlowKey) {
        assert!(self.queue.gathered.len() < self.batch_max(), "a batch of {} is full", self.batch_max());
        self.queue.gathered.push(key.clone());
        if let Some(table) = self.on_device_mut().table() {
            table.gather(key);
        }
    }

    fn send(&mut self) -> bool {
        if self.queue.gathered.is_empty() || self.queue.under_way.len() >= self.config.session.slots.max(1) {
            return false;
        }
        let mut sent = self.queue.spare.pop().unwrap_or_default();
        std::mem::swap(&mut sent.keys, &mut self.queue.gathered);
        self.queue.gathered.clear();
        sent.places.clear();
        sent.answered = match self.send_to_device(&sent.keys, &mut sent.places) {
            true if sent.places.is_empty() => {
                sent.hits.clear();
                sent.hits.resize(sent.keys.len(), None);
                Some(self.epoch)
            }
            true => None,
            false => Some(self.answer(&sent.keys, &mut sent.hits)),
        };
        self.queue.under_way.push_back(sent);
        true
    }

    fn under_way(&self) -> usize {
        self.queue.under_way.len()
    }

    fn receive(&mut self, wait: bool, hits: &mut Vec<Option<Hit>>) -> Option<u64> {
        let answered = self.queue.under_way.front()?.answered;
        if !wait && answered.is_none() && !self.on_device_mut().is_ready() {
            return None;
        }
        let mut sent = self.queue.under_way.pop_front()?;
        let epoch = match answered {
            Some(epoch) => {
                std::mem::swap(hits, &mut sent.hits);
                epoch
            }
            None => self.receive_from_device(&sent, hits),
        };
        self.queue.spare.push(sent);
        Some(epoch)
    }
}

impl GpuSearch {
    /// Sends keys to the device if its table matches the current rules, and returns whether it did. `places` receives
    /// the positions of the keys sent.
    fn send_to_device(&mut self, keys: &[FlowKey], places: &mut Vec<u32>) -> bool {
        let on_device = &mut *locked(&self.on_device);
        on_device.batches = true;
        on_device.follow(&self.now());
        let Some(table) = on_device.table_of(self.epoch) else {
            on_device.table().into_iter().for_each(FlowTable::clear);
            return false;
        };
        if table.gathered() != keys.len() {
            // The table was replaced after some of the keys had been gathered.
            table.clear();
            keys.iter().for_each(|key| table.gather(key));
        }
        let sent = table.send(places);
        table.clear();
        on_device.failure = sent.err();
        on_device.failure.is_none()
    }

    /// Returns the epoch of the answers to the oldest batch, which come from the device or, failing that, from the
    /// list.
    fn receive_from_device(&mut self, sent: &Sent, hits: &mut Vec<Option<Hit>>) -> u64 {
        hits.clear();
        hits.resize(sent.keys.len(), None);
        let mut unanswered = std::mem::take(&mut self.queue.unanswered);
        unanswered.clear();
        let on_device = self.on_device_mut();
        let received = on_device.receive(hits, &mut unanswered);
        on_device.fallbacks(unanswered.len());
        let few = unanswered.len() <= sent.keys.len() / 2;
        let epoch = match received {
            Ok(epoch) if unanswered.is_empty() || epoch == self.epoch && few => {
                // In descending order, so that no answer is overwritten before it has been moved.
                for (i, place) in sent.places.iter().enumerate().rev() {
                    let hit = hits[i].take();
                    hits[*place as usize] = hit;
                }
                for place in unanswered.iter().map(|i| sent.places[*i as usize] as usize) {
                    hits[place] = self.list.lookup(&sent.keys[place]);
                }
                epoch
            }
            // Many winning rules were deleted, or the list has changed since the batch was sent.
            Ok(_) => self.answer(&sent.keys, hits),
            Err(error) => {
                self.on_device_mut().failure = Some(error);
                self.answer(&sent.keys, hits)
            }
        };
        self.queue.unanswered = unanswered;
        epoch
    }

    /// Answers from the list, and returns the epoch of the answers.
    fn answer(&self, keys: &[FlowKey], hits: &mut Vec<Option<Hit>>) -> u64 {
        hits.clear();
        hits.resize(keys.len(), None);
        self.list.lookup_batch(keys, hits);
        self.epoch
    }
}
