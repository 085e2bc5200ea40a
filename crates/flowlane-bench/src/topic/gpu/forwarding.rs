//! The whole switch with a table on the device, next to the same switch without one: figures 6(c) and 11.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, AsyncEngine, ReplicatedEngine, TupleSearch};
use flowlane::generate::{Profile, RuleConfig, generate_rules};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Match, Priority, Rule};
use flowlane_gpu::{Changes, Device, GpuConfig, GpuSearch, Method, SessionConfig};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Until, Worker};
use flowlane_switch::port::{GenConfig, GenPort, GenProfile, NullPort, PortError};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

use super::{BATCH, failed};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::options::BenchError;

/// The paper's rule sets ACL, IPF and IPC, each with the most similar profile.
const SETS: [(Profile, usize, &str); 3] =
    [(Profile::Acl, 1834, "ACL 1834"), (Profile::Fw, 914, "IPF 914"), (Profile::Ipc, 2180, "IPC 2180")];

/// The scale of the measurement.
pub(super) struct Scale {
    /// Packets of a pass of figure 6(c), which takes a second if the CPU finds rules without caches.
    pub(super) packets: usize,
    /// Packets of a pass of figure 11.
    pub(super) packets_forwarded: usize,
    /// The number of distinct packets.
    pub(super) flows: usize,
    pub(super) rules_max: usize,
    pub(super) delays_us: Vec<u64>,
}

impl Scale {
    pub(super) fn of(quick: bool) -> Self {
        match quick {
            true => {
                Self { packets: 128, packets_forwarded: 128, flows: 64, rules_max: 20, delays_us: vec![100] }
            }
            false => Self {
                packets: 1 << 16,
                packets_forwarded: 1 << 20,
                flows: 10_000,
                rules_max: usize::MAX,
                delays_us: vec![50, 100, 200, 500, 1000, 2000],
            },
        }
    }

    /// Returns the number of comparisons of both figures.
    pub(super) fn comparisons(&self, device: bool) -> usize {
        SETS.len() + if device { self.delays_us.len() } else { 0 }
    }
}

/// The location of the rules.
enum Table {
    Now(Box<dyn ReplicatedEngine>),
    Later(Box<dyn AsyncEngine>),
}

/// Creates an empty table on the device.
fn on_device(device: &Device, method: Option<Method>) -> Result<Table, BenchError> {
    let session = SessionConfig { batch_max: BATCH, ..SessionConfig::default() };
    let config = GpuConfig { method, session, list: AclConfig::default(), changes: Changes::default() };
    let table = GpuSearch::build(device.clone(), config, [], &[]).map_err(failed)?;
    Ok(Table::Later(Box::new(table)))
}

/// Rules, and frames that hit them.
struct Traffic {
    rules: Vec<(Priority, Match)>,
    source: GenConfig,
}

impl Traffic {
    fn new(profile: Profile, rules: usize, scale: &Scale) -> Self {
        let count = rules.min(scale.rules_max);
        let config = GenConfig {
            flows: scale.flows,
            size: Some(60),
            rules: count,
            ..GenConfig::new(GenProfile::Rules(profile))
        };
        let rules = RuleConfig { seed: config.seed, ..RuleConfig::new(profile, count) };
        let rules = generate_rules(&rules).expect("a profile that generates");
        Self { rules: rules.into_iter().map(|rule| (rule.priority, rule.matches)).collect(), source: config }
    }

    /// Builds a switch from a generator of these frames to a port that drops.
    fn switch(&self, table: Table, caches: bool) -> Result<Worker, BenchError> {
        let mut pipeline = Pipeline::new();
        match table {
            Table::Now(classifier) => pipeline.add_table(0, "", classifier, Miss::Drop),
            Table::Later(deferred) => pipeline.add_deferred_table(0, "", deferred, Miss::Drop),
        }
        for (priority, matches) in &self.rules {
            let rule = Rule::new(matches.clone(), vec![Action::Output(PortNo(2))]);
            let rule = Rule { priority: *priority, ..rule };
            pipeline.add_rule(rule).expect("the table has room");
        }
        if let Some(deferred) = pipeline.deferred_mut(0) {
            // Otherwise the CPU would answer and its time would be reported as the device's.
            deferred.prepare().map_err(|error| BenchError::Gpu(error.to_string()))?;
        }
        let cache = CacheConfig {
            megaflows_max: if caches { 1 << 20 } else { 0 },
            idle_ns: u64::MAX,
            seed: 12345,
            ..CacheConfig::default()
        };
        let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
        let source = GenPort::new(self.source.clone()).map_err(port_failed)?;
        egress.ports.add(PortSlot::new(PortNo(1), "source", "", Box::new(source)));
        egress.ports.add(PortSlot::new(PortNo(2), "sink", "", Box::new(NullPort)));
        Ok(Worker::new(Lookup::new(pipeline, cache), egress, 64, Clock::Wall))
    }
}

