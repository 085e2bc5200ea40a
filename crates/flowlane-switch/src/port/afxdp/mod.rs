//! Interfaces of the system, through AF_XDP sockets: frames pass by the network stack, in batches over shared memory
//! (Documentation/networking/af_xdp.rst).
//!
//! | module | what |
//! |---|---|
//! | `memory` | buffers and rings that the kernel works on, too |
//! | `program` | the program that hands frames to sockets, loaded and attached |
//! | `queue` | a socket for one receive queue |
//!
//! There is a socket for each receive queue; a worker has those whose numbers are its own modulo the number of workers. Frames are
//! copied between the kernel's buffers and ours.
//!
//! **Checksums.** A virtual neighbour leaves checksums unfinished, since packets do not leave the machine, and says so beside the
//! packet, where an AF_XDP socket does not see it. The checksum field then holds the sum of the pseudo header. So on
//! interfaces without a device the port looks whether that is there, and finishes the checksum if so; were it right by chance, it
//! would come out the same.
//!
//! **An interface that goes away** takes its sockets and program with it. Its name is looked for ten times a second.

mod checksum;
mod memory;
mod program;
mod queue;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::afpacket::{interface_index, interfaces};
use super::{Port, PortError, Received, XdpMode, permission};
use crate::packet::{Frame, Frames};

pub use program::Attachment;

use program::Program;
use queue::{Copying, Queue};

/// Between two looks at whether the interface is the same.
const LOOK: Duration = Duration::from_millis(100);

/// Calls for frames between two looks at what has been lost, which takes a call of the system.
const CALLS: u32 = 1024;

/// In which ways a program may be attached, best first.
fn attachments(mode: XdpMode) -> &'static [Attachment] {
    match mode {
        XdpMode::Auto => &[Attachment::Native, Attachment::Skb],
        XdpMode::Skb => &[Attachment::Skb],
        XdpMode::Native | XdpMode::ZeroCopy => &[Attachment::Native],
    }
}

fn copying(mode: XdpMode) -> Copying {
    match mode {
        XdpMode::Auto => Copying::Auto,
        XdpMode::Skb | XdpMode::Native => Copying::Always,
        XdpMode::ZeroCopy => Copying::Never,
    }
}

/// Shared by the ports of an interface: the program, while one is loaded.
#[derive(Debug)]
struct Shared {
    interface: String,
    mode: XdpMode,
    program: Mutex<Option<Program>>,
}

/// A worker's receive queues of an interface.
pub struct AfXdpPort {
    shared: Arc<Shared>,
    /// The interface that the queues are of.
    index: u32,
    /// Numbers of its queues.
    numbers: Vec<u32>,
    queues: Vec<Queue>,
    /// An epoll descriptor over the queues, where there are several.
    all: Option<OwnedFd>,
    /// Neighbours leave checksums to be completed.
    is_virtual: bool,
    looked: Instant,
    /// Frames dropped on receipt since `rx_dropped` was last called.
    lost: u64,
    calls: u32,
}

impl AfXdpPort {
    /// Opens an interface for as many workers, or for fewer where it has fewer receive queues: each gets those queues whose numbers
    /// are its own modulo their number.
    ///
    /// # Errors
    /// Where there is no such interface, no permission, or something else has a program there.
    pub fn open_all(interface: &str, mode: XdpMode, workers: usize) -> Result<Vec<Self>, PortError> {
        let spec = match mode {
            XdpMode::Auto => format!("afxdp:{interface}"),
            mode => format!("afxdp:{interface},mode={}", mode.name()),
        };
        let fail = |problem: String| PortError::Environment { spec: spec.clone(), problem };
        let Some(index) = interface_index(interface) else {
            let there = interfaces().join(", ");
            return Err(fail(format!("there is no interface `{interface}`; there are {there}")));
        };
        let queues = queues_of(interface);
        let ports = workers.min(queues as usize).max(1);
        let shared = Arc::new(Shared { interface: interface.to_owned(), mode, program: Mutex::new(None) });
        let port = |me: usize| Self {
            shared: shared.clone(),
            index: index as u32,
            numbers: (0..queues).filter(|queue| *queue as usize % ports == me).collect(),
            queues: Vec::new(),
            all: None,
            is_virtual: !std::path::Path::new(&format!("/sys/class/net/{interface}/device")).exists(),
            looked: Instant::now(),
            lost: 0,
            calls: 0,
        };
        let mut all: Vec<Self> = (0..ports).map(port).collect();
        all.iter_mut().try_for_each(Self::open_queues).map_err(|error| fail(problem(&error, mode)))?;
        Ok(all)
    }

