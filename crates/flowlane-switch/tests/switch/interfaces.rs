//! Interfaces of the system as ports: veth pairs, both ends of which the test has. Skipped without root and iproute2.
#![cfg(target_os = "linux")]

mod segments;

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::time::{Duration, Instant};

use flowlane::generate::build_frame;
use flowlane::packet::{Field, FlowKey};
use flowlane_switch::packet::{Frame, Frames, Offload};
use flowlane_switch::port::afpacket::AfPacketPort;
use flowlane_switch::port::afxdp::AfXdpPort;
use flowlane_switch::port::{Port, PortSpec, XdpMode};

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|done| done.status.success())
}

/// A veth pair, deleted on drop.
struct Pair {
    ends: [String; 2],
    queues: u32,
}

impl Pair {
    fn new(name: &str) -> Option<Self> {
        Self::with_queues(name, 1)
    }

    fn with_queues(name: &str, queues: u32) -> Option<Self> {
        let ends = ["a", "b"].map(|end| format!("fl{name}{end}{}", std::process::id() % 10_000));
        let pair = Self { ends, queues };
        pair.make().then_some(pair)
    }

    fn make(&self) -> bool {
        let [a, b] = &self.ends;
        // Only this test may send on it.
        let quiet = |end: &String| {
            let path = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
            // Without IPv6 there is nothing to turn off.
            _ = std::fs::write(path, "1");
            ip(&format!("link set {end} up"))
        };
        ip(&format!(
            "link add {a} numrxqueues {n} numtxqueues {n} type veth peer name {b} numrxqueues {n} numtxqueues {n}",
            n = self.queues
        )) && quiet(a)
            && quiet(b)
            && self.is_up()
    }

    /// Waits until frames pass: for a moment after `up` the kernel accepts frames and drops them.
    fn is_up(&self) -> bool {
        let state = |end| std::fs::read_to_string(format!("/sys/class/net/{end}/operstate"));
        let is_up = |end| state(end).is_ok_and(|state| state.trim() == "up");
        let begun = Instant::now();
        while !self.ends.iter().all(is_up) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        // The state is reported just before the queues are created; a request waits for the change in progress.
        self.ends.iter().all(|end| ip(&format!("link set {end} up")))
    }

