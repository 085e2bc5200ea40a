//! Which field tells most about rules that look at few.

use std::collections::HashSet;

use super::one_of_every;
use super::ternary::Ternary;
use crate::classify::acl::WordKind;
use crate::classify::acl::tree::field::Field;

/// Least bits of a field that a rule must have to be specific about it.
const BITS_TOLD_MIN: u32 = 8;

/// Rules that a field is chosen by.
const SAMPLE_RULES: usize = 4096;

impl Field {
    pub(super) fn is_told_by<const W: usize>(self, rule: &Ternary<W>) -> bool {
        (rule.mask[self.word] & self.bits()).count_ones() >= BITS_TOLD_MIN
    }

    /// Returns the field that separates most rules: the number of rules specific about it, times the bits that number what they
    /// say there.
    pub(super) fn telling_most<const W: usize>(kinds: &[WordKind; W], rules: &[Ternary<W>]) -> Option<Self> {
        let step = rules.len().div_ceil(SAMPLE_RULES);
        let told = |field: Self| {
            let of = one_of_every(step, rules).filter(|rule| field.is_told_by(*rule));
            let of =
                of.map(|rule| (rule.value[field.word] & field.bits(), rule.mask[field.word] & field.bits()));
            let all: Vec<(u32, u32)> = of.collect();
            let different = all.iter().collect::<HashSet<_>>().len();
            all.len() as f64 * (different.max(1) as f64).log2()
        };
        let best = Self::all(kinds).map(|field| (field, told(field))).max_by(|a, b| a.1.total_cmp(&b.1));
        best.filter(|(_, told)| *told > 0.0).map(|(field, _)| field)
    }
}
