//! Writes lists of actions.

use flowlane::rule::action::{
    Bundle, EncapsulateHeader, MemberChoice, Multipath, MultipathAlgorithm, PacketHash, Sample,
    SampleDirection, SetForm,
};
use flowlane::{Action, Field, FieldRef, Match, PortNo};

use super::header::{first_bit, pack_bits, reserved};
use super::nicira::NSH_CLASS;
use super::{EXPERIMENTER, NICIRA, connection, controller, learn, set};
use crate::fields::{Row, Shape};
use crate::oxm::{self, port_to_32};
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Writer};

/// The settings of a list of actions that is written.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) codec: &'a Codec,
    /// The protocol of the packets: several headers name ports and ICMP's fields.
    pub(crate) protocol: u8,
}

impl<'a> Writing<'a> {
    /// The settings for the actions of a rule with this match.
    pub(crate) fn of(codec: &'a Codec, matches: &Match) -> Self {
        Self { codec, protocol: matches.get(Field::NwProto).0 as u8 }
    }

    fn is_10(&self) -> bool {
        self.codec.is_10()
    }
}

/// Writes the actions of packets with this match.
pub(crate) fn put_actions(
    w: &mut Writer,
    codec: &Codec,
    matches: &Match,
    actions: &[Action],
) -> Result<(), Failed> {
    put_list(w, &Writing::of(codec, matches), actions)
}

/// Writes actions one behind the other.
pub(super) fn put_list(w: &mut Writer, writing: &Writing<'_>, actions: &[Action]) -> Result<(), Failed> {
    actions.iter().try_for_each(|action| put(w, writing, action))
}

/// Writes one of Nicira's actions, and zeros to a multiple of 8 bytes.
pub(super) fn nicira(w: &mut Writer, subtype: u16, body: impl FnOnce(&mut Writer)) {
    let start = w.len();
    w.u16(EXPERIMENTER).u16(0).u32(NICIRA).u16(subtype);
    body(w);
    w.pad(start, 8).set_length(start + 2, start);
}

fn put(w: &mut Writer, writing: &Writing<'_>, action: &Action) -> Result<(), Failed> {
    match action {
        Action::Output(_) | Action::InPort | Action::Flood | Action::All | Action::Normal => {
            return put_output_to(w, writing, action, 0);
        }
        Action::OutputMaxLen { output, max_len } => return put_output_to(w, writing, output, *max_len),
        Action::Controller(to) => {
            let default = flowlane::rule::action::Controller { max_len: to.max_len, ..Default::default() };
            match **to == default {
                true => put_output(w, writing, reserved::CONTROLLER, to.max_len),
                false => controller::put(w, to),
            }
        }
        Action::Enqueue { port, queue } => put_enqueue(w, writing, *port, *queue),
        Action::SetField { field, value, mask, form, protocol } => {
            let writing = Writing { protocol: protocol.unwrap_or(writing.protocol), ..*writing };
            return set::put(w, &writing, (*field, *value, *mask), *form);
        }
        Action::PushVlan(_) | Action::PopVlan | Action::PushMpls(_) | Action::PopMpls(_) => {
            return put_header(w, writing, action);
        }
        Action::DecTtl(_) | Action::DecMplsTtl | Action::DecNshTtl => put_ttl(w, writing, action),
        Action::SetQueue(queue) if writing.is_10() => nicira(w, 4, |w| _ = w.zeros(2).u32(*queue)),
        Action::SetQueue(queue) => _ = w.u16(21).u16(8).u32(*queue),
        Action::Group(group) if writing.is_10() => nicira(w, 40, |w| _ = w.zeros(2).u32(*group)),
        Action::Group(group) => _ = w.u16(22).u16(8).u32(*group),
        Action::Move { from, to } => return put_move(w, writing, *from, *to),
        Action::Meter(meter) if writing.codec.version == Version::OpenFlow15 => {
            _ = w.u16(29).u16(8).u32(*meter);
        }
        // Within actions, older versions have none of these; nor has OpenFlow 1.0 anywhere. Open vSwitch leaves them out.
        Action::Meter(_) | Action::ClearActions | Action::WriteActions(_) => {}
        Action::Goto(table) => {
            let in_port = reserved::IN_PORT as u16;
            nicira(w, 14, |w| _ = w.u16(in_port).u8(*table).zeros(3));
        }
        Action::Count(_) | Action::Encapsulate(_) => return Err(Failed),
        Action::OutputTruncated { .. }
        | Action::OutputField { .. }
        | Action::Sample(_)
        | Action::PopQueue
        | Action::Push(_)
        | Action::Pop(_)
        | Action::DeleteField(_)
        | Action::EncapsulateHeader(_)
        | Action::Decapsulate(_)
        | Action::Resubmit { .. }
        | Action::Clone(_)
        | Action::Learn(_)
        | Action::Conjunction { .. }
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::FinTimeout { .. }
        | Action::CheckPacketLarger { .. }
        | Action::ConnectionTracking(_)
        | Action::Nat(_)
        | Action::ClearConnection
        | Action::Note(_)
        | Action::Exit => return put_nicira(w, writing, action),
    }
    Ok(())
}

