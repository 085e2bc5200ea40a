//! Bottlenecks: each part of the machine is made ideal, one after the other, and the part with the largest gain is
//! named. Observations of it (utilisation, share of the time) are evidence, not the reason.

use serde::Serialize;

use super::run::Outcome;
use crate::config::{Approach, Blocking, Dispatch, MachineConfig, MissRegisters, Translation, Walks};

/// A part of the machine that can be made ideal.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub name: &'static str,
    /// The part in plain words.
    pub plain: &'static str,
    /// The part of which this is a realisable setting.
    pub of: Option<&'static str>,
    ideal: fn(&mut MachineConfig),
    concerns: fn(Approach) -> bool,
    evidence: fn(&Outcome) -> String,
}

fn software(approach: Approach) -> bool {
    use Approach::{Avx512, Bulk, Scalar, Software, TupleSearch};
    matches!(approach, Software | Scalar | Bulk | Avx512 | TupleSearch)
}

fn halo(approach: Approach) -> bool {
    matches!(approach, Approach::HaloBlocking | Approach::HaloNonBlocking)
}

fn tables(approach: Approach) -> bool {
    software(approach) || halo(approach) || approach == Approach::NearL2
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn compute(outcome: &Outcome) -> String {
    format!(
        "{:.0} instructions a packet, {} of the time",
        outcome.instructions,
        percent(outcome.share("compute"))
    )
}

fn accelerators(outcome: &Outcome) -> String {
    let busy = &outcome.busy;
    format!(
        "the busiest works {} of the time, all of them {} in the mean; {:.1} queries a packet",
        percent(busy.accelerator),
        percent(busy.accelerators_mean),
        outcome.queries
    )
}

fn device(outcome: &Outcome) -> String {
    format!("the core waits {} of the time for answers", percent(outcome.share("device")))
}

/// Queries that an ideal accelerator processes at once.
const MANY: u32 = 1024;

pub const PARTS: [Part; 20] = [
    Part {
        name: "accelerators",
        plain: "queries wait until an accelerator has time for them",
        of: None,
        ideal: |m| {
            let a = &mut m.accelerator;
            (a.in_flight_queries, a.scoreboard_queries, a.dispatch) = (MANY, MANY, Dispatch::Bucket);
        },
        concerns: halo,
        evidence: accelerators,
    },
    Part {
        name: "in_flight_queries as many as the scoreboard has",
        plain: "an accelerator works on one query after the other",
        of: Some("accelerators"),
        ideal: |m| m.accelerator.in_flight_queries = m.accelerator.scoreboard_queries,
        concerns: halo,
        evidence: accelerators,
    },
    Part {
        name: "dispatch = \"bucket\"",
        plain: "all queries to a table go to one accelerator",
        of: Some("accelerators"),
        ideal: |m| m.accelerator.dispatch = Dispatch::Bucket,
        concerns: halo,
        evidence: accelerators,
    },
    Part {
        name: "accelerator steps",
        plain: "queue, metadata, hash, comparison and commit of a query take their time",
        of: None,
        ideal: |m| {
            let a = &mut m.accelerator;
            (a.fixed_cycles, a.hash_cycles, a.compare_cycles) = (0, 0, 0);
            (a.metadata_cycles, a.boundary_cycles) = (0, 0);
        },
        concerns: halo,
        evidence: device,
    },
    Part {
        name: "LOOKUP_B",
        plain: "nothing behind a blocking lookup begins before its answer is there",
        of: None,
        ideal: |m| m.accelerator.blocking = Blocking::LoadLike,
        concerns: |a| a == Approach::HaloBlocking,
        evidence: device,
    },
    Part {
        name: "translation",
        plain: "accelerators wait for addresses",
        of: None,
        ideal: |m| m.accelerator.translation = Translation::Ideal,
        concerns: halo,
        evidence: |o| format!("{} walks of its page table", o.counters.tlb_misses),
    },
    Part {
        name: "metadata caches",
        plain: "accelerators fetch what says where a table is",
        of: None,
        ideal: |m| m.accelerator.metadata_tables = MANY,
        concerns: halo,
        evidence: |o| {
            let (hits, misses) = (o.counters.metadata_hits, o.counters.metadata_misses);
            format!("{} of metadata were not there", percent(misses as f64 / (hits + misses).max(1) as f64))
        },
    },
    Part {
        name: "shared cache",
        plain: "data come from the shared cache's slices",
        of: None,
        ideal: |m| {
            (m.llc.tag_cycles, m.llc.data_cycles, m.llc.busy_cycles) = (0, 0, 0);
            m.accelerator.slice_cycles = 0;
        },
        concerns: tables,
        evidence: |o| {
            let (slice, waits) = (percent(o.busy.slice), percent(o.share("LLC")));
            format!(
                "the busiest slice is busy {slice} of the time, the core waits {waits} for data from there"
            )
        },
    },
    Part {
        name: "mesh",
        plain: "messages cross the mesh",
        of: None,
        ideal: |m| {
            (m.mesh.hop_cycles, m.mesh.link_busy_cycles, m.accelerator.distributor_cycles) = (0, 0, 0);
        },
        concerns: tables,
        evidence: |o| format!("the busiest link is busy {} of the time", percent(o.busy.link)),
    },
    Part {
        name: "memory",
        plain: "data come from memory",
        of: None,
        ideal: |m| {
            let d = &mut m.dram;
            (d.cas_ps, d.rcd_ps, d.rp_ps, d.burst_ps, d.controller_ps) = (0, 0, 0, 0, 0);
        },
        concerns: tables,
        evidence: |o| {
            let (bus, waits) = (percent(o.busy.memory_bus), percent(o.share("memory")));
            format!("the busiest bus is busy {bus} of the time, the core waits {waits} for data from there")
        },
    },
    Part {
        name: "private caches",
        plain: "data come from the core's second cache",
        of: None,
        ideal: |m| m.l2.latency_cycles = m.l1.latency_cycles,
        concerns: |a| software(a) || a == Approach::NearL2,
        evidence: |o| match o.approach {
            Approach::NearL2 => {
                format!("the engine, which works {} of the time, reads it", percent(o.busy.near_l2))
            }
            _ => format!("the core waits {} of the time for data from there", percent(o.share("L2"))),
        },
    },
    Part {
        name: "window",
        plain: "the core's window, or its scheduler, is full",
        of: None,
        ideal: |m| {
            let c = &mut m.core;
            (c.rob_entries, c.scheduler_entries, c.load_queue_entries, c.store_queue_entries) =
                (4096, 4096, 4096, 4096);
        },
        concerns: tables,
        evidence: |o| format!("{:.0} instructions a packet", o.instructions),
    },
    Part {
        name: "scheduler_entries as many as the window has",
        plain: "the core's scheduler is full of what waits for data",
        of: Some("window"),
        ideal: |m| m.core.scheduler_entries = m.core.rob_entries,
        concerns: tables,
        evidence: |o| format!("{:.0} instructions a packet", o.instructions),
    },
    Part {
        name: "core's translation",
        plain: "the core does not know the pages that it reads",
        of: None,
        ideal: |m| (m.core.tlb_miss_cycles, m.core.walks) = (0, Walks::Free),
        concerns: tables,
        evidence: |o| {
            let loads = o.loads.iter().sum::<f64>();
            format!("{loads:.1} loads of tables a packet, {} page walks in all", o.counters.page_walks)
        },
    },
    Part {
        name: "miss registers",
        plain: "the core may wait for no more lines at once",
        of: None,
        ideal: |m| {
            (m.core.miss_registers, m.llc.miss_registers_per) = (256, MissRegisters::Unlimited);
        },
        concerns: software,
        evidence: |o| format!("{:.1} lines a packet from beyond L2", o.loads[2] + o.loads[3]),
    },
    Part {
        name: "instructions",
        plain: "the core has much to compute",
        of: None,
        ideal: |m| (m.core.base_cpi_milli, m.core.alu_per_cycle, m.core.width) = (1, 32, 32),
        concerns: |_| true,
        evidence: compute,
    },
    Part {
        name: "branches",
        plain: "branches go another way than predicted",
        of: None,
        ideal: |m| m.core.mispredict_cycles = 0,
        concerns: tables,
        evidence: |o| format!("{:.2} wrong predictions a packet", o.mispredicted),
    },
    Part {
        name: "order of lookups",
        plain: "a lookup's result is used before the next one begins",
        of: None,
        ideal: |m| m.software.lookups_overlap = true,
        concerns: |a| a == Approach::Software,
        evidence: compute,
    },
    Part {
        name: "engine beside L2",
        plain: "queries wait for the engine, and its steps take their time",
        of: None,
        ideal: |m| {
            let n = &mut m.near_l2;
            (n.in_flight_queries, n.attach_cycles, n.fixed_cycles) = (MANY, 0, 0);
            (n.hash_cycles, n.compare_cycles) = (0, 0);
        },
        concerns: |a| a == Approach::NearL2,
        evidence: |o| {
            let (busy, waits) = (percent(o.busy.near_l2), percent(o.share("device")));
            format!("it works {busy} of the time, the core waits {waits} for answers")
        },
    },
    Part {
        name: "way to the device",
        plain: "the device is outside of the core",
        of: None,
        ideal: |m| m.tcam.attach_cycles = 0,
        concerns: |a| matches!(a, Approach::Tcam | Approach::SramTcam),
        evidence: device,
    },
];

/// Returns the parts that concern an approach, each with the machine in which it is ideal.
pub fn parts_of(approach: Approach, machine: &MachineConfig) -> Vec<(&'static Part, MachineConfig)> {
    let concerned = PARTS.iter().filter(|part| (part.concerns)(approach));
    let ideal = concerned.map(|part| {
        let mut machine = machine.clone();
        (part.ideal)(&mut machine);
        (part, machine)
    });
    ideal.filter(|(_, ideal)| ideal != machine).collect()
}

/// The gain of making a part ideal.
#[derive(Clone, Debug, Serialize)]
pub struct Relief {
    pub part: &'static str,
    /// The part of which it is a realisable setting.
    pub of: Option<&'static str>,
    /// The cycles of a packet with the ideal part.
    pub cycles: f64,
    /// The speedup.
    pub times: f64,
    /// Observations without the ideal part.
    pub evidence: String,
}

/// The bottleneck of an approach.
#[derive(Clone, Debug, Serialize)]
pub struct Bottleneck {
    pub approach: Approach,
    /// The cycles of a packet.
    pub cycles: f64,
    /// The part with the largest gain; `None` if no gain exceeds a twentieth.
    pub part: Option<&'static str>,
    /// A description.
    pub sentence: String,
    /// All parts, largest gain first.
    pub reliefs: Vec<Relief>,
}

/// The smallest speedup that indicates a bottleneck.
const ENOUGH: f64 = 1.05;

impl Bottleneck {
    /// Finds the bottleneck from the cycles of an approach, as configured and with each part ideal.
    pub fn of(outcome: &Outcome, ideal: &[(&'static Part, f64)]) -> Self {
        let relief = |(part, cycles): &(&'static Part, f64)| Relief {
            part: part.name,
            of: part.of,
            cycles: *cycles,
            times: outcome.cycles / cycles.max(1e-9),
            evidence: (part.evidence)(outcome),
        };
        let mut reliefs: Vec<Relief> = ideal.iter().map(relief).collect();
        reliefs.sort_by(|a, b| b.times.total_cmp(&a.times));
        let most = reliefs.iter().find(|relief| relief.of.is_none());
        let named = most.filter(|relief| relief.times >= ENOUGH);
        let part = named.map(|relief| relief.part);
        let sentence = match (named, most) {
            (Some(relief), _) => sentence(outcome, relief, &reliefs),
            (None, Some(relief)) => format!(
                "no single part: even {} made ideal gives only {:.0} %",
                relief.part,
                100.0 * (relief.times - 1.0)
            ),
            (None, None) => "nothing of the machine concerns it".to_owned(),
        };
        Self { approach: outcome.approach, cycles: outcome.cycles, part, sentence, reliefs }
    }
}

fn sentence(outcome: &Outcome, relief: &Relief, all: &[Relief]) -> String {
    let part = PARTS.iter().find(|part| part.name == relief.part).expect("reliefs are of parts");
    let mut text = format!(
        "{}: {} ({}). Were that ideal, a packet would take {:.0} cycles instead of {:.0}",
        part.name, part.plain, relief.evidence, relief.cycles, outcome.cycles
    );
    let settings: Vec<String> = all
        .iter()
        .filter(|other| other.of == Some(part.name) && other.times >= ENOUGH)
        .map(|other| format!("{} alone {:.0}", other.part, other.cycles))
        .collect();
    if !settings.is_empty() {
        text.push_str(&format!("; with {}", settings.join(", with ")));
    }
    let next =
        all.iter().find(|other| other.of.is_none() && other.part != part.name && other.times >= ENOUGH);
    if let Some(next) = next {
        text.push_str(&format!(". Next: {} ({:.0} cycles)", next.part, next.cycles));
    }
    text
}
