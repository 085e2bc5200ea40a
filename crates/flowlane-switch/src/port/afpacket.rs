//! Network interfaces through packet sockets (packet(7)).
//!
//! The kernel hands over frames as its own interfaces exchange them: a virtual neighbour leaves checksums
//! to be filled in and sends TCP in pieces of up to 64 KiB. With `PACKET_VNET_HDR` it says so, and the port
//! does what a network card would ([`offload`](super::offload)). VLAN tags that the kernel has taken off
//! come back from its auxiliary data.
//!
//! Up to 32 frames are received, or sent, by one call of the system. Short ones are copied, so that they lie together; the buffer of a
//! long one changes places with that of the burst, and goes to the kernel from there. Short datagrams of one flow go as one (`udp_gso`).
//!
//! *Several workers* have a socket each, among which the kernel spreads frames by a hash of addresses and ports that is the same for both
//! directions of a flow, and on all interfaces (`PACKET_FANOUT_HASH`; of fragments by addresses alone).
//!
//! *An interface that goes away* leaves a socket without one. When it is there again (`interface.rs`) the socket is bound to it; one of
//! several has to be reopened, which needs the permission again.
//!
//! *At the end* a filter keeps further frames out of the socket, so that those in it can be received to the last.

mod outgoing;
mod udp_gso;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::mem::{size_of, zeroed};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use self::outgoing::Outgoing;
use super::interface::{self, Checks, set_option, set_promiscuous};
use super::offload::VNET_HEADER;
use super::{Port, PortError, Received, permission};
use crate::packet::{Frame, Frames, Offload};

/// The longest frame that the kernel hands over.
const RECEIVE_MAX: usize = 65_536 + 256;

/// Frames received or sent in one call.
const BATCH: usize = 32;

/// Frames beyond this length are not copied.
const SHORT: usize = 2048;

/// Receive buffer of a socket: some tens of large frames.
const ROOM: libc::c_int = 8 << 20;

/// Receive calls after which the kernel is asked for the number of dropped frames.
const DROP_QUERY_CALLS: u32 = 256;

/// An interface, or a worker's part of what comes in through one.
pub struct AfPacketPort {
    spec: String,
    interface: String,
    socket: OwnedFd,
    /// Where it is one of several: the group that it is in, and the newest one of the interface.
    group: Option<(u16, Arc<Newest>)>,
    checks: Checks,
    /// No frame comes into the socket any more.
    is_stopped: bool,
    /// Segments of a large frame that did not fit into the burst.
    pending: VecDeque<Vec<u8>>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Frames dropped on receipt since `rx_dropped` was last called.
    lost: u64,
    /// Receive calls since the kernel was asked for the number of dropped frames.
    calls_since_query: u32,
    /// Frames keep their offload metadata.
    keeps_offloads: bool,
}

/// The number of the group of sockets that the kernel spreads an interface's frames over. An interface that comes back, whatever
/// its index, needs another group: the former one is bound to the interface that has gone.
type Newest = Mutex<Option<u16>>;

thread_local! {
    /// Frames that no port of this thread uses: they take 2 MiB, and a switch may have hundreds of ports.
    static SPARE: Cell<Vec<Frame>> = const { Cell::new(Vec::new()) };
}

/// Frames that the socket has given.
struct Incoming {
    /// [`BATCH`] of them, with room for the longest, while one has not been taken; else none.
    frames: Vec<Frame>,
    /// Of each: the header that stood in front of it, its length with that, and the tag that the kernel took off (TPID and TCI).
    headers: [[u8; VNET_HEADER]; BATCH],
    about: [(usize, Option<[u8; 4]>); BATCH],
    /// Those that have not been taken.
    ready: Range<usize>,
    /// There may be more at once: the last call gave as many as it could.
    more: bool,
    /// The last call gave none.
    is_over: bool,
}

/// The result of a receive call.
enum Read {
    /// The number of frames received.
    Frames(usize),
    /// A frame that the kernel cannot hand over: it is lost, and there may be others.
    Lost,
    /// Nothing for now.
    Nothing,
}

