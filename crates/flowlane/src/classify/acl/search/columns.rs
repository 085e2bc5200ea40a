//! Packets as columns: words of the engine's key without a flow key between.

use super::table::Projected;
use crate::classify::acl::MatchId;
use crate::packet::columns::FlowColumns;
use crate::rule::matching::MaskedWord;

/// Packets whose keys are made at a time: what the tree's widest kernel has on its way at once.
const CHUNK: usize = 128;

/// For each packet and category the handle of the best rule, or [`u32::MAX`].
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
    let mut columns = [[0u32; CHUNK]; W];
    let mut keys = [[0u32; W]; CHUNK];
    let mut word = [0u32; CHUNK];
    let mut verdicts = [MatchId::NONE; CHUNK];
    // Divisions are left out that a burst of 32 would notice.
    let chunk = if categories == 1 { CHUNK } else { CHUNK / categories };
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
        match categories {
            1 => table.acl.lookup_batch(&keys[..count], verdicts),
            _ => table.acl.lookup_categories(&keys[..count], categories, verdicts),
        }
        let found = &mut rules[rows.start * categories..rows.end * categories];
        for (rule, verdict) in found.iter_mut().zip(&*verdicts) {
            *rule = verdict.rule().map_or(u32::MAX, |rule| rule.0);
        }
        for gate in table.shape.gates.iter().filter(|gate| differ && alike(gate).is_none()) {
            packets.word(gate.word.into(), rows.clone(), &mut word[..count]);
            for (rules, word) in found.chunks_exact_mut(categories).zip(&word) {
                let stopped = if passes(*word, gate) { 0 } else { u32::MAX };
                rules.iter_mut().for_each(|rule| *rule |= stopped);
            }
        }
    }
}
