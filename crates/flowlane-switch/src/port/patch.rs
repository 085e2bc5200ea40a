//! Patch ports: two ports of this process, mostly of two bridges, of which each receives the frames that the other sends.
//!
//! ```text
//! worker of one bridge ─ send ─ flush ─► queue ─► receive ─ worker of the other
//!                                          └ an event, by which the other wakes
//! ```
//!
//! A port whose peer is not there drops frames. A frame passes 64 of them at most, so that a loop of bridges ends.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};

use super::frame_queue::FrameQueue;
use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames};

/// Frames that a port keeps before it takes the lock.
const KEPT: usize = 64;
/// The most patch ports that a frame passes, as in Open vSwitch.
const PATCHES_MAX: u8 = 64;

/// The links of this process, by the names of their two ports in order.
static LINKS: Mutex<BTreeMap<[String; 2], Weak<Link>>> = Mutex::new(BTreeMap::new());

/// Frames on their way to a port.
#[derive(Debug, Default)]
struct Queue {
    frames: FrameQueue,
    /// The port that receives them is open.
    is_open: bool,
}

#[derive(Debug)]
struct Way {
    queue: Mutex<Queue>,
    /// Readable while frames wait.
    event: OwnedFd,
}

impl Way {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Frames are moved whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two ports, by what each receives.
#[derive(Debug)]
struct Link([Way; 2]);

/// A patch port.
#[derive(Debug)]
pub struct PatchPort {
    link: Arc<Link>,
    /// The place of its own way.
    own: usize,
    kept: Frames,
    /// Frames that were dropped since the last flush.
    dropped: u64,
}

impl PatchPort {
    /// Opens a port of a name, whose frames go to another.
    ///
    /// # Errors
    /// Where the port is open, is its own peer, or the system has no event.
    pub fn open(name: &str, peer: &str) -> Result<Self, String> {
        if name == peer {
            return Err("a patch port needs another port as its peer".to_owned());
        }
        let own = usize::from(name > peer);
        let mut names = [name.to_owned(), peer.to_owned()];
        names.sort();
        let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.strong_count() > 0);
        let link = match links.get(&names).and_then(Weak::upgrade) {
            Some(link) => link,
            None => {
                let way = || {
                    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
                    Ok(Way { queue: Mutex::default(), event })
                };
                let failed = |error: rustix::io::Errno| format!("the system has no event left: {error}");
                let link = Arc::new(Link([way().map_err(failed)?, way().map_err(failed)?]));
                links.insert(names, Arc::downgrade(&link));
                link
            }
        };
        let mut queue = link.0[own].lock();
        if std::mem::replace(&mut queue.is_open, true) {
            return Err(format!("the patch port {name} is open already"));
        }
        drop(queue);
        Ok(Self { link, own, kept: Frames::new(KEPT), dropped: 0 })
    }

    fn own(&self) -> &Way {
        &self.link.0[self.own]
    }

    /// Hands the kept frames to the peer, and counts those that are dropped.
    fn hand_over(&mut self) {
        let Way { event, .. } = &self.link.0[1 - self.own];
        let mut queue = self.link.0[1 - self.own].lock();
        let Queue { frames, is_open } = &mut *queue;
        let was_empty = frames.is_empty();
        let room = if *is_open { frames.room() } else { 0 };
        let taken = self.kept.len().min(room);
        for frame in &mut self.kept[..taken] {
            std::mem::swap(frames.next_frame().expect("there is room"), frame);
        }
        if was_empty && taken > 0 {
            // The counter of an event is never full here: the receiver takes it before it goes to sleep again.
            _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        drop(queue);
        self.dropped += (self.kept.len() - taken) as u64;
        self.kept.clear();
    }
}

impl Drop for PatchPort {
    fn drop(&mut self) {
        *self.own().lock() = Queue::default();
    }
}

impl Port for PatchPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let way = self.own();
        let mut queue = way.lock();
        queue.frames.take(frames);
        if !queue.frames.is_empty() {
            return Ok(Received::More);
        }
        _ = rustix::io::read(&way.event, &mut [0; 8]);
        Ok(Received::Idle)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.own().event.as_fd())
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        if frame.patches >= PATCHES_MAX {
            return Ok(false);
        }
        if self.kept.is_full() {
            self.hand_over();
        }
        let place = self.kept.next_frame().expect("there is room");
        place.copy_from(frame);
        place.patches = frame.patches + 1;
        Ok(true)
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        if !self.kept.is_empty() {
            self.hand_over();
        }
        Ok(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::frame_queue::WAITING_MAX;
    use super::*;

    fn frame(byte: u8) -> Frame {
        let mut frame = Frame::default();
        frame.fill(&[byte; 60]);
        frame
    }

    fn received(port: &mut PatchPort) -> Vec<u8> {
        let mut frames = Frames::new(64);
        let mut all = Vec::new();
        loop {
            let state = port.receive(&mut frames).unwrap();
            all.extend(frames.iter().map(|frame| frame.bytes()[0]));
            frames.clear();
            if state == Received::Idle {
                return all;
            }
        }
    }

    fn is_readable(port: &PatchPort) -> bool {
        let descriptor = port.descriptor().unwrap();
        let mut waited_for = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        poll(&mut waited_for, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn each_receives_in_order_what_the_other_sends() {
        let mut a = PatchPort::open("order-a", "order-b").unwrap();
        assert!(a.send(&frame(1)).unwrap());
        assert_eq!(a.flush().unwrap(), 1, "the peer is not there");
        let mut b = PatchPort::open("order-b", "order-a").unwrap();
        assert!(PatchPort::open("order-b", "order-a").is_err() && PatchPort::open("x", "x").is_err());
        assert!(!is_readable(&b));
        for byte in 0..200 {
            assert!(a.send(&frame(byte)).unwrap());
        }
        assert_eq!(a.flush().unwrap(), 0);
        assert!(is_readable(&b) && !is_readable(&a));
        assert_eq!(received(&mut b), (0..200).collect::<Vec<u8>>());
        assert!(!is_readable(&b), "nothing waits any more");
        b.send(&frame(7)).unwrap();
        b.flush().unwrap();
        assert_eq!(received(&mut a), [7]);
        drop(a);
        b.send(&frame(8)).unwrap();
        assert_eq!(b.flush().unwrap(), 1);
        let mut again = PatchPort::open("order-a", "order-b").unwrap();
        assert_eq!(received(&mut again), [0; 0]);
    }

    #[test]
    fn a_queue_is_bounded_and_a_loop_ends() {
        let mut a = PatchPort::open("loop-a", "loop-b").unwrap();
        let mut b = PatchPort::open("loop-b", "loop-a").unwrap();
        let mut dropped = 0;
        for _ in 0..100 {
            for _ in 0..KEPT {
                a.send(&frame(1)).unwrap();
            }
            dropped += a.flush().unwrap();
        }
        assert_eq!(dropped as usize, 100 * KEPT - WAITING_MAX);
        assert_eq!(received(&mut b).len(), WAITING_MAX);
        let (mut frames, mut passed) = (Frames::new(1), 0);
        frames.next_frame().unwrap().fill(&[3; 60]);
        while a.send(&frames[0]).unwrap() {
            a.flush().unwrap();
            frames.clear();
            b.receive(&mut frames).unwrap();
            passed += 1;
            std::mem::swap(&mut a, &mut b);
        }
        assert_eq!(passed, u32::from(PATCHES_MAX));
    }
}
