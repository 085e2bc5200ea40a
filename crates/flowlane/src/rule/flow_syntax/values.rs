//! Values of fields, as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::ReadOptions;
use super::super::action::PortNo;
use super::super::error::{Fault, Token};
use crate::packet::fields::{FRAG_ANY, FRAG_LATER, Field, FieldInfo, Form};

/// TCP flag names from bit 0 on (RFC 9293, 3168, 3540).
pub(super) const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Names of `ip_frag` with value and mask.
pub(super) const FRAGMENTS: [(&str, u8, u8); 5] = [
    ("no", 0, FRAG_ANY | FRAG_LATER),
    ("yes", FRAG_ANY, FRAG_ANY),
    ("first", FRAG_ANY, FRAG_ANY | FRAG_LATER),
    ("later", FRAG_ANY | FRAG_LATER, FRAG_ANY | FRAG_LATER),
    ("not_later", 0, FRAG_LATER),
];

/// Names of port numbers in OpenFlow 1.0. No packet arrives from one of them.
const RESERVED_PORTS: [(&str, u32); 9] = [
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
        Form::TcpFlags if token.text.starts_with(['+', '-']) => tcp_flags(token),
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
        Form::TcpFlags if token.text.starts_with(|c: char| c.is_ascii_alphabetic()) => all_tcp_flags(token),
        Form::Frag | Form::Decimal | Form::Hex | Form::TcpFlags => number(token, info.ones()),
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
    number(token, u32::MAX.into()).map(|n| n as u32).map_err(|_| {
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
        let byte = u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2 && !part.starts_with('+'));
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

/// The bit of a flag; one without a name is written as Open vSwitch prints it, `[200]` to `[800]`.
fn tcp_flag(name: Token<'_>) -> Result<usize, Fault> {
    let unnamed = ["[200]", "[400]", "[800]"];
    let bit = TCP_FLAGS.iter().chain(&unnamed).position(|flag| *flag == name.text);
    bit.ok_or_else(|| name.fault(format!("one of {} is expected", TCP_FLAGS.join(", "))))
}

/// `syn|ack`: these flags and no others.
fn all_tcp_flags(token: Token<'_>) -> Result<u128, Fault> {
    let mut value = 0;
    let mut at = 0;
    for text in token.text.split('|') {
        let name = token.part(at, at + text.len());
        value |= 1 << tcp_flag(name)?;
        at += text.len() + 1;
    }
    Ok(value)
}

/// `+syn-ack`: each flag set (+) or clear (-).
fn tcp_flags(token: Token<'_>) -> Result<(u128, u128), Fault> {
    let (mut value, mut mask) = (0u128, 0u128);
    let mut rest = token;
    while !rest.text.is_empty() {
        let len = rest.text[1..].find(['+', '-']).map_or(rest.text.len(), |at| at + 1);
        let name = rest.part(1, len);
        let bit = tcp_flag(name)?;
        if mask & 1 << bit != 0 {
            return Err(name.fault("this flag is there twice"));
        }
        mask |= 1 << bit;
        value |= u128::from(rest.text.starts_with('+')) << bit;
        rest = rest.part(len, rest.text.len());
    }
    Ok((value & mask, mask))
}
