//! A model of TCP tracking, made of RFC 9293 and van Rooij's *Real stateful TCP packet filtering in IP Filter* (2001), with the
//! tolerances and timeouts of Open vSwitch.
//!
//! It shares no code with the switch. It lists the reasons for which a segment is refused, and keeps one history of each stream
//! instead of a state that is updated in place.

use std::collections::BTreeSet;

pub(super) const FIN: u16 = 1;
pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const PSH: u16 = 8;
pub(super) const ACK: u16 = 16;
pub(super) const URG: u16 = 32;

/// A segment's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) shift: Option<u8>,
    pub(super) bytes: u32,
}

/// The verdict on a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verdict {
    New,
    Established,
    Invalid,
    /// The old connection is over: the segment begins another one.
    Restart,
}

/// Why a segment is none of the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reason {
    Flags,
    BeyondWindow,
    BeforeWindow,
    AcknowledgesTooMuch,
    AcknowledgesTooLittle,
    ResetOutOfOrder,
}

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Silent,
    Opening,
    Open,
    FinSent,
    FinAcknowledged,
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scale {
    Never,
    By(u8),
    /// The SYN has not been seen.
    Unknown,
}

/// One direction.
#[derive(Clone, Copy, Debug)]
struct Stream {
    phase: Phase,
    /// Behind the last byte.
    high: u32,
    /// The receiver takes no byte from here on.
    limit: u32,
    /// The largest window that the sender has offered, as in its header.
    window: u64,
    scale: Scale,
}

/// A connection: the stream of the end that began it, and the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    streams: [Stream; 2],
    /// Seconds until it ends, since a segment has moved that.
    pub(super) seconds: u64,
}

/// The distance from `b` to `a` in the stream; half of all numbers is a negative distance.
fn ahead(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

/// An acknowledgement may be off by the largest window without a scale, and a segment.
const TOLERANCE: i64 = 65_535 + 1_500;

/// RFC 7323, 2.3.
const SHIFT_MAX: u8 = 14;

impl Header {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag == flag
    }

    fn end(&self) -> u32 {
        let controls = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.seq.wrapping_add(self.bytes).wrapping_add(controls)
    }

    /// A segment opens, acknowledges or resets; only SYN and RST come without ACK, and SYN with neither FIN nor RST.
    fn is_sound(&self) -> bool {
        let marks = self.has(FIN) || self.has(PSH) || self.has(URG);
        let opens = self.has(SYN);
        !(opens && (self.has(FIN) || self.has(RST)))
            && (opens || self.has(ACK) || self.has(RST))
            && (self.has(ACK) || !marks)
    }

    /// Returns whether it may be the first that is seen.
    pub(super) fn may_begin(&self) -> bool {
        self.is_sound() && !(self.has(SYN) && self.has(ACK))
    }

    /// The window of a SYN is not scaled; later ones are, and are compared with it.
    fn scaled_down(&self, shift: u8) -> u64 {
        let unit = 1u64 << shift;
        u64::from(self.window).div_ceil(unit)
    }
}

impl Model {
    /// The connection of a first segment.
    pub(super) fn new(first: &Header) -> Self {
        let scale = match (first.has(SYN), first.shift) {
            (false, _) => Scale::Unknown,
            (true, None) => Scale::Never,
            (true, Some(shift)) => Scale::By(shift),
        };
        let at_least_one = u64::from(first.window).max(1);
        let window = if let Scale::By(shift) = scale { first.scaled_down(shift) } else { at_least_one };
        let other = if first.has(SYN) { Scale::Never } else { Scale::Unknown };
        let window = if first.window == 0 { 1 } else { window };
        let own = Stream {
            phase: Phase::Opening,
            high: first.seq,
            limit: first.end().wrapping_add(1),
            window,
            scale,
        };
        let silent = Stream { phase: Phase::Silent, high: 0, limit: 1, window: 1, scale: other };
        Self { streams: [own, silent], seconds: 30 }
    }

