//! Disciplines and classes as the kernel's requests have them (linux/pkt_sched.h).

use netlink_packet_core::{DefaultNla, Emitable};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcQdiscFqCodelOption};

use super::{Class, Discipline};
use crate::mgmt::config::QosKind;

/// The discipline.
pub(super) const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };
/// The class that queues share.
const ROOT_CLASS: u16 = 0xfffe;
/// The class of packets that choose no queue: that of queue 0.
const DEFAULT_CLASS: u16 = 1;

/// The kernel counts time of bursts and delays in units of 64 ns (PSCHED_SHIFT), since Linux 2.6.31.
const TICKS_PER_S: u64 = 1_000_000_000 / 64;
/// Shorter frames take as much of a rate as these: those of Ethernet, without checksum.
const FRAME_BYTES_MIN: u16 = 60;
/// The size of tables by which older programs make a rate known: cells of 2^3 bytes.
const CELL_LOG: u8 = 3;
/// TC_LINKLAYER_ETHERNET: there is no such table.
const ETHERNET: u8 = 1;
/// A class of less than 10 times its MTU a second sends an MTU at a time (r2q).
const RATE_TO_QUANTUM: u32 = 10;

const TCA_OPTIONS: u16 = 2;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_HFSC_RSC: u16 = 1;
const TCA_HFSC_FSC: u16 = 2;
const TCA_HFSC_USC: u16 = 3;
const TCA_CODEL_TARGET: u16 = 1;
const TCA_CODEL_LIMIT: u16 = 2;
const TCA_CODEL_INTERVAL: u16 = 3;

/// The kernel's name of a discipline.
pub(super) fn kernel_name(kind: QosKind) -> &'static str {
    kind.name().trim_start_matches("linux-")
}

/// A request about an interface.
fn request(index: i32, handle: TcHandle, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(index);
    (message.header.handle, message.header.parent) = (handle, parent);
    message
}

/// The request that names the discipline of an interface, whichever it is.
pub(super) fn root(index: i32) -> TcMessage {
    request(index, TcHandle::UNSPEC, TcHandle::ROOT)
}

/// The request that makes a discipline.
pub(super) fn discipline(index: i32, discipline: &Discipline) -> TcMessage {
    let mut message = request(index, HANDLE, TcHandle::ROOT);
    message.attributes =
        vec![TcAttribute::Kind(kernel_name(discipline.kind).to_owned()), options(discipline)];
    message
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn raw(bytes: Vec<u8>) -> TcAttribute {
    TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes))
}

fn nested(parts: Vec<(u16, Vec<u8>)>) -> TcAttribute {
    let parts: Vec<DefaultNla> =
        parts.into_iter().map(|(kind, bytes)| DefaultNla::new(kind, bytes)).collect();
    let mut bytes = vec![0; parts.as_slice().buffer_len()];
    parts.as_slice().emit(&mut bytes);
    raw(bytes)
}

/// Delays in the kernel's unit.
fn ticks(us: u32) -> u32 {
    (u64::from(us) * TICKS_PER_S / 1_000_000).min(u32::MAX.into()) as u32
}

fn options(of: &Discipline) -> TcAttribute {
    match of.kind {
        // struct tc_htb_glob: version, r2q, default class, debug, packets past all classes.
        QosKind::Htb => {
            nested(vec![(TCA_HTB_INIT, words(&[3, RATE_TO_QUANTUM, DEFAULT_CLASS.into(), 0, 0]))])
        }
        // struct tc_hfsc_qopt.
        QosKind::Hfsc => raw(DEFAULT_CLASS.to_ne_bytes().to_vec()),
        // struct tc_sfq_qopt: quantum, perturbation, and the kernel's defaults of limit, divisor and flows.
        QosKind::Sfq => raw(words(&[of.setting("quantum"), of.setting("perturb"), 0, 0, 0])),
        QosKind::Codel => nested(vec![
            (TCA_CODEL_TARGET, words(&[of.setting("target")])),
            (TCA_CODEL_LIMIT, words(&[of.setting("limit")])),
            (TCA_CODEL_INTERVAL, words(&[of.setting("interval")])),
        ]),
        QosKind::FqCodel => TcAttribute::Options(vec![
            TcOption::FqCodel(TcQdiscFqCodelOption::Target(of.setting("target"))),
            TcOption::FqCodel(TcQdiscFqCodelOption::Limit(of.setting("limit"))),
            TcOption::FqCodel(TcQdiscFqCodelOption::Interval(of.setting("interval"))),
            TcOption::FqCodel(TcQdiscFqCodelOption::Flows(of.setting("flows"))),
            TcOption::FqCodel(TcQdiscFqCodelOption::Quantum(of.setting("quantum"))),
        ]),
        // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
        QosKind::Netem => {
            let loss = u64::from(of.setting("loss").min(100)) * u64::from(u32::MAX) / 100;
            raw(words(&[ticks(of.setting("latency")), of.setting("limit"), loss as u32, 0, 0, 0]))
        }
        QosKind::Noop => nested(Vec::new()),
    }
}

