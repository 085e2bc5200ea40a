//! Control packets of BFD: they leave the way of packets at ports with sessions, and nowhere else.

use flowlane::rule::{ReadOptions, flow_syntax};
use flowlane::tunnel::TunnelKind;

use super::*;
use crate::datapath::BfdInlet;
use crate::state::bfd::{Filter, Session, Settings, State};
use crate::tunnel::{PortTunnel, PortTunnelSpec};

fn end(rules: &str) -> (Worker, Sent) {
    let rules = flow_syntax::read(rules, "rules", &ReadOptions::default()).unwrap();
    worker(&rules, 3, CacheConfig::default(), By::Tuple)
}

fn inlet(filter: Filter, checks_key: bool) -> Arc<BfdInlet> {
    Arc::new(BfdInlet::new(filter, checks_key, std::thread::current()))
}

fn control() -> Vec<u8> {
    Session::new(Settings::default(), 1, 0).run(0).unwrap()
}

#[test]
fn control_packets_leave_the_way_of_packets_where_a_port_has_a_session() {
    let (mut worker, sent) = end("table=0 actions=output:2");
    let to_other = {
        let mut frame = control();
        frame[5] = 2;
        frame
    };
    let own = Filter { mac: Some(control()[..6].try_into().unwrap()), ip: None };
    let waiting = inlet(own, false);
    assert!(worker.set_bfd(PortNo(1), Some(waiting.clone())) && !worker.set_bfd(PortNo(77), None));
    worker.inject(0, &[&control(), &to_other, &[7; 60]]).unwrap();
    let taken: Vec<Vec<u8>> = waiting.take().into_iter().map(|frame| frame.bytes).collect();
    assert_eq!(taken, [control()]);
    let others: Vec<Vec<u8>> = sent.lock().unwrap().drain(..).map(|(_, bytes)| bytes).collect();
    assert_eq!(others, [to_other, vec![7; 60]]);
    // Another port has no session.
    worker.inject(2, &[&control()]).unwrap();
    assert_eq!(sent.lock().unwrap().drain(..).collect::<Vec<_>>(), [(2, control())]);
    // A flood is bounded.
    for _ in 0..10 {
        worker.inject(0, &[&control()[..], &control()]).unwrap();
    }
    assert_eq!((waiting.take().len(), worker.egress.ports.slots()[0].counters.rx_dropped), (16, 4));
    worker.set_bfd(PortNo(1), None);
    worker.inject(0, &[&control()]).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
}

#[test]
fn sessions_come_up_through_tunnels() {
    let ends = ["192.0.2.2", "192.0.2.1"].map(|remote| {
        let (mut worker, sent) = end("table=0 actions=output:2");
        let spec = PortTunnelSpec::parse(TunnelKind::Geneve, remote, &[("key", "flow")]).unwrap();
        worker.egress.ports.slots_mut()[2].tunnel = Some(Box::new(PortTunnel::new(spec)));
        let inlet = inlet(Filter::default(), true);
        worker.set_bfd(PortNo(3), Some(inlet.clone()));
        (worker, sent, inlet)
    });
    let mut ends = ends.into_iter();
    let (mut a, mut b) = (ends.next().unwrap(), ends.next().unwrap());
    let mut sessions = [1, 2].map(|seed| Session::new(Settings::default(), seed, 0));
    for now_ms in 0..3000 {
        pass(&mut sessions[0], &mut a, &mut b, now_ms);
        pass(&mut sessions[1], &mut b, &mut a, now_ms);
    }
    assert_eq!(sessions.each_ref().map(Session::state), [State::Up; 2]);
    // With another key it is a packet as any other.
    let mut key = FlowKey::zero();
    key.set(Field::TunId, 5);
    let mut frame = Frame::default();
    frame.fill(&control());
    a.0.egress.send(2, &frame, &key).unwrap();
    let (_, outer) = a.1.lock().unwrap().pop().unwrap();
    b.0.inject(2, &[&outer]).unwrap();
    assert!(b.2.take().is_empty());
    assert_eq!(b.1.lock().unwrap().pop(), Some((2, control())));
}

/// A worker with the frames that it has sent, and the inlet of its tunnel.
type End = (Worker, Sent, Arc<BfdInlet>);

/// Receives what has come for a session, and takes a packet of it to the other end.
fn pass(session: &mut Session, from: &mut End, to: &mut End, now_ms: u64) {
    for frame in from.2.take() {
        session.receive(&frame.bytes, frame.is_complete, now_ms).unwrap();
    }
    if let Some(frame) = session.run(now_ms) {
        from.0.send_frames(&[(PortNo(3), frame)]);
        for (_, outer) in from.1.lock().unwrap().drain(..) {
            to.0.inject(2, &[&outer]).unwrap();
        }
    }
}
