//! The UDP sockets of an underlay.
//!
//! *Outer headers* are the system's: addresses, TTL and type of service come with a datagram and go with it as ancillary data.
//!
//! *Flows differ in their source ports* (RFC 7348 §5, RFC 8926 §3.3), by which the network spreads them over its paths. A socket has
//! one, so there are several that send.
//!
//! *Segmentation*: datagrams of equal length to one place leave in one message, which the system cuts (UDP_SEGMENT), and come
//! in one (UDP_GRO).

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use super::super::interface::{Watch, set_option};
use crate::packet::Frame;
use crate::packet::edit::checksum::{fold, sum};
use crate::tunnel::PortTunnelSpec;

/// Messages that are received, or sent, in one call.
const BATCH: usize = 32;
/// The longest message: several datagrams.
const MESSAGE_BYTES: usize = 65_536;
/// Words of a message's ancillary data: addresses, TTL, type of service, and the length of segments.
const CONTROL_WORDS: usize = 24;
/// Sockets that send, for each kind of datagrams: the number of source ports.
const SENDERS: u8 = 16;
/// Bytes that wait at most in a socket, as far as the system allows it.
const SOCKET_BYTES: i32 = 4 << 20;
/// Datagrams in a message, as the system limits them (UDP_MAX_SEGMENTS was 64 at first).
const SEGMENTS_MAX: usize = 64;

const ETHERNET: usize = 14;
const UDP: usize = 8;

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

impl Datagram<'_> {
    /// Makes a frame the datagram to a UDP port with its headers. The checksum of UDP, which the system has verified, is none.
    pub(super) fn fill(&self, port: u16, frame: &mut Frame) {
        let network = if self.remote.is_ipv4() { 20 } else { 40 };
        let udp_len = UDP + self.payload.len();
        let bytes = frame.space(ETHERNET + network + udp_len);
        bytes[..12].fill(0);
        let ip = &mut bytes[12..ETHERNET + network];
        match (self.remote.ip(), self.local) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ip[..4].copy_from_slice(&[0x08, 0x00, 0x45, self.tos]);
                ip[4..6].copy_from_slice(&((network + udp_len) as u16).to_be_bytes());
                ip[6..14].copy_from_slice(&[0, 0, 0x40, 0, self.ttl, 17, 0, 0]);
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
                ip[6..8].copy_from_slice(&(udp_len as u16).to_be_bytes());
                ip[8..10].copy_from_slice(&[17, self.ttl]);
                ip[10..26].copy_from_slice(&octets(from));
                ip[26..42].copy_from_slice(&octets(to));
            }
        }
        let udp = &mut bytes[ETHERNET + network..];
        udp[..2].copy_from_slice(&self.remote.port().to_be_bytes());
        udp[2..4].copy_from_slice(&port.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        udp[6..8].fill(0);
        udp[UDP..].copy_from_slice(self.payload);
    }
}

/// A UDP socket that does not block.
fn udp_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?)
}

/// Sets an option that is a number.
fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(socket, level, option, &value)
}

/// The sockets that receive.
#[derive(Debug)]
pub(super) struct Inbound {
    /// For IPv4, and for IPv6 where the system has it.
    sockets: Vec<OwnedFd>,
    has_ipv6: bool,
    buffers: Vec<u8>,
}

