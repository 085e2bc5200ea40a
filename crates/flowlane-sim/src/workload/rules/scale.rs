//! Derived rules and packets: fewer or more of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use flowlane::generate::Random;
use flowlane::packet::fields::{Field, word};
use flowlane::packet::key::FlowKey;
use flowlane::rule::Match;

/// Words of addresses, which distinguish copies of rules and packets.
const ADDRESSES: [usize; 10] = [
    word::IPV4_SRC,
    word::IPV4_DST,
    word::IPV6_SRC,
    word::IPV6_SRC + 1,
    word::IPV6_SRC + 2,
    word::IPV6_SRC + 3,
    word::IPV6_DST,
    word::IPV6_DST + 1,
    word::IPV6_DST + 2,
    word::IPV6_DST + 3,
];

/// Returns a random sample of the rules, in their order.
pub fn sampled(rules: &[Match], count: usize, seed: u64) -> Vec<Match> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    Random::for_purpose(seed, "sampled rules").shuffle(&mut order);
    let kept: BTreeSet<usize> = order.into_iter().take(count).collect();
    kept.into_iter().map(|n| rules[n].clone()).collect()
}

/// Maps a rule's words: `change` takes word, value and mask to value and mask.
fn changed(rule: &Match, mut change: impl FnMut(usize, u32, u32) -> (u32, u32)) -> Match {
    let mut out = Match::any();
    for w in rule.words() {
        let (value, mask) = change(usize::from(w.word), w.value, w.mask);
        out.set_word(usize::from(w.word), value, mask);
    }
    let ranges = [(Field::TpSrc, rule.tp_src_range()), (Field::TpDst, rule.tp_dst_range())];
    for (field, range) in ranges {
        if let Some(range) = range {
            out.set_range(field, range.low(), range.high());
        }
    }
    out
}

/// Returns copies of each rule with other addresses under the same masks, and packets with the addresses of one of
/// the copies; rules without addresses are not copied.
pub fn copied(rules: &[Match], packets: &[FlowKey], copies: usize, seed: u64) -> (Vec<Match>, Vec<FlowKey>) {
    let mut random = Random::for_purpose(seed, "copied rules");
    let mut offsets = vec![[0u32; ADDRESSES.len()]];
    offsets.extend((1..copies).map(|_| std::array::from_fn(|_| random.bits() as u32)));
    let offset = |copy: usize, at: usize| {
        ADDRESSES.iter().position(|word| *word == at).map_or(0, |n| offsets[copy][n])
    };
    let mut known = HashSet::new();
    let mut more = Vec::with_capacity(rules.len() * copies);
    for rule in rules {
        for copy in 0..copies {
            let other = changed(rule, |word, value, mask| (value ^ offset(copy, word) & mask, mask));
            if known.insert(other.clone()) {
                more.push(other);
            }
        }
    }
    let moved = |key: &FlowKey| {
        let (copy, mut key) = (random.index(copies), key.clone());
        let present = key.present();
        for word in ADDRESSES.into_iter().filter(|word| present.contains(*word)) {
            key.set_word(word, key.word(word) ^ offset(copy, word));
        }
        key
    };
    (more, packets.iter().map(moved).collect())
}

fn mask_of(rule: &Match) -> Vec<(u8, u32)> {
    rule.words().iter().map(|w| (w.word, w.mask)).collect()
}

/// Returns the rules of the masks with the most rules.
pub fn with_masks(rules: &[Match], masks: usize) -> Vec<Match> {
    let mut sizes: HashMap<Vec<(u8, u32)>, usize> = HashMap::new();
    rules.iter().for_each(|rule| *sizes.entry(mask_of(rule)).or_default() += 1);
    let mut order: Vec<_> = sizes.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let kept: HashSet<_> = order.into_iter().take(masks).map(|(mask, _)| mask).collect();
    rules.iter().filter(|rule| kept.contains(&mask_of(rule))).cloned().collect()
}

/// Returns the rules, followed by copies with address prefixes shorter by up to `bits` bits unless another rule has
/// them: more masks.
pub fn narrowed(rules: &[Match], bits: u32) -> Vec<Match> {
    let mut known: HashSet<Match> = rules.iter().cloned().collect();
    let mut out = rules.to_vec();
    for less in 1..=bits {
        for rule in rules {
            let other = changed(rule, |word, value, mask| {
                let shorter = if ADDRESSES.contains(&word) { mask << less } else { mask };
                (value & shorter, shorter)
            });
            if known.insert(other.clone()) {
                out.push(other);
            }
        }
    }
    out
}
