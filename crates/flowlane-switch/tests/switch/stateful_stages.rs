//! Functions as configurations ask for them, over captures whose frames have times.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use flowlane::generate::build_frame;
use flowlane::packet::Field;
use flowlane::packet::key::FlowKey;
use flowlane_capture::{CaptureWriter, FileFormat};
use flowlane_switch::datapath::Until;
use flowlane_switch::mgmt::report::{Report, StatefulStageReport};
use flowlane_switch::mgmt::setup::Setup;

/// A UDP datagram.
struct Datagram {
    seconds: u64,
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
}

impl Datagram {
    fn frame(&self) -> Vec<u8> {
        let mut key = FlowKey::zero();
        let address = |a: [u8; 4]| u128::from(u32::from(Ipv4Addr::from(a)));
        for (field, value) in [
            (Field::EthSrc, 0x0200_0000_0000 + address(self.from.0)),
            (Field::EthType, 0x0800),
            (Field::NwProto, 17),
            (Field::NwTtl, 64),
            (Field::Ipv4Src, address(self.from.0)),
            (Field::Ipv4Dst, address(self.to.0)),
            (Field::TpSrc, self.from.1.into()),
            (Field::TpDst, self.to.1.into()),
        ] {
            key.set(field, value);
        }
        let mut out = Vec::new();
        build_frame(&key, 60, &mut out);
        out
    }
}

/// A folder of its own, which goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

const PORTS: &str = r#"
[switch]
burst = 1
[[port]]
number = 1
open = "pcap:in.pcap"
[[port]]
number = 2
open = "null"
[[table]]
number = 0
rules = ["actions=goto_table:5"]
"#;

/// Returns the counters of the stateful stages and the second port after the configuration has processed these packets.
fn run(name: &str, stages: &str, entries: &str, datagrams: &[Datagram]) -> (Vec<StatefulStageReport>, u64) {
    let folder = Folder::new(name);
    let mut capture = CaptureWriter::new(Vec::new(), FileFormat::Pcap).unwrap();
    for datagram in datagrams {
        let time_ns = (1_700_000_000 + datagram.seconds) * 1_000_000_000;
        capture.write(time_ns, &datagram.frame()).unwrap();
    }
    fs::write(folder.0.join("in.pcap"), capture.finish().unwrap()).unwrap();
    fs::write(folder.0.join("entries"), entries).unwrap();
    fs::write(folder.0.join("c.toml"), format!("{PORTS}{stages}")).unwrap();
    let mut worker = Setup::read(&folder.0.join("c.toml")).unwrap().open(1).unwrap();
    worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let report = Report::of(&mut worker);
    assert_eq!(report.ports[0].counters.rx_packets, datagrams.len() as u64);
    (report.stateful_stages, report.ports[1].counters.tx_packets)
}

/// Packets from these last numbers of addresses, at these seconds.
fn from(hosts: &[(u64, u8)]) -> Vec<Datagram> {
    let datagram = |&(seconds, host): &(u64, u8)| Datagram {
        seconds,
        from: ([10, 0, 0, host], 40_000),
        to: ([192, 0, 2, 1], 7),
    };
    hosts.iter().map(datagram).collect()
}

/// Packets by verdict.
fn verdicts(stage: &StatefulStageReport) -> Vec<(&str, u64)> {
    stage.verdicts.iter().map(|v| (&*v.verdict, v.packets)).collect()
}

fn events(stage: &StatefulStageReport) -> Vec<(&str, u64)> {
    stage.events.iter().map(|e| (&*e.reason, e.packets)).collect()
}

#[test]
fn entries_of_a_file_are_in_the_set_and_go_by_their_timeouts() {
    let filter = r#"
[[filter_table]]
number = 5
key = ["nw_src"]
entries = ["ip,nw_src=10.0.0.9"]
entries_file = "entries"
hit = "output:2"
count = true
"#;
    let entries = "# who may\n\nip,nw_src=10.0.0.1\n  ip, nw_src=10.0.0.2, timeout=5\n\t# and\ntimeout=20 ip nw_src=10.0.0.3\n";
    let packets =
        from(&[(0, 1), (0, 2), (0, 3), (0, 4), (0, 9), (10, 1), (10, 2), (10, 3), (30, 1), (30, 2), (30, 3)]);
    let (stages, sent) = run("entries", filter, entries, &packets);
    assert_eq!(verdicts(&stages[0]), [("hit", 7), ("miss", 4)]);
    assert_eq!(sent, 7);
    assert_eq!(events(&stages[0]), [("entries aged", 2)]);
    let left: Vec<_> = stages[0].filter_entries.iter().map(|e| (&*e.key, e.packets, e.bytes)).collect();
    assert_eq!(left, [("nw_src=10.0.0.1", 3, 180), ("nw_src=10.0.0.9", 1, 60)]);
}

#[test]
fn a_filter_learns_for_so_long_and_longer_where_hits_refresh() {
    let filter = |refresh: bool| {
        format!(
            "[[filter_table]]\nnumber = 5\nkey = [\"nw_src\"]\nlearn = true\ntimeout_s = 5\nrefresh = {refresh}\n\
             miss = \"output:2\"\n"
        )
    };
    let packets = from(&[(0, 1), (4, 1), (8, 1), (12, 1), (20, 1)]);
    let (plain, sent) = run("learn", &filter(false), "", &packets);
    assert_eq!((verdicts(&plain[0]), sent), (vec![("hit", 2), ("miss", 3)], 3));
    assert_eq!(events(&plain[0]), [("entries learnt", 3), ("entries aged", 2)]);
    let (refreshed, sent) = run("refresh", &filter(true), "", &packets);
    assert_eq!((verdicts(&refreshed[0]), sent), (vec![("hit", 3), ("miss", 2)], 2));
    assert_eq!(events(&refreshed[0]), [("entries learnt", 2), ("entries aged", 1)]);
}

