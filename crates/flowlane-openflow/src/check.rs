//! A property of all messages, for fuzzing.

use flowlane::Action;
use flowlane::rule::action::ConnectionTracking;

use crate::codec::{decode, encode};
use crate::header::{Header, Version, split};
use crate::message::{Message, MultipartReply, Reply};
use crate::stats::FlowUpdate;

/// Decodes a message and encodes it again: what is written is read as the message that was read, and written so again.
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
    match message {
        Message::FlowMod(change) => any(&change.flow_mod.rule.actions),
        Message::PacketOut(packet) => any(&packet.actions),
        Message::GroupMod(change) => change.buckets.iter().any(|bucket| any(&bucket.actions)),
        Message::BundleAdd(add) => has_forms(&add.message),
        Message::MultipartReply(MultipartReply { body, .. }) => match body {
            Reply::Flow { flows, .. } => flows.iter().any(|flow| any(&flow.rule.actions)),
            Reply::GroupDescription(groups) => {
                groups.iter().flat_map(|group| &group.buckets).any(|bucket| any(&bucket.actions))
            }
            Reply::FlowMonitor(updates) => updates.iter().any(|update| match update {
                FlowUpdate::Full { rule, .. } => any(&rule.actions),
                FlowUpdate::Abbreviated { .. } | FlowUpdate::Paused | FlowUpdate::Resumed => false,
            }),
            _ => false,
        },
        _ => false,
    }
}

fn any(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::SetField { .. } => true,
        Action::ConnectionTracking(ct) => {
            let ConnectionTracking { exec, .. } = &**ct;
            any(exec)
        }
        other => any(other.nested()),
    })
}
