//! The section of a mirror.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Copies of the packets that pass some ports, for a port or a VLAN, as in Open vSwitch's Mirror table. A port gets one copy of a packet,
/// however many ports and mirrors it passes. Without `received` and `sent`, packets of all ports are copied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorSection {
    /// Its name in reports; `mirrorN` by default.
    pub name: Option<String>,
    /// The names of the ports whose received packets are copied, as they are received.
    pub received: Vec<String>,
    /// The names of the ports whose sent packets are copied, as they are sent.
    pub sent: Vec<String>,
    /// The VLANs whose packets are copied, 0 to 4095 (0: without a tag); all by default.
    pub vlans: Vec<u16>,
    /// The name of the port that gets the copies. It takes part in nothing else: `normal` neither floods to it nor learns there.
    pub to: Option<String>,
    /// In place of `to`: the VLAN that copies are flooded in, 1 to 4095. Its own packets are not copied.
    pub to_vlan: Option<u16>,
    /// The bytes of a packet that are copied, 14 to 65535; all by default.
    pub bytes_max: Option<u16>,
}
