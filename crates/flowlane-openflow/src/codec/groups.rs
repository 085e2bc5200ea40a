//! Groups (OpenFlow 1.3.5 7.3.4.2 and 7.3.5.9 to 11, 1.5.1 7.3.4.3; Nicira's messages for OpenFlow 1.0 have 1.5's layout).

use std::collections::HashSet;

use crate::action::{port32, put_actions, put_port32, read_actions};
use crate::error::ErrorCode;
use crate::group::{
    Bucket, BucketPlace, GROUP_ANY, GroupCommand, GroupDescription, GroupFeatures, GroupKind, GroupMod,
    GroupStats, Selection, SelectionField,
};
use crate::oxm;
use crate::property;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};
use flowlane::Match;

/// The experimenter of the property that says how a group chooses (Netronome's, as Open vSwitch uses it).
const NETRONOME: u32 = 0x154d;
/// The property of experimenters.
const EXPERIMENTER: u16 = 0xffff;

/// Returns whether buckets have identifiers and properties.
fn is_new(codec: &Codec) -> bool {
    matches!(codec.version, Version::OpenFlow10 | Version::OpenFlow15)
}

fn read_kind(r: &mut Reader<'_>) -> Result<GroupKind, ErrorCode> {
    let kind = match r.u8()? {
        0 => GroupKind::All,
        1 => GroupKind::Select,
        2 => GroupKind::Indirect,
        3 => GroupKind::FastFailover,
        _ => return Err(ErrorCode::GroupModBadType),
    };
    r.skip(1)?;
    Ok(kind)
}

fn kind_number(kind: GroupKind) -> u8 {
    match kind {
        GroupKind::All => 0,
        GroupKind::Select => 1,
        GroupKind::Indirect => 2,
        GroupKind::FastFailover => 3,
    }
}

fn place(number: u32) -> Result<BucketPlace, ErrorCode> {
    Ok(match number {
        0..=0xffff_ff00 => BucketPlace::Id(number),
        0xffff_fffd => BucketPlace::First,
        0xffff_fffe => BucketPlace::Last,
        0xffff_ffff => BucketPlace::All,
        _ => return Err(ErrorCode::GroupModUnknownBucket),
    })
}

fn place_number(place: BucketPlace) -> u32 {
    match place {
        BucketPlace::Id(id) => id,
        BucketPlace::First => 0xffff_fffd,
        BucketPlace::Last => 0xffff_fffe,
        BucketPlace::All => 0xffff_ffff,
    }
}

/// Reads a change of groups.
pub(super) fn read_mod(codec: &Codec, r: &mut Reader<'_>) -> Result<GroupMod, ErrorCode> {
    let (command, kind, group) = (r.u16()?, read_kind(r)?, r.u32()?);
    let (mut buckets, mut selection, mut place_of) = (Vec::new(), None, 0xffff_ffff);
    if is_new(codec) {
        let bytes = usize::from(r.u16()?);
        r.skip(2)?;
        place_of = r.u32()?;
        buckets = read_buckets(codec, &mut r.part(bytes)?, kind)?;
        selection = read_properties(r)?;
    } else {
        let mut rest = *r;
        r.take_rest();
        buckets.append(&mut read_buckets(codec, &mut rest, kind)?);
    }
    let command = match command {
        0 => GroupCommand::Add,
        1 => GroupCommand::Modify,
        2 => GroupCommand::Delete,
        3 if is_new(codec) => GroupCommand::InsertBuckets(place(place_of)?),
        5 if is_new(codec) => GroupCommand::RemoveBuckets(place(place_of)?),
        0x8000 => GroupCommand::AddOrModify,
        _ => return Err(ErrorCode::GroupModBadCommand),
    };
    let change = GroupMod { command, kind, group, buckets, selection };
    let has_place = matches!(command, GroupCommand::InsertBuckets(_) | GroupCommand::RemoveBuckets(_));
    if !has_place && place_of != 0xffff_ffff {
        return Err(ErrorCode::GroupModBadBucket);
    }
    check_buckets(&change)?;
    Ok(change)
}

/// Refuses buckets that the group's kind cannot have.
fn check_buckets(change: &GroupMod) -> Result<(), ErrorCode> {
    let buckets = &change.buckets;
    let deletes = change.command == GroupCommand::Delete;
    if change.kind == GroupKind::Indirect && !deletes && buckets.len() != 1 {
        return Err(ErrorCode::GroupModInvalidGroup);
    }
    if matches!(change.command, GroupCommand::RemoveBuckets(_)) && !buckets.is_empty() {
        return Err(ErrorCode::GroupModBadBucket);
    }
    if change.selection.is_some() && change.kind != GroupKind::Select {
        // ovs-ofctl lists no groups at all where one of another kind has a method.
        return Err(ErrorCode::PropertyBadValue);
    }
    let mut numbers = HashSet::new();
    for bucket in buckets {
        if !numbers.insert(bucket.id) {
            return Err(ErrorCode::GroupModBadBucket);
        }
        let watches = bucket.watch_port.is_some() || bucket.watch_group.is_some();
        match change.kind {
            GroupKind::Select => {}
            _ if bucket.weight != 0 => return Err(ErrorCode::GroupModInvalidGroup),
            GroupKind::All | GroupKind::Indirect if watches => {
                return Err(ErrorCode::GroupModWatchUnsupported);
            }
            GroupKind::FastFailover if !watches => return Err(ErrorCode::GroupModInvalidGroup),
            GroupKind::All | GroupKind::Indirect | GroupKind::FastFailover => {}
        }
    }
    Ok(())
}

