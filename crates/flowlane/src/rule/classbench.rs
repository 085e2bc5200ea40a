//! ClassBench filter files and header traces (Taylor and Turner, *ClassBench: A Packet Classification
//! Benchmark*, IEEE/ACM ToN 2007).
//!
//! ```text
//! @192.0.2.0/24 <tab> 198.51.100.7/32 <tab> 0 : 65535 <tab> 80 : 80 <tab> 0x06/0xFF <tab> 0x0200/0x1200
//!  source             destination            source ports    dest. ports    protocol        flags
//! ```
//!
//! A line is a filter and the first that matches wins: line n (from 0, comments and blank lines not
//! counted) becomes the rule at position n, with priority *number of lines − n*. A filter is for IPv4, or for
//! IPv6 where its addresses are of that (as ClassBench-ng generates).
//!
//! Where the format is named and not detected, lines may also be those of ClassBench-ng for OpenFlow, without actions:
//! `dl_type=0x0800, nw_src=10.0.0.0/8, nw_proto=6, tp_dst=1024..65535`.
//!
//! Other programs write ports without white space (`0:65535`), and the protocol in decimal (`6/255`, or `6`
//! for exactly this one). Columns behind the flags (a priority, an action) are read over.
//!
//! The flags column holds, in its high byte, the TCP flags of TCP filters (0x0200 is SYN) or the ICMP type
//! of ICMP filters, whose code is the low byte. It is matched only on request ([`Flags::Match`]).
//!
//! A trace line is `source destination sport dport protocol [flags [filter]]`, decimal; addresses may be written
//! as `192.0.2.1`, and those of IPv6 are written as `2001:db8::1`.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{Fault, ReadErrors, Token, Words, read_lines};
use super::{Flags, Match, Priority, ReadOptions, Rule, flow_syntax};
use crate::packet::Field;
use crate::packet::key::FlowKey;
use crate::packet::parse::{ether_type, ip_proto};

/// Reads filters; `file` is the text's name in errors.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<Rule>, ReadErrors> {
    let mut rules = read_lines(text, file, (options.rules_max, "rules"), |line| {
        let is_filter = line.text.trim_start().starts_with('@') || !line.text.contains('=');
        let matches = match is_filter {
            true => filter(line, options.flags)?,
            false => flow_syntax::read_tuple(line, options)?,
        };
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
    let first = words.next("`@source/length`")?;
    if !first.text.starts_with('@') {
        return Err(first.fault("a filter begins with `@source/length`"));
    }
    let (src, src_len) = prefix(first.part(1, first.text.len()))?;
    let word = words.next("destination/length")?;
    let (dst, dst_len) = prefix(word)?;
    let is_v6 = src.is_ipv6();
    if is_v6 != dst.is_ipv6() {
        return Err(
            word.fault("source and destination are of different families; write both as IPv4 or as IPv6")
        );
    }
    out.set(Field::EthType, eth_type(is_v6).into());
    let [src_field, dst_field] = addresses(is_v6);
    set_prefix(src_field, src, src_len, &mut out);
    set_prefix(dst_field, dst, dst_len, &mut out);
    range(&mut words, Field::TpSrc, "source ports as `low : high`", &mut out)?;
    range(&mut words, Field::TpDst, "destination ports as `low : high`", &mut out)?;
    let (value, mask) = protocol(words.next("protocol as `0xVALUE/0xMASK`")?)?;
    out.set_masked(Field::NwProto, value.into(), mask.into());
    let mut is_first = true;
    while !words.done() {
        let word = words.next("")?;
        if word.text.starts_with('@') {
            return Err(word.fault("a second filter in one line; begin a line with each"));
        }
        if is_first && word.text.contains('/') {
            let (bits, bits_mask) = value_mask(word, 0xffff)?;
            if flags == Flags::Match && mask == 0xff {
                let proto = (value as u8, is_v6);
                set_flags(proto, bits, bits_mask, |field, v, m| _ = out.set_masked(field, v, m));
            }
        }
        is_first = false;
    }
    Ok(out)
}

/// Interprets the flags column for a protocol of IPv4 or IPv6: calls `set` with field, value and mask.
fn set_flags((proto, is_v6): (u8, bool), bits: u16, mask: u16, mut set: impl FnMut(Field, u128, u128)) {
    match proto {
        ip_proto::TCP => set(Field::TcpFlags, (bits >> 8).into(), (mask >> 8).into()),
        icmp if icmp == icmp_of(is_v6) => {
            set(Field::IcmpType, (bits >> 8).into(), (mask >> 8).into());
            set(Field::IcmpCode, (bits & 0xff).into(), (mask & 0xff).into());
        }
        _ => {}
    }
}

fn icmp_of(is_v6: bool) -> u8 {
    if is_v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP }
}

