//! The sessions of BFD that a bridge's ports have, as the column `bfd` of the table Interface asks for them (ovs-vswitchd.conf.db(5)).
//!
//! ```text
//! worker ─ inlets ─► thread of sessions ─ frames that are due ─► worker
//!                        │ forwarding                             ▲
//!                        └─► periodic work ─ flags of ports ──────┘
//! ```
//!
//! A thread of its own sends on time: the one for periodic work waits for the rules' control, others for the database.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, to_value};

use crate::datapath::BfdInlet;
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::setup::read_mac;
use crate::state::bfd::{Filter, SOURCE_PORT_MIN, SavedSession, Session, Settings, Status};

/// Sessions of another process that are taken at most.
pub(super) const SAVED_MAX: usize = 1 << 16;
/// How often the packets of a port are counted where its session depends on them.
const COUNT_MS: u64 = 200;
/// The longest pause of the thread without sessions.
const PAUSE: Duration = Duration::from_secs(1);

/// The session that the database asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BfdSpec {
    settings: Settings,
    /// None: the address of the interface.
    source_mac: Option<[u8; 6]>,
    filter: Filter,
    checks_key: bool,
}

impl BfdSpec {
    /// Reads the column `bfd`; none where it does not enable a session. Values that are none leave the default, as in Open vSwitch.
    pub(super) fn read(column: &Datum) -> Option<Self> {
        let flag = |key| column.get(key) == Some("true");
        if !flag("enable") {
            return None;
        }
        let number = |key, least: u32, default: u32| {
            let number = column.get(key).and_then(|text| text.parse::<u32>().ok());
            number.map_or(default, |number| number.max(least))
        };
        let mac = |key| column.get(key).and_then(read_mac).filter(|mac| *mac != [0; 6]);
        let ip = |key| column.get(key).and_then(|text| text.parse::<Ipv4Addr>().ok());
        let default = Settings::default();
        let mult = column.get("mult").and_then(|text| text.parse::<u8>().ok()).filter(|mult| *mult > 0);
        let settings = Settings {
            min_tx_ms: number("min_tx", 1, default.min_tx_ms),
            min_rx_ms: number("min_rx", 1, default.min_rx_ms),
            detect_mult: mult.unwrap_or(default.detect_mult),
            decay_min_rx_ms: number("decay_min_rx", 0, 0),
            forwarding_if_rx: flag("forwarding_if_rx"),
            cpath_down: flag("cpath_down"),
            destination_mac: mac("bfd_local_dst_mac").unwrap_or(default.destination_mac),
            source_ip: ip("bfd_src_ip").unwrap_or(default.source_ip),
            destination_ip: ip("bfd_dst_ip").unwrap_or(default.destination_ip),
            ..default
        };
        // Open vSwitch takes packets for any address unless an own one is set.
        let filter = Filter { mac: mac("bfd_remote_dst_mac"), ip: ip("bfd_src_ip") };
        let (source_mac, checks_key) = (mac("bfd_local_src_mac"), flag("check_tnl_key"));
        Some(Self { settings, source_mac, filter, checks_key })
    }

    /// The settings of a session that is from an address and UDP port, unless the database sets an address.
    fn settings(&self, mac: [u8; 6], source_port: u16) -> Settings {
        Settings { source_mac: self.source_mac.unwrap_or(mac), source_port, ..self.settings.clone() }
    }
}

/// A session with its port.
struct Driven {
    interface: String,
    port: PortNo,
    spec: BfdSpec,
    session: Session,
    inlet: Arc<BfdInlet>,
    source_port: u16,
    /// The address of a port that has none.
    own_mac: [u8; 6],
    counted_ms: u64,
    /// The port is as live as the session says.
    is_live: bool,
}

#[derive(Default)]
struct Inner {
    by_row: BTreeMap<Uuid, Driven>,
    /// Ports whose session has ended, and which are live again.
    freed: Vec<PortNo>,
    /// Sessions of another process, by their interface, until their ports are there.
    saved: BTreeMap<String, SavedSession>,
}

/// The sessions of a bridge, for another process.
#[derive(Default, Serialize, Deserialize)]
struct SavedSessions {
    /// When they were saved, in milliseconds since 1970.
    unix_ms: u64,
    sessions: BTreeMap<String, SavedSession>,
}

/// The milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The sessions of a bridge.
pub(super) struct BfdSessions {
    begun: Instant,
    inner: Mutex<Inner>,
    /// The threads of sessions and of periodic work.
    thread: OnceLock<Thread>,
    publisher: OnceLock<Thread>,
}

impl Default for BfdSessions {
    fn default() -> Self {
        let (thread, publisher) = (OnceLock::new(), OnceLock::new());
        Self { begun: Instant::now(), inner: Mutex::default(), thread, publisher }
    }
}

/// UDP ports of sessions, each of which has its own (RFC 5881, section 4).
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

