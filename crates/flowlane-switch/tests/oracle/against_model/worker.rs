//! A worker with recording ports, through the public API of the switch.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use flowlane::classify::acl::{AclConfig, AclEngine, AclSearch};
use flowlane::classify::{LinearSearch, ReplicatedEngine, TupleSearch};
use flowlane::route::Prefix;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Rule, flow_syntax};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{
    CacheConfig, Clock, Egress, Lookup, MalformedPolicy, PortSlot, RunError, Until, Worker,
};
use flowlane_switch::packet::Frame;
use flowlane_switch::port::{Port, PortError, Received};
use flowlane_switch::ruleset;
use flowlane_switch::stage::route::{FibEngine, HopSpec, RouteMiss, RouteTable, RouteTableConfig};
use flowlane_switch::state::fdb::Fdb;

use crate::model::{CONTROLLER, Counters, Frames, Kind, Miss, Routes};
use crate::packets::Random;

/// The numbers of the switch's ports.
pub(super) const PORTS: [u32; 4] = [1, 2, 3, 4];

/// A sent frame with its arrival time, which identifies it: (time, port, bytes).
type Noted = (u64, u32, Vec<u8>);

/// Frames that a port is to receive: (time, bytes).
type Incoming = Arc<Mutex<VecDeque<(u64, Vec<u8>)>>>;

/// A port that receives the `incoming` frames and records those sent.
struct Recorder {
    number: u32,
    incoming: Incoming,
    sent: Arc<Mutex<Vec<Noted>>>,
}

impl Port for Recorder {
    fn receive(&mut self, frames: &mut flowlane_switch::packet::Frames) -> Result<Received, PortError> {
        let mut incoming = self.incoming.lock().unwrap();
        while !incoming.is_empty() {
            let Some(frame) = frames.next_frame() else { return Ok(Received::More) };
            let (time_ns, bytes) = incoming.pop_front().unwrap();
            frame.fill(&bytes);
            frame.time_ns = time_ns;
        }
        Ok(Received::Idle)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.sent.lock().unwrap().push((frame.time_ns, self.number, frame.bytes().to_vec()));
        Ok(true)
    }
}

/// Options that must not change results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    burst: usize,
    engine: Engine,
    caches: CacheConfig,
    /// The switch itself compares all variants on every packet.
    validate: bool,
}

#[derive(Clone, Copy, Debug)]
enum Engine {
    Linear,
    Tuple,
    Acl(AclEngine),
}

impl Options {
    /// Returns options: no caches, one packet at a time.
    pub(super) fn plain(r: &mut Random) -> Self {
        let caches = CacheConfig { exact_entries: 0, megaflows_max: 0, ..CacheConfig::default() };
        Self { burst: 1, engine: r.pick(&[Engine::Linear, Engine::Tuple]), caches, validate: false }
    }

    pub(super) fn random(r: &mut Random) -> Self {
        let acl = Engine::Acl(r.pick(&AclEngine::ALL));
        Self {
            burst: r.pick(&[1, 2, 32, 64]),
            engine: r.pick(&[Engine::Linear, Engine::Tuple, acl, acl]),
            caches: CacheConfig {
                exact_entries: r.pick(&[0, 2, 64]),
                exact_insert_inverse: r.pick(&[1, 2]),
                signature_entries: r.pick(&[0, 8, 64]),
                signature_insert_inverse: r.pick(&[1, 2]),
                adaptive: r.one_in(2),
                megaflows_max: r.pick(&[1, 20, 1000]),
                masks_max: r.pick(&[1, 5, 100]),
                ..CacheConfig::default()
            },
            validate: r.one_in(4),
        }
    }

    /// Returns these options with this burst size.
    pub(super) fn with_burst(self, burst: usize) -> Self {
        Self { burst, ..self }
    }

    pub(super) fn engine(&self) -> Box<dyn ReplicatedEngine> {
        match self.engine {
            Engine::Linear => Box::new(LinearSearch::new(10_000)),
            Engine::Tuple => Box::new(TupleSearch::new(10_000, 5)),
            Engine::Acl(engine) => Box::new(AclSearch::new(AclConfig::default().with_engine(engine))),
        }
    }
}

/// The switch under test.
pub(super) struct Switch {
    pub(super) worker: Worker,
    incoming: Vec<Incoming>,
    sent: Arc<Mutex<Vec<Noted>>>,
}