fn eth_type(is_v6: bool) -> u16 {
    if is_v6 { ether_type::IPV6 } else { ether_type::IPV4 }
}

/// Source and destination.
fn addresses(is_v6: bool) -> [Field; 2] {
    if is_v6 { [Field::Ipv6Src, Field::Ipv6Dst] } else { [Field::Ipv4Src, Field::Ipv4Dst] }
}

/// Returns an address as a field's value.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn prefix(token: Token<'_>) -> Result<(IpAddr, u8), Fault> {
    let expected = "a prefix as 192.0.2.0/24 or 2001:db8::/32 is expected";
    let (address, length) = token.split("/").ok_or_else(|| token.fault(expected))?;
    let address: IpAddr = address.text.parse().map_err(|_| address.fault(expected))?;
    let longest = if address.is_ipv6() { 128 } else { 32 };
    let length = length
        .text
        .parse()
        .ok()
        .filter(|&l| l <= longest)
        .ok_or_else(|| length.fault(format!("a prefix length is 0 to {longest}")))?;
    Ok((address, length))
}

fn set_prefix(field: Field, address: IpAddr, len: u8, out: &mut Match) {
    let width: u8 = if address.is_ipv6() { 128 } else { 32 };
    let all = u128::MAX >> (128 - width);
    let mask = all & !all.checked_shr(len.into()).unwrap_or(0);
    out.set_masked(field, bits(address) & mask, mask);
}

/// Reads a range of ports, with or without white space around the colon.
fn range(words: &mut Words<'_>, field: Field, expected: &str, out: &mut Match) -> Result<(), Fault> {
    let first = words.next(expected)?;
    let (low_word, mut high_word) = match first.split(":") {
        Some(both) => both,
        None => {
            let colon = words.next(expected)?;
            let high = colon.text.strip_prefix(':').map(|high| colon.part(1, 1 + high.len()));
            (
                first,
                high.ok_or_else(|| {
                    colon.fault(format!("{expected} is expected: a colon and the last port"))
                })?,
            )
        }
    };
    if high_word.text.is_empty() {
        high_word = words.next(expected)?;
    }
    let port = |word: Token<'_>| {
        let port =
            word.text.parse::<u16>().ok().filter(|_| word.text.starts_with(|c: char| c.is_ascii_digit()));
        port.ok_or_else(|| word.fault(format!("{expected}, 0 to 65535, is expected")))
    };
    let (low, high) = (port(low_word)?, port(high_word)?);
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

/// Reads a protocol: value and mask, or a value alone, of which every bit counts.
fn protocol(token: Token<'_>) -> Result<(u16, u16), Fault> {
    if token.text.contains('/') {
        return value_mask(token, 0xff);
    }
    match number(token, 0xff) {
        Some(0) => Err(token.fault("0 alone may mean any protocol or number 0; write 0x00/0x00 for any")),
        Some(value) => Ok((value, 0xff)),
        None => Err(token.fault("a protocol is expected: 0xVALUE/0xMASK, or its number up to 255")),
    }
}

/// Reads a number of up to `max`, in decimal or behind `0x`.
fn number(token: Token<'_>, max: u16) -> Option<u16> {
    let (digits, radix) = match token.text.strip_prefix("0x").or_else(|| token.text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (token.text, 10),
    };
    u16::from_str_radix(digits, radix).ok().filter(|&n| n <= max && !digits.starts_with('+'))
}

