//! Meters: their changes, statistics and configurations.

use std::time::Duration;

use flowlane::rule::action::Reference;
use flowlane_openflow::ErrorCode;
use flowlane_openflow::meter::{
    Band as SentBand, BandKind, METER_ALL, MeterCommand, MeterConfig, MeterFeatures, MeterMod as SentMod,
    MeterStats, flags,
};

use super::describe::references;
use super::service::Service;
use crate::control::{BANDS_MAX, METERS_MAX, MeterEntry, MeterMod, MeterSpec};
use crate::state::meter::{Band, Excess, Unit};

/// The change that a message asks for.
pub(super) fn change(request: &SentMod) -> MeterMod {
    let number = request.meter.meter;
    match request.command {
        MeterCommand::Add => MeterMod::Add(spec(&request.meter)),
        MeterCommand::Modify => MeterMod::Modify(spec(&request.meter)),
        MeterCommand::Delete => MeterMod::Delete((number != METER_ALL).then_some(number)),
    }
}

fn spec(config: &MeterConfig) -> MeterSpec {
    let has = |flag: u16| config.flags & flag != 0;
    let band = |band: &SentBand| {
        let excess = match band.kind {
            BandKind::Drop => Excess::Drop,
            BandKind::DscpRemark(levels) => Excess::Remark(levels),
        };
        let burst = if has(flags::BURST) { band.burst } else { 0 };
        Band { rate: band.rate.into(), burst: burst.into(), excess }
    };
    MeterSpec {
        number: config.meter,
        unit: if has(flags::PKTPS) { Unit::Packets } else { Unit::Kilobits },
        bands: config.bands.iter().map(band).collect(),
        has_bursts: has(flags::BURST),
        keeps_statistics: has(flags::STATS),
    }
}

/// The meters that a request asks for.
fn selected(service: &Service, number: u32) -> Result<Vec<(MeterEntry, Duration)>, ErrorCode> {
    let mut all = service.meters();
    all.retain(|(entry, _)| number == METER_ALL || entry.spec.number == number);
    match number != METER_ALL && all.is_empty() {
        true => Err(ErrorCode::MeterModUnknownMeter),
        false => Ok(all),
    }
}

/// The statistics of a meter, or of all.
pub(super) fn statistics(service: &Service, number: u32) -> Result<Vec<MeterStats>, ErrorCode> {
    let meters = selected(service, number)?;
    let rules = references(service, |reference| match reference {
        Reference::Meter(meter) => Some(meter),
        _ => None,
    });
    let stats = |(entry, age): (MeterEntry, Duration)| {
        let counters = entry.meter.counters();
        MeterStats {
            meter: entry.spec.number,
            flows: rules.get(&entry.spec.number).copied().unwrap_or(0),
            packets: counters.passed.0 + counters.remarked.0 + counters.dropped.0,
            bytes: counters.passed.1 + counters.remarked.1 + counters.dropped.1,
            duration_s: age.as_secs() as u32,
            duration_ns: age.subsec_nanos(),
            bands: entry.meter.exceeded(),
        }
    };
    Ok(meters.into_iter().map(stats).collect())
}

/// The configuration of a meter, or of all.
pub(super) fn configurations(service: &Service, number: u32) -> Result<Vec<MeterConfig>, ErrorCode> {
    // Those of a configuration file may have larger numbers than the message.
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let band = |band: &Band| {
        let kind = match band.excess {
            Excess::Drop => BandKind::Drop,
            Excess::Remark(levels) => BandKind::DscpRemark(levels),
        };
        SentBand { kind, rate: short(band.rate), burst: short(band.burst) }
    };
    let config = |(entry, _): (MeterEntry, Duration)| {
        let MeterSpec { number, unit, bands, has_bursts, keeps_statistics } = entry.spec;
        let unit = match unit {
            Unit::Kilobits => flags::KBPS,
            Unit::Packets => flags::PKTPS,
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = unit | flag(has_bursts, flags::BURST) | flag(keeps_statistics, flags::STATS);
        MeterConfig { meter: number, flags, bands: bands.iter().map(band).collect() }
    };
    Ok(selected(service, number)?.into_iter().map(config).collect())
}

/// The features of meters.
pub(super) fn features() -> MeterFeatures {
    MeterFeatures {
        meters_max: METERS_MAX as u32,
        band_kinds: 1 << 1 | 1 << 2,
        capabilities: (flags::KBPS | flags::PKTPS | flags::BURST | flags::STATS).into(),
        bands_max: BANDS_MAX as u8,
        colours_max: 0,
    }
}
