//! Interfaces of the system, through packet sockets (packet(7)).
//!
//! The kernel hands over frames as its own interfaces exchange them: a virtual neighbour leaves checksums
//! to be filled in and sends TCP in pieces of up to 64 KiB. With `PACKET_VNET_HDR` it says so, and the port
//! does what a network card would ([`offload`](super::offload)). VLAN tags that the kernel has taken off
//! come back from its auxiliary data.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::SystemTime;

use super::offload::{complete_checksum, fragment, segment};
use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames};

/// `struct virtio_net_hdr` (virtio 1.2 §5.1.6): flags, GSO type, header length, GSO size, checksum start
/// and offset; in the machine's byte order here.
const VNET_HEADER: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
/// The GSO type of a UDP datagram that leaves in IP fragments (`VIRTIO_NET_HDR_GSO_UDP`).
const GSO_UDP_FRAGMENTS: u8 = 3;
/// The GSO type's bit for ECN.
const GSO_ECN: u8 = 0x80;

/// The longest frame that the kernel hands over.
const RECEIVE_MAX: usize = 65_536 + 256;

/// An interface.
pub struct AfPacketPort {
    spec: String,
    socket: OwnedFd,
    /// Segments of a large frame that did not fit into the burst.
    pending: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    /// Frames that came and could not be had, since somebody asked.
    lost: u64,
}

/// What the socket has.
enum Read {
    /// A frame in the buffer: its length with the header in front, and the tag that the kernel took off (TPID and TCI).
    Frame(usize, Option<[u8; 4]>),
    /// A frame that the kernel cannot hand over: it is lost, and there may be others.
    Lost,
    /// Nothing for now.
    Nothing,
}

impl AfPacketPort {
    /// Opens an interface, and makes it hand over frames for any address.
    ///
    /// # Errors
    /// Where there is no such interface, or no permission.
    pub fn open(interface: &str) -> Result<Self, PortError> {
        let spec = format!("afpacket:{interface}");
        let fail = |problem: String| PortError::Environment { spec: spec.clone(), problem };
        let index = interface_index(interface).ok_or_else(|| {
            fail(format!("there is no interface `{interface}`; there are {}", interfaces().join(", ")))
        })?;
        let socket = open_socket(index).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => fail(
                "packet sockets need permission: run as root, or allow it with \
                 `setcap cap_net_raw,cap_net_admin+ep` on the flowlane binary"
                    .to_owned(),
            ),
            _ => fail(format!("cannot be opened: {error}")),
        })?;
        let buffer = vec![0; VNET_HEADER + RECEIVE_MAX];
        Ok(Self { spec, socket, pending: VecDeque::new(), buffer, lost: 0 })
    }

    /// One frame from the socket into `buffer`.
    ///
    /// # Errors
    /// Where the socket is none any more.
    fn read(&mut self) -> io::Result<Read> {
        let mut part = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        let mut control = [0u64; 16];
        // SAFETY: all-zero bytes are a valid msghdr, which is a plain C structure.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message points to `part` and `control`, which point to memory of the lengths given,
        // all of it alive and borrowed by nobody else during the call.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        if got < 0 {
            return failed_read(io::Error::last_os_error());
        }
        Ok(Read::Frame(got as usize, tag_of(&message)))
    }

    fn write(&self, frame: &[u8]) -> bool {
        let header = [0u8; VNET_HEADER];
        let mut parts = [
            libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
        ];
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = 2;
        // SAFETY: the message points to `parts`, which point to `header` and `frame`, alive during the call;
        // sendmsg only reads them.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        sent >= 0
    }
}