impl BfdSessions {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A session is consistent between two of its methods, and none of them panics midway.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_millis() as u64
    }

    /// Begins or changes the session of a port. `mac`: the address of its interface, if it has one.
    pub(super) fn follow(
        &self,
        row: Uuid,
        interface: &str,
        port: PortNo,
        spec: &BfdSpec,
        mac: Option<[u8; 6]>,
        served: &ControlServer,
    ) {
        let now_ms = self.ms(Instant::now());
        // The thread has begun before ports are opened; without it, the next round makes the session.
        let Some(thread) = self.thread.get() else { return };
        let inlet = || Arc::new(BfdInlet::new(spec.filter, spec.checks_key, thread.clone()));
        let mut inner = self.lock();
        let is_new = !inner.by_row.contains_key(&row);
        let saved = inner.saved.remove(interface);
        let driven = inner.by_row.entry(row).or_insert_with(|| {
            let seed = RandomState::new().hash_one(row.to_string());
            let [a, b, c, d, e, ..] = seed.to_be_bytes();
            let source_port = SOURCE_PORT_MIN + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % (1 << 14);
            let own_mac = [0x02, a, b, c, d, e];
            let settings = spec.settings(mac.unwrap_or(own_mac), source_port);
            let random = RandomState::new().hash_one(seed);
            Driven {
                interface: interface.to_owned(),
                port,
                spec: spec.clone(),
                session: match saved {
                    Some(saved) => Session::resume(settings, random, &saved, now_ms),
                    None => Session::new(settings, random, now_ms),
                },
                inlet: inlet(),
                source_port,
                own_mac,
                counted_ms: now_ms,
                is_live: true,
            }
        });
        let is_filtered_otherwise =
            (driven.spec.filter, driven.spec.checks_key) != (spec.filter, spec.checks_key);
        if is_filtered_otherwise {
            driven.inlet = inlet();
        }
        driven.spec = spec.clone();
        driven.session.configure(spec.settings(mac.unwrap_or(driven.own_mac), driven.source_port), now_ms);
        let inlet = driven.inlet.clone();
        drop(inner);
        if is_new || is_filtered_otherwise {
            // A switch that does not run has no ports either.
            _ = served.set_bfd(port, Some(&inlet));
        }
        thread.unpark();
    }

    /// Ends the session of a port, if it has one; the other end gets to know.
    pub(super) fn end(&self, row: &Uuid, served: &ControlServer) {
        let mut inner = self.lock();
        let Some(mut driven) = inner.by_row.remove(row) else { return };
        inner.freed.push(driven.port);
        drop(inner);
        let last = (driven.port, driven.session.shut_down(self.ms(Instant::now())));
        _ = served.set_bfd(driven.port, None);
        _ = served.call_worker(0, move |worker| worker.send_frames(&[last]));
    }

    /// Returns the sessions that are up, for another process.
    pub(super) fn save(&self) -> Value {
        let now_ms = self.ms(Instant::now());
        let inner = self.lock();
        let saved = inner
            .by_row
            .values()
            .filter_map(|driven| Some((driven.interface.clone(), driven.session.save(now_ms)?)));
        to_value(SavedSessions { unix_ms: unix_ms(), sessions: saved.collect() }).unwrap_or_default()
    }

    /// Takes sessions of another process, with which ports go on that are added from now on.
    pub(super) fn restore(&self, saved: Value) {
        // Without them, sessions begin as if there had been none.
        let SavedSessions { unix_ms: then, sessions } = from_value(saved).unwrap_or_default();
        // A clock that went back does not say how long the others have waited.
        let Some(passed) = unix_ms().checked_sub(then) else { return };
        let left = sessions.into_iter().take(SAVED_MAX);
        self.lock().saved = left.map(|(interface, session)| (interface, session.after(passed))).collect();
    }

    /// Ends all sessions.
    pub(super) fn end_all(&self, served: &ControlServer) {
        let rows: Vec<Uuid> = self.lock().by_row.keys().copied().collect();
        rows.iter().for_each(|row| self.end(row, served));
    }

    /// Runs the sessions until `stop` is set.
    pub(super) fn run(&self, served: &ControlServer, stop: &AtomicBool) {
        _ = self.thread.set(std::thread::current());
        while !stop.load(Ordering::Relaxed) {
            self.count(served);
            let (frames, deadline_ms) = self.step();
            if !frames.is_empty() {
                _ = served.call_worker(0, move |worker| worker.send_frames(&frames));
            }
            let until = Duration::from_millis(deadline_ms).saturating_sub(self.begun.elapsed());
            std::thread::park_timeout(until.min(PAUSE));
        }
    }

    /// Runs all sessions; returns the frames to be sent, and when the next one is due.
    fn step(&self) -> (Vec<(PortNo, Vec<u8>)>, u64) {
        let (mut frames, mut deadline_ms, mut has_changed) = (Vec::new(), u64::MAX, false);
        for driven in self.lock().by_row.values_mut() {
            for frame in driven.inlet.take() {
                // The session counts those that are refused.
                _ = driven.session.receive(&frame.bytes, frame.is_complete, self.ms(frame.received));
            }
            let now_ms = self.ms(Instant::now());
            frames.extend(driven.session.run(now_ms).map(|frame| (driven.port, frame)));
            let counts = if driven.session.wants_traffic() { driven.counted_ms + COUNT_MS } else { u64::MAX };
            deadline_ms = deadline_ms.min(driven.session.deadline_ms()).min(counts);
            has_changed |= driven.session.is_forwarding(now_ms) != driven.is_live;
        }
        if has_changed && let Some(publisher) = self.publisher.get() {
            publisher.unpark();
        }
        (frames, deadline_ms)
    }

    /// Counts the packets of ports for the sessions that depend on them.
    fn count(&self, served: &ControlServer) {
        let now_ms = self.ms(Instant::now());
        let is_due =
            |driven: &&Driven| driven.session.wants_traffic() && now_ms >= driven.counted_ms + COUNT_MS;
        let ports: Vec<PortNo> =
            self.lock().by_row.values().filter(is_due).map(|driven| driven.port).collect();
        if ports.is_empty() {
            return;
        }
        let mut counts: BTreeMap<PortNo, u64> = BTreeMap::new();
        for worker in 0..served.workers_count() {
            let asked = ports.clone();
            let Ok(received) = served.call_worker(worker, move |worker| worker.received(&asked)) else {
                return;
            };
            ports.iter().zip(received).for_each(|(port, count)| *counts.entry(*port).or_default() += count);
        }
        for driven in self.lock().by_row.values_mut() {
            if let Some(count) = counts.get(&driven.port) {
                driven.session.note_traffic(*count, now_ms);
                driven.counted_ms = now_ms;
            }
        }
    }

    /// Makes ports as live as their sessions say. Called by one thread, which is woken when that changes.
    pub(super) fn publish(&self, served: &ControlServer) {
        self.publisher.get_or_init(std::thread::current);
        let now_ms = self.ms(Instant::now());
        let mut inner = self.lock();
        let mut changes: Vec<(PortNo, bool)> = inner.freed.drain(..).map(|port| (port, true)).collect();
        for driven in inner.by_row.values_mut() {
            let is_forwarding = driven.session.is_forwarding(now_ms);
            if std::mem::replace(&mut driven.is_live, is_forwarding) != is_forwarding {
                changes.push((driven.port, is_forwarding));
            }
        }
        drop(inner);
        if !changes.is_empty() {
            served.control().set_paths(&changes);
        }
    }

    /// The state of a port's session, if it has one.
    pub(super) fn status(&self, row: &Uuid) -> Option<Status> {
        let now_ms = self.ms(Instant::now());
        self.lock().by_row.get(row).map(|driven| driven.session.status(now_ms))
    }

    /// Describes all sessions, as `bfd/show` does.
    pub(super) fn describe(&self) -> String {
        let now_ms = self.ms(Instant::now());
        let of =
            |driven: &Driven| format!("---- {} ----\n{}", driven.interface, driven.session.describe(now_ms));
        self.lock().by_row.values().map(of).collect()
    }

    /// Describes the session of an interface, if it has one.
    pub(super) fn describe_one(&self, interface: &str) -> Option<String> {
        let now_ms = self.ms(Instant::now());
        let inner = self.lock();
        let found = inner.by_row.values().find(|driven| driven.interface == interface);
        found.map(|driven| driven.session.describe(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_none_leave_the_default() {
        let read = |pairs: &[(&str, &str)]| BfdSpec::read(&Datum::map(pairs.iter().copied()));
        assert_eq!(read(&[("min_rx", "100")]), None);
        assert_eq!(read(&[("enable", "false")]), None);
        let plain = read(&[("enable", "true")]).unwrap();
        assert_eq!((&plain.settings, plain.filter), (&Settings::default(), Filter::default()));
        let odd = [
            ("enable", "true"),
            ("min_tx", "fast"),
            ("mult", "0"),
            ("bfd_src_ip", "x"),
            ("bfd_local_dst_mac", "1:2"),
        ];
        assert_eq!(read(&odd), Some(plain));
        let set = read(&[
            ("enable", "true"),
            ("min_tx", "0"),
            ("min_rx", "150"),
            ("mult", "7"),
            ("bfd_src_ip", "192.0.2.1"),
            ("bfd_dst_ip", "192.0.2.2"),
            ("bfd_local_src_mac", "02:00:00:00:00:0a"),
            ("bfd_local_dst_mac", "02:00:00:00:00:0b"),
            ("bfd_remote_dst_mac", "02:00:00:00:00:0c"),
            ("check_tnl_key", "true"),
        ]);
        let mac = |last| [2, 0, 0, 0, 0, last];
        let expected = BfdSpec {
            settings: Settings {
                min_tx_ms: 1,
                min_rx_ms: 150,
                detect_mult: 7,
                source_ip: Ipv4Addr::new(192, 0, 2, 1),
                destination_ip: Ipv4Addr::new(192, 0, 2, 2),
                destination_mac: mac(0xb),
                ..Settings::default()
            },
            source_mac: Some(mac(0xa)),
            filter: Filter { mac: Some(mac(0xc)), ip: Some(Ipv4Addr::new(192, 0, 2, 1)) },
            checks_key: true,
        };
        assert_eq!(set, Some(expected));
    }
}
