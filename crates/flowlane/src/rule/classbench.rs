//! ClassBench filter files and header traces (Taylor and Turner, *ClassBench: A Packet Classification
//! Benchmark*, IEEE/ACM ToN 2007).
//!
//! ```text
//! @192.0.2.0/24 <tab> 198.51.100.7/32 <tab> 0 : 65535 <tab> 80 : 80 <tab> 0x06/0xFF <tab> 0x0200/0x1200
//!  source             destination            source ports    dest. ports    protocol        flags
//! ```
//!
//! A line is a filter and the first that matches wins: line n (from 0, comments and blank lines not
//! counted) becomes the rule at position n, with priority *number of lines − n*. All filters are for IPv4.
//!
//! The flags column holds, in its high byte, the TCP flags of TCP filters (0x0200 is SYN) or the ICMP type
//! of ICMP filters, whose code is the low byte. It is matched only on request ([`Flags::Match`]).
//!
//! A trace line is `source destination sport dport protocol [flags [filter]]`, decimal.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::error::{Fault, ReadErrors, Token, Words, read_lines};
use super::{Flags, Match, Priority, ReadOptions, Rule};
use crate::packet::Field;
use crate::packet::key::FlowKey;
use crate::packet::parse::{ether_type, ip_proto};

/// Reads filters; `file` is the text's name in errors.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<Rule>, ReadErrors> {
    let mut rules = read_lines(text, file, (options.rules_max, "rules"), |line| {
        let matches = filter(line, options.flags)?;
        Ok(Rule { table: options.table_default, ..Rule::new(matches, Vec::new()) })
    })?;
    let count = rules.len() as u32;
    for (i, rule) in rules.iter_mut().enumerate() {
        rule.priority = Priority(count - i as u32);
    }
    Ok(rules)
}

fn filter(line: Token<'_>, flags: Flags) -> Result<Match, Fault> {
    let mut words = Words::of(line);
    let mut out = Match::any();
    out.set(Field::EthType, ether_type::IPV4.into());
    let first = words.next("`@source/length`")?;
    if !first.text.starts_with('@') {
        return Err(first.fault("a filter begins with `@source/length`"));
    }
    prefix(first.part(1, first.text.len()), Field::Ipv4Src, &mut out)?;
    prefix(words.next("destination/length")?, Field::Ipv4Dst, &mut out)?;
    range(&mut words, Field::TpSrc, "source ports as `low : high`", &mut out)?;
    range(&mut words, Field::TpDst, "destination ports as `low : high`", &mut out)?;
    let (value, mask) = value_mask(words.next("protocol as `0xVALUE/0xMASK`")?, 0xff)?;
    out.set_masked(Field::NwProto, value.into(), mask.into());
    if !words.done() {
        let (bits, bits_mask) = value_mask(words.next("flags as `0xVALUE/0xMASK`")?, 0xffff)?;
        if flags == Flags::Match && mask == 0xff {
            set_flags(value as u8, bits, bits_mask, |field, v, m| _ = out.set_masked(field, v, m));
        }
    }
    match words.done() {
        true => Ok(out),
        false => Err(words.next("")?.fault("nothing is expected behind the flags")),
    }
}

/// Interprets the flags column for a protocol: calls `set` with field, value and mask.
fn set_flags(proto: u8, bits: u16, mask: u16, mut set: impl FnMut(Field, u128, u128)) {
    match proto {
        ip_proto::TCP => set(Field::TcpFlags, (bits >> 8).into(), (mask >> 8).into()),
        ip_proto::ICMP => {
            set(Field::IcmpType, (bits >> 8).into(), (mask >> 8).into());
            set(Field::IcmpCode, (bits & 0xff).into(), (mask & 0xff).into());
        }
        _ => {}
    }
}

fn prefix(token: Token<'_>, field: Field, out: &mut Match) -> Result<(), Fault> {
    let expected = "an IPv4 prefix as 192.0.2.0/24 is expected";
    let (address, length) = token.split("/").ok_or_else(|| token.fault(expected))?;
    let address: Ipv4Addr = address.text.parse().map_err(|_| address.fault(expected))?;
    let bits: u32 = length
        .text
        .parse()
        .ok()
        .filter(|&l| l <= 32)
        .ok_or_else(|| length.fault("a prefix length is 0 to 32"))?;
    let mask = if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
    out.set_masked(field, (u32::from(address) & mask).into(), mask.into());
    Ok(())
}

