//! A property of all messages, for fuzzing.

use flowlane::Action;

use crate::codec::{decode, encode};
use crate::header::{Header, split};
use crate::message::{Message, MultipartReply, Reply};
use crate::stats::FlowUpdate;
use crate::version::Version;

/// Decodes a message and encodes it again: its bytes are read as the message that was read, and written alike.
///
/// Actions that set a field may have another form then, since not all versions have all forms; see the crate's documentation.
///
/// # Panics
/// Where it is not so: a fault of this crate.
pub fn check(bytes: &[u8]) {
    let Ok(first) = decode(bytes) else { return };
    let Some(version) = Header::read(bytes).and_then(|header| Version::of_number(header.version)) else {
        return;
    };
    // A message may have what no message expresses, as a rule's ports have without a protocol.
    let Ok(written) = encode(version, first.xid, &first.message) else { return };
    let parts = split(&written).map(|part| part.map(|(_, rest)| rest.len()));
    assert!(parts.is_ok_and(|rest| rest.is_some()), "{first:?} is written as {written:02x?}");
    // A list that was as long as a message can be is longer now: its items are written with all that they have.
    if parts != Ok(Some(0)) {
        return;
    }
    let again = decode(&written);
    let again = again.unwrap_or_else(|error| panic!("{error}: {first:?} is written as {written:02x?}"));
    let rewritten = encode(version, again.xid, &again.message);
    assert_eq!(rewritten.as_ref(), Ok(&written), "{first:?} is read again as {again:?}");
    if !has_forms(&first.message) {
        assert_eq!(first, again, "{written:02x?}");
    }
}

/// Returns whether a message has actions of several forms.
fn has_forms(message: &Message) -> bool {
    if let Message::MultipartReply(MultipartReply { body, .. }) = message {
        return lists(body).any(any);
    }
    if let Message::BundleAdd(add) = message {
        return has_forms(&add.message);
    }
    if let Message::GroupMod(change) = message {
        return change.buckets.iter().any(|bucket| any(&bucket.actions));
    }
    if let Message::FlowMod(change) = message {
        return any(&change.flow_mod.rule.actions);
    }
    matches!(message, Message::PacketOut(packet) if any(&packet.actions))
}

/// The lists of actions of a reply.
fn lists(body: &Reply) -> impl Iterator<Item = &[Action]> {
    let flows = if let Reply::Flow { flows, .. } = body { &flows[..] } else { &[] };
    let groups = if let Reply::GroupDescription(groups) = body { &groups[..] } else { &[] };
    let updates = if let Reply::FlowMonitor(updates) = body { &updates[..] } else { &[] };
    let of_updates = updates.iter().filter_map(|update| match update {
        FlowUpdate::Full { rule, .. } => Some(&rule.actions[..]),
        FlowUpdate::Abbreviated { .. } | FlowUpdate::Paused | FlowUpdate::Resumed => None,
    });
    let of_groups = groups.iter().flat_map(|group| &group.buckets).map(|bucket| &bucket.actions[..]);
    flows.iter().map(|flow| &flow.rule.actions[..]).chain(of_groups).chain(of_updates)
}

/// Returns whether an action of a list sets a field.
fn any(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::SetField { .. }) || any(action.nested()))
}
