//! The packets that a rule is for: masked words, and ranges on the transport ports.

use std::sync::Arc;

use crate::error::Error;
use crate::packet::fields::{Field, word};
use crate::packet::key::{FlowKey, FlowMask};

/// A range of ports, both ends included, that is neither one port nor a prefix nor everything:
/// those are kept as masks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// The ports from `low` to `high`.
    ///
    /// # Panics
    /// Where `low` is larger.
    #[doc(hidden)]
    pub fn new(low: u16, high: u16) -> Self {
        assert!(low <= high, "a range begins with its smallest port");
        Self { low, high }
    }

    /// The smallest port.
    pub fn low(&self) -> u16 {
        self.low
    }

    /// The largest port.
    pub fn high(&self) -> u16 {
        self.high
    }

    /// Returns whether `port` lies in the range.
    #[inline(always)]
    pub fn contains(&self, port: u16) -> bool {
        port.wrapping_sub(self.low) <= self.high - self.low
    }

    /// The bits of `port` that show whether it lies in the range: the mask of the shortest prefix of it
    /// whose ports all lie inside, or all outside.
    #[doc(hidden)]
    pub fn deciding_bits(&self, port: u16) -> u16 {
        let masks = (0..=16).rev().map(|bits| (0xffff_u32 << bits) as u16);
        let decides = |mask: &u16| {
            let (first, last) = (port & mask, port | !mask);
            let inside = self.low <= first && last <= self.high;
            inside || last < self.low || self.high < first
        };
        masks.into_iter().find(decides).unwrap_or(u16::MAX)
    }

    /// The bits that are the same in all of its ports: the mask of the longest prefix that it lies in.
    fn common_bits(&self) -> u16 {
        !(u16::MAX.checked_shr((self.low ^ self.high).leading_zeros()).unwrap_or(0))
    }

    /// The fewest prefixes that cover the range exactly: (value, mask), ascending.
    #[doc(hidden)]
    pub fn prefixes(&self) -> Vec<(u16, u16)> {
        let mut out = Vec::new();
        let mut at = u32::from(self.low);
        let end = u32::from(self.high) + 1;
        while at < end {
            // The largest aligned block that starts here and does not pass the end.
            let aligned = if at == 0 { 16 } else { at.trailing_zeros() };
            let fitting = (end - at).ilog2();
            let bits = aligned.min(fitting);
            out.push((at as u16, (0xffff_u32 << bits) as u16));
            at += 1 << bits;
        }
        out
    }
}

/// One word of a match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MaskedWord {
    /// Index of the word in the key.
    pub word: u8,
    /// The value that is wanted; no bit outside `mask`.
    pub value: u32,
    /// The bits that are compared; never 0.
    pub mask: u32,
}

/// A condition on a flow key: bits that must have given values, and ranges that the ports must lie in.
///
/// The text of a rule asks for the packets that have its fields: see [`check`](Self::check), which a classifier calls.
///
/// Only words that are looked at are stored, in ascending order, so that equal conditions compare equal. Copies share them until one is
/// changed: a switch has a rule's condition in several indexes.
///
/// ```
/// use flowlane::{Field, Match};
///
/// let mut web = Match::any();
/// web.set(Field::EthType, 0x0800).set(Field::NwProto, 6).set_range(Field::TpDst, 80, 90);
/// let mut key = web.key(); // what it asks for, but for the range
/// key.set(Field::TpDst, 88);
/// assert!(web.matches(&key));
/// key.set(Field::TpDst, 443);
/// assert!(!web.matches(&key));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Match {
    conditions: Arc<Conditions>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Conditions {
    words: Vec<MaskedWord>,
    tp_src: Option<PortRange>,
    tp_dst: Option<PortRange>,
}

impl Match {
    /// Matches every packet.
    pub fn any() -> Self {
        Self::default()
    }

    /// The words that are compared, ascending.
    #[doc(hidden)]
    pub fn words(&self) -> &[MaskedWord] {
        &self.conditions.words
    }

