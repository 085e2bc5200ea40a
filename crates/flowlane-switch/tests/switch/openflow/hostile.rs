//! Controllers that mean harm: what they may take from the switch, and from each other.

use super::*;

const FLOWS: usize = 900;

fn encoded(message: &Message) -> Vec<u8> {
    Codec::new(Version::OpenFlow13).encode(1, message).unwrap()
}

fn statistics(body: Request) -> Vec<u8> {
    encoded(&Message::MultipartRequest(MultipartRequest { more: false, body }))
}

fn all_flows() -> Vec<u8> {
    statistics(Request::Flow(FlowStatsRequest::all(FlowFormat::Standard)))
}

/// A connection that greets, and sends a request again and again until the switch takes no more.
fn deaf(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(&encoded(&Message::Hello(Hello { versions: Version::OpenFlow13.bit() }))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
    let requests = all_flows().repeat(100);
    while stream.write_all(&requests).is_ok() {}
    stream
}

/// Sends a request again and again, and reads the answers, until the test ends.
fn flood(path: &Path, request: &[u8], ends: &AtomicBool) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(&encoded(&Message::Hello(Hello { versions: Version::OpenFlow13.bit() }))).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
    let (requests, mut chunk) = (request.repeat(50), vec![0; 1 << 20]);
    let mut left = &requests[..];
    while !ends.load(Ordering::Relaxed) {
        if let Ok(sent) = stream.write(left) {
            left = &left[sent..];
        }
        if left.is_empty() {
            left = &requests;
        }
        // Nothing may have come yet.
        _ = stream.read(&mut chunk);
    }
}

/// Ends the floods when dropped, also where the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Silent connections, those that never read, and those that ask without end, a hundred together: the switch forwards, answers
/// others, and holds a bounded number of bytes for them.
#[test]
fn a_hundred_hostile_connections_leave_the_switch_to_others() {
    with_switch(|path, wires| {
        let mut controller = Controller::connect(path, Version::OpenFlow13);
        for n in 0..FLOWS {
            controller.send_change(&format!("add table=1,priority={n},udp,tp_dst={n} actions=output:2"));
        }
        assert_eq!(controller.barrier(), None);
        let (before, ends) = (resident(), AtomicBool::new(false));
        let silent: Vec<_> = (0..68).map(|_| UnixStream::connect(path).unwrap()).collect();
        std::thread::scope(|scope| {
            let ending = Ending(&ends);
            for n in 0..12 {
                let request = match n % 3 {
                    0 => all_flows(),
                    1 => statistics(Request::Table),
                    _ => encoded(&Message::EchoRequest(vec![0; 1000])),
                };
                let ends = &ends;
                scope.spawn(move || flood(path, &request, ends));
            }
            let deaf: Vec<_> = (0..20).map(|_| deaf(path)).collect();
            let begun = Instant::now();
            for n in 0..20 {
                let line = format!("add table=0,priority={n},udp,tp_dst={} actions=output:2", 100 + n);
                assert_eq!(controller.change(&line), None);
                wires.arrive(0, frame(100 + n));
                assert_eq!(wait_for(&wires.left[1]), frame(100 + n));
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            let grown = resident().saturating_sub(before);
            // An answer of the table for each, and 1 MiB of those before.
            assert!(grown < 400 << 20, "{} MiB", grown >> 20);
            drop((ending, silent, deaf));
        });
        assert_eq!(controller.barrier(), None);
    });
}

/// Connections without a greeting give their slots to others.
#[test]
fn more_silent_connections_than_slots_lock_no_controller_out() {
    with_switch(|path, _| {
        let mut controller = Controller::connect(path, Version::OpenFlow13);
        let silent: Vec<_> = (0..300).map(|_| UnixStream::connect(path).unwrap()).collect();
        assert_eq!(Controller::connect(path, Version::OpenFlow15).barrier(), None);
        assert_eq!(controller.barrier(), None);
        drop(silent);
    });
}