    fn delete(&self) {
        ip(&format!("link delete {}", self.ends[0]));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Creates pairs with these names; `None` if it cannot.
fn pairs<const N: usize>(names: [&str; N]) -> Option<[Pair; N]> {
    let pairs: Vec<Pair> = names.iter().map_while(|name| Pair::new(name)).collect();
    let pairs = pairs.try_into().ok();
    if pairs.is_none() {
        println!("skipped: virtual pairs need root and iproute2");
    }
    pairs
}

/// Builds a UDP packet of a flow, in either direction.
fn frame(flow: u32, back: bool) -> Frame {
    let mut key = FlowKey::zero();
    let mut ends = [(0x0a00_0001 + flow % 5, 1000 + flow), (0x0a01_0001, 53)];
    if back {
        ends.reverse();
    }
    let [(source, from), (destination, to)] = ends;
    let fields = [
        (Field::EthSrc, 2),
        (Field::EthDst, 4),
        (Field::EthType, 0x0800),
        (Field::NwProto, 17),
        (Field::NwTtl, 64),
        (Field::Ipv4Src, source.into()),
        (Field::Ipv4Dst, destination.into()),
        (Field::TpSrc, from.into()),
        (Field::TpDst, to.into()),
    ];
    fields.into_iter().for_each(|(field, value): (Field, u128)| key.set(field, value));
    let (mut bytes, mut frame) = (Vec::new(), Frame::default());
    build_frame(&key, 80, &mut bytes);
    frame.fill(&bytes);
    frame
}

fn send(port: &mut impl Port, frame: &Frame) -> bool {
    port.send(frame).unwrap() && port.flush().unwrap() == 0
}

/// If no frame arrives for this long, none is in flight.
const A_WHILE: Duration = Duration::from_millis(80);

/// Receives until `wanted` frames have arrived, however busy the machine is.
fn receive(port: &mut impl Port, wanted: usize) -> Vec<Vec<u8>> {
    receive_within(port, wanted, Duration::from_secs(5))
}

/// Receives until no frame arrives for a while.
fn receive_rest(port: &mut (impl Port + ?Sized)) -> Vec<Vec<u8>> {
    receive_within(port, usize::MAX, A_WHILE)
}

/// Receives until `wanted` frames have arrived, or none for `patience`.
fn receive_within(port: &mut (impl Port + ?Sized), wanted: usize, patience: Duration) -> Vec<Vec<u8>> {
    let (mut frames, mut out) = (Frames::new(32), Vec::new());
    let mut last = Instant::now();
    while out.len() < wanted && last.elapsed() < patience {
        frames.clear();
        port.receive(&mut frames).unwrap();
        if !frames.is_empty() {
            last = Instant::now();
            out.extend(frames.iter().map(|frame| frame.bytes().to_vec()));
        }
    }
    out
}

#[test]
fn both_directions_of_a_flow_come_to_one_worker_whatever_interface_they_come_through() {
    let Some([x, y]) = pairs(["sx", "sy"]) else { return };
    const FLOWS: u32 = 200;
    for workers in [2, 4] {
        let mut ports = [&x, &y].map(|pair| AfPacketPort::open_all(&pair.ends[0], workers).unwrap());
        let mut peers = [&x, &y].map(|pair| AfPacketPort::open(&pair.ends[1]).unwrap());
        for (peer, back) in peers.iter_mut().zip([false, true]) {
            assert!((0..FLOWS).all(|flow| send(peer, &frame(flow, back))));
        }
        let mut worker_of: [HashMap<Vec<u8>, usize>; 2] = Default::default();
        for (ports, workers) in ports.iter_mut().zip(&mut worker_of) {
            for (worker, port) in ports.iter_mut().enumerate() {
                for bytes in receive_rest(port) {
                    assert_eq!(workers.insert(bytes, worker), None, "it comes once");
                }
            }
        }
        let mut spread: BTreeMap<usize, u32> = BTreeMap::new();
        for flow in 0..FLOWS {
            let [there, back] = [false, true].map(|back| frame(flow, back).bytes().to_vec());
            let worker = worker_of[0].get(&there).expect("nothing is lost");
            assert_eq!(worker_of[1].get(&back), Some(worker), "flow {flow} of {workers} workers");
            *spread.entry(*worker).or_default() += 1;
        }
        assert_eq!(spread.len(), workers, "{spread:?}");
        // Sent frames are not received again.
        assert!(send(&mut ports[0][1], &frame(7, true)));
        assert_eq!(receive(&mut peers[0], 1).len(), 1);
        assert!(ports[0].iter_mut().all(|port| receive_rest(port).is_empty()));
    }
}

/// Returns whether frames go both ways within a second.
fn goes(port: &mut [impl Port], end: &str) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        // The other end is new, too.
        let Ok(mut peer) = AfPacketPort::open(end) else { continue };
        let sent = send(&mut peer, &frame(1, false));
        let came = port.iter_mut().any(|port| !receive_within(port, 1, A_WHILE).is_empty());
        let back = sent && came && send(&mut port[0], &frame(2, true));
        if back && !receive_within(&mut peer, 1, A_WHILE).is_empty() {
            return true;
        }
    }
    false
}

#[test]
fn an_interface_that_comes_back_goes_on_and_others_lose_nothing() {
    let Some([x, y]) = pairs(["gx", "gy"]) else { return };
    for workers in [1, 2] {
        let mut port = AfPacketPort::open_all(&x.ends[0], workers).unwrap();
        let mut other = AfPacketPort::open(&y.ends[0]).unwrap();
        let mut peer = AfPacketPort::open(&y.ends[1]).unwrap();
        let mut sent = 0;
        let mut traffic =
            |n: u32| (0..n).for_each(|i| sent += usize::from(send(&mut peer, &frame(i, false))));
        assert!(goes(&mut port, &x.ends[1]));
        // Down and up.
        for _ in 0..10 {
            ip(&format!("link set {} down", x.ends[0]));
            traffic(5);
            assert!(port.iter_mut().all(|port| receive_rest(port).is_empty()));
            assert!(!send(&mut port[0], &frame(3, false)), "no interface accepts it");
            ip(&format!("link set {} up", x.ends[0]));
        }
        assert!(goes(&mut port, &x.ends[1]), "up again, {workers} workers");
        // Gone, and made again.
        for _ in 0..3 {
            x.delete();
            traffic(5);
            assert!(port.iter_mut().all(|port| receive_rest(port).is_empty()));
            assert!(!send(&mut port[0], &frame(3, false)), "no interface accepts it");
            assert!(x.make());
            assert!(goes(&mut port, &x.ends[1]), "made again, {workers} workers");
        }
        assert_eq!(receive(&mut other, sent).len(), sent, "{workers} workers");
        assert!(receive_rest(&mut other).is_empty());
    }
}