    /// The range that `tp_src` must lie in, where there is one that is no prefix.
    pub fn tp_src_range(&self) -> Option<PortRange> {
        self.conditions.tp_src
    }

    /// The range that `tp_dst` must lie in, where there is one that is no prefix.
    pub fn tp_dst_range(&self) -> Option<PortRange> {
        self.conditions.tp_dst
    }

    /// Requires `field` to equal `value` in the bits of `mask` (right-aligned). Earlier requirements
    /// on the same bits are replaced; so is a port's range.
    ///
    /// # Panics
    /// Where `value` has bits in `mask` that the field does not have.
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) -> &mut Self {
        field.info().assert_fits(value & mask);
        match field {
            Field::TpSrc if mask != 0 => Arc::make_mut(&mut self.conditions).tp_src = None,
            Field::TpDst if mask != 0 => Arc::make_mut(&mut self.conditions).tp_dst = None,
            _ => {}
        }
        for (word, value, mask) in field.info().spread(value, mask) {
            self.set_word(word, value, mask);
        }
        self
    }

    /// Requires `field` to equal `value`. For values that come from outside, [`try_set`](Self::try_set) returns an error instead of
    /// a panic.
    ///
    /// # Panics
    /// Where `value` is larger than the field.
    pub fn set(&mut self, field: Field, value: u128) -> &mut Self {
        self.set_masked(field, value, u128::MAX)
    }

    /// Requires `field` to equal a `value` that may be too large for it.
    ///
    /// ```
    /// use flowlane::{Field, Match};
    ///
    /// let mut web = Match::any();
    /// web.try_set(Field::EthType, 0x0800)?.try_set(Field::NwProto, 6)?.try_set_range(Field::TpDst, 80, 90)?;
    /// let error = web.try_set(Field::TpDst, 70_000).unwrap_err();
    /// assert_eq!(error.to_string(), "70000 does not fit into the 16 bits of tp_dst; the largest value is 65535");
    /// assert_eq!(web.to_string(), "tcp,tp_dst=80-90");
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): `value` is larger than the field; nothing has changed then.
    pub fn try_set(&mut self, field: Field, value: u128) -> Result<&mut Self, Error> {
        self.try_set_masked(field, value, u128::MAX)
    }

    /// Requires `field` to equal `value` in the bits of `mask`, as [`set_masked`](Self::set_masked) does.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): `value` has bits in `mask` that the field does not have, or `mask` has, and is not all
    /// ones; nothing has changed then.
    pub fn try_set_masked(&mut self, field: Field, value: u128, mask: u128) -> Result<&mut Self, Error> {
        field.info().check_masked(value, mask)?;
        Ok(self.set_masked(field, value, mask))
    }

    /// Requires `tp_src` (or `tp_dst`) to lie in `low..=high`, as [`set_range`](Self::set_range) does.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): `low > high`, or `field` is neither of the two; nothing has changed then.
    pub fn try_set_range(&mut self, field: Field, low: u16, high: u16) -> Result<&mut Self, Error> {
        if !matches!(field, Field::TpSrc | Field::TpDst) {
            return Err(Error::input(format!("{field} takes no range; tp_src and tp_dst do")));
        }
        if low > high {
            let problem = "write the smaller port first";
            return Err(Error::input(format!(
                "{field}: port range {low}-{high} is empty; {problem} ({high}-{low})"
            )));
        }
        Ok(self.set_range(field, low, high))
    }

    /// Requires word `word` of the key to equal `value` in the bits of `mask`, in addition to earlier conditions
    /// on its other bits.
    #[doc(hidden)]
    pub fn set_word(&mut self, word: usize, value: u32, mask: u32) -> &mut Self {
        if mask == 0 {
            return self;
        }
        let words = &mut Arc::make_mut(&mut self.conditions).words;
        match words.binary_search_by_key(&(word as u8), |w| w.word) {
            Ok(i) => {
                let w = &mut words[i];
                w.value = (w.value & !mask) | (value & mask);
                w.mask |= mask;
            }
            Err(i) => words.insert(i, MaskedWord { word: word as u8, value: value & mask, mask }),
        }
        self
    }

    /// Requires `tp_src` (or `tp_dst`) to lie in `low..=high`, whatever was required of it before: a port has a
    /// range or a mask, never both. A range that is one port, a prefix or everything becomes a mask.
    ///
    /// # Panics
    /// Where `low > high`, or `field` is neither of the two; readers refuse both.
    pub fn set_range(&mut self, field: Field, low: u16, high: u16) -> &mut Self {
        assert!(low <= high, "port range {low}-{high} is empty");
        let Conditions { words, tp_src, tp_dst } = Arc::make_mut(&mut self.conditions);
        let (range, shift) = match field {
            Field::TpSrc => (tp_src, 16),
            Field::TpDst => (tp_dst, 0),
            other => panic!("{other:?} takes no range"),
        };
        let size = u32::from(high - low) + 1;
        let prefix = size.is_power_of_two() && u32::from(low) & (size - 1) == 0;
        *range = (!prefix).then_some(PortRange { low, high });
        for masked in words.iter_mut().filter(|w| usize::from(w.word) == word::PORTS) {
            let others = !(0xffff << shift);
            (masked.value, masked.mask) = (masked.value & others, masked.mask & others);
        }
        words.retain(|w| w.mask != 0);
        if prefix {
            let mask = !(size - 1) & 0xffff;
            self.set_masked(field, low.into(), mask.into());
        }
        self
    }

    /// Returns this condition's words with the port ranges of `other`.
    pub(crate) fn with_ranges_of(mut self, other: &Match) -> Self {
        let own = Arc::make_mut(&mut self.conditions);
        (own.tp_src, own.tp_dst) = (other.conditions.tp_src, other.conditions.tp_dst);
        self
    }

    /// The conditions on IPv4 addresses, protocol and ports, without the others (that packets are IPv4, say).
    #[doc(hidden)]
    pub fn ipv4_five_tuple(&self) -> Self {
        let mut out = Self::any();
        for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::NwProto, Field::TpSrc, Field::TpDst] {
            let (value, mask) = self.get(field);
            out.set_masked(field, value, mask);
        }
        for (field, range) in [(Field::TpSrc, self.tp_src_range()), (Field::TpDst, self.tp_dst_range())] {
            range.map(|r| out.set_range(field, r.low(), r.high()));
        }
        out
    }

    /// The value and mask required of `field`, right-aligned. A range counts as no requirement.
    pub fn get(&self, field: Field) -> (u128, u128) {
        let (mut value, mut mask) = (0u128, 0u128);
        for (word, shift, width) in field.info().pieces() {
            let bits = |of: u32| u128::from((u64::from(of) >> shift) & ((1u64 << width) - 1));
            let found = self.conditions.words.iter().find(|w| usize::from(w.word) == word);
            value = value << width | found.map_or(0, |w| bits(w.value));
            mask = mask << width | found.map_or(0, |w| bits(w.mask));
        }
        (value, mask)
    }

    /// Returns whether no key that agrees with `key` in the bits of `mask` can match. Exact, but where a port has a range here and
    /// a mask there that is no prefix, or both here, or nothing can match at all: then it may be denied although it is so.
    #[doc(hidden)]
    pub fn is_disjoint(&self, key: &FlowKey, mask: &FlowMask) -> bool {
        let words = self.conditions.words.iter().any(|w| {
            let word = usize::from(w.word);
            (key.word(word) ^ w.value) & w.mask & mask.word(word) != 0
        });
        let mut ranges = self.ranges().into_iter().filter_map(|(range, shift)| Some((range?, shift)));
        words
            || ranges.any(|(range, shift)| {
                let mask = (mask.word(word::PORTS) >> shift) as u16;
                let first = (key.word(word::PORTS) >> shift) as u16 & mask;
                (first | !mask) < range.low || range.high < first
            })
    }

    /// Returns whether every key that matches this condition matches `other`, too: each of its conditions is one of this, or follows from
    /// a range. Exact, but where a port has a range and a mask at once, or nothing can match: then it may be denied
    /// although it is so.
    pub fn is_within(&self, other: &Match) -> bool {
        let asked = other.words().iter().all(|w| {
            let (value, mask) = self.asked(w.word.into());
            w.mask & !mask == 0 && (value ^ w.value) & w.mask == 0
        });
        let inside = |((own, shift), (range, _)): ((Option<PortRange>, u32), (Option<PortRange>, u32))| {
            let Some(range) = range else { return true };
            let (value, mask) = self.asked(word::PORTS);
            let (first, mask) = ((value >> shift) as u16, (mask >> shift) as u16);
            let (low, high) = own.map_or((0, u16::MAX), |r| (r.low, r.high));
            range.low <= first.max(low) && (first | !mask).min(high) <= range.high
        };
        asked && self.ranges().into_iter().zip(other.ranges()).all(inside)
    }

    /// The ranges of both ports, and where the ports begin in their word.
    fn ranges(&self) -> [(Option<PortRange>, u32); 2] {
        [(self.conditions.tp_src, 16), (self.conditions.tp_dst, 0)]
    }

    /// The value and the mask of the bits of word `word` that are the same in every key that matches.
    fn asked(&self, word: usize) -> (u32, u32) {
        let found = self.conditions.words.binary_search_by_key(&word, |w| w.word.into());
        let (mut value, mut mask) =
            found.map_or((0, 0), |at| (self.conditions.words[at].value, self.conditions.words[at].mask));
        for (range, shift) in self.ranges() {
            if let Some(range) = range.filter(|_| word == word::PORTS) {
                let bits = u32::from(range.common_bits()) << shift;
                value |= u32::from(range.low) << shift & bits;
                mask |= bits;
            }
        }
        (value, mask)
    }

    /// Returns whether `key` fulfils the condition. This is the definition that every engine is tested against.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        let words = key.words();
        self.conditions.words.iter().all(|w| words[usize::from(w.word)] & w.mask == w.value)
            && self.ranges_match(key)
    }

    /// Adds the bits of `key` that show whether its ports lie in the ranges; where one does not, its bits
    /// alone.
    #[doc(hidden)]
    pub fn add_range_bits(&self, key: &FlowKey, looked_at: &mut FlowMask) {
        add_range_bits(self.conditions.tp_src, self.conditions.tp_dst, key, looked_at);
    }

    /// Returns whether the ports of `key` lie in the ranges.
    #[doc(hidden)]
    #[inline]
    pub fn ranges_match(&self, key: &FlowKey) -> bool {
        let ports = key.word(word::PORTS);
        self.conditions.tp_src.is_none_or(|r| r.contains((ports >> 16) as u16))
            && self.conditions.tp_dst.is_none_or(|r| r.contains(ports as u16))
    }

    /// The values that are wanted, as a key.
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::zero();
        self.conditions.words.iter().for_each(|w| key.or_word(w.word.into(), w.value));
        key
    }

    /// The bits that are compared with a value: all but those of ranges.
    #[doc(hidden)]
    pub fn word_mask(&self) -> FlowMask {
        let mut mask = FlowMask::zero();
        self.conditions.words.iter().for_each(|w| mask.or_word(w.word.into(), w.mask));
        mask
    }

    /// The bits that are looked at; ranges count in full.
    pub fn mask(&self) -> FlowMask {
        let mut mask = self.word_mask();
        if self.conditions.tp_src.is_some() {
            mask.or_word(word::PORTS, 0xffff_0000);
        }
        if self.conditions.tp_dst.is_some() {
            mask.or_word(word::PORTS, 0xffff);
        }
        mask
    }

    /// The condition `key` under `mask`.
    #[doc(hidden)]
    pub fn from_key(key: &FlowKey, mask: &FlowMask) -> Self {
        let mut out = Self::any();
        for w in mask.present_words() {
            out.set_word(w, key.word(w), mask.word(w));
        }
        out
    }

    /// Expands ranges to prefixes: one match for each combination of the prefixes that the
    /// ranges fall into. At most 30 × 30; one where there is no range.
    #[doc(hidden)]
    pub fn expand_ranges(&self) -> Vec<Match> {
        let cover = |range: Option<PortRange>| range.map_or_else(|| vec![(0, 0)], |r| r.prefixes());
        let mut out = Vec::new();
        for &(src, src_mask) in &cover(self.conditions.tp_src) {
            for &(dst, dst_mask) in &cover(self.conditions.tp_dst) {
                let words = self.conditions.words.clone();
                let mut one =
                    Match { conditions: Arc::new(Conditions { words, tp_src: None, tp_dst: None }) };
                one.set_masked(Field::TpSrc, src.into(), src_mask.into());
                one.set_masked(Field::TpDst, dst.into(), dst_mask.into());
                out.push(one);
            }
        }
        out
    }
}