impl Port for AfPacketPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time_ns = now.as_nanos() as u64;
        loop {
            while let Some(bytes) = self.pending.pop_front() {
                let Some(frame) = frames.next_frame() else {
                    self.pending.push_front(bytes);
                    return Ok(Received::More);
                };
                frame.fill(&bytes);
                frame.time_ns = time_ns;
            }
            if frames.is_full() {
                return Ok(Received::More);
            }
            let read = self.read().map_err(|source| PortError::Io { spec: self.spec.clone(), source })?;
            let (len, tag) = match read {
                Read::Frame(len, tag) => (len, tag),
                Read::Lost => {
                    self.lost += 1;
                    continue;
                }
                Read::Nothing => return Ok(Received::Idle),
            };
            let Some((header, bytes)) = self.buffer[..len].split_first_chunk_mut::<VNET_HEADER>() else {
                continue;
            };
            let number = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
            let (gso, gso_size) = (header[1] & !GSO_ECN, number(4));
            let partial = header[0] & NEEDS_CHECKSUM != 0;
            let checksum = (number(6), number(8));
            if gso != 0 {
                // What is no TCP or UDP cannot be cut and is lost, as it would be on a slower link.
                let pending = &mut self.pending;
                let emit = |piece: &[u8]| pending.push_back(with_tag(piece, tag));
                let cut = match gso {
                    GSO_UDP_FRAGMENTS => {
                        if partial {
                            complete_checksum(bytes, checksum.0, checksum.1);
                        }
                        fragment(bytes, gso_size, emit)
                    }
                    _ => segment(bytes, gso_size, emit),
                };
                self.lost += u64::from(!cut);
                continue;
            }
            if partial {
                complete_checksum(bytes, checksum.0, checksum.1);
            }
            let Some(frame) = frames.next_frame() else { return Ok(Received::More) };
            match tag {
                None => frame.fill(bytes),
                Some(_) => frame.fill(&with_tag(bytes, tag)),
            }
            frame.time_ns = time_ns;
        }
    }

    fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        Ok(self.write(frame.bytes()))
    }
}

/// What it means that the kernel has given an error instead of a frame. Only a socket that is none ends the port: an
/// interface may come back, memory may be free again, and where the kernel cannot describe a frame's offload by virtio's
/// header (EINVAL), only that frame is gone.
fn failed_read(error: io::Error) -> io::Result<Read> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Ok(Read::Nothing),
        Some(libc::ENOBUFS | libc::ENOMEM) => Ok(Read::Nothing),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::ENOTCONN) | None => Err(error),
        Some(_) => Ok(Read::Lost),
    }
}

/// The frame with its tag put back.
fn with_tag(bytes: &[u8], tag: Option<[u8; 4]>) -> Vec<u8> {
    match tag {
        Some(tag) if bytes.len() >= 12 => [&bytes[..12], &tag, &bytes[12..]].concat(),
        _ => bytes.to_vec(),
    }
}

/// The VLAN tag in a message's auxiliary data.
fn tag_of(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel has filled in `message`, whose control memory is alive; CMSG_FIRSTHDR returns a
    // header within it or null.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref()? };
    if header.cmsg_level != libc::SOL_PACKET || header.cmsg_type != libc::PACKET_AUXDATA {
        return None;
    }
    // SAFETY: a control message of this level and type holds a tpacket_auxdata, which may be unaligned.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if known { data.tp_vlan_tpid } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

fn interface_index(interface: &str) -> Option<libc::c_int> {
    let name = CString::new(interface).ok()?;
    // SAFETY: `name` ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index as libc::c_int)
}

/// The names of all interfaces, for messages.
fn interfaces() -> Vec<String> {
    let folder = std::fs::read_dir("/sys/class/net");
    let mut names: Vec<String> = folder
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn open_socket(index: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just returned this descriptor, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
        set_option(&socket, libc::SOL_PACKET, option, &1 as &libc::c_int)?;
    }
    // Room for a burst of large frames; less where the system's limit says so.
    let room: libc::c_int = 4 << 20;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &room)?;
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as _;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address is a sockaddr_ll of the length given, alive during the call.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as _)
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let pointer: *const T = value;
    // SAFETY: the option is read from `value`, which is alive and of the length given.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer.cast(), size_of::<T>() as _) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_is_none_ends_a_port() {
        let read = |code| failed_read(io::Error::from_raw_os_error(code));
        // EINVAL: offload that virtio's header cannot describe.
        assert!(matches!(read(libc::EINVAL), Ok(Read::Lost)));
        for code in [libc::EAGAIN, libc::ENETDOWN, libc::ENXIO, libc::ENODEV, libc::ENOMEM, libc::ENOBUFS] {
            assert!(matches!(read(code), Ok(Read::Nothing)), "{code}");
        }
        assert!(read(libc::EBADF).is_err() && read(libc::ENOTSOCK).is_err());
    }
}
