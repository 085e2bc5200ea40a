//! One link of a bond: reception and transmission of its PDUs.

use serde::{Deserialize, Serialize};

use super::pdu::{Actor, Flags, Pdu};
use super::{FAST_MS, LacpSettings, LinkSettings, SLOW_MS};

/// A neighbour is lost after this number of intervals without a PDU.
const INTERVALS: u64 = 3;
/// PDUs sent within [`FAST_MS`] at most.
const BURST: u8 = 3;

/// How well a link knows its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Current,
    /// It has not said anything for a while, or since the link came up.
    Expired,
    Defaulted,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Expired => "expired",
            Self::Defaulted => "defaulted",
        }
    }
}

/// The counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counters {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) refused: u64,
    pub(super) markers: u64,
    pub(super) expired: u64,
    pub(super) defaulted: u64,
    pub(super) link_changes: u64,
}

/// A link that hears its neighbour, as another process needs it: the neighbour notices nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedLink {
    partner: Actor,
    /// The rest of the timeout.
    expires_in_ms: u64,
}

impl SavedLink {
    /// The link after some time in which no process had it.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self { expires_in_ms: self.expires_in_ms.saturating_sub(ms), ..self }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) settings: LinkSettings,
    pub(super) is_up: bool,
    pub(super) status: Status,
    /// When a neighbour that says nothing is lost.
    expires_ms: Option<u64>,
    /// The other end. Its `SYNCHRONISED` is set only if it has heard this end.
    pub(super) partner: Actor,
    /// In the group.
    pub(super) is_attached: bool,
    /// This end, as the latest PDU described it.
    said: Option<Actor>,
    /// The neighbour knows something else of this end.
    owes: bool,
    sent_ms: Option<u64>,
    /// PDUs sent since a time, which are limited.
    burst: (u64, u8),
    pub(super) counters: Counters,
}

/// A neighbour of which nothing is known, and which might have a short timeout.
const UNKNOWN: Actor = Actor {
    system: super::SystemId { priority: 0, mac: [0; 6] },
    key: 0,
    port_priority: 0,
    port_id: 0,
    flags: Flags::SHORT_TIMEOUT,
};

impl Link {
    pub(super) fn new(settings: LinkSettings, is_up: bool, now_ms: u64) -> Self {
        Self {
            settings,
            is_up,
            status: Status::Expired,
            expires_ms: is_up.then_some(now_ms + INTERVALS * FAST_MS),
            partner: UNKNOWN,
            is_attached: false,
            said: None,
            owes: false,
            sent_ms: None,
            burst: (now_ms, 0),
            counters: Counters::default(),
        }
    }

    /// Notes that the link has gone up or down: its neighbour may be another one.
    pub(super) fn set_up(&mut self, is_up: bool, now_ms: u64) {
        if self.is_up != is_up {
            let counters = Counters { link_changes: self.counters.link_changes + 1, ..self.counters };
            *self = Self { counters, ..Self::new(self.settings.clone(), is_up, now_ms) };
        }
    }

    /// The link, for another process to go on with it, if it hears its neighbour.
    pub(super) fn save(&self, now_ms: u64) -> Option<SavedLink> {
        let expires_in_ms = self.expires_ms?.saturating_sub(now_ms);
        (self.status == Status::Current).then_some(SavedLink { partner: self.partner, expires_in_ms })
    }

    /// Goes on with a link of another process, if its timeout has not passed meanwhile.
    pub(super) fn resume(&mut self, saved: &SavedLink, now_ms: u64) {
        // A timeout is 90 seconds at most.
        let expires_in_ms = saved.expires_in_ms.min(INTERVALS * SLOW_MS);
        if expires_in_ms > 0 && self.is_up {
            (self.status, self.partner) = (Status::Current, saved.partner);
            self.expires_ms = Some(now_ms + expires_in_ms);
        }
    }

