//! Packets that are too long for the way to a tunnel's other end: their senders hear of it, as under Linux's own tunnels.
//!
//! The system learns path MTUs (RFC 1191, RFC 8201) and refuses longer datagrams of tunnels that must not be cut (`df_default`). An error
//! about the inner packet then comes in through the tunnel's port, as if the other end had sent it: rules see it as any packet of the
//! tunnel, with its key and options.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use flowlane::packet::tunnel::gre::{ETHERNET, Gre, KEY};
use flowlane::tunnel::TunnelKind;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

use super::members::Members;
use super::socket::{Carrier, Datagram};
use crate::state::router::{Limit, TooLongFrame};

/// The most errors a second, of all ports of a carrier; as many as a router sends by default.
const ERRORS_PER_S: u32 = 1000;
/// The TTL of outer headers that nothing has sent.
const TTL: u8 = 64;
/// Any port but 0, to which no socket connects.
const ANY_PORT: u16 = 9;
/// The EtherType of a frame in GENEVE's header.
const OF_GENEVE: [u8; 2] = ETHERNET.to_be_bytes();

/// A datagram that the system has refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) kind: TunnelKind,
    pub(super) destination: SocketAddr,
    /// None: the system's choice.
    pub(super) source: Option<IpAddr>,
    /// The tunnel header and the frame.
    pub(super) payload: Vec<u8>,
}

/// Errors about datagrams that were refused.
#[derive(Debug)]
pub(super) struct TooLong {
    limit: Limit,
    begun: Instant,
}

impl TooLong {
    pub(super) fn new() -> Self {
        Self { limit: Limit::new(ERRORS_PER_S), begun: Instant::now() }
    }

    /// Gives the errors about datagrams to the ports that their answers would come in through.
    #[cold]
    pub(super) fn answer(&self, refused: &[Refused], carrier: Carrier, members: &mut Members) {
        for refused in refused {
            let now_ns = self.begun.elapsed().as_nanos() as u64;
            let admits = |source| self.limit.admits(source, now_ns);
            let Some((local, payload)) = refused.answer(carrier, admits) else { continue };
            let remote = refused.destination;
            members.deliver(&Datagram { remote, local, tos: 0, ttl: TTL, payload: &payload });
        }
    }
}

impl Refused {
    /// Returns the error with its tunnel header, and the own address of the tunnel.
    fn answer(&self, carrier: Carrier, admits: impl Fn(IpAddr) -> bool) -> Option<(IpAddr, Vec<u8>)> {
        let (mut answer, header_bytes) = self.header()?;
        let frame = TooLongFrame::read(self.payload.get(header_bytes..)?)?;
        if !admits(frame.source()) {
            return None;
        }
        let (mtu, local) = path_mtu(self.destination, self.source).ok()?;
        let network = if self.destination.is_ipv4() { 20 } else { 40 };
        let room = mtu.checked_sub(network + carrier.header_bytes())?;
        // The system has refused it for another reason, or knows better meanwhile.
        if self.payload.len() <= room {
            return None;
        }
        answer.extend(frame.answer(room.checked_sub(header_bytes)?)?);
        Some((local, answer))
    }

    /// The tunnel header of an answer, and the length of that of the datagram.
    fn header(&self) -> Option<(Vec<u8>, usize)> {
        let payload = &self.payload;
        let bytes = match self.kind {
            TunnelKind::Vxlan => 8,
            TunnelKind::Geneve if *payload.get(2..4)? == OF_GENEVE => 8 + 4 * usize::from(payload[0] & 0x3f),
            TunnelKind::Gre => {
                let header = Gre::read(payload).ok().filter(|header| header.protocol == ETHERNET)?;
                // Its checksum and its sequence number would be another packet's.
                let mut answer = (header.flags & KEY).to_be_bytes().to_vec();
                answer.extend(OF_GENEVE);
                answer.extend(header.key.into_iter().flat_map(u32::to_be_bytes));
                return Some((answer, header.bytes));
            }
            _ => return None,
        };
        Some((payload.get(..bytes)?.to_vec(), bytes))
    }
}

/// Returns the MTU of the way to an address, as the system knows it, and the address that datagrams there are from.
fn path_mtu(destination: SocketAddr, source: Option<IpAddr>) -> io::Result<(usize, IpAddr)> {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((source.unwrap_or(any), 0))?;
    let mut to = destination;
    to.set_port(if destination.port() == 0 { ANY_PORT } else { destination.port() });
    socket.connect(to)?;
    let mtu = match destination {
        SocketAddr::V4(_) => ip_mtu(&socket)?,
        SocketAddr::V6(_) => ipv6_mtu(&socket)?,
    };
    Ok((usize::try_from(mtu).unwrap_or(0), socket.local_addr()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_the_mtu_of_the_loopback_interface() {
        let at = |text: &str| path_mtu(text.parse().unwrap(), None);
        let (mtu, local) = at("127.0.0.1:0").unwrap();
        assert!(mtu >= 1280 && local.is_loopback(), "{mtu} {local}");
    }

    #[test]
    fn headers_of_answers_are_those_of_the_datagrams_without_what_is_the_packets_own() {
        let header = |kind, payload: &[u8]| {
            let destination = "192.0.2.1:6081".parse().unwrap();
            Refused { kind, destination, source: None, payload: payload.to_vec() }.header()
        };
        let geneve = [1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 4];
        assert_eq!(header(TunnelKind::Geneve, &geneve), Some((geneve.to_vec(), 12)));
        assert_eq!(header(TunnelKind::Geneve, &geneve[..11]), None);
        let of_ip = [0, 0, 0x08, 0x00, 0, 0, 7, 0];
        assert_eq!(header(TunnelKind::Geneve, &of_ip), None);
        let gre = [0xb0, 0, 0x65, 0x58, 9, 9, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5];
        assert_eq!(header(TunnelKind::Gre, &gre), Some((vec![0x20, 0, 0x65, 0x58, 0, 0, 0, 7], 16)));
        assert_eq!(header(TunnelKind::Gre, &[0, 0, 0x65, 0x58]), Some((vec![0, 0, 0x65, 0x58], 4)));
        assert_eq!(header(TunnelKind::Erspan, &gre), None);
    }
}
