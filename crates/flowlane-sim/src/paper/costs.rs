//! Tables 1, 2 and 4.

use std::rc::Rc;

use super::{Row, Stated};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::machine::cost::{ACCELERATOR, SRAM_AREA, SRAM_POWER, TCAM, break_even_bytes, sram_tcam};
use crate::report::{Chart, Effort, Series};
use crate::run::{run, tables_of};

fn exact(value: f64) -> Stated {
    Stated::Exact { value }
}

pub(super) fn table_1(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let mut config = effort.run(machine);
    (config.run.lookups, config.run.warm_up_lookups) = (500, 100);
    let tables = Rc::new(tables_of(&config));
    let software = run(&config, Approach::Software, &tables)?;
    let own = run(&config, Approach::Scalar, &tables)?;
    let s = &machine.software;
    let percent = |permille: u32| f64::from(permille) / 10.0;
    let row = |what: &str, value, simulated| Row::identity("Table 1", what, exact(value)).is(simulated);
    let rows = vec![
        row("instructions of a lookup", 210.0, software.instructions_per_lookup)
            .note(format!("this project's scalar lookup has {:.0}", own.instructions_per_lookup)),
        row("loads (%)", 36.2, percent(s.loads_permille)),
        row("stores (%)", 11.8, percent(s.stores_permille)).note("36.2 and 11.8 are 48.0; the text has 48.1"),
        Row::not_attempted("Table 1", "arithmetic (%)", exact(21.0))
            .note("instructions other than loads and stores are one kind here"),
    ];
    Ok((rows, Vec::new()))
}

pub(super) fn table_2(machine: &MachineConfig) -> (Vec<Row>, Vec<Chart>) {
    let m = machine;
    let llc_mib = (u64::from(m.llc.slices) * m.llc.slice_kib) >> 10;
    let numbers = [
        ("cores", 16.0, m.core.cores as f64),
        ("clock (MHz)", 2100.0, m.core.clock_mhz as f64),
        ("L1D (KiB)", 32.0, m.l1.size_kib as f64),
        ("L1D ways", 8.0, m.l1.ways as f64),
        ("L2 (KiB)", 1024.0, m.l2.size_kib as f64),
        ("L2 ways", 16.0, m.l2.ways as f64),
        ("LLC (MiB)", 32.0, llc_mib as f64),
        ("LLC ways", 16.0, m.llc.ways as f64),
        ("load queue", 128.0, f64::from(m.core.load_queue_entries)),
        ("store queue", 128.0, f64::from(m.core.store_queue_entries)),
        ("ROB", 192.0, f64::from(m.core.rob_entries)),
    ];
    let row = |what: &str, value, ours| Row::identity("Table 2", what, exact(value)).is(ours);
    let mut rows: Vec<Row> =
        numbers.into_iter().map(|(what, value, ours): (&str, f64, f64)| row(what, value, ours)).collect();
    let misses = row("MSHR", 20.0, f64::from(m.llc.miss_registers));
    rows.push(misses.assumption(
        "the text lists them with the LLC: here for all slices together, and each core has as many of its own",
    ));
    (rows, Vec::new())
}

pub(super) fn table_4() -> (Vec<Row>, Vec<Chart>) {
    let mut rows = Vec::new();
    for cost in TCAM {
        let name = format!("TCAM of {:.0} KB", cost.capacity_bytes / 1000.0);
        let ours = crate::machine::cost::tcam(cost.capacity_bytes, false).expect("a point of the table");
        for (what, stated, value) in [
            ("area (tiles)", cost.area_tiles, ours.area_tiles),
            ("static power (mW)", cost.static_mw, ours.static_mw),
            ("energy of a query (nJ)", cost.query_nj, ours.query_nj),
        ] {
            rows.push(Row::identity("Table 4", format!("{name}: {what}"), exact(stated)).is(value));
        }
    }
    rows.push(
        Row::identity("6.4", "energy of a query, TCAM of 1 MB over HALO", Stated::UpTo { value: 48.2 })
            .is(TCAM[3].query_nj / ACCELERATOR.query_nj)
            .note(format!(
                "of queries alone; below {:.0} KB a TCAM's query takes less than HALO's. With the power of doing nothing, at \
                 10 million queries a second: {:.0} nJ and {:.1} nJ",
                break_even_bytes() / 1000.0,
                TCAM[3].whole_query_nj(1e7),
                ACCELERATOR.whole_query_nj(1e7)
            )),
    );
    let sram = sram_tcam(1e6, false).expect("a point of the table");
    rows.push(
        Row::identity("6.4", "SRAM-TCAM, power less (%)", exact(45.0))
            .is(100.0 * (1.0 - sram.static_mw / TCAM[3].static_mw))
            .note(format!("put in as {SRAM_POWER} of the power and {SRAM_AREA} of the area")),
    );
    let capacities: Vec<f64> =
        (0..=12).map(|n| 1e3 * 10f64.powi(n / 4) * [1.0, 1.778, 3.162, 5.623][n as usize % 4]).collect();
    let of = |energy: &dyn Fn(f64) -> Option<f64>| capacities.iter().map(|c| energy(*c)).collect();
    let costs = |c: f64| crate::machine::cost::tcam(c.min(1e6), false).ok();
    let series = vec![
        Series { name: "TCAM".into(), values: of(&|c| costs(c).map(|c| c.query_nj)) },
        Series { name: "SRAM-TCAM".into(), values: of(&|c| costs(c).map(|c| c.query_nj * SRAM_POWER)) },
        Series { name: "HALO".into(), values: of(&|_| Some(ACCELERATOR.query_nj)) },
    ];
    let about = "Between the table's points the logarithm is linear in the capacity's.";
    let chart = Chart::new("table-4", "Table 4: energy of a query", about)
        .over("capacity (KB)", capacities.iter().map(|c| format!("{:.1}", c / 1000.0)))
        .curves("nJ a query", series);
    (rows, vec![chart])
}
