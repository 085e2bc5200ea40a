//! Which worker translates a packet.
//!
//! A session is one worker's: its inside address says whose, so that a host's sessions, and their limit, are in one place. Each
//! worker draws outside ports that are its own, by [arithmetic](Share::owner_of_port), so that a packet from outside says by its
//! port who has its session. Ports of forwards, which are chosen by people, stand in a list.
//!
//! Fragments without ports go where the first of their datagram went, which the worker that receives them all remembers. A packet
//! that turns round has two sessions, perhaps of two workers: the source's translates the source and hands it on to the
//! destination's.

use flowlane::hash::murmur3;
use flowlane::packet::{FlowKey, Headers};

use super::config::Refusal;
use super::explain::alone;
use super::packet::End;
use super::reading::{Packet, Reading, Way, What};
use super::{FRAGMENT_IDLE_S, Nat, addresses, datagram, idle_ticks, write};
use crate::packet::{Burst, Frame};
use crate::stage::share::{Owner, Share};

impl Share {
    /// The worker whose sessions get this port: ports come in pairs, since those of UDP stay even or odd.
    #[inline]
    pub(super) fn owner_of_port(self, port: u16) -> usize {
        usize::from(port >> 1) % self.of
    }

    /// The ports of a word of 64, from the port `64 * word` on, that are this share's.
    pub(super) fn ports(self, word: usize) -> u64 {
        (0..64)
            .filter(|bit| self.owner_of_port((word * 64 + bit) as u16) == self.me)
            .fold(0, |m, bit| m | 1 << bit)
    }
}

impl Nat {
    /// The worker that has the sessions of an inside address.
    #[inline]
    pub(super) fn owner_inside(&self, address: u32) -> usize {
        self.config.share.owner(murmur3::finish(murmur3::mix(!self.config.seed, address), 4))
    }

    /// The worker that has the session of an outside address and port.
    #[inline]
    fn owner_outside(&self, outside: &[u32; 2]) -> usize {
        let forward = self.forward_owners.get(outside).copied();
        forward.unwrap_or_else(|| self.config.share.owner_of_port(outside[1] as u16))
    }

    /// The worker that has a packet's session; that of its source where it has two.
    #[inline]
    fn owner_of_first(&self, packet: &Packet) -> usize {
        match packet.way {
            Way::Inbound => self.owner_outside(&packet.outside),
            Way::Outbound | Way::Hairpin => self.owner_inside(packet.inside[0]),
        }
    }

    /// The worker that has the session of the destination of a packet that turns round, where that of its source is here, and
    /// that is another.
    #[inline]
    pub(super) fn other_half(&self, packet: &Packet) -> Option<usize> {
        let me = self.config.share.me;
        let turns = packet.way == Way::Hairpin && self.owner_inside(packet.inside[0]) == me;
        turns.then(|| self.owner_outside(&packet.outside)).filter(|&destination| destination != me)
    }

    pub(in crate::stage) fn turns_packets_round(&self) -> bool {
        self.config.hairpin
    }

    pub(in crate::stage) fn share(&self) -> Share {
        self.config.share
    }

    /// What [`owner`](Self::owner) would say.
    pub(in crate::stage) fn would_own(
        &self,
        frame: &Frame,
        key: &FlowKey,
        headers: &Headers,
        now_ns: u64,
    ) -> Owner {
        let packets = alone(frame, key, headers, now_ns);
        let Reading::Packet(packet) = self.read(&packets, 0) else { return Owner::Anyone };
        if packet.what == What::LaterFragment {
            let Some(owners) = &self.fragment_owners else { return Owner::Anyone };
            let datagram = datagram(addresses(&packets, 0), &packet, &packets, 0);
            let known = owners.peek(&datagram, self.ticks.peek(now_ns)).live();
            return known.map_or(Owner::Anyone, |at| Owner::Worker(owners.entries.get(at).value));
        }
        let destination = self.other_half(&packet);
        destination.map_or_else(|| Owner::Worker(self.owner_of_first(&packet)), Owner::OtherHalf)
    }

    /// Who is to work on a lane's packet. Where it turns round, and its source's session is here and its destination's is not,
    /// its source has been translated then.
    #[inline]
    pub(in crate::stage) fn owner(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        if !self.config.share.is_part() {
            return Owner::Anyone;
        }
        self.readings[lane] = self.read(packets, lane);
        self.were_read.0 |= 1 << lane;
        let Reading::Packet(packet) = self.readings[lane] else { return Owner::Anyone };
        if packet.what == What::LaterFragment {
            return self.owner_of_fragment(&packet, packets, lane).map_or(Owner::Anyone, Owner::Worker);
        }
        let owner = self.owner_of_first(&packet);
        if packet.first_fragment {
            self.remember_owner(&packet, packets, lane, owner);
        }
        let Some(destination) = self.other_half(&packet) else { return Owner::Worker(owner) };
        let now = self.ticks.at(packets.times_ns[lane]);
        match self.turn(&packet, packets, lane, now) {
            Ok(()) => Owner::OtherHalf(destination),
            Err(refusal) => {
                self.refuse(refusal);
                Owner::Nobody
            }
        }
    }

    /// Translates the source of a packet that turns round.
    fn turn(&mut self, packet: &Packet, packets: &mut Burst, lane: usize, now: u32) -> Result<(), Refusal> {
        let known = self.inside.lookup(&packet.inside).filter(|&at| !self.removed_as_due(at, now));
        let at = match known {
            Some(at) => at,
            None => self.open(packet, now)?,
        };
        let to = self.use_session(at, packet, 0, now).outside_end();
        write(packets, lane, packet.proto, End::Source, to);
        Ok(())
    }

    /// Notes to whom a datagram's later fragments go.
    #[cold]
    fn remember_owner(&mut self, packet: &Packet, packets: &Burst, lane: usize, owner: usize) {
        let now = self.ticks.at(packets.times_ns[lane]);
        let datagram = datagram(addresses(packets, lane), packet, packets, lane);
        let Some(owners) = &mut self.fragment_owners else { return };
        owners.age(now, 2);
        match owners.find(&datagram, now) {
            Some(at) => {
                owners.entries.get_mut(at).value = owner;
                owners.entries.touch(at, now);
            }
            // Where there is no room, its later fragments are refused.
            None => _ = owners.insert(&datagram, owner, idle_ticks(FRAGMENT_IDLE_S), now),
        }
    }

    #[cold]
    fn owner_of_fragment(&mut self, packet: &Packet, packets: &Burst, lane: usize) -> Option<usize> {
        let now = self.ticks.at(packets.times_ns[lane]);
        let datagram = datagram(addresses(packets, lane), packet, packets, lane);
        let owners = self.fragment_owners.as_mut()?;
        let at = owners.find(&datagram, now)?;
        Some(owners.entries.get(at).value)
    }
}
