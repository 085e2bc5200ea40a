//! Ports that are tunnels over the system's network: its routes, neighbours, path MTU and IPsec are those of the tunnels, as under
//! the kernel's own datapath of Open vSwitch. Those behind UDP need no permission, GRE needs CAP_NET_RAW.
//!
//! ```text
//! port to A ─┐                      ┌─ sockets that send, of UDP by flow
//! port to B ─┼─ Underlay (Carrier) ─┤
//! port to C ─┘    a queue for each  └─ sockets that receive, for IPv4 and IPv6
//! ```
//!
//! A *carrier* is a UDP port, or IP's protocol GRE. All ports of one share an *underlay*. Whichever is asked first receives for
//! all of them; [`PortTunnelSpec::precedence`] says whose a packet is. Ports carry whole frames: outer headers, written again
//! of what the system says of a datagram, are in front of received ones, and are taken off frames to be sent. Senders of packets that
//! are too long hear of it (`too_long`).

mod members;
mod outbound;
mod socket;
mod too_long;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::interface::{Checks, Watch};
use super::{Port, PortError, Received, permission};
use crate::packet::{Frame, Frames};
use crate::tunnel::PortTunnelSpec;
use members::Members;
use outbound::Outbound;
use socket::{Carrier, Inbound};
use too_long::TooLong;

/// The underlays of this process.
static UNDERLAYS: Mutex<BTreeMap<Carrier, Weak<Underlay>>> = Mutex::new(BTreeMap::new());

/// Sockets that were empty are not asked again for this long: a worker asks all its ports, one after the other.
const RESTS: Duration = Duration::from_micros(10);

/// The ports of a carrier, with its sockets.
#[derive(Debug)]
struct Underlay {
    carrier: Carrier,
    /// Readable while datagrams wait in sockets, or frames in queues.
    watch: Watch,
    /// Readable while frames wait in queues.
    event: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// None while another process has the UDP port.
    inbound: Option<Inbound>,
    outbound: Outbound,
    members: Members,
    /// When sockets were found empty.
    emptied: Option<Instant>,
    /// The event is set.
    is_signalled: bool,
    checks: Checks,
    too_long: TooLong,
}

/// A port that is a tunnel.
#[derive(Debug)]
pub struct TunnelPort {
    underlay: Arc<Underlay>,
    spec: PortTunnelSpec,
    number: usize,
}

