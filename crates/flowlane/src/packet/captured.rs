//! Frames of which there may be only the first bytes.

/// The available bytes of a frame: all of it, or its first bytes, as captures with a snap length have it.
///
/// ```
/// use flowlane::{Captured, Field, FlowKey, Malformed, Parser};
///
/// // 20 of 60 bytes: the addresses of IPv4 are not among them.
/// let mut bytes = [0; 20];
/// bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
/// let mut key = FlowKey::zero();
/// let headers = Parser::new().parse_captured(Captured::new(&bytes, 60), 1, &mut key);
/// assert_eq!(headers.malformed, Some(Malformed::NotCaptured));
/// assert_eq!(key.get(Field::EthType), 0x0800); // the key has what there is
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    bytes: &'a [u8],
    len: usize,
    /// It may be from before a network card cut it into packets.
    uncut: bool,
    /// Sessions of PPPoE are transparent.
    pppoe: bool,
}

impl<'a> Captured<'a> {
    /// The first bytes of a frame of `len`, or of as many as there are.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], len: usize) -> Self {
        Self { bytes, len: len.max(bytes.len()), uncut: false, pppoe: false }
    }

    /// Returns a frame as captures have it on the machine that sends it: a segment that the network card cuts into packets later
    /// (TSO, BIG TCP) may have an IP length of 0. It is as long as the frame then.
    ///
    /// ```
    /// use flowlane::{Captured, Field, FlowKey, Malformed, Parser};
    ///
    /// let mut bytes = [0; 54];
    /// bytes[12..24].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6]);
    /// bytes[36..38].copy_from_slice(&[1, 187]);
    /// bytes[46] = 0x50;
    /// let (parser, mut key) = (Parser::new(), FlowKey::zero());
    /// let frame = Captured::new(&bytes, 64_054);
    /// assert_eq!(parser.parse_captured(frame, 1, &mut key).malformed, Some(Malformed::Ipv4HeaderLength));
    /// assert_eq!(parser.parse_captured(frame.uncut(), 1, &mut key).malformed, None);
    /// assert_eq!(key.get(Field::TpDst), 443);
    /// ```
    #[inline(always)]
    pub fn uncut(self) -> Self {
        Self { uncut: true, ..self }
    }

    /// Returns a frame in which a PPPoE session (EtherType 0x8864, RFC 2516) is transparent: the key is that of the packet in
    /// it, with its EtherType. A switch forwards such frames by the EtherType 0x8864.
    ///
    /// ```
    /// use flowlane::{Captured, Field, FlowKey, Parser};
    ///
    /// let mut bytes = [0; 60];
    /// bytes[12..14].copy_from_slice(&[0x88, 0x64]);
    /// bytes[14..22].copy_from_slice(&[0x11, 0, 0, 9, 0, 38, 0x00, 0x21]); // session 9, PPP protocol IPv4
    /// bytes[22..26].copy_from_slice(&[0x45, 0, 0, 36]);
    /// bytes[31..38].copy_from_slice(&[6, 0, 0, 192, 0, 2, 1]);
    /// bytes[54] = 0x50;
    /// let (parser, mut key) = (Parser::new(), FlowKey::zero());
    /// parser.parse_captured(Captured::new(&bytes, 60), 1, &mut key);
    /// assert_eq!((key.get(Field::EthType), key.get(Field::Ipv4Src)), (0x8864, 0));
    /// parser.parse_captured(Captured::new(&bytes, 60).with_pppoe(), 1, &mut key);
    /// assert_eq!((key.get(Field::EthType), key.get(Field::Ipv4Src)), (0x0800, 0xc000_0201));
    /// ```
    #[inline(always)]
    pub fn with_pppoe(self) -> Self {
        Self { pppoe: true, ..self }
    }

    /// Returns whether sessions of PPPoE are transparent.
    #[inline(always)]
    pub(super) fn has_pppoe(self) -> bool {
        self.pppoe
    }

    /// Returns whether an IP length of 0 is that of the frame.
    #[inline(always)]
    pub(super) fn is_uncut(self) -> bool {
        self.uncut
    }

    /// Those bytes that there are.
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// How many bytes the frame had.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// The frame without its first `at` bytes; empty where it has no more.
    #[doc(hidden)]
    #[inline(always)]
    pub fn from(self, at: usize) -> Self {
        Self { bytes: self.bytes.get(at..).unwrap_or_default(), len: self.len.saturating_sub(at), ..self }
    }

    /// The frame up to `end`, which is within it.
    #[inline(always)]
    pub(super) fn to(self, end: usize) -> Self {
        Self { bytes: &self.bytes[..end.min(self.bytes.len())], len: end, ..self }
    }
}

impl<'a> From<&'a [u8]> for Captured<'a> {
    #[inline(always)]
    fn from(frame: &'a [u8]) -> Self {
        Self { bytes: frame, len: frame.len(), uncut: false, pppoe: false }
    }
}