    /// The names of both states, that of the further one first.
    pub(super) fn name(&self) -> &'static str {
        match self.streams.iter().map(|stream| stream.phase).max() {
            Some(Phase::Opening) => "SYN_SENT",
            Some(Phase::Open) => "ESTABLISHED",
            Some(Phase::FinSent) => "CLOSING",
            Some(Phase::FinAcknowledged | Phase::Reset) => "TIME_WAIT",
            Some(Phase::Silent) | None => "CLOSED",
        }
    }

    /// Takes a segment of one end. Returns what becomes of it, and the reasons against it.
    pub(super) fn take(&mut self, header: &Header, from: usize) -> (Verdict, BTreeSet<Reason>) {
        if !header.is_sound() {
            return (Verdict::Invalid, [Reason::Flags].into());
        }
        let [own, other] = [self.streams[from].phase, self.streams[1 - from].phase];
        if header.has(SYN) && !header.has(ACK) {
            if own >= Phase::FinAcknowledged && other >= Phase::FinAcknowledged {
                return (Verdict::Restart, BTreeSet::new());
            }
            if own <= Phase::Opening {
                self.streams[from].phase = Phase::Opening;
                self.seconds = 30;
                return (Verdict::New, BTreeSet::new());
            }
        }
        let (shifts, window, is_first) = self.meet(header, from);
        let reasons = self.reasons(header, from, shifts, is_first);
        if reasons.is_empty() {
            self.move_on(header, from, shifts, window);
            if header.has(ACK) {
                let receiver = &mut self.streams[1 - from].phase;
                *receiver = match *receiver {
                    Phase::Opening => Phase::Open,
                    Phase::FinSent => Phase::FinAcknowledged,
                    other => other,
                };
            }
            self.end_by(header, from);
            self.seconds = self.timeout();
            return (Verdict::Established, reasons);
        }
        if self.is_tolerated(header, from) {
            self.move_on(header, from, shifts, window);
            self.end_by(header, from);
            return (Verdict::Established, reasons);
        }
        (Verdict::Invalid, reasons)
    }

    /// Learns from the first segment of an end. Returns the shifts of the sender's and the receiver's windows, the segment's window, and
    /// whether nothing was known of the stream, so that acknowledgements cannot be judged.
    fn meet(&mut self, header: &Header, from: usize) -> ([u8; 2], u64, bool) {
        let [own, other] = [self.streams[from].scale, self.streams[1 - from].scale];
        let mut shifts = match (own, other) {
            _ if header.has(SYN) => [0, 0],
            (Scale::By(a), Scale::By(b)) => [a, b],
            (Scale::Unknown, Scale::Unknown) => [SHIFT_MAX; 2],
            _ => [0, 0],
        };
        let (mut window, mut is_first) = (u64::from(header.window), false);
        if self.streams[from].phase != Phase::Silent {
            return (shifts, window, is_first);
        }
        if let (true, Scale::By(theirs)) = (header.has(SYN), other) {
            if let Some(shift) = header.shift {
                // RFC 7323, 1.3: both ends have to offer it.
                self.streams[from].scale = Scale::By(shift);
                window = header.scaled_down(shift);
                shifts = [shift, theirs];
            } else {
                let receiver = &mut self.streams[1 - from];
                (receiver.scale, receiver.window) = (Scale::Never, (receiver.window << theirs) & 0xffff);
                self.streams[from].scale = Scale::Never;
            }
        }
        let room = (self.streams[1 - from].window << shifts[1]).max(1) as u32;
        let sender = &mut self.streams[from];
        (sender.high, sender.phase) = (header.seq, Phase::Opening);
        let allowed = header.end().wrapping_add(room);
        if sender.limit == 1 || ahead(allowed, sender.limit) >= 0 {
            (sender.limit, is_first) = (allowed, true);
        }
        sender.window = sender.window.max(window);
        (shifts, window, is_first)
    }

    /// Where the segment's data begin and end: nothing is known of one without data.
    fn span(&self, header: &Header, from: usize) -> (u32, u32) {
        let high = self.streams[from].high;
        if header.end() == header.seq { (high, high) } else { (header.seq, header.end()) }
    }

    /// Returns the number that the segment acknowledges; none: nothing, or nothing that its sender meant.
    fn acknowledged(&self, header: &Header) -> Option<u32> {
        let is_bare_reset = header.has(RST) && header.ack == 0;
        (header.has(ACK) && !is_bare_reset).then_some(header.ack)
    }

    fn reasons(&self, header: &Header, from: usize, shifts: [u8; 2], is_first: bool) -> BTreeSet<Reason> {
        let [sender, receiver] = [&self.streams[from], &self.streams[1 - from]];
        let (begin, end) = self.span(header, from);
        let missing = match self.acknowledged(header) {
            Some(ack) if !is_first => ahead(receiver.high, ack),
            _ => 0,
        };
        let window = (receiver.window << shifts[1]) as u32;
        let judged = [
            (Reason::BeyondWindow, ahead(sender.limit, end) < 0),
            (Reason::BeforeWindow, ahead(begin, sender.high.wrapping_sub(window)) < 0),
            (Reason::AcknowledgesTooMuch, missing < -TOLERANCE),
            (Reason::AcknowledgesTooLittle, missing > TOLERANCE << shifts[0]),
            (Reason::ResetOutOfOrder, header.has(RST) && ahead(header.seq, sender.high).abs() > 1),
        ];
        judged.into_iter().filter(|(_, holds)| *holds).map(|(reason, _)| reason).collect()
    }

    /// While an end has not been heard, and after the end, segments near the window pass.
    fn is_tolerated(&self, header: &Header, from: usize) -> bool {
        let [sender, receiver] = [&self.streams[from], &self.streams[1 - from]];
        let (begin, end) = self.span(header, from);
        let is_over = sender.phase.max(receiver.phase) >= Phase::FinAcknowledged;
        (receiver.phase == Phase::Silent || is_over)
            && ahead(sender.limit.wrapping_add(TOLERANCE as u32), end) >= 0
            && ahead(begin, sender.high.wrapping_sub(TOLERANCE as u32)) >= 0
    }

    fn move_on(&mut self, header: &Header, from: usize, shifts: [u8; 2], window: u64) {
        let (_, end) = self.span(header, from);
        let acknowledged = self.acknowledged(header).unwrap_or(self.streams[1 - from].high);
        let sender = &mut self.streams[from];
        sender.window = sender.window.max(window);
        if ahead(end, sender.high) > 0 {
            sender.high = end;
        }
        let offered = (window << shifts[0]) as u32;
        let receiver = &mut self.streams[1 - from];
        if ahead(acknowledged.wrapping_add(offered), receiver.limit) >= 0 {
            receiver.limit = acknowledged.wrapping_add(offered.max(1));
        }
    }

    fn end_by(&mut self, header: &Header, from: usize) {
        if header.has(FIN) && self.streams[from].phase < Phase::FinSent {
            self.streams[from].phase = Phase::FinSent;
        }
        if header.has(RST) {
            self.streams.iter_mut().for_each(|stream| stream.phase = Phase::Reset);
        }
    }

    /// The seconds of the table in `docs`: opening 30, open 86,400, one FIN 900, both 45, over 30.
    fn timeout(&self) -> u64 {
        let phases = self.streams.map(|stream| stream.phase);
        let all = |least: Phase| phases.iter().all(|phase| *phase >= least);
        match () {
            () if all(Phase::FinAcknowledged) => 30,
            () if all(Phase::FinSent) => 45,
            () if !all(Phase::Open) => 30,
            () if phases.iter().any(|phase| *phase >= Phase::FinSent) => 900,
            () => 86_400,
        }
    }
}
