//! Application-level gateways: protocols whose messages announce further connections (`alg=` of `ct`).
//!
//! ```text
//! client ── PORT 10,0,0,1,4,1 ──► server       the client of a control connection names an end
//!        ◄── SYN to 10.0.0.1:1025 ──           the server connects to it: `related`
//! ```
//!
//! A connection that is committed with `alg=` is a *control connection*. Its packets are read after they have been tracked and
//! translated; one that names an end leaves an [expectation](expectations), and the connection that it announces is `related` with all
//! its packets. The related connection keeps the mark and the label of the control connection, and its packets have that one's
//! original tuple, as in Open vSwitch.
//!
//! Where the control connection is translated, so is the address in the text, and the related connection. A text of another length
//! [skews](skew) the sequence numbers of its end, which is undone in acknowledgements. Ports are not translated.
//!
//! Both protocols are read on their own port, and on others where the packet's `ct` has `alg=`. A message counts only if the connection
//! is sound with it, its address is the sender's, and it is in one segment.
//!
//! Connections without `alg=`, and that no one has announced, have one null pointer for all this.

mod edit;
pub(super) mod expectations;
mod ftp;
mod saved;
mod skew;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use flowlane::packet::Headers;
use flowlane::packet::parse::ip_proto;

use super::changes::live_for;
use super::ct_state::{INVALID, TRACKED, TRANSLATED};
use super::entry::{Live, Translated};
use super::protocol::Message;
use super::table::Place;
use super::tuple::{End, Tuple};
use super::{Connections, Request, Tracked};
use crate::packet::Frame;
use edit::{Edit, Layout};
use expectations::Expectation;
use ftp::{Named, Unreadable};
use skew::Skew;

pub use saved::SavedExpectation;

/// Ends that a control connection has announced and that are expected at once.
const ANNOUNCED_MAX: usize = 8;

/// A protocol whose messages announce connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    Ftp,
    Tftp,
}

impl Application {
    /// Returns the application of a port, as `alg` of OpenFlow's `ct` names it.
    pub fn of_port(port: u16) -> Option<Self> {
        [Self::Ftp, Self::Tftp].into_iter().find(|application| application.port() == port)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Ftp => 21,
            Self::Tftp => 69,
        }
    }

    fn proto(self) -> u8 {
        match self {
            Self::Ftp => ip_proto::TCP,
            Self::Tftp => ip_proto::UDP,
        }
    }

    /// Returns whether packets with this tuple are read where their `ct` does not say so.
    fn is_at(self, tuple: &Tuple) -> bool {
        let port = self.port();
        tuple.destination.port == port || self == Self::Ftp && tuple.source.port == port
    }
}

/// A connection's part in an application's protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alg {
    Control(Control),
    /// The connection was expected: the original tuple of its control connection.
    Announced(Tuple),
}

/// A control connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    pub(super) application: Application,
    /// The skews of what both ends send.
    skews: [Skew; 2],
    /// Announced ends, by direction and port; the next one takes the place of the oldest.
    announced: [Option<(usize, u16)>; ANNOUNCED_MAX],
    next: usize,
}

impl Alg {
    /// Returns the part of a new connection: one that was expected, or that a rule says is of an application.
    pub(super) fn of_new(
        tuple: &Tuple,
        application: Option<Application>,
        expected: Option<&Expectation>,
    ) -> Option<Box<Self>> {
        if let Some(expected) = expected {
            return Some(Box::new(Self::Announced(expected.control_tuple)));
        }
        let application = application.filter(|application| application.proto() == tuple.proto)?;
        let (skews, announced) = ([Skew::default(); 2], [None; ANNOUNCED_MAX]);
        Some(Box::new(Self::Control(Control { application, skews, announced, next: 0 })))
    }
}

impl Live {
    /// Returns the application whose control connection this is.
    pub(super) fn application(&self) -> Option<Application> {
        match self.alg.as_deref()? {
            Alg::Control(control) => Some(control.application),
            Alg::Announced(_) => None,
        }
    }

    /// Returns the original tuple of the control connection, if this one was expected.
    pub(super) fn control_tuple(&self) -> Option<Tuple> {
        match self.alg.as_deref()? {
            Alg::Announced(tuple) => Some(*tuple),
            Alg::Control(_) => None,
        }
    }

