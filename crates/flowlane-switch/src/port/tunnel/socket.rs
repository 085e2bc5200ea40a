//! The sockets of an underlay: of UDP, or raw ones of GRE.
//!
//! *Outer headers* are the system's: addresses, TTL and type of service come with a datagram and go with it as ancillary data.
//!
//! *Flows differ in their source ports* (RFC 7348 §5, RFC 8926 §3.3), by which the network spreads them over its paths. A socket has
//! one, so there are several that send.
//!
//! *Segmentation*: datagrams of equal length to one place leave in one message, which the system cuts (UDP_SEGMENT), and come
//! in one (UDP_GRO). For GRE the system cuts nothing, but an interface with GRO may merge TCP segments in GRE without sequence numbers, which
//! a raw socket does not see: README has that among the limits.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use flowlane::packet::parse::ip_proto;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use super::super::interface::{Watch, set_option};
use crate::packet::Frame;
use crate::packet::edit::checksum::{fold, sum};
use crate::tunnel::PortTunnelSpec;

/// Messages that are received, or sent, in one call.
pub(super) const BATCH: usize = 32;
/// The longest message: several datagrams.
pub(super) const MESSAGE_BYTES: usize = 65_536;
/// Words of a message's ancillary data: addresses, TTL, type of service, and the length of segments.
pub(super) const CONTROL_WORDS: usize = 24;
/// Bytes that wait at most in a socket, as far as the system allows it.
pub(super) const SOCKET_BYTES: i32 = 4 << 20;

pub(super) const ETHERNET: usize = 14;
pub(super) const UDP: usize = 8;

/// The protocol that carries the packets of tunnels, by which outer packets are found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Carrier {
    /// A UDP port.
    Udp(u16),
    /// IP itself, by the protocol of GRE.
    Gre,
}

impl Carrier {
    pub(super) fn of(spec: &PortTunnelSpec) -> Self {
        spec.port.map_or(Self::Gre, Self::Udp)
    }

    /// Bytes between the IP and the tunnel header.
    pub(super) fn header_bytes(self) -> usize {
        if self == Self::Gre { 0 } else { UDP }
    }

    fn protocol(self) -> u8 {
        if self == Self::Gre { ip_proto::GRE } else { ip_proto::UDP }
    }

    /// A socket that does not block.
    pub(super) fn socket(self, family: AddressFamily) -> io::Result<OwnedFd> {
        let (kind, protocol) = match self {
            Self::Udp(_) => (SocketType::DGRAM, ipproto::UDP),
            Self::Gre => (SocketType::RAW, ipproto::GRE),
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(socket_with(family, kind, flags, Some(protocol))?)
    }
}

impl std::fmt::Display for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp(port) => write!(f, "UDP port {port}"),
            Self::Gre => f.write_str("GRE"),
        }
    }
}

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) remote: SocketAddr,
    /// The address that it was sent to.
    pub(super) local: IpAddr,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Takes the IPv4 header off, which the system leaves in front of what it receives by protocol; of IPv6 it takes it off itself.
    fn behind_ip_header(self, carrier: Carrier) -> Option<Self> {
        if carrier != Carrier::Gre || self.remote.is_ipv6() {
            return Some(self);
        }
        let header_bytes = usize::from(self.payload.first()? & 15) * 4;
        Some(Self { payload: self.payload.get(header_bytes..)?, ..self })
    }

    /// Makes a frame the datagram with its headers. The checksum of UDP, which the system has verified, is none.
    pub(super) fn fill(&self, carrier: Carrier, frame: &mut Frame) {
        let network = if self.remote.is_ipv4() { 20 } else { 40 };
        let transport_len = carrier.header_bytes() + self.payload.len();
        let bytes = frame.space(ETHERNET + network + transport_len);
        bytes[..12].fill(0);
        let ip = &mut bytes[12..ETHERNET + network];
        match (self.remote.ip(), self.local) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ip[..4].copy_from_slice(&[0x08, 0x00, 0x45, self.tos]);
                ip[4..6].copy_from_slice(&((network + transport_len) as u16).to_be_bytes());
                ip[6..14].copy_from_slice(&[0, 0, 0x40, 0, self.ttl, carrier.protocol(), 0, 0]);
                ip[14..18].copy_from_slice(&from.octets());
                ip[18..22].copy_from_slice(&to.octets());
                let checksum = !fold(sum(&ip[2..]));
                ip[12..14].copy_from_slice(&checksum.to_be_bytes());
            }
            (from, to) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let first = 6 << 28 | u32::from(self.tos) << 20;
                ip[..2].copy_from_slice(&[0x86, 0xdd]);
                ip[2..6].copy_from_slice(&first.to_be_bytes());
                ip[6..8].copy_from_slice(&(transport_len as u16).to_be_bytes());
                ip[8..10].copy_from_slice(&[carrier.protocol(), self.ttl]);
                ip[10..26].copy_from_slice(&octets(from));
                ip[26..42].copy_from_slice(&octets(to));
            }
        }
        let (udp, payload) = bytes[ETHERNET + network..].split_at_mut(carrier.header_bytes());
        if let Carrier::Udp(port) = carrier {
            udp[..2].copy_from_slice(&self.remote.port().to_be_bytes());
            udp[2..4].copy_from_slice(&port.to_be_bytes());
            udp[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
            udp[6..8].fill(0);
        }
        payload.copy_from_slice(self.payload);
    }
}

