//! States of TCP connections and the check of sequence numbers.
//!
//! The check is van Rooij's (*Real stateful TCP packet filtering in IP Filter*, 2001), with the tolerances of OpenBSD's pf, as Open
//! vSwitch uses it: for each end, the tracker keeps the highest sequence number that it has sent (`sent`), the highest that the other
//! end lets it send (`allowed`), and its largest window. A segment is of the connection if
//!
//! - it ends within what the receiver allows,
//! - it begins not more than a window before what its sender has sent,
//! - it acknowledges about what the receiver has sent, and
//! - if it is an RST, it begins where its sender's next segment would.

use super::protocol::Progress;
use super::timeouts::Timeout;
use crate::state::bytes::Bytes;

/// Flags of TCP (RFC 9293).
pub(super) mod flags {
    pub(in super::super) const FIN: u16 = 0x01;
    pub(in super::super) const SYN: u16 = 0x02;
    pub(in super::super) const RST: u16 = 0x04;
    pub(in super::super) const PSH: u16 = 0x08;
    pub(in super::super) const ACK: u16 = 0x10;
    pub(in super::super) const URG: u16 = 0x20;
}

use flags::{ACK, FIN, PSH, RST, SYN, URG};

/// Bytes by which an acknowledgement may be off: the largest window without scaling, and a segment.
const SKEW_MAX: i32 = 0xffff + 1500;

/// The largest shift of a window (RFC 7323, 2.3).
pub const WINDOW_SHIFT_MAX: u8 = 14;

/// The fields of a TCP segment that matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    pub flags: u16,
    pub sequence: u32,
    pub acknowledgement: u32,
    /// As it is in the header.
    pub window: u16,
    /// The shift of the window scale option.
    pub window_shift: Option<u8>,
    /// Bytes of payload.
    pub payload: u32,
}

impl Segment {
    fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether no sound segment has these flags.
    fn has_bad_flags(&self) -> bool {
        let needs_ack = self.has(FIN | PSH | URG) && !self.has(ACK);
        match self.has(SYN) {
            true => self.has(RST | FIN) || needs_ack,
            false => !self.has(ACK | RST) || needs_ack,
        }
    }

    /// Returns whether the segment may be the first of a connection that is seen: not one that answers a SYN.
    pub(super) fn may_begin(&self) -> bool {
        !self.has_bad_flags() && self.flags & (SYN | ACK) != SYN | ACK
    }

    /// Returns whether it asks for a connection.
    pub(super) fn is_syn(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// Returns the sequence numbers that it takes.
    fn len(&self) -> u32 {
        self.payload + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// The state of an end, as the states of RFC 9293 in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum EndState {
    /// Nothing has come from it.
    #[default]
    Closed,
    SynSent,
    Established,
    /// It has sent FIN.
    Closing,
    /// Its FIN has been acknowledged.
    FinWait2,
    /// The connection has been reset.
    TimeWait,
}

impl EndState {
    const ALL: [Self; 6] =
        [Self::Closed, Self::SynSent, Self::Established, Self::Closing, Self::FinWait2, Self::TimeWait];

    /// Returns the name that Open vSwitch prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN_SENT",
            Self::Established => "ESTABLISHED",
            Self::Closing => "CLOSING",
            Self::FinWait2 => "FIN_WAIT_2",
            Self::TimeWait => "TIME_WAIT",
        }
    }
}

/// The knowledge of the scaling of an end's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Scaling {
    /// Its windows are not scaled, or it has not said.
    #[default]
    None,
    /// Its SYN has named a shift.
    Shift(u8),
    /// The connection was picked up after its SYN.
    Unknown,
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Peer {
    /// The sequence number behind the last byte that it has sent.
    sent: u32,
    /// The first one that it may not send.
    allowed: u32,
    window: u16,
    scaling: Scaling,
    state: EndState,
    /// Its numbers may be older than what it has sent: its next segment says where it is.
    is_stale: bool,
}

/// The state of a TCP connection: the end that began it, and the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp {
    peers: [Peer; 2],
}

/// A peer's scaling in saved state, where it is not a shift.
const SAVED_NONE: u8 = 255;
const SAVED_UNKNOWN: u8 = 254;

impl Peer {
    fn save(&self, out: &mut Vec<u8>) {
        out.extend(self.sent.to_le_bytes());
        out.extend(self.allowed.to_le_bytes());
        out.extend(self.window.to_le_bytes());
        let scaling = match self.scaling {
            Scaling::None => SAVED_NONE,
            Scaling::Unknown => SAVED_UNKNOWN,
            Scaling::Shift(shift) => shift,
        };
        out.extend([scaling, self.state as u8]);
    }

