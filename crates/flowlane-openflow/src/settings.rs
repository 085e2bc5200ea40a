//! The settings of a connection.

use crate::version::Version;

/// The number of fields of tunnel options, `tun_metadata0` to `tun_metadata63`.
pub const OPTIONS_MAX: usize = 64;

/// The settings of a connection that the bytes of messages depend on. Its methods read and write messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Codec {
    /// The version that the connection speaks. Hello and error messages of others are read, too.
    pub version: Version,
    /// Flow-mods of OpenFlow 1.0 name their table
    /// ([`Message::FlowModTableId`](crate::message::Message::FlowModTableId)).
    pub flow_mod_table_id: bool,
    /// Bytes of each field of a tunnel's option by the switch's map ([`TlvTable`](crate::message::TlvTable)); 0: not mapped, which
    /// is written with as many bytes as the value needs.
    pub option_bytes: [u8; OPTIONS_MAX],
}

impl Codec {
    /// The settings of a new connection.
    pub fn new(version: Version) -> Self {
        Self { version, flow_mod_table_id: false, option_bytes: [0; OPTIONS_MAX] }
    }

    pub(crate) fn is_10(&self) -> bool {
        self.version == Version::OpenFlow10
    }
}
