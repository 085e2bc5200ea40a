//! Messages, one type for all versions.
//!
//! A structure has all fields that some version sends. Which version lacks one, is said there; it is then empty or 0 in messages
//! that are read, and left out of messages that are written.

mod extensions;
mod packet;

pub use extensions::{
    AsyncConfig, BundleAdd, BundleControl, BundleControlKind, CtFlush, CtTuple, Role, RoleRequest,
    RoleStatus, TlvCommand, TlvMapping, TlvTable, TlvTableMod, role_reason,
};
pub use packet::{PacketIn, PacketInFormat, PacketOut, Resume, reason};

use flowlane::PortNo;
use flowlane::rule::FlowMod;

use crate::error::ErrorCode;
use crate::group::{GroupDescription, GroupFeatures, GroupMod, GroupStats};
use crate::meter::{MeterConfig, MeterFeatures, MeterMod, MeterStats};
use crate::port::{Port, PortMod, PortStatus};
use crate::stats::{
    AggregateStats, Description, FlowFormat, FlowMonitorRequest, FlowRemoved, FlowStats, FlowStatsRequest,
    FlowUpdate, PortStats, QueueConfig, QueueStats, TableConfig, TableFeatures, TableStats, TableStatus,
};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The first message of a connection.
    Hello(Hello),
    /// A request failed.
    Error(Error),
    /// Asks whether the peer lives.
    EchoRequest(Vec<u8>),
    /// Answers with the bytes of the request.
    EchoReply(Vec<u8>),
    /// A message of an experimenter (OpenFlow 1.0: vendor) that is none of those below.
    Experimenter(Experimenter),
    /// Asks for [`Features`].
    FeaturesRequest,
    /// Describes the switch.
    FeaturesReply(Features),
    /// Asks for [`SwitchConfig`].
    GetConfigRequest,
    /// The configuration.
    GetConfigReply(SwitchConfig),
    /// Changes the configuration; has no answer.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// A flow went.
    FlowRemoved(FlowRemoved),
    /// A port changed.
    PortStatus(PortStatus),
    /// A packet of the controller's.
    PacketOut(PacketOut),
    /// Changes flows.
    FlowMod(FlowModMessage),
    /// Changes groups.
    GroupMod(GroupMod),
    /// Changes a port.
    PortMod(PortMod),
    /// Changes a table.
    TableMod(TableConfig),
    /// A table changed.
    TableStatus(TableStatus),
    /// Changes meters.
    MeterMod(MeterMod),
    /// Asks for statistics or a description.
    MultipartRequest(MultipartRequest),
    /// A part of the answer.
    MultipartReply(MultipartReply),
    /// Asks for an answer after all that came before is done.
    BarrierRequest,
    /// All that came before is done.
    BarrierReply,
    /// Asks for the queues of a port (before OpenFlow 1.4).
    QueueGetConfigRequest(PortNo),
    /// The queues of a port.
    QueueGetConfigReply {
        /// The port.
        port: PortNo,
        /// Its queues.
        queues: Vec<QueueConfig>,
    },
    /// Asks for a role, or for the role that the controller has.
    RoleRequest(RoleRequest),
    /// The role that the controller has now.
    RoleReply(RoleRequest),
    /// The role changed (OpenFlow 1.4 and later; the ONF's extension 191 in 1.3).
    RoleStatus(RoleStatus),
    /// Asks for [`AsyncConfig`] (OpenFlow 1.3 and later).
    GetAsyncRequest,
    /// The configuration.
    GetAsyncReply(AsyncConfig),
    /// Changes which messages are sent without a request.
    SetAsync(AsyncConfig),
    /// Opens, closes, commits or discards a bundle, or says that this is done.
    BundleControl(BundleControl),
    /// Adds a message to a bundle.
    BundleAdd(BundleAdd),
    /// Chooses the layout of matches that the switch sends (nicira-ext 12).
    SetFlowFormat(FlowFormat),
    /// Chooses the layout of packet-in messages (nicira-ext 16).
    SetPacketInFormat(PacketInFormat),
    /// Flow-mods name their table in the upper byte of their command (nicira-ext 15). The connection sets
    /// [`Codec::flow_mod_table_id`](crate::Codec::flow_mod_table_id).
    FlowModTableId(bool),
    /// Sets the identifier by which `controller` actions name this controller (nicira-ext 20).
    SetControllerId(u16),
    /// Flow statistics are to have ages (nicira-ext 18).
    FlowAge,
    /// A packet that was paused goes on (nicira-ext 28).
    Resume(Resume),
    /// Changes the map from options of tunnels to fields (nicira-ext 24).
    TlvTableMod(TlvTableMod),
    /// Asks for the map (nicira-ext 25).
    TlvTableRequest,
    /// The map (nicira-ext 26).
    TlvTableReply(TlvTable),
    /// Forgets all connections of a zone (nicira-ext 29).
    CtFlushZone(u16),
    /// Forgets connections (nicira-ext 32).
    CtFlush(CtFlush),
    /// Ends a monitor of flows (nicira-ext 21, ONF 1870).
    FlowMonitorCancel(u32),
    /// No changes of flows are reported until [`Message::FlowMonitorResumed`] (nicira-ext 22, ONF 1871).
    FlowMonitorPaused,
    /// Changes of flows are reported again (nicira-ext 23, ONF 1872).
    FlowMonitorResumed,
}

