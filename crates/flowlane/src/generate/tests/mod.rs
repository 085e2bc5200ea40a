//! What the generators promise: stable sequences, structure, and keys that fit their rules.

mod families;
mod frames;
mod rules;
mod seed_file;
mod traces;

use crate::packet::fields::word;
use crate::rule::Rule;

/// FNV-1a over numbers.
fn hash(values: impl IntoIterator<Item = u64>) -> u64 {
    values
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The matches, priorities and actions of rules in one number.
fn hash_rules(rules: &[Rule]) -> u64 {
    hash(rules.iter().flat_map(|rule| {
        let m = &rule.matches;
        let words = m
            .words()
            .iter()
            .flat_map(|w| [word::number_of(w.word.into()) as u64, w.value.into(), w.mask.into()]);
        let ranges = [m.tp_src_range(), m.tp_dst_range()]
            .map(|r| r.map_or(u64::MAX, |r| u64::from(r.low()) << 16 | u64::from(r.high())));
        let actions = format!("{:?}", rule.actions).into_bytes();
        let numbers: Vec<u64> = words
            .chain(ranges)
            .chain([rule.priority.0.into()])
            .chain(actions.into_iter().map(u64::from))
            .collect();
        numbers
    }))
}