    /// How frames are had; none where the interface has gone.
    pub fn attachment(&self) -> Option<(Attachment, bool)> {
        let program = self.shared.program.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let without_copies = self.queues.iter().all(Queue::is_without_copies);
        program.as_ref().map(|program| (program.attachment, without_copies))
    }

    /// Opens the sockets; the first port attaches the program.
    fn open_queues(&mut self) -> io::Result<()> {
        let Shared { mode, program, .. } = &*self.shared;
        // A panicking holder has left one program or none.
        let mut program = program.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if program.as_ref().is_none_or(|program| program.index != self.index) {
            *program = None;
            *program = Some(Program::attach(self.index, attachments(*mode))?);
        }
        let Some(program) = &*program else { return Ok(()) };
        let open = |&queue: &u32| Queue::open(program, queue, copying(*mode));
        self.queues = self.numbers.iter().map(open).collect::<io::Result<_>>()?;
        self.all = if self.queues.len() > 1 { Some(any_of(&self.queues)?) } else { None };
        Ok(())
    }

    /// The interface may have gone, or be there again.
    #[cold]
    fn look(&mut self) {
        self.looked = Instant::now();
        self.lost += self.queues.iter_mut().map(Queue::rx_dropped).sum::<u64>();
        let index = interface_index(&self.shared.interface).map(|index| index as u32);
        if index == Some(self.index) && !self.queues.is_empty() {
            return;
        }
        (self.queues, self.all) = (Vec::new(), None);
        if let Some(index) = index {
            self.index = index;
            if self.open_queues().is_err() {
                self.queues.clear();
            }
        }
    }
}

/// How many receive queues an interface has.
fn queues_of(interface: &str) -> u32 {
    let folder = std::fs::read_dir(format!("/sys/class/net/{interface}/queues"));
    let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name());
    (names.filter(|name| name.to_string_lossy().starts_with("rx-")).count() as u32).max(1)
}

/// Makes an epoll descriptor over these sockets.
fn any_of(queues: &[Queue]) -> io::Result<OwnedFd> {
    use rustix::event::epoll;
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, queue) in (0..).zip(queues) {
        epoll::add(&all, queue.socket(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    Ok(all)
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

impl Port for AfXdpPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (time_ns, is_virtual) = (now.as_nanos() as u64, self.is_virtual);
        let finish = |bytes: &mut [u8]| {
            if is_virtual {
                checksum::finish(bytes);
            }
        };
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS) {
            self.lost += self.queues.iter_mut().map(Queue::rx_dropped).sum::<u64>();
        }
        for queue in &mut self.queues {
            if queue.has_unsent() {
                _ = queue.send_rest();
            }
            if queue.receive(frames, time_ns, finish) {
                return Ok(Received::More);
            }
        }
        if frames.is_empty() && self.looked.elapsed() >= LOOK {
            self.look();
        }
        Ok(Received::Idle)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let first = self.queues.first().map(|queue| queue.socket().as_fd());
        self.all.as_ref().map(AsFd::as_fd).or(first)
    }

    fn rx_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        let Some(queue) = self.queues.first_mut() else { return Ok(false) };
        if queue.put(frame) {
            return Ok(true);
        }
        // The kernel may take some meanwhile.
        let sent = queue.send();
        Ok(sent.is_ok() && queue.put(frame))
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        if let Some(queue) = self.queues.first_mut()
            && queue.send().is_err()
        {
            self.look();
        }
        // What finds no room is not taken; what has been taken stays in the ring until it is sent.
        Ok(0)
    }
}
