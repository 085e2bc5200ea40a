//! A worker that has nothing to do.
#![cfg(target_os = "linux")]

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::classify::LinearSearch;

use super::*;
use crate::control::Control;

/// A port whose frames are datagrams; it counts how often it is asked for some.
struct Datagrams(UnixDatagram, Arc<AtomicU64>);

impl Port for Datagrams {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 128];
        while let Ok(len) = self.0.recv(&mut bytes) {
            frames.next_frame().expect("few are sent").fill(&bytes[..len]);
        }
        Ok(Received::Idle)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        Ok(self.0.send(frame.bytes()).is_ok())
    }
}

/// While nothing comes its ports are left alone; a frame, a request and rules that change are seen to all the same.
#[test]
fn an_idle_worker_waits_and_whatever_comes_wakes_it() {
    let (outside, inside) = UnixDatagram::pair().unwrap();
    inside.set_nonblocking(true).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let mut egress = Egress::new(Fdb::new(1000, 300, 1), 1);
    let port = Box::new(Datagrams(inside, asked.clone()));
    egress.ports.add(PortSlot::new(PortNo(1), "inside", "", port));
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    pipeline.add_rule(Rule::new(Match::any(), vec![Action::InPort])).unwrap();
    let lookup = Lookup::new(pipeline, CacheConfig::default());
    let mut worker = Worker::new(lookup, egress, 32, Clock::Wall);
    let control = Control::attach(&mut worker).unwrap();
    let (mail, stop) = (worker.mailbox(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(Until::default(), &stop, |_| {}).unwrap());
        let sent = [7; 60];
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            outside.send(&sent).unwrap();
            let mut back = [0; 128];
            assert_eq!(outside.recv(&mut back).unwrap(), sent.len());
        }
        std::thread::sleep(Duration::from_millis(10));
        let before = asked.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(500));
        let asked_meanwhile = asked.load(Ordering::Relaxed) - before;
        assert!(asked_meanwhile < 50, "asked {asked_meanwhile} times while nothing came");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(mail.call(|worker| worker.egress.ports.len()), Some(1));
            control.wait();
            assert_eq!(control.statistics(|_, _| true)[0].count.packets, 20);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
