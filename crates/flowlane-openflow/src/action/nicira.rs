//! Nicira's actions (nicira-ext, `struct nx_action_*`).

use flowlane::rule::action::{
    Bundle, EncapsulateHeader, MemberChoice, Multipath, MultipathAlgorithm, PacketHash, Sample,
    SampleDirection, SetForm,
};
use flowlane::{Action, Field, PortNo};

use super::header::{check_writable, read_part, read_target, set_error, unpack_bits};
use super::standard::{group, push_mpls, read_value};
use super::{Reading, connection, controller, learn, read_list, set};
use crate::error::ErrorCode;
use crate::oxm;
use crate::version::Version;
use crate::wire::Reader;

const NOT_ZERO: ErrorCode = ErrorCode::NiciraActionMustBeZero;

fn own(field: Field, value: u128, form: SetForm) -> Action {
    Action::SetField { field, value, mask: field.info().ones(), form, protocol: None }
}

/// Bytes of an action behind its subtype, or its fewest bytes if more may follow.
fn body_bytes(subtype: u16) -> Option<(usize, bool)> {
    Some(match subtype {
        1 | 2 | 4 | 5 | 14 | 17 | 18 | 19 | 20 | 23..=26 | 30 | 31 | 34 | 39 | 40 | 43 | 44 | 47 | 48 => {
            (6, false)
        }
        7 | 9 | 15 | 27 | 28 | 50 => (14, false),
        22 | 10 | 38 | 41 => (22, false),
        29 => (14, false),
        6 | 32 | 49 => (14, true),
        12 | 13 | 16 => (22, true),
        35 => (14, true),
        45 => (30, true),
        8 | 21 | 33 | 36 | 37 | 42 | 46 => (6, true),
        _ => return None,
    })
}

/// Reads an action behind its number as experimenter.
pub(super) fn read(reading: Reading<'_>, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let subtype = r.u16()?;
    // `encap`, `decap` and `dec_nsh_ttl` are of OpenFlow 1.3 and later.
    let is_known = !(matches!(subtype, 46..=48) && reading.codec.version == Version::OpenFlow10);
    let (bytes, may_be_longer) =
        body_bytes(subtype).filter(|_| is_known).ok_or(ErrorCode::ActionBadVendorType)?;
    if r.len() < bytes || r.len() > bytes && !may_be_longer {
        return Err(ErrorCode::ActionBadLen);
    }
    match subtype {
        1 | 14 | 44 => read_resubmit(subtype, r),
        10 => read_multipath(r),
        12 | 13 => read_bundle(subtype, r),
        16 | 45 => learn::read(subtype, r),
        20 => controller::read(r),
        37 => controller::read_with_properties(r),
        35 => connection::read(reading, r),
        36 => connection::read_nat(r),
        42 => {
            r.skip(6)?;
            Ok(Action::Clone(read_list(reading.nested()?, r.take_rest())?))
        }
        46 => read_encapsulation(r),
        29 | 38 | 41 => read_sample(subtype, r),
        _ => read_small(subtype, r),
    }
}

fn read_small(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    Ok(match subtype {
        2 => {
            r.skip(2)?;
            own(Field::TunId, r.u32()?.into(), SetForm::Own)
        }
        4 => {
            r.skip(2)?;
            Action::SetQueue(r.u32()?)
        }
        5 => Action::PopQueue,
        6 => {
            let (bits, from_bit, to_bit) = (r.u16()?, r.u16()?, r.u16()?);
            let from = read_part(r, from_bit, bits)?;
            let to = read_target(r, to_bit, bits)?;
            r.zeros(r.len(), NOT_ZERO)?;
            Action::Move { from, to }
        }
        7 => set::read_load(r)?,
        8 => Action::Note(r.take_rest().to_vec()),
        9 => {
            r.skip(6)?;
            own(Field::TunId, r.u64()?.into(), SetForm::SetTunnel64)
        }
        15 => {
            let (first, bits) = unpack_bits(r.u16()?);
            let port = read_part(&mut r.part(4)?, first, bits)?;
            let max_len = r.u16()?;
            r.zeros(6, NOT_ZERO)?;
            Action::OutputField { port, max_len }
        }
        17 => Action::Exit,
        18 => Action::dec_ttl(),
        19 => Action::FinTimeout { idle_s: r.u16()?, hard_s: r.u16()? },
        21 => read_dec_ttl(r)?,
        22 => {
            r.zeros(6, NOT_ZERO)?;
            let (value, mask) = (u128::from(r.u64()?), u128::from(r.u64()?));
            let form = SetForm::Own;
            Action::SetField { field: Field::Metadata, value, mask, form, protocol: None }
        }
        23 => push_mpls(r.u16()?)?,
        24 => Action::PopMpls(r.u16()?),
        25 => own(Field::MplsTtl, r.u8()?.into(), SetForm::Own),
        26 => Action::DecMplsTtl,
        27 | 28 => {
            let first = r.u16()?;
            let row = oxm::read_header(r).map_err(set_error)?;
            let part = oxm::reference(row, first, r.u16()?)?;
            if subtype == 28 {
                check_writable(part.field())?;
            }
            if subtype == 27 { Action::Push(part) } else { Action::Pop(part) }
        }
        30 => {
            r.skip(2)?;
            own(Field::MplsLabel, u128::from(r.u32()? & 0xf_ffff), SetForm::Own)
        }
        31 => own(Field::MplsTc, u128::from(r.u8()? & 7), SetForm::Own),
        _ => return read_later(subtype, r),
    })
}

