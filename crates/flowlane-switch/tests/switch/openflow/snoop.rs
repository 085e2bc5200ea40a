//! Copies of the messages between a switch and its controllers.

use super::*;

/// A client that offers one version gets the messages of that version, in both directions; one that does not read delays no controller.
#[test]
fn a_snooper_gets_the_messages_of_controllers() {
    with_switch(|path, wires| {
        let service = Service::new(wires.served.get().unwrap().clone(), "br1", 7, Arc::default());
        let (own, snoop) = (path.with_file_name("br1.mgmt"), path.with_file_name("br1.snoop"));
        let mut agent = Agent::open(&[Address::ListenUnix(own.clone())], None, service).unwrap();
        agent.open_snoop(&snoop).unwrap();
        let mut snooper = Controller::connect(&snoop, Version::OpenFlow13);
        let _deaf = Controller::connect(&snoop, Version::OpenFlow13);
        // The agent adds a snooper after it has answered the greeting.
        std::thread::sleep(Duration::from_millis(200));
        let mut other = Controller::connect(&own, Version::OpenFlow15);
        assert_eq!(other.barrier(), None);
        let mut controller = Controller::connect(&own, Version::OpenFlow13);
        assert_eq!(controller.barrier(), None);
        let mut copied = Vec::new();
        while copied.len() < 6 {
            copied.push(snooper.read().0);
        }
        let greetings = copied.iter().filter(|message| matches!(message, Message::Hello(_))).count();
        assert_eq!(greetings, 4, "{copied:?}");
        assert_eq!(copied[4..], [Message::BarrierRequest, Message::BarrierReply]);
        for n in 0..200 {
            let echo = Message::EchoRequest(vec![n; 10_000]);
            assert_eq!(controller.ask(&echo), Message::EchoReply(vec![n; 10_000]));
        }
        drop(agent);
        assert!(!snoop.exists());
    });
}