/// Writes an action that sends to a port.
fn put_output_to(w: &mut Writer, writing: &Writing<'_>, output: &Action, max_len: u16) -> Result<(), Failed> {
    let port = match output {
        Action::Output(port) => port.0,
        Action::InPort => reserved::IN_PORT,
        Action::Flood => reserved::FLOOD,
        Action::All => reserved::ALL,
        Action::Normal => reserved::NORMAL,
        // Of another program than the readers.
        _ => return Err(Failed),
    };
    put_output(w, writing, port, max_len);
    Ok(())
}

fn put_output(w: &mut Writer, writing: &Writing<'_>, port: u32, max_len: u16) {
    match writing.is_10() {
        true => w.u16(0).u16(8).u16(port as u16).u16(max_len),
        false => w.u16(0).u16(16).u32(port_to_32(port)).u16(max_len).zeros(6),
    };
}

/// Later versions have `enqueue` as its parts.
fn put_enqueue(w: &mut Writer, writing: &Writing<'_>, port: PortNo, queue: u32) {
    if writing.is_10() {
        w.u16(11).u16(16).u16(port.0 as u16).zeros(6).u32(queue);
        return;
    }
    w.u16(21).u16(8).u32(queue);
    put_output(w, writing, port.0, u16::MAX);
    nicira(w, 5, |w| _ = w.zeros(6));
}

/// Writes an action that adds or removes a header.
fn put_header(w: &mut Writer, writing: &Writing<'_>, action: &Action) -> Result<(), Failed> {
    match (action, writing.is_10()) {
        (Action::PopVlan, true) => _ = w.u16(3).u16(8).zeros(4),
        (Action::PopVlan, false) => _ = w.u16(18).u16(8).zeros(4),
        // OpenFlow 1.0 and Nicira's extensions have no action that adds a tag: Open vSwitch leaves it out.
        (Action::PushVlan(_), true) => {}
        (Action::PushVlan(tpid), false) => _ = w.u16(17).u16(8).u16(*tpid).zeros(2),
        (Action::PushMpls(eth_type), true) => nicira(w, 23, |w| _ = w.u16(*eth_type).zeros(4)),
        (Action::PushMpls(eth_type), false) => _ = w.u16(19).u16(8).u16(*eth_type).zeros(2),
        (Action::PopMpls(eth_type), true) => nicira(w, 24, |w| _ = w.u16(*eth_type).zeros(4)),
        (Action::PopMpls(eth_type), false) => _ = w.u16(20).u16(8).u16(*eth_type).zeros(2),
        _ => return Err(Failed),
    }
    Ok(())
}

fn put_ttl(w: &mut Writer, writing: &Writing<'_>, action: &Action) {
    match (action, writing.is_10()) {
        (Action::DecTtl(ids), _) if !ids.is_empty() => nicira(w, 21, |w| {
            w.u16(ids.len() as u16).zeros(4);
            ids.iter().for_each(|id| _ = w.u16(*id));
        }),
        (Action::DecMplsTtl, true) => nicira(w, 26, |w| _ = w.zeros(6)),
        (Action::DecMplsTtl, false) => _ = w.u16(16).u16(8).zeros(4),
        (Action::DecNshTtl, _) => nicira(w, 48, |w| _ = w.zeros(6)),
        (_, true) => nicira(w, 18, |w| _ = w.zeros(6)),
        (_, false) => _ = w.u16(24).u16(8).zeros(4),
    }
}

