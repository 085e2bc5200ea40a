//! Packets as columns: words of the engine's key without a flow key between.

use super::table::Projected;
use crate::classify::acl::{BATCH, MatchId, keys_per_batch};
use crate::packet::columns::FlowColumns;
use crate::rule::matching::MaskedWord;

/// Finds the rule number of the best rule for each packet and category, or [`u32::MAX`].
pub(super) fn lookup<const W: usize>(
    table: &Projected<W>,
    packets: &FlowColumns<'_>,
    categories: usize,
    rules: &mut [u32],
) {
    let passes = |word: u32, gate: &MaskedWord| word & gate.mask == gate.value;
    let alike = |gate: &MaskedWord| packets.constant(gate.word.into());
    // What all packets have alike is compared once, the rest for each chunk: nothing is allocated for it.
    let mut differ = false;
    for gate in &table.shape.gates {
        match alike(gate) {
            Some(word) if passes(word, gate) => {}
            Some(_) => return rules.fill(u32::MAX),
            None => differ = true,
        }
    }
    let sources = table.acl.layout().sources().expect("a layout over flow keys");
    let own = table.shape.words.len();
    let mut columns = [[0u32; BATCH]; W];
    let mut keys = [[0u32; W]; BATCH];
    let mut word = [0u32; BATCH];
    let mut verdicts = [MatchId::NONE; BATCH];
    let chunk = keys_per_batch(categories);
    let mut first = 0;
    while first < packets.len() {
        let rows = first..(first + chunk).min(packets.len());
        let count = rows.len();
        first = rows.end;
        for (column, source) in columns[..own].iter_mut().zip(sources) {
            packets.word((*source).into(), rows.clone(), &mut column[..count]);
        }
        for (row, key) in keys[..count].iter_mut().enumerate() {
            // What the key has beyond is its first word again, at which no rule looks.
            *key = std::array::from_fn(|w| columns[if w < own { w } else { 0 }][row]);
        }
        let verdicts = &mut verdicts[..count * categories];
        table.acl.lookup_ids(&keys[..count], categories, verdicts);
        let found = &mut rules[rows.start * categories..rows.end * categories];
        found.iter_mut().zip(&*verdicts).for_each(|(rule, id)| *rule = id.number());
        for gate in table.shape.gates.iter().filter(|gate| differ && alike(gate).is_none()) {
            packets.word(gate.word.into(), rows.clone(), &mut word[..count]);
            for (rules, word) in found.chunks_exact_mut(categories).zip(&word) {
                let stopped = if passes(*word, gate) { 0 } else { u32::MAX };
                rules.iter_mut().for_each(|rule| *rule |= stopped);
            }
        }
    }
}
