//! The program that hands an interface's frames to sockets: loaded by bpf(2), without a compiler or a library.
//!
//! Frames of a receive queue go to the socket at the queue's number in a map, and to the system if there is none. The program is
//! attached by a link, which goes with its last descriptor: at the end of the process, however that comes. It may be detached for a
//! while, and attached again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Commands of bpf(2), and what they are about (linux/bpf.h).
mod bpf {
    pub(super) const MAP_CREATE: libc::c_long = 0;
    pub(super) const MAP_UPDATE_ELEM: libc::c_long = 2;
    pub(super) const MAP_DELETE_ELEM: libc::c_long = 3;
    pub(super) const PROG_LOAD: libc::c_long = 5;
    pub(super) const LINK_CREATE: libc::c_long = 28;
    pub(super) const MAP_TYPE_XSKMAP: u32 = 17;
    pub(super) const PROG_TYPE_XDP: u32 = 6;
    pub(super) const ATTACH_XDP: u32 = 37;
    pub(super) const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    pub(super) const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    /// The program takes frames of several buffers (Linux 5.18).
    pub(super) const F_XDP_HAS_FRAGS: u32 = 1 << 5;
}

/// Queues that a map has room for.
const QUEUES_MAX: u32 = 256;

/// How long a program, or a queue, of one that has just ended may still be in the way.
const IN_THE_WAY: Duration = Duration::from_secs(1);

/// Where a program works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// In the driver.
    Native,
    /// In the network stack, where the driver knows nothing of such programs: frames are the system's first.
    Skb,
}

/// A program at an interface.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    code: OwnedFd,
    /// The program is attached as long as this is there.
    link: Mutex<Option<OwnedFd>>,
    pub(super) index: u32,
    pub(super) attachment: Attachment,
}

/// An instruction: operation, registers (destination low, source high), offset, value.
const fn instruction(operation: u8, registers: u8, offset: i16, value: i32) -> u64 {
    operation as u64 | (registers as u64) << 8 | (offset as u16 as u64) << 16 | (value as u32 as u64) << 32
}

/// `return bpf_redirect_map(&map, context->rx_queue_index, XDP_PASS)`.
fn instructions(map: BorrowedFd<'_>) -> [u64; 6] {
    [
        // r2 = *(u32 *)(r1 + 16)
        instruction(0x61, 0x12, 16, 0),
        // r1 = map (a pseudo instruction of two, by its descriptor)
        instruction(0x18, 0x11, 0, map.as_raw_fd()),
        0,
        // r3 = XDP_PASS, where there is no socket
        instruction(0xb7, 0x03, 0, 2),
        // call bpf_redirect_map
        instruction(0x85, 0, 0, 51),
        // exit
        instruction(0x95, 0, 0, 0),
    ]
}

/// Calls bpf(2) with attributes of 32-bit words.
fn call(command: libc::c_long, attributes: &[u32]) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads the given number of bytes of the attributes; what these point to is alive during the call, which
    // callers see to.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Calls bpf(2) with a command that returns a descriptor.
fn descriptor(command: libc::c_long, attributes: &[u32]) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// An address as two words.
fn halves<T>(at: *const T) -> [u32; 2] {
    let at = at as u64;
    [at as u32, (at >> 32) as u32]
}

/// Tries again for a while where something that has just been closed is in the way.
pub(super) fn patiently<T>(mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match what() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < IN_THE_WAY => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Loads the program.
fn load(instructions: &[u64], flags: u32) -> io::Result<OwnedFd> {
    let licence = c"Dual MIT/GPL";
    let [code, code_above] = halves(instructions.as_ptr());
    let [licence, licence_above] = halves(licence.as_ptr());
    let count = instructions.len() as u32;
    // No log (level, size, address), and no version of the kernel.
    let attributes =
        [bpf::PROG_TYPE_XDP, count, code, code_above, licence, licence_above, 0, 0, 0, 0, 0, flags];
    descriptor(bpf::PROG_LOAD, &attributes)
}

/// Attaches the program to the interface of this index.
fn link(code: &OwnedFd, index: u32, attachment: Attachment) -> io::Result<OwnedFd> {
    let flags = match attachment {
        Attachment::Native => bpf::XDP_FLAGS_DRV_MODE,
        Attachment::Skb => bpf::XDP_FLAGS_SKB_MODE,
    };
    let attributes = [code.as_raw_fd() as u32, index, bpf::ATTACH_XDP, flags];
    patiently(|| descriptor(bpf::LINK_CREATE, &attributes))
}

impl Program {
    /// Attaches a program to an interface: in one of these ways, the first that the interface takes.
    pub(super) fn attach(index: u32, ways: &[Attachment]) -> io::Result<Self> {
        let map = descriptor(bpf::MAP_CREATE, &[bpf::MAP_TYPE_XSKMAP, 4, 4, QUEUES_MAX, 0])?;
        let instructions = instructions(map.as_fd());
        // Older kernels refuse the flag.
        let code = load(&instructions, bpf::F_XDP_HAS_FRAGS).or_else(|_| load(&instructions, 0))?;
        let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for &attachment in ways {
            match link(&code, index, attachment) {
                Ok(link) => return Ok(Self { map, code, link: Mutex::new(Some(link)), index, attachment }),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Detaches the program, so that all frames are the system's; its map stays. Waits for the kernel.
    pub(super) fn detach(&self) {
        // A panicking holder has left a link or none.
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(link);
    }

    /// Attaches the program again, if it is detached. Waits for the kernel.
    ///
    /// # Errors
    /// Where the interface has gone, or has another program by now.
    pub(super) fn attach_again(&self) -> io::Result<()> {
        let mut place = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(link(&self.code, self.index, self.attachment)?);
        }
        Ok(())
    }

    /// Gives a queue's frames to a socket.
    pub(super) fn lead(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let ([key, key_above], [to, to_above]) = (halves(&raw const queue), halves(&raw const value));
        let map = self.map.as_raw_fd() as u32;
        call(bpf::MAP_UPDATE_ELEM, &[map, 0, key, key_above, to, to_above, 0, 0]).map(|_| ())
    }

    /// Leaves a queue's frames to the system.
    pub(super) fn release(&self, queue: u32) {
        let [key, key_above] = halves(&raw const queue);
        // There may be no socket, or no interface any more.
        _ = call(bpf::MAP_DELETE_ELEM, &[self.map.as_raw_fd() as u32, 0, key, key_above]);
    }
}