/// The first message of a connection (OpenFlow 1.3.5 7.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// The bits of the versions that the sender speaks, [`Version::bit`](crate::Version::bit). Without a list in the message, those
    /// from OpenFlow 1.0 to the header's version.
    pub versions: u32,
}

/// A failure (OpenFlow 1.3.5 7.5.4).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Error {
    /// The failure.
    pub kind: ErrorKind,
    /// The beginning of the request, at least 64 bytes of it if it has as many.
    pub data: Vec<u8>,
}

/// A failure's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// A known one.
    Known(ErrorCode),
    /// Another: type and code.
    Unknown(u16, u16),
}

/// A message of an experimenter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Experimenter {
    /// The experimenter.
    pub experimenter: u32,
    /// The message's number; 0 in OpenFlow 1.0 where the message is too short to have one.
    pub kind: u32,
    /// Its body.
    pub data: Vec<u8>,
}

/// A description of the switch (OpenFlow 1.0 5.3.1, 1.3.5 7.3.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features {
    /// The switch's identifier.
    pub datapath_id: u64,
    /// Packets that can be buffered.
    pub buffers: u32,
    /// The number of tables.
    pub tables: u8,
    /// The kind of connection: 0, or the number of an auxiliary one; not sent by OpenFlow 1.0.
    pub auxiliary_id: u8,
    /// Bits of `OFPC`, as the version has them.
    pub capabilities: u32,
    /// Bits of the actions, of OpenFlow 1.0.
    pub actions: u32,
    /// The ports, of OpenFlow 1.0.
    pub ports: Vec<Port>,
}

/// A configuration of the switch (OpenFlow 1.3.5 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SwitchConfig {
    /// Bits of `OFPC_FRAG`: how fragments are treated (0 normal, 1 drop, 2 reassemble, 3 `nx-match`), and of OpenFlow 1.0 to 1.2
    /// whether packets of invalid TTL are sent (4).
    pub flags: u16,
    /// Bytes of packets that no flow matches; 0xffff: all.
    pub miss_send_len: u16,
}

/// Changes flows (OpenFlow 1.3.5 7.3.4.1, nicira-ext 13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowModMessage {
    /// The layout of the match.
    pub format: FlowFormat,
    /// The change.
    pub flow_mod: FlowMod,
    /// The buffered packet that the change is applied to.
    pub buffer_id: Option<u32>,
}

