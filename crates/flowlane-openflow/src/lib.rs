#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod action;
mod check;
mod codec;
mod error;
mod fields;
pub mod group;
mod header;
mod match10;
pub mod message;
pub mod meter;
mod oxm;
pub mod port;
mod property;
mod settings;
pub mod stats;
mod version;
mod wire;

pub use check::check;
pub use codec::{DecodeError, Decoded, EncodeError, decode, encode};
pub use error::{ErrorCode, ErrorNumbers, ErrorSpace};
pub use fields::has_header;
pub use header::{HEADER_BYTES, Header, MESSAGE_BYTES_MAX, Split, split};
pub use message::Message;
pub use settings::{Codec, OPTIONS_MAX};
pub use version::Version;
