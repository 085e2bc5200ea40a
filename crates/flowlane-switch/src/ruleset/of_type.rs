//! Lookups of packets without an Ethernet header.

use flowlane::classify::Hit;
use flowlane::packet::Field;
use flowlane::packet::key::{FlowKey, FlowMask};

use super::Table;

impl Table {
    /// Finds the winning rule for a packet without an Ethernet header. Engines know packets with one only: the rules that others may
    /// match are few, and are compared one by one.
    pub(crate) fn lookup_of_type(&self, key: &FlowKey, looked_at: Option<&mut FlowMask>) -> Option<Hit> {
        if let Some(looked_at) = looked_at {
            looked_at.add_field(Field::PacketType);
            self.rules_of_types().for_each(|(_, entry)| looked_at.add(&entry.rule.matches.mask()));
        }
        let matching = self.rules_of_types().filter(|(_, entry)| entry.rule.matches.matches(key));
        let winner = matching.max_by_key(|(id, entry)| (entry.rule.priority, std::cmp::Reverse(*id)));
        winner.map(|(rule, entry)| Hit { rule, priority: entry.rule.priority })
    }
}
