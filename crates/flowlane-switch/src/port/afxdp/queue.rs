//! A socket for one receive queue of an interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt};

use super::memory::{BUFFER, Buffers, Drained, Filled};
use super::program::{Program, patiently};
use crate::packet::{Frame, Frames};

/// Frames that may lie in each ring.
const RING: u32 = 2048;

/// Frames that the kernel is asked to send in one call, where it takes more than its usual 32 (Linux 6.18).
const SEND_BUDGET: u32 = 256;

/// `XDP_MAX_TX_SKB_BUDGET`.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Calls for one burst to be sent, at most: each takes 32 frames or more.
const CALLS_MAX: usize = 64;

/// How a socket is to be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copying {
    /// As the driver can.
    Auto,
    Always,
    Never,
}

/// A socket with its rings and buffers. The first half of the buffers is for frames that come, the other for those that go.
#[derive(Debug)]
pub(super) struct Queue {
    socket: OwnedFd,
    fill: Filled<u64>,
    received: Drained<XdpDesc>,
    outgoing: Filled<XdpDesc>,
    sent: Drained<u64>,
    /// Unused transmit buffers.
    free: Vec<u64>,
    /// Frames put into the ring since it was last published.
    queued: bool,
    /// Of the kernel's count of frames that it could not hand over.
    lost_before: u64,
    buffers: Buffers,
}

impl Queue {
    /// The socket of a queue, to which the program leads its frames.
    pub(super) fn open(program: &Program, queue: u32, copying: Copying) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let buffers = Buffers::new(2 * RING as usize)?;
        let register = XdpUmemReg {
            addr: buffers.address(),
            len: buffers.len() as u64,
            chunk_size: BUFFER as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, register)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, RING)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, RING)?;
        sockopt::set_xdp_rx_ring_size(&socket, RING)?;
        sockopt::set_xdp_tx_ring_size(&socket, RING)?;
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let mut fill = Filled::of(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, RING)?;
        let sent = Drained::of(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, RING)?;
        let received = Drained::of(fd, XDP_PGOFF_RX_RING, &offsets.rx, RING)?;
        let outgoing = Filled::of(fd, XDP_PGOFF_TX_RING, &offsets.tx, RING)?;
        let place = |buffer: u32| u64::from(buffer) * BUFFER as u64;
        (0..RING).for_each(|buffer| _ = fill.push(place(buffer)));
        fill.publish();
        let copy = match copying {
            Copying::Auto => SocketAddrXdpFlags::empty(),
            Copying::Always => SocketAddrXdpFlags::XDP_COPY,
            Copying::Never => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        let address =
            SocketAddrXdp::new(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | copy, program.index, queue);
        patiently(|| Ok(bind(&socket, &address)?))?;
        raise_budget(&socket);
        program.lead(queue, socket.as_fd())?;
        let free = (RING..2 * RING).map(place).collect();
        Ok(Self { socket, fill, received, outgoing, sent, free, queued: false, lost_before: 0, buffers })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns whether the driver shares our buffers (zero copy).
    pub(super) fn is_without_copies(&self) -> bool {
        sockopt::xdp_options(&self.socket).is_ok_and(|o| o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Takes frames until there is no room or there are none; each is given to `finish` in place first. Says whether there may be
    /// more.
    #[inline]
    pub(super) fn receive(&mut self, frames: &mut Frames, time_ns: u64, finish: impl Fn(&mut [u8])) -> bool {
        let mut any = false;
        while !frames.is_full() {
            let Some(descriptor) = self.received.pop() else { break };
            any = true;
            let bytes = self.buffers.bytes_mut(descriptor.addr, descriptor.len as usize);
            finish(bytes);
            let frame = frames.next_frame().expect("it is not full");
            frame.fill(bytes);
            frame.time_ns = time_ns;
            // There are no more buffers than the ring has places.
            self.fill.push(descriptor.addr & !(BUFFER as u64 - 1));
        }
        if any {
            self.received.release();
            self.fill.publish();
        }
        frames.is_full()
    }

    /// Puts a frame into the ring; says whether there was room.
    #[inline]
    pub(super) fn put(&mut self, frame: &Frame) -> bool {
        if self.free.is_empty() {
            self.take_back();
        }
        let bytes = frame.bytes();
        if bytes.len() > BUFFER {
            return false;
        }
        let Some(place) = self.free.pop() else { return false };
        self.buffers.bytes_mut(place, bytes.len()).copy_from_slice(bytes);
        let options = XdpDescOptions::empty();
        // There are no more buffers than the ring has places.
        self.outgoing.push(XdpDesc { addr: place, len: bytes.len() as u32, options });
        self.queued = true;
        true
    }

    /// Puts a frame into the ring, after sending those in it if there is no room; returns whether there was room then.
    #[inline]
    pub(super) fn put_or_send(&mut self, frame: &Frame) -> bool {
        self.put(frame) || self.send().is_ok() && self.put(frame)
    }

    /// Makes the kernel send the frames in the ring, in several calls if needed. Returns whether it did.
    pub(super) fn send(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.queued) {
            return Ok(());
        }
        self.outgoing.publish();
        for _ in 0..CALLS_MAX {
            if !self.outgoing.needs_wakeup() {
                break;
            }
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => {}
                // It has sent as many as it does in one go, or has no room for more: those that are left are sent next time.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY | rustix::io::Errno::NOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
            if !self.has_unsent() {
                break;
            }
        }
        self.take_back();
        Ok(())
    }

    /// Returns whether the kernel has not yet consumed all frames.
    pub(super) fn has_unsent(&self) -> bool {
        self.outgoing.untaken() > 0
    }

    /// Returns whether the interface is still there, even if it is down.
    pub(super) fn is_bound(&self) -> bool {
        send(&self.socket, &[], SendFlags::DONTWAIT) != Err(rustix::io::Errno::NXIO)
    }

    /// Returns the number of received frames that have not been taken.
    pub(super) fn waiting(&self) -> u32 {
        self.received.ready()
    }

    /// Returns the number of frames that the kernel has not yet consumed.
    pub(super) fn unsent(&self) -> u32 {
        self.outgoing.untaken()
    }

    /// Makes the kernel continue with the frames left.
    pub(super) fn send_rest(&mut self) -> io::Result<()> {
        self.queued = self.has_unsent();
        self.send()
    }

    /// Takes buffers back whose frames have been sent.
    fn take_back(&mut self) {
        let before = self.free.len();
        while let Some(place) = self.sent.pop() {
            self.free.push(place & !(BUFFER as u64 - 1));
        }
        if self.free.len() > before {
            self.sent.release();
        }
    }

    /// How many frames have come, since this was last asked, that the kernel could not hand over.
    pub(super) fn rx_dropped(&mut self) -> u64 {
        let Ok(statistics) = sockopt::xdp_statistics(&self.socket) else { return 0 };
        let lost = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        lost - std::mem::replace(&mut self.lost_before, lost).min(lost)
    }
}

/// Asks for more frames to be sent in a call; older kernels know nothing of it.
fn raise_budget(socket: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let budget = SEND_BUDGET;
    // SAFETY: the option is read from `budget`, which is alive and of the length given.
    _ = unsafe {
        let (fd, value) = (socket.as_raw_fd(), (&raw const budget).cast());
        libc::setsockopt(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, value, size_of::<u32>() as _)
    };
}
