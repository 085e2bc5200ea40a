//! The bytes that translation writes, of live packets and of those of a dry run.

use flowlane::packet::Headers;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ip_proto;

use super::packet::{End, Endpoint, Place, quoted, write_address, write_end, write_quoted};
use super::session::Session;

/// The changes to a packet's frame and key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rewrite {
    /// Addresses and ports.
    Ends { proto: u8, source: Option<Endpoint>, destination: Option<Endpoint> },
    /// The address of an ICMP error, and one end of the packet that it quotes.
    Error { inbound: bool, session: Session },
    /// The addresses of a fragment without ports.
    Addresses { source: u32, destination: u32 },
}

impl Rewrite {
    /// Writes the changes, with all checksums.
    #[inline]
    pub(super) fn apply(self, bytes: &mut [u8], headers: &Headers, key: &mut FlowKey) {
        match self {
            Self::Ends { proto, source, destination } => {
                if let Some(to) = source {
                    write(bytes, headers, key, proto, End::Source, to);
                }
                if let Some(to) = destination {
                    write(bytes, headers, key, proto, End::Destination, to);
                }
            }
            Self::Error { inbound, session } => write_error(bytes, headers, key, inbound, &session),
            Self::Addresses { source, destination } => {
                let l3 = usize::from(headers.l3);
                write_address(bytes, l3, End::Source, source);
                write_address(bytes, l3, End::Destination, destination);
                key.set_word(word::IPV4_SRC, source);
                key.set_word(word::IPV4_DST, destination);
            }
        }
    }
}

/// Writes one end into a frame and its key.
#[inline]
fn write(bytes: &mut [u8], headers: &Headers, key: &mut FlowKey, proto: u8, end: End, to: Endpoint) {
    write_end(bytes, Place::of(headers, proto), end, to);
    let (address, shift) = match end {
        End::Source => (word::IPV4_SRC, 16),
        End::Destination => (word::IPV4_DST, 0),
    };
    key.set_word(address, to.address);
    if proto != ip_proto::ICMP {
        let ports = key.word(word::PORTS) & !(0xffff << shift) | u32::from(to.port) << shift;
        key.set_word(word::PORTS, ports);
    }
}

/// Translates the packet that an ICMP error quotes back, and sends the error to where that packet came from.
#[cold]
fn write_error(bytes: &mut [u8], headers: &Headers, key: &mut FlowKey, inbound: bool, session: &Session) {
    // The packet was read before, so that there is a quoted one.
    let Some(quoted) = quoted(bytes, headers) else { return };
    let l3 = headers.l3.into();
    if inbound {
        write_quoted(bytes, headers, &quoted, End::Source, session.inside_end());
        write_address(bytes, l3, End::Destination, session.inside);
        key.set_word(word::IPV4_DST, session.inside);
    } else {
        write_quoted(bytes, headers, &quoted, End::Destination, session.outside_end());
        write_address(bytes, l3, End::Source, session.outside);
        key.set_word(word::IPV4_SRC, session.outside);
    }
}