impl Incoming {
    /// Takes frames that no other port uses.
    fn take_frames(&mut self) {
        if self.frames.is_empty() {
            self.frames = SPARE.take();
            self.frames.resize_with(BATCH, || Frame::with_room(RECEIVE_MAX));
        }
    }

    /// Leaves the frames to other ports, if all have been taken from them.
    fn give_frames(&mut self) {
        if self.ready.is_empty() {
            SPARE.set(std::mem::take(&mut self.frames));
        }
    }
}

impl AfPacketPort {
    /// Opens an interface, and makes it hand over frames for any address.
    ///
    /// # Errors
    /// Where there is no such interface, or no permission.
    pub fn open(interface: &str) -> Result<Self, PortError> {
        Ok(Self::open_all(interface, 1)?.remove(0))
    }

    /// Opens an interface with a socket for each worker.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(interface: &str, workers: usize) -> Result<Vec<Self>, PortError> {
        let newest = (workers > 1).then(Arc::default);
        let mut ports =
            (0..workers).map(|_| Self::open_one(interface, newest.clone())).collect::<Result<Vec<_>, _>>()?;
        // What came before all were there has come to several.
        ports.iter_mut().filter(|_| workers > 1).for_each(Self::forget);
        Ok(ports)
    }

    /// Keeps frames out until [`resume_arrivals`](Port::resume_arrivals), and forgets those that have come.
    pub(super) fn shut(&mut self) {
        self.stop_arrivals();
        self.pending.clear();
        self.incoming.ready = 0..0;
        self.forget();
    }

    fn open_one(interface: &str, newest: Option<Arc<Newest>>) -> Result<Self, PortError> {
        let spec = format!("afpacket:{interface}");
        let fail = |problem: String| PortError::Environment { spec: spec.clone(), problem };
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                fail(permission::refused("packet sockets", &[permission::SOCKETS]))
            }
            _ => fail(format!("cannot be opened: {error}")),
        };
        let index = interface::index_of(interface).map_err(failed)?;
        let index = index.ok_or_else(|| fail(interface::missing(interface)))?;
        let opened = open_socket(index).and_then(|socket| {
            let group = newest.map(|newest| Ok::<_, io::Error>((join(&socket, None, &newest)?, newest)));
            Ok((socket, group.transpose()?))
        });
        let (socket, group) = opened.map_err(failed)?;
        let incoming = Incoming {
            frames: Vec::new(),
            headers: [[0; VNET_HEADER]; BATCH],
            about: [(0, None); BATCH],
            ready: 0..0,
            more: false,
            is_over: false,
        };
        let outgoing = Outgoing::default();
        Ok(Self {
            spec,
            interface: interface.to_owned(),
            socket,
            group,
            checks: Checks::new(),
            is_stopped: false,
            pending: VecDeque::new(),
            incoming,
            outgoing,
            lost: 0,
            calls_since_query: 0,
            keeps_offloads: false,
        })
    }

    /// Forgets what has come.
    fn forget(&mut self) {
        while matches!(self.read(), Ok(Read::Frames(1..) | Read::Lost)) {}
        self.incoming.give_frames();
        self.incoming.more = false;
    }

    /// Follows the interface, which may have gone or be there again. What fails is tried again.
    #[cold]
    fn follow(&mut self) {
        let named = interface::index_of(&self.interface).ok().flatten();
        let bound = bound_index(&self.socket);
        if let Some(named) = named.filter(|_| named != bound) {
            _ = self.go_on_with(named, bound);
        }
    }

    /// Goes on with another interface of the same name.
    fn go_on_with(&mut self, index: libc::c_int, before: Option<libc::c_int>) -> io::Result<()> {
        match &mut self.group {
            // A socket of a group is never bound again.
            Some((number, newest)) => {
                let socket = open_socket(index)?;
                *number = join(&socket, Some(*number), newest)?;
                self.lost += dropped_by_kernel(&self.socket);
                self.socket = socket;
                self.outgoing.restart();
            }
            None => {
                attach(&self.socket, index)?;
                if let Some(before) = before {
                    // It may have gone since.
                    _ = set_promiscuous(&self.socket, before, false);
                }
            }
        }
        Ok(())
    }

    /// Asks the socket for frames.
    ///
    /// # Errors
    /// Where the socket is none any more.
    fn read(&mut self) -> io::Result<Read> {
        let mut control = [[0u64; 8]; BATCH];
        // SAFETY: all-zero bytes are valid iovecs and mmsghdrs, which are plain C structures.
        let (mut parts, mut messages) =
            unsafe { zeroed::<([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH])>() };
        self.incoming.take_frames();
        let Incoming { frames, headers, .. } = &mut self.incoming;
        for (i, (frame, header)) in frames.iter_mut().zip(headers).enumerate() {
            if frame.room() < RECEIVE_MAX {
                *frame = Frame::with_room(RECEIVE_MAX);
            }
            parts[i] = [part(header), part(frame.space(RECEIVE_MAX))];
            let message = &mut messages[i].msg_hdr;
            message.msg_iov = parts[i].as_mut_ptr();
            message.msg_iovlen = 2;
            message.msg_control = control[i].as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control[i]) as _;
        }
        // SAFETY: each message points to its two parts and control memory, those to memory of the lengths given, all of it alive
        // and not borrowed elsewhere during the call, which has at most as many messages as there are.
        let got = unsafe {
            let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT as _);
            libc::recvmmsg(socket, messages.as_mut_ptr(), BATCH as _, flags, std::ptr::null_mut())
        };
        self.incoming.more = got == BATCH as libc::c_int;
        self.incoming.is_over = got <= 0;
        self.calls_since_query += u32::from(got > 0);
        if got < 0 {
            return failed_read(io::Error::last_os_error());
        }
        let got = got as usize;
        for (about, message) in self.incoming.about.iter_mut().zip(&messages[..got]) {
            *about = (message.msg_len as usize, tag_of(&message.msg_hdr));
        }
        Ok(Read::Frames(got))
    }

    fn receive_into(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time_ns = now.as_nanos() as u64;
        let mut asked = false;
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
            if self.incoming.ready.is_empty() {
                if asked && !self.incoming.more {
                    return Ok(Received::Idle);
                }
                let read = self.read().map_err(|source| PortError::Io { spec: self.spec.clone(), source })?;
                match read {
                    Read::Frames(got) => (self.incoming.ready, asked) = (0..got, true),
                    Read::Lost => self.lost += 1,
                    Read::Nothing => {
                        if !self.is_stopped {
                            self.check();
                        }
                        return Ok(Received::Idle);
                    }
                }
                continue;
            }
            let at = self.incoming.ready.start;
            self.incoming.ready.start += 1;
            let (len, tag) = self.incoming.about[at];
            let Some(len) = len.checked_sub(VNET_HEADER) else { continue };
            let received = &mut self.incoming.frames[at];
            received.truncate(len);
            let bytes = received.bytes_mut();
            let mut offload = Offload::read(&self.incoming.headers[at]);
            if let Some(left) = offload
                && !(self.keeps_offloads && tag.is_none() && left.can_be_left())
            {
                // Only TCP and UDP can be segmented; other large frames are dropped, as on a slower link.
                let pending = &mut self.pending;
                if left.cut.is_some() {
                    let cut = left.finish(bytes, |piece| pending.push_back(with_tag(piece, tag)));
                    self.lost += u64::from(!cut);
                    continue;
                }
                left.finish(bytes, |_| {});
                offload = None;
            }
            let Some(frame) = frames.next_frame() else { return Ok(Received::More) };
            match tag {
                None if len <= SHORT => frame.fill(bytes),
                None => std::mem::swap(frame, received),
                Some(_) => frame.fill(&with_tag(bytes, tag)),
            }
            frame.offload = offload;
            frame.time_ns = time_ns;
        }
    }
}

