//! Queueing disciplines (qdiscs) of the kernel on the interfaces of ports (tc(8)), as Open vSwitch sets them up: the discipline has the handle
//! `1:`, the class that queues share is `1:fffe`, and queue N is the class `1:N+1`.
//!
//! Packet sockets give frames the priority of their queue's class (`port/interface.rs`), which the discipline then finds. Frames that a port writes
//! to a TAP pass no discipline of the interface: there, a discipline is for what the system sends to the switch.

mod encode;
mod kernel;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use crate::mgmt::config::{QosKind, QosSection, QueueSection};
use crate::packet::QUEUES_MAX;
use crate::port::device;

pub(crate) use kernel::QueueCounters;

/// Bits a second of an interface whose link has no known speed, as in Open vSwitch 3.1 (ovs-vswitchd.conf.db(5)).
const SPEED_DEFAULT_BPS: u64 = 10_000_000_000;
/// The speed that older kernels report for every TAP, which has no link.
const TAP_SPEED_MBPS: u32 = 10;
/// The driver of TAPs.
const TAP_DRIVER: &str = "tun";
/// Bytes of an interface whose MTU is not known.
const MTU_DEFAULT: u32 = 1500;
/// The least bytes a second of a queue of `htb`, as in Open vSwitch.
const HTB_RATE_MIN: u64 = 1500;
/// Bytes of headers beyond the MTU that pass at once at least.
const HEADERS_BYTES: u64 = 64;

/// The end of the message where the process lacks permission.
pub(crate) const NO_PERMISSION: &str = "it needs the capability CAP_NET_ADMIN";

/// A class: a queue, or the one that queues share, in bytes and bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Class {
    min_rate: u64,
    max_rate: u64,
    burst: u64,
    priority: u32,
}

/// A discipline whose settings are known.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Discipline {
    kind: QosKind,
    mtu: u32,
    /// The class that queues share, and the queues by number, if it has such.
    root: Option<Class>,
    queues: BTreeMap<u32, Class>,
    /// Its settings, by their names in Open vSwitch's database.
    settings: Vec<(&'static str, u32)>,
}

impl Discipline {
    /// The discipline of an interface with this MTU and speed.
    fn of(qos: &QosSection, mtu: u32, speed_bps: u64) -> Self {
        let or = |value: Option<u32>, default: u32| value.filter(|value| *value > 0).unwrap_or(default);
        let kind = qos.kind;
        let settings = match kind {
            QosKind::Htb | QosKind::Hfsc | QosKind::Noop => Vec::new(),
            QosKind::Sfq => vec![("quantum", or(qos.quantum_bytes, mtu)), ("perturb", or(qos.perturb_s, 10))],
            QosKind::Codel => vec![
                ("limit", or(qos.limit_packets, 10_240)),
                ("interval", or(qos.interval_us, 100_000)),
                ("target", or(qos.target_us, 5000)),
            ],
            QosKind::FqCodel => vec![
                ("limit", or(qos.limit_packets, 10_240)),
                ("quantum", or(qos.quantum_bytes, 1514)),
                ("flows", or(qos.flows, 1024)),
                ("interval", or(qos.interval_us, 1_000_000)),
                ("target", or(qos.target_us, 5000)),
            ],
            QosKind::Netem => vec![
                ("limit", or(qos.limit_packets, 1000)),
                ("loss", or(qos.loss_percent, 0)),
                ("latency", or(qos.latency_us, 0)),
            ],
        };
        let asked = qos.max_rate_bps.filter(|rate| *rate > 0).unwrap_or(speed_bps);
        let max_rate = (asked / 8).max(1);
        let root = Class { min_rate: max_rate, max_rate, burst: mtu.into(), priority: 0 };
        let mut queues = BTreeMap::new();
        if kind.has_queues() {
            // The queue of packets that choose none is always there.
            let all = [QueueSection::default()].into_iter().chain(qos.queue.iter().cloned());
            let there = all.filter(|queue| queue.number < QUEUES_MAX);
            queues = there.map(|queue| (queue.number, Class::of(kind, &queue, max_rate, mtu))).collect();
        }
        Self { kind, mtu, root: kind.has_queues().then_some(root), queues, settings }
    }

    /// A setting by its name.
    fn setting(&self, name: &str) -> u32 {
        self.settings.iter().find(|(own, _)| *own == name).map_or(0, |(_, value)| *value)
    }

    /// Describes it as `ovs-appctl qos/show` does, with the counters of its queues.
    fn show(&self, interface: &str, counters: &BTreeMap<u32, QueueCounters>) -> String {
        let mut out = format!("QoS: {interface} {}\n", self.kind.name());
        if let Some(root) = &self.root {
            _ = writeln!(out, "max-rate: {}", root.max_rate * 8);
        }
        self.settings.iter().for_each(|(name, value)| _ = writeln!(out, "{name}: {value}"));
        for (number, queue) in &self.queues {
            let title = if *number == 0 { "Default".to_owned() } else { format!("Queue {number}") };
            _ = writeln!(out, "\n{title}:");
            if self.kind == QosKind::Htb {
                _ = writeln!(out, "  burst: {}", queue.burst * 8);
            }
            if queue.priority > 0 {
                _ = writeln!(out, "  priority: {}", queue.priority);
            }
            _ = writeln!(out, "  min-rate: {}", queue.min_rate * 8);
            if queue.max_rate != queue.min_rate {
                _ = writeln!(out, "  max-rate: {}", queue.max_rate * 8);
            }
            let QueueCounters { packets, bytes, dropped } = counters.get(number).copied().unwrap_or_default();
            _ = writeln!(out, "  tx_packets: {packets}\n  tx_bytes: {bytes}\n  tx_errors: {dropped}");
        }
        out
    }
}