    /// Takes a PDU. `own` is this end as it is now.
    pub(super) fn take(&mut self, pdu: &Pdu, own: &Actor, is_fast: bool, now_ms: u64) {
        // What it says of this end is of now, or it does not say that both are in the group.
        let hears = pdu.partner.is_port_of(own) || !pdu.actor.flags.has(Flags::AGGREGATION);
        self.partner = pdu.actor;
        let is_synchronised = pdu.actor.flags.has(Flags::SYNCHRONISED) && hears;
        self.partner.flags = pdu.actor.flags.with(Flags::SYNCHRONISED, is_synchronised);
        self.status = Status::Current;
        self.expires_ms = Some(now_ms + INTERVALS * if is_fast { FAST_MS } else { SLOW_MS });
        let seen = Flags::ACTIVITY.0 | Flags::SHORT_TIMEOUT.0 | Flags::AGGREGATION.0 | Flags::SYNCHRONISED.0;
        let differs = (pdu.partner.flags.0 ^ own.flags.0) & seen != 0;
        self.owes |= differs || !pdu.partner.is_port_of(own);
    }

    /// Lets time pass.
    pub(super) fn expire(&mut self, now_ms: u64) {
        if self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms) {
            return;
        }
        match self.status {
            Status::Current => {
                self.counters.expired += 1;
                self.status = Status::Expired;
                self.expires_ms = Some(now_ms + INTERVALS * FAST_MS);
                let flags = self.partner.flags.with(Flags::SYNCHRONISED, false);
                self.partner.flags = flags.with(Flags::SHORT_TIMEOUT, true);
            }
            Status::Expired | Status::Defaulted => {
                self.counters.defaulted += 1;
                (self.status, self.expires_ms) = (Status::Defaulted, None);
                self.partner = Actor::default();
            }
        }
    }

    /// Returns this end.
    pub(super) fn actor(&self, group: &LacpSettings, key: u16, may_join: bool) -> Actor {
        let is_used = self.is_attached && self.partner.flags.has(Flags::SYNCHRONISED);
        let flags = Flags::default()
            .with(Flags::ACTIVITY, group.is_active)
            .with(Flags::SHORT_TIMEOUT, group.is_fast)
            .with(Flags::AGGREGATION, may_join)
            .with(Flags::SYNCHRONISED, self.is_attached)
            .with(Flags::COLLECTING, is_used)
            .with(Flags::DISTRIBUTING, is_used)
            .with(Flags::DEFAULTED, self.status == Status::Defaulted)
            .with(Flags::EXPIRED, self.status == Status::Expired);
        let LinkSettings { id, priority, .. } = self.settings;
        Actor { system: group.system, key, port_priority: priority, port_id: id, flags }
    }

    /// Returns when the next PDU is due.
    fn next_ms(&self, own: &Actor) -> Option<u64> {
        let speaks = own.flags.has(Flags::ACTIVITY) || self.partner.flags.has(Flags::ACTIVITY);
        if !self.is_up || !speaks {
            return None;
        }
        let interval_ms = if self.partner.flags.has(Flags::SHORT_TIMEOUT) { FAST_MS } else { SLOW_MS };
        let (begun_ms, count) = self.burst;
        let allowed_ms = if count < BURST { 0 } else { begun_ms + FAST_MS };
        let is_urgent = self.owes || self.said.is_none_or(|said| said != *own);
        let periodic_ms = self.sent_ms.map_or(0, |sent_ms| sent_ms + interval_ms);
        Some(if is_urgent { allowed_ms } else { periodic_ms.max(allowed_ms) })
    }

    /// Returns a frame with a PDU, if one is due.
    pub(super) fn send(&mut self, own: &Actor, now_ms: u64) -> Option<Vec<u8>> {
        if self.next_ms(own)? > now_ms {
            return None;
        }
        let (begun_ms, count) = self.burst;
        self.burst = if now_ms >= begun_ms + FAST_MS { (now_ms, 1) } else { (begun_ms, count + 1) };
        (self.said, self.owes, self.sent_ms) = (Some(*own), false, Some(now_ms));
        self.counters.sent += 1;
        let pdu = Pdu { actor: *own, partner: self.partner };
        Some(pdu.frame(self.settings.mac))
    }

    /// Returns when the link has something to do.
    pub(super) fn deadline_ms(&self, own: &Actor) -> u64 {
        let next = self.expires_ms.into_iter().chain(self.next_ms(own));
        next.min().unwrap_or(u64::MAX)
    }
}
