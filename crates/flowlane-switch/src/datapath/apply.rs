//! *Apply*: one primitive operation on one packet.
//!
//! The only place that says what each [`Action`] means. What the operation works on is generic: a packet that is being forwarded
//! ([`Packet`](super::Packet)), the copy that a [trace](super::trace) follows, or the flow key from which a megaflow is
//! [translated](super::xlate). Whatever others can observe goes through [`Effects`]; all else is a [`PacketEdit`].
//!
//! | job | packet | effects |
//! |---|---|---|
//! | forwarding | frame, headers and key | [`Egress`](super::Egress): ports, FDB, meters, controller |
//! | translation | key alone, with the bits that the path depends on | recorded as steps of the path |
//! | trace | a copy of the frame | recorded as text: nothing leaves, nothing is learned |
//!
//! Control flow (`goto_table`, calls, recirculation) is not applied but [walked](super::walk).

use std::sync::Arc;

use flowlane::packet::FieldRef;
use flowlane::rule::Action;
use flowlane::rule::action::{EncapsulateHeader, PortNo, Sample};

use crate::packet::edit::Ttl;
use crate::ruleset::ToController;

/// Edits of a packet's headers and of the metadata in its key.
pub(super) trait PacketEdit {
    /// Sets the bits `mask` of a field, where the packet has it.
    fn set_field(&mut self, field: flowlane::packet::Field, value: u128, mask: u128);
    /// Does that where the packet has this protocol over IP.
    fn set_field_of(&mut self, protocol: u8, field: flowlane::packet::Field, value: u128, mask: u128);
    /// Sets words of the key that rules have set and that are in no header: (word, value, mask).
    fn take_along(&mut self, carry: &[(u8, u32, u32)]);
    /// Copies one field to another.
    fn move_field(&mut self, from: FieldRef, to: FieldRef);
    /// Adds an outermost VLAN tag.
    fn push_vlan(&mut self, tpid: u16);
    /// Removes the outermost VLAN tag.
    fn pop_vlan(&mut self);
    /// Adds an MPLS label stack entry.
    fn push_mpls(&mut self, eth_type: u16);
    /// Removes the outermost MPLS label stack entry.
    fn pop_mpls(&mut self, eth_type: u16);
    /// Decrements the IP TTL or hop limit.
    fn dec_ttl(&mut self) -> Ttl;
    /// Decrements the TTL of the outermost label.
    fn dec_mpls_ttl(&mut self) -> Ttl;
    /// Decrements the TTL of NSH.
    fn dec_nsh_ttl(&mut self) -> Ttl;
    /// Chooses the queue of ports that the packet is sent through from now on; `None`: the default one.
    fn set_queue(&mut self, queue: Option<u32>);
}

/// Effects of an operation outside the packet, and operations that need the state of others.
pub(super) trait Effects<P> {
    /// A port that fails for good.
    type Error;