/// Sets an option that is a number.
pub(super) fn set(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(socket, level, option, &value)
}

/// The sockets that receive.
#[derive(Debug)]
pub(super) struct Inbound {
    carrier: Carrier,
    /// For IPv4, and for IPv6 where the system has it.
    sockets: Vec<OwnedFd>,
    has_ipv6: bool,
    buffers: Vec<u8>,
}

impl Inbound {
    /// Opens a carrier at all addresses of the node.
    pub(super) fn open(carrier: Carrier, watch: &Watch) -> io::Result<Self> {
        let v4 = carrier.socket(AddressFamily::INET)?;
        if let Carrier::Udp(port) = carrier {
            bind(&v4, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
        }
        for option in [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL] {
            set(&v4, libc::IPPROTO_IP, option, 1)?;
        }
        let mut sockets = vec![v4];
        let has_ipv6 = match carrier.socket(AddressFamily::INET6) {
            Ok(v6) => {
                for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT] {
                    set(&v6, libc::IPPROTO_IPV6, option, 1)?;
                }
                if let Carrier::Udp(port) = carrier {
                    // Raw sockets are of one version in any case.
                    sockopt::set_ipv6_v6only(&v6, true)?;
                    bind(&v6, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
                    // Tunnels may do without a checksum there, too (RFC 6935).
                    set(&v6, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
                }
                sockets.push(v6);
                true
            }
            Err(_) => false,
        };
        for socket in &sockets {
            // Both may be refused: sockets are shorter then, or datagrams come one by one.
            if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BYTES).is_err() {
                _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BYTES);
            }
            if carrier != Carrier::Gre {
                _ = set(socket, libc::IPPROTO_UDP, libc::UDP_GRO, 1);
            }
            watch.add(socket.as_fd())?;
        }
        Ok(Self { carrier, sockets, has_ipv6, buffers: vec![0; BATCH * MESSAGE_BYTES] })
    }

    pub(super) fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Receives messages from each socket. Returns whether more may have arrived.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Datagram<'_>)) -> bool {
        let mut has_more = false;
        for socket in &self.sockets {
            let mut each = |datagram: Datagram<'_>| {
                if let Some(datagram) = datagram.behind_ip_header(self.carrier) {
                    each(datagram);
                }
            };
            has_more |= receive_from(socket, &mut self.buffers, &mut each);
        }
        has_more
    }
}

/// Room for the ancillary data of a message, aligned as its headers need it.
pub(super) type Control = [u64; CONTROL_WORDS];

