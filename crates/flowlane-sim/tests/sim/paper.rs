//! The evaluation: the worth and the machine of each row.

use flowlane_sim::config::Preset;
use flowlane_sim::paper::{Machines, Report, Row, Stated, Status};
use flowlane_sim::report::Effort;

/// All rows except definitions and inputs: place, beginning of the description, machine, status. A predicted row follows
/// from no number that was chosen to meet it.
const WORTH: [(&str, &str, &str, Status); 22] = [
    ("Table 2", "MSHR", "paper", Status::Assumption),
    ("Figure 8b", "32 bits, 64 flows", "", Status::Assumption),
    ("Figure 3", "classification, least", "skylake-sp", Status::Assumption),
    ("Figure 3", "classification, most", "skylake-sp", Status::Predicted),
    ("Figure 3", "most over least", "skylake-sp", Status::Assumption),
    ("Figure 4", "one hash function", "skylake-sp", Status::Assumption),
    ("Figure 4", "cuckoo hashing", "skylake-sp", Status::Predicted),
    ("Figure 9", "blocking, table in LLC", "paper", Status::Calibrated),
    // With all sizes it is predicted.
    ("Figure 9", "blocking, table larger", "paper", Status::NotAttempted),
    ("6.1", "non-blocking slower", "paper", Status::Assumption),
    ("6.1", "blocking, fewer than 10", "paper", Status::Predicted),
    ("Figure 10", "computing", "paper", Status::Calibrated),
    ("Figure 10", "data in LLC", "paper", Status::Calibrated),
    ("Figure 10", "lock", "paper", Status::Calibrated),
    ("Figure 10", "data in memory", "paper", Status::Predicted),
    ("Figure 11", "non-blocking", "paper", Status::Predicted),
    ("6.2", "blocking", "paper", Status::Predicted),
    ("6.2", "non-blocking", "paper", Status::Predicted),
    ("6.2", "TCAM or SRAM-TCAM", "paper", Status::Predicted),
    ("Figure 12a", "throughput lost beside software", "skylake-sp", Status::Assumption),
    ("Figure 12a", "throughput lost beside HALO", "skylake-sp", Status::Assumption),
    ("Figure 13", "functions", "paper", Status::Assumption),
];

fn find<'a>(report: &'a Report, place: &str, what: &str) -> &'a Row {
    let found = report.rows.iter().find(|row| row.place == place && row.what.starts_with(what));
    found.unwrap_or_else(|| panic!("{place}: {what}"))
}

#[test]
fn every_row_has_its_worth_and_its_machine() {
    let effort = Effort { quick: true, threads: 2, seed: 1 };
    let report = Report::simulate(&Machines::paper(), &[], effort, &|_, _| {}).unwrap();
    for (place, what, machine, status) in WORTH {
        let row = find(&report, place, what);
        assert_eq!((row.machine.as_str(), row.status), (machine, status), "{place}: {what}");
    }
    let rest =
        |row: &&Row| !WORTH.iter().any(|(place, what, ..)| row.place == *place && row.what.starts_with(what));
    for row in report.rows.iter().filter(rest) {
        let put_in = row.status == Status::Identity || row.what.starts_with("arithmetic");
        assert!(put_in && ["Table 1", "Table 2", "Table 4", "6.4"].contains(&row.place), "{row:?}");
    }
    for row in &report.rows {
        // Calibrated and assumed rows state the choice.
        let chosen = matches!(row.status, Status::Calibrated | Status::Assumption);
        assert_eq!(!row.why.is_empty(), chosen, "{row:?}");
        // Statements without numbers are not scored.
        let words = matches!(row.stated, Stated::Words { .. });
        assert_eq!(row.error.is_some(), row.simulated.is_some() && !words, "{row:?}");
    }
    for (place, what) in [("Figure 4", "cuckoo hashing"), ("6.2", "blocking")] {
        assert!(matches!(find(&report, place, what).stated, Stated::Words { .. }), "{place}");
    }
    // A range has two ends: 13 % faster is not less than 5.3 % slower.
    let row = find(&report, "6.1", "non-blocking slower");
    let [least, most] = row.simulated.unwrap();
    assert!(least < -5.3 && most < 5.3 && row.error.unwrap() < -1.0, "{row:?}");
    let few = find(&report, "6.1", "blocking, fewer than 10");
    assert!(few.error.unwrap() > 0.0 && few.note.contains("contradict"), "{few:?}");
    let csv = report.csv();
    for named in report.machines.all() {
        assert!(csv.contains(&format!("machine,{},{}\n", named.name, named.hash)), "{csv}");
    }
}

#[test]
fn the_papers_measurements_use_the_preset_of_its_xeon() {
    let (gem5, xeon) = (Preset::Paper.machine(), Preset::SkylakeSp.machine());
    let machines = Machines::paper();
    assert_eq!((&machines.simulated.machine, &machines.measured.machine), (&gem5, &xeon));
    // 3.1: "a 24-core Intel Xeon Platinum 8160 CPU running at 2.1GHz", which has 33 MiB of LLC.
    assert_eq!((xeon.core.cores, xeon.core.clock_mhz, xeon.llc.bytes()), (24, 2100, 33 << 20));
    // Its core was not calibrated on results of gem5.
    assert_ne!(xeon.core.base_cpi_milli, gem5.core.base_cpi_milli);
    for line in Preset::SkylakeSp.text().lines().filter(|line| !line.starts_with('#')) {
        assert!(!line.contains("[C]"), "{line}");
    }
    let line = Preset::Paper.text().lines().find(|line| line.starts_with("miss_registers")).unwrap();
    assert!(line.contains("[O]") && line.contains("with the LLC"), "{line}");
    assert_eq!(Machines::only("mine", &gem5).all().len(), 1);
}
