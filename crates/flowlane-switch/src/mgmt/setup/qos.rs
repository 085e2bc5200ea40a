//! Disciplines of the kernel's queues on the interfaces of ports.

use std::collections::BTreeSet;

use super::Reload;
use crate::mgmt::config::{Config, ConfigError, KeyPath, PortSection, QosKind, QosSection, Source};
use crate::mgmt::discipline;
use crate::packet::QUEUES_MAX;
use crate::port::PortSpec;

/// Checks the disciplines of all ports.
pub(super) fn check(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let mut ports = config.port.iter().enumerate();
    ports.try_for_each(|(n, port)| match &port.qos {
        Some(qos) => check_port(port, qos, &KeyPath::section("port", n).key("qos"), source),
        None => Ok(()),
    })
}

/// The interface of the system that the discipline of a port is for, if it has one.
pub(crate) fn interface_of(port: &PortSection) -> Option<String> {
    match port.open.parse().ok()? {
        PortSpec::AfPacket { interface } => Some(interface),
        PortSpec::Tap { name, .. } => Some(name),
        _ => None,
    }
}

impl Reload {
    /// Removes the disciplines with queues that another switch has left on interfaces of ports that ask for none: it was killed, or this
    /// one takes its place with another configuration. Call it before privileges are dropped.
    pub fn remove_left_qos(&self) {
        let interfaces: Vec<String> = self.ports().without_qos().filter_map(interface_of).collect();
        interfaces.iter().for_each(|interface| discipline::remove_left(interface, true));
    }
}

/// The kinds that have a setting.
type Kinds = &'static [QosKind];

/// The settings that are given, with the kinds that have them.
fn given(qos: &QosSection) -> Vec<(&'static str, Kinds)> {
    use QosKind::{Codel, FqCodel, Hfsc, Htb, Netem, Sfq};
    let all: [(&str, bool, Kinds); 10] = [
        ("max_rate_bps", qos.max_rate_bps.is_some(), &[Htb, Hfsc]),
        ("queue", !qos.queue.is_empty(), &[Htb, Hfsc]),
        ("quantum_bytes", qos.quantum_bytes.is_some(), &[Sfq, FqCodel]),
        ("perturb_s", qos.perturb_s.is_some(), &[Sfq]),
        ("limit_packets", qos.limit_packets.is_some(), &[Codel, FqCodel, Netem]),
        ("target_us", qos.target_us.is_some(), &[Codel, FqCodel]),
        ("interval_us", qos.interval_us.is_some(), &[Codel, FqCodel]),
        ("flows", qos.flows.is_some(), &[FqCodel]),
        ("latency_us", qos.latency_us.is_some(), &[Netem]),
        ("loss_percent", qos.loss_percent.is_some(), &[Netem]),
    ];
    all.into_iter().filter(|(_, is_given, _)| *is_given).map(|(key, _, kinds)| (key, kinds)).collect()
}

fn check_port(
    port: &PortSection,
    qos: &QosSection,
    at: &KeyPath,
    source: &Source,
) -> Result<(), ConfigError> {
    let (number, kind) = (port.number, qos.kind.name());
    if interface_of(port).is_none() {
        let message = format!("port {number} has no interface that the kernel has queues for");
        return Err(source.error(at, message, "leave qos out, or open afpacket:INTERFACE or tap:NAME"));
    }
    if let Some((key, kinds)) = given(qos).into_iter().find(|(_, kinds)| !kinds.contains(&qos.kind)) {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let message = format!("port {number} is of type {kind}, which has no {key}");
        let help = format!("leave {key} out, or take type = \"{}\"", names.join("\" or \""));
        return Err(source.error(&at.key(key), message, &help));
    }
    if let Some(percent) = qos.loss_percent.filter(|percent| *percent > 100) {
        let message = format!("port {number} loses {percent} percent of its packets");
        return Err(source.error(&at.key("loss_percent"), message, "take 0 to 100"));
    }
    check_queues(number, qos, &at.key("queue"), source)
}