impl Inbound {
    /// Opens a UDP port at all addresses of the node.
    pub(super) fn open(port: u16, watch: &Watch) -> io::Result<Self> {
        let v4 = udp_socket(AddressFamily::INET)?;
        bind(&v4, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
        for option in [libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL] {
            set(&v4, libc::IPPROTO_IP, option, 1)?;
        }
        let mut sockets = vec![v4];
        let has_ipv6 = match udp_socket(AddressFamily::INET6) {
            Ok(v6) => {
                sockopt::set_ipv6_v6only(&v6, true)?;
                bind(&v6, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
                for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT] {
                    set(&v6, libc::IPPROTO_IPV6, option, 1)?;
                }
                // Tunnels may do without a checksum there, too (RFC 6935).
                set(&v6, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
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
            _ = set(socket, libc::IPPROTO_UDP, libc::UDP_GRO, 1);
            watch.add(socket.as_fd())?;
        }
        Ok(Self { sockets, has_ipv6, buffers: vec![0; BATCH * MESSAGE_BYTES] })
    }

    pub(super) fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Receives messages from each socket. Returns whether more may have arrived.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Datagram<'_>)) -> bool {
        let mut has_more = false;
        for socket in &self.sockets {
            has_more |= receive_from(socket, &mut self.buffers, &mut each);
        }
        has_more
    }
}

/// Room for the ancillary data of a message, aligned as its headers need it.
type Control = [u64; CONTROL_WORDS];

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

/// The socket that a datagram leaves through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SenderKey {
    is_v6: bool,
    has_checksum: bool,
    dont_fragment: bool,
    /// By the flow.
    place: u8,
}

impl SenderKey {
    fn open(self) -> io::Result<OwnedFd> {
        let family = if self.is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = udp_socket(family)?;
        let (level, discovery, discover) = match self.is_v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        };
        // DONT is 0 for both.
        set(&socket, level, discovery, if self.dont_fragment { discover } else { 0 })?;
        match (self.has_checksum, self.is_v6) {
            (true, _) => {}
            (false, true) => set(&socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, 1)?,
            (false, false) => set(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?,
        }
        if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES).is_err() {
            _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BYTES);
        }
        Ok(socket)
    }
}

/// Where a datagram goes, and with which headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    sender: SenderKey,
    destination: SocketAddr,
    /// None: the system's choice.
    source: Option<IpAddr>,
    tos: u8,
    ttl: u8,
}

/// A message of one or several datagrams of equal length, the last of which may be shorter.
#[derive(Clone, Debug)]
struct Message {
    target: Target,
    bytes: Vec<u8>,
    segment: usize,
    segments: usize,
    /// The last datagram is shorter: none may follow.
    is_closed: bool,
}

/// Datagrams that are to leave, and the sockets for them.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    sockets: Vec<(SenderKey, OwnedFd)>,
    messages: Vec<Message>,
    spare: Vec<Vec<u8>>,
    /// The system does not cut messages.
    is_single: bool,
    /// Datagrams that the system did not take since they were last asked for.
    dropped: u64,
}

/// Reads the outer headers of a frame: where it goes, and where the datagram's payload begins.
fn target(frame: &[u8], spec: &PortTunnelSpec) -> Option<(Target, usize)> {
    let ip = frame.get(ETHERNET..)?;
    let is_v6 = frame[12..14] == [0x86, 0xdd];
    let (network, tos, ttl, source, destination): (_, _, _, IpAddr, IpAddr) = match is_v6 {
        true => {
            let ip: &[u8; 40] = ip.first_chunk()?;
            let address = |at: usize| -> [u8; 16] { std::array::from_fn(|i| ip[at + i]) };
            let tos = ip[0] << 4 | ip[1] >> 4;
            (40, tos, ip[7], Ipv6Addr::from(address(8)).into(), Ipv6Addr::from(address(24)).into())
        }
        false => {
            let ip: &[u8; 20] = ip.first_chunk()?;
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]).into();
            (20, ip[1], ip[8], address(12), address(16))
        }
    };
    let udp: &[u8; UDP] = ip.get(network..)?.first_chunk()?;
    // The source port is a hash of the flow.
    let flow = u16::from_be_bytes([udp[0], udp[1]]);
    let sender = SenderKey {
        is_v6,
        has_checksum: spec.udp_checksum,
        dont_fragment: spec.dont_fragment,
        place: (flow % u16::from(SENDERS)) as u8,
    };
    let port = u16::from_be_bytes([udp[2], udp[3]]);
    let source = Some(source).filter(|source| !source.is_unspecified());
    let target = Target { sender, destination: SocketAddr::new(destination, port), source, tos, ttl };
    Some((target, ETHERNET + network + UDP))
}