fn port<'a>(words: &mut Words<'a>, expected: &str) -> Result<(u16, Token<'a>), Fault> {
    let word = words.next(expected)?;
    let port = word.text.parse::<u16>();
    port.map(|p| (p, word)).map_err(|_| word.fault(format!("{expected}, 0 to 65535, is expected")))
}

fn range(words: &mut Words<'_>, field: Field, expected: &str, out: &mut Match) -> Result<(), Fault> {
    let (low, low_word) = port(words, expected)?;
    let colon = words.next(expected)?;
    if colon.text != ":" {
        return Err(colon.fault(format!("{expected} is expected: a colon between white space")));
    }
    let (high, high_word) = port(words, expected)?;
    if low > high {
        let whole = Token {
            text: &words.line.text[low_word.at..high_word.at + high_word.text.len()],
            at: low_word.at,
        };
        let problem =
            format!("port range {low} : {high} is empty; write the smaller port first ({high} : {low})");
        return Err(whole.fault(problem));
    }
    out.set_range(field, low, high);
    Ok(())
}

fn value_mask(token: Token<'_>, max: u16) -> Result<(u16, u16), Fault> {
    let expected = || token.fault(format!("0xVALUE/0xMASK, each at most {max:#x}, is expected"));
    let (value, mask) = token.split("/").ok_or_else(expected)?;
    let hex = |t: Token<'_>| {
        let digits = t.text.strip_prefix("0x").or_else(|| t.text.strip_prefix("0X"))?;
        u16::from_str_radix(digits, 16).ok().filter(|&n| n <= max && !digits.starts_with('+'))
    };
    let (value, mask) = (hex(value).ok_or_else(expected)?, hex(mask).ok_or_else(expected)?);
    Ok((value & mask, mask))
}

/// Why a rule is no ClassBench filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the rule at position {position} (`{rule}`) is no ClassBench filter: {reason}")]
pub struct NotAFilter {
    /// Position in the list.
    pub position: usize,
    /// The rule.
    pub rule: String,
    /// Why.
    pub reason: &'static str,
}

/// Writes rules as filters, in their order, without their actions. The order must be that of their
/// priorities, since the first line wins.
///
/// # Errors
/// The first rule that matches on more than an IPv4 5-tuple and flags, or whose priority is larger than one
/// before it.
pub fn print(rules: &[Rule]) -> Result<String, NotAFilter> {
    let mut out = String::new();
    let mut least = Priority(u32::MAX);
    for (position, rule) in rules.iter().enumerate() {
        let wrong = |reason| NotAFilter { position, rule: rule.to_string(), reason };
        if rule.priority > least {
            return Err(wrong("its priority is larger than one before it"));
        }
        least = rule.priority;
        print_filter(&rule.matches, &mut out).map_err(wrong)?;
    }
    Ok(out)
}

fn print_filter(matches: &Match, out: &mut String) -> Result<(), &'static str> {
    const FIELDS: [Field; 9] = [
        Field::EthType,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::TpSrc,
        Field::TpDst,
        Field::NwProto,
        Field::TcpFlags,
        Field::IcmpType,
        Field::IcmpCode,
    ];
    let mut rest = matches.mask();
    FIELDS.iter().for_each(|&f| rest.set(f, 0));
    if rest.words().iter().any(|&w| w != 0) {
        return Err("it matches on more than an IPv4 5-tuple and flags");
    }
    if matches.get(Field::EthType) != (ether_type::IPV4.into(), 0xffff) {
        return Err("it is not for IPv4 (dl_type=0x0800) only");
    }
    let prefix = |field| {
        let (value, mask) = matches.get(field);
        let (value, mask) = (value as u32, mask as u32);
        (mask.leading_ones() == mask.count_ones()).then(|| (Ipv4Addr::from(value), mask.leading_ones()))
    };
    let port = |field, range: Option<super::PortRange>| {
        let (value, mask) = matches.get(field);
        let (value, mask) = (value as u16, mask as u16);
        match range {
            Some(range) => Some((range.low(), range.high())),
            None => (mask.leading_ones() == mask.count_ones()).then_some((value, value | !mask)),
        }
    };
    let uneven = "a mask is no prefix";
    let (src, src_len) = prefix(Field::Ipv4Src).ok_or(uneven)?;
    let (dst, dst_len) = prefix(Field::Ipv4Dst).ok_or(uneven)?;
    let (sport, sport_end) = port(Field::TpSrc, matches.tp_src_range()).ok_or(uneven)?;
    let (dport, dport_end) = port(Field::TpDst, matches.tp_dst_range()).ok_or(uneven)?;
    let (proto, proto_mask) = matches.get(Field::NwProto);
    let byte = |field| matches.get(field);
    let (value, mask) = match (proto as u8, proto_mask) {
        (ip_proto::TCP, 0xff) => (byte(Field::TcpFlags).0 << 8, byte(Field::TcpFlags).1 << 8),
        (ip_proto::ICMP, 0xff) => (
            byte(Field::IcmpType).0 << 8 | byte(Field::IcmpCode).0,
            byte(Field::IcmpType).1 << 8 | byte(Field::IcmpCode).1,
        ),
        _ => (0, 0),
    };
    writeln!(
        out,
        "@{src}/{src_len}\t{dst}/{dst_len}\t{sport} : {sport_end}\t{dport} : {dport_end}\t\
         0x{proto:02x}/0x{proto_mask:02X}\t0x{value:04x}/0x{mask:04x}\t"
    )
    .expect("writing to a string");
    Ok(())
}

