//! An engine that more changes outran while it was built, and as many while it caught up.

use super::*;

#[test]
fn an_engine_that_changes_outrun_catches_up_in_parts_and_misses_none() {
    let text = |n: u32| {
        let (high, low) = (n / 256, n % 256);
        format!("priority={},udp,nw_dst=10.{high}.{low}.0/24,tp_dst={n},actions=output:2\n", n % 90)
    };
    let packet = |n: u16| {
        let mut bytes = Vec::new();
        let [high, low] = n.to_be_bytes();
        let packet = PacketBuilder::ethernet2([0; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, high, low, 1], 64);
        packet.udp(1000, n).write(&mut bytes, b"x").unwrap();
        bytes
    };
    let all = (0..6000).map(text).collect::<String>();
    let rules = read(&all, "rules", None, &ReadOptions::default()).unwrap();
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", Box::new(AclSearch::new(tree())), Miss::Drop);
    rules.into_iter().for_each(|rule| _ = pipeline.add_rule(rule).unwrap());
    let mut egress = Egress::new(Fdb::new(100, 300, 1), 1);
    for number in 1..=2 {
        egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(MemoryPort::new().0)));
    }
    let caches = CacheConfig { megaflows_max: 0, adaptive: false, ..CacheConfig::default() };
    let mut worker = Worker::new(Lookup::new(pipeline, caches), egress, 64, Clock::Frames);
    let mut control = Control::attach(&mut worker).unwrap();
    // A build waits until it may go on.
    let (go_on, waiting) = std::sync::mpsc::channel::<()>();
    let waiting = Mutex::new(waiting);
    let build = move |rules: &[Given<'_>], _| -> Option<Box<dyn ReplicatedEngine>> {
        _ = waiting.lock().unwrap().recv();
        Some(Box::new(AclSearch::build(tree(), rules.iter().copied()).unwrap()))
    };
    control.rebuild_with(0, Arc::new(build));
    control.set_rebuild_interval(Duration::ZERO);
    let delete = |control: &mut Control, n: u32| {
        let rule = text(n).replace(",actions=output:2", "");
        control.change(&changes(&format!("delete_strict {rule}"))).unwrap();
    };
    let wait = || std::thread::sleep(Duration::from_millis(100));
    (0..20).for_each(|n| delete(&mut control, n));
    control.rebuild_engines();
    (20..370).for_each(|n| delete(&mut control, n));
    go_on.send(()).unwrap();
    wait();
    // Catches up with those in the background, while more come than half as many.
    control.rebuild_engines();
    // Had the engine missed one, packets of its rule would find nothing.
    (6000..6320).for_each(|n| _ = control.change(&changes(&text(n))).unwrap());
    wait();
    for _ in 0..10 {
        control.rebuild_engines();
        wait();
    }
    drop(go_on);
    for n in 0..6320 {
        worker.inject(0, &[&packet(n)]).unwrap();
    }
    worker.lookup.collect_counters();
    let hits: u64 = control.statistics(|_, _| true).into_iter().map(|flow| flow.count.packets).sum();
    assert_eq!(hits, 6320 - 370, "rules that were deleted meanwhile match no more, those that were added do");
}
