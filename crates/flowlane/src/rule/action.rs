//! The actions of a rule.
//!
//! The list is that of Open vSwitch (ovs-actions(7)): instructions of OpenFlow 1.1 and later are actions here, in the order in
//! which OpenFlow executes them. Readers of text and of OpenFlow messages make the same actions, and printers print them as they
//! were written ([`SetForm`]).

mod details;
mod references;

pub use details::{
    Bundle, ConnectionTracking, Controller, EncapsulateHeader, Learn, LearnSource, LearnSpec, MemberChoice,
    Multipath, MultipathAlgorithm, Nat, NatRange, PacketHash, Sample, SampleDirection, SetForm, Zone,
};

pub use references::Reference;

use crate::error::Error;
use crate::packet::{Field, FieldRef};

/// A port of the switch, by number. Numbers from [`PortNo::MAX`] on have other meanings in OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortNo(pub u32);

impl PortNo {
    /// The largest number that a port may have (OpenFlow 1.0 reserves 0xff00 and above).
    pub const MAX: PortNo = PortNo(0xfeff);

    /// The port that the packet came from, in OpenFlow 1.0.
    pub const IN_PORT: PortNo = PortNo(0xfff8);

    /// OpenFlow's port of the switch's own host. There is one where a port is configured with this number, or the name `LOCAL`.
    pub const LOCAL: PortNo = PortNo(0xfffe);
}

/// The most headers that a list of actions puts on a packet, by `push_vlan`, `push_mpls` and `encap` together. No network
/// stacks as many; each is work and bytes for every packet, and offsets of headers have 16 bits.
pub const HEADERS_PUSHED_MAX: usize = 32;

/// Actions within actions, as of `clone(clone(output:1))`, are at most this deep.
pub const NESTING_MAX: usize = 16;

/// One step of a rule. Steps happen in order; changes to the packet are seen by the steps after them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends a copy of the packet, as it is now, to a port. Nothing happens where that is the port that
    /// the packet came from (use [`Action::InPort`]), as in OpenFlow.
    Output(PortNo),
    /// Sends the first bytes of the packet to a port, which may be [`PortNo::IN_PORT`].
    OutputTruncated {
        /// Where to.
        port: PortNo,
        /// Bytes that are sent.
        max_len: u32,
    },
    /// An output as OpenFlow has it, which is to say how many bytes a controller would get; ports get all. Kept for those who read the
    /// rule back.
    OutputMaxLen {
        /// The output.
        output: Box<Action>,
        /// Bytes.
        max_len: u16,
    },
    /// Sends the packet to the port whose number a field holds.
    OutputField {
        /// The field.
        port: FieldRef,
        /// Bytes that the controller gets, if it is the port.
        max_len: u16,
    },
    /// Sends it to a port, through a queue of that port.
    Enqueue {
        /// Where to.
        port: PortNo,
        /// The number of the queue.
        queue: u32,
    },
    /// Sends it back to the port that it came from.
    InPort,
    /// Sends it to every port but the one that it came from, and those that are not flooded to.
    Flood,
    /// Sends it to every port but the one that it came from.
    All,
    /// Switches it as a learning bridge does: to the port where its destination was last seen in its VLAN.
    Normal,
    /// Sends it to controllers.
    Controller(Box<Controller>),
    /// Samples packets with a probability.
    Sample(Box<Sample>),
    /// Packets that are sent from here on go through this queue of their port.
    SetQueue(u32),
    /// Packets that are sent from here on go through the default queue of their port.
    PopQueue,
    /// Adds an outermost VLAN tag of this TPID (0x8100 or 0x88a8) with VID 0 and priority 0.
    PushVlan(u16),
    /// Removes the outermost VLAN tag, if there is one.
    PopVlan,
    /// Adds an MPLS label stack entry and sets the EtherType (0x8847 or 0x8848).
    PushMpls(u16),
    /// Removes the outermost label stack entry and sets the EtherType.
    PopMpls(u16),
    /// Sets the bits `mask` of a field to `value`; checksums follow. A field that the packet does not
    /// have is left alone.
    SetField {
        /// A writable field.
        field: Field,
        /// Right-aligned. Bits outside `mask` are not written; only `write_metadata` is listed with them, as it was given.
        value: u128,
        /// Right-aligned, within the field's width.
        mask: u128,
        /// How it is written.
        form: SetForm,
        /// The IP protocol of the field's name, as of `udp_dst`: packets of other protocols are left alone. `None`: any protocol that
        /// has the field.
        protocol: Option<u8>,
    },
    /// Copies a field, or some of its bits, to another of the same width.
    Move {
        /// Read.
        from: FieldRef,
        /// Written; of a writable field.
        to: FieldRef,
    },
    /// Pushes a field, or some of its bits, on the packet's stack of values.
    Push(FieldRef),
    /// Pops a value from the packet's stack to a field, or some of its bits: the lowest bits of the value.
    Pop(FieldRef),
    /// Removes a field of variable length: an option of a tunnel.
    DeleteField(Field),
    /// Decrements the IP TTL or hop limit. A packet whose TTL is 0 or 1 goes to the controllers with these identifiers, and
    /// the rest of its steps are left out, as in Open vSwitch.
    DecTtl(Vec<u16>),
    /// Decrements the TTL of the outermost label, likewise.
    DecMplsTtl,
    /// Decrements the TTL of NSH.
    DecNshTtl,
    /// Drops the packet where it exceeds the meter's rate, or raises its drop precedence.
    Meter(u32),
    /// Counts the packet and its bytes in a counter of this number.
    Count(u32),
    /// Puts the outer headers of the tunnel of this number in front of the packet. What follows sees these. A packet
    /// that does not fit into the tunnel is dropped, and the rest of its steps are left out.
    Encapsulate(u32),
    /// Adds a header in front of the packet's.
    EncapsulateHeader(EncapsulateHeader),
    /// Removes the outermost header; the packet is then of this type (name space and type), if one is given.
    Decapsulate(Option<(u16, u16)>),
    /// Looks the packet up in a table and takes what it finds there, then goes on behind this action.
    Resubmit {
        /// The port that the table sees instead of the packet's own; `None`: its own.
        in_port: Option<PortNo>,
        /// The table; `None`: the one that the rule is in.
        table: Option<u8>,
        /// The table sees the addresses and ports of the connection's original direction.
        original: bool,
    },
    /// Executes actions on a copy of the packet: what they change and pop is undone behind them.
    Clone(Vec<Action>),
    /// Merges actions into the packet's action set, which is executed when no table follows.
    WriteActions(Vec<Action>),
    /// Empties the packet's action set.
    ClearActions,
    /// Lets a group decide.
    Group(u32),
    /// Adds, changes or removes a rule that is made of the packet.
    Learn(Box<Learn>),
    /// The rule is one of several whose matches are to be met together. The only actions of its rule, with `note`.
    Conjunction {
        /// The value of `conj_id` with which the packet is looked up again, where all are met.
        id: u32,
        /// Which of the dimensions it is for, from 0.
        clause: u8,
        /// The number of dimensions, 2 to 64.
        clauses: u8,
    },
    /// Sets a field to the number of one of several links, by a hash of the packet.
    Multipath(Box<Multipath>),
    /// Sends the packet to one of several ports, by a hash of it, or writes the port to a field.
    Bundle(Box<Bundle>),
    /// At the end of a TCP connection (FIN or RST), shortens the timeouts of the rule.
    FinTimeout {
        /// Seconds without a packet; 0: as it was.
        idle_s: u16,
        /// Seconds after the rule was added; 0: as it was.
        hard_s: u16,
    },
    /// Sets a bit to whether the packet is longer than this.
    CheckPacketLarger {
        /// Bytes, with the Ethernet header.
        bytes: u16,
        /// Where the answer goes; one bit.
        to: FieldRef,
    },
    /// Looks the packet's connection up.
    ConnectionTracking(Box<ConnectionTracking>),
    /// Translates addresses by the packet's connection: within `ct`.
    Nat(Box<Nat>),
    /// Forgets the packet's connection.
    ClearConnection,
    /// Does nothing: bytes for readers of the rule.
    Note(Vec<u8>),
    /// Ends the packet's way: no action and no table follows, nor do those that wait for the end of a `resubmit`.
    Exit,
    /// Goes on in a later table. The last step of a rule.
    Goto(u8),
}

