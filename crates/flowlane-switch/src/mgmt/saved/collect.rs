//! Copies the state of a switch, that runs or has stopped.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flowlane::rule::flow_syntax::{print_group, print_rule};

use super::blocks::Writer;
use super::record::{Address, Header, Record, RuleRecord};
use crate::control::{Control, SavedControl};
use crate::datapath::{Clock, Worker};

/// Entries that are copied at a time: a worker's packets wait for some 100 µs meanwhile.
const SLICE: u32 = 4096;

/// The workers of a switch.
pub trait Workers {
    /// Returns their number.
    fn count(&self) -> usize;

    /// Calls a function with a worker, on its thread if it runs. Returns nothing if that is not possible any more.
    fn call<T: Send + 'static>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T>;
}

impl Workers for &mut [Worker] {
    fn count(&self) -> usize {
        self.len()
    }

    fn call<T: Send + 'static>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        Some(work(&mut self[worker]))
    }
}

/// Returns the milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Describes the ports and stages of a switch: the parts that state refers to by number.
pub(super) fn shape_of(worker: &Worker) -> String {
    let slots = worker.egress.ports.iter();
    let mut parts: Vec<String> = slots.map(|slot| format!("port {}: {}", slot.number.0, slot.spec)).collect();
    for (number, stage) in worker.lookup.pipeline.stages() {
        parts.push(format!("table {number}: {}", stage.stage.kind()));
    }
    parts.join("; ")
}

fn stopped() -> io::Error {
    io::Error::other("the switch has stopped")
}

/// Writes the header, and the state that packets make: connections, with the sessions of translation, and learned addresses. Copies it in slices, between which
/// packets go on.
///
/// # Errors
/// As the output's, or if the switch stops.
pub fn save_packets_state(workers: &mut impl Workers, out: &mut Writer<impl Write>) -> io::Result<()> {
    let count = workers.count() as u32;
    let first = workers.call(0, move |worker| {
        let header = Header {
            clock_ns: worker.now_ns(),
            unix_ms: unix_ms(),
            is_frame_clock: worker.clock() == Clock::Frames,
            seed: worker.lookup.seed() as u32,
            workers: count,
            shape: shape_of(worker),
        };
        (header, worker.egress.connections.clone(), worker.egress.macs.share())
    });
    let (header, connections, macs) = first.ok_or_else(stopped)?;
    let now_ms = header.clock_ns / 1_000_000;
    out.put(&Record::Header(header))?;
    let (mut from, mut slice) = (Some(0), Vec::new());
    while let Some(at) = from {
        from = connections.save(at, SLICE, now_ms, |connection| slice.push(connection.clone()));
        slice.drain(..).try_for_each(|connection| out.put(&Record::Connection(connection)))?;
    }
    let mut from = Some(0);
    while let Some(at) = from {
        let (expected, next) = connections.save_expectations(at, SLICE as usize, now_ms);
        expected.into_iter().try_for_each(|one| out.put(&Record::Expectation(one)))?;
        from = next;
    }
    let mut from = Some(0);
    while let Some(at) = from {
        let (addresses, next) = macs.entries_from(at, SLICE as usize);
        for (mac, vlan, port, seen_s) in addresses {
            out.put(&Record::Address(Address { mac, vlan, port: port.0, seen_s }))?;
        }
        from = next;
    }
    Ok(())
}

/// Writes the rules and all that they may name.
///
/// # Errors
/// As the output's.
pub fn save_rules(control: &Control, out: &mut Writer<impl Write>) -> io::Result<()> {
    let SavedControl { meters, options, groups, ports, rules } = control.save();
    meters.into_iter().try_for_each(|meter| out.put(&Record::Meter(meter)))?;
    for (number, option) in options {
        out.put(&Record::Option { number: number as u8, option })?;
    }
    groups.iter().try_for_each(|group| out.put(&Record::Group(print_group(group))))?;
    ports.into_iter().try_for_each(|(port, flags)| out.put(&Record::Port { port, flags }))?;
    for saved in rules {
        out.put(&Record::Rule(RuleRecord {
            idle_timeout_s: saved.idle_timeout_s,
            hard_timeout_s: saved.hard_timeout_s,
            flags: saved.flags,
            importance: saved.importance,
            created_ns: saved.created_ns,
            begun_ns: saved.begun_ns,
            text: print_rule(&saved.rule),
        }))?;
    }
    Ok(())
}

/// Writes routes of a table, each as text.
///
/// # Errors
/// As the output's.
pub fn save_routes(
    table: u8,
    mut routes: impl Iterator<Item = String>,
    out: &mut Writer<impl Write>,
) -> io::Result<()> {
    routes.try_for_each(|text| out.put(&Record::Route { table, text }))
}
