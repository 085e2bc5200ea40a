//! Settings of zones: how many connections one may have, and how long connections last.
//!
//! A connection keeps the number of its zone alone, and packets look the zone's settings up. They may change meanwhile: a connection
//! notices with its next packet. Zones without settings of their own take those of all zones, after a load of one pointer; the others
//! are in blocks of 64, which are allocated with the first of their zones and never freed, so that no packet waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Limits;
use super::timeouts::Timeout;

/// The zones of a block.
const BLOCK: usize = 64;

const BLOCKS: usize = (1 << 16) / BLOCK;

/// The value of a setting that a zone has not.
const UNSET: u32 = u32::MAX;

/// Settings of a zone; those that are left out are the settings of all zones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneSettings {
    /// The connections at most.
    pub connections_max: Option<u32>,
    /// The seconds of timeouts.
    pub timeouts: BTreeMap<Timeout, u32>,
}

impl ZoneSettings {
    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.connections_max.is_none() && self.timeouts.is_empty()
    }
}

/// Settings as packets read them.
#[derive(Debug)]
struct Shared {
    connections_max: AtomicU32,
    timeouts: [AtomicU32; Timeout::ALL.len()],
}

impl Default for Shared {
    fn default() -> Self {
        Self { connections_max: AtomicU32::new(UNSET), timeouts: Timeout::ALL.map(|_| AtomicU32::new(UNSET)) }
    }
}

fn value(setting: &AtomicU32) -> Option<u32> {
    Some(setting.load(Ordering::Relaxed)).filter(|value| *value != UNSET)
}

fn store(setting: &AtomicU32, value: Option<u32>) {
    // The largest number is never reached.
    setting.store(value.map_or(UNSET, |value| value.min(UNSET - 1)), Ordering::Relaxed);
}

impl Shared {
    fn get(&self) -> ZoneSettings {
        let timeouts = Timeout::ALL.into_iter();
        let timeouts = timeouts.filter_map(|one| Some((one, value(&self.timeouts[one as usize])?)));
        ZoneSettings { connections_max: value(&self.connections_max), timeouts: timeouts.collect() }
    }

    fn set(&self, settings: &ZoneSettings) {
        store(&self.connections_max, settings.connections_max);
        for one in Timeout::ALL {
            store(&self.timeouts[one as usize], settings.timeouts.get(&one).copied());
        }
    }
}

/// The settings of a block of zones.
type Block = OnceLock<Box<[Shared]>>;

/// The settings of all zones, and of those with their own.
#[derive(Debug)]
pub struct Zones {
    all: Shared,
    own: OnceLock<Box<[Block]>>,
}

impl Zones {
    pub(super) fn new(limits: Limits) -> Self {
        let zones = Self { all: Shared::default(), own: OnceLock::new() };
        zones.set_all(&ZoneSettings { connections_max: limits.per_zone, ..ZoneSettings::default() });
        zones
    }

    #[inline]
    fn own(&self, zone: u16) -> Option<&Shared> {
        let (block, place) = (usize::from(zone) / BLOCK, usize::from(zone) % BLOCK);
        Some(&self.own.get()?[block].get()?[place])
    }

    /// Returns the seconds of a timeout.
    #[inline]
    pub fn seconds(&self, timeout: Timeout, zone: u16) -> u32 {
        let own = self.own(zone).and_then(|own| value(&own.timeouts[timeout as usize]));
        own.unwrap_or_else(|| self.all.timeouts[timeout as usize].load(Ordering::Relaxed))
    }

    /// Returns how many connections a zone may have; none: any number.
    #[inline]
    pub fn connections_max(&self, zone: u16) -> Option<u32> {
        let own = self.own(zone).and_then(|own| value(&own.connections_max));
        own.or_else(|| value(&self.all.connections_max))
    }

    /// Returns the settings of zones that have none of their own: with the seconds of every timeout.
    pub fn of_all(&self) -> ZoneSettings {
        self.all.get()
    }

    /// Sets them. Timeouts that are left out are those of Open vSwitch.
    pub fn set_all(&self, settings: &ZoneSettings) {
        let seconds = |one: Timeout| settings.timeouts.get(&one).copied().unwrap_or(one.default_s());
        let timeouts = Timeout::ALL.into_iter().map(|one| (one, seconds(one))).collect();
        self.all.set(&ZoneSettings { timeouts, ..*settings });
    }

