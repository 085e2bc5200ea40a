//! Shapes: the words of the flow key that a set of matches looks at.

use crate::classify::acl::{Condition, Layout, ValueError, WordKind};
use crate::packet::FlowKey;
use crate::packet::fields::word;
use crate::rule::Match;
use crate::rule::matching::MaskedWord;

/// Words that never become gates, even where all matches have equal values, because the next rule is likely to differ:
/// addresses, ports and protocol.
const VARYING: std::ops::RangeInclusive<usize> = word::IPV6_SRC..=word::IPV4_DST;

/// The words of the flow key that a set of matches looks at: those that differ become the engine's key, those that are
/// equal in all matches become *gates*, compared once a packet before the lookup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowShape {
    /// The words of the engine's key, and how each is compared. The ports may occur twice.
    pub(super) words: Vec<(u8, WordKind)>,
    /// The gates: packets that fail one match no rule.
    pub(super) gates: Vec<MaskedWord>,
}

/// Returns whether both port masks are prefixes, and so ranges.
fn ports_are_ranges(mask: u32) -> bool {
    let prefix = |mask: u32| (!mask as u16).wrapping_add(1) & !mask as u16 == 0;
    prefix(mask) && prefix(mask >> 16)
}

/// Returns the words that a match looks at, and how each is compared.
fn looked_at(matches: &Match) -> impl Iterator<Item = (MaskedWord, WordKind)> {
    let kind = |w: &MaskedWord| match usize::from(w.word) == word::PORTS && ports_are_ranges(w.mask) {
        true => WordKind::Range16,
        false => WordKind::Ternary,
    };
    let ranges = matches.tp_src_range().is_some() || matches.tp_dst_range().is_some();
    let ranges =
        ranges.then_some((MaskedWord { word: word::PORTS as u8, value: 0, mask: 0 }, WordKind::Range16));
    matches.words().iter().map(move |w| (*w, kind(w))).chain(ranges)
}

impl FlowShape {
    /// Returns the shape of these matches.
    pub fn of<'a>(all: impl Iterator<Item = &'a Match> + Clone) -> Self {
        let mut out = Self::default();
        let Some(first) = all.clone().next() else { return out };
        let may_be_gate = |w: &&MaskedWord| !VARYING.contains(&usize::from(w.word));
        out.gates = first.words().iter().filter(may_be_gate).copied().collect();
        out.gates.retain(|gate| all.clone().all(|matches| matches.words().contains(gate)));
        for (asked, kind) in all.flat_map(looked_at) {
            if !out.gates.contains(&asked) && !out.words.contains(&(asked.word, kind)) {
                out.words.push((asked.word, kind));
            }
        }
        out.words.sort_by_key(|(word, kind)| (*word, *kind == WordKind::Ternary));
        out
    }

    /// Returns the number of words of the engine's key.
    pub fn width(&self) -> usize {
        self.words.len()
    }

    /// Returns the layout of keys of this shape.
    ///
    /// # Panics
    /// Where the shape is wider than `W`.
    pub fn layout<const W: usize>(&self) -> Layout<W> {
        Layout::of_words_as(&self.words)
    }

    /// Compiles a match into a condition on keys of this shape.
    ///
    /// # Errors
    /// Where the match does not [suit](Self::suits) the shape.
    pub fn condition<const W: usize>(
        &self,
        layout: &Layout<W>,
        matches: &Match,
    ) -> Result<Condition<W>, ValueError> {
        layout.flow_condition(&self.beyond_gates(matches))
    }

    /// Returns whether a packet passes all gates. Others match no rule.
    #[inline(always)]
    pub fn passes(&self, key: &FlowKey) -> bool {
        self.stopped_by(key).is_none()
    }

    /// Returns whether a match can be compiled for this shape.
    pub fn suits(&self, matches: &Match) -> bool {
        let has = |(asked, kind): (MaskedWord, WordKind)| {
            self.gates.contains(&asked) || self.words.contains(&(asked.word, kind))
        };
        self.gates.iter().all(|gate| matches.words().contains(gate)) && looked_at(matches).all(has)
    }

    /// Returns the match without the gates.
    fn beyond_gates(&self, matches: &Match) -> Match {
        let mut out = Match::any();
        for asked in matches.words().iter().filter(|w| !self.gates.contains(w)) {
            out.set_word(asked.word.into(), asked.value, asked.mask);
        }
        out.with_ranges_of(matches)
    }

    /// Returns the first gate that this key fails.
    #[inline(always)]
    pub(super) fn stopped_by(&self, key: &FlowKey) -> Option<&MaskedWord> {
        self.gates.iter().find(|gate| key.word(gate.word.into()) & gate.mask != gate.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Field;

    fn five_tuple(port: u16) -> Match {
        let mut m = Match::any();
        m.set(Field::EthType, 0x0800).set(Field::NwProto, 6).set(Field::Ipv4Dst, 0x0a00_0001);
        m.set_masked(Field::Ipv4Src, 0x0a00_0000, 0xff00_0000).set_range(Field::TpDst, port, 5000);
        m
    }

    #[test]
    fn ipv4_five_tuples_have_four_words_and_a_gate() {
        let rules = [five_tuple(1), five_tuple(2)];
        let shape = FlowShape::of(rules.iter());
        let words: Vec<usize> = shape.words.iter().map(|(w, _)| usize::from(*w)).collect();
        assert_eq!(words, [word::PORTS, word::NW_PROTO, word::IPV4_SRC, word::IPV4_DST]);
        assert_eq!(shape.gates.len(), 1);
        assert!(shape.suits(&rules[0]) && !shape.suits(&Match::any()));
    }

    #[test]
    fn ports_under_a_mask_that_is_no_prefix_have_a_word_of_their_own() {
        let mut odd = five_tuple(1);
        odd.set_masked(Field::TpSrc, 1, 1);
        let rules = [five_tuple(1), odd.clone()];
        let shape = FlowShape::of(rules.iter());
        assert_eq!(shape.words.len(), 5);
        assert!(shape.suits(&odd) && !FlowShape::of(rules[..1].iter()).suits(&odd));
    }
}
