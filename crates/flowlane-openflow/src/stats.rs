//! Statistics and descriptions of the switch, its flows, tables, ports and queues.

use flowlane::{Field, Match, PortNo, Priority, Rule};

/// The layout of a match in OpenFlow 1.0 and in Nicira's extension of it. Later versions have one layout, and are read as
/// [`FlowFormat::Standard`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowFormat {
    /// OpenFlow's.
    #[default]
    Standard,
    /// Nicira's NXM.
    Nxm,
}

/// The switch's description (OpenFlow 1.3.5 7.3.5.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Description {
    /// The manufacturer.
    pub manufacturer: String,
    /// The hardware.
    pub hardware: String,
    /// The software.
    pub software: String,
    /// The serial number.
    pub serial: String,
    /// A name for people.
    pub datapath: String,
}

/// Asks for flows or their sums (OpenFlow 1.3.5 7.3.5.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// The layout of the match; the reply has it, too.
    pub format: FlowFormat,
    /// The table; `None`: all.
    pub table: Option<u8>,
    /// Only flows that send packets to this port.
    pub out_port: Option<PortNo>,
    /// Only flows that use this group.
    pub out_group: Option<u32>,
    /// The cookie's bits that the flows have.
    pub cookie: u64,
    /// The bits that are compared.
    pub cookie_mask: u64,
    /// Only flows whose matches ask for all of this.
    pub matches: Match,
}

impl FlowStatsRequest {
    /// Asks for all rules.
    pub fn all(format: FlowFormat) -> Self {
        Self {
            format,
            table: None,
            out_port: None,
            out_group: None,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::any(),
        }
    }
}

/// A flow and its statistics (OpenFlow 1.3.5 7.3.5.2, 1.5.1 7.3.5.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStats {
    /// The flow.
    pub rule: Rule,
    /// Seconds since it came.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
    /// Its time-out without packets; 0: none.
    pub idle_timeout_s: u16,
    /// Its time-out; 0: none.
    pub hard_timeout_s: u16,
    /// Seconds since its last packet: sent by Nicira's extension and OpenFlow 1.5 only.
    pub idle_age_s: Option<u32>,
    /// Seconds since its last change: sent by Nicira's extension only.
    pub hard_age_s: Option<u32>,
    /// Bits of `OFPFF`.
    pub flags: u16,
    /// Its importance (OpenFlow 1.4).
    pub importance: u16,
    /// Packets; all ones: unknown.
    pub packets: u64,
    /// Bytes; all ones: unknown.
    pub bytes: u64,
}

impl FlowStats {
    /// Statistics of a new flow.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            duration_s: 0,
            duration_ns: 0,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            idle_age_s: None,
            hard_age_s: None,
            flags: 0,
            importance: 0,
            packets: 0,
            bytes: 0,
        }
    }
}

/// Sums over flows (OpenFlow 1.3.5 7.3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AggregateStats {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Flows.
    pub flows: u32,
}

/// Statistics of a table (OpenFlow 1.0 5.3.5, 1.3.5 7.3.5.4).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// Its name: OpenFlow 1.0 only, as the next two.
    pub name: String,
    /// Bits of the fields that may be left out.
    pub wildcards: u32,
    /// The most flows.
    pub flows_max: u32,
    /// Flows.
    pub flows: u32,
    /// Packets that were looked up.
    pub lookups: u64,
    /// Packets that a flow matched.
    pub matched: u64,
}

/// Statistics of a port (OpenFlow 1.3.5 7.3.5.6); all ones: not counted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortStats {
    /// The port.
    pub port: PortNo,
    /// Received packets.
    pub rx_packets: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets that were dropped instead of sent.
    pub tx_dropped: u64,
    /// Errors in receiving, the next three and others.
    pub rx_errors: u64,
    /// Errors in sending.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_errors: u64,
    /// Overruns.
    pub rx_over_errors: u64,
    /// CRC errors.
    pub rx_crc_errors: u64,
    /// Collisions.
    pub collisions: u64,
    /// Seconds since the port came; not sent by OpenFlow 1.0.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
}

/// Statistics of a queue (OpenFlow 1.3.5 7.3.5.8).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueStats {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Packets that were dropped.
    pub tx_errors: u64,
    /// Seconds since the queue came; not sent by OpenFlow 1.0.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
}

/// A queue's configuration (OpenFlow 1.3.5 7.3.6, 1.4.1 7.3.5.11).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueConfig {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
    /// The guaranteed rate in 1/1000 of the port's.
    pub min_rate: Option<u16>,
    /// The largest rate in 1/1000 of the port's.
    pub max_rate: Option<u16>,
}

/// The free space at which events of a table's vacancy are sent (OpenFlow 1.4.1 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vacancy {
    /// Percent below which an event is sent.
    pub down: u8,
    /// Percent above which an event is sent.
    pub up: u8,
    /// Percent that is free now.
    pub current: u8,
}

/// A table's configuration, of a table-mod or a description (OpenFlow 1.3.5 7.3.3, 1.4.1 7.3.4.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableConfig {
    /// The table; 0xff: all.
    pub table: u8,
    /// Bits of `OFPTC`: the two lowest are OpenFlow 1.1's way to treat a miss; eviction (2) and vacancy events (3) are of
    /// OpenFlow 1.4.
    pub config: u32,
    /// Bits of `OFPTMPEF14`: how flows are chosen that go.
    pub eviction: Option<u32>,
    /// When events are sent.
    pub vacancy: Option<Vacancy>,
}

