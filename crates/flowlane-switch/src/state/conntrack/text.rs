//! Connections as Open vSwitch prints them (`dpctl/dump-conntrack`).

use std::fmt;

use flowlane::packet::parse::ip_proto;

use super::protocol::State;
use super::sweep::Listed;
use super::tuple::Tuple;

/// Returns the name of a protocol, as Open vSwitch prints it; other protocols are numbers.
pub fn protocol_name(proto: u8) -> String {
    match proto {
        ip_proto::ICMP => "icmp".into(),
        ip_proto::TCP => "tcp".into(),
        ip_proto::UDP => "udp".into(),
        ip_proto::SCTP => "sctp".into(),
        ip_proto::UDP_LITE => "udplite".into(),
        ip_proto::ICMPV6 => "icmpv6".into(),
        2 => "igmp".into(),
        33 => "dccp".into(),
        other => other.to_string(),
    }
}

/// A tuple in parentheses.
struct Ends<'a>(&'a Tuple);

impl fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tuple = self.0;
        let (source, destination) = (tuple.source, tuple.destination);
        write!(f, "(src={},dst={}", tuple.ip(source), tuple.ip(destination))?;
        match tuple.is_icmp() {
            true => write!(f, ",id={},type={},code=0)", source.port, source.icmp_type),
            false => write!(f, ",sport={},dport={})", source.port, destination.port),
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = protocol_name(self.original.proto);
        write!(f, "{name},orig={},reply={}", Ends(&self.original), Ends(&self.reply))?;
        if self.original.zone != 0 {
            write!(f, ",zone={}", self.original.zone)?;
        }
        if f.alternate() {
            write!(f, ",timeout={}", self.left_ms / 1000)?;
        }
        if self.mark != 0 {
            write!(f, ",mark={}", self.mark)?;
        }
        if self.label != 0 {
            write!(f, ",labels={:#x}", self.label)?;
        }
        if let State::Tcp(_) | State::Session(_) = &self.state
            && self.original.proto == ip_proto::TCP
        {
            write!(f, ",protoinfo=(state={})", self.state.name())?;
        }
        if let Some(application) = self.application {
            write!(f, ",helper={}", application.name())?;
        }
        Ok(())
    }
}
