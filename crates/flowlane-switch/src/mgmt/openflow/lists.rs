//! Answers that are lists, without the entries that no message of a version expresses: matches and actions that are Flowlane's own.
//! One such rule must not cost a controller the list of all others.

use flowlane_openflow::Codec;
use flowlane_openflow::message::{Message, MultipartReply, Reply};
use flowlane_openflow::stats::{FlowStats, FlowUpdate};

/// The bytes of a message. Entries of lists that cannot be written are left out; a rule with a range of ports is several, as prefixes.
/// `None` where the message cannot be written at all.
pub(super) fn encode(codec: &Codec, xid: u32, message: Message) -> Option<Vec<u8>> {
    codec.encode(xid, &message).ok().or_else(|| match message {
        Message::MultipartReply(MultipartReply { body, .. }) => encode_some(codec, xid, body),
        _ => None,
    })
}

/// The bytes of a reply whose list has an entry that cannot be written.
fn encode_some(codec: &Codec, xid: u32, body: Reply) -> Option<Vec<u8>> {
    match body {
        Reply::Flow { format, flows } => {
            let flows = flows.into_iter().flat_map(without_ranges).collect();
            of_writable(codec, xid, flows, |flows| Reply::Flow { format, flows })
        }
        Reply::GroupDescription(groups) => of_writable(codec, xid, groups, Reply::GroupDescription),
        Reply::FlowMonitor(updates) => of_writable::<FlowUpdate>(codec, xid, updates, Reply::FlowMonitor),
        _ => None,
    }
}

fn of_writable<T: Clone>(
    codec: &Codec,
    xid: u32,
    entries: Vec<T>,
    body: impl Fn(Vec<T>) -> Reply,
) -> Option<Vec<u8>> {
    let encode = |entries| {
        codec.encode(xid, &Message::MultipartReply(MultipartReply { more: false, body: body(entries) })).ok()
    };
    encode(entries.into_iter().filter(|entry| encode(vec![entry.clone()]).is_some()).collect())
}

/// A flow for each prefix of its ranges.
fn without_ranges(flow: FlowStats) -> Vec<FlowStats> {
    let prefixes = flow.rule.matches.expand_ranges().into_iter();
    let of_prefix = |matches| {
        let mut one = flow.clone();
        one.rule.matches = matches;
        one
    };
    prefixes.map(of_prefix).collect()
}
