//! What a filter would say of a packet.

use flowlane::packet::Headers;
use flowlane::packet::key::{FlowKey, WORDS};
use flowlane::rule::flow_syntax::print_value;

use super::{AnySet, Filter, HIT, MISS, Set, with_set};
use crate::stage::Explained;
use crate::stage::table::Peeked;

impl Filter {
    pub(in crate::stage) fn explain(&self, key: &FlowKey, headers: &Headers, now_ns: u64) -> Explained {
        let miss = |why: String| Explained::unchanged(MISS, format!("filter: {why}"));
        if let Some(reason) = headers.malformed {
            return miss(format!("the packet is malformed ({reason}): it has no key"));
        }
        if !self.has_key(key, headers) {
            let names: Vec<&str> = self.shape.fields.iter().map(|field| field.info().name).collect();
            return miss(format!("the packet lacks a field of the key ({})", names.join(",")));
        }
        let values = self.shape.fields.iter().map(|&field| print_value(field, key.get(field)));
        let text = values.collect::<Vec<String>>().join(",");
        let now = self.ticks.peek(now_ns);
        let (peeked, places) = with_set!(&self.set, set => set.peek(key.words(), now));
        let entered = match (self.policy.learn, places) {
            (false, _) => "",
            (true, 0) => "; it would be learnt, but the set is full",
            (true, _) => "; it would be learnt",
        };
        match peeked {
            Peeked::Live(_) => Explained::unchanged(HIT, format!("filter: an entry for {text}")),
            Peeked::Due(_) => {
                miss(format!("the entry for {text} has been idle for too long and would go{entered}"))
            }
            Peeked::Absent => miss(format!("no entry for {text}{entered}")),
        }
    }
}

impl<const W: usize> Set<W> {
    /// What would be found for a packet, and room for how many new entries.
    fn peek(&self, words: &[u32; WORDS], now: u32) -> (Peeked, usize) {
        let peeked = self.table.peek(&self.key(words), now);
        (peeked, self.table.places(&[peeked], now))
    }
}
