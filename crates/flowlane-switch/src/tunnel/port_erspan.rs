//! What a port's specification says of ERSPAN.

use flowlane::packet::Field;
use flowlane::packet::key::FlowKey;
use flowlane::packet::tunnel::erspan::{Erspan, HARDWARE_MAX, INDEX_MAX};

/// The fields of ERSPAN's header: each is one, or that of packets that leave (`tun_erspan_…`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErspanSpec {
    /// 1 or 2; `None`: the packet's.
    pub version: Option<u8>,
    /// The index of version 1; `None`: the packet's.
    pub index: Option<u32>,
    /// Whether frames left at the mirrored place, of version 2; `None`: the packet says it.
    pub is_egress: Option<bool>,
    /// The engine of version 2; `None`: the packet's.
    pub hardware: Option<u8>,
}

impl Default for ErspanSpec {
    fn default() -> Self {
        Self { version: Some(1), index: Some(0), is_egress: Some(false), hardware: Some(0) }
    }
}

impl ErspanSpec {
    /// The options, as they are named in specifications and in OVSDB.
    pub(super) const OPTIONS: [&str; 4] = ["erspan_ver", "erspan_idx", "erspan_dir", "erspan_hwid"];

    /// Reads an option, whose numbers are hexadecimal, with or without `0x`.
    ///
    /// # Errors
    /// The values that are expected.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let hex = |max: u32, expected| match u32::from_str_radix(value.trim_start_matches("0x"), 16) {
            _ if value == "flow" => Ok(None),
            Ok(number) if number <= max => Ok(Some(number)),
            _ => Err(expected),
        };
        match key {
            "erspan_ver" => {
                let expected = "1, 2 or `flow` is expected";
                self.version = match hex(2, expected)? {
                    Some(0) => return Err(expected),
                    version => version.map(|version| version as u8),
                };
                // As in Open vSwitch, the others are the packet's then, unless they are given behind it.
                if self.version.is_none() {
                    (self.index, self.is_egress, self.hardware) = (None, None, None);
                }
            }
            "erspan_idx" => {
                self.index = hex(INDEX_MAX, "an index of 0 to fffff (hexadecimal) or `flow` is expected")?;
            }
            "erspan_dir" => self.is_egress = hex(1, "0, 1 or `flow` is expected")?.map(|dir| dir == 1),
            _ => {
                let expected = "a number of 0 to 3f (hexadecimal) or `flow` is expected";
                self.hardware = hex(HARDWARE_MAX.into(), expected)?.map(|number| number as u8);
            }
        }
        Ok(())
    }

    /// The options that count for the version, with their values.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let flow = || "flow".to_owned();
        let version = self.version.map_or_else(flow, |version| version.to_string());
        let index = self.index.map_or_else(flow, |index| format!("{index:#x}"));
        let direction = self.is_egress.map_or_else(flow, |is_egress| u8::from(is_egress).to_string());
        let hardware = self.hardware.map_or_else(flow, |number| format!("{number:#x}"));
        let of_version_2 = [("erspan_dir", direction), ("erspan_hwid", hardware)];
        let mut out = vec![("erspan_ver", version)];
        if self.version != Some(2) {
            out.push(("erspan_idx", index));
        }
        if self.version != Some(1) {
            out.extend(of_version_2);
        }
        out
    }

    /// The header of a packet; none where it names no version that there is.
    pub(super) fn of(&self, key: &FlowKey) -> Option<Erspan> {
        match self.version.unwrap_or(key.get(Field::TunErspanVer) as u8) {
            1 => Some(Erspan::Version1 { index: self.index.unwrap_or(key.get(Field::TunErspanIdx) as u32) }),
            2 => Some(Erspan::Version2 {
                is_egress: self.is_egress.unwrap_or(key.get(Field::TunErspanDir) != 0),
                hardware: self.hardware.unwrap_or(key.get(Field::TunErspanHwid) as u8),
            }),
            _ => None,
        }
    }
}
