//! Steps of one packet that concern more than its bytes: its call stack, its action set, its stack of values, copies of it.
//!
//! Packets rarely meet them, and meet them one by one.

use std::net::IpAddr;
use std::sync::Arc;

use flowlane::packet::FieldRef;
use flowlane::rule::Action;
use flowlane::rule::action::{Bundle, ConnectionTracking, Learn, Multipath};

use super::{Origin, RuleRequest, Step, Steps, ToController};
use crate::state::router::Reason;

/// A rule's way to connection tracking.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Track {
    pub action: ConnectionTracking,
    /// The steps of the packet that goes on in the action's table.
    pub entering: Option<Steps>,
    /// That table is the rule's own, or an earlier one.
    pub back: bool,
}

impl Track {
    /// The way of a rule in table `from`.
    pub fn new(action: ConnectionTracking, from: u8) -> Self {
        let enter = |table| Steps::new([Step::Recirculate { table, carry: Vec::new() }]);
        let back = action.table.is_some_and(|table| table <= from);
        Self { entering: action.table.map(enter), back, action }
    }
}

/// A router's decision about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Routing {
    /// The packet is for the router itself.
    Receive,
    /// It is not forwarded, and its sender gets the reason.
    Refuse(Reason),
    /// It is dropped, since the routes do not lead back to its source.
    ReversePath,
    /// It leaves for a neighbour at one of the router's ports: the one with this address, or else its destination.
    Forward { interface: u16, via: Option<IpAddr> },
}

/// A step that is taken for one packet at a time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LaneStep {
    /// Takes these steps with a copy of the packet.
    Copy(Steps),
    /// Lets a group decide.
    Group(u32),
    /// Merges actions into the packet's action set.
    WriteActions(Arc<[Action]>),
    /// Empties the packet's action set.
    ClearActions,
    /// Ends the packet's way, with all calls that are open.
    Exit,
    /// Pushes a field, or some of its bits, on the stack of values.
    Push(FieldRef),
    /// Pops a value from the stack to a field, or some of its bits.
    Pop(FieldRef),
    /// Pushes a value that the recorded walk has pushed.
    PushValue(u128),
    /// Sends the packet to the port that a field names.
    OutputField {
        port: FieldRef,
        /// Bytes that a controller gets.
        max_len: u16,
        /// The rule, for controllers.
        origin: Origin,
    },
    /// Sets a field to the number of a link.
    Multipath(Multipath),
    /// Sends the packet to a member, or sets a field to its number.
    Bundle(Bundle),
    /// Sets a bit to whether the packet is longer than this.
    CheckPacketLarger { bytes: u16, to: FieldRef },
    /// Has control add a rule that is made of the packet, and may set a bit to whether the limit allows that.
    Learn(Arc<Learn>),
    /// Has control lower the timeouts of the rule, if the packet ends a TCP connection.
    FinTimeout(Arc<RuleRequest>),
    /// Has control change rules, as the recorded walk has found.
    Request(Arc<RuleRequest>),
    /// Sends the packet to controllers and ends it; a controller may let it go on behind the step.
    Pause(Arc<ToController>),
    /// Looks the packet's connection up. A copy of the packet goes on in a table that sees the connection.
    Track {
        track: Arc<Track>,
        /// Words of the key that rules have set before, where a path has them: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
    /// Forgets the packet's connection.
    Untrack,
    /// Lets the router decide.
    Route(Routing),
    /// Sends the packet to the controller, since its TTL has expired.
    Expire,
    /// Drops the packet, which has called too many tables, and counts it.
    Refuse,
    /// Ends a path before a step whose result is not known in advance: the packet goes on there, in the rule's own steps, which
    /// are open as a call.
    Leave {
        /// Words of the key that rules have set and that are in no header: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
}

impl LaneStep {
    /// The step of a way to connection tracking.
    pub(super) fn track(track: Track) -> Self {
        Self::Track { track: Arc::new(track), carry: Vec::new() }
    }

    /// Returns whether the step looks the packet's connection up, and the packet then goes on in a later table.
    pub(super) fn only_tracks(&self) -> bool {
        matches!(self, Self::Track { track, .. } if track.entering.is_some() && !track.back)
    }

    /// Returns the field that the step writes.
    pub fn written(&self) -> Option<FieldRef> {
        match *self {
            Self::Pop(to)
            | Self::CheckPacketLarger { to, .. }
            | Self::Multipath(Multipath { to, .. })
            | Self::Bundle(Bundle { to: Some(to), .. }) => Some(to),
            Self::Learn(ref learn) => learn.result,
            _ => None,
        }
    }

    /// Returns whether the step reads fields of the packet, or lets tables read them.
    pub fn reads_key(&self) -> bool {
        match self {
            Self::Copy(_)
            | Self::Group(_)
            | Self::Push(_)
            | Self::OutputField { .. }
            | Self::Multipath(_)
            | Self::Learn(_)
            | Self::FinTimeout(_)
            | Self::Pause(_)
            | Self::Track { .. }
            | Self::Route(_)
            | Self::Bundle(_) => true,
            Self::WriteActions(_)
            | Self::ClearActions
            | Self::Exit
            | Self::Pop(_)
            | Self::PushValue(_)
            | Self::CheckPacketLarger { .. }
            | Self::Request(_)
            | Self::Untrack
            | Self::Expire
            | Self::Refuse
            | Self::Leave { .. } => false,
        }
    }

    /// Returns whether the step sends the packet somewhere, or changes what other packets use.
    pub fn has_effects(&self) -> bool {
        match self {
            Self::Copy(_)
            | Self::Group(_)
            | Self::OutputField { .. }
            | Self::Bundle(_)
            | Self::Learn(_)
            | Self::FinTimeout(_)
            | Self::Request(_)
            | Self::Pause(_)
            | Self::Track { .. }
            | Self::Route(_)
            | Self::Expire => true,
            Self::WriteActions(_)
            | Self::ClearActions
            | Self::Exit
            | Self::Push(_)
            | Self::Pop(_)
            | Self::PushValue(_)
            | Self::Multipath(_)
            | Self::CheckPacketLarger { .. }
            | Self::Untrack
            | Self::Refuse
            | Self::Leave { .. } => false,
        }
    }
}
