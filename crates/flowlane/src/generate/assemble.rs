//! Puts drawn matches together to a rule set: nesting, no duplicates, order.
//!
//! A *shape* is a mask ([`Match::mask`], where a range counts in full). With the probability `overlap` a
//! drawn match is moved into an earlier rule of a shape that it strictly covers: it takes that rule's
//! values in that rule's bits, and so lies inside it. Where no such rule exists yet, it is moved around an
//! earlier rule of a larger mask instead. Its mask stays as drawn.

use super::random::Random;
use crate::deterministic_math::ln;
use crate::packet::fields::{Field, word};
use crate::packet::key::FlowMask;
use crate::rule::{Action, Match, Priority, Rule};
use std::collections::{HashMap, HashSet};

/// A mask as a key of a map: its non-zero words.
pub(super) type ShapeKey = Vec<(u8, u32)>;

/// The shape of a match.
pub(super) fn shape_key(matches: &Match) -> ShapeKey {
    let mask = matches.mask();
    mask.present_words().map(|w| (w as u8, mask.word(w))).collect()
}

/// A rule set in the making.
#[derive(Default)]
pub(super) struct Assembly {
    matches: Vec<Match>,
    seen: HashSet<Match>,
    shapes: HashMap<ShapeKey, usize>,
    by_shape: Vec<Shape>,
}

struct Shape {
    mask: FlowMask,
    rules: Vec<u32>,
    /// The shapes that this one strictly covers, and those that strictly cover it.
    wider: Vec<usize>,
    narrower: Vec<usize>,
}

impl Assembly {
    /// Number of rules so far.
    pub(super) fn len(&self) -> usize {
        self.matches.len()
    }

    /// Adds a drawn match, nested with probability `overlap`. Says whether it was new.
    pub(super) fn add(&mut self, drawn: Match, overlap: f64, random: &mut Random) -> bool {
        let shape = self.shape(&drawn);
        let nested = if random.chance(overlap) { self.nested(&drawn, shape, random) } else { None };
        [nested, Some(drawn)].into_iter().flatten().any(|candidate| self.insert(candidate, shape))
    }

    fn insert(&mut self, matches: Match, shape: usize) -> bool {
        debug_assert_eq!(self.shapes.get(&shape_key(&matches)), Some(&shape), "{matches:?}");
        if !self.seen.insert(matches.clone()) {
            return false;
        }
        self.by_shape[shape].rules.push(self.matches.len() as u32);
        self.matches.push(matches);
        true
    }

    fn shape(&mut self, matches: &Match) -> usize {
        let key = shape_key(matches);
        if let Some(&known) = self.shapes.get(&key) {
            return known;
        }
        let mask = matches.mask();
        let (mut wider, mut narrower) = (Vec::new(), Vec::new());
        let new = self.by_shape.len();
        for (i, other) in self.by_shape.iter_mut().enumerate() {
            if mask.covers(&other.mask) {
                wider.push(i);
                other.narrower.push(new);
            } else if other.mask.covers(&mask) {
                narrower.push(i);
                other.wider.push(new);
            }
        }
        self.by_shape.push(Shape { mask, rules: Vec::new(), wider, narrower });
        self.shapes.insert(key, new);
        new
    }

    /// `drawn`, moved inside an earlier rule or around one.
    fn nested(&self, drawn: &Match, shape: usize, random: &mut Random) -> Option<Match> {
        let pick = |shapes: &[usize], random: &mut Random| {
            let rules = &self.by_shape[*shapes.get(random.index(shapes.len()))?].rules;
            rules.get(random.index(rules.len())).map(|&r| &self.matches[r as usize])
        };
        // A rule that matches everything is no news, and a protocol without ports does not fit a rule
        // that has some: a few attempts.
        for _ in 0..8 {
            if let Some(parent) = pick(&self.by_shape[shape].wider, random)
                && let Some(inside) = move_inside(drawn, parent, random)
            {
                return Some(inside);
            }
        }
        move_around(drawn, pick(&self.by_shape[shape].narrower, random)?)
    }

    /// The matches, [in order](in_order).
    pub(super) fn in_order(self) -> Vec<Match> {
        in_order(self.matches)
    }
}

/// `matches` with those that match least first, so that none hides one that lies inside it.
pub(super) fn in_order(mut matches: Vec<Match>) -> Vec<Match> {
    matches.sort_by_cached_key(|m| std::cmp::Reverse(specificity(m)));
    matches
}

