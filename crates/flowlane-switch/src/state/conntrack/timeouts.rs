//! Timeouts of connections, by protocol and state.

use flowlane::named_enum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// The state of a connection that a timeout is for. The names are those of Open vSwitch's timeout policies.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Timeout {
    /// One end has sent SYN.
    TcpSynSent,
    /// The ends are opening the connection.
    TcpSynRecv,
    TcpEstablished,
    /// One end has sent FIN.
    TcpFinWait,
    /// Both ends have sent FIN.
    TcpTimeWait,
    /// Both FIN are acknowledged, or an end has sent RST.
    TcpClose,
    /// UDP and other protocols: one packet has come.
    UdpFirst,
    /// Packets have come from both ends.
    UdpSingle,
    /// Several packets have come from one end.
    UdpMultiple,
    IcmpFirst,
    /// The request has been answered.
    IcmpReply,
}

impl Timeout {
    /// Every timeout.
    pub const ALL: [Self; 11] = named_enum::all();

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the seconds that it takes by default, as in Open vSwitch.
    pub fn default_s(self) -> u32 {
        match self {
            Self::TcpSynSent | Self::TcpSynRecv | Self::TcpClose => 30,
            Self::TcpEstablished => 86_400,
            Self::TcpFinWait => 900,
            Self::TcpTimeWait => 45,
            Self::UdpFirst | Self::UdpMultiple | Self::IcmpFirst => 60,
            Self::UdpSingle | Self::IcmpReply => 30,
        }
    }
}