fn value_mask(token: Token<'_>, max: u16) -> Result<(u16, u16), Fault> {
    let expected = || token.fault(format!("0xVALUE/0xMASK, each at most {max:#x}, is expected"));
    let (value, mask) = token.split("/").ok_or_else(expected)?;
    let (value, mask) = (number(value, max).ok_or_else(expected)?, number(mask, max).ok_or_else(expected)?);
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
/// The first rule that matches on more than a 5-tuple of IPv4 or IPv6 and flags, or whose priority is larger than one
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
    let (eth, eth_mask) = matches.get(Field::EthType);
    let is_v6 = eth == ether_type::IPV6.into();
    let [src_field, dst_field] = addresses(is_v6);
    let fields = [
        Field::EthType,
        src_field,
        dst_field,
        Field::TpSrc,
        Field::TpDst,
        Field::NwProto,
        Field::TcpFlags,
        Field::IcmpType,
        Field::IcmpCode,
    ];
    let mut rest = matches.mask();
    fields.iter().for_each(|&f| rest.set(f, 0));
    if rest.words().iter().any(|&w| w != 0) {
        return Err("it matches on more than a 5-tuple of IPv4 or IPv6 and flags");
    }
    if (eth, eth_mask) != (eth_type(is_v6).into(), 0xffff) {
        return Err("it is not for IPv4 (dl_type=0x0800) or IPv6 (dl_type=0x86dd) only");
    }
    let prefix = |field| {
        let (value, mask) = matches.get(field);
        let (address, len, ones): (IpAddr, _, _) = match is_v6 {
            true => (Ipv6Addr::from_bits(value).into(), mask.leading_ones(), mask.count_ones()),
            false => {
                let mask = mask as u32;
                (Ipv4Addr::from_bits(value as u32).into(), mask.leading_ones(), mask.count_ones())
            }
        };
        (len == ones).then_some((address, len))
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
    let (src, src_len) = prefix(src_field).ok_or(uneven)?;
    let (dst, dst_len) = prefix(dst_field).ok_or(uneven)?;
    let (sport, sport_end) = port(Field::TpSrc, matches.tp_src_range()).ok_or(uneven)?;
    let (dport, dport_end) = port(Field::TpDst, matches.tp_dst_range()).ok_or(uneven)?;
    let (proto, proto_mask) = matches.get(Field::NwProto);
    let byte = |field| matches.get(field);
    let (value, mask) = match (proto as u8, proto_mask) {
        (ip_proto::TCP, 0xff) => (byte(Field::TcpFlags).0 << 8, byte(Field::TcpFlags).1 << 8),
        (icmp, 0xff) if icmp == icmp_of(is_v6) => (
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
    let src = address(words.next("source address")?, "source address")?;
    let word = words.next("destination address")?;
    let dst = address(word, "destination address")?;
    if src.is_ipv6() != dst.is_ipv6() {
        return Err(
            word.fault("source and destination are of different families; write both as IPv4 or as IPv6")
        );
    }
    let mut key = FlowKey::zero();
    key.set(Field::EthType, eth_type(src.is_ipv6()).into());
    let [src_field, dst_field] = addresses(src.is_ipv6());
    key.set(src_field, bits(src));
    key.set(dst_field, bits(dst));
    let mut number = |what: &str, max: u32| {
        let word = words.next(what)?;
        let value = word.text.parse::<u32>().ok().filter(|&n| n <= max);
        value.ok_or_else(|| word.fault(format!("{what}, a decimal number up to {max}, is expected")))
    };
    key.set(Field::TpSrc, number("source port", 0xffff)?.into());
    key.set(Field::TpDst, number("destination port", 0xffff)?.into());
    let proto = number("protocol", 0xff)?;
    key.set(Field::NwProto, proto.into());
    if !words.done() {
        let word = words.next("flags")?;
        // The published traces have 32 bits here, of which the low 16 are the flags.
        let flags = word.text.parse::<u32>();
        let flags = flags.map_err(|_| word.fault("flags, a decimal number of 32 bits, are expected"))?;
        set_flags((proto as u8, src.is_ipv6()), flags as u16, u16::MAX, |field, v, m| {
            key.set_masked(field, v, m)
        });
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

/// Reads an address of a header: a decimal number of 32 bits, or as addresses are written.
fn address(word: Token<'_>, what: &str) -> Result<IpAddr, Fault> {
    if let Ok(bits) = word.text.parse::<u32>() {
        return Ok(Ipv4Addr::from_bits(bits).into());
    }
    word.text.parse().map_err(|_| {
        let most = u32::MAX;
        word.fault(format!("{what}, a decimal number up to {most} or an address as 192.0.2.1, is expected"))
    })
}

/// Writes one header; `filter` is the position of the rule that it was made for, −1 for none.
pub fn print_header(key: &FlowKey, filter: i64, out: &mut String) {
    let field = |f| key.get(f);
    let is_v6 = field(Field::EthType) == ether_type::IPV6.into();
    let proto = field(Field::NwProto) as u8;
    let flags = match proto {
        ip_proto::TCP => (field(Field::TcpFlags) & 0xff) << 8,
        icmp if icmp == icmp_of(is_v6) => field(Field::IcmpType) << 8 | field(Field::IcmpCode),
        _ => 0,
    };
    for address in addresses(is_v6).map(field) {
        match is_v6 {
            true => write!(out, "{}\t", Ipv6Addr::from_bits(address)),
            false => write!(out, "{address}\t"),
        }
        .expect("writing to a string");
    }
    let (src, dst) = (field(Field::TpSrc), field(Field::TpDst));
    writeln!(out, "{src}\t{dst}\t{proto}\t{flags}\t{filter}").expect("writing to a string");
}

#[cfg(test)]
mod tests;
