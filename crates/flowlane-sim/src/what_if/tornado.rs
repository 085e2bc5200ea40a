//! Sensitivity: each number of the machine is halved and doubled, or switched, and compared with the unchanged
//! machine.
//!
//! Included are all choices that concern the comparison, and all numbers on which it may depend. Not varied are the
//! clock, the core's width, associativity, the numbers of cores, slices and channels, and the busy times of ports,
//! links and banks.

use serde::Serialize;

use crate::config::{
    Blocking, Buckets, Dispatch, Fill, KeyPlace, LockHold, MachineConfig, MissRegisters, Remote, Translation,
};

/// Numbers that are varied together: applies a function to each.
type Numbers = fn(&mut MachineConfig, &dyn Fn(u64) -> u64);
/// A setting with its name.
type Choice = (&'static str, fn(&mut MachineConfig));

/// The variation of a parameter.
enum Vary {
    /// Halved and doubled.
    Numbers(Numbers),
    /// Switched to other settings.
    Switch(&'static [Choice]),
}

/// All parameters: name and variation.
const PARAMETERS: [(&str, Vary); 32] = [
    (
        "shared cache's latency (llc.tag, data)",
        Vary::Numbers(|m, f| {
            (m.llc.tag_cycles, m.llc.data_cycles) = (f(m.llc.tag_cycles), f(m.llc.data_cycles));
        }),
    ),
    (
        "slice to accelerator (slice_cycles)",
        Vary::Numbers(|m, f| {
            m.accelerator.slice_cycles = f(m.accelerator.slice_cycles);
        }),
    ),
    ("shared cache's size (llc.slice_kib)", Vary::Numbers(|m, f| m.llc.slice_kib = f(m.llc.slice_kib))),
    (
        "memory's latency (dram)",
        Vary::Numbers(|m, f| {
            let d = &mut m.dram;
            (d.cas_ps, d.rcd_ps, d.rp_ps, d.controller_ps) =
                (f(d.cas_ps), f(d.rcd_ps), f(d.rp_ps), f(d.controller_ps));
        }),
    ),
    ("mesh hop", Vary::Numbers(|m, f| m.mesh.hop_cycles = f(m.mesh.hop_cycles))),
    (
        "accelerator's fixed cycles",
        Vary::Numbers(|m, f| {
            m.accelerator.fixed_cycles = f(m.accelerator.fixed_cycles);
            m.near_l2.fixed_cycles = f(m.near_l2.fixed_cycles);
        }),
    ),
    (
        "hash unit",
        Vary::Numbers(|m, f| {
            m.accelerator.hash_cycles = f(m.accelerator.hash_cycles);
            m.near_l2.hash_cycles = f(m.near_l2.hash_cycles);
        }),
    ),
    (
        "comparators",
        Vary::Numbers(|m, f| {
            m.accelerator.compare_cycles = f(m.accelerator.compare_cycles);
            m.near_l2.compare_cycles = f(m.near_l2.compare_cycles);
        }),
    ),
    (
        "queries in flight",
        Vary::Switch(&[
            ("1", |m| m.accelerator.in_flight_queries = 1),
            ("scoreboard", |m| m.accelerator.in_flight_queries = m.accelerator.scoreboard_queries),
        ]),
    ),
    (
        "scoreboard",
        Vary::Numbers(|m, f| {
            let a = &mut m.accelerator;
            a.scoreboard_queries = (f(a.scoreboard_queries.into()) as u32).max(a.in_flight_queries);
        }),
    ),
    (
        "metadata tables",
        Vary::Numbers(|m, f| {
            m.accelerator.metadata_tables = f(m.accelerator.metadata_tables.into()) as u32;
        }),
    ),
    (
        "dispatch",
        Vary::Switch(&[
            ("table", |m| m.accelerator.dispatch = Dispatch::Table),
            ("balanced", |m| m.accelerator.dispatch = Dispatch::Balanced),
            ("bucket", |m| m.accelerator.dispatch = Dispatch::Bucket),
        ]),
    ),
    (
        "data of other slices",
        Vary::Switch(&[
            ("ideal", |m| m.accelerator.remote = Remote::Ideal),
            ("mesh", |m| m.accelerator.remote = Remote::Mesh),
        ]),
    ),
    (
        "translation",
        Vary::Switch(&[
            ("ideal", |m| m.accelerator.translation = Translation::Ideal),
            ("tlb", |m| m.accelerator.translation = Translation::Tlb),
            ("core", |m| m.accelerator.translation = Translation::Core),
        ]),
    ),
    (
        "LOOKUP_B",
        Vary::Switch(&[
            ("serialise", |m| m.accelerator.blocking = Blocking::Serialise),
            ("load-like", |m| m.accelerator.blocking = Blocking::LoadLike),
        ]),
    ),
    (
        "key's place",
        Vary::Switch(&[
            ("llc", |m| m.accelerator.key = KeyPlace::Llc),
            ("core", |m| m.accelerator.key = KeyPlace::Core),
        ]),
    ),
    (
        "second bucket",
        Vary::Switch(&[
            ("together", |m| m.accelerator.buckets = Buckets::Together),
            ("in turn", |m| m.accelerator.buckets = Buckets::InTurn),
        ]),
    ),
    (
        "locks are held until",
        Vary::Switch(&[
            ("commit", |m| m.accelerator.lock_hold = LockHold::Commit),
            ("data", |m| m.accelerator.lock_hold = LockHold::Data),
        ]),
    ),
    (
        "packets ahead",
        Vary::Switch(&[
            ("none", |m| m.accelerator.packets_ahead = 0),
            ("1", |m| m.accelerator.packets_ahead = 1),
            ("2", |m| m.accelerator.packets_ahead = 2),
        ]),
    ),
    (
        "SNAPSHOT_READ's next try",
        Vary::Numbers(|m, f| m.accelerator.snapshot_retry_cycles = f(m.accelerator.snapshot_retry_cycles)),
    ),
    (
        "shared cache keeps",
        Vary::Switch(&[
            ("all that comes", |m| m.llc.fill = Fill::Allocate),
            ("what L2 evicts", |m| m.llc.fill = Fill::Victim),
        ]),
    ),
    (
        "miss registers of the shared cache",
        Vary::Switch(&[
            ("cache", |m| m.llc.miss_registers_per = MissRegisters::Cache),
            ("slice", |m| m.llc.miss_registers_per = MissRegisters::Slice),
            ("unlimited", |m| m.llc.miss_registers_per = MissRegisters::Unlimited),
        ]),
    ),
    ("base CPI", Vary::Numbers(|m, f| m.core.base_cpi_milli = f(m.core.base_cpi_milli))),
    ("scheduler", Vary::Numbers(|m, f| m.core.scheduler_entries = f(m.core.scheduler_entries.into()) as u32)),
    (
        "pages that the core knows (tlb_entries)",
        Vary::Numbers(|m, f| m.core.tlb_entries = f(m.core.tlb_entries.into()) as u32),
    ),
    (
        "page that the core does not know (tlb_miss)",
        Vary::Numbers(|m, f| m.core.tlb_miss_cycles = f(m.core.tlb_miss_cycles)),
    ),
    (
        "instructions of software lookups",
        Vary::Numbers(|m, f| {
            let s = &mut m.software;
            for count in [
                &mut s.scalar_instructions,
                &mut s.scalar_miss_saves_instructions,
                &mut s.bulk_instructions,
                &mut s.bulk_miss_saves_instructions,
                &mut s.vector_instructions,
                &mut s.vector_miss_saves_instructions,
            ] {
                *count = f((*count).into()) as u32;
            }
        }),
    ),
    ("reorder buffer", Vary::Numbers(|m, f| m.core.rob_entries = f(m.core.rob_entries.into()) as u32)),
    ("miss registers", Vary::Numbers(|m, f| m.core.miss_registers = f(m.core.miss_registers.into()) as u32)),
    ("misprediction", Vary::Numbers(|m, f| m.core.mispredict_cycles = f(m.core.mispredict_cycles))),
    ("second cache's size (l2.size_kib)", Vary::Numbers(|m, f| m.l2.size_kib = f(m.l2.size_kib))),
    ("way to the TCAM", Vary::Numbers(|m, f| m.tcam.attach_cycles = f(m.tcam.attach_cycles))),
];

/// A machine with one parameter varied.
#[derive(Clone, Debug)]
pub struct Variation {
    pub parameter: &'static str,
    /// The new setting.
    pub setting: String,
    pub machine: MachineConfig,
}

/// Returns every machine with one parameter halved, doubled or switched.
pub fn variations(machine: &MachineConfig) -> Vec<Variation> {
    let mut out = Vec::new();
    for (parameter, vary) in &PARAMETERS {
        let mut add = |setting: &str, changed: MachineConfig| {
            if changed != *machine && changed.check().is_ok() {
                out.push(Variation { parameter, setting: setting.to_owned(), machine: changed });
            }
        };
        match vary {
            Vary::Numbers(change) => {
                let half: &dyn Fn(u64) -> u64 = &|n| if n > 1 { n / 2 } else { n };
                for (setting, f) in [("half", half), ("double", &|n| n * 2)] {
                    let mut changed = machine.clone();
                    change(&mut changed, f);
                    add(setting, changed);
                }
            }
            Vary::Switch(settings) => {
                for (setting, change) in *settings {
                    let mut changed = machine.clone();
                    change(&mut changed);
                    add(setting, changed);
                }
            }
        }
    }
    out
}

/// The result of a parameter's setting.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    pub setting: String,
    /// The accelerator's cycles of a packet.
    pub cycles: f64,
    /// The accelerator's speedup over the software that is fastest on the unchanged machine; `None` if the comparison
    /// is not trusted.
    pub advantage: Option<f64>,
    /// A TCAM's cycles of a packet.
    pub tcam_cycles: f64,
}

/// A parameter with all its settings except the machine's own.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub parameter: &'static str,
    pub settings: Vec<Setting>,
    /// The range of cycles, including the unchanged machine.
    pub swing: f64,
}