/// Rules of these matches, with priorities from the number of rules down to 1.
pub(super) fn prioritised(matches: Vec<Match>, mut actions: impl FnMut() -> Vec<Action>) -> Vec<Rule> {
    let count = matches.len() as u32;
    let rule = |(matches, priority): (Match, u32)| Rule {
        priority: Priority(priority),
        ..Rule::new(matches, actions())
    };
    matches.into_iter().zip((1..=count).rev()).map(rule).collect()
}

/// Returns whether a match with the conditions of both has the prerequisites of its fields.
fn agree(drawn: &Match, other: &Match) -> bool {
    let (eth, other_eth) = (drawn.get(Field::EthType), other.get(Field::EthType));
    if eth.1 != 0 && other_eth.1 != 0 && eth != other_eth {
        return false;
    }
    let looks_at_ports = drawn.mask().word(word::PORTS) != 0;
    let (protocol, mask) = other.get(Field::NwProto);
    mask == 0 || !looks_at_ports || matches!(protocol, 6 | 17 | 132)
}

fn port_range(matches: &Match, field: Field) -> Option<(u16, u16)> {
    let range = if field == Field::TpSrc { matches.tp_src_range() } else { matches.tp_dst_range() };
    range.map(|r| (r.low(), r.high()))
}

/// `drawn` with the values of `parent` in the bits that `parent` looks at.
fn move_inside(drawn: &Match, parent: &Match, random: &mut Random) -> Option<Match> {
    if parent.words().is_empty() || !agree(drawn, parent) {
        return None;
    }
    let mut out = Match::any();
    for w in drawn.words().iter().chain(parent.words()) {
        out.set_word(w.word.into(), w.value, w.mask);
    }
    for field in [Field::TpSrc, Field::TpDst] {
        let (value, mask) = parent.get(field);
        match (port_range(drawn, field), port_range(parent, field)) {
            (Some(_), Some((low, high))) => {
                out.set_range(field, low, high);
            }
            (None, Some((low, high))) => {
                out.set(field, random.port(low, high).into());
            }
            // A range inside a port or prefix: one port of it.
            (Some(_), None) if mask != 0 => {
                out.set(field, value | (u128::from(random.bits() as u16) & !mask));
            }
            (Some((low, high)), None) => {
                out.set_range(field, low, high);
            }
            (None, None) => {}
        }
    }
    Some(out)
}

/// `drawn` with the values of `child`, which looks at more, in the bits that `drawn` looks at.
fn move_around(drawn: &Match, child: &Match) -> Option<Match> {
    if !agree(drawn, child) {
        return None;
    }
    // The ports are exact or a range on the side of `child`, wherever `drawn` has one of the two.
    let looked_at = drawn.mask();
    let ranged = |field| looked_at.get(field) == 0xffff && port_range(child, field).is_some();
    let prefix = |field| !matches!(looked_at.get(field), 0 | 0xffff);
    if [Field::TpSrc, Field::TpDst].into_iter().any(|f| prefix(f) && port_range(child, f).is_some()) {
        return None; // a prefix of ports cannot be moved around a range
    }
    let (key, mut out) = (child.key(), Match::any());
    for w in drawn.words() {
        let mut mask = w.mask;
        if usize::from(w.word) == word::PORTS {
            mask &= if ranged(Field::TpSrc) { 0xffff } else { u32::MAX };
            mask &= if ranged(Field::TpDst) { 0xffff_0000 } else { u32::MAX };
        }
        out.set_word(w.word.into(), key.word(w.word.into()) & mask, mask);
    }
    for field in [Field::TpSrc, Field::TpDst] {
        match (port_range(child, field), port_range(drawn, field)) {
            (Some((low, high)), _) if ranged(field) => {
                out.set_range(field, low, high);
            }
            (None, Some((low, high))) if (low..=high).contains(&(key.get(field) as u16)) => {
                out.set_range(field, low, high);
            }
            (None, Some(_)) => {
                out.set(field, key.get(field));
            }
            _ => {}
        }
    }
    Some(out)
}

/// Larger for a match than for any other that it lies strictly inside of: the compared bits, in 10⁻⁶.
fn specificity(matches: &Match) -> i64 {
    let bits: u32 = matches.words().iter().map(|w| w.mask.count_ones()).sum();
    let range = |field| {
        port_range(matches, field)
            .map_or(0.0, |(low, high)| 16.0 - ln(f64::from(high - low) + 1.0) / std::f64::consts::LN_2)
    };
    ((f64::from(bits) + range(Field::TpSrc) + range(Field::TpDst)) * 1e6) as i64
}
