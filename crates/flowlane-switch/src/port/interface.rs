//! Interfaces of the system, by name: which one a port has, and whether it still has it.
//!
//! **Which interface a port has.** The one that has its name. An interface that is renamed stays the port's until another one
//! gets the name. An interface that is deleted or moved to another namespace is looked for ten times a second, and used again
//! once there is one of that name, whatever its index.
//!
//! **What a port requires of it:**
//!
//! | port | addresses | state | at the interface |
//! |---|---|---|---|
//! | `tap:` | all: the port is the other end | is set up where the port may do so | is made if it is missing |
//! | `afpacket:` | promiscuous | as it is | a socket for each worker |
//! | `afxdp:` | promiscuous | as it is | a BPF program, a socket for each receive queue |

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, netdevice};

use crate::packet::Queue;

/// The time between two checks of a port's interface.
const PERIOD: Duration = Duration::from_millis(100);

/// When the interface of a port is checked.
#[derive(Debug)]
pub(super) struct Checks(Instant);

impl Checks {
    /// Starts with a check in one period.
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// Returns whether the next check is due, and schedules the one after it.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.0.elapsed() >= PERIOD;
        if is_due {
            self.0 = Instant::now();
        }
        is_due
    }
}

/// A descriptor that is readable while one of its sources is: it stays the same while sockets come and go.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a source. A source that is closed is removed by the system.
    pub(super) fn add(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.0, source, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    /// Removes a source that stays open elsewhere.
    pub(super) fn remove(&self, source: BorrowedFd<'_>) {
        _ = epoll::delete(&self.0, source);
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the index of the interface of this name; `None` if there is none. `if_nametoindex` of the C library does not
/// distinguish that from a lack of descriptors.
///
/// # Errors
/// Where the system does not say: it needs a descriptor for the answer.
pub(super) fn index_of(interface: &str) -> io::Result<Option<libc::c_int>> {
    if interface.contains('\0') {
        return Ok(None);
    }
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match netdevice::name_to_index(&socket, interface) {
        Ok(index) => Ok(Some(index as libc::c_int)),
        Err(Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says that there is no interface of this name, and which there are.
pub(super) fn missing(interface: &str) -> String {
    let folder = std::fs::read_dir("/sys/class/net");
    let entries = folder.into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let there = if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) };
    format!("there is no interface `{interface}`{there}")
}

/// Opens a packet socket that receives from no interface yet.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an interface deliver frames for any address, or no longer (`is_wanted`), for as long as `socket` is open.
pub(super) fn set_promiscuous(socket: &OwnedFd, index: libc::c_int, is_wanted: bool) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let option = if is_wanted { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
    set_option(socket, libc::SOL_PACKET, option, &membership)
}

/// The major number of the classes of queues: that of the discipline that the switch gives an interface.
const QUEUES_MAJOR: u32 = 1;

/// Lets what a socket sends go through a queue of its interface: the class of this number of the interface's discipline (tc(8)).
/// Disciplines with classes (`htb`, `hfsc`) send it through their default one where they lack the class. Those without take the number
/// otherwise: `pfifo_fast` chooses a band by its lowest 4 bits, `fq_codel` and `sfq` of the handle `1:` the flow of this number.
///
/// # Errors
/// Where there is no permission: kernels before Linux 6.3 require `CAP_NET_ADMIN`.
pub(super) fn set_queue(socket: &OwnedFd, queue: Queue) -> io::Result<()> {
    let priority = match queue {
        Queue::NONE => 0,
        queue => QUEUES_MAJOR << 16 | u32::from(queue.class()),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// Sets a socket's option.
pub(super) fn set_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let pointer: *const T = value;
    // SAFETY: the option is read from `value`, which is alive and of the length given.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer.cast(), size_of::<T>() as _) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn interfaces_are_found_by_name() {
        assert!(index_of("lo").unwrap() > Some(0));
        for missing in ["no-such-if", "lo\0", "", "a-name-of-more-than-fifteen-letters"] {
            assert_eq!(index_of(missing).unwrap(), None, "{missing}");
        }
    }

    #[test]
    fn a_watch_stays_the_same_while_its_sources_come_and_go() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let watch = Watch::new().unwrap();
        let is_ready = || {
            let mut waited_for = [PollFd::new(&watch, PollFlags::IN)];
            poll(&mut waited_for, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!is_ready());
        for _ in 0..2 {
            let (source, mut writer) = io::pipe().unwrap();
            watch.add(source.as_fd()).unwrap();
            assert!(!is_ready());
            writer.write_all(b"x").unwrap();
            assert!(is_ready());
            let other = source.try_clone().unwrap();
            drop(source);
            // The source is still open.
            assert!(is_ready());
            drop(other);
            assert!(!is_ready());
        }
    }
}