impl Message {
    /// Appends a datagram if the message has the same target and the length of its datagrams allows it. Returns whether it did.
    fn append(&mut self, target: &Target, payload: &[u8]) -> bool {
        let fits = !self.is_closed
            && self.target == *target
            && payload.len() <= self.segment
            && self.segments < SEGMENTS_MAX
            && self.bytes.len() + payload.len() < MESSAGE_BYTES - 128;
        if fits {
            self.bytes.extend_from_slice(payload);
            self.segments += 1;
            self.is_closed = payload.len() < self.segment;
        }
        fits
    }
}

impl Outbound {
    /// Takes the datagram of a frame with outer headers. Returns whether it could be queued.
    pub(super) fn put(&mut self, frame: &[u8], spec: &PortTunnelSpec) -> bool {
        let Some((target, at)) = target(frame, spec) else { return false };
        let payload = &frame[at..];
        // The system cuts messages with checksums only.
        if target.sender.has_checksum && !self.is_single {
            // Behind a message to elsewhere none is appended: a flow keeps its order.
            let last = self.messages.iter_mut().rev().find(|message| message.target.sender == target.sender);
            if last.is_some_and(|message| message.append(&target, payload)) {
                return true;
            }
        }
        if self.messages.len() == BATCH {
            self.send_all();
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(payload);
        self.messages.push(Message { target, bytes, segment: payload.len(), segments: 1, is_closed: false });
        true
    }

    /// Sends the queued datagrams. Returns the number of datagrams that the system did not take since the last call.
    pub(super) fn flush(&mut self) -> u64 {
        if !self.messages.is_empty() {
            self.send_all();
        }
        std::mem::take(&mut self.dropped)
    }

    fn send_all(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        // Stable: a flow has one socket, and keeps its order.
        messages.sort_by_key(|message| message.target.sender);
        for group in messages.chunk_by(|a, b| a.target.sender == b.target.sender) {
            self.send(group);
        }
        self.spare.extend(messages.drain(..).map(|message| message.bytes));
        self.messages = messages;
    }

    /// Sends messages through their socket.
    fn send(&mut self, messages: &[Message]) {
        let key = messages[0].target.sender;
        let place = match self.sockets.iter().position(|(own, _)| *own == key) {
            Some(place) => place,
            None => match key.open() {
                Ok(socket) => {
                    self.sockets.push((key, socket));
                    self.sockets.len() - 1
                }
                Err(_) => {
                    self.dropped += messages.iter().map(|message| message.segments as u64).sum::<u64>();
                    return;
                }
            },
        };
        let socket = &self.sockets[place].1;
        let mut at = 0;
        while at < messages.len() {
            let error = match send_messages(socket, &messages[at..]) {
                Ok(sent) => {
                    at += sent;
                    continue;
                }
                Err(error) => error,
            };
            // The first was not taken. A system without segmentation, or a route on which checksums are not computed later: one by one.
            let message = &messages[at];
            let is_refused =
                message.segments > 1 && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO));
            self.is_single |= is_refused;
            self.dropped += match is_refused {
                true => send_apart(socket, message),
                false => message.segments as u64,
            };
            at += 1;
        }
    }
}

/// Sends the datagrams of a message one by one. Returns how many were not taken.
#[cold]
fn send_apart(socket: &OwnedFd, message: &Message) -> u64 {
    let send = |payload: &[u8]| {
        let one = Message { bytes: payload.to_vec(), segments: 1, ..message.clone() };
        send_messages(socket, &[one]).is_err()
    };
    message.bytes.chunks(message.segment.max(1)).filter(|payload| send(payload)).count() as u64
}

