//! TAP interfaces: the other end of one is in the kernel (Documentation/networking/tuntap.rst).
//!
//! Without offloads asked for, the kernel hands over whole frames of at most the interface's MTU with
//! checksums filled in.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use super::{Port, PortError, Received, permission};
use crate::packet::{Frame, Frames};

/// The longest frame that the kernel hands over.
const RECEIVE_MAX: usize = 65_536 + 64;

/// A TAP interface.
pub struct TapPort {
    spec: String,
    file: File,
    buffer: Vec<u8>,
}

impl TapPort {
    /// Opens the TAP interface `name`, makes it if it is not there (for as long as the port is open), and
    /// sets it up.
    ///
    /// # Errors
    /// Where the kernel has no TAP, or there is no permission.
    pub fn open(name: &str) -> Result<Self, PortError> {
        Ok(Self::open_all(name, 1)?.remove(0))
    }

    /// Opens the interface with a queue for each of several workers: the kernel gives a flow's frames to the queue that its answers came from.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(name: &str, workers: usize) -> Result<Vec<Self>, PortError> {
        (0..workers).map(|_| Self::open_queue(name, workers > 1)).collect()
    }

    fn open_queue(name: &str, is_one_of_several: bool) -> Result<Self, PortError> {
        let spec = format!("tap:{name}");
        let fail = |problem: String| PortError::Environment { spec: spec.clone(), problem };
        if name.len() >= libc::IFNAMSIZ || !name.is_ascii() {
            return Err(fail(format!("an interface's name has at most {} letters", libc::IFNAMSIZ - 1)));
        }
        let open = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
            let file = options.open("/dev/net/tun")?;
            attach(&file, name, is_one_of_several)?;
            set_up(name)?;
            Ok(file)
        };
        let file = open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => fail("there is no /dev/net/tun; load the module tun".to_owned()),
            io::ErrorKind::PermissionDenied => fail(
                permission::refused("TAP interfaces", &[permission::INTERFACES])
                    + ", or make the interface beforehand with `ip tuntap add dev NAME mode tap user USER` and set it up",
            ),
            _ => fail(format!("cannot be opened: {error}")),
        })?;
        Ok(Self { spec, file, buffer: vec![0; RECEIVE_MAX] })
    }
}

/// An interface request with its name filled in.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid ifreq, which is a plain C structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes `file` the other end of interface `name`.
fn attach(file: &File, name: &str, is_one_of_several: bool) -> io::Result<()> {
    let mut request = request(name);
    let queues = if is_one_of_several { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | queues) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq, which `request` is.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the interface up.
fn set_up(name: &str) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just returned this descriptor, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = request(name);
    // SAFETY: SIOCGIFFLAGS fills in the flags of an ifreq, which `request` is.
    let got = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has made the flags the union's active member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if flags & libc::IFF_UP as libc::c_short != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads the flags of an ifreq, which `request` is.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Port for TapPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        while !frames.is_full() {
            match self.file.read(&mut self.buffer) {
                Ok(len) => {
                    let Some(frame) = frames.next_frame() else { break };
                    frame.fill(&self.buffer[..len]);
                    frame.time_ns = now.as_nanos() as u64;
                }
                Err(error) => {
                    return match error.raw_os_error() {
                        // EIO: the interface is down.
                        Some(libc::EAGAIN | libc::EINTR | libc::EIO) => Ok(Received::Idle),
                        _ => Err(PortError::Io { spec: self.spec.clone(), source: error }),
                    };
                }
            }
        }
        Ok(Received::More)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        Ok(self.file.write(frame.bytes()).is_ok())
    }
}
