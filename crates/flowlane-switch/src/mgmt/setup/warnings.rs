//! Warnings of `switch check`: parts of a configuration that are valid, and may have an effect that its author did not mean.

use std::collections::{BTreeMap, BTreeSet};

use flowlane::packet::Field;
use flowlane::rule::Action;

use super::{Setup, SetupError, interfaces, table_numbers};
use crate::mgmt::config::{ConfigError, KeyPath};
use crate::ruleset::Miss;

impl Setup {
    /// Returns the warnings of a configuration that [`check`](Self::check) accepts, each with its place.
    ///
    /// # Errors
    /// As `check`, of a tunnel.
    pub fn warnings(&self) -> Result<Vec<ConfigError>, SetupError> {
        let mut warnings = self.tunnel_warnings()?;
        warnings.extend(self.learning_warnings());
        warnings.extend(self.forwarding_warnings());
        Ok(warnings)
    }

    /// Ports of a router whose interface the system forwards from, too: packets would be forwarded twice.
    fn forwarding_warnings(&self) -> Vec<ConfigError> {
        let forwards = |interface: &str, family: &str| {
            let file = format!("/proc/sys/net/{family}/conf/{interface}/forwarding");
            std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
        };
        let mut warnings = Vec::new();
        // Without addresses of its own there, the system takes no packet of IP for one to be forwarded.
        let interfaces = self.interfaces.iter().filter(|_| self.kernel_table().is_some());
        for interface in interfaces {
            let Some(place) = interface.place() else { continue };
            let port = &self.config.port[place];
            let Some(device) = interfaces::kernel_name(port) else { continue };
            let families = ["ipv4", "ipv6"].into_iter().filter(|family| forwards(&device, family));
            for family in families {
                let message =
                    format!("the system forwards packets of {device}, too, so that they leave twice");
                let help = format!("sysctl -w net.{family}.conf.{device}.forwarding=0");
                let at = KeyPath::section("port", place).key("open");
                warnings.push(self.source.error(&at, message, help));
            }
        }
        warnings
    }

    /// Stages that learn from the packets of several ports, and let pass later what they do not let pass first.
    fn learning_warnings(&self) -> Vec<ConfigError> {
        let reach = self.ports_by_table();
        let mut warnings = Vec::new();
        for stage in &self.stateful_stages {
            let Some(learning) = stage.learning() else { continue };
            let ports = reach.get(&stage.number()).into_iter().flatten().map(u32::to_string);
            let ports: Vec<String> = ports.collect();
            if ports.len() < 2 {
                continue;
            }
            let message = format!(
                "{} {} learns from packets of ports {}: a sender behind any of them is let in at the second packet, since the \
                 first is `{}` and the later ones are `{}`",
                learning.kind,
                stage.number(),
                ports.join(", "),
                learning.first,
                learning.later
            );
            let help = "let only packets of trusted ports come here, by rules with in_port in front";
            warnings.push(self.source.error(&learning.at, message, help));
        }
        warnings
    }

    /// The ports whose packets may enter each table, as far as the rules with `in_port` tell.
    fn ports_by_table(&self) -> BTreeMap<u8, BTreeSet<u32>> {
        let tunnels = self.config.tunnel.iter().filter_map(|tunnel| tunnel.in_port);
        let ports = self.config.port.iter().map(|port| port.number).chain(tunnels);
        let mut reach: BTreeMap<u8, BTreeSet<u32>> = BTreeMap::from([(0, ports.collect())]);
        let jumps = self.jumps();
        // Tables lead to later ones only.
        for (from, in_port, to) in jumps {
            let mut ports = reach.get(&from).cloned().unwrap_or_default();
            ports.retain(|port| in_port.is_none_or(|own| own == *port));
            reach.entry(to).or_default().extend(ports);
        }
        reach
    }

    /// From which table packets go to which other, and from which port if only those of one do; the first tables first.
    fn jumps(&self) -> Vec<(u8, Option<u32>, u8)> {
        let target = |actions: &[Action]| match actions.last() {
            Some(Action::Goto(to)) => Some(*to),
            _ => None,
        };
        let mut jumps = Vec::new();
        for rule in &self.rules {
            let (port, mask) = rule.matches.get(Field::InPort);
            let in_port = (mask == Field::InPort.info().ones()).then_some(port as u32);
            jumps.extend(target(&rule.actions).map(|to| (rule.table, in_port, to)));
        }
        for stage in &self.stateful_stages {
            jumps.extend(
                stage.actions().iter().filter_map(|list| target(list)).map(|to| (stage.number(), None, to)),
            );
        }
        for routes in &self.routes {
            jumps.extend(routes.actions().filter_map(target).map(|to| (routes.number(), None, to)));
        }
        let numbers: BTreeSet<u8> = table_numbers(&self.config).map(|(number, _)| number).collect();
        for table in self.config.table.iter().filter(|table| table.miss == Miss::Continue) {
            let next = numbers.range(table.number.saturating_add(1)..).next();
            jumps.extend(next.map(|next| (table.number, None, *next)));
        }
        jumps.sort_by_key(|(from, ..)| *from);
        jumps
    }

    /// Tunnels whose packets their links do not carry, or that do not carry the packets of other ports.
    fn tunnel_warnings(&self) -> Result<Vec<ConfigError>, SetupError> {
        let mut warnings = Vec::new();
        let Some(tunnels) = self.tunnels(0)? else { return Ok(warnings) };
        for (n, tunnel) in tunnels.tunnels().iter().enumerate() {
            let (Some(inner_max), Some(out)) =
                (tunnels.inner_max(tunnel.spec.number), &tunnel.spec.encapsulation)
            else {
                continue;
            };
            let (at, number) = (KeyPath::section("tunnel", n), tunnel.spec.number);
            let exits = self.exits(number);
            let link = exits.iter().filter_map(|port| Some((self.link_mtu(*port)?, *port))).min();
            if let Some((link, port)) = link.filter(|(link, _)| *link < out.mtu) {
                let message = format!(
                    "tunnel {number} makes packets of up to {} bytes, and its way out, port {}, carries {link}: longer ones \
                     are lost",
                    out.mtu,
                    self.port_called(port)
                );
                let help = format!("write mtu = {link}, or nothing, or raise the MTU of the interface");
                warnings.push(self.source.error(&at.key("mtu"), message, help));
                continue;
            }
            let others =
                (0..self.specs.len()).filter(|port| !exits.contains(port) || self.specs.len() == exits.len());
            let longest = others.filter_map(|port| Some((self.link_mtu(port)?, port))).max();
            if let Some((longest, port)) = longest.filter(|(longest, _)| *longest > inner_max) {
                let message = format!(
                    "tunnel {number} carries packets of up to {inner_max} bytes, and port {} has an MTU of {longest}: longer ones \
                     are dropped, and counted as too long for their tunnel",
                    self.port_called(port)
                );
                let help = format!(
                    "set the MTU of the hosts behind that port to {inner_max}, or that of the tunnel's link to {}",
                    u32::from(longest - inner_max) + u32::from(out.mtu)
                );
                warnings.push(self.source.error(&at, message, help));
            }
        }
        Ok(warnings)
    }

    fn port_called(&self, port: usize) -> String {
        let section = &self.config.port[port];
        format!("{} ({})", section.name(), section.open)
    }
}
