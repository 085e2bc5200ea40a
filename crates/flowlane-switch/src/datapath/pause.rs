//! Packets that controllers pause: `controller(pause)` sends a packet to controllers with a token, and ends its way. A controller
//! that returns the packet with the token, perhaps changed, resumes it behind that action.
//!
//! ```text
//! worker ── lane at `pause` ─► Paused (place in its steps, open calls, action set, stack) ─► PausedPackets ── token ─► packet-in
//!        ◄─ Worker::resume ◄──────────────────────────────────────────────────────────────── find(token) ◄─ NXT_RESUME
//! ```
//!
//! Open vSwitch has all of that in the message and keeps nothing. Here steps are of the ruleset by which the packet came, so that
//! the switch keeps the newest few thousand.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, FieldClass, WordSet, parse};
use flowlane::rule::Match;
use flowlane::rule::action::PortNo;

use super::calls::{Calls, PausedCalls};
use super::lane_steps::finish_alone;
use super::validate::RunError;
use super::worker::Worker;
use crate::packet::Burst;
use crate::packet::recirculate::{note_type, set_rounds};
use crate::ruleset::Return;
use crate::state::mirror::MirrorSet;

/// Paused packets that are kept. An older one cannot be resumed any more.
const PAUSED_MAX: usize = 4096;

/// Names a paused packet. It cannot be guessed.
pub type PauseToken = [u8; 16];

/// The place of a packet that waits for a controller.
#[derive(Debug)]
pub struct Paused {
    calls: PausedCalls,
    rounds: u8,
    /// The mirrors that have a copy of the packet.
    mirrored: MirrorSet,
    /// The packet's key when it was paused, which has fields that messages lack.
    pub key: FlowKey,
}

#[derive(Debug, Default)]
struct Kept {
    /// The number of the first.
    first: u64,
    packets: VecDeque<Arc<Paused>>,
}

/// The newest paused packets.
#[derive(Debug, Default)]
pub struct PausedPackets {
    kept: Mutex<Kept>,
    secret: RandomState,
}

impl PausedPackets {
    /// Keeps a packet's place.
    fn keep(&self, paused: Paused) -> PauseToken {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.packets.len() == PAUSED_MAX {
            kept.packets.pop_front();
            kept.first += 1;
        }
        kept.packets.push_back(Arc::new(paused));
        self.token(kept.first + kept.packets.len() as u64 - 1)
    }

    fn token(&self, number: u64) -> PauseToken {
        let mut token = [0; 16];
        token[..8].copy_from_slice(&number.to_be_bytes());
        token[8..].copy_from_slice(&self.secret.hash_one(number).to_be_bytes());
        token
    }

    /// Returns the place of a packet, if it is kept.
    pub fn find(&self, token: &PauseToken) -> Option<Arc<Paused>> {
        let number = u64::from_be_bytes(*token.first_chunk().expect("a token has 16 bytes"));
        if self.token(number) != *token {
            return None;
        }
        let kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.packets.get(usize::try_from(number.checked_sub(kept.first)?).ok()?).cloned()
    }
}

impl Worker {
    /// Ends the way of a lane that goes on at `here` when a controller resumes it. Returns the token for the controller; `None`
    /// where there are no controllers.
    pub(super) fn pause(&mut self, lane: usize, here: Return, key: &FlowKey) -> Option<PauseToken> {
        let rounds = here.rounds;
        let calls = self.calls.pause(lane, here);
        let mirrored = self.egress.mirroring.done();
        let packet_ins = self.egress.packet_ins.as_ref()?;
        Some(packet_ins.paused.keep(Paused { calls, rounds, mirrored, key: key.clone() }))
    }

    /// Lets a paused packet go on: as `bytes`, with these metadata fields and no others.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn resume(&mut self, paused: &Paused, bytes: &[u8], metadata: &Match) -> Result<(), RunError> {
        let in_port = PortNo(metadata.get(Field::InPort).0 as u32);
        let mut burst = self.burst_of_controller(in_port, bytes, metadata.get(Field::PacketType).0 as u32);
        take_metadata(metadata, &mut burst.keys[0]);
        set_rounds(&mut burst.keys[0], paused.rounds);
        self.follow();
        self.calls = Calls::of_paused(&paused.calls);
        self.egress.mirroring.resume(paused.mirrored);
        let ended = finish_alone(self, &mut burst);
        // A bucket's calls are none for packets of bursts.
        self.calls = Calls::default();
        ended?;
        Ok(self.egress.flush()?)
    }

    /// A burst of one packet that a controller sends, as if it had come in through a port, which need not exist. A packet of another
    /// `packet_type` than 0 has no Ethernet header.
    pub(super) fn burst_of_controller(&mut self, in_port: PortNo, bytes: &[u8], packet_type: u32) -> Burst {
        let mut burst = Burst::new(1);
        let place = self.egress.ports.place(in_port);
        burst.clear_for(place.unwrap_or(0), 1);
        let frame = burst.frames.next_frame().expect("there is room");
        match packet_type {
            0 => frame.fill(bytes),
            other => frame.fill_bare(other as u16, bytes),
        }
        self.egress.has_bare |= frame.is_bare();
        frame.counted = bytes.len() as u32;
        frame.time_ns = self.now_ns();
        burst.times_ns[0] = frame.time_ns;
        self.egress.now_ns = frame.time_ns;
        burst.headers[0] = parse(frame.bytes(), in_port.0, &mut burst.keys[0]);
        note_type(frame, &mut burst.keys[0]);
        if place.is_none() {
            burst.sources.insert(0, in_port);
        }
        burst
    }
}

/// Sets the fields in no header to those of a message, which leaves out those that are 0.
fn take_metadata(metadata: &Match, key: &mut FlowKey) {
    let (values, outside) = (metadata.key(), WordSet::of_class(FieldClass::Metadata));
    let kept = [Field::RecircId, Field::Malformed, Field::InPort].map(|field| (field, key.get(field)));
    for w in outside.union(WordSet::of_class(FieldClass::Tunnel)).iter() {
        key.set_word(w, values.word(w));
    }
    kept.into_iter().for_each(|(field, value)| key.set(field, value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused() -> Paused {
        let calls = Calls::default().pause(0, Return::default());
        Paused { calls, rounds: 0, mirrored: MirrorSet::default(), key: FlowKey::zero() }
    }

    #[test]
    fn the_newest_packets_are_kept_under_tokens_that_cannot_be_guessed() {
        let packets = PausedPackets::default();
        let tokens: Vec<PauseToken> = (0..PAUSED_MAX + 2).map(|_| packets.keep(paused())).collect();
        assert!(tokens[..2].iter().all(|token| packets.find(token).is_none()));
        assert!(tokens[2..].iter().all(|token| packets.find(token).is_some()));
        let mut other = tokens[9];
        other[15] ^= 1;
        assert!(packets.find(&other).is_none());
        assert!(PausedPackets::default().find(&tokens[9]).is_none());
        assert!(packets.find(&packets.token(u64::MAX)).is_none());
    }
}
