//! The worker that translates a packet.
//!
//! A session belongs to one worker, by its inside address, so that a host's sessions, and their quota, are in one shard.
//! Each worker draws outside ports of its own, by [arithmetic](Shard::owner_of_port), so that an inbound packet's port
//! names the owner of its session. Ports of forwards, which come from the configuration, are in a table.
//!
//! Fragments without ports follow the first of their datagram, whose owner is recorded by the worker that receives them. A
//! hairpin packet has two sessions, perhaps of two workers: the source's worker translates the source and hands the packet
//! to the destination's.

use flowlane::hash::murmur3;

use super::Nat;
use super::decide::{addresses, datagram};
use super::fragments::Piece;
use super::lookup::{Direction, NatLookup, Packet, PacketKind};
use crate::packet::Burst;
use crate::stage::shard::{Owner, Shard};
use crate::stage::{Half, REFUSED, StagePacket};

impl Shard {
    /// Returns the worker whose sessions get this port. Ports are dealt in pairs, since those of UDP keep their parity.
    #[inline]
    pub(super) fn owner_of_port(self, port: u16) -> usize {
        usize::from(port >> 1) % self.of
    }

    /// Returns the ports of this shard among the 64 from `64 * word` on, one bit each.
    pub(super) fn ports(self, word: usize) -> u64 {
        (0..64)
            .filter(|bit| self.owner_of_port((word * 64 + bit) as u16) == self.me)
            .fold(0, |m, bit| m | 1 << bit)
    }
}

impl Nat {
    /// Returns the worker that owns the sessions of an inside address.
    #[inline]
    pub(super) fn owner_inside(&self, address: u32) -> usize {
        self.config.shard.owner(murmur3::finish(murmur3::mix(!self.config.seed, address), 4))
    }

    /// Returns the worker that owns the session of an outside address and port.
    #[inline]
    fn owner_outside(&self, outside: &[u32; 2]) -> usize {
        let forward = self.forward_owners.get(outside).copied();
        forward.unwrap_or_else(|| self.config.shard.owner_of_port(outside[1] as u16))
    }

    /// Returns the worker that owns a packet's session; of a hairpin packet, that of its source.
    #[inline]
    fn owner_of_first(&self, packet: &Packet) -> usize {
        match packet.direction {
            Direction::Inbound => self.owner_outside(&packet.outside),
            Direction::Outbound | Direction::Hairpin => self.owner_inside(packet.inside[0]),
        }
    }

    /// Returns the worker that owns the destination's session of a hairpin packet, if the source's session is in this
    /// shard and the destination's in another.
    #[inline]
    fn split(&self, packet: &Packet) -> Option<usize> {
        let me = self.config.shard.me;
        let splits = packet.direction == Direction::Hairpin && self.owner_inside(packet.inside[0]) == me;
        splits.then(|| self.owner_outside(&packet.outside)).filter(|&destination| destination != me)
    }

    /// Decides on the worker that translates a packet.
    #[inline]
    pub(super) fn owner_of(&self, packet: &Packet, seen: StagePacket<'_>) -> Owner {
        if packet.kind == PacketKind::LaterFragment {
            return self.owner_of_fragment(packet, seen).map_or(Owner::Any, Owner::Worker);
        }
        match self.split(packet) {
            Some(destination) => Owner::SplitNat(destination),
            None => Owner::Worker(self.owner_of_first(packet)),
        }
    }

    #[cold]
    fn owner_of_fragment(&self, packet: &Packet, seen: StagePacket<'_>) -> Option<usize> {
        let owners = self.fragment_owners.as_ref()?;
        let now = self.ticks.peek(seen.now_ns);
        let at = owners.find(&datagram(addresses(seen.key), packet, seen), now)?;
        Some(owners.get(at))
    }

    /// Returns the worker that translates a lane's packet. Records the owner of a fragmented datagram; translates the source
    /// of a packet whose destination another worker translates.
    #[inline]
    pub(super) fn owner_of_lane(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        if !self.config.shard.is_part() {
            return Owner::Any;
        }
        self.lookups[lane] = self.read(StagePacket::of_lane(packets, lane));
        self.were_read.0 |= 1 << lane;
        let lookup = self.lookups[lane];
        let NatLookup::Packet(packet) = &lookup else { return Owner::Any };
        let owner = self.owner_of(packet, StagePacket::of_lane(packets, lane));
        if packet.is_fragment {
            self.record_owner(packet, packets, lane);
        }
        if !matches!(owner, Owner::SplitNat(_)) {
            return owner;
        }
        let now = self.age_at(packets.times_ns[lane]);
        let found = [self.inside.lookup(&packet.inside), None];
        match self.translate(Half::Source, &lookup, found, packets, lane, now) {
            REFUSED => Owner::Rejected,
            _ => owner,
        }
    }

    /// Records the worker of a first fragment until the others of its datagram have come.
    #[cold]
    fn record_owner(&mut self, packet: &Packet, packets: &Burst, lane: usize) {
        let now = self.ticks.at(packets.times_ns[lane]);
        let owner = self.owner_of_first(packet);
        let seen = StagePacket::of_lane(packets, lane);
        let (datagram, piece) = (datagram(addresses(seen.key), packet, seen), Piece::of(seen));
        let Some(owners) = &mut self.fragment_owners else { return };
        owners.age(now);
        if packet.kind == PacketKind::LaterFragment {
            owners.find(&datagram, now).into_iter().for_each(|at| owners.add(at, piece));
        } else if owners.may_record(&datagram, &[], now) {
            // The owner counts those that are forgotten or refused.
            owners.record(&datagram, piece, owner, now);
        }
    }
}