impl Underlay {
    fn open(carrier: Carrier) -> io::Result<Self> {
        let watch = Watch::new()?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        watch.add(event.as_fd())?;
        let inner = Inner {
            inbound: Some(Inbound::open(carrier, &watch)?),
            outbound: Outbound::default(),
            members: Members::of(carrier),
            emptied: None,
            is_signalled: false,
            checks: Checks::new(),
            too_long: TooLong::new(),
        };
        Ok(Self { carrier, watch, event, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Frames and messages are added whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the descriptor readable while frames wait: sockets may be empty behind those of another port.
    fn signal(&self, inner: &mut Inner) -> bool {
        let is_waiting = inner.members.is_waiting();
        if is_waiting != inner.is_signalled {
            inner.is_signalled = is_waiting;
            // The counter of an event is never full: it is taken before it is set again.
            _ = match is_waiting {
                true => rustix::io::write(&self.event, &1u64.to_ne_bytes()),
                false => rustix::io::read(&self.event, &mut [0; 8]),
            };
        }
        is_waiting
    }

    /// Takes the carrier again that was let go for another process.
    #[cold]
    fn reopen(&self, inner: &mut Inner) {
        if inner.inbound.is_none() && inner.checks.is_due() {
            inner.inbound = Inbound::open(self.carrier, &self.watch).ok();
        }
    }
}

impl Inner {
    /// Receives for all members. Returns whether more may have arrived.
    fn receive(&mut self) -> bool {
        if self.emptied.is_some_and(|at| at.elapsed() < RESTS) {
            return false;
        }
        let Some(inbound) = &mut self.inbound else { return false };
        let members = &mut self.members;
        let has_more = inbound.receive(|datagram| members.deliver(&datagram));
        self.emptied = (!has_more).then(Instant::now);
        has_more
    }
}

/// Why a carrier cannot be opened.
fn refused(carrier: Carrier, error: &io::Error) -> String {
    match (carrier, error.kind()) {
        (Carrier::Udp(_), io::ErrorKind::AddrInUse) => format!(
            "{carrier} is in use: another program, or a tunnel of the kernel, receives there; stop it, or take another port with \
             port=N at both ends"
        ),
        (Carrier::Gre, io::ErrorKind::PermissionDenied) => {
            permission::refused("raw sockets of GRE", &[permission::SOCKETS])
        }
        _ => format!("{carrier} cannot be opened: {error}"),
    }
}

impl TunnelPort {
    /// Opens the port of a tunnel.
    ///
    /// # Errors
    /// Where the UDP port is another program's or another protocol's, another port has the same ends, or this node is not of the IP
    /// version that is asked for.
    pub fn open(spec: &PortTunnelSpec) -> Result<Self, PortError> {
        let fail = |problem: String| PortError::Environment { spec: spec.to_string(), problem };
        let mut underlays = UNDERLAYS.lock().unwrap_or_else(PoisonError::into_inner);
        underlays.retain(|_, underlay| underlay.strong_count() > 0);
        let carrier = Carrier::of(spec);
        let underlay = match underlays.get(&carrier).and_then(Weak::upgrade) {
            Some(underlay) => underlay,
            None => {
                let underlay = Underlay::open(carrier).map_err(|error| fail(refused(carrier, &error)))?;
                let underlay = Arc::new(underlay);
                underlays.insert(carrier, Arc::downgrade(&underlay));
                underlay
            }
        };
        let mut inner = underlay.lock();
        // Of GRE, the header says whether it is ERSPAN.
        let other = inner.members.specs().find(|other| other.kind != spec.kind && carrier != Carrier::Gre);
        if let Some(other) = other {
            let problem = format!("{carrier} is of {} here", other.kind.name());
            return Err(fail(problem + "; give each protocol its own with port=N"));
        }
        if inner.members.specs().any(|other| other.is_same_end(spec)) {
            return Err(fail(
                "another port has the same other end and key, so that no packet would come in here"
                    .to_owned(),
            ));
        }
        let is_v6 = |address: Option<IpAddr>| address.is_some_and(|address| address.is_ipv6());
        if is_v6(spec.remote) && !inner.inbound.as_ref().is_some_and(Inbound::has_ipv6) {
            return Err(fail("this system has no IPv6".to_owned()));
        }
        let number = inner.members.add(spec);
        drop(inner);
        Ok(Self { underlay, spec: spec.clone(), number })
    }
}

impl Drop for TunnelPort {
    fn drop(&mut self) {
        let mut inner = self.underlay.lock();
        inner.members.remove(self.number);
        // Another port may get the number.
        inner.outbound.forget(self.number);
        self.underlay.signal(&mut inner);
    }
}

impl Port for TunnelPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let mut inner = self.underlay.lock();
        if inner.inbound.is_none() {
            self.underlay.reopen(&mut inner);
        }
        let has_more = inner.receive();
        inner.members.take(self.number, frames);
        let is_waiting = self.underlay.signal(&mut inner);
        Ok(if has_more || is_waiting { Received::More } else { Received::Idle })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.underlay.watch.as_fd())
    }

    fn rx_dropped(&mut self) -> u64 {
        self.underlay.lock().members.take_lost(self.number)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        Ok(self.underlay.lock().outbound.put(frame.bytes(), &self.spec, self.number))
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        let mut inner = self.underlay.lock();
        let dropped = inner.outbound.flush(self.number);
        let refused = inner.outbound.take_refused();
        if !refused.is_empty() {
            let Inner { too_long, members, .. } = &mut *inner;
            too_long.answer(&refused, self.underlay.carrier, members);
            self.underlay.signal(&mut inner);
        }
        Ok(dropped)
    }