/// Returns the bars, widest first; equal ones in the order of the list.
pub fn bars(base_cycles: f64, settings: Vec<(&'static str, Setting)>) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for (parameter, setting) in settings {
        match bars.iter_mut().find(|bar| bar.parameter == parameter) {
            Some(bar) => bar.settings.push(setting),
            None => bars.push(Bar { parameter, settings: vec![setting], swing: 0.0 }),
        }
    }
    for bar in &mut bars {
        let cycles = bar.settings.iter().map(|s| s.cycles);
        let [least, most] = cycles.fold([base_cycles; 2], |[least, most], c| [least.min(c), most.max(c)]);
        bar.swing = most - least;
    }
    bars.sort_by(|a, b| b.swing.total_cmp(&a.swing));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn every_parameter_changes_the_machine_and_every_variation_can_be() {
        for preset in Preset::ALL {
            let machine = preset.machine();
            let all = variations(&machine);
            for (parameter, _) in &PARAMETERS {
                let of = all.iter().filter(|v| v.parameter == *parameter);
                // The paper's core knows all pages, and twice zero is zero.
                let nothing = parameter.contains("tlb_miss") && machine.core.tlb_miss_cycles == 0;
                assert!(nothing || (1..=2).contains(&of.count()), "{preset}: {parameter}");
            }
            for (n, one) in all.iter().enumerate() {
                assert_ne!(one.machine, machine);
                let same = |other: &Variation| other.machine == one.machine;
                assert!(!all[n + 1..].iter().any(same), "{} {}", one.parameter, one.setting);
            }
        }
    }

    #[test]
    fn bars_are_sorted_by_what_they_move_and_the_base_counts() {
        let setting = |cycles| Setting { setting: String::new(), cycles, advantage: None, tcam_cycles: 1.0 };
        let of = |base, settings: &[(&'static str, f64)]| {
            bars(base, settings.iter().map(|(name, cycles)| (*name, setting(*cycles))).collect())
        };
        // A function of three numbers, 2a + b - c/2 at (10, 10, 10): halved and doubled.
        let f = |a: f64, b: f64, c: f64| 2.0 * a + b - c / 2.0;
        let base = f(10.0, 10.0, 10.0);
        let bars = of(
            base,
            &[
                ("c", f(10.0, 10.0, 5.0)),
                ("c", f(10.0, 10.0, 20.0)),
                ("a", f(5.0, 10.0, 10.0)),
                ("a", f(20.0, 10.0, 10.0)),
                ("b", f(10.0, 5.0, 10.0)),
                ("b", f(10.0, 20.0, 10.0)),
            ],
        );
        let swings: Vec<(&str, f64)> = bars.iter().map(|b| (b.parameter, b.swing)).collect();
        assert_eq!(swings, [("a", 30.0), ("b", 15.0), ("c", 7.5)]);
        // Both settings are on one side of the base, where the bar begins.
        assert_eq!(of(10.0, &[("x", 12.0), ("x", 14.0)])[0].swing, 4.0);
    }
}
