//! Actions that choose by a hash of the packet.

use std::str::FromStr;

use super::super::super::ReadOptions;
use super::super::super::action::{
    Action, Bundle, MemberChoice, Multipath, MultipathAlgorithm, PacketHash, PortNo,
};
use super::super::super::error::{Fault, Token};
use super::super::known::Known;
use super::super::names::written_part;
use super::super::{split, values};
use super::outputs::port;

fn named<T: FromStr>(token: Token<'_>, all: &str) -> Result<T, Fault> {
    token.text.parse().map_err(|_| token.fault(format!("one of {all} is expected")))
}

fn hash(token: Token<'_>) -> Result<PacketHash, Fault> {
    let all = "eth_src, symmetric_l4, symmetric_l3l4, symmetric_l3l4+udp, nw_src, nw_dst, symmetric_l3";
    named(token, all)
}

fn number(token: Token<'_>, max: u32) -> Result<u32, Fault> {
    values::number(token, max.into()).map(|number| number as u32)
}

/// `FIELDS,BASIS,ALGORITHM,LINKS,ARGUMENT,FIELD[FIRST..LAST]`.
pub(super) fn multipath(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let parts = split(argument)?;
    let [covered, basis, algorithm, links, parameter, to] = parts[..] else {
        let problem = "`multipath(FIELDS,BASIS,ALGORITHM,LINKS,ARGUMENT,FIELD[FIRST..LAST])` is expected";
        return Err(argument.fault(problem));
    };
    let algorithm: MultipathAlgorithm = named(algorithm, "modulo_n, hash_threshold, hrw, iter_hash")?;
    let count = number(links, 65536)?;
    if count == 0 {
        return Err(links.fault("the number of links is 1 to 65536"));
    }
    let field = written_part(to, known)?;
    if field.bits() < 32 && count > 1 << field.bits() {
        return Err(to.fault(format!("{} bits do not hold the numbers of {count} links", field.bits())));
    }
    Ok(Action::Multipath(Box::new(Multipath {
        hash: hash(covered)?,
        basis: number(basis, 0xffff)? as u16,
        algorithm,
        links: count,
        argument: number(parameter, u32::MAX)?,
        to: field,
    })))
}

/// `FIELDS,BASIS,ALGORITHM,ofport,members:PORT,…`; for `bundle_load`, a field in front of the members.
pub(super) fn bundle(
    argument: Token<'_>,
    loads: bool,
    options: &ReadOptions<'_>,
    known: &Known,
) -> Result<Action, Fault> {
    let problem = match loads {
        true => "`bundle_load(FIELDS,BASIS,ALGORITHM,ofport,FIELD[FIRST..LAST],members:PORTS)` is expected",
        false => "`bundle(FIELDS,BASIS,ALGORITHM,ofport,members:PORTS)` is expected",
    };
    let expected = || argument.fault(problem);
    let (front, members) =
        argument.split("members:").or_else(|| argument.split("slaves:")).ok_or_else(expected)?;
    let parts = split(front)?;
    let ([covered, basis, algorithm, kind], to) = (match &parts[..] {
        [front @ .., to] if loads => (front, Some(*to)),
        front => (front, None),
    }) else {
        return Err(expected());
    };
    let algorithm = match algorithm.text {
        "active_backup" => MemberChoice::ActiveBackup,
        "hrw" => MemberChoice::Hrw,
        _ => return Err(algorithm.fault("active_backup or hrw is expected")),
    };
    if kind.text != "ofport" {
        return Err(kind.fault("`ofport` is expected: members are ports"));
    }
    let members = members.trim();
    let inside = members.text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let members = if inside.is_some() { members.part(1, members.text.len() - 1) } else { members };
    let members = split(members)?
        .into_iter()
        .map(|member| match values::port(member, options)? {
            0xffff => Ok(PortNo(0xffff)),
            _ => port(member, options),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let to = to.map(|to| sixteen_bits(to, known)).transpose()?;
    let (hash, basis) = (hash(*covered)?, number(*basis, 0xffff)? as u16);
    Ok(Action::Bundle(Box::new(Bundle { hash, basis, algorithm, members, to })))
}

/// A part of a field that holds the number of a port.
fn sixteen_bits(to: Token<'_>, known: &Known) -> Result<crate::packet::FieldRef, Fault> {
    let field = written_part(to, known)?;
    match field.bits() {
        16.. => Ok(field),
        bits => Err(to.fault(format!("{bits} bits do not hold the number of a port: 16 are needed"))),
    }
}
