#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod codec;
mod error;
pub mod group;
mod header;
pub mod message;
pub mod meter;
pub mod port;
pub mod stats;
mod wire;

pub use codec::{Codec, DecodeError, Decoded, EncodeError, OPTIONS_MAX, decode, encode};
pub use error::{ErrorCode, ErrorNumbers, ErrorSpace};
pub use header::{HEADER_BYTES, Header, MESSAGE_BYTES_MAX, Version, split};
pub use message::Message;
