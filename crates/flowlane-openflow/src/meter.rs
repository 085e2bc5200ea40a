//! Meters.

/// The number that means all meters.
pub const METER_ALL: u32 = 0xffff_ffff;
/// The meter of packets for controllers.
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// The meter of packets for the slow path.
pub const METER_SLOW_PATH: u32 = 0xffff_fffd;
/// The largest number of a meter.
pub const METER_MAX: u32 = 0xffff_0000;

/// Bits of a meter's flags (OpenFlow 1.3.5 7.3.4.5).
pub mod flags {
    /// Rates are in kb/s.
    pub const KBPS: u16 = 1;
    /// Rates are in packets per second.
    pub const PKTPS: u16 = 1 << 1;
    /// Bands have a burst size.
    pub const BURST: u16 = 1 << 2;
    /// Statistics are kept.
    pub const STATS: u16 = 1 << 3;
}

/// The effect of a band.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BandKind {
    /// Packets beyond the rate are dropped.
    Drop,
    /// The drop precedence of the DSCP is raised by this.
    DscpRemark(u8),
}

/// A band: what happens to packets beyond a rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// The effect.
    pub kind: BandKind,
    /// In kb/s or packets per second.
    pub rate: u32,
    /// In kb or packets.
    pub burst: u32,
}

/// A change of meters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MeterCommand {
    /// A meter comes.
    Add,
    /// A meter's flags and bands are replaced.
    Modify,
    /// A meter, or all, go.
    Delete,
}

/// Changes meters (OpenFlow 1.3.5 7.3.4.5).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterMod {
    /// The change.
    pub command: MeterCommand,
    /// The meter.
    pub meter: MeterConfig,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterConfig {
    /// The number.
    pub meter: u32,
    /// Bits of [`flags`].
    pub flags: u16,
    /// The bands.
    pub bands: Vec<Band>,
}

/// Statistics of a meter (OpenFlow 1.3.5 7.3.5.12).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterStats {
    /// The number.
    pub meter: u32,
    /// Rules that refer to it.
    pub flows: u32,
    /// Packets that came.
    pub packets: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Seconds since it came.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}

/// Features of meters (OpenFlow 1.3.5 7.3.5.14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MeterFeatures {
    /// The number of meters.
    pub meters_max: u32,
    /// Bits of the kinds of bands: drop (bit 1), remark (bit 2).
    pub band_kinds: u32,
    /// Bits of [`flags`].
    pub capabilities: u32,
    /// The number of bands of a meter.
    pub bands_max: u8,
    /// The number of colours.
    pub colours_max: u8,
}