/// Asks for statistics or descriptions (OpenFlow 1.3.5 7.3.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultipartRequest {
    /// More parts of the request follow.
    pub more: bool,
    /// The part.
    pub body: Request,
}

/// The kind and body of a [`MultipartRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The switch's description.
    Description,
    /// Flows.
    Flow(FlowStatsRequest),
    /// Sums over flows.
    Aggregate(FlowStatsRequest),
    /// Tables.
    Table,
    /// A port; `None`: all.
    Port(Option<PortNo>),
    /// Queues.
    Queue {
        /// The port; `None`: all.
        port: Option<PortNo>,
        /// The queue; `None`: all.
        queue: Option<u32>,
    },
    /// A group's statistics, or [`GROUP_ALL`](crate::group::GROUP_ALL).
    Group(u32),
    /// A group's description, or [`GROUP_ALL`](crate::group::GROUP_ALL); before OpenFlow 1.5 always that.
    GroupDescription(u32),
    /// The features of groups.
    GroupFeatures,
    /// A meter's statistics, or [`METER_ALL`](crate::meter::METER_ALL).
    Meter(u32),
    /// A meter's configuration, or [`METER_ALL`](crate::meter::METER_ALL).
    MeterConfig(u32),
    /// The features of meters.
    MeterFeatures,
    /// Features of tables, or new ones.
    TableFeatures(Vec<TableFeatures>),
    /// Descriptions of ports; `None`: all, before OpenFlow 1.5 always that.
    PortDescription(Option<PortNo>),
    /// Descriptions of tables (OpenFlow 1.4 and later).
    TableDescription,
    /// Descriptions of queues (OpenFlow 1.4 and later).
    QueueDescription {
        /// The port; `None`: all.
        port: Option<PortNo>,
        /// The queue; `None`: all.
        queue: Option<u32>,
    },
    /// Monitors of flows.
    FlowMonitor(Vec<FlowMonitorRequest>),
    /// Those of an experimenter: IPFIX of bridges (3) and flows (4) are Nicira's.
    Experimenter(Experimenter),
}

/// Statistics or descriptions (OpenFlow 1.3.5 7.3.5). Lists of any length can be written: [`encode`](crate::encode) makes as many
/// messages of them as it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultipartReply {
    /// More parts of the reply follow.
    pub more: bool,
    /// The part.
    pub body: Reply,
}

/// The kind and body of a [`MultipartReply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The switch's description.
    Description(Description),
    /// Flows.
    Flow {
        /// The layout of the matches.
        format: FlowFormat,
        /// The flows.
        flows: Vec<FlowStats>,
    },
    /// Sums over flows.
    Aggregate {
        /// The layout of the request.
        format: FlowFormat,
        /// The sums.
        stats: AggregateStats,
    },
    /// Tables.
    Table(Vec<TableStats>),
    /// Ports.
    Port(Vec<PortStats>),
    /// Queues.
    Queue(Vec<QueueStats>),
    /// Groups' statistics.
    Group(Vec<GroupStats>),
    /// Groups' descriptions.
    GroupDescription(Vec<GroupDescription>),
    /// The features of groups.
    GroupFeatures(GroupFeatures),
    /// Meters' statistics.
    Meter(Vec<MeterStats>),
    /// Meters' configurations.
    MeterConfig(Vec<MeterConfig>),
    /// The features of meters.
    MeterFeatures(MeterFeatures),
    /// Features of tables.
    TableFeatures(Vec<TableFeatures>),
    /// Descriptions of ports.
    PortDescription(Vec<Port>),
    /// Descriptions of tables.
    TableDescription(Vec<TableConfig>),
    /// Descriptions of queues.
    QueueDescription(Vec<QueueConfig>),
    /// Changes of flows.
    FlowMonitor(Vec<FlowUpdate>),
    /// Those of an experimenter.
    Experimenter(Experimenter),
}

impl From<ErrorCode> for ErrorKind {
    fn from(code: ErrorCode) -> Self {
        Self::Known(code)
    }
}
