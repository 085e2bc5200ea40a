//! Datagrams that leave an underlay.

use std::collections::BTreeMap;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use flowlane::tunnel::TunnelKind;
use rustix::net::AddressFamily;

use super::socket::{
    BATCH, CONTROL_WORDS, Carrier, Control, ETHERNET, MESSAGE_BYTES, SOCKET_BYTES, UDP, set,
};
use super::too_long::Refused;
use crate::tunnel::PortTunnelSpec;

/// Sockets that send, for each kind of datagrams: the number of source ports.
const SENDERS: u8 = 16;
/// Refused datagrams that are kept for errors about them; the others of a burst are like them.
const REFUSED_MAX: usize = 32;
/// Datagrams in a message, as the system limits them (UDP_MAX_SEGMENTS was 64 at first).
const SEGMENTS_MAX: usize = 64;

/// The socket that a datagram leaves through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SenderKey {
    is_v6: bool,
    is_udp: bool,
    /// Of UDP, which the system computes.
    has_checksum: bool,
    dont_fragment: bool,
    /// By the flow.
    place: u8,
}

impl SenderKey {
    fn open(self) -> io::Result<OwnedFd> {
        let family = if self.is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        // The source port is the system's choice.
        let carrier = if self.is_udp { Carrier::Udp(0) } else { Carrier::Gre };
        let socket = carrier.socket(family)?;
        let (level, discovery, discover) = match self.is_v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        };
        // DONT is 0 for both.
        set(&socket, level, discovery, if self.dont_fragment { discover } else { 0 })?;
        match (self.is_udp, self.has_checksum, self.is_v6) {
            (true, true, _) | (false, _, false) => {}
            (true, false, true) => set(&socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, 1)?,
            (true, false, false) => set(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?,
            // As Open vSwitch has it: the system's label would be one for all flows of a tunnel.
            (false, _, true) => set(&socket, libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0)?,
        }
        if !self.is_udp {
            // A raw socket gets a copy of all GRE, which nothing reads here: as little of it as the system allows.
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
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
    /// The port that sends it, which counts it if it is dropped.
    port: usize,
    kind: TunnelKind,
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
    /// Datagrams that the system did not take, by the port that has sent them.
    dropped: BTreeMap<usize, u64>,
    /// Those that are too long for their way.
    refused: Vec<Refused>,
}

/// Reads the outer headers of a frame: where it goes, and where the datagram's payload begins.
fn target(frame: &[u8], spec: &PortTunnelSpec, own: usize) -> Option<(Target, usize)> {
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
    let (place, port, behind) = match spec.port {
        Some(port) => {
            // The source port is a hash of the flow.
            let flow = u16::from_be_bytes(*ip.get(network..)?.first_chunk()?);
            ((flow % u16::from(SENDERS)) as u8, port, UDP)
        }
        None => (0, 0, 0),
    };
    let is_udp = spec.port.is_some();
    let sender = SenderKey {
        is_v6,
        is_udp,
        has_checksum: is_udp && spec.checksum,
        dont_fragment: spec.dont_fragment,
        place,
    };
    let source = Some(source).filter(|source| !source.is_unspecified());
    let destination = SocketAddr::new(destination, port);
    let target = Target { sender, destination, source, tos, ttl, port: own, kind: spec.kind };
    Some((target, ETHERNET + network + behind))
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
    /// Takes the datagram of a frame with outer headers, which a port sends. Returns whether it could be queued.
    pub(super) fn put(&mut self, frame: &[u8], spec: &PortTunnelSpec, port: usize) -> bool {
        let Some((target, at)) = target(frame, spec, port) else { return false };
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

    /// Sends the queued datagrams. Returns how many of a port's the system did not take since the last call.
    pub(super) fn flush(&mut self, port: usize) -> u64 {
        if !self.messages.is_empty() {
            self.send_all();
        }
        self.dropped.remove(&port).unwrap_or(0)
    }

    /// Takes datagrams that were too long for their way.
    pub(super) fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Notes a datagram that is too long for its way.
    #[cold]
    fn refuse(&mut self, message: &Message) {
        if self.refused.len() < REFUSED_MAX {
            let Target { kind, destination, source, .. } = message.target;
            let payload = message.bytes[..message.segment.min(message.bytes.len())].to_vec();
            self.refused.push(Refused { kind, destination, source, payload });
        }
    }

    /// Forgets a port, whose number another one may get.
    pub(super) fn forget(&mut self, port: usize) {
        self.flush(port);
    }

    fn drop_message(&mut self, message: &Message, segments: u64) {
        *self.dropped.entry(message.target.port).or_default() += segments;
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
                    for message in messages {
                        self.drop_message(message, message.segments as u64);
                    }
                    return;
                }
            },
        };
        let mut at = 0;
        while at < messages.len() {
            let error = match send_messages(&self.sockets[place].1, &messages[at..]) {
                Ok(sent) => {
                    at += sent;
                    continue;
                }
                Err(error) => error,
            };
            // The first was not taken. A system without segmentation, or a route on which checksums are not computed later: one by one.
            let message = &messages[at];
            let mut is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
            let is_apart =
                message.segments > 1 && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO));
            let dropped = match is_apart {
                true => {
                    let (dropped, too_long) = send_apart(&self.sockets[place].1, message);
                    is_too_long = too_long;
                    // The system says EINVAL of segments that are too long, too.
                    self.is_single |= !too_long;
                    dropped
                }
                false => message.segments as u64,
            };
            if is_too_long {
                self.refuse(message);
            }
            self.drop_message(message, dropped);
            at += 1;
        }
    }
}

/// Sends the datagrams of a message one by one. Returns how many were not taken, and whether any was too long.
#[cold]
fn send_apart(socket: &OwnedFd, message: &Message) -> (u64, bool) {
    let send = |payload: &[u8]| {
        let one = Message { bytes: payload.to_vec(), segments: 1, ..message.clone() };
        send_messages(socket, &[one]).err()
    };
    let errors: Vec<_> = message.bytes.chunks(message.segment.max(1)).filter_map(send).collect();
    let is_too_long = errors.iter().any(|error| error.raw_os_error() == Some(libc::EMSGSIZE));
    (errors.len() as u64, is_too_long)
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
