//! Frames that rings alone do not carry: of several buffers, with checksums left to be completed, and whole segments.

use flowlane_switch::packet::Cut;
use flowlane_switch::port::Received;

use super::*;

/// Bytes of Ethernet's, IP's and TCP's headers.
const HEADERS: usize = 54;
const MSS: usize = 1400;
/// Bytes of TCP in a long segment.
const PAYLOAD: usize = 28_000;

/// A TCP segment with this number in the sequence, whose checksum is left to be completed, and which is to be cut if it is long.
fn segment(number: u32, payload: usize) -> Frame {
    let mut key = FlowKey::zero();
    let fields = [
        (Field::EthSrc, 2),
        (Field::EthDst, 4),
        (Field::EthType, 0x0800),
        (Field::NwProto, 6),
        (Field::NwTtl, 64),
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a01_0001),
        (Field::TpSrc, 7),
        (Field::TpDst, 9),
    ];
    fields.into_iter().for_each(|(field, value): (Field, u128)| key.set(field, value));
    let (mut bytes, mut frame) = (Vec::new(), Frame::default());
    build_frame(&key, HEADERS + payload, &mut bytes);
    bytes.resize(HEADERS + payload, 0);
    let len = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&len.to_be_bytes());
    bytes[24..26].fill(0);
    let checksum = !sum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes[38..42].copy_from_slice(&number.to_be_bytes());
    (bytes[46], bytes[47]) = (0x50, 0x10);
    for (n, byte) in bytes[HEADERS..].iter_mut().enumerate() {
        *byte = (n % 251) as u8 ^ number as u8;
    }
    let len = (bytes.len() - 34) as u16;
    let pseudo = sum(&[&bytes[26..34], &[0, 6], &len.to_be_bytes()].concat());
    bytes[50..52].copy_from_slice(&pseudo.to_be_bytes());
    frame.fill(&bytes);
    let cut = Cut { kind: 1, size: MSS as u16, headers: HEADERS as u16 };
    frame.offload = Some(Offload { checksum: Some((34, 16)), cut: (payload > MSS).then_some(cut) });
    frame
}

/// The frame with its checksum completed.
fn finished(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.bytes().to_vec();
    let mut out = Vec::new();
    assert!(frame.offload.unwrap().finish(&mut bytes, |piece| out = piece.to_vec()));
    out
}

/// Receives frames, with their offload metadata, until `wanted` have arrived.
fn receive_frames(port: &mut impl Port, wanted: usize) -> Vec<(Vec<u8>, Option<Offload>)> {
    let (mut frames, mut out, begun) = (Frames::new(32), Vec::new(), Instant::now());
    while out.len() < wanted && begun.elapsed() < Duration::from_secs(5) {
        frames.clear();
        port.receive(&mut frames).unwrap();
        out.extend(frames.iter().map(|frame| (frame.bytes().to_vec(), frame.offload)));
    }
    out
}

#[test]
fn frames_longer_than_a_buffer_pass_both_ways() {
    let Some([x]) = pairs(["jx"]) else { return };
    assert!(x.ends.iter().all(|end| ip(&format!("link set {end} mtu 9000"))));
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    for mode in [XdpMode::Native, XdpMode::Skb] {
        let mut port = AfXdpPort::open_all(&x.ends[0], mode, 1).unwrap().remove(0);
        if !port.status().unwrap().features.several_buffers {
            return println!("skipped: several buffers a frame need Linux 6.6");
        }
        let frames: Vec<Frame> = (0..300u32)
            .map(|n| {
                let mut bytes = frame(n, false).bytes().to_vec();
                bytes.resize([80, 1500, 3800, 4032, 4033, 4096, 8064, 8065, 9014][n as usize % 9], n as u8);
                let mut sized = Frame::default();
                sized.fill(&bytes);
                sized
            })
            .collect();
        for frames in frames.chunks(20) {
            let bytes: Vec<&[u8]> = frames.iter().map(Frame::bytes).collect();
            assert!(frames.iter().all(|frame| peer.send(frame).unwrap()) && peer.flush().unwrap() == 0);
            assert!(receive(&mut port, 20) == bytes, "{mode:?}: in");
            assert!(frames.iter().all(|frame| port.send(frame).unwrap()) && port.flush().unwrap() == 0);
            assert!(receive(&mut peer, 20) == bytes, "{mode:?}: out");
        }
        assert_eq!(port.rx_dropped(), 0);
        // Longer than any frame of the kernel: refused, and the rest goes out.
        let mut long = Frame::default();
        long.space(70_000).fill(7);
        assert!(!port.send(&long).unwrap() && send(&mut port, &frames[0]));
        assert_eq!(receive(&mut peer, 1).len(), 1);
    }
}

