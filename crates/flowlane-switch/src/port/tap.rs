//! TAP interfaces: the other end of one is in the kernel (Documentation/networking/tuntap.rst).
//!
//! Without offloads asked for, the kernel hands over whole frames of at most the interface's MTU with
//! checksums filled in.
//!
//! *Several workers* have a queue each: the kernel gives a flow's frames to the queue that its answers came from. An interface
//! that was made with a single queue has one descriptor: all workers send through it, and the first to open it receives.
//!
//! *An interface that is deleted* is not made again by the switch, but used again (`interface.rs`) once it is there. It may
//! have been moved to another namespace before; the port keeps its end of it.
//!
//! *A switch that takes another's place* finds the interface there: the other switch makes it persistent before it lets go (`tap_mark.rs`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use super::device::{request, set_up};
use super::interface::{self, Checks, Watch};
use super::{Port, PortError, Received, permission, tap_mark};
use crate::packet::{Frame, Frames};

/// The longest frame that the kernel hands over.
const RECEIVE_MAX: usize = 65_536 + 64;

/// A TAP interface, or a worker's queue of one.
pub struct TapPort {
    interface: Arc<Interface>,
    /// None while there is no such interface.
    queue: Option<Queue>,
    watch: Watch,
    checks: Checks,
    buffer: Vec<u8>,
    /// Frames that could not be read since `rx_dropped` was last called.
    lost: u64,
}

/// An interface, for all its workers.
#[derive(Debug)]
struct Interface {
    name: String,
    /// It is set up when it is opened.
    is_set_up: bool,
    workers: usize,
    /// The only descriptor of an interface with a single queue.
    single: Mutex<Weak<File>>,
}

/// A worker's access to an interface.
#[derive(Debug)]
struct Queue {
    file: Arc<File>,
    /// Whether other workers use the same descriptor.
    is_shared: bool,
    receives: bool,
}

impl Interface {
    fn set_up(&self) -> io::Result<()> {
        if self.is_set_up { set_up(&self.name, true) } else { Ok(()) }
    }

    /// Attaches a worker to the interface, which the system makes if it is missing.
    fn open(&self) -> io::Result<Queue> {
        let is_one_of_several = self.workers > 1;
        let file = open_device()?;
        let queue = |file, receives| Queue { file, is_shared: is_one_of_several, receives };
        match attach(&file, &self.name, is_one_of_several) {
            Ok(()) => {
                adopt(&file, &self.name);
                return Ok(Queue { file: Arc::new(file), is_shared: false, receives: true });
            }
            // It was made with a single queue, or with several queues for one worker.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
        // A panicking holder has left one descriptor or none.
        let mut single = self.single.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = single.upgrade().filter(|file| is_attached(file)) {
            return Ok(queue(file, false));
        }
        let file = Arc::new(open_device()?);
        attach(&file, &self.name, !is_one_of_several)?;
        adopt(&file, &self.name);
        *single = Arc::downgrade(&file);
        Ok(queue(file, true))
    }
}

impl TapPort {
    /// Opens the TAP interface `name`, makes it if it is not there (for as long as the port is open), and
    /// sets it up.
    ///
    /// # Errors
    /// Where the kernel has no TAP, or there is no permission.
    pub fn open(name: &str) -> Result<Self, PortError> {
        Ok(Self::open_all(name, true, 1)?.remove(0))
    }

    /// Opens the interface for each of several workers, and sets it up or leaves it as it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(name: &str, is_set_up: bool, workers: usize) -> Result<Vec<Self>, PortError> {
        let fail = |problem: String| PortError::Environment { spec: format!("tap:{name}"), problem };
        if name.len() >= libc::IFNAMSIZ || !name.is_ascii() {
            return Err(fail(format!("an interface's name has at most {} letters", libc::IFNAMSIZ - 1)));
        }
        let (name, single) = (name.to_owned(), Mutex::default());
        let interface = Arc::new(Interface { name, is_set_up, workers, single });
        let open = |_| -> io::Result<Self> {
            let mut port = Self {
                interface: interface.clone(),
                queue: None,
                watch: Watch::new()?,
                checks: Checks::new(),
                buffer: vec![0; RECEIVE_MAX],
                lost: 0,
            };
            port.attach()?;
            port.interface.set_up()?;
            Ok(port)
        };
        (0..workers).map(open).collect::<io::Result<_>>().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => fail("there is no /dev/net/tun; load the module tun".to_owned()),
            io::ErrorKind::PermissionDenied => fail(
                permission::refused("TAP interfaces", &[permission::INTERFACES])
                    + ", or make the interface beforehand with `ip tuntap add dev NAME mode tap user USER` and set it up",
            ),
            _ => fail(format!("cannot be opened: {error}")),
        })
    }

    fn attach(&mut self) -> io::Result<()> {
        let queue = self.interface.open()?;
        if queue.receives {
            self.watch.add(queue.file.as_fd())?;
        }
        self.queue = Some(queue);
        Ok(())
    }

    /// Detaches from an interface that has gone, and attaches to one that has come back.
    #[cold]
    fn follow(&mut self) {
        if let Some(queue) = self.queue.take_if(|queue| !is_attached(&queue.file)) {
            self.watch.remove(queue.file.as_fd());
        }
        // The switch does not make an interface again that was deleted.
        if self.queue.is_none() && matches!(interface::index_of(&self.interface.name), Ok(Some(_))) {
            // A failure is tried again. This process may lack the permission to set it up.
            _ = self.attach().and_then(|()| self.interface.set_up());
        }
    }
}

