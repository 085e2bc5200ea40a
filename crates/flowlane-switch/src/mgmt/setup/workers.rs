//! Builds the workers of a switch: their own parts, and those that they share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::rule::{Action, Rule};
use flowlane_gpu::Device;

use super::ports::slot_of;
use super::stateful_stages::StageSetup;
use super::{Setup, SetupError, engine, gpu, limits, meter, port_failed};
use crate::datapath::Pipeline;
use crate::datapath::{CacheConfig, Egress, HeldPacket, Lookup, Worker};
use crate::mgmt::config::{
    ByName, Config, ConfigError, ConnectionSection, KeyPath, PortSection, Source, SpreadMode, TableEngine,
};
use crate::packet::{Spread, Steer};
use crate::ruleset::PortFlags;
use crate::stage::{Shard, ShardAwareRss, StageTable};
use crate::state::conntrack::{Connections, Limits, Secret};
use crate::state::fdb::Fdb;
use crate::state::router::{self, Link, Router};

/// Returns the number of workers of a configuration.
pub(super) fn number(config: &Config) -> usize {
    match config.switch.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(limits::WORKERS_MAX),
        workers => workers,
    }
}

/// Checks that all that is configured works with the number of workers.
pub(super) fn check(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let workers = number(config);
    if workers > 1
        && let Some(n) = config.table.iter().position(|table| table.engine == TableEngine::Gpu)
    {
        let message = format!("{workers} workers with a table on a device, which answers one");
        let at = KeyPath::section("table", n).key("engine");
        return Err(source.error(&at, message, "take workers = 1, or another engine"));
    }
    Ok(())
}

/// The table of connections, still without any.
pub(super) fn connections(config: &Config) -> Arc<Connections> {
    let ConnectionSection { connections_max, per_zone_max, .. } = &config.connections;
    let limits = Limits { connections: *connections_max, per_zone: *per_zone_max };
    let sessions = config.nat_table.iter().map(|nat| nat.sessions_max.saturating_add(nat.forward.len()));
    let sessions_max = sessions.fold(0, usize::saturating_add);
    // Ports that no one outside can foretell need more of a secret than the seed of the hashes.
    let secret = config.switch.seed.map_or_else(Secret::random, |seed| Secret::seeded(seed.into()));
    let mut connections = Connections::with_sessions(limits, sessions_max, secret);
    if let Some(shortest) = config.connections.fragment_min {
        connections.shortest_fragments = [shortest; 2];
    }
    connections.zones().replace(&config.connections.of_all_zones(), &config.connections.of_zones());
    Arc::new(connections)
}

fn tracks(action: &Action) -> bool {
    matches!(action, Action::ConnectionTracking(_)) || action.nested().iter().any(tracks)
}

impl Setup {
    pub(super) fn open_workers(mut self, random: u32, workers: usize) -> Result<Vec<Worker>, SetupError> {
        let (seed, pipelines) = self.prepare_pipelines(random, workers)?;
        self.open_ports(seed, pipelines)
    }