/// Writes a change of groups.
pub(super) fn put_mod(w: &mut Writer, codec: &Codec, change: &GroupMod) -> Result<(), Failed> {
    let (command, place) = match change.command {
        GroupCommand::Add => (0, None),
        GroupCommand::Modify => (1, None),
        GroupCommand::Delete => (2, None),
        GroupCommand::AddOrModify => (0x8000, None),
        GroupCommand::InsertBuckets(place) => (3, Some(place)),
        GroupCommand::RemoveBuckets(place) => (5, Some(place)),
    };
    w.u16(command).u8(kind_number(change.kind)).zeros(1).u32(change.group);
    if !is_new(codec) {
        if place.is_some() {
            return Err(Failed);
        }
        return put_buckets(w, codec, change.kind, &change.buckets);
    }
    let at = w.len();
    w.u16(0).zeros(2).u32(place.map_or(0xffff_ffff, place_number));
    let start = w.len();
    put_buckets(w, codec, change.kind, &change.buckets)?;
    w.set_length(at, start);
    put_properties(w, codec, change.selection.as_ref())
}

fn watch_port(r: &mut Reader<'_>) -> Result<Option<flowlane::PortNo>, ErrorCode> {
    port32(r.u32()?).map_err(|_| ErrorCode::GroupModBadWatch)
}

fn read_buckets(codec: &Codec, r: &mut Reader<'_>, kind: GroupKind) -> Result<Vec<Bucket>, ErrorCode> {
    let mut buckets: Vec<Bucket> = Vec::new();
    while !r.is_empty() {
        let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(ErrorCode::GroupModBadBucket)?;
        let mut body = r.part(bytes).map_err(|_| ErrorCode::GroupModBadBucket)?;
        let bucket = if is_new(codec) {
            read_new_bucket(codec, &mut body, kind)?
        } else {
            let (weight, port, group) = (body.u16()?, watch_port(&mut body)?, body.u32()?);
            body.skip(4)?;
            Bucket {
                id: buckets.len() as u32,
                weight,
                watch_port: port,
                watch_group: (group != GROUP_ANY).then_some(group),
                actions: read_actions(codec, body.take_rest())?,
            }
        };
        buckets.push(bucket);
    }
    Ok(buckets)
}

