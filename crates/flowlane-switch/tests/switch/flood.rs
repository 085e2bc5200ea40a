//! A flood of connections that are never answered, beside connections that are in use: these lose nothing.

use std::collections::HashSet;
use std::time::Instant;

use etherparse::{PacketBuilder, TcpHeader};
use flowlane_switch::datapath::Worker;
use flowlane_switch::mgmt::setup::Setup;
use flowlane_switch::port::{MemoryHandle, MemoryPort};
use flowlane_switch::state::conntrack::{State, Wanted};

/// Established connections.
const CONNECTIONS: u32 = 10_000;

/// New connections, at one each microsecond: a million a second.
const FLOOD: u32 = 120_000;

/// Room for connections: much less than the flood has.
const ROOM: u32 = 40_000;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let mut header = TcpHeader::new(from.1, to.1, numbers.0, 64_000);
    (header.syn, header.ack) = (flags & SYN != 0, flags & ACK != 0);
    header.acknowledgment_number = numbers.1;
    let builder = PacketBuilder::ethernet2(macs[0], macs[1]).ipv4(from.0, to.0, 64).tcp_header(header);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[]).unwrap();
    frame
}

/// A switch with a firewall between two ports.
fn firewall(folder: &std::path::Path) -> (Worker, [MemoryHandle; 2]) {
    let file = folder.join("switch.toml");
    let text = format!(
        "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"null\"\n[[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\n\
         [connections]\nconnections_max = {ROOM}\n\
         [firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\nallow = [\"outgoing\", \"in tcp 80\"]\n"
    );
    std::fs::write(&file, text).unwrap();
    let setup = Setup::read(&file).unwrap();
    let mut worker = setup.open(7).unwrap();
    let mut handles = worker.egress.ports.slots_mut().iter_mut().map(|slot| {
        let (port, handle) = MemoryPort::new();
        slot.port = Box::new(port);
        handle
    });
    let handles = [handles.next().unwrap(), handles.next().unwrap()];
    (worker, handles)
}

/// The ends of a connection in use.
fn client(n: u32) -> ([u8; 4], u16) {
    ([10, 0, (n >> 13) as u8, 5], 1024 + (n % 8192) as u16)
}

const SERVER: ([u8; 4], u16) = ([203, 0, 113, 80], 443);

#[test]
fn a_flood_of_connections_takes_nothing_from_those_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (mut worker, ports) = firewall(folder.path());
    let mut now_ns = 1_000_000_000u64;
    let mut receive = |worker: &mut Worker, port: usize, frames: &[Vec<u8>]| {
        let timed = frames.iter().enumerate().map(|(n, frame)| (now_ns + 1_000 * n as u64, &frame[..]));
        worker.inject_at(port, timed).unwrap();
        now_ns += 1_000 * frames.len() as u64;
    };
    for n in 0..CONNECTIONS {
        receive(&mut worker, 0, &[segment(client(n), SERVER, SYN, (100, 0))]);
        receive(&mut worker, 1, &[segment(SERVER, client(n), SYN | ACK, (900, 101))]);
        receive(&mut worker, 0, &[segment(client(n), SERVER, ACK, (101, 901))]);
    }
    ports.iter().for_each(|port| _ = port.take_sent());
    let begun = Instant::now();
    let (mut in_use, mut passed) = (0, 0);
    for at in (0..FLOOD).step_by(30) {
        // Each from another source, to a port that is allowed.
        let flood: Vec<Vec<u8>> = (at..at + 30)
            .map(|n| {
                let source = n.wrapping_mul(2_654_435_761);
                let from = (
                    [11 + (source >> 25) as u8, (source >> 16) as u8, (source >> 8) as u8, 7],
                    source as u16 | 1,
                );
                segment(from, ([10, 0, 0, 5], 80), SYN, (n, 0))
            })
            .collect();
        receive(&mut worker, 1, &flood);
        // Each tenth packet is of a connection in use.
        let own = |n: u32| (at / 30 * 3 + n) % CONNECTIONS;
        receive(&mut worker, 0, &[0, 1].map(|n| segment(client(own(n)), SERVER, ACK, (101, 901))));
        receive(&mut worker, 1, &[segment(SERVER, client(own(2)), ACK, (901, 101))]);
        in_use += 3;
        passed += ports[1].take_sent().len();
        passed += ports[0].take_sent().iter().filter(|frame| frame[26..30] == SERVER.0).count();
    }
    let took = begun.elapsed();
    let connections = &worker.egress.connections;
    let (mut kept, mut established) = (HashSet::new(), 0);
    connections.for_each(&Wanted::default(), now_ns / 1_000_000, |listed| {
        if listed.original.destination.port == SERVER.1 && matches!(listed.state, State::Tcp(_)) {
            established += 1;
            kept.insert(listed.original);
        }
        true
    });
    println!(
        "{FLOOD} connections in {:.2} s of the packets' time and {took:?}: {passed} of {in_use} packets of connections in use passed, \
         {established} of {CONNECTIONS} connections were kept, {} are there",
        f64::from(FLOOD) / 1e6,
        connections.len()
    );
    assert_eq!((passed, established, kept.len()), (in_use, CONNECTIONS, CONNECTIONS as usize));
    assert!(connections.len() <= ROOM as usize && connections.len() > ROOM as usize / 2);
}
