//! Rule sets and keys for the tests of all engines.

use super::{Condition, Entry, Layout, RankKey, WordKind};
use crate::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use crate::rule::{Format, Match, Priority, ReadOptions, RuleId, read};

/// Entries of a list in which the first that matches wins.
pub(crate) fn entries<const W: usize>(conditions: impl IntoIterator<Item = Condition<W>>) -> Vec<Entry<W>> {
    let entry = |(i, condition)| Entry {
        condition,
        rank: RankKey::new(Priority::DEFAULT, i as u32),
        rule: RuleId(i as u32),
        categories: 1,
    };
    conditions.into_iter().enumerate().map(entry).collect()
}

/// A condition on the IPv4 5-tuple.
fn five_tuple(layout: &Layout<4>, matches: &Match) -> Condition<4> {
    let mut bare = Match::any();
    let words = matches.words().iter().filter(|w| layout.sources().is_some_and(|s| s.contains(&w.word)));
    words.for_each(|w| {
        bare.set_word(w.word.into(), w.value, w.mask);
    });
    for (field, range) in [
        (crate::packet::Field::TpSrc, matches.tp_src_range()),
        (crate::packet::Field::TpDst, matches.tp_dst_range()),
    ] {
        range.map(|r| bare.set_range(field, r.low(), r.high()));
    }
    layout.flow_condition(&bare).expect("a 5-tuple")
}

/// A generated set of 5-tuple rules, and keys of which most hit.
pub(crate) fn generated(
    profile: Profile,
    rules: usize,
    keys: usize,
    seed: u64,
) -> (Vec<Entry<4>>, Vec<[u32; 4]>) {
    let config = RuleConfig { seed, ..RuleConfig::new(profile, rules) };
    let rules = generate_rules(&config).expect("a profile of 5-tuples").into_iter().map(|r| r.matches);
    with_keys(rules.collect(), keys, seed)
}

/// A published set of 5-tuple rules (`acl1_1k`, say), and keys; none, and a line that says so, where it is not there.
pub(crate) fn published(name: &str, keys: usize) -> Option<(Vec<Entry<4>>, Vec<[u32; 4]>)> {
    let file = crate::testing::data(format!("classbench/{name}.rules.gz"))?;
    let bytes = std::fs::read(file).expect("a file that can be read");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).expect("gzip");
    let rules =
        read(&text, name, Some(Format::Classbench), &ReadOptions::default()).expect("a published set");
    Some(with_keys(rules.into_iter().map(|r| r.matches).collect(), keys, 1))
}

fn with_keys(rules: Vec<Match>, keys: usize, seed: u64) -> (Vec<Entry<4>>, Vec<[u32; 4]>) {
    let layout = Layout::ipv4_five_tuple();
    let mut random = Random::for_purpose(seed, "keys");
    let keys = (0..keys).map(|i| {
        let mut key = layout.flow_key(&draw_key(&rules[random.index(rules.len())], &mut random));
        match i % 20 {
            // Just beside a rule, and anything.
            0 => key[random.index(4)] ^= 1 << random.below(32),
            1 => key = std::array::from_fn(|_| random.bits() as u32),
            _ => {}
        }
        key
    });
    let keys = keys.collect();
    (entries(rules.iter().map(|m| five_tuple(&layout, m))), keys)
}

/// Entries over so small a universe that they overlap all the time, in all kinds of words, with random ranks and
/// categories; and keys of that universe.
pub(crate) fn overlapping<const W: usize>(
    kinds: &[WordKind; W],
    rules: usize,
    keys: usize,
    seed: u64,
) -> (Vec<Entry<W>>, Vec<[u32; W]>) {
    let mut random = Random::for_purpose(seed, "overlapping");
    let values =
        [0, 1, 2, 3, 0x80, 0xff, 0x8000_0000, 0xffff_ffff, 0x0001_0000, 0x0001_0001, 0x7fff_ffff, 0xffff];
    let masks =
        [0, 0, 0, 1, 3, 0xff, 0xffff_ffff, 0xffff_fffe, 0xffff_0000, 0x8000_0000, 0x8000_0001, 0x00ff_00ff];
    let condition = |random: &mut Random| {
        let mut out = Condition::any(kinds);
        for (w, kind) in kinds.iter().enumerate() {
            if random.chance(0.4) {
                continue;
            }
            let (a, b) = (values[random.index(values.len())], values[random.index(values.len())]);
            (out.low[w], out.high[w]) = match kind {
                WordKind::Ternary => {
                    let mask = masks[random.index(masks.len())];
                    (a & mask, mask)
                }
                WordKind::Range32 => (a.min(b), a.max(b)),
                WordKind::Range16 => {
                    let (low, high) = ((a as u16).min(b as u16), (a as u16).max(b as u16));
                    let (low2, high2) = ((a >> 16).min(b >> 16), (a >> 16).max(b >> 16));
                    (low2 << 16 | u32::from(low), high2 << 16 | u32::from(high))
                }
            };
        }
        out
    };
    let mut out = entries((0..rules).map(|_| condition(&mut random)));
    for entry in &mut out {
        entry.rank = RankKey::new(Priority(random.below(4) as u32), entry.rule.0);
        entry.categories = random.bits() as u16 | u16::from(random.chance(0.7));
    }
    let key = |random: &mut Random| std::array::from_fn(|_| values[random.index(values.len())]);
    let keys = (0..keys).map(|_| key(&mut random)).collect();
    (out, keys)
}

/// Keys that fulfil entries of many words, which none at random does, and each with a bit turned in one of the words.
pub(super) fn near<const W: usize>(entries: &[Entry<W>], seed: u64) -> Vec<[u32; W]> {
    let mut random = Random::for_purpose(seed, "near");
    let of = |entry: &Entry<W>| {
        let mut other = entry.condition.low;
        other[random.index(W)] ^= 1 << random.below(32);
        [entry.condition.low, other]
    };
    entries.iter().flat_map(of).collect()
}
