//! Records as bytes.

use flowlane::rule::FlowFlags;
use flowlane::tunnel::MappedOption;

use crate::control::MeterSpec;
use crate::ruleset::PortFlags;
use crate::state::bytes::{Bytes, put_text};
use crate::state::conntrack::{SavedConnection, SavedExpectation};
use crate::state::meter::{Band, Excess, Unit};

/// The latest time of a clock: 146 years, which no arithmetic of times exceeds.
const CLOCK_MAX_NS: u64 = 1 << 62;

/// The properties of the switch whose state follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The workers' clock when the state was copied.
    pub clock_ns: u64,
    /// The time then, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The workers' clock is that of frames.
    pub is_frame_clock: bool,
    /// The seed of hashes.
    pub seed: u32,
    /// The number of workers.
    pub workers: u32,
    /// The ports and stages, as text.
    pub shape: String,
}

/// A rule as text, with all that a flow-mod has given it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RuleRecord {
    pub(super) idle_timeout_s: u16,
    pub(super) hard_timeout_s: u16,
    pub(super) flags: FlowFlags,
    pub(super) importance: u16,
    pub(super) created_ns: u64,
    pub(super) begun_ns: u64,
    pub(super) text: String,
}

/// A learned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) mac: u64,
    pub(super) vlan: u16,
    pub(super) port: u32,
    pub(super) seen_s: u32,
}

/// A record.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Record {
    Header(Header),
    End { records: u64 },
    Connection(SavedConnection),
    Address(Address),
    Meter(MeterSpec),
    Option { number: u8, option: MappedOption },
    Group(String),
    Port { port: u32, flags: PortFlags },
    Rule(RuleRecord),
    Expectation(SavedExpectation),
    Route { table: u8, text: String },
}

impl Record {
    /// Appends the record.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Header(header) => header.write(out),
            Self::End { records } => {
                out.push(1);
                out.extend(records.to_le_bytes());
            }
            Self::Connection(connection) => {
                out.push(2);
                connection.write(out);
            }
            Self::Address(Address { mac, vlan, port, seen_s }) => {
                out.push(3);
                out.extend(mac.to_le_bytes());
                out.extend(vlan.to_le_bytes());
                out.extend(port.to_le_bytes());
                out.extend(seen_s.to_le_bytes());
            }
            Self::Meter(meter) => write_meter(meter, out),
            Self::Option { number, option: MappedOption { class, kind, bytes } } => {
                out.extend([6, *number]);
                out.extend(class.to_le_bytes());
                out.extend([*kind, *bytes]);
            }
            Self::Group(text) => {
                out.push(7);
                put_text(out, text);
            }
            Self::Port { port, flags } => {
                out.push(8);
                out.extend(port.to_le_bytes());
                out.push((flags.0 & PortFlags::SETTINGS.0) as u8);
            }
            Self::Rule(rule) => rule.write(out),
            Self::Expectation(expectation) => {
                out.push(10);
                expectation.write(out);
            }
            Self::Route { table, text } => {
                out.extend([11, *table]);
                put_text(out, text);
            }
        }
    }

    /// Reads a record; `None` if the bytes are none.
    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(match bytes.u8()? {
            0 => Self::Header(Header::read(bytes)?),
            1 => Self::End { records: bytes.u64()? },
            2 => Self::Connection(SavedConnection::read(bytes)?),
            3 => {
                let (mac, vlan, port, seen_s) = (bytes.u64()?, bytes.u16()?, bytes.u32()?, bytes.u32()?);
                (mac < 1 << 48 && vlan < 1 << 12).then_some(())?;
                Self::Address(Address { mac, vlan, port, seen_s })
            }
            5 => Self::Meter(read_meter(bytes, false)?),
            6 => {
                let (number, class, kind, bytes) = (bytes.u8()?, bytes.u16()?, bytes.u8()?, bytes.u8()?);
                Self::Option { number, option: MappedOption { class, kind, bytes } }
            }
            7 => Self::Group(bytes.text()?.to_owned()),
            8 => Self::Port { port: bytes.u32()?, flags: PortFlags(bytes.u8()?.into()) },
            9 => Self::Rule(RuleRecord::read(bytes)?),
            10 => Self::Expectation(SavedExpectation::read(bytes)?),
            11 => Self::Route { table: bytes.u8()?, text: bytes.text()?.to_owned() },
            12 => Self::Meter(read_meter(bytes, true)?),
            _ => return None,
        })
    }
}