    fn restore(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (sent, allowed, window) = (bytes.u32()?, bytes.u32()?, bytes.u16()?);
        let scaling = match bytes.u8()? {
            SAVED_NONE => Scaling::None,
            SAVED_UNKNOWN => Scaling::Unknown,
            shift @ ..=WINDOW_SHIFT_MAX => Scaling::Shift(shift),
            _ => return None,
        };
        let state = *EndState::ALL.get(usize::from(bytes.u8()?))?;
        Some(Self { sent, allowed, window, scaling, state, is_stale: false })
    }
}

impl Tcp {
    /// Appends the state of both ends, 12 bytes each.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        self.peers.iter().for_each(|peer| peer.save(out));
    }

    /// Reads what [`save`](Self::save) has written.
    pub(super) fn restore(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { peers: [Peer::restore(bytes)?, Peer::restore(bytes)?] })
    }
}

/// Returns whether sequence number `a` is `b` or a later one.
fn is_from(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// The first window of an end that scales its later ones: that of its SYN is not scaled.
fn unscaled(window: u16, shift: u8) -> u16 {
    u32::from(window).div_ceil(1 << shift) as u16
}

/// A segment with what the check needs to know of it.
struct Checked {
    /// Its first sequence number, or that of its sender's next byte where it has none.
    start: u32,
    end: u32,
    acknowledgement: u32,
    window: u16,
    /// By how much its acknowledgement is behind what the receiver has sent.
    skew: i32,
    /// Shifts of its sender's and its receiver's windows.
    shifts: [u8; 2],
}

impl Tcp {
    /// The state after the first segment that is seen.
    pub(super) fn begin(segment: &Segment) -> Self {
        let is_syn = segment.has(SYN);
        let scaling = match segment.window_shift {
            _ if !is_syn => Scaling::Unknown,
            Some(shift) => Scaling::Shift(shift),
            None => Scaling::None,
        };
        let mut window = segment.window.max(1);
        if let Scaling::Shift(shift) = scaling {
            window = unscaled(window, shift);
        }
        let source = Peer {
            sent: segment.sequence,
            allowed: segment.sequence.wrapping_add(segment.len()).wrapping_add(1),
            window,
            scaling,
            state: EndState::SynSent,
            is_stale: false,
        };
        let other = if is_syn { Scaling::None } else { Scaling::Unknown };
        let destination = Peer { allowed: 1, window: 1, scaling: other, ..Peer::default() };
        Self { peers: [source, destination] }
    }

    /// Makes the numbers of both ends those of some time ago: segments may have passed since then.
    pub(super) fn age(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.is_stale = true);
    }

    /// Returns the states of both ends.
    pub fn states(&self) -> [EndState; 2] {
        self.peers.map(|peer| peer.state)
    }

    /// Returns the state's name: that of the end that is further. As Linux, Open vSwitch does not tell FIN_WAIT_2 from TIME_WAIT.
    pub fn name(&self) -> &'static str {
        let [original, reply] = self.states();
        match original.max(reply) {
            EndState::FinWait2 => EndState::TimeWait.name(),
            other => other.name(),
        }
    }

    /// Returns whether both ends have closed the connection.
    pub(super) fn is_over(&self) -> bool {
        self.states().iter().all(|state| *state >= EndState::FinWait2)
    }

    /// Returns whether the connection is closing, or has not been answered.
    pub(super) fn is_weak(&self) -> bool {
        self.states().iter().any(|state| *state != EndState::Established)
    }

    /// Takes a segment of the end that began the connection (0), or of the other (1).
    pub(super) fn update(&mut self, segment: &Segment, from: usize) -> (Progress, Option<Timeout>) {
        let source = self.peers[from].state;
        if segment.has_bad_flags() {
            return (Progress::Invalid, None);
        }
        if segment.flags & (SYN | ACK) == SYN {
            if self.is_over() {
                return (Progress::Restarts, None);
            }
            if source <= EndState::SynSent {
                self.peers[from].state = EndState::SynSent;
                return (Progress::New, Some(Timeout::TcpSynSent));
            }
        }
        let checked = self.look(segment, from);
        if self.is_in_window(segment, &checked, from) {
            self.advance(&checked, from);
            self.follow_flags(segment, from);
            return (Progress::Established, Some(self.timeout()));
        }
        if self.is_near(&checked, from) {
            self.advance(&checked, from);
            self.close(segment, from);
            return (Progress::Established, None);
        }
        (Progress::Invalid, None)
    }

    /// Reads a segment; the first of its end says what the end can do.
    fn look(&mut self, segment: &Segment, from: usize) -> Checked {
        let [mut source, mut destination] = [self.peers[from], self.peers[1 - from]];
        let mut shifts = match (source.scaling, destination.scaling) {
            (Scaling::Shift(a), Scaling::Shift(b)) if !segment.has(SYN) => [a, b],
            (Scaling::Unknown, Scaling::Unknown) if !segment.has(SYN) => [WINDOW_SHIFT_MAX; 2],
            _ => [0; 2],
        };
        let (mut window, mut checks_skew) = (segment.window, true);
        let end = segment.sequence.wrapping_add(segment.len());
        let is_first = source.state < EndState::SynSent;
        if is_first || source.is_stale {
            if let (true, true, Scaling::Shift(shift)) = (is_first, segment.has(SYN), destination.scaling) {
                match segment.window_shift {
                    Some(own) => {
                        source.scaling = Scaling::Shift(own);
                        window = unscaled(window, own);
                        shifts = [own, shift];
                    }
                    None => {
                        source.scaling = Scaling::None;
                        destination.window = (u32::from(destination.window) << shift) as u16;
                        destination.scaling = Scaling::None;
                    }
                }
            }
            (source.sent, source.state) = (segment.sequence, source.state.max(EndState::SynSent));
            let room = (u32::from(destination.window) << shifts[1]).max(1);
            // A connection that was picked up late is allowed more.
            if source.is_stale || source.allowed == 1 || is_from(end.wrapping_add(room), source.allowed) {
                (source.allowed, checks_skew) = (end.wrapping_add(room), false);
            }
            source.window = source.window.max(window);
            source.is_stale = false;
        }
        checks_skew &= !destination.is_stale;
        // A segment that acknowledges nothing, and stacks that set no number in RST, pass.
        let is_silent =
            !segment.has(ACK) || segment.acknowledgement == 0 && segment.flags & (ACK | RST) == ACK | RST;
        let acknowledgement = if is_silent { destination.sent } else { segment.acknowledgement };
        let (start, end) =
            if segment.sequence == end { (source.sent, source.sent) } else { (segment.sequence, end) };
        let skew = destination.sent.wrapping_sub(acknowledgement) as i32;
        let skew = if checks_skew { skew } else { 0 };
        self.peers[from] = source;
        self.peers[1 - from] = destination;
        Checked { start, end, acknowledgement, window, skew, shifts }
    }

    fn is_in_window(&self, segment: &Segment, checked: &Checked, from: usize) -> bool {
        let [source, destination] = [&self.peers[from], &self.peers[1 - from]];
        let back = u32::from(destination.window) << checked.shifts[1];
        let is_reset_in_order = || segment.sequence.wrapping_sub(source.sent).wrapping_add(1) <= 2;
        is_from(source.allowed, checked.end)
            && is_from(checked.start, source.sent.wrapping_sub(back))
            && checked.skew >= -SKEW_MAX
            && checked.skew <= SKEW_MAX << checked.shifts[0]
            && (!segment.has(RST) || is_reset_in_order())
    }

    /// Returns whether a segment outside of the window is near it, and the connection in a state where that happens: while both
    /// ends open it at once, where it was picked up late, and just after its end.
    fn is_near(&self, checked: &Checked, from: usize) -> bool {
        let [source, destination] = [&self.peers[from], &self.peers[1 - from]];
        let may_be_off = destination.state < EndState::SynSent
            || destination.state >= EndState::FinWait2
            || source.state >= EndState::FinWait2;
        may_be_off
            && is_from(source.allowed.wrapping_add(SKEW_MAX as u32), checked.end)
            && is_from(checked.start, source.sent.wrapping_sub(SKEW_MAX as u32))
    }

    /// Moves the windows on.
    fn advance(&mut self, checked: &Checked, from: usize) {
        let source = &mut self.peers[from];
        source.window = source.window.max(checked.window);
        if is_from(checked.end, source.sent) {
            source.sent = checked.end;
        }
        let room = u32::from(checked.window) << checked.shifts[0];
        let destination = &mut self.peers[1 - from];
        if is_from(checked.acknowledgement.wrapping_add(room), destination.allowed) {
            destination.allowed = checked.acknowledgement.wrapping_add(room.max(1));
        }
    }

    /// Follows FIN and RST.
    fn close(&mut self, segment: &Segment, from: usize) {
        if segment.has(FIN) {
            self.peers[from].state = self.peers[from].state.max(EndState::Closing);
        }
        if segment.has(RST) {
            self.peers.iter_mut().for_each(|peer| peer.state = EndState::TimeWait);
        }
    }

    /// Follows all flags.
    fn follow_flags(&mut self, segment: &Segment, from: usize) {
        if segment.has(ACK) {
            let other = &mut self.peers[1 - from].state;
            *other = match *other {
                EndState::SynSent => EndState::Established,
                EndState::Closing => EndState::FinWait2,
                as_it_is => as_it_is,
            };
        }
        self.close(segment, from);
    }

    fn timeout(&self) -> Timeout {
        let [a, b] = self.states();
        let (least, most) = (a.min(b), a.max(b));
        if least >= EndState::FinWait2 {
            Timeout::TcpClose
        } else if least >= EndState::Closing {
            Timeout::TcpTimeWait
        } else if least < EndState::Established {
            Timeout::TcpSynRecv
        } else if most >= EndState::Closing {
            Timeout::TcpFinWait
        } else {
            Timeout::TcpEstablished
        }
    }
}
