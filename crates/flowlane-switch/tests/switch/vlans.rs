//! VLANs of ports and groups, as configurations have them: what a trace says, and reloads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowlane::rule::action::PortNo;
use flowlane_switch::datapath::{Switch, Trace, Tracing, Until};
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::ControlServer;
use flowlane_switch::mgmt::setup::{Reload, Setup};
use tempfile::TempDir;

/// A folder with a configuration, and a switch made of it.
struct Running {
    _folder: TempDir,
    config: PathBuf,
    served: ControlServer,
    switch: Switch,
}

impl Running {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("switch.toml");
        std::fs::write(&config, text).unwrap();
        let setup = Setup::read(&config).unwrap_or_else(|error| panic!("{error}\n{text}"));
        setup.check().unwrap();
        let reload = Reload::of(&setup);
        let (switch, control) = setup.open_controlled(7).unwrap();
        let served = ControlServer::new(control, reload, Arc::default());
        Self { _folder: folder, config, served, switch }
    }

    fn reload(&self, text: &str) -> Result<(usize, usize, usize), String> {
        reload(&self.served, &self.config, text)
    }

    fn trace(&mut self, port: u32, frame: &[u8]) -> Trace {
        match self.switch.workers_mut()[0].trace(PortNo(port), frame).unwrap() {
            Tracing::Ended(trace) => trace,
            Tracing::On { .. } => panic!("there is one worker"),
        }
    }

    fn addresses(&mut self) -> Vec<(u64, u16, u32)> {
        let entries = self.switch.workers_mut()[0].egress.macs.entries();
        entries.into_iter().map(|(mac, vid, port, _)| (mac, vid, port.0)).collect()
    }
}

/// Reloads another text; returns the numbers of rules that are new, of groups and of ports with changes.
fn reload(served: &ControlServer, config: &Path, text: &str) -> Result<(usize, usize, usize), String> {
    std::fs::write(config, text).unwrap();
    let report = served.reload(None).map_err(|error| error.message)?;
    Ok((report.added + report.modified, report.groups, report.ports))
}

/// Ports 1 to 4 with these settings, and one table.
fn ports(settings: [&str; 4], more: &str) -> String {
    let port = |(n, settings): (usize, &str)| {
        format!("[[port]]\nnumber = {n}\nname = \"p{n}\"\nopen = \"null\"\n{settings}\n")
    };
    let ports: String = (1..).zip(settings).map(port).collect();
    format!("{ports}{more}\n")
}

const NORMAL: &str = "[[table]]\nnumber = 0\nrules = [\"actions=normal\"]";

fn frame(to: u8, from: u8, tags: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    frame.extend(tags);
    frame.extend([0x88, 0xb6]);
    frame.resize(frame.len() + 46, 0);
    frame
}

#[test]
fn a_trace_says_in_which_vlan_a_frame_is_and_how_its_header_changes() {
    let settings = ["tag = 10", "trunks = [10, 20]", "vlan_mode = \"native-untagged\"\ntag = 10", "tag = 20"];
    let mut running = Running::new(&ports(settings, NORMAL));
    let text = |trace: &Trace| {
        let steps = trace.steps.iter().filter(|step| step.place == "normal");
        steps.map(|step| format!("{}: {}", step.what, step.why)).collect::<Vec<_>>()
    };
    let trace = running.trace(1, &frame(2, 1, &[]));
    let flood = "its destination is a group, or is not known";
    assert_eq!(
        text(&trace),
        [
            "in VLAN 10: port 1 is access 10".to_owned(),
            format!(
                "sent through port 2 p2: {flood}; port 2 is trunk 10,20: sent with a header of VLAN 10, which is added"
            ),
            format!(
                "sent through port 3 p3: {flood}; port 3 is native-untagged 10, trunk 1-4095: sent without a header, as received"
            ),
            "not sent through port 4 p4: port 4 is access 20".to_owned(),
        ]
    );
    assert!(
        trace.sent[0].frame.starts_with("0200000000020200000000018100000a88b6"),
        "{}",
        trace.sent[0].frame
    );
    assert!(trace.sent[1].frame.starts_with("02000000000202000000000188b6"));
    let refused = running.trace(1, &frame(2, 1, &[0x81, 0, 0, 10]));
    assert_eq!(text(&refused), ["dropped: port 1 is access 10, and the frame is of VLAN 10"]);
    let tagged = running.trace(2, &frame(2, 1, &[0x81, 0, 0, 20]));
    assert_eq!(
        text(&tagged)[3],
        format!("sent through port 4 p4: {flood}; port 4 is access 20: sent without the header of its VLAN")
    );
    // Nothing has been learned by that. Then station 1 is seen at port 4, in VLAN 20.
    assert_eq!(running.addresses(), []);
    running.switch.workers_mut()[0].inject(3, &[&frame(9, 1, &[])]).unwrap();
    let known = running.trace(2, &frame(1, 2, &[0x81, 0, 0, 20]));
    assert_eq!(text(&known).len(), 2);
    assert!(text(&known)[1].starts_with("sent through port 4 p4: its destination was learned there"));
    assert_eq!(running.trace(2, &frame(1, 2, &[0x81, 0, 0, 10])).sent.len(), 2);
    let report = Report::of(&mut running.switch.workers_mut()[0]);
    let vlans: Vec<&str> = report.ports.iter().map(|port| port.vlan.as_str()).collect();
    assert_eq!(vlans, ["access 10", "trunk 10,20", "native-untagged 10, trunk 1-4095", "access 20"]);
}

