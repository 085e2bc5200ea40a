//! Bytes to messages, and messages to bytes.

use crate::error::ErrorCode;
use crate::header::{Header, Version};
use crate::message::Message;
use crate::settings::Codec;

/// A message with its identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// The identifier, which replies have, too.
    pub xid: u32,
    /// The message.
    pub message: Message,
}

/// A failure to read a message: the error to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code} of message {xid:#x}")]
pub struct DecodeError {
    /// The error.
    pub code: ErrorCode,
    /// The identifier of the message.
    pub xid: u32,
}

/// A failure to write a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The version has no such message, field or action.
    #[error("OpenFlow version {0:?} has no message for this")]
    Missing(Version),
    /// The message is longer than 64 KiB, or an action of it is.
    #[error("a message has at most 65,535 bytes")]
    TooLong,
}

impl Codec {
    /// Decodes one message, as [`split`](crate::split) returns it.
    ///
    /// # Errors
    /// The error that Open vSwitch would send.
    pub fn decode(&self, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let xid = Header::read(bytes).map_or(0, |header| header.xid);
        Err(DecodeError { code: ErrorCode::RequestBadType, xid })
    }

    /// Encodes a message: one, or for a long [`MultipartReply`](crate::message::MultipartReply) several one behind the other.
    ///
    /// # Errors
    /// A message that the version lacks, or that is too long.
    pub fn encode(&self, xid: u32, message: &Message) -> Result<Vec<u8>, EncodeError> {
        let _ = (xid, message);
        Err(EncodeError::Missing(self.version))
    }
}

/// Decodes one message of the version that its header names, on a connection without settings of its own.
///
/// # Errors
/// The error that Open vSwitch would send.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let header = Header::read(bytes);
    let version = header.and_then(|header| Version::of_number(header.version));
    Codec::new(version.unwrap_or(Version::OpenFlow15)).decode(bytes)
}

/// Encodes a message, on a connection without settings of its own.
///
/// # Errors
/// A message that the version lacks, or that is too long.
pub fn encode(version: Version, xid: u32, message: &Message) -> Result<Vec<u8>, EncodeError> {
    Codec::new(version).encode(xid, message)
}
