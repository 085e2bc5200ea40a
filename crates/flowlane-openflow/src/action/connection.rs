//! The actions on connections: `ct` and `nat`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::Action;
use flowlane::rule::action::{ConnectionTracking, Nat, NatRange, Zone};

use super::header::{first_bit, pack_bits, read_part, unpack_bits};
use super::write::{Writing, nicira};
use super::{Reading, read_list};
use crate::error::ErrorCode;
use crate::oxm;
use crate::wire::{Failed, Reader, Writer};

const COMMIT: u16 = 1;
const FORCE: u16 = 1 << 1;

/// Bits of `nat`'s flags.
mod nat {
    pub(super) const SOURCE: u16 = 1;
    pub(super) const DESTINATION: u16 = 1 << 1;
    pub(super) const PERSISTENT: u16 = 1 << 2;
    pub(super) const HASH: u16 = 1 << 3;
    pub(super) const RANDOM: u16 = 1 << 4;
}

/// Bits of the parts of `nat`'s range that are there.
mod present {
    pub(super) const IPV4_MIN: u16 = 1;
    pub(super) const IPV4_MAX: u16 = 1 << 1;
    pub(super) const IPV6_MIN: u16 = 1 << 2;
    pub(super) const IPV6_MAX: u16 = 1 << 3;
    pub(super) const PORT_MIN: u16 = 1 << 4;
    pub(super) const PORT_MAX: u16 = 1 << 5;
}

/// Reads `ct` (35).
pub(super) fn read(reading: Reading<'_>, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let flags = r.u16()?;
    let mut head = r.part(4)?;
    let (number, table) = (r.u16()?, r.u8()?);
    r.zeros(3, ErrorCode::NiciraActionMustBeZero)?;
    let alg = r.u16()?;
    let zone = if head.rest() == [0; 4] {
        Zone::Number(number)
    } else {
        let (first, bits) = unpack_bits(number);
        if bits != 16 {
            return Err(ErrorCode::ActionBadSetLen);
        }
        Zone::Field(read_part(&mut head, first, bits)?)
    };
    let exec = read_list(reading.exec()?, r.take_rest())?;
    let (commit, force) = (flags & COMMIT != 0, flags & FORCE != 0);
    // Without a commit, packets can only be translated as their connection has it.
    let is_kept = |action: &Action| !matches!(action, Action::Nat(nat) if nat.range.is_none());
    if !commit && exec.iter().any(is_kept) {
        return Err(ErrorCode::ActionBadArgument);
    }
    if force && !commit {
        return Err(ErrorCode::ActionBadArgument);
    }
    let table = (table != 0xff).then_some(table);
    Ok(Action::ConnectionTracking(Box::new(ConnectionTracking { commit, force, zone, table, alg, exec })))
}

/// Writes `ct`.
pub(super) fn put(w: &mut Writer, writing: &Writing<'_>, ct: &ConnectionTracking) -> Result<(), Failed> {
    let mut done = Ok(());
    nicira(w, 35, |w| {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        w.u16(flag(ct.commit, COMMIT) | flag(ct.force, FORCE));
        match ct.zone {
            Zone::Number(number) => _ = w.u32(0).u16(number),
            Zone::Field(part) => match oxm::row_of(part, crate::Version::OpenFlow10, 6) {
                Some(row) if row.class != 0xffff => {
                    oxm::put_header(w, writing.codec, row);
                    w.u16(pack_bits(part, row).unwrap_or(first_bit(part, row)));
                }
                _ => done = Err(Failed),
            },
        }
        w.u8(ct.table.unwrap_or(0xff)).zeros(3).u16(ct.alg);
        done = done.and(super::write::put_list(w, writing, &ct.exec));
    });
    done
}

/// Reads `nat` (36).
pub(super) fn read_nat(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    r.skip(2)?;
    let (flags, has) = (r.u16()?, r.u16()?);
    let (is_source, is_destination) = (flags & nat::SOURCE != 0, flags & nat::DESTINATION != 0);
    let is_given = |bit: u16| has & bit != 0;
    let wrong = ErrorCode::ActionBadArgument;
    if is_source && is_destination || !is_source && !is_destination && (has != 0 || flags != 0) {
        return Err(wrong);
    }
    if has & !0x3f != 0 || is_given(present::IPV4_MIN) && is_given(present::IPV6_MIN) {
        return Err(wrong);
    }
    for (min, max) in [
        (present::IPV4_MIN, present::IPV4_MAX),
        (present::IPV6_MIN, present::IPV6_MAX),
        (present::PORT_MIN, present::PORT_MAX),
    ] {
        if is_given(max) && !is_given(min) {
            return Err(wrong);
        }
    }
    let mut v4 = |bit| is_given(bit).then(|| r.u32().map(|n| IpAddr::V4(Ipv4Addr::from_bits(n)))).transpose();
    let (min4, max4) = (v4(present::IPV4_MIN)?, v4(present::IPV4_MAX)?);
    let mut v6 = |bit| is_given(bit).then(|| r.array().map(|n| IpAddr::V6(Ipv6Addr::from(n)))).transpose();
    let (min6, max6) = (v6(present::IPV6_MIN)?, v6(present::IPV6_MAX)?);
    let mut port = |bit| is_given(bit).then(|| r.u16()).transpose();
    let (first_port, last_port) = (port(present::PORT_MIN)?, port(present::PORT_MAX)?);
    let addresses = min4.or(min6).map(|first| (first, max4.or(max6).unwrap_or(first)));
    let ports = first_port.map(|first| (first, last_port.unwrap_or(first)));
    // Both ends are of one version of IP.
    if addresses.is_some_and(|(first, last)| first > last) || ports.is_some_and(|(first, last)| first > last)
    {
        return Err(wrong);
    }
    let range = (is_source || is_destination).then_some(NatRange { is_source, addresses, ports });
    Ok(Action::Nat(Box::new(Nat {
        range,
        persistent: flags & nat::PERSISTENT != 0,
        hash: flags & nat::HASH != 0,
        random: flags & nat::RANDOM != 0,
    })))
}

/// Writes `nat`.
pub(super) fn put_nat(w: &mut Writer, action: &Nat) {
    nicira(w, 36, |w| {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let mut flags = flag(action.persistent, nat::PERSISTENT)
            | flag(action.hash, nat::HASH)
            | flag(action.random, nat::RANDOM);
        let mut values = Writer::default();
        let mut has = 0;
        if let Some(range) = action.range {
            flags |= if range.is_source { nat::SOURCE } else { nat::DESTINATION };
            if let Some((first, last)) = range.addresses {
                let (min, max) = match first {
                    IpAddr::V4(_) => (present::IPV4_MIN, present::IPV4_MAX),
                    IpAddr::V6(_) => (present::IPV6_MIN, present::IPV6_MAX),
                };
                has |= min;
                put_address(&mut values, first);
                if first != last {
                    has |= max;
                    put_address(&mut values, last);
                }
            }
            if let Some((first, last)) = range.ports {
                has |= present::PORT_MIN;
                values.u16(first);
                if first != last {
                    has |= present::PORT_MAX;
                    values.u16(last);
                }
            }
        }
        w.zeros(2).u16(flags).u16(has).put(&values.bytes);
    });
}

fn put_address(w: &mut Writer, address: IpAddr) {
    match address {
        IpAddr::V4(address) => w.put(&address.octets()),
        IpAddr::V6(address) => w.put(&address.octets()),
    };
}
