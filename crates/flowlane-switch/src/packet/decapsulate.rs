//! Removes a tunnel's headers, packet by packet: where a port takes tunnels off whoever they are addressed to. What ends at
//! configured endpoints only, burst by burst, is [`crate::tunnel`]'s.

use flowlane::packet::key::FlowKey;
use flowlane::packet::tunnel::{self, Inner};
use flowlane::packet::{Headers, Parser};

use super::Frame;

/// Where the frame is a tunnel's, removes the outer headers and parses what is inside.
pub fn decapsulate(
    parser: &Parser,
    frame: &mut Frame,
    in_port: u32,
    headers: Headers,
    key: &mut FlowKey,
) -> Headers {
    if headers.malformed.is_some() {
        return headers;
    }
    let found = match tunnel::read(frame.bytes(), &headers, key) {
        Ok(Some(found)) => found,
        Ok(None) => return headers,
        Err(reason) => return Headers { malformed: Some(reason), ..headers },
    };
    frame.pull(found.inner_at);
    if let Inner::Ip(eth_type) = found.inner {
        // What is inside has no Ethernet header: it gets one, so that it can be sent.
        frame.push(14);
        let bytes = frame.bytes_mut();
        bytes[..12].fill(0);
        bytes[12..14].copy_from_slice(&eth_type.to_be_bytes());
    }
    let mut inner = FlowKey::zero();
    let inner_headers = parser.parse_one(frame.bytes(), in_port, &mut inner);
    found.fill(key, &headers, &mut inner);
    *key = inner;
    inner_headers
}
