//! What the switch does while no controller is connected.

use std::os::unix::net::UnixListener;

use super::*;

/// The time without a controller after which the tests' switch forwards by `normal`.
const AFTER: Duration = Duration::from_millis(500);

/// Lets a frame arrive at port 1; returns whether it leaves by ports 2 and 3, as `normal` floods it.
fn is_flooded(wires: &Wires) -> bool {
    wires.arrive(0, frame(53));
    wires.wait();
    std::thread::sleep(Duration::from_millis(20));
    let left = wires.left.each_ref().map(|queue| queue.lock().unwrap().drain(..).count());
    assert!([[0, 0, 0], [0, 1, 1]].contains(&left), "{left:?}");
    left[1] == 1
}

pub(super) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
    }
}

/// Accepts the switch as a controller does.
fn accept(listener: &UnixListener) -> Controller {
    let (stream, _) = listener.accept().unwrap();
    Controller::of(stream, Version::OpenFlow13)
}

fn service(wires: &Wires, after: Option<Duration>) -> Service {
    let service = Service::new(wires.served.get().unwrap().clone(), "br1", 7, Arc::default());
    service.with_standalone_after(after)
}

/// As Open vSwitch 3.1: its rule has the same priority, and is not among the flows that it reports.
#[test]
fn a_standalone_switch_forwards_by_normal_until_a_controller_connects() {
    with_switch(|path, wires| {
        let mut operator = Controller::connect(path, Version::OpenFlow13);
        assert_eq!(operator.change("add priority=65535 actions=drop"), None);
        let to = path.with_file_name("controller.sock");
        let listener = UnixListener::bind(&to).unwrap();
        let _agent = Agent::open(&[Address::ConnectUnix(to)], None, service(wires, Some(AFTER))).unwrap();
        let mut controller = accept(&listener);
        assert_eq!(controller.barrier(), None);
        std::thread::sleep(2 * AFTER);
        assert!(!is_flooded(wires), "a controller is connected");
        assert_eq!(controller.flows().len(), 1);
        drop(controller);
        wait_until("it forwards by normal", || is_flooded(wires));
        // The rules are gone, and controllers neither see nor delete the rule that replaces them.
        assert_eq!(operator.flows(), []);
        assert_eq!(operator.change("delete"), None);
        assert!(is_flooded(wires));
        let mut controller = accept(&listener);
        wait_until("the controller decides again", || !is_flooded(wires));
        assert_eq!(controller.change("add priority=1 actions=normal"), None);
        assert!(is_flooded(wires));
    });
}

#[test]
fn a_secure_switch_keeps_its_rules() {
    with_switch(|path, wires| {
        let mut operator = Controller::connect(path, Version::OpenFlow13);
        assert_eq!(operator.change("add priority=7 actions=drop"), None);
        let to = path.with_file_name("controller.sock");
        let _agent = Agent::open(&[Address::ConnectUnix(to)], None, service(wires, None)).unwrap();
        std::thread::sleep(2 * AFTER);
        assert!(!is_flooded(wires));
        assert_eq!(operator.flows().len(), 1);
    });
}

#[test]
fn a_standalone_switch_without_controllers_to_connect_to_forwards_misses_by_normal() {
    with_switch(|path, wires| {
        let mut operator = Controller::connect(path, Version::OpenFlow13);
        let own = path.with_file_name("br1.mgmt");
        let _agent =
            Agent::open(&[Address::ListenUnix(own.clone())], None, service(wires, Some(AFTER))).unwrap();
        assert!(is_flooded(wires));
        assert_eq!(operator.change("add priority=7 actions=drop"), None);
        std::thread::sleep(2 * AFTER);
        assert!(!is_flooded(wires));
        assert_eq!(operator.flows().len(), 2);
    });
}
