//! Asynchronous engines: tables that take batches of packets and answer later, as those on a device do.

use std::error::Error;

use super::{Hit, RuleEngine};
use crate::packet::key::{FlowKey, FlowMask};

/// A table of rules behind a queue: the caller gathers packets into a batch, sends it, and receives its answers, in the
/// order of the batches.
///
/// Lookups never fail: the implementation keeps the rules on the CPU too, and looks up there where the device does not
/// answer. Changes to the rules apply to batches sent after them.
pub trait AsyncEngine: RuleEngine {
    /// Transfers all changes to the device and waits for it: call it after many changes, before traffic.
    ///
    /// # Errors
    /// Where the transfer fails. Answers stay right.
    fn prepare(&mut self) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Returns why the device does not answer, if it does not.
    fn trouble(&self) -> Option<String>;

    /// Returns the bits of a key that any answer may depend on: with the same rules, keys that agree in them get the same
    /// answer.
    fn looks_at(&self) -> &FlowMask;

    /// Returns the number of the present set of rules: every change increases it.
    fn epoch(&self) -> u64;

    /// Returns the most keys of a batch.
    fn batch_max(&self) -> usize;

    /// Returns the number of keys gathered and not yet sent: at most [`batch_max`](Self::batch_max).
    fn gathered(&self) -> usize;

    /// Adds a key to the batch.
    ///
    /// # Panics
    /// Where the batch is full.
    fn gather(&mut self, key: &FlowKey);

    /// Sends the batch. Returns whether it did: not where the batch is empty, or the queue of batches in flight is full.
    fn send(&mut self) -> bool;

    /// Returns the number of batches in flight.
    fn under_way(&self) -> usize;

    /// Receives the answers to the oldest batch in flight: replaces the contents of `hits`, in the order of the keys, and
    /// returns the epoch of the rules that gave all of them. Returns `None` where no batch is in flight, or, without `wait`,
    /// where the oldest has no answers yet.
    fn receive(&mut self, wait: bool, hits: &mut Vec<Option<Hit>>) -> Option<u64>;
}
