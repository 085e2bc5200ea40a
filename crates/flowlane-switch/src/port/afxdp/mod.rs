//! Interfaces of the system, through AF_XDP sockets: frames pass by the network stack, in batches over shared memory
//! (Documentation/networking/af_xdp.rst).
//!
//! | module | what |
//! |---|---|
//! | `companion` | a packet socket beside the rings, for whole segments |
//! | `memory` | buffers and rings that the kernel works on, too |
//! | `opening` | what the workers share of an interface: the program, and who gets which queues |
//! | `program` | the program that hands frames to sockets, loaded and attached |
//! | `queue` | a socket for one receive queue |
//! | `rings` | frames in buffers and rings: several buffers a frame, metadata |
//! | `status` | how frames are exchanged, in words |
//!
//! There is a socket for each receive queue; a worker has those whose numbers are its own modulo the number of workers. If there are
//! fewer queues than workers, all share the sockets behind a lock: the first worker receives, and its frames are spread in software.
//! Frames are copied between the kernel's buffers and ours.
//!
//! **Checksums.** A virtual neighbour leaves checksums unfinished, since packets do not leave the machine, and says so beside the
//! packet, where an AF_XDP socket does not see it. The checksum field then holds the sum of the pseudo header. So on
//! interfaces without a device the port looks whether that is there. If so, the frame gets offload metadata, or its checksum is finished;
//! were it right by chance, it would come out the same. Metadata of a frame that leaves goes to the kernel with it.
//!
//! **Whole segments** do not pass through rings: a packet socket takes them (`companion`).
//!
//! **Kernels** without several buffers a frame (before Linux 6.6) or metadata (before 6.8) refuse them when a socket is opened. The port
//! then drops longer frames, and gets finished ones to send.
//!
//! **An interface that goes away** takes its sockets and program with it. When it is there again (`interface.rs`), perhaps with
//! another number of queues, a thread of its own opens all of them, since attaching a program waits for the kernel; the workers go
//! on with their other ports, and take their queues when that is done.
//!
//! **At the end** the program leads no more frames to the sockets: those in them are received to the last.

mod checksum;
mod companion;
mod memory;
mod opening;
mod program;
mod queue;
mod rings;
mod status;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::device;
use super::interface::{self, Checks, Watch};
use super::{Port, PortError, Received, XdpMode, permission};
use crate::packet::{Frame, Frames};

pub use program::Attachment;
pub use rings::Features;
pub use status::Status;

use companion::Companion;
use opening::{Interface, Queues};
use queue::Queue;

/// Calls for frames between two queries of the number of lost frames, which take a call of the system.
const CALLS: u32 = 1024;

/// The length of frames that no interface refuses for it.
const USUAL: usize = 1514;

/// Bytes of a frame beyond the MTU: Ethernet's header, and two tags.
const HEADERS: usize = 22;

/// Frames that a worker keeps before it takes the lock of shared queues.
const KEPT: usize = 64;

/// A worker's receive queues of an interface.
pub struct AfXdpPort {
    interface: Arc<Interface>,
    /// The number of this worker.
    me: usize,
    /// The opening that the queues are of.
    opening: u64,
    /// None while the interface has gone.
    queues: Option<Queues>,
    watch: Watch,
    /// Frames to be sent by shared queues.
    kept: Frames,
    checks: Checks,
    /// Neighbours leave checksums to be completed.
    is_virtual: bool,
    /// Where the interface has no device, and the system has packet sockets.
    companion: Option<Companion>,
    /// The program may be detached for whole segments.
    may_detach: bool,
    /// How the newest queues exchange frames.
    opened: Option<Status>,
    /// Received frames may have offload metadata.
    keeps_offloads: bool,
    is_stopped: bool,
    /// Frames dropped on receipt since `rx_dropped` was last called.
    lost: u64,
    /// Frames that were not sent since `flush` was last called.
    unsent: u64,
    calls: u32,
}

