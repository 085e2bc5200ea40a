//! The ports where frames may have arrived: a worker of many ports asks the system once a round, instead of each port.
//!
//! A node of OVN has hundreds of interfaces, most of them idle: to read each of 200 took a fifth of a busy worker's time.

#[cfg(target_os = "linux")]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::ports::PortSlot;

/// From this number of ports on, the system is asked.
const PORTS_MIN: usize = 8;

/// How often each port is received from nevertheless: it then sees whether its interface has gone or has come back.
const ALL_AFTER: Duration = Duration::from_millis(10);

/// The answers of the system.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// All ports that have a descriptor, since the ports last changed.
    #[cfg(target_os = "linux")]
    watched: Option<OwnedFd>,
    /// All that receive are among them.
    are_all_watched: bool,
    /// By place: the ports that are received from in each round: they have no descriptor, or that of another one.
    always: Vec<bool>,
    /// By place: the ports to be received from in this round.
    now: Vec<bool>,
    /// When all were received from.
    all_since: Option<Instant>,
}

impl Arrivals {
    /// Forgets the ports: others have come, or some have gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the port at a place may have frames, as last asked.
    #[inline]
    pub(super) fn are_at(&self, place: usize) -> bool {
        self.now.get(place).is_none_or(|may| *may)
    }

    /// Returns a descriptor that is readable while any port has frames, if all ports have one and there are many.
    #[cfg(target_os = "linux")]
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.watched.as_ref().filter(|_| self.are_all_watched).map(|watched| watched.as_fd())
    }

    /// Asks the system which ports have frames.
    #[inline]
    pub(super) fn ask(&mut self, slots: &[PortSlot]) {
        if slots.len() >= PORTS_MIN {
            self.ask_system(slots);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_system(&mut self, _: &[PortSlot]) {}

    #[cfg(target_os = "linux")]
    fn ask_system(&mut self, slots: &[PortSlot]) {
        use rustix::event::{Timespec, epoll};
        use rustix::io::Errno;
        self.now.clear();
        if self.all_since.is_none_or(|since| since.elapsed() >= ALL_AFTER) {
            self.all_since = Some(Instant::now());
            if self.watched.is_none() {
                self.watch(slots);
            }
            return;
        }
        let Some(watched) = &self.watched else { return };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) }; 64];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(watched, &mut events[..], Some(&at_once)) {
            // More may have frames than there are answers.
            Ok(64..) | Err(Errno::INTR) => {}
            Ok(answers) => {
                self.now.clone_from(&self.always);
                for event in &events[..answers] {
                    let place = event.data.u64() as usize;
                    self.now[place] = true;
                }
            }
            Err(_) => self.watched = None,
        }
    }

    /// Has the system watch all ports that it can.
    #[cfg(target_os = "linux")]
    fn watch(&mut self, slots: &[PortSlot]) {
        use rustix::event::epoll;
        use rustix::io::Errno;
        self.always = vec![true; slots.len()];
        let Ok(watched) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
        self.are_all_watched = true;
        for (place, slot) in slots.iter().enumerate().filter(|(_, slot)| !slot.is_over()) {
            let data = epoll::EventData::new_u64(place as u64);
            let add = |descriptor| epoll::add(&watched, descriptor, data, epoll::EventFlags::IN);
            let added = slot.port.descriptor().map(add);
            // Ports of one tunnel protocol have one descriptor.
            self.are_all_watched &= matches!(added, Some(Ok(()) | Err(Errno::EXIST)));
            self.always[place] = added != Some(Ok(()));
        }
        self.watched = Some(watched);
    }
}
