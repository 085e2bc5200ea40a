//! Flow-mods that come together are answered as if each had come alone.

use flowlane::generate::Random;

use super::*;

/// Changes of which some are refused: no such table, an overlap, a table that is full.
fn changes(random: &mut Random) -> Vec<String> {
    let mut line = |number: u64| {
        let (table, port) = (random.below(2), random.below(12));
        let priority = 1 + random.below(3);
        match random.below(20) {
            0 => format!("add table=99,cookie={number},udp actions=drop"),
            1 => format!(
                "add table={table},cookie={number},check_overlap,priority=2,udp,tp_dst={port} actions=drop"
            ),
            2 => format!("delete_strict table={table},priority={priority},udp,tp_dst={port}"),
            3 => format!("modify table={table},udp,tp_dst={port} actions=output:1"),
            4 => format!("add table={table},cookie={number},udp actions=group:77"),
            _ => format!(
                "add table={table},cookie={number},priority={priority},udp,tp_dst={port} actions=drop"
            ),
        }
    };
    (1..=400).map(&mut line).collect()
}

/// The errors, by the places of the changes that are refused, and the rules afterwards.
type Outcome = (Vec<(usize, ErrorKind)>, Vec<(u8, u64, u64)>);

fn outcome(version: Version, changes: &[String], together: bool) -> Outcome {
    let mut outcome = Outcome::default();
    with_switch(|path, _| {
        let mut controller = Controller::connect(path, version);
        let mut errors = Vec::new();
        let (first, mut all) = (controller.xid + 1, Vec::new());
        for (at, line) in changes.iter().enumerate() {
            if together {
                controller.xid += 1;
                let mods = read_changes(line, "change", &ReadOptions::default()).unwrap();
                let (format, flow_mod) = (FlowFormat::Nxm, mods.into_iter().next().unwrap());
                let message = Message::FlowMod(FlowModMessage { format, flow_mod, buffer_id: None });
                all.extend(controller.codec.encode(controller.xid, &message).unwrap());
            } else {
                errors.extend(controller.change(line).map(|kind| (at, kind)));
            }
        }
        if together {
            controller.stream.write_all(&all).unwrap();
            controller.send(&Message::BarrierRequest);
            loop {
                match controller.next_with_xid() {
                    (Message::Error(error), xid) => errors.push(((xid - first) as usize, error.kind)),
                    (Message::BarrierReply, _) => break,
                    other => panic!("{other:?}"),
                }
            }
        }
        let mut flows = controller.flows();
        flows.sort_unstable();
        outcome = (errors, flows);
    });
    outcome
}

#[test]
fn flow_mods_that_come_together_are_answered_one_by_one() {
    let (mut refused, mut kept) = (0, 0);
    for seed in 0..3 {
        for version in Version::ALL {
            let changes = changes(&mut Random::new(seed));
            let [alone, together] = [false, true].map(|together| outcome(version, &changes, together));
            assert_eq!(together, alone, "seed {seed}, {}", version.name());
            refused += alone.0.len();
            kept += alone.1.len();
        }
    }
    assert!(refused > 300 && kept > 300, "{refused} refused, {kept} rules");
}