impl AfXdpPort {
    /// Opens an interface for as many workers.
    ///
    /// # Errors
    /// Where there is no such interface, no permission, or something else has a program there.
    pub fn open_all(interface: &str, mode: XdpMode, workers: usize) -> Result<Vec<Self>, PortError> {
        let spec = match mode {
            XdpMode::Auto => format!("afxdp:{interface}"),
            mode => format!("afxdp:{interface},mode={}", mode.name()),
        };
        let fail = |problem: String| PortError::Environment { spec: spec.clone(), problem };
        let failed = |error: &io::Error| fail(problem(error, mode));
        if interface::index_of(interface).map_err(|error| failed(&error))?.is_none() {
            return Err(fail(interface::missing(interface)));
        }
        let interface = Interface::open(interface, mode, workers).map_err(|error| failed(&error))?;
        let companions = match interface.is_virtual() {
            true => Companion::open_all(&interface.name, workers),
            false => (0..workers).map(|_| None).collect(),
        };
        let port = |(me, companion): (usize, Option<Companion>)| -> io::Result<Self> {
            let mut port = Self {
                interface: interface.clone(),
                me,
                opening: 0,
                queues: None,
                watch: Watch::new()?,
                kept: Frames::new(0),
                checks: Checks::new(),
                is_virtual: false,
                companion,
                may_detach: false,
                opened: None,
                keeps_offloads: false,
                is_stopped: false,
                lost: 0,
                unsent: 0,
                calls: 0,
            };
            if let Some(companion) = &mut port.companion
                && let Some(socket) = companion.socket().descriptor()
            {
                port.watch.add(socket)?;
            }
            port.take_queues()?;
            Ok(port)
        };
        companions
            .into_iter()
            .enumerate()
            .map(port)
            .collect::<io::Result<_>>()
            .map_err(|error| failed(&error))
    }

    /// Returns how frames are exchanged; none where the interface has gone.
    pub fn status(&self) -> Option<Status> {
        let is_detached = self.interface.is_detached();
        self.opened.map(|opened| Status { is_detached, ..opened }).filter(|_| self.queues.is_some())
    }

    /// Takes this worker's queues, if the interface has been opened again.
    #[inline]
    fn take_newest(&mut self) {
        if self.interface.openings.load(Ordering::Acquire) != self.opening {
            // A watch without a source costs time only: the port is polled ten times a second.
            _ = self.take_queues();
        }
    }

    /// Takes this worker's queues of the newest opening.
    #[cold]
    fn take_queues(&mut self) -> io::Result<()> {
        self.drop_queues();
        let (opening, queues) = self.interface.take(self.me);
        self.opening = opening;
        let Some(queues) = queues else { return Ok(()) };
        self.is_virtual = self.interface.is_virtual();
        self.set_companion(&queues);
        self.kept = Frames::new(if matches!(queues, Queues::Shared(_)) { KEPT } else { 0 });
        self.queues = Some(queues);
        let Self { queues: Some(queues), watch, me, .. } = self else { return Ok(()) };
        if !queues.receives(*me) {
            return Ok(());
        }
        queues.with(|queues| queues.iter().try_for_each(|queue| watch.add(queue.socket().as_fd())))
    }

    /// Begins again with the packet socket beside new queues.
    fn set_companion(&mut self, queues: &Queues) {
        let has_one = self.is_virtual && self.companion.is_some();
        self.companion.iter_mut().for_each(Companion::restart);
        let receives_all = self.interface.workers == 1 || matches!(queues, Queues::Shared(_));
        self.may_detach = has_one && self.interface.may_detach() && receives_all && queues.receives(self.me);
        let checksums = queues.all(|queue| queue.features().checksums);
        self.opened = self.interface.attachment().map(|attachment| Status {
            attachment,
            without_copies: queues.all(Queue::is_without_copies),
            features: Features {
                several_buffers: queues.all(|queue| queue.features().several_buffers),
                checksums,
            },
            segments: has_one && checksums,
            is_detached: false,
        });
    }

    /// Drops queues whose interface has gone, and counts the frames in them.
    fn drop_queues(&mut self) {
        let (me, queues) = (self.me, self.queues.take());
        let Some(mut queues) = queues else { return };
        let receives = queues.receives(me);
        let (watch, lost, unsent) = (&self.watch, &mut self.lost, &mut self.unsent);
        queues.with(|queues| {
            for queue in queues.iter_mut().filter(|_| receives) {
                watch.remove(queue.socket().as_fd());
                *lost += queue.rx_dropped() + queue.discard();
                *unsent += queue.unsent() as u64;
            }
        });
        *unsent += self.kept.len() as u64;
        self.kept.clear();
    }

    fn with_queues<T>(&mut self, work: impl FnOnce(&mut [Queue]) -> T) -> Option<T> {
        self.queues.as_mut().map(|queues| queues.with(work))
    }