/// Returns whether the ports of `key` lie in two ranges, where there are any, and adds the bits that show it: of a port
/// that does not, only its own.
pub(crate) fn add_range_bits(
    tp_src: Option<PortRange>,
    tp_dst: Option<PortRange>,
    key: &FlowKey,
    looked_at: &mut FlowMask,
) -> bool {
    let ports = key.word(word::PORTS);
    let sides = [(tp_src, (ports >> 16) as u16, 16), (tp_dst, ports as u16, 0)];
    let bits = |range: PortRange, port, shift| u32::from(range.deciding_bits(port)) << shift;
    for (range, port, shift) in sides {
        if let Some(range) = range.filter(|r| !r.contains(port)) {
            looked_at.or_word(word::PORTS, bits(range, port, shift));
            return false;
        }
    }
    for (range, port, shift) in sides {
        if let Some(range) = range {
            looked_at.or_word(word::PORTS, bits(range, port, shift));
        }
    }
    true
}

#[cfg(test)]
mod laws;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Action;

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for info in Field::all().iter().filter(|info| info.width < 128) {
            let (field, most) = (info.field, info.ones());
            assert_eq!(Match::any().set(field, most).get(field), (most, most));
            let set = || _ = Match::any().set(field, most + 1);
            assert!(std::panic::catch_unwind(set).is_err(), "{}", info.name);
            let set = || _ = Match::any().set_masked(field, most + 1, u128::MAX);
            assert!(std::panic::catch_unwind(set).is_err(), "{}", info.name);
            let set = || FlowKey::zero().set(field, most + 1);
            assert!(std::panic::catch_unwind(set).is_err(), "{}", info.name);
            let (mut key, mut mask, mut matches) = (FlowKey::zero(), FlowMask::zero(), Match::any());
            for refused in [
                key.try_set(field, most + 1),
                key.try_set_masked(field, most + 1, u128::MAX),
                key.try_set_masked(field, 0, most + 1),
                mask.try_set(field, most + 1),
                matches.try_set(field, most + 1).map(drop),
                matches.try_set_masked(field, most + 1, u128::MAX).map(drop),
                matches.try_set_masked(field, 0, most + 1).map(drop),
                Action::try_set_field(field, most + 1, most).map(drop),
                Action::try_set_field(field, 0, most + 1).map(drop),
            ] {
                let refused = refused.unwrap_err().to_string();
                let largest =
                    refused.contains(&format!(" {most}")) || refused.contains(&format!("{most:#x}"));
                assert!(refused.contains(info.name) && largest, "{refused}");
            }
            assert!(key == FlowKey::zero() && mask == FlowMask::zero() && matches == Match::any());
            key.try_set(field, most).unwrap();
            assert_eq!(matches.try_set(field, most).unwrap().key(), key);
        }
        let refused = Match::any().try_set_range(Field::TpDst, 443, 80).unwrap_err().to_string();
        assert_eq!(refused, "tp_dst: port range 443-80 is empty; write the smaller port first (80-443)");
        let refused = Match::any().try_set_range(Field::NwTtl, 1, 2).unwrap_err().to_string();
        assert_eq!(refused, "nw_ttl takes no range; tp_src and tp_dst do");
        // A mask may be all ones for any field.
        assert_eq!(Match::any().set_masked(Field::TpDst, 80, u128::MAX), Match::any().set(Field::TpDst, 80));
    }

    #[test]
    fn prefixes_cover_a_range_exactly() {
        for (low, high) in [(0, 65534), (1, 65535), (1024, 65535), (100, 200), (5, 6), (7, 8), (1, 65534)] {
            let prefixes = PortRange { low, high }.prefixes();
            for port in 0..=u16::MAX {
                let hits = prefixes.iter().filter(|(v, m)| port & m == *v).count();
                assert_eq!(hits, usize::from((low..=high).contains(&port)), "{low}-{high} at {port}");
            }
            assert!(prefixes.len() <= 30);
        }
    }

    #[test]
    fn a_range_that_is_a_prefix_becomes_a_mask() {
        let mut m = Match::any();
        m.set_range(Field::TpDst, 1024, 2047);
        assert_eq!(m.tp_dst_range(), None);
        assert_eq!(m.get(Field::TpDst), (1024, 0xfc00));
        let mut everything = Match::any();
        everything.set_range(Field::TpSrc, 0, 65535);
        assert_eq!(everything, Match::any());
    }

    #[test]
    fn expansion_matches_the_same_packets() {
        let mut m = Match::any();
        m.set_range(Field::TpSrc, 10, 13).set_range(Field::TpDst, 100, 200).set(Field::NwProto, 17);
        let expanded = m.expand_ranges();
        for src in 0..20u16 {
            for dst in 90..210u16 {
                let mut key = FlowKey::zero();
                key.set(Field::TpSrc, src.into());
                key.set(Field::TpDst, dst.into());
                key.set(Field::NwProto, 17);
                assert_eq!(m.matches(&key), expanded.iter().any(|e| e.matches(&key)), "{src} {dst}");
            }
        }
    }

    #[test]
    fn what_is_said_last_of_a_port_counts() {
        let range = |m: &mut Match| _ = m.set_range(Field::TpDst, 50, 90);
        let value = |m: &mut Match| _ = m.set(Field::TpDst, 53);
        let other = |m: &mut Match| _ = m.set(Field::TpSrc, 7).set(Field::NwProto, 17);
        let made = |steps: &[&dyn Fn(&mut Match)]| {
            let mut m = Match::any();
            steps.iter().for_each(|step| step(&mut m));
            m
        };
        assert_eq!(made(&[&value, &other, &range]), made(&[&other, &range]));
        assert_eq!(made(&[&range, &other, &value]), made(&[&other, &value]));
        let all = |m: &mut Match| _ = m.set_range(Field::TpDst, 0, 65535);
        assert_eq!(made(&[&value, &all]), Match::any());
        assert_eq!(made(&[&range, &all]), Match::any());
    }

    #[test]
    fn a_five_tuple_asks_nothing_of_other_fields() {
        let mut tuple = Match::any();
        tuple.set_masked(Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000).set(Field::NwProto, 6);
        tuple.set_range(Field::TpSrc, 1024, 65_000).set(Field::TpDst, 443);
        let mut more = tuple.clone();
        more.set(Field::EthType, 0x0800).set(Field::InPort, 3);
        assert_eq!(more.ipv4_five_tuple(), tuple);
        assert_ne!(more, tuple);
    }
}
