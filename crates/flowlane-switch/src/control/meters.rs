//! Changes of meters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flowlane::rule::action::Reference;

use super::flow_mods::Made;
use super::{Control, Reason};
use crate::ruleset::{Event, Meters, Resources};
use crate::state::meter::{Band, CONTROLLER_METER, Excess, Meter, Unit};

/// The most meters.
pub(crate) const METERS_MAX: usize = 1 << 16;
/// The most bands of a meter, as in Open vSwitch.
pub(crate) const BANDS_MAX: usize = 8;
/// The largest number of a meter that rules name (OpenFlow's `OFPM_MAX`).
const NUMBER_MAX: u32 = 0xffff_0000;

/// A meter as a controller asks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterSpec {
    pub number: u32,
    pub unit: Unit,
    /// A burst of 0 is one second's worth.
    pub bands: Vec<Band>,
    /// The controller has named bursts.
    pub has_bursts: bool,
    /// The controller has asked for statistics, which are kept anyway.
    pub keeps_statistics: bool,
}

/// A change of meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeterMod {
    /// Adds a meter.
    Add(MeterSpec),
    /// Replaces a meter; its counters begin at 0 again, as in Open vSwitch.
    Modify(MeterSpec),
    /// Removes a meter, with the rules that name it; `None`: all.
    Delete(Option<u32>),
}

/// A meter that rules may name.
#[derive(Clone, Debug)]
pub struct MeterEntry {
    pub meter: Arc<Meter>,
    /// As it was asked for.
    pub spec: MeterSpec,
    created_ns: u64,
}

/// Why meters cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    #[error("there is a meter {0} already")]
    Exists(u32),
    #[error("there is no meter {0}")]
    Unknown(u32),
    #[error("no meter may have the number {0}")]
    Invalid(u32),
    #[error("a band's rate is 0")]
    NoRate,
    #[error("the drop precedence of a band rises by 0")]
    NoLevels,
    #[error("the meter of packets for controllers drops packets, and changes none")]
    ControllerRemarks,
    #[error("there are at most {METERS_MAX} meters")]
    TooMany,
    #[error("a meter has at most {BANDS_MAX} bands")]
    TooManyBands,
}

/// Returns the entries of the meters that workers begin with.
pub(super) fn configured(meters: &Meters) -> BTreeMap<u32, MeterEntry> {
    let entry = |(number, meter): (u32, &Arc<Meter>)| {
        let (unit, bands) = (meter.unit(), meter.bands().to_vec());
        let spec = MeterSpec { number, unit, bands, has_bursts: true, keeps_statistics: true };
        (number, MeterEntry { meter: meter.clone(), spec, created_ns: 0 })
    };
    meters.iter().map(entry).collect()
}

impl Control {
    /// Changes meters, and waits until no packet meets the former ones.
    ///
    /// # Errors
    /// The change is rejected; nothing has changed.
    pub fn change_meters(&mut self, change: &MeterMod) -> Result<(), MeterError> {
        self.reclaim();
        self.catch_up();
        let (now_ns, mut made) = (self.readers.now_ns(), Made::default());
        match change {
            MeterMod::Add(spec) if self.meters.contains_key(&spec.number) => {
                return Err(MeterError::Exists(spec.number));
            }
            MeterMod::Add(spec) if self.meters.len() >= METERS_MAX => {
                check(spec)?;
                return Err(MeterError::TooMany);
            }
            MeterMod::Add(spec) => {
                check(spec)?;
                self.set_meter(MeterEntry::new(spec, now_ns));
            }
            MeterMod::Modify(spec) => {
                check(spec)?;
                let entry = self.meters.get(&spec.number).ok_or(MeterError::Unknown(spec.number))?;
                self.set_meter(MeterEntry::new(spec, entry.created_ns));
            }
            MeterMod::Delete(number) => {
                let is_deleted = |one: u32| number.is_none_or(|number| number == one);
                let deleted: Vec<u32> = self.meters.keys().copied().filter(|one| is_deleted(*one)).collect();
                for number in deleted {
                    self.meters.remove(&number);
                    self.shared_meters.remove(number);
                }
                let names = |reference| matches!(reference, Reference::Meter(one) if is_deleted(one));
                self.remove_rules_that_name(names, Reason::MeterDeleted, &mut made);
            }
        }
        self.apply_resources();
        self.publish_changes(&made, now_ns);
        self.wait();
        Ok(())
    }

    fn set_meter(&mut self, entry: MeterEntry) {
        self.shared_meters.insert(entry.spec.number, entry.meter.clone());
        self.meters.insert(entry.spec.number, entry);
    }

    /// Gives the standby the present resources.
    pub(super) fn apply_resources(&mut self) {
        let meters = self.shared_meters.clone();
        let super::References { ports, vlans, mirrors, policing, .. } = self.references.clone();
        let options = self.options.clone();
        let resources = Resources { meters, ports, vlans, mirrors, policing, options };
        let event = Arc::new(Event::Resources(Arc::new(resources)));
        self.standby().apply(event).expect("resources can always be set");
    }

    /// Returns the meters, by number.
    pub fn meters(&self) -> &BTreeMap<u32, MeterEntry> {
        &self.meters
    }

    /// Returns the time since a meter was added.
    pub fn meter_age(&self, entry: &MeterEntry) -> Duration {
        Duration::from_nanos(self.readers.now_ns().saturating_sub(entry.created_ns))
    }
}

impl MeterEntry {
    fn new(spec: &MeterSpec, created_ns: u64) -> Self {
        let band =
            |band: &Band| Band { burst: if band.burst == 0 { band.rate } else { band.burst }, ..*band };
        let meter = Arc::new(Meter::of_bands(spec.unit, spec.bands.iter().map(band).collect()));
        Self { meter, spec: spec.clone(), created_ns }
    }
}

fn check(spec: &MeterSpec) -> Result<(), MeterError> {
    match spec {
        &MeterSpec { number, .. } if !(1..=NUMBER_MAX).contains(&number) && number != CONTROLLER_METER => {
            Err(MeterError::Invalid(number))
        }
        MeterSpec { bands, .. } if bands.len() > BANDS_MAX => Err(MeterError::TooManyBands),
        MeterSpec { bands, .. } if bands.iter().any(|band| band.rate == 0) => Err(MeterError::NoRate),
        MeterSpec { bands, .. } if bands.iter().any(|band| band.excess == Excess::Remark(0)) => {
            Err(MeterError::NoLevels)
        }
        MeterSpec { number: CONTROLLER_METER, bands, .. }
            if bands.iter().any(|band| band.excess != Excess::Drop) =>
        {
            Err(MeterError::ControllerRemarks)
        }
        MeterSpec { .. } => Ok(()),
    }
}