/// The row of a field in Nicira's actions: Open vSwitch writes them alike in all versions.
fn row(part: FieldRef, writing: &Writing<'_>) -> Result<&'static Row, Failed> {
    oxm::row_of(part, Version::OpenFlow10, writing.protocol).ok_or(Failed)
}

fn put_move(w: &mut Writer, writing: &Writing<'_>, from: FieldRef, to: FieldRef) -> Result<(), Failed> {
    let is_15 = writing.codec.version == Version::OpenFlow15;
    let version = if is_15 { Version::OpenFlow15 } else { Version::OpenFlow10 };
    let row = |part| oxm::row_of(part, version, writing.protocol).ok_or(Failed);
    let (from_row, to_row) = (row(from)?, row(to)?);
    let places = |w: &mut Writer| {
        w.u16(from.bits().into()).u16(first_bit(from, from_row)).u16(first_bit(to, to_row));
    };
    let headers = |w: &mut Writer| {
        oxm::put_header(w, writing.codec, from_row);
        oxm::put_header(w, writing.codec, to_row);
    };
    if is_15 {
        let start = w.len();
        w.u16(28).u16(0);
        places(w);
        w.zeros(2);
        headers(w);
        w.pad(start, 8).set_length(start + 2, start);
        return Ok(());
    }
    nicira(w, 6, |w| {
        places(w);
        headers(w);
    });
    Ok(())
}

/// Writes an action that only Nicira's extensions have.
fn put_nicira(w: &mut Writer, writing: &Writing<'_>, action: &Action) -> Result<(), Failed> {
    match action {
        Action::OutputTruncated { port, max_len } => {
            nicira(w, 39, |w| _ = w.u16(port.0 as u16).u32(*max_len));
        }
        Action::OutputField { port, max_len } => return put_output_field(w, writing, *port, *max_len),
        Action::Sample(sample) => put_sample(w, sample),
        Action::PopQueue => nicira(w, 5, |w| _ = w.zeros(6)),
        Action::Push(part) | Action::Pop(part) => {
            let row = row(*part, writing)?;
            nicira(w, if matches!(action, Action::Push(_)) { 27 } else { 28 }, |w| {
                w.u16(first_bit(*part, row));
                oxm::put_header(w, writing.codec, row);
                w.u16(part.bits().into()).zeros(if row.class == 0xffff { 2 } else { 6 });
            });
        }
        Action::DeleteField(field) => {
            let row = row(FieldRef::whole(*field), writing)?;
            if !matches!(row.shape, Shape::Option(_)) {
                return Err(Failed);
            }
            nicira(w, 50, |w| {
                oxm::put_header(w, writing.codec, row);
                w.zeros(10);
            });
        }
        Action::EncapsulateHeader(header) => put_encapsulation(w, header),
        Action::Decapsulate(to) => {
            let (space, kind) = to.unwrap_or((0, 0xfffe));
            nicira(w, 47, |w| _ = w.zeros(2).u16(space).u16(kind));
        }
        Action::Resubmit { in_port, table, original } => {
            let port = in_port.map_or(reserved::IN_PORT, |port| port.0) as u16;
            let subtype = if *original { 44 } else { 14 };
            nicira(w, subtype, |w| _ = w.u16(port).u8(table.unwrap_or(0xff)).zeros(3));
        }
        Action::Clone(actions) => {
            let mut done = Ok(());
            nicira(w, 42, |w| {
                w.zeros(6);
                done = put_list(w, writing, actions);
            });
            return done;
        }
        _ => return put_more(w, writing, action),
    }
    Ok(())
}

/// Writes an action that is Nicira's, of those about other rules, hashes and connections.
fn put_more(w: &mut Writer, writing: &Writing<'_>, action: &Action) -> Result<(), Failed> {
    match action {
        Action::Learn(learn) => return learn::put(w, writing, learn),
        Action::Conjunction { id, clause, clauses } => {
            nicira(w, 34, |w| _ = w.u8(*clause).u8(*clauses).u32(*id));
        }
        Action::Multipath(multipath) => return put_multipath(w, writing, multipath),
        Action::Bundle(bundle) => return put_bundle(w, writing, bundle),
        Action::FinTimeout { idle_s, hard_s } => nicira(w, 19, |w| _ = w.u16(*idle_s).u16(*hard_s).zeros(2)),
        Action::CheckPacketLarger { bytes, to } => {
            let row = row(*to, writing)?;
            nicira(w, 49, |w| {
                w.u16(*bytes).u16(first_bit(*to, row));
                oxm::put_header(w, writing.codec, row);
            });
        }
        Action::ConnectionTracking(ct) => return connection::put(w, writing, ct),
        Action::Nat(nat) => connection::put_nat(w, nat),
        Action::ClearConnection => nicira(w, 43, |w| _ = w.zeros(6)),
        Action::Note(note) => nicira(w, 8, |w| _ = w.put(note).zeros(6usize.saturating_sub(note.len()))),
        Action::Exit => nicira(w, 17, |w| _ = w.zeros(6)),
        _ => return Err(Failed),
    }
    Ok(())
}

fn put_output_field(
    w: &mut Writer,
    writing: &Writing<'_>,
    port: FieldRef,
    max_len: u16,
) -> Result<(), Failed> {
    let row = row(port, writing)?;
    let bits = pack_bits(port, row).ok_or(Failed)?;
    if row.class == 0xffff {
        nicira(w, 32, |w| {
            w.u16(bits).u16(max_len);
            oxm::put_header(w, writing.codec, row);
            w.zeros(2);
        });
        return Ok(());
    }
    nicira(w, 15, |w| {
        w.u16(bits);
        oxm::put_header(w, writing.codec, row);
        w.u16(max_len).zeros(6);
    });
    Ok(())
}

fn put_sample(w: &mut Writer, sample: &Sample) {
    let is_plain = sample.port.is_none() && sample.direction == SampleDirection::Default;
    nicira(w, if is_plain { 29 } else { 41 }, |w| {
        w.u16(sample.probability).u32(sample.collector_set_id);
        w.u32(sample.observation_domain_id).u32(sample.observation_point_id);
        if !is_plain {
            let direction = match sample.direction {
                SampleDirection::Default => 0,
                SampleDirection::Ingress => 1,
                SampleDirection::Egress => 2,
            };
            w.u16(super::put_port10(sample.port)).u8(direction).zeros(5);
        }
    });
}

fn put_encapsulation(w: &mut Writer, header: &EncapsulateHeader) {
    nicira(w, 46, |w| {
        w.u16(0);
        match header {
            EncapsulateHeader::Ethernet => _ = w.u32(0),
            EncapsulateHeader::Mpls => _ = w.u16(1).u16(0x8847),
            EncapsulateHeader::MplsMulticast => _ = w.u16(1).u16(0x8848),
            EncapsulateHeader::Nsh { metadata_type, tlvs } => {
                w.u16(1).u16(0x894f);
                if *metadata_type != 0 {
                    w.u16(NSH_CLASS).u8(1).u8(5).u8(*metadata_type).zeros(3);
                }
                for (class, kind, value) in tlvs {
                    let bytes = (8 + value.len()).next_multiple_of(8);
                    w.u16(NSH_CLASS).u8(2).u8(bytes as u8).u16(*class).u8(*kind).u8(value.len() as u8);
                    w.put(value).zeros(bytes - 8 - value.len());
                }
            }
        }
    });
}

/// The number of a hash in `enum nx_hash_fields`.
fn hash_number(hash: PacketHash) -> u16 {
    match hash {
        PacketHash::EthSrc => 0,
        PacketHash::SymmetricL4 => 1,
        PacketHash::SymmetricL3L4 => 2,
        PacketHash::SymmetricL3L4Udp => 3,
        PacketHash::NwSrc => 4,
        PacketHash::NwDst => 5,
        PacketHash::SymmetricL3 => 6,
    }
}

fn put_multipath(w: &mut Writer, writing: &Writing<'_>, multipath: &Multipath) -> Result<(), Failed> {
    let row = row(multipath.to, writing)?;
    let bits = pack_bits(multipath.to, row).ok_or(Failed)?;
    let algorithm = match multipath.algorithm {
        MultipathAlgorithm::ModuloN => 0,
        MultipathAlgorithm::HashThreshold => 1,
        MultipathAlgorithm::Hrw => 2,
        MultipathAlgorithm::IterHash => 3,
    };
    nicira(w, 10, |w| {
        w.u16(hash_number(multipath.hash)).u16(multipath.basis).zeros(2).u16(algorithm);
        w.u16(multipath.links.wrapping_sub(1) as u16).u32(multipath.argument).zeros(2).u16(bits);
        oxm::put_header(w, writing.codec, row);
    });
    Ok(())
}

fn put_bundle(w: &mut Writer, writing: &Writing<'_>, bundle: &Bundle) -> Result<(), Failed> {
    let algorithm = match bundle.algorithm {
        MemberChoice::ActiveBackup => 0,
        MemberChoice::Hrw => 1,
    };
    let to = match bundle.to {
        Some(to) => {
            let row = row(to, writing)?;
            Some((pack_bits(to, row).ok_or(Failed)?, row))
        }
        None => None,
    };
    nicira(w, if to.is_some() { 13 } else { 12 }, |w| {
        w.u16(algorithm).u16(hash_number(bundle.hash)).u16(bundle.basis);
        w.u32(2).u16(bundle.members.len() as u16);
        match to {
            Some((bits, row)) => {
                w.u16(bits);
                oxm::put_header(w, writing.codec, row);
            }
            None => _ = w.zeros(6),
        }
        w.zeros(4);
        bundle.members.iter().for_each(|member| _ = w.u16(member.0 as u16));
    });
    Ok(())
}

/// Returns whether an action is an instruction of its own in a version.
pub(super) fn is_instruction(action: &Action, version: Version) -> bool {
    let is_meter = matches!(action, Action::Meter(_)) && version != Version::OpenFlow15;
    let is_metadata = matches!(action, Action::SetField { field: Field::Metadata, form: SetForm::Own, .. });
    let is_other = matches!(action, Action::ClearActions | Action::WriteActions(_) | Action::Goto(_));
    is_meter || is_metadata || is_other
}