    /// Sends a copy of the packet through a port, unless it came in there.
    fn output(&mut self, packet: &mut P, to: PortNo) -> Result<(), Self::Error>;
    /// Sends it back through the port that it came in through.
    fn in_port(&mut self, packet: &mut P) -> Result<(), Self::Error>;
    /// Sends the first bytes of it through a port, perhaps the one that it came in through.
    fn output_truncated(&mut self, packet: &mut P, to: PortNo, max_len: u32) -> Result<(), Self::Error>;
    /// Sends it through a queue of a port, unless it came in there. Later operations see the queue that was chosen before.
    fn enqueue(&mut self, packet: &mut P, to: PortNo, queue: u32) -> Result<(), Self::Error>;
    /// Sends it through every other port that is flooded to.
    fn flood(&mut self, packet: &mut P) -> Result<(), Self::Error>;
    /// Sends it through every other port.
    fn all(&mut self, packet: &mut P) -> Result<(), Self::Error>;
    /// Learns the source address; sends the packet to where the destination was learned, or floods it.
    fn normal(&mut self, packet: &mut P) -> Result<(), Self::Error>;
    /// Sends the first bytes of the packet to controllers.
    fn controller(&mut self, packet: &mut P, to: &Arc<ToController>) -> Result<(), Self::Error>;
    /// Sends the packet to the controller with a probability.
    fn sample(&mut self, packet: &mut P, sample: &Sample) -> Result<(), Self::Error>;
    /// Takes tokens from a meter. Returns whether the packet passes.
    fn meter(&mut self, packet: &mut P, number: u32) -> bool;
    /// Counts the packet.
    fn count(&mut self, packet: &mut P, number: u32);
    /// Adds the outer headers of a tunnel: a packet without a connection. Returns whether the tunnel carries the packet.
    fn encapsulate(&mut self, packet: &mut P, tunnel: u32) -> bool;
    /// Adds a header that changes the packet's type. Returns whether its type allows that.
    fn encapsulate_header(&mut self, packet: &mut P, header: &EncapsulateHeader) -> bool;
    /// Removes the outermost header; a label's does not say which type is behind it. Returns whether the packet's type allows that.
    fn decapsulate(&mut self, packet: &mut P, to: Option<(u16, u16)>) -> bool;
    /// Parses the packet again where its headers have moved. Returns whether it goes on: a malformed packet may not.
    fn reparse(&mut self, packet: &mut P) -> bool;
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Applied {
    /// The packet goes on to its next operation.
    Next,
    /// The packet is dropped, and counted.
    Dropped,
    /// Its TTL has expired.
    Expired,
}

fn unless_expired(ttl: Ttl) -> Applied {
    match ttl {
        Ttl::Expired => Applied::Expired,
        Ttl::Decremented | Ttl::None => Applied::Next,
    }
}

fn if_passes(passes: bool) -> Applied {
    if passes { Applied::Next } else { Applied::Dropped }
}

/// Applies one operation to one packet.
///
/// # Errors
/// A port that fails for good.
#[inline(always)]
pub(super) fn apply<P: PacketEdit, E: Effects<P>>(
    action: &Action,
    packet: &mut P,
    effects: &mut E,
) -> Result<Applied, E::Error> {
    match *action {
        Action::Output(to) => effects.output(packet, to)?,
        Action::SetField { field, value, mask, protocol: None, .. } => packet.set_field(field, value, mask),
        Action::DecTtl(_) => return Ok(unless_expired(packet.dec_ttl())),
        Action::DecMplsTtl => return Ok(unless_expired(packet.dec_mpls_ttl())),
        Action::Meter(number) => return Ok(if_passes(effects.meter(packet, number))),
        Action::Encapsulate(tunnel) => return Ok(if_passes(effects.encapsulate(packet, tunnel))),
        ref other => return apply_rarer(other, packet, effects),
    }
    Ok(Applied::Next)
}

/// Operations that are not worth their place in the loop of the others.
#[inline(never)]
fn apply_rarer<P: PacketEdit, E: Effects<P>>(
    action: &Action,
    packet: &mut P,
    effects: &mut E,
) -> Result<Applied, E::Error> {
    match *action {
        Action::SetField { field, value, mask, protocol: Some(protocol), .. } => {
            packet.set_field_of(protocol, field, value, mask);
        }
        Action::Move { from, to } => packet.move_field(from, to),
        Action::PushVlan(tpid) => packet.push_vlan(tpid),
        Action::PopVlan => packet.pop_vlan(),
        Action::PushMpls(eth_type) => packet.push_mpls(eth_type),
        Action::PopMpls(eth_type) => packet.pop_mpls(eth_type),
        Action::Count(number) => effects.count(packet, number),
        Action::InPort => effects.in_port(packet)?,
        Action::Flood => effects.flood(packet)?,
        Action::Normal => effects.normal(packet)?,
        Action::All => effects.all(packet)?,
        Action::OutputTruncated { port, max_len } => effects.output_truncated(packet, port, max_len)?,
        Action::Enqueue { port, queue } => effects.enqueue(packet, port, queue)?,
        Action::SetQueue(queue) => packet.set_queue(Some(queue)),
        Action::PopQueue => packet.set_queue(None),
        Action::Sample(ref sample) => effects.sample(packet, sample)?,
        Action::DecNshTtl => return Ok(unless_expired(packet.dec_nsh_ttl())),
        Action::EncapsulateHeader(ref header) => {
            return Ok(if_passes(effects.encapsulate_header(packet, header)));
        }
        Action::Decapsulate(to) => return Ok(if_passes(effects.decapsulate(packet, to))),
        Action::Output(_)
        | Action::SetField { protocol: None, .. }
        | Action::DecTtl(_)
        | Action::DecMplsTtl
        | Action::Meter(_)
        | Action::Encapsulate(_) => unreachable!("`apply` has them"),
        Action::Goto(_)
        | Action::Resubmit { .. }
        | Action::Clone(_)
        | Action::WriteActions(_)
        | Action::ClearActions
        | Action::Group(_)
        | Action::OutputField { .. }
        | Action::Push(_)
        | Action::Pop(_)
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::CheckPacketLarger { .. }
        | Action::Learn(_)
        | Action::ConnectionTracking(_)
        | Action::ClearConnection
        | Action::Exit => unreachable!("compiled to control flow"),
        Action::Controller(_)
        | Action::OutputMaxLen { .. }
        | Action::Note(_)
        | Action::FinTimeout { .. }
        | Action::Conjunction { .. } => unreachable!("compiled to something else"),
        Action::Nat(_) | Action::DeleteField(_) => unreachable!("rules with them are refused"),
    }
    Ok(Applied::Next)
}
