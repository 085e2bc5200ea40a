//! A session: its state, timers and negotiation (RFC 5880, sections 6.5 to 6.8).
//!
//! Times are milliseconds of any clock that does not go back. A caller passes frames that were [received](Session::receive), and
//! [runs](Session::run) the session at its [deadline](Session::deadline_ms) at the latest.

use flowlane::generate::Random;
use serde::{Deserialize, Serialize};

use super::packet::Flags;
use super::{ControlPacket, Diagnostic, Refused, Settings, State, frame};

/// A session that is not up sends at most one packet a second (RFC 5880, section 6.8.3).
const MIN_TX_NOT_UP_MS: u64 = 1000;
/// Packets that report a change are sent without waiting for the interval, but not closer than this.
const URGENT_MS: u64 = 10;
/// The shortest time after which a port without packets is idle, or does not work, as in Open vSwitch.
const TRAFFIC_MS: u64 = 2000;
/// With packets of other kinds, a control packet must come in within as many intervals (ovs-vswitchd.conf.db(5)).
const CONTROL_INTERVALS: u64 = 100;

/// Intervals of a session, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Intervals {
    /// Between packets sent.
    tx: u64,
    /// Between packets that are accepted.
    rx: u64,
}

/// The other end, by its latest packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) state: State,
    pub(super) diagnostic: Diagnostic,
    pub(super) flags: Flags,
    /// 0 while it is not heard.
    pub(super) discriminator: u32,
    min_tx_us: u32,
    /// 0: it wants no packets but answers.
    min_rx_us: u32,
    pub(super) detect_mult: u8,
}

impl Remote {
    /// An end of which nothing is known (RFC 5880, section 6.8.1).
    const UNKNOWN: Self = Self {
        state: State::Down,
        diagnostic: Diagnostic::NONE,
        flags: Flags(0),
        discriminator: 0,
        min_tx_us: 0,
        min_rx_us: 1,
        detect_mult: 0,
    };

    pub(super) fn min_tx_ms(&self) -> u64 {
        u64::from(self.min_tx_us).div_ceil(1000)
    }

    pub(super) fn min_rx_ms(&self) -> u64 {
        u64::from(self.min_rx_us).div_ceil(1000)
    }
}

/// The packets of any kind that a port has received.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// All so far; none before the first count.
    packets: Option<u64>,
    /// They show until then that the port works.
    works_until_ms: u64,
    /// As many as control packets at most: the interval of idle ports is used.
    is_idle: bool,
    /// The next decision on idleness, and the packets before this period.
    looked_at_ms: u64,
    packets_before: u64,
    /// Control packets of this period.
    control: u64,
}

/// The state that a database shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    pub state: State,
    pub diagnostic: Diagnostic,
    pub remote_state: State,
    pub remote_diagnostic: Diagnostic,
    /// The port may be sent to.
    pub is_forwarding: bool,
    /// Changes of `is_forwarding`.
    pub flaps: u64,
}

/// A session that is up, as another process needs it: the other end notices nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedSession {
    discriminator: u32,
    remote_discriminator: u32,
    remote_min_tx_us: u32,
    remote_min_rx_us: u32,
    remote_detect_mult: u8,
    /// Intervals for sending and receiving: those that packets say, and those that are kept to.
    said_ms: [u64; 2],
    used_ms: [u64; 2],
    is_polling: bool,
    /// The rest of the detection time.
    expires_in_ms: u64,
    flaps: u64,
}

impl SavedSession {
    /// The session after some time in which no process had it.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self { expires_in_ms: self.expires_in_ms.saturating_sub(ms), ..self }
    }
}

/// A session with the other end of a port.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    random: Random,
    pub(super) discriminator: u32,
    pub(super) state: State,
    diagnostic: Diagnostic,
    pub(super) remote: Remote,
    /// The intervals that packets say.
    said: Intervals,
    /// Those that this end keeps to: during a poll sequence, the more careful of the former and the new ones.
    used: Intervals,
    pub(super) is_polling: bool,
    pub(super) owes_final: bool,
    pub(super) sent_ms: Option<u64>,
    pub(super) next_tx_ms: u64,
    /// When the detection time passes; without meaning while the other end is not heard.
    pub(super) expires_ms: u64,
    /// The latest control packet.
    heard_ms: Option<u64>,
    traffic: Traffic,
    was_forwarding: bool,
    flaps: u64,
    pub(super) refused: Option<(u64, Refused)>,
}

