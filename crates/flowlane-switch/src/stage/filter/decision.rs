//! A filter's decision, and its text.

use flowlane::packet::fields::word;
use flowlane::rule::flow_syntax::print_value;

use super::{AnySet, Filter, HIT, MISS, with_set};
use crate::stage::StagePacket;
use crate::stage::table::Found;

/// A filter's decision on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterDecision {
    /// A miss: the packet lacks a field of the key.
    NoKey,
    /// A hit if the entry is live, else a miss.
    Key(Found),
}

impl FilterDecision {
    #[inline]
    pub(super) fn verdict(self) -> u32 {
        match self {
            Self::Key(Found::Live(_)) => HIT,
            Self::Key(Found::Absent | Found::Expired(_)) | Self::NoKey => MISS,
        }
    }
}

impl Filter {
    /// Returns the reason for a decision.
    pub(super) fn reason(&self, packet: StagePacket<'_>, decision: FilterDecision) -> String {
        let found = match (decision, packet.headers.malformed) {
            (FilterDecision::Key(found), _) => found,
            (FilterDecision::NoKey, Some(reason)) => {
                return format!("the packet is malformed ({reason}): it has no key");
            }
            (FilterDecision::NoKey, None) => {
                let names: Vec<&str> = self.shape.fields.iter().map(|field| field.info().name).collect();
                return format!("the packet lacks a field of the key ({})", names.join(","));
            }
        };
        let values = self.shape.fields.iter().map(|&field| print_value(field, packet.key.get(field)));
        let text = values.collect::<Vec<String>>().join(",");
        let now = self.ticks.peek(packet.now_ns);
        let port = packet.key.word(word::IN_PORT);
        let room = with_set!(&self.set, set => set.table.room(&[found], now, port));
        let learned = match (self.policy.learn, room) {
            (false, _) => "",
            (true, 0) => "; it would be learned, but the set is full, or the port has its share of it",
            (true, _) => "; it would be learned",
        };
        match found {
            Found::Live(_) => format!("an entry for {text}"),
            Found::Expired(_) => {
                format!("the entry for {text} has been idle for too long and would be removed{learned}")
            }
            Found::Absent => format!("no entry for {text}{learned}"),
        }
    }
}
