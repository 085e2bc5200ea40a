//! Connections of packets that one worker takes to a stage of another.

use super::*;
use crate::datapath::tests::connections::fragments_of;

/// The server that packets for others are translated to.
const SERVER: [u8; 4] = [10, 9, 9, 9];

/// Returns the workers' pipelines: connections (0), a learning filter (5), and connections again (9, 10).
fn pipelines(workers: usize) -> Vec<Pipeline> {
    let filter = |shard| {
        let fields = vec![Field::Ipv4Src, Field::TpSrc, Field::TpDst];
        let filter = FilterConfig { learn: true, shard, ..FilterConfig::new(fields, 500) };
        let go = vec![Action::Goto(9)];
        function(5, AnyStage::Filter(Filter::new(&filter).unwrap()), vec![go.clone(), go])
    };
    let mut pipeline = Pipeline::new();
    [0, 1, 9, 10].into_iter().for_each(|table| pipeline.add_table(table, "", By::Tuple.engine(), Miss::Drop));
    pipeline.add_stage(5, filter(Shard { me: 0, of: workers }));
    let rules = "table=0,in_port=1,udp,actions=ct(commit,zone=1,nat(dst=10.9.9.9),table=1)\n\
                 table=0,in_port=3,udp,actions=set_field:2->in_port,ct(zone=1,nat,table=1)\n\
                 table=1,actions=goto_table:5\n\
                 table=9,udp,actions=ct(zone=1,table=10)\n\
                 table=10,priority=2,ct_state=+est+rpl+trk,actions=in_port,output:1\n\
                 table=10,priority=1,ct_state=+new+trk,ip,nw_dst=10.9.9.9,actions=output:3\n\
                 table=10,priority=0,actions=output:4\n";
    for rule in flowlane::rule::read(rules, "rules", None, &ReadOptions::default()).unwrap() {
        pipeline.add_rule(rule).unwrap();
    }
    let mut all = forked(pipeline, workers);
    for (me, pipeline) in all.iter_mut().enumerate().skip(1) {
        pipeline.set_stage(5, filter(Shard { me, of: workers }));
    }
    all
}

/// The server's answer.
fn answer(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (first, second, len) in [(26, 30, 4), (34, 36, 2)] {
        (first..first + len).zip(second..).for_each(|(a, b)| frame.swap(a, b));
    }
    frame
}

/// A packet that has been translated is of its connection for the next `ct`, too, whose worker is another; so is a fragment. The
/// port that an action has named is kept, too.
#[test]
fn packets_take_their_connections_to_other_workers() {
    for is_fragmented in [false, true] {
        for workers in [1, 2, 3] {
            let sent = Sent::default();
            let payload = vec![1; if is_fragmented { 1600 } else { 8 }];
            let frames: Vec<Vec<u8>> = (0..200)
                .map(|port| udp((0x0a00_0001, 1000 + port), (0xcb00_7101, 53), &payload))
                .flat_map(|frame| if is_fragmented { fragments_of(&frame) } else { vec![frame] })
                .collect();
            let (mut sources, count) = (Vec::new(), frames.len());
            sources.push(Source::new(1, frames.into_iter().map(|frame| (0, frame)), &sent));
            sources.extend([2, 4].map(|port| Source::new(port, [], &sent)));
            // Whole datagrams: an answer's checksum and fragments are then right, too.
            let mut server = Source::new(3, [], &sent);
            server.answer = Some(answer);
            server.open = count as u64;
            sources.push(server);
            let mut egresses = egresses(sources, &sent, workers, Spreading::ByOne);
            let (first, others) = egresses.split_first_mut().unwrap();
            others.iter_mut().for_each(|egress| egress.share_state(first));
            let mut switch = switch(pipelines(workers), egresses, CacheConfig::default(), Clock::Wall);
            switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            let of = |port| sent.iter().filter(move |(to, _)| *to == port).count();
            let case = format!("{workers} workers, fragments {is_fragmented}");
            assert_eq!([1, 2, 3, 4].map(of), [count, count, count, 0], "{case}");
            let to_server = sent.iter().filter(|(port, _)| *port == 3);
            assert!(to_server.clone().all(|(_, frame)| frame[30..34] == SERVER), "{case}");
            let handed: u64 = switch.workers().iter().map(|worker| worker.handed).sum();
            // Frames that are spread, and those for a stage of another worker.
            assert!(
                workers == 1 || handed > if is_fragmented { 0 } else { count as u64 },
                "{case}: {handed}"
            );
        }
    }
}