    /// Returns the settings of a zone's own.
    pub fn of(&self, zone: u16) -> ZoneSettings {
        self.own(zone).map(Shared::get).unwrap_or_default()
    }

    /// Sets them: a zone without any has those of all zones.
    pub fn set(&self, zone: u16, settings: &ZoneSettings) {
        if settings.is_empty() && self.own(zone).is_none() {
            return;
        }
        let blocks = self.own.get_or_init(|| (0..BLOCKS).map(|_| OnceLock::new()).collect());
        let block =
            blocks[usize::from(zone) / BLOCK].get_or_init(|| (0..BLOCK).map(|_| Shared::default()).collect());
        block[usize::from(zone) % BLOCK].set(settings);
    }

    /// Returns the zones with settings of their own.
    pub fn with_own(&self) -> BTreeMap<u16, ZoneSettings> {
        let blocks = self.own.get().into_iter().flat_map(|blocks| (0..BLOCKS).zip(blocks.iter()));
        let blocks = blocks.filter_map(|(block, shared)| Some((block, shared.get()?)));
        let zones = blocks.flat_map(|(block, shared)| {
            shared.iter().enumerate().map(move |(place, own)| ((block * BLOCK + place) as u16, own.get()))
        });
        zones.filter(|(_, settings)| !settings.is_empty()).collect()
    }

    /// Sets those of all zones, and of some zones of their own; other zones have none of their own then. Returns how many have
    /// changed, all zones being one.
    pub fn replace(&self, of_all: &ZoneSettings, own: &BTreeMap<u16, ZoneSettings>) -> usize {
        let former = (self.of_all(), self.with_own());
        self.set_all(of_all);
        let none = ZoneSettings::default();
        let zones: BTreeSet<u16> = own.keys().chain(former.1.keys()).copied().collect();
        zones.iter().for_each(|zone| self.set(*zone, own.get(zone).unwrap_or(&none)));
        let changed = zones.iter().filter(|zone| former.1.get(zone) != own.get(zone));
        changed.count() + usize::from(former.0 != self.of_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(connections_max: Option<u32>, timeouts: &[(Timeout, u32)]) -> ZoneSettings {
        ZoneSettings { connections_max, timeouts: timeouts.iter().copied().collect() }
    }

    #[test]
    fn a_zone_has_its_own_settings_and_those_of_all_zones_for_the_rest() {
        let zones = Zones::new(Limits { per_zone: Some(9), ..Limits::default() });
        let of = |zone| {
            let seconds = [Timeout::TcpEstablished, Timeout::IcmpFirst].map(|one| zones.seconds(one, zone));
            (zones.connections_max(zone), seconds)
        };
        assert_eq!(of(5), (Some(9), [86_400, 60]));
        zones.set(5, &settings(Some(3), &[(Timeout::TcpEstablished, 600)]));
        zones.set(u16::MAX, &settings(None, &[(Timeout::IcmpFirst, u32::MAX)]));
        assert_eq!(of(5), (Some(3), [600, 60]));
        assert_eq!((of(4), of(6)), ((Some(9), [86_400, 60]), (Some(9), [86_400, 60])));
        assert_eq!(of(u16::MAX), (Some(9), [86_400, u32::MAX - 1]));
        zones.set_all(&settings(None, &[(Timeout::TcpEstablished, 7), (Timeout::IcmpFirst, 8)]));
        assert_eq!((of(5), of(4)), ((Some(3), [600, 8]), (None, [7, 8])));
        assert_eq!(zones.with_own().into_keys().collect::<Vec<_>>(), [5, u16::MAX]);
        assert_eq!(zones.of_all().timeouts.len(), Timeout::ALL.len());

        let wanted = BTreeMap::from([(4, settings(Some(0), &[]))]);
        let of_all = settings(None, &[(Timeout::TcpEstablished, 7)]);
        assert_eq!(zones.replace(&of_all, &wanted), 4, "all zones, and three");
        assert_eq!(zones.replace(&of_all, &wanted), 0);
        assert_eq!(zones.with_own(), wanted);
        assert_eq!((of(5), of(4), of(u16::MAX)), ((None, [7, 60]), (Some(0), [7, 60]), (None, [7, 60])));
    }
}