impl Class {
    /// A queue of a discipline whose queues share a rate.
    fn of(kind: QosKind, queue: &QueueSection, shared: u64, mtu: u32) -> Self {
        let least = if kind == QosKind::Htb { HTB_RATE_MIN } else { 1 };
        let min_rate = (queue.min_rate_bps.unwrap_or(0) / 8).max(least).min(shared);
        let max_rate = queue.max_rate_bps.map_or(shared, |rate| rate / 8).max(min_rate).min(shared);
        let burst = (queue.burst_bits.unwrap_or(0) / 8).max(u64::from(mtu) + HEADERS_BYTES);
        let priority = if kind == QosKind::Htb { queue.priority.unwrap_or(0) } else { 0 };
        Self { min_rate, max_rate, burst, priority }
    }
}

/// The discipline that an interface has.
#[derive(Debug)]
pub(crate) struct Installed {
    interface: String,
    index: i32,
    discipline: Discipline,
    since: Instant,
}

impl Installed {
    /// Gives an interface a discipline in place of the one that it had, which may be `before`.
    ///
    /// # Errors
    /// Why the system does not do that; the interface then has the system's own discipline.
    pub(crate) fn set_up(interface: &str, qos: &QosSection, before: Option<&Self>) -> Result<Self, String> {
        let failed = |problem: String| format!("QoS type {} is not set up: {problem}", qos.kind.name());
        let missing = || failed("there is no such interface".to_owned());
        let index = device::index(interface).ok_or_else(missing)?;
        let speed_bps = speed_bps(interface);
        let discipline = Discipline::of(qos, device::mtu(interface).unwrap_or(MTU_DEFAULT), speed_bps);
        let before = before.filter(|before| before.index == index);
        if qos.kind != QosKind::Noop {
            let before = before.map(|before| &before.discipline);
            kernel::set_up(index, &discipline, before).map_err(|error| failed(reason(&error, qos.kind)))?;
        } else if before.is_some_and(|before| before.discipline.kind != QosKind::Noop) {
            // An administrator may have put another one in its place already.
            kernel::remove_left(index, false).map_err(|error| failed(reason(&error, qos.kind)))?;
        }
        let since = before.filter(|_| qos.kind.has_queues()).map_or_else(Instant::now, |before| before.since);
        Ok(Self { interface: interface.to_owned(), index, discipline, since })
    }

    /// Takes the discipline from its interface.
    pub(crate) fn remove(&self) {
        // An interface that has gone has none any more; an administrator may have removed it.
        if self.discipline.kind != QosKind::Noop && device::index(&self.interface) == Some(self.index) {
            _ = kernel::remove(self.index);
        }
    }

    /// Returns whether the interface is another one of its name, which has no discipline.
    pub(crate) fn is_gone(&self) -> bool {
        device::index(&self.interface).is_some_and(|index| index != self.index)
    }

    /// The numbers of its queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = u32> {
        self.discipline.queues.keys().copied()
    }

    /// The counters of its queues; none where the system does not say.
    pub(crate) fn counters(&self) -> BTreeMap<u32, QueueCounters> {
        match self.discipline.queues.is_empty() {
            true => BTreeMap::new(),
            false => kernel::counters(self.index).unwrap_or_default(),
        }
    }

    /// When its queues were made.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Describes it as `ovs-appctl qos/show` does; `None`: it has not been set up here.
    pub(crate) fn show(&self) -> Option<String> {
        (self.discipline.kind != QosKind::Noop)
            .then(|| self.discipline.show(&self.interface, &self.counters()))
    }
}

/// Removes a discipline that another process has left on an interface: one of the handle and the kinds that are set up here, and
/// (`is_certain`) only one with the class that queues share, which those of administrators hardly have.
pub(crate) fn remove_left(interface: &str, is_certain: bool) {
    if let Some(index) = device::index(interface) {
        // Nothing is lost where that fails: the port works all the same.
        _ = kernel::remove_left(index, is_certain);
    }
}

/// The speed of an interface's link, in bits a second.
fn speed_bps(interface: &str) -> u64 {
    let is_nominal = |mbps: &u32| {
        let is_tap = || device::driver(interface).is_some_and(|driver| driver.name == TAP_DRIVER);
        *mbps == TAP_SPEED_MBPS && is_tap()
    };
    let known = device::link_mode(interface).and_then(|mode| mode.speed_mbps);
    let mbps = known.filter(|mbps| !is_nominal(mbps));
    mbps.map_or(SPEED_DEFAULT_BPS, |mbps| u64::from(mbps) * 1_000_000)
}

/// Says why the system does not set up a discipline.
fn reason(error: &std::io::Error, kind: QosKind) -> String {
    let name = encode::kernel_name(kind);
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!("the kernel has no discipline `{name}`; load the module sch_{name}"),
        Some(libc::EPERM) => NO_PERMISSION.to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
