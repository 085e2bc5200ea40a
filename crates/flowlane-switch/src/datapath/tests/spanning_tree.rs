//! Ports in a spanning tree: those that discard, learn and forward, for `normal` and for rules that name them.

use super::*;
use crate::control::Control;
use crate::datapath::{Inlet, TreeView};
use crate::state::rstp::{BRIDGES, PortState};

fn frame(from: u8, to: u8) -> Vec<u8> {
    let to = if to == 0 { [0xff; 6] } else { [2, 0, 0, 0, 0, to] };
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, from, 0x88, 0xb5]].concat();
    frame.resize(60, 0);
    frame
}

fn bpdu() -> Vec<u8> {
    let mut frame = frame(9, 1);
    frame[..6].copy_from_slice(&BRIDGES);
    frame
}

/// A switch whose port 1 has this state; ports 2 to 4 are in no tree.
struct Tree {
    worker: Worker,
    sent: Sent,
    inlet: Arc<Inlet>,
}

impl Tree {
    fn new(rules: &str) -> Self {
        let rules =
            flowlane::rule::flow_syntax::read(rules, "rules", &flowlane::rule::ReadOptions::default());
        let (worker, sent) = worker(&rules.unwrap(), 3, CacheConfig::default(), By::Tuple);
        Self { worker, sent, inlet: Arc::new(Inlet::new(128, std::thread::current())) }
    }

    fn set(&mut self, state: PortState) {
        let view = TreeView([(PortNo(1), (state, self.inlet.clone()))].into());
        self.worker.set_tree(Some(Arc::new(view)));
    }

    /// Receives a frame at a port; returns the ports that it has left through, as a trace says.
    fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<u32> {
        let Ok(Tracing::Ended(trace)) = self.worker.trace(PortNo(port as u32), frame) else {
            panic!("there is one worker, with that port");
        };
        let mut traced: Vec<u32> = trace.sent.iter().filter_map(|sent| sent.port).collect();
        self.worker.inject(port - 1, &[frame]).unwrap();
        let mut ports: Vec<u32> = self.sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
        traced.sort_unstable();
        ports.sort_unstable();
        assert_eq!(traced, ports);
        ports
    }

    fn knows(&self, station: u64) -> bool {
        self.worker.egress.macs.lookup(0x0200_0000_0000 | station, 0, 0).is_some()
    }
}

#[test]
fn a_port_discards_then_learns_then_forwards() {
    let mut tree = Tree::new("table=0 actions=normal");
    for _ in 0..4 {
        assert_eq!(tree.pass(2, &frame(2, 0)), [1, 3, 4]);
    }
    tree.set(PortState::Discarding);
    for _ in 0..4 {
        assert_eq!(tree.pass(2, &frame(2, 0)), [3, 4], "also by the path in the caches");
    }
    assert_eq!((tree.pass(1, &frame(7, 0)), tree.knows(7)), (vec![], false));
    tree.set(PortState::Learning);
    assert_eq!((tree.pass(1, &frame(7, 0)), tree.knows(7)), (vec![], true));
    assert_eq!(tree.pass(2, &frame(2, 7)), [0; 0], "the port does not send yet");
    assert_eq!(tree.pass(2, &frame(2, 0)), [3, 4]);
    tree.set(PortState::Forwarding);
    assert_eq!(tree.pass(2, &frame(2, 7)), [1]);
    assert_eq!(tree.pass(1, &frame(7, 2)), [2]);
    tree.set(PortState::Discarding);
    tree.worker.set_tree(None);
    assert_eq!(tree.pass(2, &frame(2, 0)), [1, 3, 4]);
}

#[test]
fn a_link_that_changes_leaves_the_tree_as_it_is() {
    let mut tree = Tree::new("table=0 actions=normal");
    let mut control = Control::attach(&mut tree.worker).unwrap();
    tree.set(PortState::Discarding);
    control.set_links(&[(PortNo(3), false)]);
    assert_eq!(tree.pass(2, &frame(2, 0)), [3, 4]);
    assert_eq!(tree.pass(2, &frame(2, 0)), [3, 4]);
    tree.set(PortState::Forwarding);
    control.set_links(&[(PortNo(3), true)]);
    assert_eq!(tree.pass(2, &frame(2, 0)), [1, 3, 4]);
    assert_eq!(tree.pass(2, &frame(2, 0)), [1, 3, 4]);
}

#[test]
fn bpdus_come_and_go_through_ports_that_discard() {
    let mut tree = Tree::new("table=0 in_port=2 actions=output:1\ntable=0 priority=0 actions=flood");
    tree.set(PortState::Discarding);
    tree.worker.inject(0, &[&bpdu(), &frame(1, 0)]).unwrap();
    let taken = tree.inlet.take();
    assert_eq!((taken.len(), &taken[0].bytes), (1, &bpdu()));
    tree.worker.send_frames(&[(PortNo(1), bpdu())]);
    let sent: Vec<u32> = tree.sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
    assert_eq!(sent, [1]);
    // Nor are the packets of other protocols between neighbours held back, which say that the link works.
    let mut pdu = frame(9, 1);
    pdu[..15].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 0x09, 1]);
    let lacp = Arc::new(Inlet::of_lacp(std::thread::current()));
    tree.worker.set_lacp(&[(PortNo(1), lacp.clone())]);
    tree.worker.inject(0, &[&pdu]).unwrap();
    assert_eq!((lacp.take().len(), tree.inlet.take().len()), (1, 0));
    tree.worker.send_frames(&[(PortNo(1), pdu)]);
    let sent: Vec<u32> = tree.sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
    assert_eq!(sent, [1]);
    // Rules do not get around the tree.
    assert_eq!(tree.pass(2, &frame(2, 1)), [0; 0]);
    assert_eq!(tree.pass(3, &frame(3, 0)), [2, 4]);
    assert_eq!(tree.pass(1, &frame(1, 0)), [0; 0]);
}
