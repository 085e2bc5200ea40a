//! Removes a tunnel's headers, packet by packet. Which packets' is [`crate::tunnel`]'s to say.

use flowlane::packet::fields::Field;
use flowlane::packet::key::FlowKey;
use flowlane::packet::tunnel::{self, Inner};
use flowlane::packet::{Captured, Headers, Malformed, Network, Parser};
use flowlane::tunnel::{
    Policy, Refused, TunnelKind, decapsulated_ecn, erspan_header, geneve_header, gre_header,
};

use super::{Frame, edit};

/// The tunnel headers that are removed.
#[derive(Clone, Copy, Debug)]
pub struct Termination<'a> {
    /// The protocol; none: by the UDP port, or that of IP.
    pub kind: Option<TunnelKind>,
    /// IP packets come out, too, not only Ethernet frames.
    pub takes_ip: bool,
    /// The GENEVE options that are understood, and those that have fields.
    pub policy: &'a Policy,
}

/// Removes the outer headers if the frame is a tunnel's, and parses the inner packet, which takes over the
/// congestion mark of the outer header (RFC 6040). `missing` bytes at the frame's end were not captured.
///
/// # Errors
/// Why the packet must be dropped: it must not come out of a tunnel here, whatever becomes of malformed frames. The frame
/// is then of no use.
pub fn decapsulate(
    parser: &Parser,
    frame: &mut Frame,
    in_port: u32,
    headers: Headers,
    key: &mut FlowKey,
    termination: Termination<'_>,
    missing: usize,
) -> Result<Headers, Refused> {
    if headers.malformed.is_some() {
        return Ok(headers);
    }
    let known = termination.kind.map(|kind| kind as u8);
    let Some(kind) = known.or_else(|| tunnel::kind_of(frame.bytes(), &headers)) else {
        return Ok(headers);
    };
    let found = match tunnel::read_as(kind, frame.bytes(), &headers) {
        Ok(None) => return Ok(headers),
        found => found,
    };
    let policy = termination.policy;
    if [TunnelKind::Gre as u8, TunnelKind::Erspan as u8].contains(&kind) && missing == 0 {
        check_gre(kind, frame.bytes(), &headers)?;
    }
    if kind == TunnelKind::Geneve as u8 {
        let header = frame.bytes().get(usize::from(headers.payload)..).unwrap_or_default();
        // What else is wrong with a header makes the frame malformed.
        if let Err(reason @ (Refused::GeneveControl | Refused::GeneveCriticalOption)) =
            geneve_header(header, policy)
        {
            return Err(reason);
        }
    }
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(headers),
        Err(Malformed::TunnelTruncated) if missing > 0 => {
            return Ok(Headers { malformed: Some(Malformed::NotCaptured), ..headers });
        }
        Err(reason) => return Ok(Headers { malformed: Some(reason), ..headers }),
    };
    if found.inner != Inner::Ethernet && !termination.takes_ip {
        return Err(Refused::InnerProtocol);
    }
    let options = found.inner_at - found.option_bytes..found.inner_at;
    let options = policy.option_fields.read(&frame.bytes()[options])?;
    frame.pull(found.inner_at);
    if let Inner::Ip(eth_type) = found.inner {
        // The inner packet has no Ethernet header: it gets one, so that it can be sent.
        frame.push(14);
        let bytes = frame.bytes_mut();
        bytes[..12].fill(0);
        bytes[12..14].copy_from_slice(&eth_type.to_be_bytes());
    }
    let mut inner = FlowKey::zero();
    let whole = Captured::new(frame.bytes(), frame.len() + missing);
    let mut inner_headers = parser.parse_captured(whole, in_port, &mut inner);
    take_over_congestion(key, frame, &mut inner_headers, &mut inner)?;
    found.fill(key, &headers, &mut inner);
    if let Some(options) = options {
        options.fill(&mut inner);
    }
    *key = inner;
    Ok(inner_headers)
}

/// Checks the header of GRE, with its checksum, which is over the packet without the frame's padding, or of ERSPAN.
fn check_gre(kind: u8, frame: &[u8], headers: &Headers) -> Result<(), Refused> {
    let end = edit::packet_end(frame, headers).ok_or(Refused::Truncated)?;
    let body = frame.get(usize::from(headers.l4)..end).ok_or(Refused::Truncated)?;
    if kind == TunnelKind::Erspan as u8 {
        return erspan_header(body).map(|_| ());
    }
    let header = gre_header(body)?;
    header.inner().map(|_| ()).ok_or(Refused::InnerProtocol)
}

/// Other packets than IP pass unchanged.
fn take_over_congestion(
    outer: &FlowKey,
    frame: &mut Frame,
    headers: &mut Headers,
    inner: &mut FlowKey,
) -> Result<(), Refused> {
    if !matches!(headers.network, Network::Ipv4 | Network::Ipv6) {
        return Ok(());
    }
    let before = inner.get(Field::IpEcn);
    let after = decapsulated_ecn(before as u8, outer.get(Field::IpEcn) as u8)?.into();
    if after != before {
        edit::set_field(frame, headers, Field::IpEcn, after, 3);
        inner.set(Field::IpEcn, after);
    }
    Ok(())
}
