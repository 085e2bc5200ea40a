//! The queues that rules choose for packets, as ports see them.

use super::*;
use crate::packet::Queue;

/// The queues of the frames that have left through each port: (port, queue), where no queue is `None`.
type Queues = Arc<Mutex<Vec<(u32, Option<u16>)>>>;

struct QueuePort(u32, Queues);

impl Port for QueuePort {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Finished)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        let queue = (frame.queue != Queue::NONE).then(|| frame.queue.class() - 1);
        self.1.lock().unwrap().push((self.0, queue));
        Ok(true)
    }
}

/// Sends packets from port 1 of a switch with these rules, with and without caches; returns the queues of the last packet's frames.
fn queues(rules: &str) -> Vec<(u32, Option<u16>)> {
    let options = flowlane::rule::ReadOptions::default();
    let rules = flowlane::rule::flow_syntax::read(rules, "rules", &options).unwrap();
    let pass = |cache: CacheConfig| {
        let (mut worker, _) = worker(&rules, 3, cache, By::Tuple);
        let queues = Queues::default();
        for (slot, number) in worker.egress.ports.iter_mut().zip(1..) {
            slot.port = Box::new(QueuePort(number, queues.clone()));
        }
        let mut frame = [[0xff; 6], [2; 6]].concat();
        frame.extend([0x88, 0xb5]);
        frame.resize(60, 0);
        // By the tables, by the path that the second makes, and by the caches; the last two are in one burst.
        worker.inject(0, &[&frame]).unwrap();
        let first = std::mem::take(&mut *queues.lock().unwrap());
        for _ in 0..4 {
            worker.inject(0, &[&frame, &frame]).unwrap();
            assert_eq!(std::mem::take(&mut *queues.lock().unwrap()), first.repeat(2));
        }
        first
    };
    let cached = pass(CacheConfig::default());
    assert_eq!(cached, pass(CacheConfig { megaflows_max: 0, ..CacheConfig::default() }));
    cached
}

#[test]
fn a_queue_is_chosen_until_it_is_given_back() {
    assert_eq!(queues("table=0 actions=output:2"), [(2, None)]);
    let chosen = queues("table=0 actions=set_queue:5,output:2,set_queue:0,output:3,pop_queue,output:4");
    assert_eq!(chosen, [(2, Some(5)), (3, Some(0)), (4, None)]);
    // A packet has its queue in later tables and in calls, and keeps the one that a called table has chosen.
    let tables = "table=0 actions=set_queue:1,output:2,goto_table:1\ntable=1 actions=output:3";
    assert_eq!(queues(tables), [(2, Some(1)), (3, Some(1))]);
    let called = "table=0 actions=resubmit(,1),output:3\ntable=1 actions=set_queue:7,output:2";
    assert_eq!(queues(called), [(2, Some(7)), (3, Some(7))]);
    assert_eq!(queues("table=0 actions=set_queue:9,normal"), [(2, Some(9)), (3, Some(9)), (4, Some(9))]);
}

#[test]
fn copies_have_their_own_queue_and_enqueue_is_for_one_output() {
    let copied = queues("table=0 actions=set_queue:1,clone(set_queue:2,output:2),output:3");
    assert_eq!(copied, [(2, Some(2)), (3, Some(1))]);
    assert_eq!(queues("table=0 actions=enqueue:2:3,output:3"), [(2, Some(3)), (3, None)]);
    let within = "table=0 actions=set_queue:1,enqueue:2:3,output:3";
    assert_eq!(queues(within), [(2, Some(3)), (3, Some(1))]);
    assert_eq!(queues("table=0 actions=enqueue:1:3,enqueue:in_port:4"), [(1, Some(4))]);
}

#[test]
fn a_queue_beyond_those_of_ports_is_not_chosen() {
    assert_eq!(queues("table=0 actions=set_queue:61439,output:2"), [(2, Some(61439))]);
    let beyond = "table=0 actions=set_queue:3,set_queue:61440,output:2,set_queue:4294967295,output:3";
    assert_eq!(queues(beyond), [(2, Some(3)), (3, Some(3))]);
}

#[test]
fn parts_of_frames_and_frames_with_other_tags_keep_the_queue() {
    assert_eq!(queues("table=0 actions=set_queue:2,output(port=2,max_len=20)"), [(2, Some(2))]);
    let changed = "table=0 actions=set_queue:2,push_vlan:0x8100,push_mpls:0x8847,output:2,pop_mpls:0x88b5,\
        goto_table:1\ntable=1 actions=output:3";
    assert_eq!(queues(changed), [(2, Some(2)), (3, Some(2))]);
}
