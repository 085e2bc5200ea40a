//! Limits of interfaces that a database asks for: ingress policing of Interface, and the QoS of Port (ovs-vswitchd.conf.db(5)).
//!
//! The types `linux-*` of QoS are disciplines of the kernel's queues, on interfaces of the system, on those of bridges and on TAPs
//! (`mgmt/discipline`). `egress-policer`, which Open vSwitch's user space has for ports of DPDK, is there on every port.

use std::fmt::Write as _;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Atom, Datum, Replica, Row};

use super::bridge::Bridge;
use super::model::InterfaceSpec;
use crate::mgmt::config::{QosKind, QosSection, QueueSection};
use crate::mgmt::rpc::ControlServer;
use crate::state::policer::{Policer, PortPolicers, ReceiveLimits, SendLimit};

/// The type of QoS that has a policer.
const EGRESS_POLICER: &str = "egress-policer";

/// The QoS of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum QosSpec {
    /// A discipline of the kernel; the queues of `dscps` are to mark packets, too.
    Discipline { qos: QosSection, dscps: Vec<u32> },
    /// `egress-policer`: `other_config:cir`, in bytes a second, and `other_config:cbs`, in bytes.
    Policer { cir: Option<u64>, cbs: Option<u64> },
    /// Of a type that there is not.
    Unknown(String),
}

/// Reads a number of a map, if it is one.
fn number<T: std::str::FromStr>(config: &Datum, key: &str) -> Option<T> {
    config.get(key).and_then(|text| text.parse().ok())
}

/// Reads the queues of a QoS, by their numbers: their settings, and whether they are to mark packets.
fn queues<'a>(replica: &'a Replica, row: &'a Row) -> impl Iterator<Item = (QueueSection, bool)> + 'a {
    let map = if let Datum::Map(pairs) = row.get("queues") { Some(pairs) } else { None };
    map.into_iter().flatten().filter_map(|(key, value)| {
        let (Atom::Integer(key), Atom::Uuid(uuid)) = (key, value) else { return None };
        let queue = replica.row("Queue", *uuid)?;
        let config = queue.get("other_config");
        let section = QueueSection {
            number: u32::try_from(*key).ok()?,
            min_rate_bps: number(config, "min-rate"),
            max_rate_bps: number(config, "max-rate"),
            burst_bits: number(config, "burst"),
            priority: number(config, "priority"),
        };
        Some((section, queue.get("dscp").integer().is_some()))
    })
}

impl QosSpec {
    /// Reads the QoS of a port, if it has one.
    pub(super) fn read(replica: &Replica, port: &Row) -> Option<Self> {
        let row = replica.row("QoS", port.get("qos").uuids().next()?)?;
        let config = row.get("other_config");
        let name = row.get("type").text().unwrap_or_default();
        if name == EGRESS_POLICER {
            return Some(Self::Policer { cir: number(config, "cir"), cbs: number(config, "cbs") });
        }
        let Some(kind) = QosKind::ALL.into_iter().find(|kind| kind.name() == name) else {
            return Some(Self::Unknown(name.to_owned()));
        };
        let all: Vec<(QueueSection, bool)> = queues(replica, row).collect();
        let dscps = all.iter().filter(|(_, marks)| *marks).map(|(queue, _)| queue.number).collect();
        let qos = QosSection {
            max_rate_bps: number(config, "max-rate"),
            queue: all.into_iter().map(|(queue, _)| queue).collect(),
            quantum_bytes: number(config, "quantum"),
            perturb_s: number(config, "perturb"),
            limit_packets: number(config, "limit"),
            target_us: number(config, "target"),
            interval_us: number(config, "interval"),
            flows: number(config, "flows"),
            latency_us: number(config, "latency"),
            loss_percent: number(config, "loss"),
            ..QosSection::new(kind)
        };
        Some(Self::Discipline { qos, dscps })
    }

    /// The limit of sent packets, if it is a policer.
    ///
    /// # Errors
    /// Why the QoS has no effect.
    fn limit(&self) -> Result<Option<SendLimit>, String> {
        match *self {
            Self::Discipline { .. } => Ok(None),
            Self::Policer { cir: Some(rate_bytes @ 1..), cbs: Some(burst_bytes @ 1..) } => {
                Ok(Some(SendLimit { rate_bytes, burst_bytes }))
            }
            Self::Policer { .. } => {
                Err(format!("QoS type {EGRESS_POLICER} needs other_config:cir and other_config:cbs"))
            }
            Self::Unknown(ref name) => {
                let known = QosKind::ALL.map(QosKind::name).join(", ");
                Err(format!("QoS type {name} is not supported; there are {EGRESS_POLICER}, {known}"))
            }
        }
    }
}

/// The limits of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LimitsSpec {
    received: ReceiveLimits,
    qos: Option<QosSpec>,
}

impl LimitsSpec {
    /// Reads the limits of an interface of a port.
    pub(super) fn read(replica: &Replica, port: &Row, interface: &Row) -> Self {
        let number =
            |column| interface.get(column).integer().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let received = ReceiveLimits {
            rate_kbps: number("ingress_policing_rate"),
            burst_kbit: number("ingress_policing_burst"),
            rate_kpps: number("ingress_policing_kpkts_rate"),
            burst_kpackets: number("ingress_policing_kpkts_burst"),
        };
        Self { received, qos: QosSpec::read(replica, port) }
    }

