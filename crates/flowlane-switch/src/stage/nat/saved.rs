//! Sessions as they outlive the process: saved as bytes, and restored.
//!
//! | bytes | what |
//! |---:|---|
//! | 4, 2 | inside address and port |
//! | 4, 2 | outside address and port |
//! | 1, 1 | protocol; events of TCP that the session has seen |
//! | 8, 8 | packets outbound and inbound |
//! | 8 | when the session was used last, in nanoseconds of the workers' clock |
//!
//! Sessions of forwards come from the configuration. One of another configuration, another worker or a changed file is restored only
//! if it could have been opened here.

use flowlane::packet::parse::ip_proto;

use super::session::{Session, state};
use super::{Nat, Ticks};
use crate::state::bytes::Bytes;

/// A session and the time of its last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedSession {
    pub session: Session,
    pub used_ns: u64,
}

impl SavedSession {
    /// Appends the session.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Session { inside, outside, inside_port, outside_port, proto, state, packets } = self.session;
        out.extend(inside.to_le_bytes());
        out.extend(inside_port.to_le_bytes());
        out.extend(outside.to_le_bytes());
        out.extend(outside_port.to_le_bytes());
        out.extend([proto, state]);
        packets.iter().for_each(|packets| out.extend(packets.to_le_bytes()));
        out.extend(self.used_ns.to_le_bytes());
    }

    /// Reads what [`write`](Self::write) has written; `None` if the bytes are no session.
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (inside, inside_port) = (bytes.u32()?, bytes.u16()?);
        let (outside, outside_port) = (bytes.u32()?, bytes.u16()?);
        let (proto, state) = (bytes.u8()?, bytes.u8()?);
        let packets = [bytes.u64()?, bytes.u64()?];
        let used_ns = bytes.u64()?;
        let is_known = matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::ICMP);
        let session = Session { inside, outside, inside_port, outside_port, proto, state, packets };
        (is_known && state & !state::ALL == 0).then_some(Self { session, used_ns })
    }
}

impl Nat {
    /// Copies the sessions in `budget` places from place `from` on, but for those of forwards. Returns the place to continue from,
    /// if any.
    pub fn save(&self, from: u32, budget: u32, mut each: impl FnMut(&SavedSession)) -> Option<u32> {
        let (entries, next) = self.sessions.expiring(from, budget);
        for at in entries {
            let used_ns = self.ticks.ns_of(self.sessions.used(at));
            each(&SavedSession { session: *self.sessions.get(at), used_ns });
        }
        next
    }

    /// Opens a session again, before packets come. Returns whether it could: if this worker owns it, it fits the configuration,
    /// there is room, and it has not expired.
    pub fn restore(&mut self, saved: &SavedSession, now_ns: u64) -> bool {
        if self.ticks.is_new() {
            self.ticks = Ticks::long_before(now_ns);
            self.sessions.begin_at(self.ticks.now());
        }
        let now = self.ticks.at(now_ns);
        let (session, used) = (saved.session, self.ticks.tick_of(saved.used_ns));
        let idle = self.config.idle.of(session.proto, session.state);
        if now - used > idle || !self.could_open(&session) {
            return false;
        }
        self.pool.take(session.proto, session.outside, session.outside_port)
            && self.keep(session, used, now).is_some()
    }

    /// Returns whether the session could be opened by this worker, if its port is free.
    fn could_open(&self, session: &Session) -> bool {
        let (shard, port) = (self.config.shard, session.outside_port);
        let (low, high) = self.config.ports;
        self.config.is_inside(session.inside)
            && self.owner_inside(session.inside) == shard.me
            && shard.owner_of_port(port) == shard.me
            && (session.proto == ip_proto::ICMP || (low..=high).contains(&port))
            && self.inside.lookup(&session.inside_key()).is_none()
            && self.outside.lookup(&session.outside_key()).is_none()
    }
}
