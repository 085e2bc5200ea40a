//! Values of fields, as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::ReadOptions;
use super::super::action::PortNo;
use super::super::error::{Fault, Token};
use crate::packet::fields::{FRAG_ANY, FRAG_LATER, Field, FieldInfo, Form};

/// TCP flag names from bit 0 on (RFC 9293, 3168, 3540).
pub(super) const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Names of the bits of `ct_state`, from bit 0 on.
pub(super) const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Names of the bits of `tun_flags`, from bit 0 on: [`TUN_OAM`](crate::packet::fields::TUN_OAM) is the only one.
pub(super) const TUN_FLAGS: [&str; 8] = ["", "", "", "", "", "", "", "oam"];

/// Names of `ip_frag` with value and mask.
pub(super) const FRAGMENTS: [(&str, u8, u8); 5] = [
    ("no", 0, FRAG_ANY | FRAG_LATER),
    ("yes", FRAG_ANY, FRAG_ANY),
    ("first", FRAG_ANY, FRAG_ANY | FRAG_LATER),
    ("later", FRAG_ANY | FRAG_LATER, FRAG_ANY | FRAG_LATER),
    ("not_later", 0, FRAG_LATER),
];

/// Names of port numbers in OpenFlow 1.0. No packet arrives from one of them.
const RESERVED_PORTS: [(&str, u32); 10] = [
    ("UNSET", 0xfff7),
    ("IN_PORT", 0xfff8),
    ("TABLE", 0xfff9),
    ("NORMAL", 0xfffa),
    ("FLOOD", 0xfffb),
    ("ALL", 0xfffc),
    ("CONTROLLER", 0xfffd),
    ("LOCAL", PortNo::LOCAL.0),
    ("ANY", 0xffff),
    ("NONE", 0xffff),
];

/// A decimal or, with `0x`, hexadecimal number of at most `max`.
pub(super) fn number(token: Token<'_>, max: u128) -> Result<u128, Fault> {
    let parsed = match token.text.strip_prefix("0x").or_else(|| token.text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u128::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if token.text.starts_with('+') => None,
        None => token.text.parse().ok(),
    };
    let expected = || token.fault(format!("a number from 0 to {max} (0x for hexadecimal) is expected"));
    parsed.filter(|n| *n <= max).ok_or_else(expected)
}

/// A field's row, as one of its names has it: `nw_tos` is an octet, `ip_dscp` the number in it.
pub(super) fn info_as(field: Field, name: &str) -> FieldInfo {
    let info = field.info();
    let form = match info.form {
        Form::Tos if name != info.name && name != "NXM_OF_IP_TOS" => Form::Decimal,
        form => form,
    };
    FieldInfo { form, ..*info }
}

/// The value and mask of a field; the mask is all ones where none is written.
pub(super) fn value_mask(
    info: &FieldInfo,
    token: Token<'_>,
    options: &ReadOptions<'_>,
) -> Result<(u128, u128), Fault> {
    match info.form {
        Form::Frag => fragment(token),
        Form::TcpFlags | Form::CtState | Form::TunFlags if token.text.starts_with(['+', '-']) => {
            flags(info.form, token)
        }
        _ => {
            let (value, mask) = match token.split("/") {
                Some((value, mask)) => (value, Some(mask)),
                None => (token, None),
            };
            let value = one(info, value, options)?;
            let ones = info.ones();
            let Some(mask) = mask else { return Ok((value, ones)) };
            match mask_of(info, mask, options)? {
                some if some != ones && !info.maskable => {
                    Err(mask.fault(format!("{} takes no mask, here as in Open vSwitch", info.name)))
                }
                mask => Ok((value & mask, mask)),
            }
        }
    }
}

/// One value of a field, without mask.
pub(super) fn one(info: &FieldInfo, token: Token<'_>, options: &ReadOptions<'_>) -> Result<u128, Fault> {
    match info.form {
        Form::Mac => mac(token),
        Form::Ipv4 => {
            let address: Result<Ipv4Addr, _> = token.text.parse();
            address
                .map(|a| u32::from(a).into())
                .map_err(|_| token.fault("an IPv4 address as 192.0.2.1 is expected"))
        }
        Form::Ipv6 => {
            let address: Result<Ipv6Addr, _> = token.text.parse();
            address.map(u128::from).map_err(|_| token.fault("an IPv6 address as 2001:db8::1 is expected"))
        }
        Form::Port => port(token, options).map(u128::from),
        // The ECN bits do not count.
        Form::Tos => number(token, 0xff).map(|octet| octet >> 2),
        Form::TcpFlags | Form::CtState | Form::TunFlags
            if token.text.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            all_flags(info.form, token)
        }
        Form::PacketType => packet_type(token),
        Form::Frag | Form::Decimal | Form::Hex | Form::TcpFlags | Form::CtState | Form::TunFlags => {
            number(token, info.ones())
        }
    }
}

