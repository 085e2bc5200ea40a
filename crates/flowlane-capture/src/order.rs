//! Byte order.

/// Byte order of a file's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self == Order::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}