/// Reasons of a [`TableStatus`] (`OFPTR`).
pub mod table_reason {
    /// The free space has fallen below the lower limit.
    pub const VACANCY_DOWN: u8 = 3;
    /// The free space has risen above the upper limit.
    pub const VACANCY_UP: u8 = 4;
}

/// A table changed (OpenFlow 1.4.1 7.4.5).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableStatus {
    /// One of [`table_reason`], or another.
    pub reason: u8,
    /// The table as it is now.
    pub config: TableConfig,
}

/// A field in a table's features, and whether it is named with a mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FieldId {
    /// The field.
    pub field: Field,
    /// It may have a mask.
    pub has_mask: bool,
}

/// An instruction or action in a table's features: its number, and the experimenter's where it is 0xffff.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ActionId {
    /// The number.
    pub kind: u16,
    /// The experimenter.
    pub experimenter: Option<u32>,
}

/// A property of a table (OpenFlow 1.3.5 7.3.5.5.2). `miss`: of the flow for packets that no other matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TableProperty {
    /// Instructions.
    Instructions {
        /// Of the table-miss flow.
        miss: bool,
        /// Their numbers.
        ids: Vec<ActionId>,
    },
    /// Tables that flows may go to.
    NextTables {
        /// Of the table-miss flow.
        miss: bool,
        /// Their numbers.
        tables: Vec<u8>,
    },
    /// Actions.
    Actions {
        /// Of `write_actions`; otherwise of `apply_actions`.
        write: bool,
        /// Of the table-miss flow.
        miss: bool,
        /// Their numbers.
        ids: Vec<ActionId>,
    },
    /// Fields that flows may match.
    Match(Vec<FieldId>),
    /// Fields that flows may leave out.
    Wildcards(Vec<FieldId>),
    /// Fields that `set_field` sets.
    SetFields {
        /// In `write_actions`; otherwise in `apply_actions`.
        write: bool,
        /// Of the table-miss flow.
        miss: bool,
        /// The fields.
        fields: Vec<FieldId>,
    },
}

/// A table's features (OpenFlow 1.3.5 7.3.5.5).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
    /// `OFPTFC`: the kind of change (OpenFlow 1.5).
    pub command: u8,
    /// Bits of `OFPTFF` (OpenFlow 1.5).
    pub features: u32,
    /// Its name, of which 31 bytes are sent.
    pub name: String,
    /// Bits of `metadata` that flows may match.
    pub metadata_match: u64,
    /// Bits of `metadata` that flows may write.
    pub metadata_write: u64,
    /// Bits of `OFPTC`.
    pub capabilities: u32,
    /// The most flows.
    pub flows_max: u32,
    /// The properties.
    pub properties: Vec<TableProperty>,
}

/// Asks for changes of flows (nicira-ext `NXST_FLOW_MONITOR`, ONF extension 187, OpenFlow 1.4.1 7.3.5.17).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The monitor's identifier.
    pub id: u32,
    /// `OFPFMC`: 0 adds, 1 changes, 2 removes a monitor (OpenFlow 1.4 and later).
    pub command: u8,
    /// Bits of `OFPFMF` as OpenFlow 1.4 places them: `initial` 0, `add` 1, `removed` 2, `modify` 3, `instructions` 4,
    /// `no_abbrev` 5, `only_own` 6.
    pub flags: u16,
    /// Only flows that send packets to this port.
    pub out_port: Option<PortNo>,
    /// Only flows that use this group (OpenFlow 1.4 and later).
    pub out_group: Option<u32>,
    /// The table; `None`: all.
    pub table: Option<u8>,
    /// Only flows whose matches ask for all of this.
    pub matches: Match,
}

/// A change of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowEvent {
    /// The flow was there when the monitor came (OpenFlow 1.4 and later; sent as `Added` before).
    Initial,
    /// It came.
    Added,
    /// It went, for this reason (`OFPRR`).
    Removed(u8),
    /// It changed.
    Modified,
}

/// A change, as a monitor reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowUpdate {
    /// The change of a flow.
    Full {
        /// The change.
        event: FlowEvent,
        /// The flow's time-outs, without packets and in all.
        timeouts_s: (u16, u16),
        /// The flow; without actions, unless the monitor asks for them.
        rule: Rule,
    },
    /// A change by the controller itself, named by its message.
    Abbreviated {
        /// The message's identifier.
        xid: u32,
    },
    /// Changes are not sent until `Resumed`: the buffer is full (OpenFlow 1.4 and later).
    Paused,
    /// Changes are sent again (OpenFlow 1.4 and later).
    Resumed,
}

/// A flow that went (OpenFlow 1.3.5 7.4.2, nicira-ext `NXT_FLOW_REMOVED`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRemoved {
    /// The layout of the match.
    pub format: FlowFormat,
    /// Its match.
    pub matches: Match,
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: Priority,
    /// `OFPRR`: idle time-out (0), hard time-out (1), deleted (2), group deleted (3), meter deleted (4), eviction (5).
    pub reason: u8,
    /// Its table; not sent by OpenFlow 1.0 without Nicira's extension.
    pub table: Option<u8>,
    /// Seconds since it came.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
    /// Its time-out without packets.
    pub idle_timeout_s: u16,
    /// Its time-out; not sent by OpenFlow 1.0.
    pub hard_timeout_s: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}