#[test]
fn flood_and_output_know_no_vlans() {
    let rules =
        "[[table]]\nnumber = 0\nrules = [\"in_port=1,actions=flood\", \"in_port=2,actions=output:4\"]";
    let mut running = Running::new(&ports(["tag = 10", "tag = 20", "trunks = [30]", ""], rules));
    let received = frame(2, 1, &[0x81, 0, 0, 77]);
    for (port, sent) in [(1, vec![2, 3, 4]), (2, vec![4])] {
        let trace = running.trace(port, &received);
        assert_eq!(trace.sent.iter().filter_map(|sent| sent.port).collect::<Vec<_>>(), sent);
        assert!(trace.sent.iter().all(|sent| sent.frame.contains("8100004d88b6")));
    }
}

#[test]
fn a_reload_moves_ports_to_other_vlans_and_forgets_their_addresses() {
    let first = ports(["tag = 10", "tag = 10", "trunks = [10, 20]", ""], NORMAL);
    let mut running = Running::new(&first);
    let worker = &mut running.switch.workers_mut()[0];
    worker.inject(0, &[&frame(9, 1, &[])]).unwrap();
    worker.inject(1, &[&frame(9, 2, &[])]).unwrap();
    worker.inject(2, &[&frame(9, 3, &[0x81, 0, 0, 10]), &frame(9, 3, &[0x81, 0, 0, 20])]).unwrap();
    let station = |n: u64| 0x0200_0000_0000 + n;
    let mut all = running.addresses();
    all.sort_unstable();
    assert_eq!(all, [(station(1), 10, 1), (station(2), 10, 2), (station(3), 10, 3), (station(3), 20, 3)]);
    assert_eq!(running.reload(&first).unwrap(), (0, 0, 0));
    let second = ports(["tag = 10", "tag = 20", "trunks = [20]", ""], NORMAL);
    assert_eq!(running.reload(&second).unwrap(), (0, 0, 2));
    // Workers take the settings between two bursts.
    running.switch.workers_mut()[0].inject(0, &[&frame(9, 1, &[])]).unwrap();
    let mut all = running.addresses();
    all.sort_unstable();
    assert_eq!(all, [(station(1), 10, 1), (station(3), 20, 3)]);
    assert_eq!(running.trace(2, &frame(3, 2, &[])).sent.len(), 1);
    assert_eq!(Report::of(&mut running.switch.workers_mut()[0]).drops.not_in_vlan, 0);
    running.switch.workers_mut()[0].inject(0, &[&frame(9, 1, &[0x81, 0, 0, 10])]).unwrap();
    assert_eq!(Report::of(&mut running.switch.workers_mut()[0]).drops.not_in_vlan, 1);
    // Without any settings, nothing is left of them.
    assert_eq!(running.reload(&ports([""; 4], NORMAL)).unwrap(), (0, 0, 3));
    let trace = running.trace(1, &frame(8, 1, &[]));
    assert_eq!((trace.sent.len(), trace.steps.iter().filter(|s| s.what.contains("VLAN")).count()), (1, 1));
    running.switch.workers_mut()[0].inject(0, &[&frame(9, 1, &[])]).unwrap();
    assert_eq!(running.trace(1, &frame(8, 1, &[])).sent.len(), 3);
    // Others need workers that run.
    let renamed = second.replace("\"p2\"", "\"other\"");
    assert!(running.reload(&renamed).unwrap_err().contains("the switch does not run"));
    let wrong = ports(["tag = 5000", "", "", ""], NORMAL);
    assert!(running.reload(&wrong).unwrap_err().contains("5000 is no VLAN"));
}