    /// Returns a message with the sequence numbers that the ends of the connection use themselves. `tracked` is that of the packet
    /// before: one that has been translated has the numbers of its receiver.
    pub(super) fn unskewed(&self, message: &Message, direction: usize, tracked: &Tracked) -> Message {
        let (Message::Tcp(segment), Some(Alg::Control(control))) = (message, self.alg.as_deref()) else {
            return *message;
        };
        let mut segment = *segment;
        match tracked.state & TRANSLATED != 0 {
            true => segment.sequence = control.skews[direction].take_from(segment.sequence),
            false => {
                segment.acknowledgement = control.skews[1 - direction].take_from(segment.acknowledgement);
            }
        }
        Message::Tcp(segment)
    }
}

/// A packet of a control connection.
struct Packet<'a> {
    tuples: &'a [Tuple; 2],
    direction: usize,
    payload: &'a [u8],
    sequence: u32,
    /// The packet is translated now, and with it what it says.
    is_translated: bool,
}

/// Messages about an end that is not the sender's, or that cannot be read, are not sound.
type Announcement = Result<Named, Unreadable>;

impl Packet<'_> {
    /// Reads the announcement of a packet, if it is one.
    fn announcement(&self, application: Application) -> Option<Announcement> {
        let Self { direction, payload, tuples, .. } = *self;
        match application {
            Application::Ftp => {
                let named = ftp::read(payload, direction, tuples[0].is_ipv6)?;
                Some(named.and_then(|named| if self.is_own(&named) { Ok(named) } else { Err(Unreadable) }))
            }
            // A request to read or to write: the server answers to its source port, from any port.
            Application::Tftp => {
                let is_request = direction == 0 && matches!(payload, [0, 1 | 2, ..]);
                is_request.then(|| Ok(Named::port(tuples[0].source.port)))
            }
        }
    }

    /// Returns the address of the sender as it knows it, and as the other end does.
    fn addresses(&self) -> [IpAddr; 2] {
        let (own, other) = (&self.tuples[self.direction], &self.tuples[1 - self.direction]);
        [own.ip(own.source), own.ip(other.destination)]
    }

    /// Returns whether an address is the sender's: no one opens a port of another host.
    fn is_own(&self, named: &Named) -> bool {
        named.address.as_ref().is_none_or(|(address, _)| self.addresses().contains(address))
    }

    /// Returns the tuple of the first packet to an end that is announced, whose source port is any.
    fn expected(&self, direction: usize, port: u16) -> Tuple {
        let to_sender = &self.tuples[1 - direction];
        let destination = End { port, ..to_sender.destination };
        Tuple { source: End { port: 0, ..to_sender.source }, destination, ..*to_sender }
    }

    /// Returns the connection that is expected to a port of the sender.
    fn expectation(&self, control: Place, live: &Live, reply_port: u16) -> Expectation {
        // The ends see each other as in the control connection.
        let own = &self.tuples[self.direction];
        // As in Open vSwitch, where the control connection is not translated, either.
        let is_source = (self.direction == 1) != live.translated.destination;
        Expectation {
            control,
            control_tuple: self.tuples[0],
            direction: self.direction,
            mark: live.mark,
            label: live.label(),
            reply_addresses: [own.source.address, own.destination.address],
            reply_port,
            translated: Translated { source: is_source, destination: !is_source },
        }
    }
}

/// The result of reading a packet.
#[derive(Default)]
struct Followed {
    edit: Edit,
    is_unsound: bool,
    added: Option<(Tuple, Expectation)>,
    removed: Option<Tuple>,
}

