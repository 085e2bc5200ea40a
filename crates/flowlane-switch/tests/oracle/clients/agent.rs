//! A switch of Flowlane with an OpenFlow agent, while a test drives it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane::classify::TupleSearch;
use flowlane::rule::action::PortNo;
use flowlane_switch::control::Control;
use flowlane_switch::datapath::{
    CacheConfig, Clock, Egress, Lookup, PacketIns, Pipeline, PortSlot, Switch, Until, Worker,
};
use flowlane_switch::mgmt::openflow::{Address, Agent, Service};
use flowlane_switch::mgmt::rpc::ControlServer;
use flowlane_switch::mgmt::setup::{Reload, Setup};
use flowlane_switch::port::MemoryPort;
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

use crate::ovs::PORTS;

/// The tables of a bridge of Open vSwitch that controllers see.
const TABLES: u8 = 254;

/// A worker with the ports of the Open vSwitch beside it, without that of the host, which Flowlane has not.
fn worker(packet_ins: &Arc<PacketIns>) -> Worker {
    let mut pipeline = Pipeline::new();
    for table in 0..TABLES {
        pipeline.add_table(table, "", Box::new(TupleSearch::new(1000, 7)), Miss::Drop);
    }
    let mut egress = Egress::new(Fdb::new(100, 300, 1), 1);
    for number in 1..=PORTS as u32 {
        // Without its other end, a port receives nothing.
        let (port, _) = MemoryPort::new();
        egress.ports.add(PortSlot::new(PortNo(number), &format!("p{number}"), "", Box::new(port)));
    }
    egress.packet_ins = Some(packet_ins.clone());
    Worker::new(Lookup::new(pipeline, CacheConfig::default()), egress, 64, Clock::Wall)
}

/// Runs a switch, and a function with the path of its agent's socket.
pub(super) fn with_agent<T>(drive: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("switch.toml");
    std::fs::write(&config, "[[table]]\nnumber = 0\n[[port]]\nnumber = 1\nopen = \"null\"\n")
        .expect("the folder takes files");
    let reload = Reload::of(&Setup::read(&config).expect("a switch"));
    let packet_ins = Arc::new(PacketIns::default());
    let mut switch = Switch::new(vec![worker(&packet_ins)]);
    let control = Control::attach_all(switch.workers_mut()).expect("the workers are new");
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let path = folder.path().join("br0.mgmt");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| switch.run(Until::default(), &stop, |_| {}));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                served.tick();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Ends the worker also where an assertion fails.
        let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let service = Service::new(served.clone(), "br0", 0x2320, packet_ins);
            let listening = [Address::ListenUnix(path.clone())];
            let _agent = Agent::open(&listening, None, service).expect("the folder takes sockets");
            drive(&path)
        }));
        stop.store(true, Ordering::Relaxed);
        running.join().expect("the worker does not panic").expect("no port fails");
        driven.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
