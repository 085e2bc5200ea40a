//! A socket for one receive queue of an interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt};

use super::memory::{BUFFER, Buffers, Drained, Filled};
use super::program::{Program, patiently};
use super::rings::{Features, METADATA, Rings};
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
    rings: Rings,
    /// Frames put into the ring since it was last published.
    queued: bool,
    /// Of the kernel's count of frames that it could not hand over.
    lost_before: u64,
}

impl Queue {
    /// Opens the socket of a queue, to which the program leads its frames. `completes` asks the kernel to complete checksums.
    pub(super) fn open(program: &Program, queue: u32, copying: Copying, completes: bool) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let buffers = Buffers::new(2 * RING as usize)?;
        // Kernels before Linux 6.8 refuse metadata.
        let checksums = completes && register(&socket, &buffers, true).is_ok();
        if !checksums {
            register(&socket, &buffers, false)?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&socket, RING)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, RING)?;
        sockopt::set_xdp_rx_ring_size(&socket, RING)?;
        sockopt::set_xdp_tx_ring_size(&socket, RING)?;
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let fill = Filled::of(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, RING)?;
        let sent = Drained::of(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, RING)?;
        let received = Drained::of(fd, XDP_PGOFF_RX_RING, &offsets.rx, RING)?;
        let outgoing = Filled::of(fd, XDP_PGOFF_TX_RING, &offsets.tx, RING)?;
        let features = Features { several_buffers: false, checksums };
        let mut rings = Rings::new((fill, received), (outgoing, sent), (buffers, RING), features);
        let flags = bind_first(copying, |flags| {
            let address = SocketAddrXdp::new(flags, program.index, queue);
            patiently(|| Ok(bind(&socket, &address)?))
        })?;
        rings.features.several_buffers = flags.contains(SocketAddrXdpFlags::XDP_USE_SG);
        raise_budget(&socket);
        program.lead(queue, socket.as_fd())?;
        let mut opened = Self { socket, rings, queued: false, lost_before: 0 };
        // A driver that shares the buffers may ignore metadata.
        opened.rings.features.checksums &= !opened.is_without_copies();
        Ok(opened)
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns what the kernel has accepted.
    pub(super) fn features(&self) -> Features {
        self.rings.features
    }

    /// Returns whether the driver shares our buffers (zero copy).
    pub(super) fn is_without_copies(&self) -> bool {
        sockopt::xdp_options(&self.socket).is_ok_and(|o| o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Takes frames until there is no room or there are none; each is given to `finish`. Returns whether there may be more.
    #[inline]
    pub(super) fn receive(
        &mut self,
        frames: &mut Frames,
        time_ns: u64,
        finish: impl FnMut(&mut Frame),
    ) -> bool {
        self.rings.receive(frames, time_ns, finish)
    }

    /// Puts a frame into the ring, after sending those in it if there is no room; returns whether there was room then.
    #[inline]
    pub(super) fn put_or_send(&mut self, frame: &Frame) -> bool {
        let is_in = self.rings.put(frame) || self.send().is_ok() && self.rings.put(frame);
        self.queued |= is_in;
        is_in
    }

    /// Makes the kernel send the frames in the ring, in several calls if needed. Returns whether it did.
    pub(super) fn send(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.queued) {
            return Ok(());
        }
        self.rings.outgoing.publish();
        for _ in 0..CALLS_MAX {
            if !self.rings.outgoing.needs_wakeup() {
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
        self.rings.take_back();
        Ok(())
    }

    /// Returns whether the kernel has not yet consumed all frames.
    pub(super) fn has_unsent(&self) -> bool {
        self.rings.outgoing.untaken() > 0
    }

    /// Returns whether the interface is still there, even if it is down.
    pub(super) fn is_bound(&self) -> bool {
        send(&self.socket, &[], SendFlags::DONTWAIT) != Err(rustix::io::Errno::NXIO)
    }

    /// Drops the frames that have been received and not taken, and returns their number.
    pub(super) fn discard(&mut self) -> u64 {
        self.rings.discard()
    }

    /// Returns the number of frames that the kernel has not yet consumed.
    pub(super) fn unsent(&self) -> usize {
        self.rings.unsent()
    }

    /// Makes the kernel continue with the frames left.
    pub(super) fn send_rest(&mut self) -> io::Result<()> {
        self.queued = self.has_unsent();
        self.send()
    }

    /// Returns how many frames have been lost on receipt since the last call: the kernel could not hand them over, or they were too
    /// long.
    pub(super) fn rx_dropped(&mut self) -> u64 {
        let too_long = std::mem::take(&mut self.rings.lost);
        let Ok(statistics) = sockopt::xdp_statistics(&self.socket) else { return too_long };
        let lost = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        too_long + lost - std::mem::replace(&mut self.lost_before, lost).min(lost)
    }
}

/// Binds a socket in the first of the ways that the kernel accepts, best first, and returns that one's flags. Kernels before Linux 6.6
/// refuse several buffers a frame. Drivers may have them only with copies, and a kernel that may choose then copies; to share buffers is
/// worth more.
fn bind_first(
    copying: Copying,
    mut bind: impl FnMut(SocketAddrXdpFlags) -> io::Result<()>,
) -> io::Result<SocketAddrXdpFlags> {
    type Flags = SocketAddrXdpFlags;
    let copies: &[Flags] = match copying {
        Copying::Auto => &[Flags::XDP_ZEROCOPY, Flags::empty()],
        Copying::Always => &[Flags::XDP_COPY],
        Copying::Never => &[Flags::XDP_ZEROCOPY],
    };
    let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    for (&copy, buffers) in
        copies.iter().flat_map(|copy| [Flags::XDP_USE_SG, Flags::empty()].map(|b| (copy, b)))
    {
        let flags = copy | buffers | Flags::XDP_USE_NEED_WAKEUP;
        match bind(flags) {
            Ok(()) => return Ok(flags),
            // Another socket is there, in whichever way.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Gives the kernel the buffers, with metadata in front of frames that leave or without.
fn register(socket: &OwnedFd, buffers: &Buffers, metadata: bool) -> io::Result<()> {
    let (flags, tx_metadata_len) = match metadata {
        true => (XdpUmemRegFlags::from_bits_retain(libc::XDP_UMEM_TX_METADATA_LEN), METADATA as u32),
        false => (XdpUmemRegFlags::empty(), 0),
    };
    let register = XdpUmemReg {
        addr: buffers.address(),
        len: buffers.len() as u64,
        chunk_size: BUFFER as u32,
        headroom: 0,
        flags,
        tx_metadata_len,
    };
    Ok(sockopt::set_xdp_umem_reg(socket, register)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags with which a kernel that accepts some is left, and the number of attempts.
    fn bound(copying: Copying, accepts: impl Fn(SocketAddrXdpFlags) -> Result<(), i32>) -> (String, usize) {
        let mut attempts = 0;
        let flags = bind_first(copying, |flags| {
            attempts += 1;
            accepts(flags).map_err(io::Error::from_raw_os_error)
        });
        let names = flags.map(|flags| {
            let names = flags.iter_names().map(|(name, _)| name.trim_start_matches("XDP_"));
            names.filter(|name| *name != "USE_NEED_WAKEUP").collect::<Vec<_>>().join(" ")
        });
        (names.unwrap_or_else(|error| error.raw_os_error().unwrap().to_string()), attempts)
    }

    #[test]
    fn the_best_way_that_a_kernel_accepts_is_used() {
        type Flags = SocketAddrXdpFlags;
        let all = |_| Ok(());
        let old = |flags: Flags| if flags.contains(Flags::XDP_USE_SG) { Err(libc::EINVAL) } else { Ok(()) };
        let copies =
            |flags: Flags| if flags.contains(Flags::XDP_ZEROCOPY) { Err(libc::EOPNOTSUPP) } else { Ok(()) };
        let one_buffer = |flags: Flags| match flags.contains(Flags::XDP_ZEROCOPY | Flags::XDP_USE_SG) {
            true => Err(libc::EOPNOTSUPP),
            false => Ok(()),
        };
        assert_eq!(bound(Copying::Auto, all), ("ZEROCOPY USE_SG".to_owned(), 1));
        assert_eq!(bound(Copying::Auto, one_buffer), ("ZEROCOPY".to_owned(), 2));
        assert_eq!(bound(Copying::Auto, copies), ("USE_SG".to_owned(), 3));
        assert_eq!(bound(Copying::Auto, old), ("ZEROCOPY".to_owned(), 2));
        assert_eq!(bound(Copying::Always, old), ("COPY".to_owned(), 2));
        assert_eq!(bound(Copying::Never, copies), (libc::EOPNOTSUPP.to_string(), 2));
        assert_eq!(bound(Copying::Auto, |_| Err(libc::EBUSY)), (libc::EBUSY.to_string(), 1));
    }
}