fn mask_of(info: &FieldInfo, token: Token<'_>, options: &ReadOptions<'_>) -> Result<u128, Fault> {
    let addresses = matches!(info.form, Form::Ipv4 | Form::Ipv6);
    if addresses && !token.text.contains(['.', ':']) {
        let length = number(token, info.width.into())? as u32;
        let zeros = u32::from(info.width) - length;
        return Ok(if zeros == 128 { 0 } else { info.ones() >> zeros << zeros });
    }
    match info.form {
        Form::Port => number(token, info.ones()),
        _ => one(info, token, options),
    }
}

/// OpenFlow's name for the number of a port.
pub(super) fn reserved_port(number: u128) -> Option<&'static str> {
    RESERVED_PORTS.iter().find(|(_, reserved)| u128::from(*reserved) == number).map(|(name, _)| *name)
}

fn reserved_number(name: &str) -> Option<u32> {
    RESERVED_PORTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}

/// Returns whether OpenFlow has this name for a port number.
pub(super) fn is_reserved_port(name: &str) -> bool {
    reserved_number(name).is_some()
}

/// The number of a port that is named or numbered.
pub(super) fn port(token: Token<'_>, options: &ReadOptions<'_>) -> Result<u32, Fault> {
    let name = token.text.trim_matches('"');
    if let Some(port) = (options.ports)(name) {
        return Ok(port.0);
    }
    if let Some(number) = reserved_number(name) {
        return Ok(number);
    }
    // OpenFlow 1.1 and later number reserved ports from 0xffffff00 on.
    let narrow = |n: u128| if n >= 0xffff_ff00 { n as u32 & 0xffff } else { n as u32 };
    number(token, u32::MAX.into()).map(narrow).map_err(|_| {
        let dump = match token.text.starts_with(|c: char| c.is_alphabetic() || c == '"') {
            true => "; `ovs-ofctl --no-names dump-flows` prints numbers",
            false => "",
        };
        token.fault(format!("the number of a port, or the name of one that exists, is expected{dump}"))
    })
}

fn mac(token: Token<'_>) -> Result<u128, Fault> {
    let mut value = 0;
    let mut bytes = 0;
    for part in token.text.split(':') {
        let byte = u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2 && !part.starts_with('+'));
        match byte {
            Some(byte) if bytes < 6 => value = value << 8 | u128::from(byte),
            _ => bytes = 6,
        }
        bytes += 1;
    }
    match bytes {
        6 => Ok(value),
        _ => Err(token.fault("an Ethernet address as 02:00:00:00:00:01 is expected")),
    }
}

fn fragment(token: Token<'_>) -> Result<(u128, u128), Fault> {
    if let Some((_, value, mask)) = FRAGMENTS.iter().find(|(name, ..)| *name == token.text) {
        return Ok(((*value).into(), (*mask).into()));
    }
    Err(token.fault("one of no, yes, first, later, not_later is expected"))
}

/// `(1,0x800)`: name space and type.
fn packet_type(token: Token<'_>) -> Result<u128, Fault> {
    let expected = || token.fault("a name space and a type are expected, as in `(1,0x800)`");
    let inside = token.text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.map(|inside| token.part(1, 1 + inside.len())).ok_or_else(expected)?;
    let (space, kind) = inside.split(",").ok_or_else(expected)?;
    Ok(number(space.trim(), 0xffff)? << 16 | number(kind.trim(), 0xffff)?)
}

/// The names of the flags of a field, from bit 0 on.
pub(super) fn flag_names(form: Form) -> &'static [&'static str] {
    match form {
        Form::CtState => &CT_STATES,
        Form::TunFlags => &TUN_FLAGS,
        _ => &TCP_FLAGS,
    }
}

/// The bit of a flag; one of TCP without a name is written as Open vSwitch prints it, `[200]` to `[800]`.
fn flag(form: Form, name: Token<'_>) -> Result<usize, Fault> {
    let names = flag_names(form);
    let unnamed: &[&str] = if form == Form::TcpFlags { &["[200]", "[400]", "[800]"] } else { &[] };
    let bit = names.iter().chain(unnamed).position(|flag| *flag == name.text && !flag.is_empty());
    let all = || names.iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>().join(", ");
    bit.ok_or_else(|| name.fault(format!("one of {} is expected", all())))
}

/// `syn|ack`: these flags and no others.
fn all_flags(form: Form, token: Token<'_>) -> Result<u128, Fault> {
    let mut value = 0;
    let mut at = 0;
    for text in token.text.split('|') {
        let name = token.part(at, at + text.len());
        value |= 1 << flag(form, name)?;
        at += text.len() + 1;
    }
    Ok(value)
}

/// `+syn-ack`: each flag set (+) or clear (-).
fn flags(form: Form, token: Token<'_>) -> Result<(u128, u128), Fault> {
    let (mut value, mut mask) = (0u128, 0u128);
    let mut rest = token;
    while !rest.text.is_empty() {
        let len = rest.text[1..].find(['+', '-']).map_or(rest.text.len(), |at| at + 1);
        let name = rest.part(1, len);
        let bit = flag(form, name)?;
        if mask & 1 << bit != 0 {
            return Err(name.fault("this flag is there twice"));
        }
        mask |= 1 << bit;
        value |= u128::from(rest.text.starts_with('+')) << bit;
        rest = rest.part(len, rest.text.len());
    }
    Ok((value & mask, mask))
}
