//! Meters (OpenFlow 1.3.5 7.3.4.5 and 7.3.5.12 to 14).

use crate::error::ErrorCode;
use crate::meter::{Band, BandKind, MeterCommand, MeterConfig, MeterFeatures, MeterMod, MeterStats};
use crate::wire::{Reader, Writer};

/// Reads a change of meters.
pub(super) fn read_mod(r: &mut Reader<'_>) -> Result<MeterMod, ErrorCode> {
    let command = match r.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(ErrorCode::MeterModBadCommand),
    };
    let (flags, meter) = (r.u16()?, r.u32()?);
    let bands = match command {
        MeterCommand::Delete => {
            r.take_rest();
            Vec::new()
        }
        MeterCommand::Add | MeterCommand::Modify => read_bands(r)?,
    };
    let rates = flags & 3;
    if command != MeterCommand::Delete && (flags & !0xf != 0 || rates != 1 && rates != 2) {
        return Err(ErrorCode::MeterModBadFlags);
    }
    Ok(MeterMod { command, meter: MeterConfig { meter, flags, bands } })
}

/// Writes a change of meters.
pub(super) fn put_mod(w: &mut Writer, change: &MeterMod) {
    let command = match change.command {
        MeterCommand::Add => 0,
        MeterCommand::Modify => 1,
        MeterCommand::Delete => 2,
    };
    w.u16(command).u16(change.meter.flags).u32(change.meter.meter);
    put_bands(w, &change.meter.bands);
}

fn read_bands(r: &mut Reader<'_>) -> Result<Vec<Band>, ErrorCode> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        let (kind, length, rate, burst) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
        let kind = match (kind, length, r.array()?) {
            (1, 16, [_, _, _, _]) => BandKind::Drop,
            (2, 16, [levels, _, _, _]) => BandKind::DscpRemark(levels),
            (1 | 2, _, _) => return Err(ErrorCode::RequestBadLen),
            _ => return Err(ErrorCode::MeterModBadBand),
        };
        bands.push(Band { kind, rate, burst });
    }
    Ok(bands)
}

fn put_bands(w: &mut Writer, bands: &[Band]) {
    for band in bands {
        let (kind, levels) = match band.kind {
            BandKind::Drop => (1, 0),
            BandKind::DscpRemark(levels) => (2, levels),
        };
        w.u16(kind).u16(16).u32(band.rate).u32(band.burst).u8(levels).zeros(3);
    }
}

/// Reads a meter's configuration.
pub(super) fn read_config(r: &mut Reader<'_>) -> Result<MeterConfig, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(8).ok_or(r.bad_length())?;
    let (flags, meter) = (r.u16()?, r.u32()?);
    Ok(MeterConfig { meter, flags, bands: read_bands(&mut r.part(bytes)?)? })
}

/// Writes a meter's configuration.
pub(super) fn put_config(w: &mut Writer, config: &MeterConfig) {
    let start = w.len();
    w.u16(0).u16(config.flags).u32(config.meter);
    put_bands(w, &config.bands);
    w.set_length(start, start);
}

/// Reads statistics of a meter.
pub(super) fn read_stats(r: &mut Reader<'_>) -> Result<MeterStats, ErrorCode> {
    let meter = r.u32()?;
    let bytes = usize::from(r.u16()?).checked_sub(6).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    body.skip(6)?;
    let (flows, packets, bytes, duration_s, duration_ns) =
        (body.u32()?, body.u64()?, body.u64()?, body.u32()?, body.u32()?);
    let mut bands = Vec::new();
    while !body.is_empty() {
        bands.push((body.u64()?, body.u64()?));
    }
    Ok(MeterStats { meter, flows, packets, bytes, duration_s, duration_ns, bands })
}

/// Writes statistics of a meter.
pub(super) fn put_stats(w: &mut Writer, stats: &MeterStats) {
    let start = w.len();
    w.u32(stats.meter).u16(0).zeros(6).u32(stats.flows).u64(stats.packets).u64(stats.bytes);
    w.u32(stats.duration_s).u32(stats.duration_ns);
    stats.bands.iter().for_each(|(packets, bytes)| _ = w.u64(*packets).u64(*bytes));
    w.set_length(start + 4, start);
}

/// Reads features of meters.
pub(super) fn read_features(r: &mut Reader<'_>) -> Result<MeterFeatures, ErrorCode> {
    let features = MeterFeatures {
        meters_max: r.u32()?,
        band_kinds: r.u32()?,
        capabilities: r.u32()?,
        bands_max: r.u8()?,
        colours_max: r.u8()?,
    };
    r.skip(2)?;
    Ok(features)
}

/// Writes features of meters.
pub(super) fn put_features(w: &mut Writer, features: &MeterFeatures) {
    w.u32(features.meters_max).u32(features.band_kinds).u32(features.capabilities);
    w.u8(features.bands_max).u8(features.colours_max).zeros(2);
}