fn check_queues(port: u32, qos: &QosSection, at: &KeyPath, source: &Source) -> Result<(), ConfigError> {
    let mut numbers = BTreeSet::new();
    for (n, queue) in qos.queue.iter().enumerate() {
        let (at, number) = (at.item(n), queue.number);
        let (key, message, help) = match (queue.min_rate_bps, queue.max_rate_bps) {
            _ if number >= QUEUES_MAX => {
                ("number", format!("there is no queue {number}"), format!("take 0 to {}", QUEUES_MAX - 1))
            }
            _ if !numbers.insert(number) => {
                let message = format!("port {port} has two queues {number}");
                ("number", message, "give each its own number".to_owned())
            }
            (Some(min), Some(max)) if min > max => {
                let message =
                    format!("queue {number} has a min_rate_bps of {min} and a max_rate_bps of {max}");
                ("min_rate_bps", message, format!("take at most {max}"))
            }
            _ if qos.kind == QosKind::Hfsc && (queue.burst_bits.is_some() || queue.priority.is_some()) => {
                let key = if queue.priority.is_some() { "priority" } else { "burst_bits" };
                let message = format!("queues of {} have no {key}", qos.kind.name());
                (key, message, "leave it out, or take type = \"linux-htb\"".to_owned())
            }
            _ => continue,
        };
        return Err(source.error(&at.key(key), message, &help));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn refused(open: &str, qos: &str) -> Option<String> {
        let text = format!("[[port]]\nnumber = 1\nopen = \"{open}\"\n[port.qos]\n{qos}\n");
        let source = Source { file: PathBuf::from("switch.toml"), text };
        let checked = Config::parse(source).and_then(|(config, source)| check(&config, &source));
        checked.err().map(|error| format!("{}; {}", error.message, error.help.unwrap_or_default()))
    }

    #[test]
    fn settings_belong_to_their_types_and_queues_have_numbers_of_their_own() {
        let htb = "type = \"linux-htb\"\nmax_rate_bps = 10000000\n";
        let queue = |keys: &str| format!("{htb}[[port.qos.queue]]\nnumber = 1\n{keys}");
        for (open, good) in [
            ("afpacket:eth0", queue("min_rate_bps = 5\nmax_rate_bps = 5\npriority = 1\nburst_bits = 9")),
            ("tap:t0", "type = \"linux-fq_codel\"\nflows = 5\nquantum_bytes = 300".to_owned()),
            ("tap:t0", "type = \"linux-netem\"\nloss_percent = 100".to_owned()),
        ] {
            assert_eq!(refused(open, &good), None);
        }
        for (open, wrong, message) in [
            ("null", htb.to_owned(), "port 1 has no interface"),
            ("afxdp:eth0", htb.to_owned(), "open afpacket:INTERFACE or tap:NAME"),
            ("tap:t0", "type = \"linux-sfq\"\nflows = 1".to_owned(), "take type = \"linux-fq_codel\""),
            ("tap:t0", "type = \"linux-netem\"\nloss_percent = 101".to_owned(), "take 0 to 100"),
            ("tap:t0", "type = \"linux-htbb\"".to_owned(), "did you mean `linux-htb`?"),
            ("tap:t0", queue("[[port.qos.queue]]\nnumber = 1"), "port 1 has two queues 1"),
            ("tap:t0", queue("min_rate_bps = 6\nmax_rate_bps = 5"), "take at most 5"),
            ("tap:t0", queue("[[port.qos.queue]]\nnumber = 61440"), "take 0 to 61439"),
            ("tap:t0", queue("priority = 1").replace("-htb", "-hfsc"), "have no priority"),
        ] {
            let refused = refused(open, &wrong).unwrap_or_default();
            assert!(refused.contains(message), "{refused}");
        }
    }
}
