//! The things that actions refer to by number.

use super::{Action, LearnSource, LearnSpec, PortNo, Zone};
use crate::packet::FieldRef;

/// Something that an action refers to, which may not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// A port that packets are sent to.
    Port(PortNo),
    /// A meter.
    Meter(u32),
    /// A tunnel that packets leave through.
    Tunnel(u32),
    /// A group.
    Group(u32),
    /// A table that packets go on in, and do not come back from.
    Table(u8),
    /// An option of tunnels, by the number of its field.
    Option(usize),
}

impl Action {
    /// The things that the action itself refers to, without those of [nested](Self::nested) ones. Ports that OpenFlow reserves are
    /// not among them, nor the tables of `resubmit`: a table that does not exist is an empty one.
    pub fn references(&self) -> Vec<Reference> {
        let options = self.fields().into_iter().filter_map(|part| part.field().tun_metadata_number());
        self.things().into_iter().chain(options.map(Reference::Option)).collect()
    }

    /// The fields that the action itself reads or writes, or that the rules that it adds do, without those of
    /// [nested](Self::nested) ones.
    pub fn fields(&self) -> Vec<FieldRef> {
        match self {
            Self::OutputField { port, .. } => vec![*port],
            Self::SetField { field, .. } | Self::DeleteField(field) => vec![FieldRef::whole(*field)],
            Self::Move { from, to } => vec![*from, *to],
            Self::Push(part) | Self::Pop(part) => vec![*part],
            Self::Multipath(multipath) => vec![multipath.to],
            Self::Bundle(bundle) => bundle.to.into_iter().collect(),
            Self::CheckPacketLarger { to, .. } => vec![*to],
            Self::Learn(learn) => {
                learn.specs.iter().flat_map(LearnSpec::fields).chain(learn.result).collect()
            }
            Self::ConnectionTracking(tracking) => match tracking.zone {
                Zone::Field(zone) => vec![zone],
                Zone::Number(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn things(&self) -> Vec<Reference> {
        match self {
            Self::OutputTruncated { port: PortNo::IN_PORT, .. } => Vec::new(),
            Self::Output(port) | Self::OutputTruncated { port, .. } | Self::Enqueue { port, .. } => {
                vec![Reference::Port(*port)]
            }
            Self::Bundle(bundle) => bundle.members.iter().copied().map(Reference::Port).collect(),
            Self::Meter(meter) => vec![Reference::Meter(*meter)],
            Self::Encapsulate(tunnel) => vec![Reference::Tunnel(*tunnel)],
            Self::Group(group) => vec![Reference::Group(*group)],
            Self::Goto(table) => vec![Reference::Table(*table)],
            // The meter of a controller need not be there: as in Open vSwitch, that of all packets for controllers is used in place of it.
            Self::Controller(_)
            | Self::OutputMaxLen { .. }
            | Self::OutputField { .. }
            | Self::InPort
            | Self::Flood
            | Self::All
            | Self::Normal
            | Self::Sample(_)
            | Self::SetQueue(_)
            | Self::PopQueue
            | Self::PushVlan(_)
            | Self::PopVlan
            | Self::PushMpls(_)
            | Self::PopMpls(_)
            | Self::SetField { .. }
            | Self::Move { .. }
            | Self::Push(_)
            | Self::Pop(_)
            | Self::DeleteField(_)
            | Self::DecTtl(_)
            | Self::DecMplsTtl
            | Self::DecNshTtl
            | Self::Count(_)
            | Self::EncapsulateHeader(_)
            | Self::Decapsulate(_)
            | Self::Resubmit { .. }
            | Self::Clone(_)
            | Self::WriteActions(_)
            | Self::ClearActions
            | Self::Learn(_)
            | Self::Conjunction { .. }
            | Self::Multipath(_)
            | Self::FinTimeout { .. }
            | Self::CheckPacketLarger { .. }
            | Self::ConnectionTracking(_)
            | Self::Nat(_)
            | Self::ClearConnection
            | Self::Note(_)
            | Self::Exit => Vec::new(),
        }
    }
}

impl LearnSpec {
    fn fields(&self) -> Vec<FieldRef> {
        match self {
            Self::Match { to, from } | Self::Load { to, from } => match from {
                LearnSource::Field(from) => vec![*to, *from],
                LearnSource::Value(_) => vec![*to],
            },
            Self::Output(port) => vec![*port],
        }
    }
}
