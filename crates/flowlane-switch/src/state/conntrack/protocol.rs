//! States of connections by protocol.

use super::session::Session;
use super::tcp::{Segment, Tcp};
use super::timeouts::Timeout;

/// The effect of a packet on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// It is of an established connection.
    Established,
    /// It is one of the first, which have not been answered.
    New,
    /// It is not sound.
    Invalid,
    /// It begins another connection with the same ends; the old one has ended.
    Restarts,
}

/// The part of a packet behind its tuple that connections look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    Tcp(Segment),
    /// ICMP and ICMPv6; the packet's tuple has its type.
    Icmp,
    /// UDP and every other protocol.
    Other,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Tcp(Tcp),
    /// A request, and whether it has been answered.
    Icmp {
        answered: bool,
    },
    Other(Exchange),
    /// Packets between an inside end and any host.
    Session(Session),
}

/// The packets of a protocol without connections of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// One packet has come.
    First,
    /// Several have come from one end.
    Multiple,
    /// Both ends have sent packets.
    Both,
}

impl State {
    /// Returns its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(tcp) => tcp.name(),
            Self::Session(session) => session.name(),
            Self::Icmp { answered: false } | Self::Other(Exchange::First | Exchange::Multiple) => "UNREPLIED",
            Self::Icmp { answered: true } | Self::Other(Exchange::Both) => "REPLIED",
        }
    }

    /// The state after the first packet, with the timeout that then runs.
    pub(super) fn begin(message: &Message) -> (Self, Timeout) {
        match message {
            Message::Tcp(segment) => (Self::Tcp(Tcp::begin(segment)), Timeout::TcpSynSent),
            Message::Icmp => (Self::Icmp { answered: false }, Timeout::IcmpFirst),
            Message::Other => (Self::Other(Exchange::First), Timeout::UdpFirst),
        }
    }

    /// Takes a packet of the end that began the connection (0), or of the other (1). Returns the timeout that begins again with it.
    pub(super) fn update(&mut self, message: &Message, from: usize) -> (Progress, Option<Timeout>) {
        match (self, message) {
            (Self::Tcp(tcp), Message::Tcp(segment)) => tcp.update(segment, from),
            (Self::Icmp { answered }, _) => {
                let is_first = !*answered && from == 0;
                *answered |= from == 1;
                let timeout = if *answered { Timeout::IcmpReply } else { Timeout::IcmpFirst };
                (if is_first { Progress::New } else { Progress::Established }, Some(timeout))
            }
            (Self::Other(exchange), _) => {
                let before = *exchange;
                *exchange = match before {
                    _ if from == 1 => Exchange::Both,
                    Exchange::First => Exchange::Multiple,
                    as_it_is => as_it_is,
                };
                let timeout = match exchange {
                    Exchange::Both => Timeout::UdpSingle,
                    _ => Timeout::UdpMultiple,
                };
                let is_new = *exchange != Exchange::Both;
                (if is_new { Progress::New } else { Progress::Established }, Some(timeout))
            }
            // A session's packets go to it by themselves.
            (Self::Tcp(_) | Self::Session(_), _) => (Progress::Invalid, None),
        }
    }

    /// Returns whether its ends have closed the connection.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Tcp(tcp) if tcp.is_over())
    }

    /// Returns whether the connection may go where there is no room for others: it has not been answered, or is closing.
    pub(super) fn is_weak(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_weak(),
            Self::Icmp { .. } => true,
            // Any host may send to it, and its inside end relies on its address.
            Self::Session(_) => false,
            Self::Other(exchange) => *exchange != Exchange::Both,
        }
    }
}

/// Returns whether a message may begin a connection. `icmp_type` is its type, where it is of ICMP.
pub(super) fn may_begin(message: &Message, icmp_type: u8, is_ipv6: bool) -> bool {
    match message {
        Message::Tcp(segment) => segment.may_begin(),
        Message::Icmp if is_ipv6 => icmp_type == 128,
        // Echo, timestamp and information requests.
        Message::Icmp => matches!(icmp_type, 8 | 13 | 15),
        Message::Other => true,
    }
}