fn groups(groups: &str, rules: &str) -> String {
    ports([""; 4], &format!("[groups]\ngroups = [{groups}]\n[[table]]\nnumber = 0\nrules = [{rules}]"))
}

#[test]
fn groups_of_a_configuration_are_there_from_the_start_and_change_with_its_rules() {
    let first = groups(
        r#""group_id=1,type=all,bucket=output:p2,bucket=group:2", "group_id=2,type=indirect,bucket=output:3""#,
        r#""in_port=1,actions=group:1", "in_port=2,actions=group:2""#,
    );
    let mut running = Running::new(&first);
    let sent = |running: &mut Running, port: u32| -> Vec<u32> {
        let place = port as usize - 1;
        let worker = &mut running.switch.workers_mut()[0];
        worker.inject(place, &[&frame(9, 1, &[])]).unwrap();
        running.trace(port, &frame(9, 1, &[])).sent.iter().filter_map(|sent| sent.port).collect()
    };
    assert_eq!((sent(&mut running, 1), sent(&mut running, 2)), (vec![2, 3], vec![3]));
    let report = Report::of(&mut running.switch.workers_mut()[0]);
    let counted: Vec<_> = report.groups.iter().map(|g| (g.number, g.kind.as_str(), g.packets)).collect();
    assert_eq!(counted, [(1, "all", 1), (2, "indirect", 2)]);
    let bucket = &report.groups[0].buckets[1];
    assert_eq!((bucket.number, bucket.actions.as_str(), bucket.packets), (1, "group:2", 1));
    assert_eq!(running.reload(&first).unwrap(), (0, 0, 0));
    // One group changes, one goes with its rule, and one comes with another.
    let second = groups(
        r#""group_id=3,type=all,bucket=output:4", "group_id=1,type=all,bucket=output:4""#,
        r#""in_port=1,actions=group:1", "in_port=3,actions=group:3""#,
    );
    assert_eq!(running.reload(&second).unwrap(), (1, 3, 0));
    assert_eq!(
        (sent(&mut running, 1), sent(&mut running, 2), sent(&mut running, 3)),
        (vec![4], vec![], vec![4])
    );
    let ids = |running: &Running| {
        running.served.control().ruleset().groups().iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&running), [1, 3]);
    // A mistake changes nothing.
    let wrong =
        groups(r#""group_id=1,type=all""#, r#""in_port=1,actions=group:1", "in_port=3,actions=group:3""#);
    assert!(running.reload(&wrong).unwrap_err().contains("there is no group 3"));
    assert_eq!(ids(&running), [1, 3]);
    assert_eq!(running.reload(&groups("", r#""actions=normal""#)).unwrap(), (1, 2, 0));
    assert!(ids(&running).is_empty());
}

/// Frames of a generator arrive at port 1, and all leave through port 2, whatever becomes of port 3.
#[test]
fn no_packet_is_lost_while_ports_change_their_vlans() {
    let text = |third: &str| {
        let more = "[[port]]\nnumber = 9\nopen = \"gen:udp,flows=100\"\ntag = 10";
        ports(["tag = 10", "tag = 20", third, ""], &format!("{more}\n{NORMAL}"))
    };
    let Running { _folder, config, served, mut switch } = Running::new(&text("tag = 10"));
    let (stop, changes) = (AtomicBool::new(false), 40);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| switch.run(Until::default(), &stop, |_| {}).unwrap());
        for n in 0..changes {
            let third = ["tag = 20", "trunks = [10, 20]", "", "tag = 10"][n % 4];
            assert_eq!(reload(&served, &config, &text(third)).unwrap(), (0, 0, 1), "change {n}");
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap();
    });
    let report = Report::of_all(switch.workers_mut()).unwrap();
    let counters = |number: u32| report.ports.iter().find(|port| port.number == number).unwrap().counters;
    let (received, first) = (counters(9).rx_packets, counters(1));
    assert!(received > 1000, "{received}");
    assert_eq!((first.tx_packets + first.tx_dropped, report.drops.not_in_vlan), (received, 0));
    assert!((1..received).contains(&counters(3).tx_packets), "{} of {received}", counters(3).tx_packets);
    assert_eq!(counters(2).tx_packets, 0);
}