/// The actions of Open vSwitch 2.3 and later.
fn read_later(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    Ok(match subtype {
        32 => {
            let (first, bits) = unpack_bits(r.u16()?);
            let max_len = r.u16()?;
            let port = read_part(r, first, bits)?;
            r.zeros(r.len(), NOT_ZERO)?;
            Action::OutputField { port, max_len }
        }
        33 => {
            let set = read_value(r)?;
            r.zeros(r.len(), NOT_ZERO)?;
            set
        }
        34 => {
            let (clause, clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
            if !(2..=64).contains(&clauses) || clause >= clauses {
                return Err(ErrorCode::NiciraActionBadConjunction);
            }
            Action::Conjunction { id, clause, clauses }
        }
        39 => {
            let (port, max_len) = (u32::from(r.u16()?), r.u32()?);
            match port {
                0..0xff00 | 0xfff8 | 0xfffe if max_len >= 14 => {
                    Action::OutputTruncated { port: PortNo(port), max_len }
                }
                0..0xff00 | 0xfff8 | 0xfffe => return Err(ErrorCode::ActionBadArgument),
                _ => return Err(ErrorCode::ActionBadOutPort),
            }
        }
        40 => {
            r.skip(2)?;
            Action::Group(group(r.u32()?)?)
        }
        43 => Action::ClearConnection,
        47 => {
            r.skip(2)?;
            let (space, kind) = (r.u16()?, r.u16()?);
            Action::Decapsulate(((space, kind) != (0, 0xfffe)).then_some((space, kind)))
        }
        48 => Action::DecNshTtl,
        49 => {
            let (bytes, first) = (r.u16()?, r.u16()?);
            let to = read_target(r, first, 1)?;
            r.zeros(r.len(), NOT_ZERO)?;
            Action::CheckPacketLarger { bytes, to }
        }
        50 => {
            let row = oxm::read_header(r).map_err(set_error)?;
            if !matches!(row.shape, crate::fields::Shape::Option(_)) {
                return Err(ErrorCode::ActionBadSetType);
            }
            Action::DeleteField(row.field)
        }
        _ => return Err(ErrorCode::ActionBadVendorType),
    })
}

fn read_resubmit(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (port, table) = (u32::from(r.u16()?), r.u8()?);
    if subtype != 1 {
        r.zeros(3, ErrorCode::ActionBadArgument)?;
    }
    Ok(Action::Resubmit {
        in_port: (port != super::header::reserved::IN_PORT).then_some(PortNo(port)),
        table: (subtype != 1 && table != 0xff).then_some(table),
        original: subtype == 44,
    })
}

fn read_dec_ttl(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let count = usize::from(r.u16()?);
    r.zeros(4, NOT_ZERO)?;
    // OVN sends none: then no controller is to hear of packets that expire.
    let ids = (0..count).map(|_| r.u16()).collect::<Result<_, _>>()?;
    r.zeros(r.len(), NOT_ZERO)?;
    Ok(Action::DecTtl(ids))
}

/// The hash of a number of `enum nx_hash_fields`.
fn packet_hash(number: u16) -> Result<PacketHash, ErrorCode> {
    Ok(match number {
        0 => PacketHash::EthSrc,
        1 => PacketHash::SymmetricL4,
        2 => PacketHash::SymmetricL3L4,
        3 => PacketHash::SymmetricL3L4Udp,
        4 => PacketHash::NwSrc,
        5 => PacketHash::NwDst,
        6 => PacketHash::SymmetricL3,
        _ => return Err(ErrorCode::ActionBadArgument),
    })
}

fn read_multipath(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (hash, basis) = (packet_hash(r.u16()?)?, r.u16()?);
    r.skip(2)?;
    let algorithm = match r.u16()? {
        0 => MultipathAlgorithm::ModuloN,
        1 => MultipathAlgorithm::HashThreshold,
        2 => MultipathAlgorithm::Hrw,
        3 => MultipathAlgorithm::IterHash,
        _ => return Err(ErrorCode::ActionBadArgument),
    };
    let (links, argument) = (u32::from(r.u16()?) + 1, r.u32()?);
    r.skip(2)?;
    let (first, bits) = unpack_bits(r.u16()?);
    let to = read_target(&mut r.part(4)?, first, bits)?;
    if u128::from(links - 1) > to.ones() {
        return Err(ErrorCode::ActionBadArgument);
    }
    Ok(Action::Multipath(Box::new(Multipath { hash, basis, algorithm, links, argument, to })))
}

fn read_bundle(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let algorithm = match r.u16()? {
        0 => MemberChoice::ActiveBackup,
        1 => MemberChoice::Hrw,
        _ => return Err(ErrorCode::ActionBadArgument),
    };
    let (hash, basis) = (packet_hash(r.u16()?)?, r.u16()?);
    let (kind, count, place) = (r.u32()?, usize::from(r.u16()?), r.u16()?);
    // Members are ports: the header of NXM's port says so.
    if kind != 2 {
        return Err(ErrorCode::ActionBadArgument);
    }
    let mut head = r.part(4)?;
    r.zeros(4, NOT_ZERO)?;
    let (first, bits) = unpack_bits(place);
    let to = match subtype {
        13 => Some(read_target(&mut head, first, bits)?).filter(|to| to.bits() >= 16),
        _ => None,
    };
    if to.is_none() && subtype == 13 {
        return Err(ErrorCode::ActionBadArgument);
    }
    if r.len() < count * 2 {
        return Err(ErrorCode::ActionBadLen);
    }
    let members = (0..count).map(|_| Ok(PortNo(r.u16()?.into()))).collect::<Result<_, ErrorCode>>()?;
    r.zeros(r.len(), NOT_ZERO)?;
    Ok(Action::Bundle(Box::new(Bundle { hash, basis, algorithm, members, to })))
}

fn read_sample(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let probability = r.u16()?;
    let mut sample = Sample {
        probability,
        collector_set_id: r.u32()?,
        observation_domain_id: r.u32()?,
        observation_point_id: r.u32()?,
        ..Sample::default()
    };
    if probability == 0 {
        return Err(ErrorCode::ActionBadArgument);
    }
    if subtype != 29 {
        sample.port = super::port10(r.u16()?);
        sample.direction = match r.u8()? {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(ErrorCode::ActionBadArgument),
        };
        r.zeros(r.len(), NOT_ZERO)?;
    }
    Ok(Action::Sample(Box::new(sample)))
}

/// The class of a property of `encap` that NSH has.
pub(super) const NSH_CLASS: u16 = 4;

fn read_encapsulation(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let _header_bytes = r.u16()?;
    let header = match (r.u16()?, r.u16()?) {
        (0, 0) => EncapsulateHeader::Ethernet,
        (1, 0x8847) => EncapsulateHeader::Mpls,
        (1, 0x8848) => EncapsulateHeader::MplsMulticast,
        (1, 0x894f) => return read_nsh(r),
        _ => return Err(ErrorCode::NiciraActionBadHeaderType),
    };
    match r.is_empty() {
        true => Ok(Action::EncapsulateHeader(header)),
        false => Err(ErrorCode::NiciraActionUnknownEdProp),
    }
}

fn read_nsh(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (mut metadata_type, mut tlvs) = (0, Vec::new());
    while !r.is_empty() {
        let (class, kind, length) = (r.u16()?, r.u8()?, usize::from(r.u8()?));
        let wrong = ErrorCode::NiciraActionBadEdProp;
        let bytes = length.checked_sub(4).ok_or(wrong)?;
        let mut property = r.part(bytes)?;
        r.skip(length.next_multiple_of(8) - length)?;
        match (class, kind) {
            (NSH_CLASS, 1) => {
                metadata_type = property.u8()?;
                if !(1..=2).contains(&metadata_type) {
                    return Err(wrong);
                }
            }
            (NSH_CLASS, 2) => {
                let (class, kind, length) = (property.u16()?, property.u8()?, property.u8()?);
                tlvs.push((class, kind, property.take(length.into()).map_err(|_| wrong)?.to_vec()));
            }
            _ => return Err(ErrorCode::NiciraActionUnknownEdProp),
        }
    }
    Ok(Action::EncapsulateHeader(EncapsulateHeader::Nsh { metadata_type, tlvs }))
}