    /// Builds the tables of all workers, and opens no port. Returns the seed of the hashes, too.
    pub(super) fn prepare_pipelines(
        &mut self,
        random: u32,
        workers: usize,
    ) -> Result<(u32, Vec<Pipeline>), SetupError> {
        limits::room(&self.config, &self.source)?;
        let is_tracked = self.rules.iter().any(|rule| rule.actions.iter().any(tracks));
        if is_tracked || !self.config.nat_table.is_empty() {
            self.connections.commit_ahead();
        }
        let seed = self.config.switch.seed.unwrap_or(random);
        // Errors of the configuration are reported before those of the environment.
        let device =
            gpu::open(&self.config, &self.source).or_else(|lack| self.check().and(Err(lack.into())))?;
        let begun = Instant::now();
        let mut clock = || begun.elapsed().as_nanos() as u64;
        // A given seed asks for exactly repeatable runs.
        let clock = self.config.switch.seed.is_none().then_some(&mut clock as &mut engine::Clock<'_>);
        let rules = std::mem::take(&mut self.rules);
        let pipelines = self.pipelines(rules, seed, device.as_ref(), clock, workers)?;
        Ok((seed, pipelines))
    }

    /// Opens the ports, and builds the workers.
    pub(super) fn open_ports(&self, seed: u32, pipelines: Vec<Pipeline>) -> Result<Vec<Worker>, SetupError> {
        let egresses = self.egresses(seed, pipelines.len())?;
        // Tables and ports have taken memory: is there still enough for the caches?
        limits::room(&self.config, &self.source)?;
        Ok(pipelines
            .into_iter()
            .zip(egresses)
            .map(|(pipeline, egress)| self.worker(pipeline, egress, seed))
            .collect())
    }

    /// Builds a worker from its pipeline and its ports.
    fn worker(&self, pipeline: Pipeline, egress: Egress, seed: u32) -> Worker {
        let config = &self.config;
        let cache = CacheConfig { seed, ..config.cache };
        let mut worker = Worker::new(Lookup::new(pipeline, cache), egress, config.switch.burst, self.clock());
        if let Some(ByName(variant)) = config.switch.variant {
            let usable = worker.set_variant(variant);
            assert!(usable, "read() has checked that the variant can be used here");
        }
        worker.set_max_delay(Duration::from_micros(config.gpu.max_delay_us));
        worker.egress.faults.policy = config.switch.malformed;
        worker
    }

    /// The router's part, if ports have addresses.
    fn router(&self, seed: u32) -> Option<Arc<Router<HeldPacket>>> {
        let section = self.config.router.as_ref()?;
        Some(Arc::new(Router::new(router::Config {
            interfaces: self.interfaces.clone(),
            neighbours_max: section.neighbours_max,
            errors_per_s: section.errors_per_s,
            listens_only: section.kernel_table.is_some(),
            seed: seed.rotate_left(29),
        })))
    }

    /// Opens the ports, and builds the egress of each worker.
    fn egresses(&self, seed: u32, workers: usize) -> Result<Vec<Egress>, SetupError> {
        let config = &self.config;
        let macs = Fdb::new(config.macs.entries_max, config.macs.ageing_s, seed.rotate_left(7));
        let connections = &self.connections;
        let egress = |place: usize| -> Result<Egress, SetupError> {
            let mut egress = Egress::new(macs.share(), seed.rotate_left(13).wrapping_add(place as u32));
            egress.tunnels = self.tunnels(seed.rotate_left(23))?;
            egress.port_tunnels = self.port_tunnels()?;
            egress.connections = connections.clone();
            Ok(egress)
        };
        let mut egresses = (0..workers).map(egress).collect::<Result<Vec<_>, _>>()?;
        if let Some((first, others)) = egresses.split_first_mut() {
            first.router = self.router(seed);
            others.iter_mut().for_each(|other| other.share_state(first));
        }
        let has_vlans = self.interfaces.iter().any(|interface| matches!(interface.link, Link::Vlan(_)));
        for ((n, section), spec) in config.port.iter().enumerate().zip(&self.specs) {
            let at = KeyPath::section("port", n);
            let spread = |me| match spec.applies_rss() {
                true => self.spread(section, seed, me, workers),
                false => Ok(Spread::new(me, workers)),
            };
            let spreads = (0..workers).map(spread).collect::<Result<_, _>>()?;
            let queues = spec.open_spread(spreads).map_err(|e| port_failed(&e, &at, &self.source))?;
            for (egress, queue) in egresses.iter_mut().zip(queues) {
                let mut slot = slot_of(section, spec, queue);
                // Between the others frames of VLANs are switched.
                if has_vlans && !section.addresses.is_empty() {
                    slot.flags = PortFlags::NO_FLOOD;
                }
                if slot.port.needs_software_rss() {
                    slot.spread = Some(self.spread(section, seed, 0, workers)?);
                }
                egress.ports.add(slot);
            }
        }
        if let Some(spec) = &self.controller {
            let queues = spec.open_all(workers);
            let queues = queues.map_err(|e| port_failed(&e, &KeyPath::of("controller"), &self.source))?;
            egresses.iter_mut().zip(queues).for_each(|(egress, queue)| egress.controller = Some(queue));
        }
        if config.switch.adds_ports {
            egresses.iter_mut().for_each(|egress| egress.ports.stay());
        }
        for section in &config.meter {
            let meter = Arc::new(meter(section));
            egresses.iter_mut().for_each(|egress| egress.add_meter(section.number, meter.clone()));
        }
        Ok(egresses)
    }

    /// Returns a worker's share of a port's frames.
    fn spread(
        &self,
        port: &PortSection,
        seed: u32,
        me: usize,
        workers: usize,
    ) -> Result<Spread, ConfigError> {
        Ok(Spread::new(me, workers).steered(self.steering(port, seed, workers)?))
    }

    /// Returns the stage that determines the worker of a port's frames, if that is better than a hash of the flow.
    fn steering(
        &self,
        port: &PortSection,
        seed: u32,
        workers: usize,
    ) -> Result<Option<Box<dyn Steer>>, ConfigError> {
        // Inner headers are seen only after decapsulation.
        let is_asked_for = self.config.switch.spread == SpreadMode::Auto && !port.decapsulate && workers > 1;
        let sharded = self.stateful_stages.iter().filter(|stage| is_asked_for && stage.weight() > 0);
        let stage = sharded.max_by_key(|stage| stage.weight());
        let Some(stage) = stage else { return Ok(None) };
        let stage = self.stage(stage, seed, Shard::none_of(workers))?;
        Ok(Some(Box::new(ShardAwareRss::new(stage, port.number))))
    }

    /// Builds the tables with these rules for each worker.
    fn pipelines(
        &self,
        rules: Vec<Rule>,
        seed: u32,
        device: Option<&Device>,
        clock: Option<&mut engine::Clock<'_>>,
        workers: usize,
    ) -> Result<Vec<Pipeline>, SetupError> {
        let shard = |me| Shard { me, of: workers };
        let mut first = self.pipeline(rules, seed, device, clock, shard(0))?;
        let mut others = if workers > 1 { first.fork(workers - 1) } else { Vec::new() };
        for (me, pipeline) in (1..).zip(&mut others) {
            for stage in &self.stateful_stages {
                pipeline.set_stage(stage.number(), self.stage(stage, seed, shard(me))?);
            }
        }
        others.insert(0, first);
        Ok(others)
    }

    /// Builds a worker's shard of a stateful stage.
    pub(super) fn stage(
        &self,
        stage: &StageSetup,
        seed: u32,
        shard: Shard,
    ) -> Result<StageTable, ConfigError> {
        stage.open((seed.rotate_left(29), shard), &self.connections, &self.source)
    }
}
