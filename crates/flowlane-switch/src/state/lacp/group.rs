//! The links of a bond: which of them are one group.

use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;

use super::link::{Link, SavedLink, Status};
use super::pdu::{Actor, Flags, Pdu, Refused, SystemId};
use super::{LacpSettings, LinkSettings};

/// The LACP of a bond.
#[derive(Debug)]
pub struct Lacp {
    pub(super) settings: LacpSettings,
    pub(super) links: BTreeMap<PortNo, Link>,
    /// A neighbour is heard.
    is_negotiated: bool,
}

impl Lacp {
    /// Makes the LACP of a bond without links.
    pub fn new(settings: LacpSettings) -> Self {
        Self { settings, links: BTreeMap::new(), is_negotiated: false }
    }

    /// Changes the settings; neighbours hear it with the next PDU.
    pub fn configure(&mut self, settings: LacpSettings) {
        self.settings = settings;
    }

    /// Makes the links these, with their states; those that were links go on.
    pub fn set_links(&mut self, links: &[(PortNo, LinkSettings, bool)], now_ms: u64) {
        let is_kept = |port: &PortNo, link: &Link| {
            links.iter().any(|(one, settings, _)| one == port && settings.name == link.settings.name)
        };
        self.links.retain(|port, link| is_kept(port, link));
        for (port, settings, is_up) in links {
            let link = self.links.entry(*port).or_insert_with(|| Link::new(settings.clone(), *is_up, now_ms));
            link.settings.clone_from(settings);
            link.set_up(*is_up, now_ms);
        }
        self.select();
    }

    /// Returns the links that hear their neighbour, by their names, for another process.
    pub fn save(&self, now_ms: u64) -> impl Iterator<Item = (&str, SavedLink)> {
        self.links.values().filter_map(move |link| Some((&*link.settings.name, link.save(now_ms)?)))
    }

    /// Goes on with a link of another process.
    pub fn resume(&mut self, port: PortNo, saved: &SavedLink, now_ms: u64) {
        if let Some(link) = self.links.get_mut(&port) {
            link.resume(saved, now_ms);
            self.select();
        }
    }

    /// Notes whether a link is up.
    pub fn set_up(&mut self, port: PortNo, is_up: bool, now_ms: u64) {
        if let Some(link) = self.links.get_mut(&port) {
            link.set_up(is_up, now_ms);
            self.select();
        }
    }

    /// The key of links that have none of their own.
    pub(super) fn key(&self) -> u16 {
        let own = self.links.values().map(|link| link.settings.key).find(|key| *key != 0);
        own.or_else(|| self.links.values().map(|link| link.settings.id).min()).unwrap_or(0)
    }

    /// This end of a link.
    pub(super) fn actor(&self, link: &Link) -> Actor {
        let key = if link.settings.key == 0 { self.key() } else { link.settings.key };
        link.actor(&self.settings, key, self.links.len() > 1)
    }

    /// Takes a frame that has come in through a link.
    ///
    /// # Errors
    /// Why it is discarded; nothing has changed but the counts of such frames.
    pub fn receive(&mut self, port: PortNo, frame: &[u8], now_ms: u64) -> Result<(), Refused> {
        let own = self.actor(self.links.get(&port).ok_or(Refused::NoLink)?);
        let is_fast = self.settings.is_fast;
        let link = self.links.get_mut(&port).ok_or(Refused::NoLink)?;
        let taken = match Pdu::read(frame) {
            Ok(pdu) if pdu.actor.is_port_of(&own) => Err(Refused::Own),
            Ok(pdu) => {
                link.take(&pdu, &own, is_fast, now_ms);
                Ok(())
            }
            Err(refused) => Err(refused),
        };
        match taken {
            Ok(()) => link.counters.received += 1,
            Err(Refused::Marker) => link.counters.markers += 1,
            Err(_) => link.counters.refused += 1,
        }
        self.select();
        taken
    }

    /// Lets links join the best neighbour that is heard: the one of the link that the smaller system prefers.
    fn select(&mut self) {
        let own = self.settings.system;
        let rank = |link: &Link| -> (SystemId, (u16, u16)) {
            let (partner, ours) = (&link.partner, &link.settings);
            let decides = if own <= partner.system {
                (ours.priority, ours.id)
            } else {
                (partner.port_priority, partner.port_id)
            };
            (own.min(partner.system), decides)
        };
        let current = self.links.iter().filter(|(_, link)| link.is_up && link.status == Status::Current);
        let best = current.min_by_key(|(port, link)| (rank(link), **port));
        let best = best.map(|(port, link)| (*port, link.partner, self.actor(link).key));
        self.is_negotiated = best.is_some();
        let keys: BTreeMap<PortNo, u16> =
            self.links.iter().map(|(port, link)| (*port, self.actor(link).key)).collect();
        for (port, link) in &mut self.links {
            let joins = |(first, partner, key): (PortNo, Actor, u16)| {
                let may_join = [&partner, &link.partner].iter().all(|end| end.flags.has(Flags::AGGREGATION));
                let is_same = (link.partner.system, link.partner.key) == (partner.system, partner.key);
                *port == first || may_join && is_same && keys[port] == key
            };
            let is_heard = link.status != Status::Defaulted;
            let is_alone = best.is_none() && self.settings.falls_back && link.status == Status::Defaulted;
            link.is_attached = link.is_up && (best.is_some_and(joins) && is_heard || is_alone);
        }
    }

    /// Lets time pass. Returns the frames to be sent, with their links.
    pub fn run(&mut self, now_ms: u64) -> Vec<(PortNo, Vec<u8>)> {
        self.links.values_mut().for_each(|link| link.expire(now_ms));
        self.select();
        let actors: BTreeMap<PortNo, Actor> =
            self.links.iter().map(|(port, link)| (*port, self.actor(link))).collect();
        let due = self.links.iter_mut().filter_map(|(port, link)| {
            let frame = link.send(&actors[port], now_ms)?;
            Some((*port, frame))
        });
        due.collect()
    }

    /// Returns when [`run`](Self::run) has something to do, if nothing comes before.
    pub fn deadline_ms(&self) -> u64 {
        let links = self.links.values().map(|link| link.deadline_ms(&self.actor(link)));
        links.min().unwrap_or(u64::MAX)
    }

    /// Returns whether a neighbour speaks LACP.
    pub fn is_negotiated(&self) -> bool {
        self.is_negotiated
    }

    /// Returns whether frames may be sent and received through a link: both ends have it in the group, or it falls back.
    pub fn may_enable(&self, port: PortNo) -> bool {
        self.links.get(&port).is_some_and(|link| self.allows(link))
    }

    pub(super) fn allows(&self, link: &Link) -> bool {
        let falls_back = self.settings.falls_back && link.status == Status::Defaulted;
        link.is_attached && (link.partner.flags.has(Flags::SYNCHRONISED) || falls_back)
    }

    /// Returns whether a link hears its neighbour.
    pub fn is_current(&self, port: PortNo) -> bool {
        self.links.get(&port).is_some_and(|link| link.status == Status::Current)
    }
}
