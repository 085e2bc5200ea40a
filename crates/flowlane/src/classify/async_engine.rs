//! Rules that are asked for many packets at a time and answer later: what a table on a device is to a switch.

use std::error::Error;

use super::{Hit, RuleEngine};
use crate::packet::key::{FlowKey, FlowMask};

/// A table of rules behind a queue. Packets are gathered into a batch, the batch is sent, its answers are received.
/// Batches are answered in the order in which they were sent.
///
/// Nothing here fails: what stands behind the queue has the rules at hand, too, and answers itself where a device does
/// not. Changes to the rules count for what is sent after them.
pub trait AsyncEngine: RuleEngine {
    /// Brings all changes to where answers come from, and waits for that: after many changes, before traffic.
    ///
    /// # Errors
    /// Where they cannot be brought there. Answers are right all the same.
    fn prepare(&mut self) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Why answers do not come from where they should, where that is so.
    fn trouble(&self) -> Option<String>;

    /// Every bit of a key that any answer may depend on: with the same rules, keys that agree in these get the same
    /// answer.
    fn looks_at(&self) -> &FlowMask;

    /// Which set of rules there is: another one after every change.
    fn epoch(&self) -> u64;

    /// Most keys of a batch.
    fn batch_max(&self) -> usize;

    /// Keys that are gathered and not yet sent: at most [`batch_max`](Self::batch_max).
    fn gathered(&self) -> usize;

    /// Gathers a key.
    ///
    /// # Panics
    /// Where the batch is full.
    fn gather(&mut self, key: &FlowKey);

    /// Sends what is gathered. Says whether it did: not where nothing is gathered, or as many batches are under way
    /// as may be.
    fn send(&mut self) -> bool;

    /// Batches that were sent and not yet received.
    fn under_way(&self) -> usize;

    /// The answers to the oldest batch under way, in place of what is in `hits`, in the order of its keys; and the
    /// epoch of the rules that gave all of them. None where no batch is under way, or, unless told to `wait`, where the
    /// oldest has no answers yet.
    fn receive(&mut self, wait: bool, hits: &mut Vec<Option<Hit>>) -> Option<u64>;
}
