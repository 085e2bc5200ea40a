//! Lists of rules and groups of which OpenFlow cannot express all.

use flowlane_openflow::message::MultipartReply;

use super::*;

impl Controller {
    fn reply(&mut self, body: Request) -> Reply {
        match self.ask(&Message::MultipartRequest(MultipartRequest { more: false, body })) {
            Message::MultipartReply(MultipartReply { body, .. }) => body,
            other => panic!("{other:?}"),
        }
    }
}

/// Rules of a configuration may match what OpenFlow has no field for, and have actions of Flowlane's own.
#[test]
fn rules_that_openflow_cannot_express_are_left_out() {
    with_switch(|path, wires| {
        let lines = "add cookie=1,tun_type=2 actions=drop\nadd cookie=2,priority=9,tcp,tp_dst=80-90 actions=drop\n\
            add cookie=3,udp actions=count:4,output:2\nadd cookie=4,ip actions=drop\n";
        let changes = read_changes(lines, "rules", &ReadOptions::default()).unwrap();
        wires.served.get().unwrap().control().change(&changes).unwrap();
        for version in Version::ALL {
            let mut controller = Controller::connect(path, version);
            let mut flows = controller.flows();
            flows.sort_unstable();
            // 80 to 87, 88 to 89, 90.
            assert_eq!(flows, [(0, 2, 0), (0, 2, 0), (0, 2, 0), (0, 4, 0)], "{version:?}");
            let request =
                FlowStatsRequest { format: FlowFormat::Standard, ..FlowStatsRequest::all(FlowFormat::Nxm) };
            let Reply::Flow { flows, .. } = controller.reply(Request::Flow(request)) else { panic!("flows") };
            let cookies: Vec<u64> = flows.iter().map(|flow| flow.rule.cookie).collect();
            // The first layout of OpenFlow 1.0 has no masks of ports.
            let standard: &[u64] = if version == Version::OpenFlow10 { &[2, 4] } else { &[2, 2, 2, 4] };
            assert_eq!(
                {
                    let mut sorted = cookies;
                    sorted.sort_unstable();
                    sorted
                },
                standard,
                "{version:?}"
            );
        }
    });
}
