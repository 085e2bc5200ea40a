//! Parts in applications' protocols, and expectations, as they outlive the process.
//!
//! A connection's part:
//!
//! | bytes | what |
//! |---:|---|
//! | 1 | 0 none, 1 a control connection, 2 a connection that was expected |
//! | 1 | of a control connection: 0 FTP, 1 TFTP |
//! | 12, 12 | the skew of each end: position, before and after it |
//! | 8 × 3, 1 | announced ends: 0 none, 1 the client's, 2 the server's, and the port; the one that is replaced next |
//! | 40 | of a connection that was expected: the original tuple of its control connection |
//!
//! An expectation:
//!
//! | bytes | what |
//! |---:|---|
//! | 40 | the original tuple of the control connection |
//! | 1 | the end that is announced: 0 the client, 1 the server |
//! | 2, 2 | its port in packets to it, and in translated ones |
//! | 4, 16 | mark and label |
//! | 8 | when its time is over, in milliseconds of the workers' clock |
//!
//! Addresses and translation of an expected connection follow from its control connection, which must be there: no bytes open a port
//! of another host.

use super::super::saved::{NotRestored, put_tuple, take_tuple};
use super::super::tuple::Tuple;
use super::expectations::{EXPECTATIONS_MAX, VALID_MS};
use super::skew::Skew;
use super::{ANNOUNCED_MAX, Alg, Application, Connections, Control, Packet};
use crate::state::bytes::Bytes;

const APPLICATIONS: [Application; 2] = [Application::Ftp, Application::Tftp];

impl Alg {
    /// Appends a connection's part, or that it has none.
    pub(in super::super) fn write(alg: Option<&Self>, out: &mut Vec<u8>) {
        match alg {
            None => out.push(0),
            Some(Self::Control(control)) => {
                out.push(1);
                control.write(out);
            }
            Some(Self::Announced(tuple)) => {
                out.push(2);
                put_tuple(tuple, out);
            }
        }
    }

    /// Reads the part of a connection with this original tuple; `None` if the bytes are none.
    pub(in super::super) fn read(bytes: &mut Bytes<'_>, original: &Tuple) -> Option<Option<Box<Self>>> {
        let alg = match bytes.u8()? {
            0 => return Some(None),
            1 => {
                let control = Control::read(bytes)?;
                (control.application.proto() == original.proto).then_some(Self::Control(control))?
            }
            2 => {
                let control = take_tuple(bytes)?;
                let is_expected = APPLICATIONS.iter().any(|application| application.proto() == control.proto);
                (is_expected && control.is_alike(original)).then_some(Self::Announced(control))?
            }
            _ => return None,
        };
        Some(Some(Box::new(alg)))
    }
}

impl Control {
    fn write(&self, out: &mut Vec<u8>) {
        let Self { application, skews, announced, next } = self;
        out.push(u8::from(*application == Application::Tftp));
        skews.iter().for_each(|skew| skew.write(out));
        for end in announced {
            let (kind, port) = end.map_or((0, 0), |(direction, port)| (1 + direction as u8, port));
            out.push(kind);
            out.extend(port.to_le_bytes());
        }
        out.push(*next as u8);
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let application = *APPLICATIONS.get(usize::from(bytes.u8()?))?;
        let skews = [Skew::read(bytes)?, Skew::read(bytes)?];
        let mut announced = [None; ANNOUNCED_MAX];
        for end in &mut announced {
            *end = match (bytes.u8()?, bytes.u16()?) {
                (0, 0) => None,
                (kind @ 1..=2, port) => Some((usize::from(kind) - 1, port)),
                _ => return None,
            };
        }
        let next = usize::from(bytes.u8()?);
        (next < ANNOUNCED_MAX).then_some(Self { application, skews, announced, next })
    }
}

/// An expectation with its control connection by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedExpectation {
    /// The original tuple of the control connection.
    pub control: Tuple,
    /// The end that is announced: 0 the client, 1 the server.
    pub direction: usize,
    /// Its port in packets to it, and in translated ones.
    pub port: u16,
    pub reply_port: u16,
    pub mark: u32,
    pub label: u128,
    pub expires_ms: u64,
}

impl SavedExpectation {
    /// Appends the expectation.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_tuple(&self.control, out);
        out.push(self.direction as u8);
        out.extend(self.port.to_le_bytes());
        out.extend(self.reply_port.to_le_bytes());
        out.extend(self.mark.to_le_bytes());
        out.extend(self.label.to_le_bytes());
        out.extend(self.expires_ms.to_le_bytes());
    }

    /// Reads what [`write`](Self::write) has written; `None` if the bytes are no expectation.
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            control: take_tuple(bytes)?,
            direction: bytes.bool()?.into(),
            port: bytes.u16()?,
            reply_port: bytes.u16()?,
            mark: bytes.u32()?,
            label: bytes.u128()?,
            expires_ms: bytes.u64()?,
        })
    }
}

impl Connections {
    /// Copies up to `budget` expectations from serial number `from` on, the oldest first, and returns the number to continue from, if
    /// any.
    pub fn save_expectations(
        &self,
        from: u64,
        budget: usize,
        now_ms: u64,
    ) -> (Vec<SavedExpectation>, Option<u64>) {
        let (found, next) = self.expectations.copy(from, budget.min(EXPECTATIONS_MAX));
        let valid = found.into_iter().filter(|(_, expectation, expires_ms)| {
            *expires_ms > now_ms && self.is_there(expectation.control, now_ms)
        });
        let saved = valid.map(|(tuple, expectation, expires_ms)| SavedExpectation {
            control: expectation.control_tuple,
            direction: expectation.direction,
            port: tuple.destination.port,
            reply_port: expectation.reply_port,
            mark: expectation.mark,
            label: expectation.label,
            expires_ms,
        });
        (saved.collect(), next)
    }

    /// Keeps an expectation again, whose control connection has been restored before.
    ///
    /// # Errors
    /// Where its time is over, its control connection is not there, or another one expects that connection.
    pub fn restore_expectation(&self, saved: &SavedExpectation, now_ms: u64) -> Result<(), NotRestored> {
        if saved.expires_ms <= now_ms {
            return Err(NotRestored::Expired);
        }
        let table = self.table();
        let found = table.find(&table.hashed(&saved.control));
        let (place, _) = found.filter(|(_, direction)| *direction == 0).ok_or(NotRestored::NoControl)?;
        let entry = table.entry(place.entry);
        let tuples = [entry.tuple(0), entry.tuple(1)];
        let packet = Packet {
            tuples: &tuples,
            direction: saved.direction,
            payload: &[],
            sequence: 0,
            is_translated: false,
        };
        let expectation = entry.with(place.generation, |live| {
            live.application().map(|_| packet.expectation(place, live, saved.reply_port))
        });
        let mut expectation = expectation.flatten().ok_or(NotRestored::NoControl)?;
        (expectation.mark, expectation.label) = (saved.mark, saved.label);
        let tuple = packet.expected(saved.direction, saved.port);
        let times = (now_ms, saved.expires_ms.min(now_ms + VALID_MS));
        let is_there = |place| self.is_there(place, now_ms);
        match self.expectations.add_until(&tuple, expectation, times, is_there) {
            true => Err(NotRestored::Known),
            false => Ok(()),
        }
    }
}