/// Reads a packet of a control connection. `is_read` says whether it may be an announcement.
fn follow(
    live: &mut Live,
    control: Place,
    packet: &Packet<'_>,
    (is_read, may_grow): (bool, impl Fn(i32) -> bool),
) -> Followed {
    let mut followed = Followed::default();
    let Some(application) = live.application() else { return followed };
    let named = match packet.announcement(application).filter(|_| is_read) {
        Some(Ok(named)) => Some(named),
        unsound => {
            followed.is_unsound = unsound.is_some();
            None
        }
    };
    if let Some(named) = &named {
        let direction = packet.direction;
        // A port that translation has moved is moved back.
        let port = match application {
            Application::Ftp => named.port,
            Application::Tftp => packet.tuples[1].destination.port,
        };
        let expectation = packet.expectation(control, live, named.port);
        followed.added = Some((packet.expected(direction, port), expectation));
    }
    let Some(Alg::Control(control)) = live.alg.as_deref_mut() else { return followed };
    if let Some((tuple, _)) = &followed.added {
        let replaced = control.announce((packet.direction, tuple.destination.port));
        followed.removed = replaced.map(|(direction, port)| packet.expected(direction, port));
    }
    if !packet.is_translated {
        return followed;
    }
    let (direction, to) = (packet.direction, packet.addresses()[1]);
    if let Some((named, (_, part))) = named.as_ref().and_then(|named| Some((named, named.address.clone()?))) {
        let text = named.written(to);
        let grows = text.len() as i32 - part.len() as i32;
        if may_grow(grows) {
            if grows != 0 {
                control.skews[direction].grow(packet.sequence, grows);
            }
            followed.edit.text = Some((part, text));
        }
    }
    followed.edit.skews = [control.skews[direction], control.skews[1 - direction]];
    followed
}

impl Control {
    /// Notes that an end is announced. Returns the one that is not expected any more.
    fn announce(&mut self, end: (usize, u16)) -> Option<(usize, u16)> {
        if self.announced.contains(&Some(end)) {
            return None;
        }
        let replaced = self.announced[self.next].replace(end);
        self.next = (self.next + 1) % ANNOUNCED_MAX;
        replaced
    }
}

impl Connections {
    /// Returns whether a connection is there, and its time is not over.
    pub(super) fn is_there(&self, place: Place, now_ms: u64) -> bool {
        let entry = self.table().entry(place.entry);
        entry.generation() == place.generation && entry.expires_ms() > now_ms
    }

    /// Returns the number of connections that are expected.
    pub fn expected_connections(&self) -> usize {
        self.expectations.len()
    }

    /// Finds the expectation that the first packet of a connection meets.
    #[inline]
    pub(super) fn expected(&self, tuple: &Tuple, now_ms: u64) -> Option<Expectation> {
        self.expectations.find(tuple, now_ms, |place| self.is_there(place, now_ms))
    }

    /// Reads a packet that has just been tracked, and translated if `is_translated`, and rewrites what it says.
    /// Returns whether it is of a control connection: others may depend on it.
    #[inline]
    pub(crate) fn follow(
        &self,
        request: &Request<'_>,
        (frame, headers): (&mut Frame, &Headers),
        tracked: &mut Tracked,
        (is_translated, now_ms): (bool, u64),
    ) -> bool {
        if tracked.followed.is_none() {
            return false;
        }
        self.follow_control(request, (frame, headers), tracked, (is_translated, now_ms));
        true
    }

    #[cold]
    fn follow_control(
        &self,
        request: &Request<'_>,
        (frame, headers): (&mut Frame, &Headers),
        tracked: &mut Tracked,
        (is_translated, now_ms): (bool, u64),
    ) {
        let Some(known) = tracked.followed.take() else { return };
        let (direction, place) = (usize::from(known.direction), known.place);
        let entry = self.table().entry(place.entry);
        let tuples = [entry.tuple(0), entry.tuple(1)];
        let Some(layout) = Layout::of(frame.bytes(), headers, tuples[0].proto) else { return };
        let is_sound = tracked.state & INVALID == 0;
        let bytes = frame.bytes();
        let packet = Packet {
            tuples: &tuples,
            direction,
            payload: layout.payload(bytes),
            sequence: layout.sequence(bytes),
            is_translated: is_translated && tuples[0].proto == ip_proto::TCP,
        };
        let followed = entry.with(place.generation, |live| {
            let live = &mut *live_for(request, live);
            let is_at = live.application().is_some_and(|application| application.is_at(&tuples[direction]));
            let is_read = is_sound && (is_at || request.application == live.application());
            follow(live, place, &packet, (is_read, |by| layout.may_grow(bytes, headers, by)))
        });
        let Some(followed) = followed else { return };
        if followed.is_unsound {
            tracked.state |= INVALID | TRACKED;
        }
        followed.edit.apply(frame, headers, &layout);
        if request.is_dry_run {
            return;
        }
        if let Some(tuple) = followed.removed {
            self.expectations.remove(&tuple, place);
        }
        if let Some((tuple, expectation)) = followed.added {
            let is_there = |place| self.is_there(place, now_ms);
            if self.expectations.add(&tuple, expectation, now_ms, is_there) {
                self.counters.refused_expected.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