/// Returns a contender that forwards a number of packets.
fn body(name: String, mut worker: Worker, packets: usize) -> Contender<'static> {
    let run = move || {
        let until = Until { packets: Some(packets as u64), duration: None };
        worker.run(until, &AtomicBool::new(false), |_| {}).expect("neither port fails");
        let trouble = worker.lookup.pipeline.deferred_tables().find_map(|(_, deferred)| deferred.trouble());
        assert_eq!(trouble, None, "the device answers");
    };
    Contender::new(name, run).warm()
}

fn port_failed(error: PortError) -> BenchError {
    BenchError::Gpu(error.to_string())
}

/// Figure 6(c): the switch with rules on the CPU and on the device, with and without caches.
pub(super) fn by_engine(
    meter: &mut Meter<'_>,
    device: Option<&Device>,
    scale: &Scale,
) -> Result<Figure, BenchError> {
    let about = "The whole switch on one core, from a generator of 64-byte frames (10,000 flows, uniform) to a port that drops. `tuple` \
        and `acl` find rules on the CPU, the others on the device. With caches, only packets that no cache knows come to the \
        rules. Profiles like the paper's sets, as large. The paper's GPU-accelerated Open vSwitch reaches 22 to 40 Gbit/s, 33 to 60 \
        million packets a second, with Bloom search and eight cores, 8.5 to 20 times the classic one.";
    let mut figure = Figure::new("figure-6c", "Figure 6(c): the whole switch", about)
        .over("rules", SETS.map(|(_, _, name)| name.to_owned()))
        .bars();
    for (place, (profile, rules, name)) in SETS.into_iter().enumerate() {
        let traffic = Traffic::new(profile, rules, scale);
        let mut contenders = Vec::new();
        let mut add = |name: &str, table: Table, caches: bool| {
            let worker = traffic.switch(table, caches)?;
            let with = if caches { ", caches" } else { "" };
            contenders.push(body(format!("{name}{with}"), worker, scale.packets));
            Ok::<(), BenchError>(())
        };
        for caches in [false, true] {
            add("tuple", Table::Now(Box::new(TupleSearch::new(rules, 7))), caches)?;
            add("acl", Table::Now(Box::new(AclSearch::new(AclConfig::default()))), caches)?;
        }
        if let Some(device) = device {
            for method in Method::ALL {
                add(method.name(), on_device(device, Some(method))?, false)?;
            }
            add("gpu", on_device(device, None)?, true)?;
        }
        for measured in meter.compare(&format!("the switch, {name}"), scale.packets as u64, contenders) {
            figure.add(&measured.name, place, &measured);
        }
    }
    Ok(figure)
}

/// Figure 11: forwarding by the delay that packets may have.
pub(super) fn by_delay(meter: &mut Meter<'_>, device: &Device, scale: &Scale) -> Result<Figure, BenchError> {
    let about = "The whole switch on one core without caches, every packet to the device: 64-byte frames, 1834 rules of a profile like the paper's \
        ACL set, by the longest that a packet waits for its batch to be sent. The paper forwards at most 27 Gbit/s, 40 million a \
        second, with several ports and cores.";
    let mut figure = Figure::new("figure-11-forwarding", "Figure 11: forwarding by delay", about)
        .over("microseconds", scale.delays_us.iter().map(u64::to_string));
    let (profile, rules, _) = SETS[0];
    let traffic = Traffic::new(profile, rules, scale);
    for (place, delay) in scale.delays_us.iter().enumerate() {
        let mut contenders = Vec::new();
        for method in Method::ALL {
            let table = on_device(device, Some(method))?;
            let mut worker = traffic.switch(table, false)?;
            worker.set_max_delay(Duration::from_micros(*delay));
            contenders.push(body(method.name().to_owned(), worker, scale.packets_forwarded));
        }
        for measured in
            meter.compare(&format!("forwarding, {delay} µs"), scale.packets_forwarded as u64, contenders)
        {
            figure.add(&measured.name, place, &measured);
        }
    }
    Ok(figure)
}