    /// Lets go of the carrier, which another process may then open.
    fn release(&mut self) {
        self.underlay.lock().inbound = None;
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::key::FlowKey;
    use flowlane::packet::{Field, Headers, parse};
    use flowlane::tunnel::{Policy, TunnelKind};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::tunnel::PortTunnel;

    fn spec(kind: TunnelKind, text: &str) -> PortTunnelSpec {
        let mut parts = text.split(',');
        let remote = parts.next().unwrap();
        let options: Vec<_> = parts.map(|part| part.split_once('=').unwrap()).collect();
        PortTunnelSpec::parse(kind, remote, &options).unwrap()
    }

    /// Waits for frames: their outer keys, and their payloads.
    fn received(port: &mut TunnelPort, count: usize) -> Vec<(FlowKey, Vec<u8>)> {
        let (mut frames, mut all) = (Frames::new(64), Vec::new());
        let begun = Instant::now();
        while all.len() < count && begun.elapsed() < Duration::from_secs(5) {
            frames.clear();
            port.receive(&mut frames).unwrap();
            all.extend(frames.iter().map(|frame| {
                let mut key = FlowKey::zero();
                let headers: Headers = parse(frame.bytes(), 1, &mut key);
                assert_eq!(headers.malformed, None);
                (key, frame.bytes()[usize::from(headers.payload)..].to_vec())
            }));
            if frames.is_empty() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        all
    }

    /// Frames of these lengths, each with its number, in outer headers.
    fn wrapped(spec: &PortTunnelSpec, lens: &[usize], flow: u32) -> Vec<Frame> {
        let mut tunnel = PortTunnel::new(spec.clone());
        let wrap = |(number, len): (usize, &usize)| {
            let (mut inner, mut outer) = (Frame::default(), Frame::default());
            inner.fill(&[number as u8; 2000][..*len]);
            let mut key = FlowKey::zero();
            key.set(Field::Ipv4Src, flow.into());
            tunnel.wrap(&inner, &key, &Policy::default(), &mut outer).unwrap();
            outer
        };
        lens.iter().enumerate().map(wrap).collect()
    }

    fn is_readable(port: &TunnelPort) -> bool {
        let mut waited_for = [PollFd::from_borrowed_fd(port.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut waited_for, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn datagrams_of_all_kinds_arrive_in_order_with_their_headers() {
        let lens: Vec<usize> =
            (0..250).map(|n| [1400, 1400, 1400, 1400, 60, 1400, 900, 61][n * n % 11 % 8]).collect();
        for (port, options) in [
            (46_001, "csum=true"),
            (46_002, "csum=false"),
            (46_003, "tos=0xb8,ttl=9,csum=true"),
            (46_004, "tos=4,ttl=200,df=false"),
        ] {
            let end = |remote: u8, local: u8| {
                let text = format!("127.0.0.{remote},local=127.0.0.{local},port={port},key=7,{options}");
                spec(TunnelKind::Geneve, &text)
            };
            let (a_spec, b_spec) = (end(2, 1), end(1, 2));
            let (mut a, mut b) = (TunnelPort::open(&a_spec).unwrap(), TunnelPort::open(&b_spec).unwrap());
            assert!(!is_readable(&a));
            let frames = wrapped(&a_spec, &lens, 1);
            let mut got = Vec::new();
            for burst in frames.chunks(50) {
                assert!(burst.iter().all(|frame| a.send(frame).unwrap()));
                assert_eq!(a.flush().unwrap(), 0);
                got.extend(received(&mut b, burst.len()));
            }
            assert_eq!(got.len(), lens.len(), "{options}");
            for (number, ((key, payload), len)) in got.iter().zip(&lens).enumerate() {
                assert_eq!(payload[..8], [0, 0, 0x65, 0x58, 0, 0, 7, 0]);
                assert_eq!(payload[8..], [number as u8; 2000][..*len], "{options} {number}");
                let found = [Field::Ipv4Src, Field::Ipv4Dst, Field::TpDst].map(|field| key.get(field));
                assert_eq!(found, [0x7f00_0001, 0x7f00_0002, port]);
                let tos_ttl = (key.get(Field::IpDscp), key.get(Field::NwTtl) as u8);
                assert_eq!(tos_ttl, (u128::from(a_spec.tos.unwrap() >> 2), a_spec.ttl.unwrap()));
            }
            // A VNI that no port has.
            let strange = wrapped(&PortTunnelSpec { out_key: Some(8), ..a_spec.clone() }, &[60], 1);
            assert!(a.send(&strange[0]).unwrap());
            a.flush().unwrap();
            assert_eq!(received(&mut b, 0).len(), 0);
            std::thread::sleep(Duration::from_millis(5));
            let mut frames = Frames::new(4);
            assert_eq!(b.receive(&mut frames).unwrap(), Received::Idle);
            assert_eq!(frames.len(), 0);
        }
    }

    #[test]
    fn gre_arrives_over_ipv4_and_ipv6_with_its_header() {
        let open = |text: &str| TunnelPort::open(&spec(TunnelKind::Gre, text));
        if let Err(error) = open("192.0.2.9") {
            assert!(error.to_string().contains("permission is missing: cap_net_raw"), "{error}");
            return println!("skipped: needs root");
        }
        for (ends, options) in [
            (
                "127.0.2.2,local=127.0.2.1 127.0.2.1,local=127.0.2.2",
                "key=7,csum=true,seq=true,tos=0xb8,ttl=9",
            ),
            ("127.0.2.2,local=127.0.2.1 127.0.2.1,local=127.0.2.2", "tos=4,ttl=200,df=false"),
            ("::1,local=::1 ::1,local=::1", "key=8,tos=0x20,ttl=7"),
        ] {
            let (a, b) = ends.split_once(' ').unwrap();
            let a_spec = spec(TunnelKind::Gre, &format!("{a},{options}"));
            let mut a = TunnelPort::open(&a_spec).unwrap();
            let mut b = (!ends.starts_with(':')).then(|| open(&format!("{b},{options}")).unwrap());
            let lens = [60, 1400, 61, 1300];
            let frames = wrapped(&a_spec, &lens, 1);
            assert!(frames.iter().all(|frame| a.send(frame).unwrap()));
            assert_eq!(a.flush().unwrap(), 0);
            let got = received(b.as_mut().unwrap_or(&mut a), lens.len());
            assert_eq!(got.len(), lens.len(), "{options}");
            for ((key, payload), frame) in got.iter().zip(&frames) {
                let headers: Headers = parse(frame.bytes(), 1, &mut FlowKey::zero());
                assert_eq!(payload, &frame.bytes()[usize::from(headers.payload)..]);
                let tos_ttl = (key.get(Field::IpDscp), key.get(Field::NwTtl) as u8);
                assert_eq!(tos_ttl, (u128::from(a_spec.tos.unwrap() >> 2), a_spec.ttl.unwrap()));
                assert_eq!(key.get(Field::NwProto), 47);
            }
        }
    }

    #[test]
    fn each_port_gets_its_own_whoever_asks_first() {
        let spec = |remote: u8, local: u8, key: u8| {
            let text = format!("127.0.1.{remote},local=127.0.1.{local},port=46010,key={key}");
            spec(TunnelKind::Vxlan, &text)
        };
        let mut sender = TunnelPort::open(&spec(2, 1, 1)).unwrap();
        let mut ports: Vec<_> = (1..=3).map(|key| TunnelPort::open(&spec(1, 2, key)).unwrap()).collect();
        for key in [3, 1, 2, 3] {
            for frame in wrapped(&spec(2, 1, key), &[60 + usize::from(key)], key.into()) {
                sender.send(&frame).unwrap();
                sender.flush().unwrap();
            }
        }
        // The first receives for all, and the event wakes the others.
        let first = received(&mut ports[0], 1);
        assert_eq!(first.len(), 1);
        let begun = Instant::now();
        while !is_readable(&ports[1]) && begun.elapsed() < Duration::from_secs(5) {}
        assert!(is_readable(&ports[2]));
        for (place, count) in [(1, 1), (2, 2)] {
            let got = received(&mut ports[place], count);
            let lens: Vec<usize> = got.iter().map(|(_, payload)| payload.len() - 8).collect();
            assert_eq!(lens, vec![61 + place; count]);
        }
        std::thread::sleep(Duration::from_millis(1));
        received(&mut ports[0], 0);
        assert!(!is_readable(&ports[0]), "nothing waits any more");
        // A port that is closed leaves the others as they are.
        drop(ports.remove(0));
        assert_eq!(ports[0].receive(&mut Frames::new(1)).unwrap(), Received::Idle);
    }

    #[test]
    fn ports_of_the_same_ends_are_refused() {
        let open = |kind, text: &str| TunnelPort::open(&spec(kind, text)).map_err(|error| error.to_string());
        let first = open(TunnelKind::Geneve, "192.0.2.7,key=flow,port=46020").unwrap();
        let same = open(TunnelKind::Geneve, "192.0.2.7,key=flow,port=46020,ttl=3").unwrap_err();
        assert!(same.contains("another port has the same other end and key"), "{same}");
        let other = open(TunnelKind::Vxlan, "192.0.2.8,port=46020").unwrap_err();
        assert!(other.contains("UDP port 46020 is of geneve here"), "{other}");
        drop(first);
        let vxlan = open(TunnelKind::Vxlan, "192.0.2.7,key=flow,port=46020").unwrap();
        drop(vxlan);
        let socket = std::net::UdpSocket::bind("0.0.0.0:46021").unwrap();
        let used = open(TunnelKind::Geneve, "192.0.2.7,port=46021").unwrap_err();
        assert!(used.contains("UDP port 46021 is in use"), "{used}");
        drop(socket);
        assert!(open(TunnelKind::Geneve, "192.0.2.7,port=46021").is_ok());
    }

    #[test]
    fn the_udp_port_is_let_go_and_taken_back() {
        let own = spec(TunnelKind::Geneve, "127.0.0.9,local=127.0.0.9,port=46030");
        let mut port = TunnelPort::open(&own).unwrap();
        assert!(std::net::UdpSocket::bind("0.0.0.0:46030").is_err());
        port.release();
        let other = std::net::UdpSocket::bind("0.0.0.0:46030").unwrap();
        std::thread::sleep(Duration::from_millis(110));
        assert_eq!(received(&mut port, 0).len(), 0);
        drop(other);
        std::thread::sleep(Duration::from_millis(110));
        let begun = Instant::now();
        while std::net::UdpSocket::bind("0.0.0.0:46030").is_ok() && begun.elapsed() < Duration::from_secs(5) {
            _ = port.receive(&mut Frames::new(1)).unwrap();
        }
        let frame = wrapped(&own, &[99], 1).remove(0);
        port.send(&frame).unwrap();
        port.flush().unwrap();
        assert_eq!(received(&mut port, 1).len(), 1);
    }
}
