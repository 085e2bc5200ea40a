//! Flow-mods. Rules that a controller adds one after the other, and that have been received together, are published together: each publication waits until
//! the workers have passed a quiescent state, and costs more than the rule itself.

use flowlane::rule::{Command, FlowMod};
use flowlane_openflow::message::{FlowModMessage, Message, Role};
use flowlane_openflow::{Decoded, ErrorCode, Header, Version};

use super::errors;
use super::session::{Session, checked, error};
use crate::control::{BundleError, Changes};

/// The type of a flow-mod, in all versions.
const FLOW_MOD: u8 = 14;
/// Rules that are published together at most: others wait for about a millisecond.
pub(super) const TOGETHER_MAX: usize = 64;

/// Returns whether a message is a flow-mod.
pub(super) fn is_flow_mod(message: &[u8]) -> bool {
    Header::read(message).is_some_and(|header| header.kind == FLOW_MOD)
}

impl Session {
    /// Makes the change of a flow-mod.
    pub(super) fn flow_mod(&self, request: &FlowModMessage) -> Result<(), ErrorCode> {
        let version = self.state().codec.version;
        let one = completed(request, version)?;
        match version {
            Version::OpenFlow10 => {
                let changed = self.shared.service.change_or_add(&one, self.requester());
                changed.map_err(|refused| errors::of_refusal(&refused.refusal))
            }
            _ => self.change(&Changes { rules: &[one], ..Changes::default() }),
        }
    }

    /// Answers flow-mods that have been received together, each as if it had come alone.
    pub(super) fn answer_flow_mods(&mut self, messages: &[Vec<u8>]) -> Vec<u8> {
        let (mut answers, mut at) = (Vec::new(), 0);
        while at < messages.len() {
            let added = self.added(&messages[at..]);
            if added.len() < 2 {
                answers.extend(self.answer(&messages[at]));
                at += 1;
            } else {
                let end = at + added.len();
                answers.extend(self.add_together(added, &messages[at..end]));
                at = end;
            }
        }
        answers
    }

    /// The rules that the first messages add. None where monitors of rules report each change with the request that made it, or where this
    /// controller may change nothing.
    fn added(&self, messages: &[Vec<u8>]) -> Vec<FlowMod> {
        let state = self.state();
        if state.role == Role::Secondary || self.shared.service.has_monitors() {
            return Vec::new();
        }
        let added = messages.iter().map_while(|message| match state.codec.decode(message) {
            Ok(Decoded { message: Message::FlowMod(request), .. }) => {
                completed(&request, state.codec.version).ok().filter(|one| one.command == Command::Add)
            }
            _ => None,
        });
        added.collect()
    }

    /// Adds rules; those that are refused get an error each.
    fn add_together(&mut self, rules: Vec<FlowMod>, messages: &[Vec<u8>]) -> Vec<u8> {
        let codec = self.state().codec.clone();
        let (mut answers, mut from, mut to) = (Vec::new(), 0, rules.len());
        while from < rules.len() {
            let together = Changes { rules: &rules[from..to], ..Changes::default() };
            match self.shared.service.change(&together, self.requester()) {
                Ok(()) => (from, to) = (to, rules.len()),
                // None has been added: first those before it, then it alone.
                Err(BundleError::Rule(refused)) if refused.at > 0 => to = from + refused.at,
                Err(refusal) => {
                    let (message, code) = (&messages[from], errors::of_changes(&refusal));
                    let xid = Header::read(message).map_or(0, |header| header.xid);
                    answers.extend(codec.encode(xid, &error(code, message)).unwrap_or_default());
                    (from, to) = (from + 1, rules.len());
                }
            }
        }
        answers
    }
}

/// Checks a flow-mod of a version, and completes it.
fn completed(request: &FlowModMessage, version: Version) -> Result<FlowMod, ErrorCode> {
    let mut one = checked(request, version)?;
    match (version, one.command, one.table) {
        // The first table that takes it.
        (Version::OpenFlow10, Command::Add, None) => one.table = Some(one.rule.table),
        (Version::OpenFlow10, ..) | (_, _, Some(_)) => {}
        (_, Command::Add, None) => return Err(ErrorCode::FlowModBadTableId),
        _ => {}
    }
    Ok(one)
}
