//! Roles, bundles and Nicira's messages.

use std::net::IpAddr;

/// A controller's role (OpenFlow 1.3.5 6.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The role stays as it is: asks for it.
    NoChange,
    /// All controllers are equal.
    Equal,
    /// The one that may change the switch.
    Primary,
    /// One that may read only.
    Secondary,
}

/// Asks for a role, or answers (OpenFlow 1.3.5 7.3.9, nicira-ext 10 and 11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoleRequest {
    /// The role.
    pub role: Role,
    /// The generation, by which a late request is recognised; not sent by Nicira's message.
    pub generation_id: Option<u64>,
    /// The controller's short identifier (OpenFlow 1.5).
    pub short_id: Option<u16>,
}

/// Why a role changed (OpenFlow 1.4.1 7.4.4).
pub mod role_reason {
    /// Another controller asked to be the primary one.
    pub const PRIMARY_REQUEST: u8 = 0;
    /// The switch's configuration.
    pub const CONFIG: u8 = 1;
    /// An experimenter.
    pub const EXPERIMENTER: u8 = 2;
}

/// A role that changed (OpenFlow 1.4.1 7.4.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoleStatus {
    /// The role now.
    pub role: Role,
    /// A number of [`role_reason`].
    pub reason: u8,
    /// The generation.
    pub generation_id: u64,
}

/// Which messages are sent without a request: a bit of each reason, in the first place for primary and equal controllers, in
/// the second for secondary ones (OpenFlow 1.3.5 7.3.10, 1.4.1 7.3.10, nicira-ext 19 and 27).
///
/// Of a [`SetAsync`](super::Message::SetAsync), `None` leaves the value as it is: OpenFlow 1.4 and later send some of them, earlier
/// versions the first three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncConfig {
    /// Reasons of packet-ins.
    pub packet_in: [Option<u32>; 2],
    /// Reasons of port-status messages.
    pub port_status: [Option<u32>; 2],
    /// Reasons of flow-removed messages.
    pub flow_removed: [Option<u32>; 2],
    /// Reasons of role-status messages.
    pub role_status: [Option<u32>; 2],
    /// Reasons of table-status messages.
    pub table_status: [Option<u32>; 2],
    /// Reasons of forwarded requests.
    pub request_forward: [Option<u32>; 2],
}

/// A step of a bundle (OpenFlow 1.4.1 7.3.9.2, ONF extension 230).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleControlKind {
    /// A bundle begins.
    OpenRequest,
    /// Answer.
    OpenReply,
    /// No message is added any more.
    CloseRequest,
    /// Answer.
    CloseReply,
    /// Its messages take effect.
    CommitRequest,
    /// Answer.
    CommitReply,
    /// It is forgotten.
    DiscardRequest,
    /// Answer.
    DiscardReply,
}

/// Opens, closes, commits or discards a bundle, or answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BundleControl {
    /// The bundle.
    pub bundle: u32,
    /// The step.
    pub kind: BundleControlKind,
    /// All of its messages take effect, or none (flag 1).
    pub atomic: bool,
    /// In the order in which they were added (flag 2).
    pub ordered: bool,
}

/// A message for a bundle (OpenFlow 1.4.1 7.3.9.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle: u32,
    /// As in [`BundleControl`].
    pub atomic: bool,
    /// As in [`BundleControl`].
    pub ordered: bool,
    /// A flow-mod, group-mod, port-mod or packet-out. It has the identifier of this message.
    pub message: Box<super::Message>,
}

/// A change of the map of tunnel options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlvCommand {
    /// Mappings come.
    Add,
    /// Mappings go.
    Delete,
    /// All go.
    Clear,
}

/// The field of an option of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlvMapping {
    /// The option's class.
    pub class: u16,
    /// Its type.
    pub kind: u8,
    /// Bytes of its value, a multiple of 4 up to 124.
    pub length: u8,
    /// The number of `tun_metadataN`, up to 63.
    pub index: u16,
}

/// Changes the map of tunnel options (nicira-ext 24).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlvTableMod {
    /// The change.
    pub command: TlvCommand,
    /// The mappings.
    pub mappings: Vec<TlvMapping>,
}

/// The map of tunnel options (nicira-ext 26).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlvTable {
    /// Bytes of all options together.
    pub space_max: u32,
    /// The number of fields.
    pub fields_max: u16,
    /// The mappings.
    pub mappings: Vec<TlvMapping>,
}

/// One direction of connections; `None` is any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtTuple {
    /// The source address.
    pub source: Option<IpAddr>,
    /// The destination address.
    pub destination: Option<IpAddr>,
    /// The source port.
    pub source_port: Option<u16>,
    /// The destination port.
    pub destination_port: Option<u16>,
    /// The identifier of ICMP.
    pub icmp_id: Option<u16>,
    /// The type of ICMP.
    pub icmp_type: Option<u8>,
    /// The code of ICMP.
    pub icmp_code: Option<u8>,
}

/// Forgets connections that have all of this (nicira-ext 32).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtFlush {
    /// The protocol of IP; 0: any.
    pub protocol: u8,
    /// The zone.
    pub zone: Option<u16>,
    /// The original direction.
    pub original: Option<CtTuple>,
    /// The reply direction.
    pub reply: Option<CtTuple>,
    /// Value and mask of the mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label.
    pub label: Option<(u128, u128)>,
}
