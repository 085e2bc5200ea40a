//! Some bits of a field, as `move`, `load` and `reg0[8..15]` name them.

use super::fields::Field;
use super::key::Flow;
use crate::error::Error;

/// A field, or a part of it: `bits` bits from the bit `first_bit` on, counted from the field's lowest.
///
/// ```
/// use flowlane::{Field, FieldRef, FlowKey};
///
/// let mut key = FlowKey::zero();
/// key.set(Field::Ipv4Src, 0xc000_0207); // 192.0.2.7
/// let last = FieldRef::new(Field::Ipv4Src, 0, 8).expect("the address has 32 bits");
/// let to = FieldRef::new(Field::Reg0, 16, 8).expect("a register has 32 bits");
/// let value = last.get(&key);
/// to.set(&mut key, value);
/// assert_eq!(key.get(Field::Reg0), 0x0007_0000);
/// assert_eq!(to.to_string(), "reg0[16..23]");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FieldRef {
    field: Field,
    first_bit: u8,
    bits: u8,
}

impl FieldRef {
    /// All bits of a field.
    pub fn whole(field: Field) -> Self {
        Self { field, first_bit: 0, bits: field.info().width }
    }

    /// A part of a field; `None` if it is empty or the field ends before it does.
    pub fn new(field: Field, first_bit: u8, bits: u8) -> Option<Self> {
        let within = u16::from(first_bit) + u16::from(bits) <= u16::from(field.info().width);
        (bits > 0 && within).then_some(Self { field, first_bit, bits })
    }

    /// The part of a field that `mask` (right-aligned) covers; `None` if its bits are not adjacent.
    pub fn of_mask(field: Field, mask: u128) -> Option<Self> {
        let (first, count) = (mask.trailing_zeros(), mask.count_ones());
        let adjacent = mask != 0 && mask >> first == u128::MAX >> (128 - count);
        Self::new(field, first as u8, count as u8).filter(|_| adjacent)
    }

    /// The field.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The lowest bit, counted from the field's lowest.
    pub fn first_bit(&self) -> u8 {
        self.first_bit
    }

    /// Number of bits, 1 to 128.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns whether the part is the whole field.
    pub fn is_whole(&self) -> bool {
        self.bits == self.field.info().width
    }

    /// The largest value of the part.
    pub fn ones(&self) -> u128 {
        u128::MAX >> (128 - u32::from(self.bits))
    }

    /// The part as a mask of the field, right-aligned.
    pub fn mask(&self) -> u128 {
        self.ones() << self.first_bit
    }

    /// The part of a value of the field.
    pub fn extract(&self, value: u128) -> u128 {
        value >> self.first_bit & self.ones()
    }

    /// The value of the field that has `value` in the part and zeros elsewhere.
    ///
    /// # Panics
    /// Where the part is too narrow for `value`.
    pub fn place(&self, value: u128) -> u128 {
        assert!(value <= self.ones(), "{}", self.field.info().too_large(value, self.bits.into()));
        value << self.first_bit
    }

    /// The value of the field that has `value` in the part and zeros elsewhere.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): the part is too narrow for `value`.
    pub fn try_place(&self, value: u128) -> Result<u128, Error> {
        match value <= self.ones() {
            true => Ok(value << self.first_bit),
            false => Err(self.field.info().too_large(value, self.bits.into())),
        }
    }

    /// The value of the part in a key or mask.
    pub fn get<K>(&self, flow: &Flow<K>) -> u128 {
        self.extract(flow.get(self.field))
    }

    /// Sets the part in a key or mask.
    ///
    /// # Panics
    /// Where the part is too narrow for `value`.
    pub fn set<K>(&self, flow: &mut Flow<K>, value: u128) {
        flow.set_masked(self.field, self.place(value), self.mask());
    }

    /// Sets the part in a key or mask to a `value` that may be too large for it.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): the part is too narrow for `value`; nothing has changed then.
    pub fn try_set<K>(&self, flow: &mut Flow<K>, value: u128) -> Result<(), Error> {
        flow.set_masked(self.field, self.try_place(value)?, self.mask());
        Ok(())
    }
}

impl From<Field> for FieldRef {
    fn from(field: Field) -> Self {
        Self::whole(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;
    use crate::packet::{FlowKey, FlowMask};

    #[test]
    fn a_part_of_a_field_is_read_and_written_alone() {
        let mut random = Random::for_purpose(3, "parts of fields");
        for info in Field::named() {
            for _ in 0..20 {
                let first = random.index(info.width.into()) as u8;
                let bits = 1 + random.index(usize::from(info.width - first)) as u8;
                let part = FieldRef::new(info.field, first, bits).unwrap();
                assert_eq!(FieldRef::of_mask(info.field, part.mask()), Some(part));
                assert_eq!(part.is_whole(), part == FieldRef::whole(info.field));
                let mut draw = || u128::from(random.bits()) << 64 | u128::from(random.bits());
                let (old, value) = (draw() & info.ones(), draw() & part.ones());
                let mut key = FlowKey::zero();
                key.set(info.field, old);
                part.set(&mut key, value);
                assert_eq!(part.get(&key), value);
                assert_eq!(key.get(info.field) & !part.mask(), old & !part.mask(), "{part:?}");
                let mut mask = FlowMask::zero();
                part.set(&mut mask, part.ones());
                assert_eq!(mask.get(info.field), part.mask());
            }
        }
    }

    #[test]
    fn values_that_a_part_cannot_hold_are_refused() {
        let part = FieldRef::new(Field::Reg0, 8, 4).unwrap();
        let mut key = FlowKey::zero();
        part.try_set(&mut key, 15).unwrap();
        let refused = part.try_set(&mut key, 16).unwrap_err().to_string();
        assert_eq!(refused, "0x10 does not fit into these 4 bits of reg0; the largest value is 0xf");
        assert_eq!(key.get(Field::Reg0), 0xf00, "nothing has changed");
        assert!(std::panic::catch_unwind(|| part.place(16)).is_err());
    }

    #[test]
    fn parts_beyond_the_field_and_gaps_are_refused() {
        assert_eq!(FieldRef::new(Field::VlanPcp, 1, 3), None);
        assert_eq!(FieldRef::new(Field::Reg0, 0, 0), None);
        assert_eq!(FieldRef::new(Field::Reg0, 255, 255), None);
        assert_eq!(FieldRef::of_mask(Field::Reg0, 0b101), None);
        assert_eq!(FieldRef::of_mask(Field::Reg0, 0), None);
        assert_eq!(FieldRef::of_mask(Field::XxReg0, u128::MAX), Some(FieldRef::whole(Field::XxReg0)));
    }
}
