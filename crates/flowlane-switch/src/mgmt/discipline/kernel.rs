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

/// Gives an interface a discipline. Where it has one of the kind already, its queues are changed, and packets in them stay: `before`, or
/// one that another process has left.
pub(super) fn set_up(index: i32, to: &Discipline, before: Option<&Discipline>) -> io::Result<()> {
    let netlink = Netlink::of(&[])?;
    let before = before.filter(|before| before.kind == to.kind);
    let kept: Option<Vec<u32>> = match before {
        _ if to.root.is_none() => None,
        Some(before) => Some(before.queues.keys().copied().collect()),
        None => {
            let left = left(&netlink, index).ok().flatten().filter(|left| left.kind == to.kind);
            left.and_then(|left| left.queues)
        }
    };
    // Where that fails, an administrator may have changed it.
    if kept.is_some_and(|kept| set_queues(&netlink, index, to, kept.into_iter()).is_ok()) {
        return Ok(());
    }
    take(&netlink, index)?;
    let request = RouteNetlinkMessage::NewQueueDiscipline(encode::discipline(index, to));
    netlink.change(request, NLM_F_CREATE | NLM_F_EXCL)?;
    // Queues of which some are missing would drop packets.
    set_queues(&netlink, index, to, std::iter::empty()).inspect_err(|_| _ = take(&netlink, index))
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

/// A discipline of a kind and handle that are set up here.
struct Left {
    kind: QosKind,
    /// The numbers of its queues; none where it lacks the class that they share.
    queues: Option<Vec<u32>>,
}

/// Looks for the discipline of an interface, if it is of a kind and handle that are set up here.
fn left(netlink: &Netlink, index: i32) -> io::Result<Option<Left>> {
    let kind_of = |message: &TcMessage| {
        let name = message.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(name) => Some(name),
            _ => None,
        })?;
        QosKind::ALL.into_iter().find(|kind| encode::kernel_name(*kind) == name)
    };
    let mut found = None;
    netlink.for_each(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index)), |payload| {
        if let RouteNetlinkMessage::NewQueueDiscipline(message) = payload
            && message.header.index == index
            && (message.header.parent, message.header.handle) == (TcHandle::ROOT, encode::HANDLE)
        {
            found = kind_of(&message);
        }
    })?;
    let Some(kind) = found else { return Ok(None) };
    let (mut queues, mut has_shared) = (Vec::new(), false);
    for_each_class(netlink, index, |class| {
        has_shared |= encode::is_shared(class.header.handle);
        queues.extend(encode::queue_of(class.header.handle));
    })?;
    Ok(Some(Left { kind, queues: has_shared.then_some(queues) }))
}

/// Takes the discipline from an interface, if it is of a kind and handle that are set up here, and (`is_certain`) has the class that
/// queues share.
pub(super) fn remove_left(index: i32, is_certain: bool) -> io::Result<()> {
    let netlink = Netlink::of(&[])?;
    let left = left(&netlink, index)?;
    match left.filter(|left| !is_certain || left.queues.is_some()) {
        Some(_) => take(&netlink, index),
        None => Ok(()),
    }
}

/// Looks at all classes of an interface.
fn for_each_class(netlink: &Netlink, index: i32, mut look: impl FnMut(&TcMessage)) -> io::Result<()> {
    netlink.for_each(RouteNetlinkMessage::GetTrafficClass(TcMessage::with_index(index)), |payload| {
        if let RouteNetlinkMessage::NewTrafficClass(class) = payload
            && class.header.index == index
        {
            look(&class);
        }
    })
}

/// The counters of the queues of an interface, by number.
pub(super) fn counters(index: i32) -> io::Result<BTreeMap<u32, QueueCounters>> {
    let netlink = Netlink::of(&[])?;
    let mut all = BTreeMap::new();
    for_each_class(&netlink, index, |class| {
        all.extend(encode::queue_of(class.header.handle).map(|queue| (queue, counters_of(class))));
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
