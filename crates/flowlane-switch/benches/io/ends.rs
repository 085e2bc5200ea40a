//! The ends: they send, receive or echo.

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

const PORT: u16 = 7077;
/// The payload of a 64-byte frame (FCS included).
const PAYLOAD: usize = 18;
/// Bytes of the receive buffer.
const ROOM: usize = 64 << 20;
/// The pause between round trips.
const APART: Duration = Duration::from_millis(2);

/// The role of an end, and its duration in seconds. Results go to standard output.
pub(crate) enum Role {
    /// Sends packets at full speed; prints their number.
    UdpSend(Ipv4Addr, u64),
    /// Prints the number of packets received.
    UdpReceive(u64),
    /// Sends bytes at full speed over this many connections.
    TcpSend(Ipv4Addr, u64, usize),
    /// Prints the number of bytes received over this many connections.
    TcpReceive(u64, usize),
    /// Prints round-trip times in µs: median and 99th percentile.
    Ping(Ipv4Addr, u64),
    /// Echoes packets.
    Echo(u64),
}

impl Role {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let nowhere = Ipv4Addr::UNSPECIFIED;
        let (name, to, seconds, streams) = match *self {
            Role::UdpSend(to, seconds) => ("udp-send", to, seconds, 1),
            Role::UdpReceive(seconds) => ("udp-receive", nowhere, seconds, 1),
            Role::TcpSend(to, seconds, streams) => ("tcp-send", to, seconds, streams),
            Role::TcpReceive(seconds, streams) => ("tcp-receive", nowhere, seconds, streams),
            Role::Ping(to, seconds) => ("ping", to, seconds, 1),
            Role::Echo(seconds) => ("echo", nowhere, seconds, 1),
        };
        vec![name.to_owned(), to.to_string(), seconds.to_string(), streams.to_string()]
    }

    pub(crate) fn read(arguments: &[String]) -> Option<Self> {
        let [name, to, seconds, streams] = arguments else { return None };
        let (to, seconds, streams) = (to.parse().ok()?, seconds.parse().ok()?, streams.parse().ok()?);
        Some(match name.as_str() {
            "udp-send" => Role::UdpSend(to, seconds),
            "udp-receive" => Role::UdpReceive(seconds),
            "tcp-send" => Role::TcpSend(to, seconds, streams),
            "tcp-receive" => Role::TcpReceive(seconds, streams),
            "ping" => Role::Ping(to, seconds),
            "echo" => Role::Echo(seconds),
            _ => return None,
        })
    }
}

fn socket(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("nobody else has the port");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("it is not zero");
    // Buffers packets while the receiver has no core: only the path to it is measured.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, ROOM).expect("root may");
    socket
}

/// Returns the bytes of this number of TCP streams, which others begin and end.
fn received_by_tcp(streams: usize) -> usize {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("the port is free");
    let receive = |mut stream: TcpStream| {
        let (mut bytes, mut came) = (vec![0; 1 << 18], 0);
        while let Ok(some @ 1..) = stream.read(&mut bytes) {
            came += some;
        }
        came
    };
    std::thread::scope(|scope| {
        let accepted = (0..streams).map(|_| listener.accept().expect("a sender connects").0);
        let threads: Vec<_> = accepted.map(|stream| scope.spawn(move || receive(stream))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    })
}

pub(crate) fn run_role(role: Role) {
    let begun = Instant::now();
    let is_over = |seconds: u64| begun.elapsed() >= Duration::from_secs(seconds);
    match role {
        Role::UdpSend(to, seconds) => {
            let (from, mut sent) = (socket(0), 0u64);
            from.connect((to, PORT)).expect("there is a route");
            let (payload, mut none) = ([7; PAYLOAD], [(); 64].map(|()| SendAncillaryBuffer::default()));
            while !is_over(seconds) {
                let parts = [IoSlice::new(&payload)];
                let mut packets: Vec<_> = none.iter_mut().map(|none| MMsgHdr::new(&parts, none)).collect();
                // Early refusals by the other end are errors here.
                sent += sendmmsg(&from, &mut packets, SendFlags::empty()).unwrap_or(0) as u64;
            }
            println!("{sent}");
        }
        Role::UdpReceive(seconds) => {
            let (at, mut came) = (socket(PORT), 0u64);
            while !is_over(seconds) {
                came += (0..64).filter(|_| at.recv(&mut [0; 64]).is_ok()).count() as u64;
            }
            println!("{came}");
        }
        Role::TcpSend(to, seconds, streams) => std::thread::scope(|scope| {
            for _ in 0..streams {
                let mut stream = TcpStream::connect((to, PORT)).expect("the receiver listens");
                scope.spawn(move || {
                    let bytes = vec![7; 1 << 18];
                    while !is_over(seconds) && stream.write_all(&bytes).is_ok() {}
                });
            }
        }),
        Role::TcpReceive(_, streams) => println!("{}", received_by_tcp(streams)),
        Role::Ping(to, seconds) => {
            let (from, mut trips) = (socket(0), Vec::new());
            from.connect((to, PORT)).expect("there is a route");
            while !is_over(seconds) {
                let sent = Instant::now();
                _ = from.send(&[7; PAYLOAD]);
                if from.recv(&mut [0; 64]).is_ok() {
                    trips.push(sent.elapsed().as_secs_f64() * 1e6);
                }
                std::thread::sleep(APART);
            }
            // The first includes ARP.
            trips = trips.split_off(trips.len().min(1));
            trips.sort_by(f64::total_cmp);
            let at =
                |share: f64| trips.get((trips.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
            println!("{} {}", at(0.5), at(0.99));
        }
        Role::Echo(seconds) => {
            let at = socket(PORT);
            while !is_over(seconds) {
                let mut bytes = [0; 64];
                if let Ok((len, from)) = at.recv_from(&mut bytes) {
                    _ = at.send_to(&bytes[..len], from);
                }
            }
        }
    }
}
