//! The Internet checksum (RFC 1071) and its adjustment (RFC 1624).

/// The difference that a write made to the ones'-complement sum of a frame: Σ ~old + Σ new.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delta(u32);

impl Delta {
    /// Writes `new` at `at` and says what difference that makes. Headers begin at even offsets of the frame
    /// always, so that the frame's 16-bit words are the checksum's.
    ///
    /// # Panics
    /// Where `new` does not fit.
    #[inline]
    pub fn of_write(bytes: &mut [u8], at: usize, new: &[u8]) -> Self {
        let (first, end) = (at & !1, (at + new.len() + 1) & !1);
        let end = end.min(bytes.len());
        let old = sum(&bytes[first..end]);
        bytes[at..at + new.len()].copy_from_slice(new);
        // ~x is 0xffff - x, and 0xffff is zero in ones'-complement arithmetic.
        Self(u32::from(!fold(old)) + u32::from(fold(sum(&bytes[first..end]))))
    }

    /// The difference that a number makes in the place of another one, if both end at an even offset of the frame.
    #[inline]
    pub fn of_numbers(old: u128, new: u128) -> Self {
        let words = |number: u128| {
            let (high, low) = ((number >> 64) as u64, number as u64);
            let word = |half: u64, at: u32| u32::from((half >> (16 * at)) as u16);
            (0..4).map(|at| word(high, at) + word(low, at)).sum::<u32>()
        };
        Self::between(words(old), words(new))
    }

    /// The difference between two sums of the same words.
    pub fn between(before: u32, after: u32) -> Self {
        Self(u32::from(!fold(before)) + u32::from(fold(after)))
    }

    /// Both differences.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(u32::from(fold(self.0)) + u32::from(fold(other.0)))
    }

    /// Adjusts the checksum at `at`; nothing where there are not two bytes.
    #[inline]
    pub fn apply(self, bytes: &mut [u8], at: usize) {
        if let Some(field) = bytes.get_mut(at..at + 2) {
            let old = u16::from_be_bytes([field[0], field[1]]);
            let new = !fold(u32::from(!old) + self.0);
            field.copy_from_slice(&new.to_be_bytes());
        }
    }

    /// Adjusts a UDP checksum at `at`: 0 means none and stays (RFC 768), and a sum of 0 is sent as 0xffff.
    #[inline]
    pub fn apply_udp(self, bytes: &mut [u8], at: usize) {
        if bytes.get(at..at + 2).is_none_or(|field| field == [0, 0]) {
            return;
        }
        self.apply(bytes, at);
        if bytes[at..at + 2] == [0, 0] {
            bytes[at..at + 2].fill(0xff);
        }
    }
}

/// The sum of the 16-bit words, not folded; a last odd byte counts as the high one.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u32 = words.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum();
    whole + rest.first().map_or(0, |&b| u32::from(b) << 8)
}

/// Folds the carries in.
#[inline]
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
