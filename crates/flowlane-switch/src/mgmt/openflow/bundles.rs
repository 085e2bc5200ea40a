//! Bundles: changes that controllers collect, to be made together (OpenFlow 1.4.1, 6.8).

use flowlane::rule::{Action, FlowMod};
use flowlane_openflow::message::{BundleControl, BundleControlKind, Message, PacketOut};
use flowlane_openflow::port::PortMod;
use flowlane_openflow::{ErrorCode, Header};

use super::session::{ERROR_DATA, Session, checked, error, group_mod, packet_of};
use super::{errors, ports};
use crate::control::{BundleError, Changes, GroupMod};
use crate::mgmt::rpc::Taken;

/// Bundles that a connection may have open.
const BUNDLES_MAX: usize = 16;

/// A bundle that is open.
pub(super) struct Bundle {
    is_closed: bool,
    /// The bytes of its messages.
    taken: Taken,
    groups: Vec<(GroupMod, Request)>,
    rules: Vec<(FlowMod, Request)>,
    ports: Vec<(PortMod, Request)>,
    /// Packets to be sent once the changes are made.
    packets: Vec<(PacketOut, Request)>,
}

/// The request that added a message, for the error if its change is refused.
struct Request(Box<[u8]>);

/// The request whose change is refused, and why.
type Failed = (Request, ErrorCode);

impl Session {
    /// Executes a step of a bundle.
    pub(super) fn bundle(&mut self, request: BundleControl) -> Result<BundleControl, ErrorCode> {
        use BundleControlKind::{
            CloseReply, CloseRequest, CommitReply, CommitRequest, DiscardReply, DiscardRequest, OpenReply,
            OpenRequest,
        };
        let id = request.bundle;
        let kind = match request.kind {
            OpenRequest if self.bundles.contains_key(&id) => return Err(ErrorCode::BundleBadId),
            OpenRequest if self.bundles.len() == BUNDLES_MAX => return Err(ErrorCode::BundleOutOfBundles),
            OpenRequest => {
                self.bundles.insert(id, self.new_bundle());
                OpenReply
            }
            CloseRequest => {
                let bundle = self.bundles.get_mut(&id).ok_or(ErrorCode::BundleBadId)?;
                if std::mem::replace(&mut bundle.is_closed, true) {
                    return Err(ErrorCode::BundleClosed);
                }
                CloseReply
            }
            CommitRequest => {
                let bundle = self.bundles.remove(&id).ok_or(ErrorCode::BundleBadId)?;
                self.commit(bundle)?;
                CommitReply
            }
            DiscardRequest => {
                self.bundles.remove(&id).ok_or(ErrorCode::BundleBadId)?;
                DiscardReply
            }
            OpenReply | CloseReply | CommitReply | DiscardReply => return Err(ErrorCode::BundleBadType),
        };
        Ok(BundleControl { kind, ..request })
    }

    /// Adds the message of a request to a bundle.
    pub(super) fn add_to_bundle(
        &mut self,
        id: u32,
        message: Message,
        request: &[u8],
    ) -> Result<(), ErrorCode> {
        if self.bundles.len() == BUNDLES_MAX && !self.bundles.contains_key(&id) {
            return Err(ErrorCode::BundleOutOfBundles);
        }
        if !self.bundles.contains_key(&id) {
            self.bundles.insert(id, self.new_bundle());
        }
        let version = self.state().codec.version;
        let bundle = self.bundles.get_mut(&id).expect("it is there now");
        if bundle.is_closed {
            return Err(ErrorCode::BundleClosed);
        }
        if !bundle.taken.grow(request.len()) {
            return Err(ErrorCode::BundleMsgTooMany);
        }
        let request = Request(request[..request.len().min(ERROR_DATA)].into());
        match message {
            Message::FlowMod(one) => bundle.rules.push((checked(&one, version)?, request)),
            Message::GroupMod(one) => bundle.groups.push((group_mod(one)?, request)),
            Message::PortMod(one) => bundle.ports.push((one, request)),
            Message::PacketOut(one) => bundle.packets.push((packet_of(one)?, request)),
            _ => return Err(ErrorCode::BundleMsgUnsup),
        }
        Ok(())
    }

    fn new_bundle(&self) -> Bundle {
        let taken = self.shared.bundles.take(0).expect("nothing can always be taken");
        let (groups, rules, ports, packets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Bundle { is_closed: false, taken, groups, rules, ports, packets }
    }

    /// Makes the changes of a bundle, all or none, and then sends its packets. As in Open vSwitch, the request whose change is refused gets its error belatedly,
    /// and the commit one that says so.
    fn commit(&mut self, mut bundle: Bundle) -> Result<(), ErrorCode> {
        let packets = std::mem::take(&mut bundle.packets);
        let (packets, of_packets): (Vec<PacketOut>, Vec<Request>) = packets.into_iter().unzip();
        let added: Vec<u32> = bundle.groups.iter().filter_map(|(change, _)| added(change)).collect();
        let checked = packets.iter().zip(of_packets).try_for_each(|(packet, request)| {
            let done = match names_any(&packet.actions, &added) {
                true => Ok(()),
                false => self.shared.service.check_packet_out(&packet.actions),
            };
            done.map_err(|error| (request, errors::of_refusal(&error)))
        });
        checked.and_then(|()| self.make(bundle)).map_err(|(Request(request), code)| {
            let xid = Header::read(&request).map_or(0, |header| header.xid);
            let codec = self.state().codec.clone();
            self.belated = codec.encode(xid, &error(code, &request)).unwrap_or_default();
            ErrorCode::BundleMsgFailed
        })?;
        // One for a group that the bundle itself removes goes nowhere.
        packets.into_iter().for_each(|packet| _ = self.send_packet(packet));
        Ok(())
    }

    /// Makes changes: groups, which rules may name, then rules and ports.
    fn make(&self, bundle: Bundle) -> Result<(), Failed> {
        let (service, version) = (&self.shared.service, self.state().codec.version);
        let (groups, mut of_groups): (Vec<GroupMod>, Vec<Request>) = bundle.groups.into_iter().unzip();
        let (rules, mut of_rules): (Vec<FlowMod>, Vec<Request>) = bundle.rules.into_iter().unzip();
        let (mut ports, mut of_ports) = (Vec::new(), Vec::new());
        for (change, request) in bundle.ports {
            match ports::change(service, version, &change) {
                Ok(change) => ports.push(change),
                Err(code) => return Err((request, code)),
            }
            of_ports.push(request);
        }
        let changes = Changes { groups: &groups, rules: &rules, ports: &ports, ..Changes::default() };
        service.change(&changes, self.requester()).map_err(|error| {
            let request = match error {
                BundleError::Group { at, .. } => of_groups.swap_remove(at),
                BundleError::Rule(ref refused) => of_rules.swap_remove(refused.at),
                BundleError::Port { at, .. } => of_ports.swap_remove(at),
            };
            (request, errors::of_changes(&error))
        })
    }
}

/// The group that a change adds.
fn added(change: &GroupMod) -> Option<u32> {
    match change {
        GroupMod::Add(group) => Some(group.id),
        _ => None,
    }
}

/// Returns whether actions name one of some groups.
fn names_any(actions: &[Action], groups: &[u32]) -> bool {
    actions.iter().any(|action| {
        matches!(action, Action::Group(group) if groups.contains(group)) || names_any(action.nested(), groups)
    })
}