    /// The policers of a port, if it has any.
    pub(super) fn policers(&self) -> Option<Arc<PortPolicers>> {
        let received = Policer::of_received(&self.received);
        let sent = self.send_limit().map(|limit| Policer::of_sent(&limit));
        let has_any = received.is_some() || sent.is_some();
        has_any.then(|| Arc::new(PortPolicers { received, sent }))
    }

    /// Why the QoS has no effect, if it has none.
    pub(super) fn problem(&self) -> Option<String> {
        self.qos.as_ref()?.limit().err()
    }

    fn send_limit(&self) -> Option<SendLimit> {
        self.qos.as_ref().and_then(|qos| qos.limit().ok().flatten())
    }

    /// The discipline of the kernel that the port's interface is to have.
    fn discipline(&self) -> Option<&QosSection> {
        match &self.qos {
            Some(QosSpec::Discipline { qos, .. }) => Some(qos),
            _ => None,
        }
    }

    /// Describes the QoS of an interface, whose port has a number, as `qos/show` does.
    pub(super) fn show(&self, interface: &str, port: u32, served: &ControlServer) -> String {
        let Some(SendLimit { rate_bytes, burst_bytes }) = self.send_limit() else {
            let shown = served.show_qos(PortNo(port));
            return shown.unwrap_or_else(|| format!("QoS not configured on {interface}\n"));
        };
        let mut out = format!("QoS: {interface} {EGRESS_POLICER}\n");
        _ = writeln!(out, "cir: {rate_bytes}\ncbs: {burst_bytes}");
        out
    }
}

/// Returns whether the frames of an interface go through the queues of the kernel.
fn has_disciplines(interface: &InterfaceSpec) -> bool {
    matches!(&*interface.kind, "" | "system" | "internal" | "tap")
}

impl Bridge {
    /// Limits the packets that a port receives and sends; `before` are the settings that it follows already.
    pub(super) fn follow_limits(&mut self, number: u32, before: Option<&InterfaceSpec>, now: &InterfaceSpec) {
        let limits_before = before.map(|before| before.limits.clone()).unwrap_or_default();
        if now.limits != limits_before {
            self.served().control().set_policers(PortNo(number), now.limits.policers());
            let problem = now.limits.problem();
            self.problems.extend(problem.map(|problem| format!("{}: {problem}", now.name)));
        }
        if before.is_none() || now.limits.qos != limits_before.qos {
            let problem = self.follow_discipline(number, before.is_none(), now).err();
            self.problems.extend(problem.map(|problem| format!("{}: {problem}", now.name)));
        }
    }

    /// Gives a port's interface the discipline that it is to have, or takes it.
    fn follow_discipline(&self, number: u32, is_new: bool, now: &InterfaceSpec) -> Result<(), String> {
        let wanted = now.limits.discipline();
        let Some(qos) = wanted else {
            self.served().remove_qos(PortNo(number));
            // As Open vSwitch does, with what a daemon before this one has set up.
            if is_new && has_disciplines(now) {
                ControlServer::remove_left_qos(&now.name);
            }
            return Ok(());
        };
        if !has_disciplines(now) {
            let kind = qos.kind.name();
            return Err(format!("QoS type {kind} is for interfaces of type system, internal and tap"));
        }
        self.served().set_qos(PortNo(number), &now.name, qos)?;
        match &now.limits.qos {
            Some(QosSpec::Discipline { dscps, .. }) if !dscps.is_empty() => {
                Err(format!("column dscp of queues {dscps:?} is set, which is not supported"))
            }
            _ => Ok(()),
        }
    }
}

/// The types of QoS of an interface, as `qos/show-types` lists them.
pub(super) fn types(interface: &InterfaceSpec) -> String {
    let kernels = QosKind::ALL.into_iter().filter(|_| has_disciplines(interface)).map(QosKind::name);
    let names = kernels.chain([EGRESS_POLICER]);
    names.map(|name| format!("QoS type: {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(qos: QosSpec) -> LimitsSpec {
        LimitsSpec { received: ReceiveLimits::default(), qos: Some(qos) }
    }

    #[test]
    fn a_type_that_is_not_supported_has_a_reason_and_no_policer() {
        let other = spec(QosSpec::Unknown("trtcm-policer".to_owned()));
        let reason = "QoS type trtcm-policer is not supported; there are egress-policer, linux-htb, ";
        assert!(other.problem().unwrap().starts_with(reason) && other.policers().is_none());
        for (cir, cbs) in [(None, Some(1)), (Some(1), None), (Some(0), Some(1)), (Some(1), Some(0))] {
            let incomplete = spec(QosSpec::Policer { cir, cbs });
            assert!(incomplete.problem().unwrap().contains("needs") && incomplete.policers().is_none());
        }
        let policer = spec(QosSpec::Policer { cir: Some(46_000_000), cbs: Some(2048) });
        let policers = policer.policers().unwrap();
        assert!(policers.sent.is_some() && policers.received.is_none() && policer.problem().is_none());
        assert!(LimitsSpec::default().policers().is_none() && LimitsSpec::default().problem().is_none());
        let discipline = QosSpec::Discipline { qos: QosSection::new(QosKind::Htb), dscps: Vec::new() };
        let discipline = spec(discipline);
        assert!(discipline.policers().is_none() && discipline.problem().is_none());
        assert!(discipline.discipline().is_some() && policer.discipline().is_none());
    }
}
