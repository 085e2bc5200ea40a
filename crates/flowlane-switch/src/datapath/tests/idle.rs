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
struct Datagrams(Arc<UnixDatagram>, Arc<AtomicU64>);

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

/// Makes a worker that sends frames back, with ports of these sockets. Returns how often each is asked for frames, too.
fn reflector(sockets: Vec<Arc<UnixDatagram>>) -> (Worker, Vec<Arc<AtomicU64>>) {
    let mut egress = Egress::new(Fdb::new(1000, 300, 1), 1);
    let asked: Vec<Arc<AtomicU64>> = sockets.iter().map(|_| Arc::default()).collect();
    for ((number, socket), asked) in (1..).zip(sockets).zip(&asked) {
        socket.set_nonblocking(true).unwrap();
        let port = Box::new(Datagrams(socket, asked.clone()));
        egress.ports.add(PortSlot::new(PortNo(number), "inside", "", port));
    }
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    pipeline.add_rule(Rule::new(Match::any(), vec![Action::InPort])).unwrap();
    let lookup = Lookup::new(pipeline, CacheConfig::default());
    (Worker::new(lookup, egress, 32, Clock::Wall), asked)
}

/// Sends a frame, and waits for the answer.
fn ask(outside: &UnixDatagram) {
    let (sent, mut back) = ([7; 60], [0; 128]);
    outside.send(&sent).unwrap();
    assert_eq!(outside.recv(&mut back).unwrap(), sent.len());
}

/// While nothing comes its ports are left alone; a frame, a request and rules that change are seen to all the same.
#[test]
fn an_idle_worker_waits_and_whatever_comes_wakes_it() {
    let (outside, inside) = UnixDatagram::pair().unwrap();
    let (mut worker, asked) = reflector(vec![Arc::new(inside)]);
    let asked = &asked[0];
    let control = Control::attach(&mut worker).unwrap();
    let (mail, stop) = (worker.mailbox(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(Until::default(), &stop, |_| {}).unwrap());
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            ask(&outside);
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

/// Of many ports, those are left alone where nothing comes; each is answered all the same, also where two have one descriptor,
/// as tunnels do.
#[test]
fn a_busy_worker_leaves_idle_ports_alone() {
    let (outside, mut inside): (Vec<_>, Vec<_>) = (0..19)
        .map(|_| UnixDatagram::pair().unwrap())
        .map(|(outside, inside)| (outside, Arc::new(inside)))
        .unzip();
    inside.push(inside[18].clone());
    let (mut worker, asked) = reflector(inside);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(Until::default(), &stop, |_| {}).unwrap());
        outside.iter().for_each(ask);
        let counts = || asked.iter().map(|asked| asked.load(Ordering::Relaxed)).collect::<Vec<u64>>();
        let before = counts();
        (0..20_000).for_each(|_| ask(&outside[0]));
        let meanwhile: Vec<u64> = counts().iter().zip(before).map(|(now, before)| now - before).collect();
        assert!(
            meanwhile[0] >= 20_000 && meanwhile[1..18].iter().all(|idle| idle * 4 < meanwhile[0]),
            "{meanwhile:?}"
        );
        outside.iter().for_each(ask);
        // All of them wait for one descriptor now, which wakes the worker.
        std::thread::sleep(Duration::from_millis(50));
        outside.iter().for_each(ask);
        stop.store(true, Ordering::Relaxed);
    });
}