impl Action {
    /// Sets some bits of a field, by the field's own action if it has one: that needs no prerequisites in the match. Bits of a
    /// field that takes no mask are loaded. A value that does not fit is refused where the rule is put to use;
    /// [`try_set_field`](Self::try_set_field) refuses it at once.
    pub fn set_field(field: Field, value: u128, mask: u128) -> Self {
        let info = field.info();
        let form = match mask == info.ones() {
            true if SetForm::Own.own_action(field).is_some() => SetForm::Own,
            false if !info.maskable && FieldRef::of_mask(field, mask).is_some() => SetForm::Load,
            _ => SetForm::SetField,
        };
        Self::SetField { field, value, mask, form, protocol: None }
    }

    /// Sets some bits of a field, as [`set_field`](Self::set_field) does, to a value that may be too large for it.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): the value or the mask is larger than the field.
    pub fn try_set_field(field: Field, value: u128, mask: u128) -> Result<Self, Error> {
        field.info().check_masked(value, mask)?;
        field.info().check(value)?;
        Ok(Self::set_field(field, value, mask & field.info().ones()))
    }

    /// Sends up to `max_len` bytes of each packet to controllers.
    pub fn controller(max_len: u16) -> Self {
        Self::Controller(Box::new(Controller { max_len, ..Controller::default() }))
    }

    /// Samples packets with a probability.
    pub fn sample(probability: u16) -> Self {
        Self::Sample(Box::new(Sample { probability, ..Sample::default() }))
    }

    /// Decrements the IP TTL or hop limit.
    pub fn dec_ttl() -> Self {
        Self::DecTtl(Vec::new())
    }

    /// Goes through a table and comes back.
    pub fn call(table: u8) -> Self {
        Self::Resubmit { in_port: None, table: Some(table), original: false }
    }

    /// Returns whether the action puts a header on the packet: see [`HEADERS_PUSHED_MAX`].
    pub fn pushes_header(&self) -> bool {
        matches!(
            self,
            Self::PushVlan(_) | Self::PushMpls(_) | Self::Encapsulate(_) | Self::EncapsulateHeader(_)
        )
    }

    /// Returns the actions within this one.
    pub fn nested(&self) -> &[Action] {
        match self {
            Self::Clone(actions) | Self::WriteActions(actions) => actions,
            Self::ConnectionTracking(ct) => &ct.exec,
            Self::OutputMaxLen { output, .. } => std::slice::from_ref(output),
            _ => &[],
        }
    }
}