fn read_new_bucket(codec: &Codec, r: &mut Reader<'_>, kind: GroupKind) -> Result<Bucket, ErrorCode> {
    let (bytes, id) = (usize::from(r.u16()?), r.u32()?);
    if id > 0xffff_ff00 {
        return Err(ErrorCode::GroupModBadBucket);
    }
    let actions = read_actions(codec, r.take(bytes).map_err(|_| ErrorCode::GroupModBadBucket)?)?;
    let weight = if kind == GroupKind::Select { 1 } else { 0 };
    let mut bucket = Bucket { id, weight, watch_port: None, watch_group: None, actions };
    while !r.is_empty() {
        let (kind, mut property) = property::read(r, ErrorCode::PropertyBadLen)?;
        match kind {
            0 => bucket.weight = property.u16()?,
            1 => bucket.watch_port = watch_port(&mut property)?,
            2 => bucket.watch_group = Some(property.u32()?).filter(|group| *group != GROUP_ANY),
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    Ok(bucket)
}

fn put_buckets(w: &mut Writer, codec: &Codec, kind: GroupKind, buckets: &[Bucket]) -> Result<(), Failed> {
    let any = Match::any();
    for bucket in buckets {
        let start = w.len();
        w.u16(0);
        if !is_new(codec) {
            w.u16(bucket.weight).u32(put_port32(bucket.watch_port));
            w.u32(bucket.watch_group.unwrap_or(GROUP_ANY)).zeros(4);
            put_actions(w, codec, &any, &bucket.actions)?;
            w.set_length(start, start);
            continue;
        }
        w.u16(0).u32(bucket.id);
        let at = w.len();
        put_actions(w, codec, &any, &bucket.actions)?;
        w.set_length(start + 2, at);
        if bucket.weight != 0 || kind == GroupKind::Select {
            property::put(w, 0, |w| _ = w.u16(bucket.weight).zeros(2));
        }
        if let Some(port) = bucket.watch_port {
            property::put(w, 1, |w| _ = w.u32(put_port32(Some(port))));
        }
        if let Some(group) = bucket.watch_group {
            property::put(w, 2, |w| _ = w.u32(group));
        }
        w.set_length(start, start);
    }
    Ok(())
}

fn read_properties(r: &mut Reader<'_>) -> Result<Option<Selection>, ErrorCode> {
    let mut selection = None;
    while !r.is_empty() {
        let (kind, mut property) = property::read(r, ErrorCode::PropertyBadLen)?;
        if kind != EXPERIMENTER {
            return Err(ErrorCode::PropertyBadType);
        }
        if property.u32()? != NETRONOME {
            return Err(ErrorCode::PropertyBadExperimenter);
        }
        if property.u32()? != 1 {
            return Err(ErrorCode::PropertyBadExpType);
        }
        property.skip(4)?;
        let (method, parameter) = (property.text(16)?, property.u64()?);
        let mut fields = Vec::new();
        while !property.is_empty() {
            let entry = oxm::read_entry(&mut property)?;
            fields.push(SelectionField { field: entry.row.field, mask: entry.value });
        }
        if selection.replace(Selection { method, parameter, fields }).is_some() {
            return Err(ErrorCode::PropertyDupType);
        }
    }
    Ok(selection)
}

fn put_properties(w: &mut Writer, codec: &Codec, selection: Option<&Selection>) -> Result<(), Failed> {
    let Some(selection) = selection else { return Ok(()) };
    let mut done = Ok(());
    property::put(w, EXPERIMENTER, |w| {
        w.u32(NETRONOME).u32(1).zeros(4).text(&selection.method, 16).u64(selection.parameter);
        for SelectionField { field, mask } in &selection.fields {
            match oxm::row_of((*field).into(), codec.version, 6) {
                Some(row) => row.put(w, codec, *mask, None),
                None => done = Err(Failed),
            }
        }
    });
    done
}

/// Reads a description of a group.
pub(super) fn read_description(codec: &Codec, r: &mut Reader<'_>) -> Result<GroupDescription, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    let (kind, group) = (read_kind(&mut body)?, body.u32()?);
    let (buckets, selection) = if is_new(codec) {
        let bytes = usize::from(body.u16()?);
        body.skip(6)?;
        (read_buckets(codec, &mut body.part(bytes)?, kind)?, read_properties(&mut body)?)
    } else {
        (read_buckets(codec, &mut body, kind)?, None)
    };
    Ok(GroupDescription { group, kind, buckets, selection })
}

/// Writes a description of a group.
pub(super) fn put_description(w: &mut Writer, codec: &Codec, group: &GroupDescription) -> Result<(), Failed> {
    let start = w.len();
    w.u16(0).u8(kind_number(group.kind)).zeros(1).u32(group.group);
    if is_new(codec) {
        let at = w.len();
        w.u16(0).zeros(6);
        let from = w.len();
        put_buckets(w, codec, group.kind, &group.buckets)?;
        w.set_length(at, from);
        put_properties(w, codec, group.selection.as_ref())?;
    } else {
        put_buckets(w, codec, group.kind, &group.buckets)?;
    }
    w.set_length(start, start);
    Ok(())
}

/// Reads statistics of a group.
pub(super) fn read_stats(r: &mut Reader<'_>) -> Result<GroupStats, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    body.skip(2)?;
    let (group, references) = (body.u32()?, body.u32()?);
    body.skip(4)?;
    let (packets, bytes, duration_s, duration_ns) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
    let mut buckets = Vec::new();
    while !body.is_empty() {
        buckets.push((body.u64()?, body.u64()?));
    }
    Ok(GroupStats { group, references, packets, bytes, duration_s, duration_ns, buckets })
}

/// Writes statistics of a group.
pub(super) fn put_stats(w: &mut Writer, stats: &GroupStats) {
    let start = w.len();
    w.u16(0).zeros(2).u32(stats.group).u32(stats.references).zeros(4).u64(stats.packets).u64(stats.bytes);
    w.u32(stats.duration_s).u32(stats.duration_ns);
    stats.buckets.iter().for_each(|(packets, bytes)| _ = w.u64(*packets).u64(*bytes));
    w.set_length(start, start);
}

/// Reads features of groups.
pub(super) fn read_features(r: &mut Reader<'_>) -> Result<GroupFeatures, ErrorCode> {
    let (kinds, capabilities) = (r.u32()?, r.u32()?);
    let mut four = || -> Result<[u32; 4], ErrorCode> { Ok([r.u32()?, r.u32()?, r.u32()?, r.u32()?]) };
    Ok(GroupFeatures { kinds, capabilities, groups_max: four()?, actions: four()? })
}

/// Writes features of groups.
pub(super) fn put_features(w: &mut Writer, features: &GroupFeatures) {
    w.u32(features.kinds).u32(features.capabilities);
    features.groups_max.iter().chain(&features.actions).for_each(|number| _ = w.u32(*number));
}