#[test]
fn what_is_too_long_for_an_interface_is_dropped_and_the_rest_goes_out() {
    let Some([x]) = pairs(["mx"]) else { return };
    let mut port = AfPacketPort::open(&x.ends[0]).unwrap();
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    let mut long = Frame::default();
    long.fill(&[frame(1, false).bytes(), &[0; 3000]].concat());
    for frame in [&frame(1, false), &long, &frame(2, false)] {
        assert!(port.send(frame).unwrap());
    }
    assert_eq!(port.flush().unwrap(), 1);
    assert_eq!(receive(&mut peer, 2).len(), 2);
    assert!(receive_rest(&mut peer).is_empty());
}

/// The ones'-complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let once = (sum & 0xffff) + (sum >> 16);
    (once + (once >> 16)) as u16
}

/// Datagrams with consecutive identifications, whose checksums the sender must complete: the kernel segments those sent
/// to it as one (UDP GSO), since an interface with an XDP program takes none of these.
#[test]
fn datagrams_that_go_to_the_kernel_as_one_come_as_they_were() {
    let Some([x]) = pairs(["xt"]) else { return };
    let mut peer = AfXdpPort::open_all(&x.ends[1], XdpMode::Native, 1).unwrap().remove(0);
    let mut port = AfPacketPort::open(&x.ends[0]).unwrap();
    let numbered = |id: u16| {
        let mut bytes = frame(1 + u32::from(id) / 100, false).bytes().to_vec();
        bytes[18..20].copy_from_slice(&id.to_be_bytes());
        bytes[24..26].fill(0);
        let checksum = !sum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        bytes
    };
    let whole: Vec<Vec<u8>> = (0..500).map(numbered).collect();
    for bytes in &whole {
        let mut left = Frame::default();
        left.fill(bytes);
        let len = (bytes.len() - 34) as u16;
        let pseudo = sum(&[&bytes[26..34], &[0, 17], &len.to_be_bytes()].concat());
        left.bytes_mut()[40..42].copy_from_slice(&pseudo.to_be_bytes());
        left.offload = Some(Offload { checksum: Some((34, 6)), cut: None });
        assert!(port.send(&left).unwrap());
    }
    assert_eq!(port.flush().unwrap(), 0);
    assert!(receive(&mut peer, whole.len()) == whole);
}

#[test]
fn what_the_kernel_has_no_room_for_is_counted_as_lost() {
    let Some([x]) = pairs(["xl"]) else { return };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    let mut port = AfPacketPort::open(&x.ends[0]).unwrap();
    let frame = frame(1, false);
    let sent = 200_000;
    assert!((0..sent).all(|_| send(&mut peer, &frame)));
    let (mut received, mut lost, mut frames) = (0, 0, Frames::new(32));
    let begun = Instant::now();
    while received + lost < sent && begun.elapsed() < Duration::from_secs(10) {
        frames.clear();
        port.receive(&mut frames).unwrap();
        received += frames.len() as u64;
        lost += port.rx_dropped();
    }
    assert!(received > 0 && lost > 0, "{received} received, {lost} lost");
    assert_eq!(received + lost, sent);
}

/// Returns whether an interface has an XDP program.
fn has_program(interface: &str) -> bool {
    let shown =
        Command::new("ip").args(["link", "show", interface]).output().expect("it has been run before");
    String::from_utf8_lossy(&shown.stdout).contains("xdp")
}

