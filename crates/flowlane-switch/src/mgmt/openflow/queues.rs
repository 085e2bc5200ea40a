//! Queues of ports: their statistics and configurations.

use flowlane::rule::action::PortNo;
use flowlane_openflow::ErrorCode;
use flowlane_openflow::stats::{QueueConfig, QueueStats};

use super::service::Service;
use crate::mgmt::rpc::QueueState;

/// The queues that a request asks for.
///
/// # Errors
/// Where there is no such port, or none of the ports has the queue: `unknown`.
fn asked(
    service: &Service,
    port: Option<PortNo>,
    queue: Option<u32>,
    unknown: ErrorCode,
) -> Result<Vec<QueueState>, ErrorCode> {
    if port.is_some_and(|port| !service.ports().iter().any(|one| one.number == port)) {
        return Err(ErrorCode::QueueBadPort);
    }
    let mut queues = service.queues(port);
    queues.retain(|one| queue.is_none_or(|queue| one.queue == queue));
    if queue.is_some() && queues.is_empty() { Err(unknown) } else { Ok(queues) }
}

/// The statistics of queues.
///
/// # Errors
/// Where there is no such port or queue.
pub(super) fn statistics(
    service: &Service,
    port: Option<PortNo>,
    queue: Option<u32>,
) -> Result<Vec<QueueStats>, ErrorCode> {
    let queues = asked(service, port, queue, ErrorCode::QueueBadQueue)?;
    let stats = |state: QueueState| QueueStats {
        port: state.port,
        queue: state.queue,
        tx_bytes: state.counters.bytes,
        tx_packets: state.counters.packets,
        tx_errors: state.counters.dropped,
        duration_s: state.age.as_secs() as u32,
        duration_ns: state.age.subsec_nanos(),
    };
    Ok(queues.into_iter().map(stats).collect())
}

/// The configurations of queues. As in Open vSwitch, these are their numbers: OpenFlow has rates as parts of the link's, which the
/// queues here do not have.
///
/// # Errors
/// Where there is no such port or queue.
pub(super) fn configurations(
    service: &Service,
    port: Option<PortNo>,
    queue: Option<u32>,
) -> Result<Vec<QueueConfig>, ErrorCode> {
    let queues = asked(service, port, queue, ErrorCode::NiciraQueueQueueError)?;
    let config = |QueueState { port, queue, .. }| QueueConfig { port, queue, min_rate: None, max_rate: None };
    Ok(queues.into_iter().map(config).collect())
}