impl Port for AfPacketPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let received = self.receive_into(frames);
        self.incoming.give_frames();
        received
    }

    fn rx_dropped(&mut self) -> u64 {
        // Seldom under load, and when it has ended.
        if self.calls_since_query >= DROP_QUERY_CALLS || self.calls_since_query > 0 && self.incoming.is_over {
            self.lost += dropped_by_kernel(&self.socket);
            self.calls_since_query = 0;
        }
        std::mem::take(&mut self.lost)
    }

    fn keep_offloads(&mut self, keep: bool) {
        self.keeps_offloads = keep;
    }

    fn carries_offloads(&self) -> bool {
        true
    }

    fn check(&mut self) {
        if self.checks.is_due() {
            self.follow();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn stop_arrivals(&mut self) -> bool {
        self.is_stopped = true;
        // Where the filter is refused, frames go on to come: the worker waits for no longer than it does anyway.
        _ = refuse_all(&self.socket);
        true
    }

    fn resume_arrivals(&mut self) {
        self.is_stopped = false;
        // A socket that has no filter, or whose interface has gone, refuses that.
        _ = set_option(&self.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &(0 as libc::c_int));
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.outgoing.put(&self.socket, frame);
        Ok(true)
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        self.outgoing.flush(&self.socket);
        Ok(self.outgoing.take_dropped())
    }
}

/// Memory that a call of the system is to fill.
fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Interprets an error of the kernel in place of a frame. Only an invalid socket ends the port: an
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

/// A socket that frames of an interface come to.
fn open_socket(index: libc::c_int) -> io::Result<OwnedFd> {
    let socket = interface::packet_socket()?;
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
        set_option(&socket, libc::SOL_PACKET, option, &1 as &libc::c_int)?;
    }
    // Beyond the system's limit, where that is allowed.
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM)
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &ROOM))?;
    attach(&socket, index)?;
    Ok(socket)
}