#[test]
fn frames_pass_by_the_network_stack_both_ways_whole_and_in_order() {
    let Some([x]) = pairs(["xx"]) else { return };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    for mode in [XdpMode::Auto, XdpMode::Skb, XdpMode::Native] {
        let mut port = AfXdpPort::open_all(&x.ends[0], mode, 1).unwrap().remove(0);
        assert!(has_program(&x.ends[0]));
        let frames: Vec<Frame> = (0..1500u32)
            .map(|n| {
                let mut sized = Frame::default();
                let mut bytes = frame(n, false).bytes().to_vec();
                bytes.resize(80 + n as usize % 1434, n as u8);
                sized.fill(&bytes);
                sized
            })
            .collect();
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes().to_vec()).collect();
        for (frames, bytes) in frames.chunks(60).zip(bytes.chunks(60)) {
            assert!(frames.iter().all(|frame| peer.send(frame).unwrap()) && peer.flush().unwrap() == 0);
            assert!(receive(&mut port, 60) == bytes, "{mode:?}: in");
            assert!(frames.iter().all(|frame| port.send(frame).unwrap()) && port.flush().unwrap() == 0);
            assert!(receive(&mut peer, 60) == bytes, "{mode:?}: out");
        }
        assert_eq!(port.rx_dropped(), 0);
        // More at once than the rings hold: what finds no room is not taken.
        let taken = (0..5000).filter(|_| port.send(&frames[7]).unwrap()).count();
        assert!(taken >= 2000, "{taken}");
        assert_eq!(port.flush().unwrap(), 0);
        receive_rest(&mut peer);
        // A second opener of the interface gets an error.
        let second = AfXdpPort::open_all(&x.ends[0], mode, 1).err().unwrap().to_string();
        assert!(second.contains("something else has a program"), "{second}");
        drop(port);
        assert!(!has_program(&x.ends[0]), "{mode:?}");
    }
    let refused = AfXdpPort::open_all(&x.ends[0], XdpMode::ZeroCopy, 1).err().unwrap().to_string();
    assert!(refused.contains("no mode `zerocopy`"), "{refused}");
}

#[test]
fn each_worker_has_receive_queues_of_its_own_or_the_first_has_all() {
    let Some(x) = Pair::with_queues("qx", 2) else {
        return println!("skipped: virtual pairs need root and iproute2");
    };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    for workers in [1, 2, 3] {
        let spec: PortSpec = format!("afxdp:{}", x.ends[0]).parse().unwrap();
        let mut ports = spec.open_all(workers).unwrap();
        assert_eq!(ports.len(), workers);
        (0..300).for_each(|flow| assert!(send(&mut peer, &frame(flow, false))));
        let (mut came, mut frames, begun) = (0, Frames::new(64), Instant::now());
        while came < 300 && begun.elapsed() < Duration::from_secs(5) {
            for port in &mut ports {
                frames.clear();
                port.receive(&mut frames).unwrap();
                came += frames.len();
            }
        }
        assert_eq!(came, 300);
        assert!(ports.iter_mut().all(|port| receive_rest(&mut **port).is_empty()));
        // All can send.
        for port in &mut ports {
            assert!(port.send(&frame(1, true)).unwrap() && port.flush().unwrap() == 0);
        }
        assert_eq!(receive(&mut peer, workers).len(), workers);
    }
}

#[test]
fn an_interface_with_a_program_that_comes_back_goes_on() {
    let Some([x]) = pairs(["bx"]) else { return };
    let mut port = AfXdpPort::open_all(&x.ends[0], XdpMode::Auto, 1).unwrap();
    assert!(goes(&mut port, &x.ends[1]));
    for _ in 0..3 {
        ip(&format!("link set {} down", x.ends[0]));
        ip(&format!("link set {} up", x.ends[0]));
        assert!(goes(&mut port, &x.ends[1]), "up again");
        x.delete();
        assert!(receive_rest(&mut port[0]).is_empty());
        _ = send(&mut port[0], &frame(3, false));
        assert!(x.make());
        assert!(goes(&mut port, &x.ends[1]), "made again");
    }
}

#[test]
fn a_port_that_only_sends_follows_its_interface() {
    let Some([x]) = pairs(["sx"]) else { return };
    for kind in ["afpacket", "afxdp"] {
        let spec: PortSpec = format!("{kind}:{}", x.ends[0]).parse().unwrap();
        let mut ports = spec.open_all(2).unwrap();
        x.delete();
        assert!(x.make());
        let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
        let begun = Instant::now();
        for (flow, port) in (0..).zip(&mut ports) {
            while receive_within(&mut peer, 1, Duration::from_millis(20)).is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(5), "{kind}");
                port.check();
                _ = port.send(&frame(flow, false)).unwrap() && port.flush().unwrap() == 0;
            }
            receive_rest(&mut peer);
        }
    }
}