/// The address of a datagram's destination, as the system wants it, and its length.
fn name_of(destination: SocketAddr) -> (libc::sockaddr_in6, usize) {
    // SAFETY: all-zero bytes are valid addresses.
    let mut name = unsafe { zeroed::<libc::sockaddr_in6>() };
    match destination {
        SocketAddr::V4(v4) => {
            // SAFETY: as above.
            let mut short = unsafe { zeroed::<libc::sockaddr_in>() };
            short.sin_family = libc::AF_INET as _;
            short.sin_port = v4.port().to_be();
            short.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: it is shorter, and its alignment is not larger.
            unsafe { (&raw mut name).cast::<libc::sockaddr_in>().write(short) };
            (name, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            name.sin6_family = libc::AF_INET6 as _;
            name.sin6_port = v6.port().to_be();
            name.sin6_addr.s6_addr = v6.ip().octets();
            (name, size_of::<libc::sockaddr_in6>())
        }
    }
}

/// Writes the ancillary data of a message to be sent. Returns the bytes.
fn write_control(control: &mut Control, message: &Message) -> usize {
    let mut at = 0;
    let bytes: &mut [u64] = control;
    let mut push = |level: libc::c_int, kind: libc::c_int, data: &[u8]| {
        // SAFETY: the macros compute lengths.
        let (len, space) = unsafe { (libc::CMSG_LEN(data.len() as _), libc::CMSG_SPACE(data.len() as _)) };
        // SAFETY: the part is within the area, which is long enough for all that are pushed, and aligned for a header.
        unsafe {
            let part = bytes.as_mut_ptr().cast::<u8>().add(at).cast::<libc::cmsghdr>();
            (*part).cmsg_level = level;
            (*part).cmsg_type = kind;
            (*part).cmsg_len = len as _;
            libc::CMSG_DATA(part).copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        at += space as usize;
    };
    let Target { source, tos, ttl, .. } = message.target;
    let (tos, ttl) = (i32::from(tos).to_ne_bytes(), i32::from(ttl.max(1)).to_ne_bytes());
    match message.target.sender.is_v6 {
        false => {
            push(libc::IPPROTO_IP, libc::IP_TOS, &tos);
            push(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
        }
        true => {
            push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
            push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
        }
    }
    match source {
        // in_pktinfo: interface (any), source, and an address that does not count here.
        Some(IpAddr::V4(source)) => {
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&source.octets());
            push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        // in6_pktinfo: source, interface (any).
        Some(IpAddr::V6(source)) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&source.octets());
            push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        None => {}
    }
    if message.segments > 1 {
        push(libc::IPPROTO_UDP, libc::UDP_SEGMENT, &(message.segment as u16).to_ne_bytes());
    }
    at
}

/// Sends messages; returns how many the system took.
///
/// # Errors
/// Why it did not take the first.
fn send_messages(socket: &OwnedFd, messages: &[Message]) -> io::Result<usize> {
    let messages = &messages[..messages.len().min(BATCH)];
    // SAFETY: all-zero bytes are valid iovecs, mmsghdrs and addresses.
    let (mut parts, mut headers, mut names) =
        unsafe { zeroed::<([libc::iovec; BATCH], [libc::mmsghdr; BATCH], [libc::sockaddr_in6; BATCH])>() };
    let mut controls: [Control; BATCH] = [[0; CONTROL_WORDS]; BATCH];
    for (i, message) in messages.iter().enumerate() {
        let (name, name_len) = name_of(message.target.destination);
        names[i] = name;
        let control_len = write_control(&mut controls[i], message);
        parts[i] =
            libc::iovec { iov_base: message.bytes.as_ptr().cast_mut().cast(), iov_len: message.bytes.len() };
        let header = &mut headers[i].msg_hdr;
        header.msg_iov = &raw mut parts[i];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut names[i]).cast();
        header.msg_namelen = name_len as _;
        header.msg_control = controls[i].as_mut_ptr().cast();
        header.msg_controllen = control_len as _;
    }
    // SAFETY: each message points to its bytes, name and control area, with their lengths, all alive during the call, which only
    // reads them.
    let sent = unsafe {
        let (socket, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT as _);
        libc::sendmmsg(socket, headers.as_mut_ptr(), messages.len() as _, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
