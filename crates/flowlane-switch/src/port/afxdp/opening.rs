//! What the workers share of an interface.

use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::program::{Attachment, Program};
use super::queue::{Copying, Queue};
use crate::port::{XdpMode, interface};

/// A worker's queues.
#[derive(Debug)]
pub(super) enum Queues {
    /// No other worker has them.
    Own(Vec<Queue>),
    /// All queues, for all workers: there are fewer than workers.
    Shared(Arc<Mutex<Vec<Queue>>>),
}

impl Queues {
    /// Calls `work` with the queues, locked if they are shared.
    #[inline]
    pub(super) fn with<T>(&mut self, work: impl FnOnce(&mut [Queue]) -> T) -> T {
        match self {
            Self::Own(queues) => work(queues),
            // A panicking holder has left the rings between two frames.
            Self::Shared(queues) => work(&mut queues.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Returns whether this holds for all queues.
    pub(super) fn all(&self, holds: impl Fn(&Queue) -> bool) -> bool {
        match self {
            Self::Own(queues) => queues.iter().all(holds),
            Self::Shared(queues) => queues.lock().unwrap_or_else(PoisonError::into_inner).iter().all(holds),
        }
    }

    /// Returns whether worker `me` receives from them.
    pub(super) fn receives(&self, me: usize) -> bool {
        me == 0 || matches!(self, Self::Own(_))
    }
}

/// An interface, for all its workers.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    mode: XdpMode,
    pub(super) workers: usize,
    /// The number of times that it has been opened.
    pub(super) openings: AtomicU64,
    /// The interface that the newest opening is of.
    index: AtomicI32,
    /// The program is detached, so that frames come to packet sockets.
    is_detached: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    attached: Option<Attached>,
    /// The queues of the newest opening, by worker, until they are taken.
    queues: Vec<Option<Queues>>,
    /// A thread opens the interface, or changes which way its frames come.
    is_opening: bool,
}

/// The program and settings of an interface while a port uses it.
#[derive(Debug)]
struct Attached {
    program: Arc<Program>,
    /// Keeps the interface promiscuous.
    _promiscuous: OwnedFd,
    /// The number of receive queues.
    queues: u32,
}

impl Interface {
    /// Opens an interface.
    pub(super) fn open(name: &str, mode: XdpMode, workers: usize) -> io::Result<Arc<Self>> {
        let interface = Self {
            name: name.to_owned(),
            mode,
            workers,
            openings: AtomicU64::new(0),
            index: AtomicI32::new(0),
            is_detached: AtomicBool::new(false),
            state: Mutex::default(),
        };
        let index = interface::index_of(name)?.ok_or(io::ErrorKind::NotFound)?;
        interface.attach(index)?;
        Ok(Arc::new(interface))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking holder has changed one field at most.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the interface that the newest opening is of.
    pub(super) fn index(&self) -> i32 {
        self.index.load(Ordering::Relaxed)
    }

    /// Returns whether no device belongs to it, so that neighbours leave checksums to be completed.
    pub(super) fn is_virtual(&self) -> bool {
        !Path::new(&format!("/sys/class/net/{}/device", self.name)).exists()
    }

    pub(super) fn attachment(&self) -> Option<Attachment> {
        self.lock().attached.as_ref().map(|attached| attached.program.attachment)
    }

    /// Takes a worker's queues of the newest opening, and that opening's number.
    pub(super) fn take(&self, worker: usize) -> (u64, Option<Queues>) {
        let mut state = self.lock();
        (self.openings.load(Ordering::Acquire), state.queues.get_mut(worker).and_then(Option::take))
    }

    /// Attaches a program to the interface of this index, and opens its queues.
    fn attach(&self, index: i32) -> io::Result<()> {
        let (attached, queues) = self.attached(index)?;
        let mut state = self.lock();
        let shares = match queues.len() < self.workers {
            true => {
                let queues = Arc::new(Mutex::new(queues));
                (0..self.workers).map(|_| Some(Queues::Shared(queues.clone()))).collect()
            }
            false => {
                let mut shares: Vec<Vec<Queue>> = (0..self.workers).map(|_| Vec::new()).collect();
                queues.into_iter().enumerate().for_each(|(n, queue)| shares[n % self.workers].push(queue));
                shares.into_iter().map(|queues| Some(Queues::Own(queues))).collect()
            }
        };
        (state.attached, state.queues) = (Some(attached), shares);
        self.index.store(index, Ordering::Relaxed);
        self.is_detached.store(false, Ordering::Relaxed);
        self.openings.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn attached(&self, index: i32) -> io::Result<(Attached, Vec<Queue>)> {
        let program = Program::attach(index as u32, attachments(self.mode))?;
        let promiscuous = interface::packet_socket()?;
        interface::set_promiscuous(&promiscuous, index, true)?;
        let queues = queues_of(&self.name);
        let completes = self.is_virtual();
        let open = |queue| Queue::open(&program, queue, copying(self.mode), completes);
        let opened = (0..queues).map(open).collect::<io::Result<_>>()?;
        let program = Arc::new(program);
        Ok((Attached { program, _promiscuous: promiscuous, queues }, opened))
    }

    /// Opens the interface that now has the name, on a thread of its own, unless that was done after opening number `seen` or is
    /// being done.
    pub(super) fn open_again(self: &Arc<Self>, seen: u64, index: i32) {
        let mut state = self.lock();
        if state.is_opening || self.openings.load(Ordering::Acquire) != seen {
            return;
        }
        // The former program may be at another interface, and a queue that no worker has taken is of no use.
        let former = (state.attached.take(), take(&mut state.queues));
        let interface = self.clone();
        let thread = std::thread::Builder::new().name("interface".to_owned());
        let opener = thread.spawn(move || {
            drop(former);
            // What fails is tried again at the next check.
            _ = interface.attach(index);
            interface.lock().is_opening = false;
        });
        state.is_opening = opener.is_ok();
    }

    /// Returns whether the program may be detached for a while: where the user has not given the mode.
    pub(super) fn may_detach(&self) -> bool {
        self.mode == XdpMode::Auto
    }

    /// Returns whether the program is detached, so that frames come to packet sockets.
    pub(super) fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::Acquire)
    }

    /// Detaches the program or attaches it again, on a thread of its own, unless one is at work already.
    #[cold]
    pub(super) fn detach_program(self: &Arc<Self>, is_wanted: bool) {
        let mut state = self.lock();
        let Some(program) = state.attached.as_ref().map(|attached| attached.program.clone()) else { return };
        if state.is_opening {
            return;
        }
        let interface = self.clone();
        let thread = std::thread::Builder::new().name("interface".to_owned());
        let changer = thread.spawn(move || {
            // Where something else has a program by now, frames go on to come to packet sockets: it is tried again.
            let is_done = match is_wanted {
                true => {
                    program.detach();
                    true
                }
                false => program.attach_again().is_ok(),
            };
            drop(program);
            if is_done {
                interface.is_detached.store(is_wanted, Ordering::Release);
            }
            interface.lock().is_opening = false;
        });
        state.is_opening = changer.is_ok();
    }

    /// Takes the program away, and closes the queues that no worker has.
    pub(super) fn detach(&self) {
        let mut state = self.lock();
        let gone = (state.attached.take(), take(&mut state.queues));
        drop(state);
        // Detaching waits for the kernel.
        drop(gone);
    }

    /// Leads no further frames to the sockets: they are the system's from now on.
    pub(super) fn release(&self) {
        if let Some(Attached { program, queues, .. }) = &self.lock().attached {
            (0..*queues).for_each(|queue| program.release(queue));
        }
    }
}

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

/// How many receive queues an interface has.
fn queues_of(interface: &str) -> u32 {
    let folder = std::fs::read_dir(format!("/sys/class/net/{interface}/queues"));
    let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name());
    (names.filter(|name| name.to_string_lossy().starts_with("rx-")).count() as u32).max(1)
}
