//! The skew of sequence numbers: what texts of other lengths have added to those of one end of a connection.
//!
//! The bytes up to the last text that was rewritten are sent again with the skew that they had, so there are two: the one up to the
//! beginning of that text's segment, and the one behind it. Linux does that, too; Open vSwitch knows one skew for a connection.

use crate::state::bytes::Bytes;

/// The skew of what one end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Skew {
    /// The sequence number, as the end has sent it, of the last segment that has grown or shrunk.
    position: u32,
    /// Up to it, and behind it.
    before: u32,
    after: u32,
}

/// Returns whether sequence number `a` is later than `b`.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

impl Skew {
    /// Returns whether there is none.
    pub(super) fn is_none(&self) -> bool {
        self.before == 0 && self.after == 0
    }

    /// Appends the skew.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        [self.position, self.before, self.after].iter().for_each(|number| out.extend(number.to_le_bytes()));
    }

    /// Reads what [`write`](Self::write) has written. Any numbers are a skew: all arithmetic wraps.
    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { position: bytes.u32()?, before: bytes.u32()?, after: bytes.u32()? })
    }

    /// Notes that a segment's text has grown by `bytes`, which may be negative. Nothing changes where it is sent again.
    pub(super) fn grow(&mut self, sequence: u32, bytes: i32) {
        if self.before == self.after || is_after(sequence, self.position) {
            let after = self.after.wrapping_add_signed(bytes);
            *self = Self { position: sequence, before: self.after, after };
        }
    }

    /// Returns a sequence number of the end as the other end sees it.
    pub(super) fn add_to(&self, sequence: u32) -> u32 {
        let is_behind = is_after(sequence, self.position);
        sequence.wrapping_add(if is_behind { self.after } else { self.before })
    }

    /// Returns a sequence number that the other end has seen, or has acknowledged, as the end has sent it.
    pub(super) fn take_from(&self, seen: u32) -> u32 {
        let is_behind = is_after(seen.wrapping_sub(self.before), self.position);
        seen.wrapping_sub(if is_behind { self.after } else { self.before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for first in [100, u32::MAX - 30] {
            let mut skew = Skew::default();
            // Segments of 20 bytes; the second one grows by 7, the third one shrinks by 3.
            let at = |n: u32| first.wrapping_add(20 * n);
            skew.grow(at(1), 7);
            let grown = skew;
            skew.grow(at(1), 7);
            assert_eq!(skew, grown, "sent again");
            assert_eq!([0, 1, 2].map(|n| skew.add_to(at(n)).wrapping_sub(at(n))), [0, 0, 7]);
            skew.grow(at(2), -3);
            assert_eq!([2, 3, 4].map(|n| skew.add_to(at(n)).wrapping_sub(at(n))), [7, 4, 4]);
            // Acknowledgements name the byte behind a segment.
            for n in 2..6 {
                assert_eq!(skew.take_from(skew.add_to(at(n))), at(n));
            }
        }
        assert!(Skew::default().is_none());
    }
}