#[test]
fn checksums_are_left_to_the_kernel_or_finished() {
    let Some([x]) = pairs(["cx"]) else { return };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    let mut port = AfXdpPort::open_all(&x.ends[0], XdpMode::Auto, 1).unwrap().remove(0);
    let frames: Vec<Frame> = (0..100).map(|n| segment(n, n as usize * 14)).collect();
    let whole: Vec<Vec<u8>> = frames.iter().map(finished).collect();
    for keeps in [false, true] {
        port.keep_offloads(keeps);
        assert!(frames.iter().all(|frame| peer.send(frame).unwrap()) && peer.flush().unwrap() == 0);
        let came = receive_frames(&mut port, frames.len());
        for ((frame, whole), (bytes, offload)) in frames.iter().zip(&whole).zip(&came) {
            assert_eq!(*offload, frame.offload.filter(|_| keeps));
            assert!(bytes == if keeps { frame.bytes() } else { whole });
        }
        assert_eq!(came.len(), frames.len());
    }
    if !port.carries_offloads() {
        return println!("skipped: metadata of frames that leave needs Linux 6.8");
    }
    assert!(frames.iter().all(|frame| port.send(frame).unwrap()) && port.flush().unwrap() == 0);
    assert!(receive(&mut peer, whole.len()) == whole);
}

#[test]
fn whole_segments_leave_between_others_in_order() {
    let Some([x]) = pairs(["wx"]) else { return };
    for workers in [1, 2] {
        let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
        let mut ports = AfXdpPort::open_all(&x.ends[0], XdpMode::Auto, workers).unwrap();
        let port = &mut ports[0];
        if !port.carries_offloads() {
            return println!("skipped: metadata of frames that leave needs Linux 6.8");
        }
        peer.keep_offloads(true);
        let frames: Vec<Frame> =
            (0..60).map(|n| segment(n, [10, 20_000, 1400, 60_000, 1401][n as usize % 5])).collect();
        for frame in &frames {
            assert!(port.send(frame).unwrap());
        }
        assert_eq!(port.flush().unwrap(), 0);
        let came = receive_frames(&mut peer, frames.len());
        assert!(came.len() == frames.len(), "{}", came.len());
        for (frame, (bytes, offload)) in frames.iter().zip(&came) {
            // The kernel may describe headers otherwise.
            let size = |offload: Option<Offload>| offload.and_then(|o| o.cut).map(|cut| cut.size);
            assert!(bytes == frame.bytes() && size(*offload) == size(frame.offload));
        }
    }
}

/// The sequence number of a TCP frame.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[38..42].try_into().unwrap())
}

#[test]
fn much_tcp_comes_as_whole_segments_and_in_order_before_and_after() {
    let Some([x]) = pairs(["tx"]) else { return };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    let mut ports = AfXdpPort::open_all(&x.ends[0], XdpMode::Auto, 1).unwrap();
    let port = &mut ports[0];
    port.keep_offloads(true);
    let (mut next, mut last, mut frames) = (1, 0, Frames::new(64));
    // Made once: a debug build on a busy machine reaches the rate of much TCP only if a segment costs it little.
    let (mut bulk, mut short) = (segment(0, PAYLOAD), segment(0, 10));
    // Sends much at once, or a short segment, and receives all that have come; returns the length of the longest frame.
    let mut round = |port: &mut AfXdpPort, is_bulk: bool| {
        let (segment, count) = if is_bulk { (&mut bulk, 32) } else { (&mut short, 1) };
        for _ in 0..count {
            segment.bytes_mut()[38..42].copy_from_slice(&u32::to_be_bytes(next));
            _ = peer.send(segment).unwrap();
            next += segment.len() as u32;
        }
        _ = peer.flush().unwrap();
        let mut longest = 0;
        loop {
            frames.clear();
            let received = port.receive(&mut frames).unwrap();
            for frame in frames.iter() {
                assert!(number(frame.bytes()) > last, "{} after {last}", number(frame.bytes()));
                last = number(frame.bytes());
                longest = longest.max(frame.len());
            }
            if received != Received::More {
                return longest;
            }
        }
    };
    for _ in 0..2 {
        let begun = Instant::now();
        assert!(has_program(&x.ends[0]));
        while round(port, true) < 20_000 {
            assert!(begun.elapsed() < Duration::from_secs(5), "segments are whole");
        }
        while !port.status().unwrap().is_detached {
            round(port, true);
        }
        assert!(!has_program(&x.ends[0]));
        let begun = Instant::now();
        while port.status().unwrap().is_detached {
            assert!(begun.elapsed() < Duration::from_secs(10), "the program is back");
            round(port, false);
        }
        // For a while the socket is looked into.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            round(port, false);
        }
    }
    // A run that ends while the program is detached receives all that came.
    while round(port, true) < 20_000 {}
    assert!(send(&mut peer, &segment(next, PAYLOAD)));
    assert!(port.stop_arrivals());
    assert!(send(&mut peer, &segment(next + 28_000, PAYLOAD)));
    let rest = receive_rest(port);
    assert!(rest.len() == 1 && number(&rest[0]) == next, "{}", rest.len());
}

#[test]
fn a_generic_program_drops_segments_that_do_not_say_into_what_they_are_to_be_cut() {
    let Some([x]) = pairs(["dx"]) else { return };
    let mut peer = AfPacketPort::open(&x.ends[1]).unwrap();
    let mut port = AfXdpPort::open_all(&x.ends[0], XdpMode::Skb, 1).unwrap().remove(0);
    port.keep_offloads(true);
    for payload in [10, 28_000, 1400] {
        assert!(send(&mut peer, &segment(payload as u32, payload)));
    }
    let came = receive_frames(&mut port, 2);
    assert!(came.iter().map(|(bytes, _)| number(bytes)).eq([10, 1400]));
    receive_rest(&mut port);
    assert_eq!(port.rx_dropped(), 1);
}