/// The request that makes a queue, or changes it.
pub(super) fn queue(index: i32, of: &Discipline, number: u32, class: &Class) -> TcMessage {
    class_of(index, of, (number as u16 + 1, ROOT_CLASS), class)
}

/// The request that names a queue.
pub(super) fn queue_name(index: i32, number: u32) -> TcMessage {
    request(index, TcHandle { minor: number as u16 + 1, ..HANDLE }, TcHandle::UNSPEC)
}

/// The request that makes what queues share, or changes it.
pub(super) fn shared(index: i32, of: &Discipline, class: &Class) -> TcMessage {
    class_of(index, of, (ROOT_CLASS, 0), class)
}

/// Returns whether a class is what queues share.
pub(super) fn is_shared(handle: TcHandle) -> bool {
    handle == TcHandle { minor: ROOT_CLASS, ..HANDLE }
}

/// The number of the queue that a class is.
pub(super) fn queue_of(handle: TcHandle) -> Option<u32> {
    let is_queue = handle.major == HANDLE.major && handle.minor != 0 && handle.minor != ROOT_CLASS;
    is_queue.then(|| u32::from(handle.minor) - 1)
}

fn class_of(index: i32, of: &Discipline, (minor, parent): (u16, u16), class: &Class) -> TcMessage {
    let handle = |minor| TcHandle { minor, ..HANDLE };
    let mut message = request(index, handle(minor), handle(parent));
    let options = if of.kind == QosKind::Htb { htb(class, of.mtu) } else { hfsc(class) };
    message.attributes = vec![TcAttribute::Kind(kernel_name(of.kind).to_owned()), options];
    message
}

/// struct tc_ratespec.
fn rate_spec(rate: u64) -> Vec<u8> {
    let [a, b] = FRAME_BYTES_MIN.to_ne_bytes();
    let mut bytes = vec![CELL_LOG, ETHERNET, 0, 0, 0, 0, a, b];
    bytes.extend_from_slice(&rate.min(u32::MAX.into()).to_ne_bytes()[..4]);
    bytes
}

/// Class of `htb`: struct tc_htb_opt, and rates that do not fit into it.
fn htb(class: &Class, mtu: u32) -> TcAttribute {
    let time = |rate: u64| {
        let ticks = u128::from(class.burst.max(mtu.into())) * u128::from(TICKS_PER_S) / u128::from(rate);
        ticks.min(u32::MAX.into()) as u32
    };
    let quantum = if class.min_rate / u64::from(RATE_TO_QUANTUM) < u64::from(mtu) { mtu } else { 0 };
    let mut options = [rate_spec(class.min_rate), rate_spec(class.max_rate)].concat();
    options.extend(words(&[time(class.min_rate), time(class.max_rate), quantum, 0, class.priority]));
    let mut parts = vec![(TCA_HTB_PARMS, options)];
    for (kind, rate) in [(TCA_HTB_RATE64, class.min_rate), (TCA_HTB_CEIL64, class.max_rate)] {
        if u32::try_from(rate).is_err() {
            parts.push((kind, rate.to_ne_bytes().to_vec()));
        }
    }
    nested(parts)
}

/// Class of `hfsc`: service curves without a first part (struct tc_service_curve).
fn hfsc(class: &Class) -> TcAttribute {
    let curve = |rate: u64| words(&[0, 0, rate.min(u32::MAX.into()) as u32]);
    nested(vec![
        (TCA_HFSC_RSC, curve(class.min_rate)),
        (TCA_HFSC_FSC, curve(class.min_rate)),
        (TCA_HFSC_USC, curve(class.max_rate)),
    ])
}