    /// Follows the interface, which may have gone or be there again.
    #[cold]
    fn follow(&mut self) {
        self.count_lost();
        let is_bound = self.with_queues(|queues| queues.iter().all(Queue::is_bound)).unwrap_or(false);
        // A failure is tried again.
        let named = interface::index_of(&self.interface.name).ok().flatten();
        if !is_bound {
            self.drop_queues();
        }
        // Another interface may have got the name; if none has it, the port keeps what it has.
        if let Some(named) = named.filter(|&named| !is_bound || named != self.interface.index()) {
            self.interface.open_again(self.opening, named);
        }
    }

    fn count_lost(&mut self) {
        if self.queues.as_ref().is_some_and(|queues| queues.receives(self.me)) {
            let lost = self.with_queues(|queues| queues.iter_mut().map(Queue::rx_dropped).sum::<u64>());
            self.lost += lost.unwrap_or(0);
        }
    }
}

/// Explains an error of the system, and how to fix it.
fn problem(error: &io::Error, mode: XdpMode) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => permission::refused(
            "AF_XDP",
            &[permission::SOCKETS, permission::INTERFACES, permission::PROGRAMS],
        ),
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "the system gives no memory for buffers (16 MiB a receive queue): raise `ulimit -l`, or add cap_ipc_lock"
                .to_owned()
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "something else has a program or a socket there: `ip link show` tells which, `ip link set dev INTERFACE xdp \
             off` takes a program away"
                .to_owned()
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) if mode != XdpMode::Auto => {
            format!("the driver has no mode `{}` ({error}); leave `mode` out", mode.name())
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS) => "this system has no AF_XDP sockets; take `afpacket:`".to_owned(),
        _ => format!("cannot be opened: {error}"),
    }
}

impl AfXdpPort {
    /// Receives from rings. Returns whether there may be more.
    #[inline]
    fn receive_from_rings(&mut self, frames: &mut Frames, time_ns: u64) -> bool {
        let (is_virtual, keeps_offloads, me) = (self.is_virtual, self.keeps_offloads, self.me);
        let finish = |frame: &mut Frame| match (is_virtual, keeps_offloads) {
            (true, true) => frame.offload = checksum::left(frame.bytes_mut()),
            (true, false) => checksum::finish(frame.bytes_mut()),
            (false, _) => {}
        };
        self.queues.as_mut().filter(|queues| queues.receives(me)).is_some_and(|queues| {
            queues.with(|queues| {
                queues.iter_mut().any(|queue| {
                    if queue.has_unsent() {
                        _ = queue.send_rest();
                    }
                    queue.receive(frames, time_ns, finish)
                })
            })
        })
    }

    /// Receives from the packet socket, if its turn is before the rings' (`first`) or behind it. Returns whether there may be more.
    #[inline]
    fn receive_from_socket(&mut self, frames: &mut Frames, first: bool) -> Result<bool, PortError> {
        let Some(companion) = self.companion.as_mut().filter(|companion| companion.is_used()) else {
            return Ok(false);
        };
        Ok(companion.receive(frames, first)? == Received::More)
    }

    /// Sends a frame that is to be cut through the packet socket, behind those in the ring. Returns whether it was taken.
    fn send_whole(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.unsent += self.flush()?;
        let is_empty = |queues: &mut [Queue]| queues.first_mut().is_some_and(|queue| !queue.has_unsent());
        if self.with_queues(is_empty) != Some(true) {
            return Ok(false);
        }
        let Some(companion) = &mut self.companion else { return Ok(false) };
        companion.socket().send(frame)?;
        Ok(companion.socket().flush()? == 0)
    }

    /// Drops frames that the kernel has not cut before a program in generic mode, as on a slower link: nothing says into what they
    /// are to be cut.
    #[inline]
    fn drop_segments(&mut self, frames: &mut Frames, from: usize) {
        let is_generic = self.opened.is_some_and(|opened| opened.attachment == Attachment::Skb);
        if is_generic && frames[from..].iter().any(|frame| frame.len() > USUAL) {
            self.drop_longer(frames, from);
        }
    }

    #[cold]
    fn drop_longer(&mut self, frames: &mut Frames, from: usize) {
        // An interface that has gone has no MTU.
        let mtu = device::mtu(&self.interface.name).map_or(USUAL, |mtu| mtu as usize);
        let mut kept = from;
        for at in from..frames.len() {
            let frame = &frames[at];
            // Those of the packet socket say into what they are to be cut.
            let is_said = frame.offload.is_some_and(|offload| offload.cut.is_some());
            if is_said || frame.len() <= mtu + HEADERS {
                frames.swap(kept, at);
                kept += 1;
            }
        }
        self.lost += (frames.len() - kept) as u64;
        frames.truncate(kept);
    }

