//! Packets as columns: words of the engine's key without a flow key between.

use super::table::Projected;
use crate::classify::acl::Verdict;
use crate::packet::columns::FlowColumns;
use crate::rule::matching::MaskedWord;

/// Packets whose keys are made at a time: what the tree's widest kernel has on its way at once.
const CHUNK: usize = 128;

/// For each packet the handle of the best rule, or [`u32::MAX`].
pub(super) fn lookup<const W: usize>(table: &Projected<W>, packets: &FlowColumns<'_>, rules: &mut [u32]) {
    let passes = |word: u32, gate: &MaskedWord| word & gate.mask == gate.value;
    // What all packets have alike is compared once.
    let mut each: Vec<&MaskedWord> = Vec::new();
    for gate in &table.shape.gates {
        match packets.constant(gate.word.into()) {
            Some(word) if passes(word, gate) => {}
            Some(_) => return rules.fill(u32::MAX),
            None => each.push(gate),
        }
    }
    let sources = table.acl.layout().sources().expect("a layout over flow keys");
    let own = table.shape.words.len();
    let mut columns = [[0u32; CHUNK]; W];
    let mut keys = [[0u32; W]; CHUNK];
    let mut word = [0u32; CHUNK];
    let mut verdicts = [Verdict::NONE; CHUNK];
    for first in (0..packets.len()).step_by(CHUNK) {
        let rows = first..(first + CHUNK).min(packets.len());
        let count = rows.len();
        for (column, source) in columns[..own].iter_mut().zip(sources) {
            packets.word((*source).into(), rows.clone(), &mut column[..count]);
        }
        for (row, key) in keys[..count].iter_mut().enumerate() {
            // What the key has beyond is its first word again, at which no rule looks.
            *key = std::array::from_fn(|w| columns[if w < own { w } else { 0 }][row]);
        }
        let found = &mut rules[rows.clone()];
        table.acl.lookup_batch(&keys[..count], &mut verdicts[..count]);
        for (rule, verdict) in found.iter_mut().zip(&verdicts) {
            *rule = verdict.rule().map_or(u32::MAX, |rule| rule.0);
        }
        for gate in &each {
            packets.word(gate.word.into(), rows.clone(), &mut word[..count]);
            for (rule, word) in found.iter_mut().zip(&word) {
                *rule |= if passes(*word, gate) { 0 } else { u32::MAX };
            }
        }
    }
}
