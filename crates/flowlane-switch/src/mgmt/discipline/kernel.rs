//! Requests to the kernel's traffic control (rtnetlink(7)).

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use super::{Discipline, encode};
use crate::mgmt::config::QosKind;
use crate::mgmt::netlink::Netlink;

/// The counters of sent packets of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
}

/// Gives an interface a discipline. Where it has one of the kind already, its queues are changed, and packets in them stay.
pub(super) fn set_up(index: i32, to: &Discipline, before: Option<&Discipline>) -> io::Result<()> {
    let netlink = Netlink::of(&[])?;
    let before = before.filter(|before| before.kind == to.kind && to.root.is_some());
    let done = match before {
        Some(before) => set_queues(&netlink, index, to, before.queues.keys().copied()),
        None => {
            take(&netlink, index)?;
            let request = RouteNetlinkMessage::NewQueueDiscipline(encode::discipline(index, to));
            netlink.change(request, NLM_F_CREATE | NLM_F_EXCL)?;
            set_queues(&netlink, index, to, std::iter::empty())
        }
    };
    // Queues of which some are missing would drop packets.
    done.inspect_err(|_| _ = take(&netlink, index))
}

/// Makes and changes the queues of a discipline, and removes those that it has no more.
fn set_queues(
    netlink: &Netlink,
    index: i32,
    to: &Discipline,
    before: impl Iterator<Item = u32>,
) -> io::Result<()> {
    let make = |class: TcMessage| netlink.change(RouteNetlinkMessage::NewTrafficClass(class), NLM_F_CREATE);
    if let Some(root) = &to.root {
        make(encode::shared(index, to, root))?;
    }
    to.queues.iter().try_for_each(|(number, class)| make(encode::queue(index, to, *number, class)))?;
    for gone in before.filter(|number| !to.queues.contains_key(number)) {
        netlink.change(RouteNetlinkMessage::DelTrafficClass(encode::queue_name(index, gone)), 0)?;
    }
    Ok(())
}

/// Takes the discipline from an interface.
pub(super) fn remove(index: i32) -> io::Result<()> {
    take(&Netlink::of(&[])?, index)
}

fn take(netlink: &Netlink, index: i32) -> io::Result<()> {
    match netlink.change(RouteNetlinkMessage::DelQueueDiscipline(encode::root(index)), 0) {
        // It has the system's own, which cannot be removed.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
        done => done,
    }
}

/// Takes the discipline from an interface, if it is of a kind and handle that are set up here.
pub(super) fn remove_left(index: i32) -> io::Result<()> {
    let netlink = Netlink::of(&[])?;
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    let is_left = |message: &TcMessage| {
        let is_ours = |attribute: &TcAttribute| match attribute {
            TcAttribute::Kind(name) => QosKind::ALL.into_iter().any(|kind| encode::kernel_name(kind) == name),
            _ => false,
        };
        let header = &message.header;
        let is_root = header.index == index && header.parent == TcHandle::ROOT;
        is_root && header.handle == encode::HANDLE && message.attributes.iter().any(is_ours)
    };
    let mut found = false;
    netlink.for_each(request, |payload| {
        if let RouteNetlinkMessage::NewQueueDiscipline(message) = payload {
            found |= is_left(&message);
        }
    })?;
    if found { take(&netlink, index) } else { Ok(()) }
}

/// The counters of the queues of an interface, by number.
pub(super) fn counters(index: i32) -> io::Result<BTreeMap<u32, QueueCounters>> {
    let netlink = Netlink::of(&[])?;
    let mut all = BTreeMap::new();
    netlink.for_each(RouteNetlinkMessage::GetTrafficClass(TcMessage::with_index(index)), |payload| {
        if let RouteNetlinkMessage::NewTrafficClass(class) = payload
            && class.header.index == index
            && let Some(queue) = encode::queue_of(class.header.handle)
        {
            all.insert(queue, counters_of(&class));
        }
    })?;
    Ok(all)
}

fn counters_of(class: &TcMessage) -> QueueCounters {
    let mut counters = QueueCounters::default();
    for attribute in &class.attributes {
        let TcAttribute::Stats2(all) = attribute else { continue };
        for part in all {
            match part {
                TcStats2::Basic(basic) => {
                    (counters.packets, counters.bytes) = (basic.packets.into(), basic.bytes);
                }
                TcStats2::Queue(queue) => counters.dropped = queue.drops.into(),
                _ => {}
            }
        }
    }
    counters
}