/// Opens a descriptor that can become the other end of an interface.
fn open_device() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open("/dev/net/tun")
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

/// Says whether the interface whose other end is `file` stays when it is closed.
fn persist(file: &File, stays: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number, and no pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST as _, libc::c_ulong::from(stays)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes an interface that another switch has left end with this one.
fn adopt(file: &File, name: &str) {
    if tap_mark::take(name) {
        // Where that is refused, it stays.
        _ = persist(file, false);
    }
}

/// Lets the interface whose other end is `file` stay for the next switch.
fn leave(file: &File, name: &str) {
    // One that an operator has made to stay needs no mark. Where it cannot be made to stay, the next process makes another of the name.
    if flags_of(file).is_some_and(|flags| flags & libc::IFF_PERSIST == 0) && persist(file, true).is_ok() {
        _ = tap_mark::mark(name);
    }
}

/// Removes the interfaces that switches have left for others, and that are not wanted.
pub(crate) fn remove_stale(is_wanted: impl Fn(&str) -> bool) {
    for name in tap_mark::all().into_iter().filter(|name| !is_wanted(name)) {
        let Ok(file) = open_device() else { return };
        // One that is in use is not left.
        if attach(&file, &name, false).or_else(|_| attach(&file, &name, true)).is_ok() {
            adopt(&file, &name);
        }
    }
}

/// The flags of the interface whose other end is `file`; none if there is no such interface.
fn flags_of(file: &File) -> Option<libc::c_int> {
    // SAFETY: all-zero bytes are a valid ifreq, which is a plain C structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // SAFETY: TUNGETIFF fills in an ifreq, which `request` is.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) };
    // SAFETY: the call has made the flags the union's active member; before, all its bytes are zero.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    (done == 0).then_some(flags.into())
}

/// Returns whether `file` is the other end of an interface that exists.
fn is_attached(file: &File) -> bool {
    flags_of(file).is_some()
}

impl Port for TapPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut has_failed = false;
        while let Some(Queue { file, receives: true, .. }) = &self.queue {
            if frames.is_full() {
                return Ok(Received::More);
            }
            match (&**file).read(&mut self.buffer) {
                Ok(len) => {
                    let Some(frame) = frames.next_frame() else { break };
                    frame.fill(&self.buffer[..len]);
                    frame.time_ns = now.as_nanos() as u64;
                }
                Err(error) => match error.raw_os_error() {
                    // EIO: the interface is down.
                    Some(libc::EAGAIN | libc::EINTR | libc::EIO) => break,
                    // It has gone, or a frame could not be handed over.
                    _ => {
                        has_failed = true;
                        break;
                    }
                },
            }
        }
        if has_failed || frames.is_empty() && self.checks.is_due() {
            self.follow();
            self.lost += u64::from(has_failed && self.queue.is_some());
        }
        Ok(Received::Idle)
    }

    fn check(&mut self) {
        if self.checks.is_due() {
            self.follow();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn needs_software_rss(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_shared && queue.receives)
    }

    fn rx_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        let Some(queue) = &self.queue else { return Ok(false) };
        Ok((&*queue.file).write(frame.bytes()).is_ok())
    }

    fn stop_arrivals(&mut self) -> bool {
        true
    }

    fn check_release(&self) -> Result<(), String> {
        let name = &self.interface.name;
        match interface::index_of(name) {
            Ok(None) if self.queue.is_some() => {
                Err(format!("interface {name} is in another namespace, where no other process finds it"))
            }
            _ => Ok(()),
        }
    }

    /// Lets go of the interface, which stays: it would end with its last descriptor otherwise, and its addresses with it.
    fn release(&mut self) {
        if let Some(queue) = self.queue.take() {
            leave(&queue.file, &self.interface.name);
            self.watch.remove(queue.file.as_fd());
        }
    }
}