fn receive_from(socket: &OwnedFd, buffers: &mut [u8], each: &mut impl FnMut(Datagram<'_>)) -> bool {
    // SAFETY: all-zero bytes are valid iovecs, mmsghdrs and addresses.
    let (mut parts, mut messages, mut names) = unsafe {
        zeroed::<([libc::iovec; BATCH], [libc::mmsghdr; BATCH], [libc::sockaddr_storage; BATCH])>()
    };
    let mut controls: [Control; BATCH] = [[0; CONTROL_WORDS]; BATCH];
    for (i, buffer) in buffers.chunks_exact_mut(MESSAGE_BYTES).enumerate() {
        parts[i] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let header = &mut messages[i].msg_hdr;
        header.msg_iov = &raw mut parts[i];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut names[i]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
        header.msg_control = controls[i].as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
    }
    // SAFETY: each message points to a buffer, a name and a control area of its own, with their lengths, all alive during the call.
    let received = unsafe {
        let (socket, flags) = (socket.as_raw_fd(), RecvFlags::DONTWAIT.bits());
        libc::recvmmsg(socket, messages.as_mut_ptr(), BATCH as _, flags as _, std::ptr::null_mut())
    };
    let received = usize::try_from(received).unwrap_or(0);
    for (message, buffer) in messages[..received].iter().zip(buffers.chunks_exact(MESSAGE_BYTES)) {
        let header = &message.msg_hdr;
        // SAFETY: the system has filled the name and the control area of this message, which are alive.
        let Some((remote, ancillary)) = (unsafe { read_name(header).zip(Some(Ancillary::read(header))) })
        else {
            continue;
        };
        let bytes = &buffer[..(message.msg_len as usize).min(MESSAGE_BYTES)];
        let segment = if ancillary.segment == 0 { MESSAGE_BYTES } else { ancillary.segment };
        for payload in bytes.chunks(segment) {
            let Ancillary { local: Some(local), tos, ttl, .. } = ancillary else { continue };
            each(Datagram { remote, local, tos, ttl, payload });
        }
    }
    received == BATCH
}

/// The address that a message came from.
///
/// # Safety
/// The name of `header` points to as many bytes as it says.
unsafe fn read_name(header: &libc::msghdr) -> Option<SocketAddr> {
    if (header.msg_namelen as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: both families' addresses begin with the family, and the area is aligned and long enough for either.
    unsafe {
        match libc::c_int::from((*header.msg_name.cast::<libc::sockaddr>()).sa_family) {
            libc::AF_INET => {
                let name = *header.msg_name.cast::<libc::sockaddr_in>();
                let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                Some(SocketAddr::new(address.into(), u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                let name = *header.msg_name.cast::<libc::sockaddr_in6>();
                let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
                Some(SocketAddr::new(address.into(), u16::from_be(name.sin6_port)))
            }
            _ => None,
        }
    }
}

/// The ancillary data of a received message.
#[derive(Clone, Copy, Default, Debug)]
struct Ancillary {
    local: Option<IpAddr>,
    tos: u8,
    ttl: u8,
    /// The length of all datagrams in it but the last; 0: it is one.
    segment: usize,
}

impl Ancillary {
    /// Reads the ancillary data of a message.
    ///
    /// # Safety
    /// The system has filled the control area of `header`.
    unsafe fn read(header: &libc::msghdr) -> Self {
        let mut all = Self::default();
        // SAFETY: the macros stay within the control area, whose parts the system has written whole; data may be unaligned.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(header);
            while !at.is_null() {
                let data = libc::CMSG_DATA(at);
                let int = || data.cast::<libc::c_int>().read_unaligned();
                match ((*at).cmsg_level, (*at).cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        all.local = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        all.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    // One byte for IPv4, a number for IPv6.
                    (libc::IPPROTO_IP, libc::IP_TOS) => all.tos = *data,
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => all.tos = int() as u8,
                    (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                        all.ttl = int() as u8;
                    }
                    (libc::IPPROTO_UDP, libc::UDP_GRO) => all.segment = int().max(0) as usize,
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(header, at);
            }
        }
        all
    }
}