/// Reads a header trace; `file` is the text's name in errors.
///
/// # Errors
/// All lines that are wrong.
pub fn read_trace(text: &str, file: &str) -> Result<Vec<FlowKey>, ReadErrors> {
    read_lines(text, file, (usize::MAX, "headers"), header)
}

/// How many headers a trace has: what [`read_trace`] would give, without keeping it.
///
/// # Errors
/// All lines that are wrong.
pub fn check_trace(text: &str, file: &str) -> Result<usize, ReadErrors> {
    read_lines(text, file, (usize::MAX, "headers"), |line| header(line).map(drop)).map(|all| all.len())
}

fn header(line: Token<'_>) -> Result<FlowKey, Fault> {
    let mut words = Words::of(line);
    let mut number = |what: &str, max: u32| {
        let word = words.next(what)?;
        let value = word.text.parse::<u32>().ok().filter(|&n| n <= max);
        value.ok_or_else(|| word.fault(format!("{what}, a decimal number up to {max}, is expected")))
    };
    let mut key = FlowKey::zero();
    key.set(Field::EthType, ether_type::IPV4.into());
    key.set(Field::Ipv4Src, number("source address", u32::MAX)?.into());
    key.set(Field::Ipv4Dst, number("destination address", u32::MAX)?.into());
    key.set(Field::TpSrc, number("source port", 0xffff)?.into());
    key.set(Field::TpDst, number("destination port", 0xffff)?.into());
    let proto = number("protocol", 0xff)?;
    key.set(Field::NwProto, proto.into());
    if !words.done() {
        let word = words.next("flags")?;
        // The published traces have 32 bits here, of which the low 16 are the flags.
        let flags = word.text.parse::<u32>();
        let flags = flags.map_err(|_| word.fault("flags, a decimal number of 32 bits, are expected"))?;
        set_flags(proto as u8, flags as u16, u16::MAX, |field, v, m| key.set_masked(field, v, m));
    }
    if !words.done() {
        let word = words.next("filter")?;
        word.text.parse::<i64>().map_err(|_| word.fault("the number of a filter is expected"))?;
    }
    match words.done() {
        true => Ok(key),
        false => Err(words.next("")?.fault("nothing is expected behind the filter's number")),
    }
}

/// Writes one header; `filter` is the position of the rule that it was made for, −1 for none.
pub fn print_header(key: &FlowKey, filter: i64, out: &mut String) {
    let field = |f| key.get(f);
    let proto = field(Field::NwProto) as u8;
    let flags = match proto {
        ip_proto::TCP => (field(Field::TcpFlags) & 0xff) << 8,
        ip_proto::ICMP => field(Field::IcmpType) << 8 | field(Field::IcmpCode),
        _ => 0,
    };
    writeln!(
        out,
        "{}\t{}\t{}\t{}\t{proto}\t{flags}\t{filter}",
        field(Field::Ipv4Src),
        field(Field::Ipv4Dst),
        field(Field::TpSrc),
        field(Field::TpDst),
    )
    .expect("writing to a string");
}

#[cfg(test)]
mod tests;