    /// Follows the traffic: the program is detached while whole segments come.
    #[inline]
    fn steer(&mut self, frames: &[Frame], now_ns: u64) {
        let Some(companion) = self.companion.as_mut().filter(|_| self.may_detach) else { return };
        if let Some(is_wanted) = companion.steer(frames, now_ns, self.interface.is_detached()) {
            self.interface.detach_program(is_wanted);
        }
    }
}

impl Port for AfXdpPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        self.take_newest();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (time_ns, from) = (now.as_nanos() as u64, frames.len());
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS) {
            self.count_lost();
        }
        let has_more = self.receive_from_socket(frames, true)?
            || self.receive_from_rings(frames, time_ns)
            || self.receive_from_socket(frames, false)?;
        if !self.is_stopped {
            self.steer(&frames[from..], time_ns);
        }
        self.drop_segments(frames, from);
        if has_more {
            return Ok(Received::More);
        }
        if frames.is_empty() {
            if self.is_stopped {
                self.count_lost();
            } else {
                self.check();
            }
        }
        Ok(Received::Idle)
    }

    fn keep_offloads(&mut self, keep: bool) {
        self.keeps_offloads = keep;
        self.companion.iter_mut().for_each(|companion| companion.socket().keep_offloads(keep));
    }

    fn carries_offloads(&self) -> bool {
        self.opened.is_some_and(|opened| opened.segments)
    }

    fn state(&self) -> String {
        self.status().map(|status| status.to_string()).unwrap_or_default()
    }

    fn check(&mut self) {
        self.take_newest();
        if self.checks.is_due() {
            self.follow();
            self.companion.iter_mut().for_each(|companion| companion.socket().check());
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn needs_software_rss(&self) -> bool {
        self.queues
            .as_ref()
            .is_some_and(|queues| matches!(queues, Queues::Shared(_)) && queues.receives(self.me))
    }

    fn rx_dropped(&mut self) -> u64 {
        let by_socket = self.companion.as_mut().filter(|companion| companion.is_used());
        by_socket.map_or(0, |companion| companion.socket().rx_dropped()) + std::mem::take(&mut self.lost)
    }

    fn stop_arrivals(&mut self) -> bool {
        self.is_stopped = true;
        // First, or frames that no ring takes any more would come here.
        self.companion.iter_mut().for_each(|companion| _ = companion.socket().stop_arrivals());
        self.interface.release();
        true
    }

    fn resume_arrivals(&mut self) {
        // The next check opens the interface again: the run's end has closed its queues.
        self.is_stopped = false;
    }

    fn release(&mut self) {
        self.drop_queues();
        self.interface.detach();
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        if frame.offload.is_some_and(|offload| offload.cut.is_some()) {
            return self.send_whole(frame);
        }
        match &mut self.queues {
            None => Ok(false),
            Some(Queues::Own(queues)) => Ok(queues.first_mut().is_some_and(|queue| queue.put_or_send(frame))),
            Some(Queues::Shared(_)) => {
                if self.kept.is_full() {
                    self.unsent += self.flush()?;
                }
                if let Some(place) = self.kept.next_frame() {
                    place.copy_from(frame);
                }
                Ok(true)
            }
        }
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        if let Some(queues) = &mut self.queues {
            let kept = &self.kept;
            let is_shared = matches!(queues, Queues::Shared(_));
            if !(is_shared && kept.is_empty()) {
                // What finds no room is not taken; what has been taken stays in the ring until it is sent. An interface that is down
                // or has gone is the check's concern.
                self.unsent += queues.with(|queues| {
                    let Some(queue) = queues.first_mut() else { return kept.len() as u64 };
                    let refused = kept.iter().filter(|frame| !queue.put_or_send(frame)).count();
                    _ = queue.send();
                    refused as u64
                });
                self.kept.clear();
            }
        }
        Ok(std::mem::take(&mut self.unsent))
    }

    fn close(&mut self) -> Result<(), PortError> {
        self.unsent += self.flush()?;
        // What the kernel does not take is counted as not sent.
        self.with_queues(|queues| {
            for queue in queues.iter_mut().filter(|queue| queue.has_unsent()) {
                _ = queue.send_rest();
            }
        });
        self.drop_queues();
        Ok(())
    }
}
