//! The entries of a filter, from its section of the configuration or a file.

use std::collections::HashSet;

use flowlane::packet::fields::{VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask, WORDS};
use flowlane::rule::Match;
use flowlane::rule::flow_syntax::read_entries;

use crate::mgmt::setup::SetupError;
use crate::mgmt::setup::lines::Lines;
use crate::mgmt::setup::reader::Reader;
use crate::stage::ageing::idle_ticks;
use crate::stage::filter::KeyShape;

/// A filter's entries as they are read.
#[derive(Default)]
pub(super) struct Entries {
    /// Keys, and ticks after which they go.
    pub(super) list: Vec<(FlowKey, u32)>,
    known: HashSet<[u32; WORDS]>,
}

impl Entries {
    /// Reads entries, one in a line: matches as in rules, and perhaps a timeout.
    pub(super) fn read(
        &mut self,
        text: &Lines<'_>,
        shape: &KeyShape,
        reader: &Reader<'_>,
    ) -> Result<(), SetupError> {
        let name = text.name();
        let read = reader.with_options(0, usize::MAX, |options| read_entries(&text.text, &name, options));
        for entry in read.map_err(|errors| text.errors(errors))? {
            let fail = |problem, help: &str| {
                let content = &text.text[entry.part.clone()];
                text.error(entry.part.clone(), format!("entry `{content}` {problem}"), help)
            };
            let key = entry_key(&entry.matches, shape)
                .map_err(|problem| fail(problem, "give every field of the key a value, and nothing else"))?;
            if !self.known.insert(*key.words()) {
                return Err(fail("has the key of one before it", "leave one of them out").into());
            }
            self.list.push((key, idle_ticks(entry.timeout_s)));
        }
        Ok(())
    }
}

/// Returns the flow key that an entry describes, or its problem.
fn entry_key(matches: &Match, shape: &KeyShape) -> Result<FlowKey, &'static str> {
    let mask = shape.mask();
    let mut key = FlowKey::zero();
    let mut given = FlowMask::zero();
    for part in matches.words() {
        let w = usize::from(part.word);
        key.set_word(w, part.value & mask.word(w));
        given.or_word(w, part.mask);
        let mut beyond = part.mask & !mask.word(w);
        if w == word::VLAN_ETH_TYPE {
            // What a packet must be to have the key's fields may be said.
            beyond &= !(u32::from(VLAN_PRESENT) << 16);
            if part.mask & 0xffff == 0xffff && shape.is_only(part.value as u16) {
                beyond &= !0xffff;
            }
        }
        if beyond != 0 {
            return Err(
                "says something that is not in the key (where it names a protocol, `dl_type` and `nw_proto` must be in it)",
            );
        }
    }
    if matches.tp_src_range().is_some() || matches.tp_dst_range().is_some() || !given.covers(mask) {
        return Err("does not fix all of the key");
    }
    Ok(key)
}
