//! Settings of connections, and of the text that describes the switch.

use std::time::Duration;

/// The settings of connections at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionSettings {
    /// A peer that is silent for this long is asked whether it lives; after the same time again it is disconnected. `None`: it is not asked.
    pub probe_interval: Option<Duration>,
    /// The longest pause between attempts to connect: it is doubled from one second to this, after each that fails.
    pub backoff_max: Duration,
}

impl ConnectionSettings {
    /// The interval of probes, as Open vSwitch has it.
    pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self { probe_interval: Some(Self::PROBE_INTERVAL), backoff_max: Duration::from_secs(8) }
    }
}

/// The texts by which an operator knows the switch, in OpenFlow's description of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchTexts {
    /// The serial number; `None`: "None".
    pub serial: Option<String>,
    /// The description of the datapath; `None`: the name of the bridge.
    pub datapath: Option<String>,
}
