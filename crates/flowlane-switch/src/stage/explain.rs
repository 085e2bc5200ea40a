//! What a function would do with a packet, and why: for whoever traces one. Nothing comes of asking.
//!
//! The answer holds for a packet that comes at that time, and before any other: entries that it would not find any more, since
//! they have been idle for too long, are gone in it, and a full table has room where it would make some. Two things are
//! not foreseen: the port that a new session draws, which nobody is to foretell, and that a cuckoo table finds no place for
//! a key though there is room, which hardly ever happens.

use flowlane::packet::Headers;
use flowlane::packet::key::FlowKey;

use super::{Function, Kind, Owner, REFUSED};
use crate::packet::Frame;

/// What a function would do with a packet.
#[derive(Debug)]
pub struct Explained {
    /// The verdict's number; [`REFUSED`] where the packet would be refused.
    pub verdict: u8,
    /// Why, in a line that begins with the [kind](Kind::name).
    pub why: String,
    /// What would be changed in the packet, a line each.
    pub edits: Vec<String>,
    /// The packet as it would go on; none where it is not translated.
    pub translated: Option<Translated>,
}

/// A packet that has been translated.
#[derive(Debug)]
pub struct Translated {
    /// The frame.
    pub frame: Frame,
    /// Its key.
    pub key: FlowKey,
    /// Its source's port, or its identifier, would be drawn, and stands as it was.
    pub port_is_open: bool,
}

impl Explained {
    /// A verdict that changes nothing.
    pub(super) fn unchanged(verdict: u8, why: String) -> Self {
        Self { verdict, why, edits: Vec::new(), translated: None }
    }

    /// Whether the packet would be refused.
    pub fn is_refused(&self) -> bool {
        self.verdict == REFUSED
    }
}

impl Function {
    /// Whom else [`owner`](Self::owner) would give this packet to, were it the next, and came at this time; [`Owner::Anyone`]
    /// where it is to be worked on here.
    pub fn would_own(&self, frame: &Frame, key: &FlowKey, headers: &Headers, now_ns: u64) -> Owner {
        let of_worker = |worker: Option<usize>| worker.map_or(Owner::Anyone, Owner::Worker);
        let (share, owner) = match &self.kind {
            Kind::Filter(filter) => (filter.share(), of_worker(filter.owner(key, headers))),
            Kind::Assets(assets) => (assets.share(), of_worker(assets.owner(key, headers))),
            Kind::Nat(nat) => (nat.share(), nat.would_own(frame, key, headers, now_ns)),
        };
        if owner == Owner::Worker(share.me) { Owner::Anyone } else { owner }
    }

    /// What [`process`](Self::process) would do with this packet, were it the next, and came at this time.
    /// `other_half`: of a packet that turns round, and whose source another worker has translated.
    pub fn explain(
        &self,
        frame: &Frame,
        key: &FlowKey,
        headers: &Headers,
        now_ns: u64,
        other_half: bool,
    ) -> Explained {
        match &self.kind {
            Kind::Filter(filter) => filter.explain(key, headers, now_ns),
            Kind::Assets(assets) => assets.explain(key, headers, now_ns),
            Kind::Nat(nat) => nat.explain(frame, key, headers, now_ns, other_half),
        }
    }
}
