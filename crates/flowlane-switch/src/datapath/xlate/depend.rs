//! The bits of the key that a path depends on.

use flowlane::packet::fields::Field;
use flowlane::packet::key::FlowMask;

use super::TrackedKey;
use crate::packet::Shown;
use crate::packet::edit;

impl TrackedKey {
    /// Adds bits of the current key that the path depends on to the mask.
    pub(super) fn depend_on(&mut self, looked_at: &FlowMask) {
        self.asked += 1;
        for w in looked_at.present_words() {
            self.mask.or_word(w, looked_at.word(w) & !self.written.word(w));
        }
        let derived: Vec<Field> = self.derived.iter().copied().filter(|&f| looked_at.get(f) != 0).collect();
        for field in derived {
            self.mask.add_field(field);
        }
    }

    /// Returns the bits of the current key that the path is known to depend on, or not to depend on whatever is looked at: the
    /// answer of a table that looks at these alone keeps the mask as it is.
    pub(super) fn known(&self, shown: Shown) -> FlowMask {
        let mut known = FlowMask::zero();
        if shown.is_nothing() {
            known.clone_from(&self.mask);
            known.add(&self.written);
            self.derived.iter().for_each(|field| known.set(*field, 0));
        }
        known
    }

    /// Adds bits of a key that a table has seen some fields in.
    pub(super) fn depend_on_shown(&mut self, shown: Shown, mut looked_at: FlowMask) {
        shown.own_bits(&self.key, &mut looked_at);
        self.depend_on(&looked_at);
    }

    pub(super) fn depend_on_field(&mut self, field: Field, bits: u128) {
        let mut looked_at = FlowMask::zero();
        let bits = bits & field.info().ones();
        looked_at.set_masked(field, bits, bits);
        self.depend_on(&looked_at);
    }

    /// Returns whether the packet has `field`; adds the bits that decide it to the mask.
    pub(super) fn has(&mut self, field: Field) -> bool {
        edit::has(field, |asked, bits| self.look(asked, bits))
    }

    /// Returns bits of the current key, and adds them to the mask.
    pub(super) fn look(&mut self, field: Field, bits: u128) -> u128 {
        // Every mask has `Malformed`. A sound packet's path is harmless to one that is truncated before the Ethernet addresses,
        // so it is not counted as a dependence; the reverse is. Every mask also has whether there is an Ethernet header.
        let is_implied = matches!(field, Field::Malformed | Field::PacketType);
        if !is_implied || self.key.get(field) != 0 {
            self.depend_on_field(field, bits);
        }
        self.key.get(field) & bits
    }
}