impl Session {
    /// Begins a session, which is down. The seed decides its discriminator and the jitter of its packets; it should be random.
    pub fn new(settings: Settings, seed: u64, now_ms: u64) -> Self {
        let mut random = Random::new(seed);
        let discriminator = (random.bits() as u32).max(1);
        let said = Intervals { tx: MIN_TX_NOT_UP_MS, rx: settings.min_rx_ms.into() };
        let mut session = Self {
            settings,
            random,
            discriminator,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            remote: Remote::UNKNOWN,
            said,
            used: said,
            is_polling: false,
            owes_final: false,
            sent_ms: None,
            next_tx_ms: now_ms,
            expires_ms: now_ms,
            heard_ms: None,
            traffic: Traffic::default(),
            was_forwarding: false,
            flaps: 0,
            refused: None,
        };
        session.negotiate(now_ms);
        session
    }

    /// Goes on with a session of another process. Where its detection time has passed meanwhile, a new one begins.
    pub fn resume(settings: Settings, seed: u64, saved: &SavedSession, now_ms: u64) -> Self {
        let mut session = Self::new(settings, seed, now_ms);
        if saved.expires_in_ms == 0 || saved.remote_discriminator == 0 {
            return session;
        }
        let intervals = |[tx, rx]: [u64; 2]| Intervals { tx: tx.max(1), rx };
        (session.discriminator, session.state) = (saved.discriminator.max(1), State::Up);
        session.remote = Remote {
            state: State::Up,
            discriminator: saved.remote_discriminator,
            min_tx_us: saved.remote_min_tx_us,
            min_rx_us: saved.remote_min_rx_us,
            detect_mult: saved.remote_detect_mult,
            ..Remote::UNKNOWN
        };
        (session.said, session.used) = (intervals(saved.said_ms), intervals(saved.used_ms));
        (session.is_polling, session.flaps) = (saved.is_polling, saved.flaps);
        (session.heard_ms, session.expires_ms) = (Some(now_ms), now_ms + saved.expires_in_ms);
        session.was_forwarding = true;
        session.watch_traffic_from(now_ms);
        session.negotiate(now_ms);
        session
    }

    /// The session, for another process to go on with it, if it is up.
    pub fn save(&self, now_ms: u64) -> Option<SavedSession> {
        (self.state == State::Up).then(|| SavedSession {
            discriminator: self.discriminator,
            remote_discriminator: self.remote.discriminator,
            remote_min_tx_us: self.remote.min_tx_us,
            remote_min_rx_us: self.remote.min_rx_us,
            remote_detect_mult: self.remote.detect_mult,
            said_ms: [self.said.tx, self.said.rx],
            used_ms: [self.used.tx, self.used.rx],
            is_polling: self.is_polling,
            expires_in_ms: self.expires_ms.saturating_sub(now_ms),
            flaps: self.flaps,
        })
    }

    /// Changes the settings; intervals change when the other end knows them.
    pub fn configure(&mut self, settings: Settings, now_ms: u64) {
        if self.settings == settings {
            return;
        }
        let idle = |settings: &Settings| (settings.min_rx_ms, settings.decay_min_rx_ms);
        if idle(&settings) != idle(&self.settings) {
            self.settings = settings;
            self.watch_traffic_from(now_ms);
        } else {
            self.settings = settings;
        }
        self.negotiate(now_ms);
        self.hurry(now_ms);
        self.note_forwarding(now_ms);
    }

    /// Takes a frame from the other end. `is_complete`: its checksums have been completed, not left to a device.
    ///
    /// # Errors
    /// Why it is discarded; nothing has changed but the count of such frames.
    pub fn receive(&mut self, frame: &[u8], is_complete: bool, now_ms: u64) -> Result<(), Refused> {
        let taken = frame::read(frame, is_complete).and_then(|packet| self.take(&packet, now_ms));
        if let Err(reason) = taken {
            self.refused = Some((self.refused.map_or(1, |(count, _)| count.saturating_add(1)), reason));
        }
        taken
    }

