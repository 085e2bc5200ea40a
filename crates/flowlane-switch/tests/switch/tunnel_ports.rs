//! Tunnels at UDP ports other than their protocols' own, as configurations have them.

use std::sync::atomic::AtomicBool;

use flowlane::generate::build_frame;
use flowlane::packet::Field;
use flowlane::packet::key::FlowKey;
use flowlane_capture::{CaptureWriter, FileFormat};
use flowlane_switch::datapath::Until;
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::setup::Setup;

const INNER: [(Field, u128); 6] = [
    (Field::EthSrc, 0x0200_0000_0001),
    (Field::EthType, 0x0800),
    (Field::NwProto, 17),
    (Field::NwTtl, 64),
    (Field::Ipv4Dst, 0xc000_0201),
    (Field::TpDst, 53),
];

fn tunnel(kind: &str, port: &str, (local, remote): (&str, &str)) -> String {
    format!(
        "[[tunnel]]\nnumber = 1\nkind = \"{kind}\"\nid = 5\n{port}\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
         inner = \"{}\"\n",
        if kind == "gtpu" { "ipv4" } else { "ethernet" }
    )
}

/// Frames that leave through port 2 of a switch, from `input` to `output` in a folder.
fn sent(folder: &std::path::Path, input: &str, output: &str, rules: &str, more: &str) -> u64 {
    let text = format!(
        "[[port]]\nnumber = 1\nopen = \"pcap:{input}\"\ndecapsulate = true\n\
         [[port]]\nnumber = 2\nopen = \"pcap-out:{output}\"\n[[table]]\nnumber = 0\nrules = [\"{rules}\"]\n{more}"
    );
    std::fs::write(folder.join("switch.toml"), text).unwrap();
    let setup = Setup::read(&folder.join("switch.toml")).unwrap_or_else(|e| panic!("{e}"));
    let mut worker = setup.open(7).unwrap_or_else(|e| panic!("{e}"));
    worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    Report::of(&mut worker).ports[1].counters.tx_packets
}

#[test]
fn tunnels_end_at_the_port_that_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut key = FlowKey::zero();
    INNER.into_iter().for_each(|(field, value)| key.set(field, value));
    let mut frame = Vec::new();
    build_frame(&key, 60, &mut frame);
    let mut capture = CaptureWriter::new(Vec::new(), FileFormat::Pcap).unwrap();
    capture.write(0, &frame).unwrap();
    std::fs::write(at.join("in.pcap"), capture.finish().unwrap()).unwrap();
    let ends = [("192.0.2.1", "192.0.2.2"), ("192.0.2.2", "192.0.2.1")];
    let inside = "tun_id=5,udp,tp_dst=53,actions=output:2";
    for kind in ["vxlan", "geneve", "gtpu"] {
        for (out, into, arrives) in
            [("port = 8472", "port = 8472", 1), ("port = 8472", "", 0), ("", "port = 50000", 0), ("", "", 1)]
        {
            let near = tunnel(kind, out, ends[0]);
            assert_eq!(sent(at, "in.pcap", "outer.pcap", "actions=encap:1,output:2", &near), 1);
            let far = tunnel(kind, into, ends[1]);
            assert_eq!(sent(at, "outer.pcap", "out.pcap", inside, &far), arrives, "{kind}: {out} {into}");
        }
    }
    for (out, into, arrives) in [
        ("", "", 1),
        ("gre_checksum = true\ngre_sequence = true", "", 1),
        ("id_out = 6", "", 0),
        ("id_out = 6", "id_out = 9\nvrf = 3", 0),
    ] {
        let near = tunnel("gre", out, ends[0]);
        assert_eq!(sent(at, "in.pcap", "outer.pcap", "actions=encap:1,output:2", &near), 1);
        let far = tunnel("gre", into, ends[1]);
        assert_eq!(sent(at, "outer.pcap", "out.pcap", inside, &far), arrives, "gre: {out} {into}");
        // Of a node without tunnels of GRE it is not the matter: rules get it as it is.
        for kind in ["vxlan", "erspan"] {
            let others = tunnel(kind, "", ends[1]);
            assert_eq!(sent(at, "outer.pcap", "out.pcap", "nw_proto=47,ip,actions=output:2", &others), 1);
        }
        let id = if out.starts_with("id_out") { "tun_id=6" } else { "tun_id=5" };
        assert_eq!(sent(at, "outer.pcap", "out.pcap", &format!("{id},tun_type=4,actions=output:2"), ""), 1);
    }
    let near = tunnel("erspan", "erspan_index = 77", ends[0]);
    assert_eq!(sent(at, "in.pcap", "outer.pcap", "actions=encap:1,output:2", &near), 1);
    let seen = "tun_id=5,tun_erspan_ver=1,tun_erspan_idx=77,udp,tp_dst=53,actions=output:2";
    let both =
        tunnel("gre", "", ends[1]) + &tunnel("erspan", "", ends[1]).replace("number = 1", "number = 2");
    for (far, arrives) in
        [(tunnel("erspan", "", ends[1]), 1), (both, 1), (tunnel("gre", "", ends[1]), 0), (String::new(), 1)]
    {
        assert_eq!(sent(at, "outer.pcap", "out.pcap", seen, &far), arrives, "erspan: {far}");
    }
    // Without tunnels of its own, a port takes the headers of both ports of VXLAN off.
    let near = tunnel("vxlan", "port = 8472", ends[0]);
    sent(at, "in.pcap", "outer.pcap", "actions=encap:1,output:2", &near);
    assert_eq!(sent(at, "outer.pcap", "out.pcap", inside, ""), 1);
}
