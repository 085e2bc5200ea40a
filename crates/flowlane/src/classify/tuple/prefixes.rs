//! Prefix tracking: the prefixes that the rules of a table use, per field and length.

use std::collections::BTreeMap;

use crate::packet::Field;
use crate::packet::key::{FlowKey, FlowMask};

/// Number of fields whose prefixes are tracked.
pub(super) const TRACKED: usize = 6;

const FIELDS: [Field; TRACKED] =
    [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst, Field::TpSrc, Field::TpDst];

/// The prefixes in use, with the number of masked keys that use each: by field, then length, then value.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixTracker {
    fields: [BTreeMap<u8, BTreeMap<u128, u32>>; TRACKED],
}

/// Returns the prefix length of each tracked field under `mask`, where its bits are a prefix that is not empty.
pub(super) fn lengths(mask: &FlowMask) -> [Option<u8>; TRACKED] {
    FIELDS.map(|field| {
        let bits = mask.get(field) << (128 - u32::from(field.info().width));
        let length = bits.leading_ones();
        (length > 0 && length == bits.count_ones()).then_some(length as u8)
    })
}

/// Returns the value of a field, shifted to the top of 128 bits.
fn top_aligned(key: &FlowKey, field: Field) -> u128 {
    key.get(field) << (128 - u32::from(field.info().width))
}

fn prefix_mask(length: u8) -> u128 {
    u128::MAX << (128 - u32::from(length))
}

impl PrefixTracker {
    /// Adds the prefixes of a masked key.
    pub(super) fn add(&mut self, key: &FlowKey, lengths: &[Option<u8>; TRACKED]) {
        for (i, length) in lengths.iter().enumerate() {
            if let Some(length) = *length {
                let of_length = self.fields[i].entry(length).or_default();
                *of_length.entry(top_aligned(key, FIELDS[i])).or_default() += 1;
            }
        }
    }

    /// Removes the prefixes of a masked key that was added.
    pub(super) fn remove(&mut self, key: &FlowKey, lengths: &[Option<u8>; TRACKED]) {
        for (i, length) in lengths.iter().enumerate() {
            let Some(length) = *length else { continue };
            let of_length = self.fields[i].get_mut(&length).expect("added before");
            let value = top_aligned(key, FIELDS[i]);
            let count = of_length.get_mut(&value).expect("added before");
            *count -= 1;
            if *count == 0 {
                of_length.remove(&value);
                if of_length.is_empty() {
                    self.fields[i].remove(&length);
                }
            }
        }
    }

    /// Returns the bits of a field that show that no rule of a subtable matches `key`: those of the longest agreement with any prefix of
    /// the subtable's length there, and the one that differs. Of several fields, that with the fewest bits that are not in
    /// `looked_at`; none if all have at least `below`.
    pub(super) fn difference(
        &self,
        key: &FlowKey,
        lengths: &[Option<u8>; TRACKED],
        looked_at: &FlowMask,
        mut below: u32,
    ) -> Option<(Field, u128)> {
        let mut fewest = None;
        for (i, length) in lengths.iter().enumerate() {
            if below == 0 {
                break;
            }
            let Some(length) = *length else { continue };
            let value = top_aligned(key, FIELDS[i]) & prefix_mask(length);
            let of_length = self.fields[i].get(&length).expect("the subtable's keys are tracked");
            let agreement = |other: &u128| (other ^ value).leading_zeros();
            let before = of_length.range(..=value).next_back().map_or(0, |(v, _)| agreement(v));
            if before >= u32::from(length) {
                // It is one of the prefixes.
                continue;
            }
            let after = of_length.range(value..).next().map_or(0, |(v, _)| agreement(v));
            let longest = before.max(after);
            let width = u32::from(FIELDS[i].info().width);
            let bits = prefix_mask(longest as u8 + 1) >> (128 - width);
            let new = (bits & !looked_at.get(FIELDS[i])).count_ones();
            if new < below {
                (fewest, below) = (Some((FIELDS[i], bits)), new);
            }
        }
        fewest
    }

    /// Returns the bytes allocated, estimated: a B-tree node holds 11 pairs and is about two thirds full.
    pub(super) fn table_bytes(&self) -> usize {
        let pairs: usize = self.fields.iter().flat_map(|f| f.values()).map(BTreeMap::len).sum();
        pairs * (size_of::<(u128, u32)>() * 3 / 2)
    }
}