impl Switch {
    pub(super) fn new(kinds: &[Kind], options: Options) -> Self {
        let mut pipeline = Pipeline::new();
        for (number, kind) in (0..).zip(kinds) {
            let miss = match kind {
                Kind::Rules(Miss::Drop) => ruleset::Miss::Drop,
                Kind::Rules(Miss::Controller) => ruleset::Miss::Controller,
                Kind::Rules(Miss::Continue) => ruleset::Miss::Continue,
                Kind::Routes(routes) => {
                    pipeline.add_routes(number, table_of(number, routes));
                    continue;
                }
            };
            pipeline.add_table(number, "", options.engine(), miss);
        }
        let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
        let sent = Arc::<Mutex<Vec<Noted>>>::default();
        let recorder = |number| Recorder { number, incoming: Arc::default(), sent: Arc::clone(&sent) };
        let mut incoming = Vec::new();
        for number in PORTS {
            let port = recorder(number);
            incoming.push(Arc::clone(&port.incoming));
            egress.ports.add(PortSlot::new(PortNo(number), &format!("p{number}"), "", Box::new(port)));
        }
        egress.controller = Some(Box::new(recorder(CONTROLLER)));
        let lookup = Lookup::new(pipeline, options.caches);
        let mut worker = Worker::new(lookup, egress, options.burst, Clock::Frames);
        if options.validate {
            worker.validate();
        }
        Self { worker, incoming, sent }
    }

    pub(super) fn forward_malformed(&mut self, forward: bool) {
        self.worker.egress.faults.policy =
            if forward { MalformedPolicy::Forward } else { MalformedPolicy::Drop };
    }

    /// Adds a rule; returns whether the switch accepts it.
    pub(super) fn add(&mut self, rule: &Rule) -> bool {
        self.worker.lookup.pipeline.add_rule(rule.clone()).is_ok()
    }

    /// Switches packets, given with their ingress ports. Returns the frames sent for each, in order.
    ///
    /// # Errors
    /// If the switch itself finds that its variants differ.
    pub(super) fn run(&mut self, packets: &[(u32, &[u8])]) -> Result<Vec<Frames>, RunError> {
        let timed: Vec<_> = (0..).zip(packets).map(|(time, &(port, bytes))| (time, port, bytes)).collect();
        let mut out = vec![Vec::new(); packets.len()];
        for (time, port, bytes) in self.run_at(&timed)? {
            out[time as usize].push((port, bytes));
        }
        Ok(out)
    }

    /// Switches packets at given times in nanoseconds, which identify the frames sent.
    pub(super) fn run_at(&mut self, packets: &[(u64, u32, &[u8])]) -> Result<Vec<Noted>, RunError> {
        for &(time_ns, port, bytes) in packets {
            let place = PORTS.iter().position(|&p| p == port).expect("one of the ports");
            self.incoming[place].lock().unwrap().push_back((time_ns, bytes.to_vec()));
        }
        if !packets.is_empty() {
            let until = Until { packets: Some(packets.len() as u64), duration: None };
            self.worker.run(until, &AtomicBool::new(false), |_| {})?;
        }
        Ok(std::mem::take(&mut *self.sent.lock().unwrap()))
    }

    pub(super) fn counters(&mut self) -> Counters {
        self.worker.lookup.collect_counters();
        let mut tables = std::collections::BTreeMap::new();
        for (number, table) in self.worker.lookup.pipeline.tables() {
            let packets = table.rules().map(|(_, entry)| entry.packets).collect();
            tables.insert(number, (packets, table.missed));
        }
        for (number, table) in self.worker.lookup.pipeline.route_tables() {
            let packets = table.next_hops().iter().map(|hop| hop.packets).collect();
            tables.insert(number, (packets, table.missed));
        }
        let drops = self.worker.egress.drops;
        Counters {
            tables,
            malformed: self.worker.egress.faults.found.iter().sum(),
            by_rule: drops.by_rule,
            ttl_expired: drops.ttl_expired,
            no_port: drops.no_port,
        }
    }
}

fn table_of(number: u8, routes: &Routes) -> RouteTable {
    let hops = routes.hops.iter().map(|actions| (String::new(), HopSpec::Actions(actions.clone()))).collect();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for route in &routes.routes {
        match route.v6 {
            false => v4.push((Prefix::truncated(route.address as u32, route.len as u8), route.hop)),
            true => v6.push((Prefix::truncated(route.address, route.len as u8), route.hop)),
        }
    }
    let config = RouteTableConfig {
        number,
        miss: if routes.to_controller { RouteMiss::Controller } else { RouteMiss::Drop },
        routes_max: 100,
        memory_max: 128 << 20,
        engine: FibEngine::Compact,
        ..RouteTableConfig::default()
    };
    RouteTable::new(config, hops, &v4, &v6).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn print_rules(rules: &[Rule]) -> String {
    rules.iter().map(|rule| format!("{}\n", flow_syntax::print_rule(rule))).collect()
}