#[test]
fn what_follows_new_assets_follows_those_that_found_no_room_too() {
    let assets =
        |new: &str| format!("[[asset_table]]\nnumber = 5\nentries_max = 1\nknown = \"output:2\"\n{new}\n");
    let packets = from(&[(0, 1), (1, 1), (2, 2), (3, 2), (4, 1)]);
    let (stages, sent) = run("new", &assets("new = \"drop\""), "", &packets);
    assert_eq!((verdicts(&stages[0]), sent), (vec![("known", 2), ("new", 3)], 2));
    assert_eq!(events(&stages[0]), [("new hosts", 1), ("assets not noted, table or share full", 2)]);
    let (stages, sent) = run("same", &assets(""), "", &packets);
    assert_eq!((verdicts(&stages[0]), sent), (vec![("known", 2), ("new", 3)], 5));
}

#[test]
fn a_forward_counts_the_packets_of_both_ways() {
    let nat = r#"
[[nat_table]]
number = 5
inside = ["10.0.0.0/8"]
pool = ["203.0.113.1"]
outbound = "output:2"
inbound = "output:2"
[[nat_table.forward]]
protocol = "udp"
outside = "203.0.113.1:53"
inside = "10.0.0.5:5353"
"#;
    let asked = |seconds| Datagram { seconds, from: ([198, 51, 100, 7], 999), to: ([203, 0, 113, 1], 53) };
    let answer = Datagram { seconds: 1, from: ([10, 0, 0, 5], 5353), to: ([198, 51, 100, 7], 999) };
    let other = Datagram { seconds: 9, from: ([198, 51, 100, 7], 999), to: ([203, 0, 113, 1], 54) };
    let (stages, sent) = run("forward", nat, "", &[asked(0), answer, asked(2), other]);
    assert_eq!(sent, 3);
    assert_eq!(events(&stages[0]), [("refused: no session", 1)]);
    let [forward] = &stages[0].forwards[..] else { panic!("{:?}", stages[0].forwards) };
    assert_eq!((&*forward.protocol, forward.inbound_packets, forward.outbound_packets), ("udp", 2, 1));
    assert_eq!(forward.outside, "203.0.113.1:53".parse().unwrap());
    assert_eq!(forward.inside, "10.0.0.5:5353".parse().unwrap());
}

/// Packets that went from one worker to another, those that came to the stage, and what it has learnt.
fn handed(folder: &Folder, port: &str, workers: usize, spread: &str, stage: &str) -> (u64, u64, u64) {
    let config = folder.0.join("spread.toml");
    let text = format!(
        "[switch]\nworkers = {workers}\nspread = \"{spread}\"\n\
         [[port]]\nnumber = 1\nopen = \"{port}\"\n[[port]]\nnumber = 2\nopen = \"null\"\n\
         [[table]]\nnumber = 0\nrules = [\"ip,actions=goto_table:5\"]\n{stage}"
    );
    fs::write(&config, text).unwrap();
    let setup = Setup::read(&config).unwrap();
    let (mut switch, _control) = setup.open_controlled(5).unwrap();
    switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let report = Report::of_all(switch.workers_mut()).unwrap();
    let handed = switch.workers().iter().map(|worker| worker.handed).sum();
    (handed, report.stateful_stages[0].packets, report.stateful_stages[0].entries as u64)
}

#[test]
fn who_has_a_share_of_a_function_gets_its_packets_at_once() {
    let folder = Folder::new("spread");
    let capture = folder.0.join("in.pcap");
    let mut writer = CaptureWriter::new(fs::File::create(&capture).unwrap(), FileFormat::Pcap).unwrap();
    for n in 0..500u32 {
        let [_, _, high, low] = n.to_be_bytes();
        let datagram =
            Datagram { seconds: 0, from: ([10, 0, high, low], 1000), to: ([8, 8, 8, low % 7], 53) };
        writer.write(0, &datagram.frame()).unwrap();
    }
    drop(writer);
    let filter = "[[filter_table]]\nnumber = 5\nkey = [\"nw_src\", \"tp_src\"]\nlearn = true\nhit = \"output:2\"\n\
                  miss = \"output:2\"\n";
    let nat = "[[nat_table]]\nnumber = 5\ninside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.1\"]\n\
               outbound = \"output:2\"\ninbound = \"output:1\"\n";
    let replayed = format!("pcap:{},loop=40", capture.display());
    // Workers share the sessions of a translation: none hands packets over.
    let alone = handed(&folder, &replayed, 1, "auto", nat);
    assert_eq!(alone.2, 500);
    for workers in [2, 3] {
        assert_eq!(handed(&folder, &replayed, workers, "flow", nat), alone, "{workers} workers");
    }
    for (port, stage) in [(&*replayed, filter), ("gen:udp,flows=1000,count=20000", filter)] {
        let (none, all, entries) = handed(&folder, port, 1, "auto", stage);
        assert_eq!(none, 0);
        for workers in [2, 3] {
            assert_eq!(handed(&folder, port, workers, "auto", stage).0, 0, "{port}, {workers} workers");
            let by_flow = handed(&folder, port, workers, "flow", stage);
            assert!(by_flow.0 > 2000, "{port}, {workers} workers: {by_flow:?}");
            assert_eq!((by_flow.1, by_flow.2), (all, entries), "{port}, {workers} workers");
        }
    }
}
