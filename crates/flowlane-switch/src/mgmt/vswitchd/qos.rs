//! Limits of interfaces that a database asks for: ingress policing of Interface, and the QoS of Port (ovs-vswitchd.conf.db(5)).
//!
//! Of the types of QoS there is `egress-policer`, which Open vSwitch's user space has for ports of DPDK, on every port. The types
//! `linux-*` are disciplines of the kernel's queues. Open vSwitch's user space configures these, too, but its packets reach no other
//! queue than the default one; here an administrator may use `tc`.

use std::fmt::Write as _;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Replica, Row};

use super::bridge::Bridge;
use super::model::InterfaceSpec;
use crate::state::policer::{Policer, PortPolicers, ReceiveLimits, SendLimit};

/// The type of QoS that there is.
const EGRESS_POLICER: &str = "egress-policer";

/// The QoS of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct QosSpec {
    kind: String,
    /// `other_config:cir`, in bytes a second.
    cir: Option<u64>,
    /// `other_config:cbs`, in bytes.
    cbs: Option<u64>,
}

impl QosSpec {
    /// Reads the QoS of a port, if it has one.
    pub(super) fn read(replica: &Replica, port: &Row) -> Option<Self> {
        let row = replica.row("QoS", port.get("qos").uuids().next()?)?;
        let config = row.get("other_config");
        let number = |key| config.get(key).and_then(|text| text.parse().ok());
        let kind = row.get("type").text().unwrap_or_default().to_owned();
        Some(Self { kind, cir: number("cir"), cbs: number("cbs") })
    }

    /// The limit of sent packets.
    ///
    /// # Errors
    /// Why there is none.
    fn limit(&self) -> Result<SendLimit, String> {
        if self.kind != EGRESS_POLICER {
            return Err(format!("QoS type {} is not supported; there is {EGRESS_POLICER}", self.kind));
        }
        match (self.cir, self.cbs) {
            (Some(rate_bytes @ 1..), Some(burst_bytes @ 1..)) => Ok(SendLimit { rate_bytes, burst_bytes }),
            _ => Err(format!("QoS type {EGRESS_POLICER} needs other_config:cir and other_config:cbs")),
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
        let sent = self.qos.as_ref().and_then(|qos| qos.limit().ok()).map(|limit| Policer::of_sent(&limit));
        let has_any = received.is_some() || sent.is_some();
        has_any.then(|| Arc::new(PortPolicers { received, sent }))
    }

    /// Why the QoS has no effect, if it has none.
    pub(super) fn problem(&self) -> Option<String> {
        self.qos.as_ref()?.limit().err()
    }

    /// Describes the QoS of an interface, as `qos/show` does.
    pub(super) fn show(&self, interface: &str) -> String {
        let limit = self.qos.as_ref().and_then(|qos| qos.limit().ok());
        let Some(SendLimit { rate_bytes, burst_bytes }) = limit else {
            return format!("QoS not configured on {interface}\n");
        };
        let mut out = format!("QoS: {interface} {EGRESS_POLICER}\n");
        _ = writeln!(out, "cir: {rate_bytes}\ncbs: {burst_bytes}");
        out
    }
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
    }
}

/// The types of QoS of an interface, as `qos/show-types` lists them.
pub(super) fn types() -> String {
    format!("QoS type: {EGRESS_POLICER}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: &str, cir: Option<u64>, cbs: Option<u64>) -> LimitsSpec {
        let qos = Some(QosSpec { kind: kind.to_owned(), cir, cbs });
        LimitsSpec { received: ReceiveLimits::default(), qos }
    }

    #[test]
    fn a_type_that_is_not_supported_has_a_reason_and_no_policer() {
        let htb = spec("linux-htb", None, None);
        let reason = "QoS type linux-htb is not supported; there is egress-policer";
        assert_eq!((htb.problem().as_deref(), htb.policers().is_none()), (Some(reason), true));
        assert_eq!(htb.show("e1"), "QoS not configured on e1\n");
        for (cir, cbs) in [(None, Some(1)), (Some(1), None), (Some(0), Some(1)), (Some(1), Some(0))] {
            let incomplete = spec(EGRESS_POLICER, cir, cbs);
            assert!(incomplete.problem().unwrap().contains("needs") && incomplete.policers().is_none());
        }
        let policer = spec(EGRESS_POLICER, Some(46_000_000), Some(2048));
        let policers = policer.policers().unwrap();
        assert!(policers.sent.is_some() && policers.received.is_none() && policer.problem().is_none());
        assert_eq!(policer.show("e1"), "QoS: e1 egress-policer\ncir: 46000000\ncbs: 2048\n");
        assert!(LimitsSpec::default().policers().is_none() && LimitsSpec::default().problem().is_none());
    }
}
