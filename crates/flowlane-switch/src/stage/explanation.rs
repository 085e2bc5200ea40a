//! The text of a stage's decision, for `trace`.
//!
//! A dry run takes the decision that the next packet would get at this time, and changes no table. Ageing that the packet
//! would bring about is previewed: expired entries count as absent, and a full table has the room that they leave. (Connections whose
//! time is over are removed by a dry run, too, since no packet meets another state than without it.) Two
//! results are not foreseen: the outside port of a new session, which is random, and a cuckoo table that refuses a key
//! though there is room, which hardly ever happens.

use flowlane::packet::key::FlowKey;

use super::REFUSED;
use crate::packet::Frame;
use crate::state::conntrack::Tuple;

/// A stage's decision on a packet, as text.
#[derive(Debug)]
pub struct Explanation {
    /// The verdict's number; [`REFUSED`] for a packet that is dropped.
    pub verdict: u32,
    /// The reason, in one line that begins with the stage's kind.
    pub why: String,
    /// The changes to the packet, one line each.
    pub edits: Vec<String>,
    /// The packet as it continues; none if it does not change.
    pub rewritten: Option<Rewritten>,
}

/// A packet that a stage has rewritten.
#[derive(Debug)]
pub struct Rewritten {
    pub frame: Frame,
    pub key: FlowKey,
    /// Its ends.
    pub tuple: Tuple,
    /// The port or identifier of its source will be drawn, and is the original one here.
    pub port_is_open: bool,
}

impl Explanation {
    /// A verdict that changes nothing in the packet.
    pub(super) fn unchanged(verdict: u32, why: String) -> Self {
        Self { verdict, why, edits: Vec::new(), rewritten: None }
    }

    /// Returns whether the packet is dropped.
    pub fn is_refused(&self) -> bool {
        self.verdict == REFUSED
    }
}
