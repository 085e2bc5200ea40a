//! Tables (OpenFlow 1.0 5.3.5, 1.3.5 7.3.3 and 7.3.5.4 to 5, 1.4.1 7.3.4.1).

use crate::error::ErrorCode;
use crate::oxm;
use crate::property;
use crate::settings::Codec;
use crate::stats::{
    ActionId, FieldId, TableConfig, TableFeatures, TableProperty, TableStats, TableStatus, Vacancy,
};
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

const EVICTION: u16 = 2;
const VACANCY: u16 = 3;

/// Reads a change of a table.
pub(super) fn read_mod(codec: &Codec, r: &mut Reader<'_>) -> Result<TableConfig, ErrorCode> {
    let table = r.u8()?;
    r.skip(3)?;
    let mut config = TableConfig { table, config: r.u32()?, eviction: None, vacancy: None };
    if codec.version >= Version::OpenFlow14 {
        read_properties(r, &mut config)?;
    }
    Ok(config)
}

fn read_properties(r: &mut Reader<'_>, config: &mut TableConfig) -> Result<(), ErrorCode> {
    while !r.is_empty() {
        let (kind, mut property) = property::read(r, ErrorCode::PropertyBadLen)?;
        match kind {
            EVICTION => config.eviction = Some(property.u32()?),
            VACANCY => {
                let (down, up, current) = (property.u8()?, property.u8()?, property.u8()?);
                config.vacancy = Some(Vacancy { down, up, current });
            }
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    Ok(())
}

fn put_properties(w: &mut Writer, config: &TableConfig) {
    if let Some(flags) = config.eviction {
        property::put(w, EVICTION, |w| _ = w.u32(flags));
    }
    if let Some(Vacancy { down, up, current }) = config.vacancy {
        property::put(w, VACANCY, |w| _ = w.u8(down).u8(up).u8(current).zeros(1));
    }
}

/// Writes a change of a table.
pub(super) fn put_mod(w: &mut Writer, codec: &Codec, config: &TableConfig) {
    w.u8(config.table).zeros(3).u32(config.config);
    if codec.version >= Version::OpenFlow14 {
        put_properties(w, config);
    }
}

/// Reads a description of a table.
pub(super) fn read_description(r: &mut Reader<'_>) -> Result<TableConfig, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    let table = body.u8()?;
    body.skip(1)?;
    let mut config = TableConfig { table, config: body.u32()?, eviction: None, vacancy: None };
    read_properties(&mut body, &mut config)?;
    Ok(config)
}

/// Reads the status of a table.
pub(super) fn read_status(r: &mut Reader<'_>) -> Result<TableStatus, ErrorCode> {
    let reason = r.u8()?;
    r.skip(7)?;
    Ok(TableStatus { reason, config: read_description(r)? })
}

/// Writes the status of a table.
pub(super) fn put_status(w: &mut Writer, status: &TableStatus) {
    w.u8(status.reason).zeros(7);
    put_description(w, &status.config);
}

/// Writes a description of a table.
pub(super) fn put_description(w: &mut Writer, config: &TableConfig) {
    let start = w.len();
    w.u16(0).u8(config.table).zeros(1).u32(config.config);
    put_properties(w, config);
    w.set_length(start, start);
}

/// Reads statistics of a table.
pub(super) fn read_stats(codec: &Codec, r: &mut Reader<'_>) -> Result<TableStats, ErrorCode> {
    let table = r.u8()?;
    r.skip(3)?;
    let mut stats = TableStats {
        table,
        name: String::new(),
        wildcards: 0,
        flows_max: 0,
        flows: 0,
        lookups: 0,
        matched: 0,
    };
    if codec.is_10() {
        stats.name = r.text(32)?;
        (stats.wildcards, stats.flows_max) = (r.u32()?, r.u32()?);
    }
    (stats.flows, stats.lookups, stats.matched) = (r.u32()?, r.u64()?, r.u64()?);
    Ok(stats)
}

/// Writes statistics of a table.
pub(super) fn put_stats(w: &mut Writer, codec: &Codec, stats: &TableStats) {
    w.u8(stats.table).zeros(3);
    if codec.is_10() {
        w.text(&stats.name, 32).u32(stats.wildcards).u32(stats.flows_max);
    }
    w.u32(stats.flows).u64(stats.lookups).u64(stats.matched);
}

/// Reads features of a table. Properties that are unknown are skipped.
pub(super) fn read_features(codec: &Codec, r: &mut Reader<'_>) -> Result<TableFeatures, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    let (table, command, features) = (body.u8()?, body.u8()?, body.u32()?);
    let is_15 = codec.version == Version::OpenFlow15;
    let (command, features) = if is_15 { (command, features) } else { (0, 0) };
    let mut table = TableFeatures {
        table,
        command,
        features,
        name: body.text(32)?,
        metadata_match: body.u64()?,
        metadata_write: body.u64()?,
        capabilities: body.u32()?,
        flows_max: body.u32()?,
        properties: Vec::new(),
    };
    while !body.is_empty() {
        let (kind, mut property) = property::read(&mut body, ErrorCode::TableFeaturesBadFeatures)?;
        table.properties.extend(read_property(kind, &mut property)?);
    }
    Ok(table)
}

fn read_property(kind: u16, r: &mut Reader<'_>) -> Result<Option<TableProperty>, ErrorCode> {
    let miss = kind & 1 != 0;
    Ok(Some(match kind {
        0 | 1 => TableProperty::Instructions { miss, ids: read_ids(r)? },
        2 | 3 => TableProperty::NextTables { miss, tables: r.take_rest().to_vec() },
        4..=7 => TableProperty::Actions { write: kind < 6, miss, ids: read_ids(r)? },
        8 => TableProperty::Match(read_fields(r)?),
        10 => TableProperty::Wildcards(read_fields(r)?),
        12..=15 => TableProperty::SetFields { write: kind < 14, miss, fields: read_fields(r)? },
        _ => return Ok(None),
    }))
}

fn read_ids(r: &mut Reader<'_>) -> Result<Vec<ActionId>, ErrorCode> {
    let mut ids = Vec::new();
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut rest = r.part(length.checked_sub(4).ok_or(r.bad_length())?)?;
        let experimenter = if kind == 0xffff { Some(rest.u32()?) } else { None };
        ids.push(ActionId { kind, experimenter });
    }
    Ok(ids)
}

/// Reads names of fields, and leaves out those that the library lacks.
fn read_fields(r: &mut Reader<'_>) -> Result<Vec<FieldId>, ErrorCode> {
    let mut fields: Vec<FieldId> = Vec::new();
    while !r.is_empty() {
        match oxm::read_id(r) {
            Ok((row, has_mask)) => {
                let id = FieldId { field: row.field, has_mask };
                // A field that has several headers is named once.
                if !fields.contains(&id) {
                    fields.push(id);
                }
            }
            Err(ErrorCode::MatchBadField) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(fields)
}

/// Writes features of a table.
pub(super) fn put_features(w: &mut Writer, codec: &Codec, table: &TableFeatures) -> Result<(), Failed> {
    let start = w.len();
    w.u16(0).u8(table.table);
    match codec.version == Version::OpenFlow15 {
        true => w.u8(table.command).u32(table.features),
        false => w.zeros(5),
    };
    w.text(&table.name, 32).u64(table.metadata_match).u64(table.metadata_write);
    w.u32(table.capabilities).u32(table.flows_max);
    for property in &table.properties {
        let (kind, miss) = match property {
            TableProperty::Instructions { miss, .. } => (0, *miss),
            TableProperty::NextTables { miss, .. } => (2, *miss),
            TableProperty::Actions { write, miss, .. } => (if *write { 4 } else { 6 }, *miss),
            TableProperty::Match(_) => (8, false),
            TableProperty::Wildcards(_) => (10, false),
            TableProperty::SetFields { write, miss, .. } => (if *write { 12 } else { 14 }, *miss),
        };
        let mut done = Ok(());
        property::put(w, kind | u16::from(miss), |w| match property {
            TableProperty::Instructions { ids, .. } | TableProperty::Actions { ids, .. } => {
                ids.iter().for_each(|id| put_id(w, *id));
            }
            TableProperty::NextTables { tables, .. } => _ = w.put(tables),
            TableProperty::Match(fields)
            | TableProperty::Wildcards(fields)
            | TableProperty::SetFields { fields, .. } => done = put_fields(w, codec, fields),
        });
        done?;
    }
    w.set_length(start, start);
    Ok(())
}

fn put_id(w: &mut Writer, id: ActionId) {
    w.u16(id.kind).u16(if id.experimenter.is_some() { 8 } else { 4 });
    if let Some(experimenter) = id.experimenter {
        w.u32(experimenter);
    }
}

fn put_fields(w: &mut Writer, codec: &Codec, fields: &[FieldId]) -> Result<(), Failed> {
    for FieldId { field, has_mask } in fields {
        let row = oxm::row_of((*field).into(), codec.version, 6).ok_or(Failed)?;
        oxm::put_id(w, row, *has_mask);
    }
    Ok(())
}
