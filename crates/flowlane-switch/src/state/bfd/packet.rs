//! Control packets (RFC 5880, section 4.1).
//!
//! ```text
//!  vers|diagnostic  state|P F C A D M  detect mult  length
//!  my discriminator
//!  your discriminator
//!  desired min TX interval, required min RX interval, required min echo RX interval: microseconds
//! ```

use super::{Diagnostic, State};

/// Bytes of a control packet without authentication.
pub(super) const BYTES: usize = 24;
const VERSION: u8 = 1;

/// The flags of a control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    pub const POLL: Self = Self(1 << 5);
    pub const FINAL: Self = Self(1 << 4);
    const AUTHENTICATED: Self = Self(1 << 2);
    const MULTIPOINT: Self = Self(1);

    /// Their names, in the order in which Open vSwitch shows them.
    pub(super) const NAMES: [(u8, &'static str); 6] = [
        (Self::MULTIPOINT.0, "multipoint"),
        (1 << 1, "demand"),
        (Self::AUTHENTICATED.0, "auth"),
        (1 << 3, "ctl"),
        (Self::FINAL.0, "final"),
        (Self::POLL.0, "poll"),
    ];

    /// Returns whether it has a flag.
    pub fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlPacket {
    pub diagnostic: Diagnostic,
    pub state: State,
    pub flags: Flags,
    pub detect_mult: u8,
    /// The sender's number of the session; never 0.
    pub my_discriminator: u32,
    /// The receiver's, as far as the sender knows it.
    pub your_discriminator: u32,
    pub min_tx_us: u32,
    pub min_rx_us: u32,
    /// The shortest interval between echoes; 0: they are not accepted.
    pub min_echo_rx_us: u32,
}

/// Why a received packet is discarded (RFC 5880, section 6.8.6, and RFC 5881, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is no control packet in UDP and IPv4.
    #[error("it is no control packet")]
    NotControl,
    /// It is shorter than its headers say, or a header's length is impossible.
    #[error("its length is wrong")]
    Length,
    /// The checksum of IPv4 or UDP is wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// It may have come from another network.
    #[error("its TTL is {0}, not 255")]
    Ttl(u8),
    /// The version is not 1.
    #[error("its version is {0}")]
    Version(u8),
    /// It is authenticated, which is not supported.
    #[error("it is authenticated")]
    Authenticated,
    /// The multiplier is 0.
    #[error("its multiplier is 0")]
    Multiplier,
    /// The flag of multipoint sessions is set.
    #[error("it is of a multipoint session")]
    Multipoint,
    /// The sender's discriminator is 0, or the receiver's is 0 in a session that is not down.
    #[error("a discriminator is 0")]
    NoDiscriminator,
    /// It is for another session.
    #[error("it is for the session {0:#x}")]
    OtherSession(u32),
}

impl ControlPacket {
    /// Reads the payload of a datagram.
    ///
    /// # Errors
    /// Why it is to be discarded.
    pub fn read(payload: &[u8]) -> Result<Self, Refused> {
        let &[version, state, detect_mult, len, ref words @ ..] =
            payload.first_chunk::<BYTES>().ok_or(Refused::Length)?;
        let flags = Flags(state & 0x3f);
        let word = |at: usize| {
            let bytes = words[4 * at..].first_chunk().expect("there are five words");
            u32::from_be_bytes(*bytes)
        };
        if version >> 5 != VERSION {
            return Err(Refused::Version(version >> 5));
        }
        // Its length would be at least 26; there is no key that could confirm it.
        if flags.has(Flags::AUTHENTICATED) {
            return Err(Refused::Authenticated);
        }
        if !(BYTES..=payload.len()).contains(&usize::from(len)) {
            return Err(Refused::Length);
        }
        if detect_mult == 0 {
            return Err(Refused::Multiplier);
        }
        if flags.has(Flags::MULTIPOINT) {
            return Err(Refused::Multipoint);
        }
        let packet = Self {
            diagnostic: Diagnostic(version & 0x1f),
            state: State::of(state >> 6),
            flags,
            detect_mult,
            my_discriminator: word(0),
            your_discriminator: word(1),
            min_tx_us: word(2),
            min_rx_us: word(3),
            min_echo_rx_us: word(4),
        };
        let has_both = packet.your_discriminator != 0 || packet.state <= State::Down;
        if packet.my_discriminator == 0 || !has_both {
            return Err(Refused::NoDiscriminator);
        }
        Ok(packet)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        let state = (self.state as u8) << 6 | self.flags.0 & 0x3f;
        out[..4].copy_from_slice(&[
            VERSION << 5 | self.diagnostic.0 & 0x1f,
            state,
            self.detect_mult,
            BYTES as u8,
        ]);
        let Self { my_discriminator, your_discriminator, min_tx_us, min_rx_us, min_echo_rx_us, .. } = *self;
        let words = [my_discriminator, your_discriminator, min_tx_us, min_rx_us, min_echo_rx_us];
        for (field, word) in out[4..].chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
}