    /// Takes a control packet (RFC 5880, section 6.8.6).
    fn take(&mut self, packet: &ControlPacket, now_ms: u64) -> Result<(), Refused> {
        if ![0, self.discriminator].contains(&packet.your_discriminator) {
            return Err(Refused::OtherSession(packet.your_discriminator));
        }
        // One that is late meets a session that has expired.
        self.expire(now_ms);
        self.heard_ms = Some(now_ms);
        self.traffic.control += 1;
        let before = self.tx_interval();
        self.remote = Remote {
            state: packet.state,
            diagnostic: packet.diagnostic,
            flags: packet.flags,
            discriminator: packet.my_discriminator,
            min_tx_us: packet.min_tx_us,
            min_rx_us: packet.min_rx_us,
            detect_mult: packet.detect_mult,
        };
        if packet.flags.has(Flags::FINAL) && self.is_polling {
            (self.used, self.is_polling) = (self.said, false);
        }
        self.owes_final |= packet.flags.has(Flags::POLL);
        // A shorter interval holds at once.
        if self.tx_interval() < before {
            self.next_tx_ms = self.next_tx_ms.min(self.sent_ms.unwrap_or(now_ms) + self.jittered());
        }
        self.expires_ms = now_ms + u64::from(packet.detect_mult) * self.rx_interval();
        match (self.state, packet.state) {
            (State::AdminDown, _)
            | (State::Down, State::AdminDown | State::Up)
            | (State::Init, State::Down)
            | (State::Up, State::Init | State::Up) => {}
            (State::Down, State::Down) => self.change(State::Init, self.diagnostic, now_ms),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.change(State::Up, self.diagnostic, now_ms);
            }
            (State::Init, State::AdminDown) | (State::Up, State::AdminDown | State::Down) => {
                self.change(State::Down, Diagnostic::NEIGHBOUR_DOWN, now_ms);
            }
        }
        self.note_forwarding(now_ms);
        Ok(())
    }

    /// Runs the timers, by which the session may expire. Returns a frame to be sent.
    pub fn run(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        self.expire(now_ms);
        self.look_at_traffic(now_ms);
        self.note_forwarding(now_ms);
        (now_ms >= self.tx_due_ms()).then(|| self.send(now_ms))
    }

    /// Returns when [`run`](Self::run) is to be called next.
    pub fn deadline_ms(&self) -> u64 {
        let expiry = if self.is_heard() { self.expires_ms } else { u64::MAX };
        let looks = self.state == State::Up && self.settings.decays();
        self.tx_due_ms().min(expiry).min(if looks { self.traffic.looked_at_ms } else { u64::MAX })
    }

    /// Ends the session; returns a frame that says so to the other end.
    pub fn shut_down(&mut self, now_ms: u64) -> Vec<u8> {
        self.change(State::AdminDown, Diagnostic::ADMIN_DOWN, now_ms);
        self.note_forwarding(now_ms);
        self.send(now_ms)
    }

    /// Returns whether the session depends on the number of packets that the port receives.
    pub fn wants_traffic(&self) -> bool {
        self.settings.forwarding_if_rx || self.settings.decays()
    }

    /// Notes the number of packets of any kind that the port has received so far.
    pub fn note_traffic(&mut self, packets: u64, now_ms: u64) {
        if self.traffic.packets.is_some_and(|before| packets > before) && self.settings.forwarding_if_rx {
            let detection = u64::from(self.settings.detect_mult) * self.rx_interval();
            self.traffic.works_until_ms = now_ms + detection.max(TRAFFIC_MS);
        }
        if self.traffic.packets.is_none() {
            self.traffic.packets_before = packets;
        }
        self.traffic.packets = Some(packets);
        self.note_forwarding(now_ms);
    }

    /// Returns whether the port may be sent to.
    pub fn is_forwarding(&self, now_ms: u64) -> bool {
        let silent_from = |heard| heard + CONTROL_INTERVALS * u64::from(self.settings.min_rx_ms);
        let works = self.settings.forwarding_if_rx
            && self.traffic.works_until_ms > now_ms
            && self.heard_ms.is_some_and(|heard| silent_from(heard) > now_ms);
        (self.state == State::Up || works) && !self.remote.diagnostic.is_of_path()
    }

    /// Returns the state that a database shows.
    pub fn status(&self, now_ms: u64) -> Status {
        Status {
            state: self.state,
            diagnostic: self.diagnostic(),
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
            is_forwarding: self.is_forwarding(now_ms),
            flaps: self.flaps,
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The diagnostic that packets say.
    pub(super) fn diagnostic(&self) -> Diagnostic {
        let is_path = self.state >= State::Init || self.diagnostic == Diagnostic::NONE;
        if self.settings.cpath_down && is_path { Diagnostic::CONCATENATED_PATH_DOWN } else { self.diagnostic }
    }

    /// The flags of the next packet.
    pub(super) fn flags(&self) -> Flags {
        match (self.owes_final, self.is_polling) {
            // Both must not be set; the poll waits for the next packet.
            (true, _) => Flags::FINAL,
            (false, true) => Flags::POLL,
            (false, false) => Flags::default(),
        }
    }

    /// The interval between packets sent, before jitter.
    pub(super) fn tx_interval(&self) -> u64 {
        self.used.tx.max(self.remote.min_rx_ms())
    }

    /// The interval at which packets are expected.
    pub(super) fn rx_interval(&self) -> u64 {
        self.used.rx.max(self.remote.min_tx_ms())
    }

    /// The shortest intervals that packets say: for sending, and for receiving.
    pub(super) fn said_ms(&self) -> [u64; 2] {
        [self.said.tx, self.said.rx]
    }

    fn is_heard(&self) -> bool {
        self.remote.discriminator != 0
    }

    /// The interval, shortened by up to a quarter; by at least a tenth where one lost packet ends the session (RFC 5880, section
    /// 6.8.7).
    fn jittered(&mut self) -> u64 {
        let interval = self.tx_interval();
        let least = if self.settings.detect_mult == 1 { 10 } else { 0 };
        interval - interval * (least + self.random.below(26 - least)) / 100
    }

    /// When the next packet is to be sent.
    fn tx_due_ms(&self) -> u64 {
        let periodic = if self.remote.min_rx_us == 0 { u64::MAX } else { self.next_tx_ms };
        let answer = if self.owes_final { self.urgent_ms() } else { u64::MAX };
        periodic.min(answer)
    }

    /// The earliest time for a packet that does not wait for the interval.
    fn urgent_ms(&self) -> u64 {
        self.sent_ms.map_or(0, |sent| sent + URGENT_MS)
    }

    fn hurry(&mut self, now_ms: u64) {
        self.next_tx_ms = self.next_tx_ms.min(self.urgent_ms().max(now_ms));
    }

    fn send(&mut self, now_ms: u64) -> Vec<u8> {
        let us = |ms: u64| u32::try_from(ms * 1000).unwrap_or(u32::MAX);
        let packet = ControlPacket {
            diagnostic: self.diagnostic(),
            state: self.state,
            flags: self.flags(),
            detect_mult: self.settings.detect_mult,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            min_tx_us: us(self.said.tx),
            min_rx_us: us(self.said.rx),
            min_echo_rx_us: 0,
        };
        self.owes_final = false;
        self.sent_ms = Some(now_ms);
        self.next_tx_ms = now_ms + self.jittered();
        frame::write(&self.settings, &packet)
    }

    /// Forgets the other end where nothing was heard for the detection time.
    fn expire(&mut self, now_ms: u64) {
        if self.is_heard() && now_ms >= self.expires_ms {
            self.remote = Remote { detect_mult: self.remote.detect_mult, ..Remote::UNKNOWN };
            if self.state >= State::Init {
                self.change(State::Down, Diagnostic::EXPIRED, now_ms);
            }
        }
    }

    fn change(&mut self, state: State, diagnostic: Diagnostic, now_ms: u64) {
        (self.state, self.diagnostic) = (state, diagnostic);
        self.watch_traffic_from(now_ms);
        self.negotiate(now_ms);
        self.hurry(now_ms);
    }

    /// Takes over the intervals of the state and the settings: at once where the session is not up, else by a poll sequence, until
    /// whose end a longer interval for sending and a shorter one for receiving are not used.
    fn negotiate(&mut self, now_ms: u64) {
        let (min_tx, min_rx) = (u64::from(self.settings.min_tx_ms), self.settings.min_rx_ms);
        let is_up = self.state == State::Up;
        let wished = Intervals {
            tx: if is_up { min_tx } else { min_tx.max(MIN_TX_NOT_UP_MS) },
            rx: if self.traffic.is_idle { self.settings.decay_min_rx_ms } else { min_rx }.into(),
        };
        let has_changed = wished != self.said;
        self.said = wished;
        if !is_up {
            (self.used, self.is_polling) = (wished, false);
        } else if has_changed {
            self.used = Intervals { tx: self.used.tx.min(wished.tx), rx: self.used.rx.max(wished.rx) };
            self.is_polling = true;
            self.hurry(now_ms);
        }
    }

    /// Begins a period at whose end the port may be idle.
    fn watch_traffic_from(&mut self, now_ms: u64) {
        let period = u64::from(self.settings.decay_min_rx_ms).max(TRAFFIC_MS);
        self.traffic = Traffic {
            is_idle: false,
            looked_at_ms: now_ms + period,
            packets_before: self.traffic.packets.unwrap_or(0),
            control: 0,
            ..self.traffic
        };
    }

    /// Decides whether the port is idle: twice as many packets as control packets, since both are not counted at one moment.
    fn look_at_traffic(&mut self, now_ms: u64) {
        if self.state != State::Up || !self.settings.decays() || now_ms < self.traffic.looked_at_ms {
            return;
        }
        let packets = self.traffic.packets.unwrap_or(0).saturating_sub(self.traffic.packets_before);
        let is_idle = packets <= 2 * self.traffic.control.max(1);
        self.watch_traffic_from(now_ms);
        self.traffic.is_idle = is_idle;
        self.negotiate(now_ms);
    }

    fn note_forwarding(&mut self, now_ms: u64) {
        let is_forwarding = self.is_forwarding(now_ms);
        self.flaps += u64::from(is_forwarding != self.was_forwarding);
        self.was_forwarding = is_forwarding;
    }
}

impl Settings {
    /// Returns whether idle ports have another interval, which must not be shorter.
    fn decays(&self) -> bool {
        self.decay_min_rx_ms > 0 && self.decay_min_rx_ms >= self.min_rx_ms
    }
}