/// Makes a socket one of those that an interface's frames are spread over: of the newest group, or of a new one if that is the
/// group `left`, whose interface has gone. Returns the group's number.
fn join(socket: &OwnedFd, left: Option<u16>, newest: &Newest) -> io::Result<u16> {
    // A panicking holder has not changed it.
    let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = (libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING) << 16;
    if let Some(number) = newest.filter(|_| *newest != left) {
        set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(number) | kind))?;
        return Ok(number);
    }
    // The kernel selects an unused number.
    let new = kind | libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &new)?;
    let (mut given, mut len) = (0u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the option is written to `given`, which is alive and of the length given.
    let got = unsafe {
        let (socket, to) = (socket.as_raw_fd(), (&raw mut given).cast());
        libc::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, to, &raw mut len)
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    *newest = Some(given as u16);
    Ok(given as u16)
}

/// Frames that the kernel had no room for in this socket, since this was last asked.
fn dropped_by_kernel(socket: &OwnedFd) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes to `statistics`, which has that length and is not borrowed elsewhere.
    let got = unsafe {
        let to = (&raw mut statistics).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut len)
    };
    if got < 0 { 0 } else { statistics.tp_drops.into() }
}

/// Makes a socket receive the frames of an interface, for any address.
fn attach(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    set_promiscuous(socket, index, true)?;
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as _;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address is a sockaddr_ll of the length given, alive during the call.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as _)
    };
    if bound < 0 {
        let error = io::Error::last_os_error();
        // It may be tried again, and each time counts.
        _ = set_promiscuous(socket, index, false);
        return Err(error);
    }
    Ok(())
}

/// Returns the interface that a socket is bound to; none if that has gone, even if another one has its index.
fn bound_index(socket: &OwnedFd) -> Option<libc::c_int> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes to `address`, which has that length and is not borrowed elsewhere.
    let got = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    (got == 0 && address.sll_ifindex > 0).then_some(address.sll_ifindex)
}

/// Keeps further frames out of a socket; those in it stay.
fn refuse_all(socket: &OwnedFd) -> io::Result<()> {
    // `return 0`: no byte of the frame is kept.
    let mut filter = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as _, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut filter };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
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
