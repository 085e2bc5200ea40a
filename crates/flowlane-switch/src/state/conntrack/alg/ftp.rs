//! The messages of FTP that name the end of a data connection: `PORT` and reply 227 (RFC 959), `EPRT` and reply 229 (RFC 2428).
//!
//! A message is read where a segment begins with it. Clients send commands, servers send replies. A message that is cut off, or that
//! names no port, cannot be read; it is not searched for in the next segment.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// Bytes of a segment that are read, as in Open vSwitch: a message is shorter.
const READ_BYTES: usize = 128;

/// The end of a data connection, as a message names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) port: u16,
    /// The address and its place in the segment's payload. Reply 229 has none.
    pub(super) address: Option<(IpAddr, Range<usize>)>,
    /// The address is written as four numbers with commas.
    has_commas: bool,
}

impl Named {
    /// A port of the sender, without a text.
    pub(super) fn port(port: u16) -> Self {
        Self { port, address: None, has_commas: false }
    }

    /// Returns an address as the message writes it.
    pub(super) fn written(&self, address: IpAddr) -> String {
        match self.has_commas {
            true => address.to_string().replace('.', ","),
            false => address.to_string(),
        }
    }
}

/// A message that should name an end of a data connection, and does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

/// Reads the message at the beginning of a segment of the client (direction 0) or the server (1). Returns nothing where it is none
/// of those above.
pub(super) fn read(payload: &[u8], direction: usize, is_ipv6: bool) -> Option<Result<Named, Unreadable>> {
    let text = &payload[..payload.len().min(READ_BYTES)];
    // Only the first line.
    let end = text.iter().position(|byte| matches!(byte, 0 | b'\n')).map_or(text.len(), |at| at + 1);
    let mut text = Text { bytes: &text[..end], at: 0 };
    let named = match direction {
        0 if !is_ipv6 && text.begins_with(b"PORT") => text.blanks().and_then(|()| text.numbers()),
        0 if text.begins_with(b"EPRT") => text.blanks().and_then(|()| text.extended(is_ipv6)),
        1 if !is_ipv6 && text.begins_with(b"227") => text.numbers(),
        1 if text.begins_with(b"229") => text.port_alone(),
        _ => return None,
    };
    Some(named.ok_or(Unreadable))
}

/// A text that is read from the left.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Text<'_> {
    /// Takes a word of any case. Returns whether the text begins with it.
    fn begins_with(&mut self, word: &[u8]) -> bool {
        let is_word = self.bytes.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word));
        // Letters behind it make another command of it.
        let begins = is_word && !self.bytes.get(word.len()).is_some_and(u8::is_ascii_alphanumeric);
        if begins {
            self.at = word.len();
        }
        begins
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes a byte.
    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there.then_some(())
    }

    /// Takes one blank or more.
    fn blanks(&mut self) -> Option<()> {
        self.expect(b' ')?;
        while self.expect(b' ').is_some() {}
        Some(())
    }

    /// Takes a number of up to `digits` digits, which must not be the last bytes: more digits may follow in the next segment.
    fn number(&mut self, digits: usize, limit: u32) -> Option<u32> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        if len == 0 || len > digits {
            return None;
        }
        let value = rest[..len].iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        self.at += len;
        (value <= limit).then_some(value)
    }

    /// Takes a part of an address, which has no leading zero.
    fn part_of_address(&mut self) -> Option<u8> {
        let (begin, value) = (self.at, self.number(3, 255)? as u8);
        (value == 0 && self.at == begin + 1 || self.bytes[begin] != b'0').then_some(value)
    }

    /// Takes six numbers: four of an address, and two of a port. Words may be in front (RFC 1123, 4.1.2.6).
    fn numbers(&mut self) -> Option<Named> {
        self.at += self.bytes[self.at..].iter().position(u8::is_ascii_digit)?;
        let (begin, mut address) = (self.at, [0; 4]);
        for (place, part) in address.iter_mut().enumerate() {
            if place > 0 {
                self.expect(b',')?;
            }
            *part = self.part_of_address()?;
        }
        let end = self.at;
        self.expect(b',')?;
        let high = self.number(3, 255)?;
        self.expect(b',')?;
        let port = high << 8 | self.number(3, 255)?;
        let address = Some((Ipv4Addr::from(address).into(), begin..end));
        (port > 0).then_some(Named { port: port as u16, address, has_commas: true })
    }

    /// Takes `|2|2001:db8::1|5282|`: the version of IP, an address and a port. Any sign that is in none of them may separate them.
    fn extended(&mut self, is_ipv6: bool) -> Option<Named> {
        let sign = self.separator()?;
        self.expect(if is_ipv6 { b'2' } else { b'1' })?;
        self.expect(sign)?;
        let (begin, rest) = (self.at, &self.bytes[self.at..]);
        let end = begin + rest.iter().position(|byte| *byte == sign)?;
        let address: IpAddr = std::str::from_utf8(&self.bytes[begin..end]).ok()?.parse().ok()?;
        self.at = end + 1;
        let port = self.port(sign)?;
        let is_right = address.is_ipv6() == is_ipv6;
        is_right.then_some(Named { port, address: Some((address, begin..end)), has_commas: false })
    }

    /// Takes `(|||6446|)` behind some words.
    fn port_alone(&mut self) -> Option<Named> {
        self.at += self.bytes[self.at..].iter().position(|byte| *byte == b'(')? + 1;
        let sign = self.separator()?;
        (0..2).try_for_each(|_| self.expect(sign))?;
        Some(Named::port(self.port(sign)?))
    }

    fn separator(&mut self) -> Option<u8> {
        let sign = self.peek().filter(|byte| byte.is_ascii_punctuation() && !matches!(byte, b'.' | b':'))?;
        self.at += 1;
        Some(sign)
    }

    fn port(&mut self, sign: u8) -> Option<u16> {
        let port = self.number(5, u16::MAX.into())?;
        self.expect(sign)?;
        (port > 0).then_some(port as u16)
    }
}