impl Header {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(0);
        out.extend(self.clock_ns.to_le_bytes());
        out.extend(self.unix_ms.to_le_bytes());
        out.push(u8::from(self.is_frame_clock));
        out.extend(self.seed.to_le_bytes());
        out.extend(self.workers.to_le_bytes());
        put_text(out, &self.shape);
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let header = Self {
            clock_ns: bytes.u64()?,
            unix_ms: bytes.u64()?,
            is_frame_clock: bytes.bool()?,
            seed: bytes.u32()?,
            workers: bytes.u32()?,
            shape: bytes.text()?.to_owned(),
        };
        (header.clock_ns <= CLOCK_MAX_NS).then_some(header)
    }

    /// Returns the workers' clock at a time in milliseconds since 1970: that of frames does not go on without them, and a clock that
    /// was set back has not.
    pub fn clock_at(&self, unix_ms: u64) -> u64 {
        let passed_ms = if self.is_frame_clock { 0 } else { unix_ms.saturating_sub(self.unix_ms) };
        self.clock_ns.saturating_add(passed_ms.saturating_mul(1_000_000)).min(CLOCK_MAX_NS)
    }
}

impl RuleRecord {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(9);
        for number in [self.idle_timeout_s, self.hard_timeout_s, self.flags.0, self.importance] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.created_ns.to_le_bytes());
        out.extend(self.begun_ns.to_le_bytes());
        put_text(out, &self.text);
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            idle_timeout_s: bytes.u16()?,
            hard_timeout_s: bytes.u16()?,
            flags: FlowFlags(bytes.u16()?),
            importance: bytes.u16()?,
            created_ns: bytes.u64()?,
            begun_ns: bytes.u64()?,
            text: bytes.text()?.to_owned(),
        })
    }
}

fn write_meter(meter: &MeterSpec, out: &mut Vec<u8>) {
    let MeterSpec { number, unit, bands, has_bursts, keeps_statistics } = meter;
    let remarks = bands.iter().any(|band| band.excess != Excess::Drop);
    // Programs from before there were such bands read the others.
    out.push(if remarks { 12 } else { 5 });
    out.extend(number.to_le_bytes());
    out.push(u8::from(*unit == Unit::Packets));
    // A meter has at most eight bands.
    out.extend([u8::from(*has_bursts), u8::from(*keeps_statistics), bands.len() as u8]);
    for band in bands {
        out.extend(band.rate.to_le_bytes());
        out.extend(band.burst.to_le_bytes());
        if remarks {
            // A band that remarks raises by a level at least.
            out.push(if let Excess::Remark(levels) = band.excess { levels } else { 0 });
        }
    }
}

fn read_meter(bytes: &mut Bytes<'_>, remarks: bool) -> Option<MeterSpec> {
    let number = bytes.u32()?;
    let unit = if bytes.bool()? { Unit::Packets } else { Unit::Kilobits };
    let (has_bursts, keeps_statistics, count) = (bytes.bool()?, bytes.bool()?, bytes.u8()?);
    let mut band = |_| {
        let (rate, burst) = (bytes.u64()?, bytes.u64()?);
        let excess = match if remarks { bytes.u8()? } else { 0 } {
            0 => Excess::Drop,
            levels => Excess::Remark(levels),
        };
        Some(Band { rate, burst, excess })
    };
    let bands = (0..count).map(&mut band).collect::<Option<Vec<Band>>>()?;
    Some(MeterSpec { number, unit, bands, has_bursts, keeps_statistics })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon takes the place of one from before bands could remark.
    #[test]
    fn meters_that_drop_are_as_before_there_were_others() {
        let bands = vec![Band::drop(10, 20)];
        let mut meter =
            MeterSpec { number: 4, unit: Unit::Packets, bands, has_bursts: true, keeps_statistics: false };
        let bytes = |meter: &MeterSpec| {
            let mut out = Vec::new();
            Record::Meter(meter.clone()).write(&mut out);
            assert_eq!(Record::read(&mut Bytes(&out)), Some(Record::Meter(meter.clone())));
            out
        };
        let before = [&[5, 4, 0, 0, 0, 1, 1, 0, 1][..], &10u64.to_le_bytes(), &20u64.to_le_bytes()].concat();
        assert_eq!(bytes(&meter), before);
        meter.bands.push(Band::remark(30, 5, 2));
        assert_eq!(bytes(&meter)[0], 12);
    }
}
