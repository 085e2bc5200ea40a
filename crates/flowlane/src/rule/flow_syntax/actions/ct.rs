//! `ct` and `nat`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::super::action::{Action, ConnectionTracking, Nat, NatRange, Zone};
use super::super::super::error::{Fault, Token};
use super::super::names::read_part;
use super::super::{key_value, number, split, values};
use super::{Place, Reader};
use crate::packet::parse::{ether_type, ip_proto};

/// Ports of the protocols of applications that have a helper.
const PROTOCOLS: [(&str, u16); 2] = [("ftp", 21), ("tftp", 69)];

impl Reader<'_> {
    /// The arguments of `ct`.
    pub(super) fn connection(&mut self, name: Token<'_>, argument: Token<'_>) -> Result<Action, Fault> {
        if self.place == Place::Connection {
            return Err(name.fault("ct is in no other ct"));
        }
        if !self.known.is_ip() {
            return Err(name.fault("connections are of IP: ct needs `ip` or `ipv6` in the match; add it"));
        }
        let mut out = ConnectionTracking {
            commit: false,
            force: false,
            zone: Zone::Number(0),
            table: None,
            alg: 0,
            exec: Vec::new(),
        };
        for part in split(argument)? {
            self.connection_part(part, &mut out)?;
        }
        if out.commit && self.known.is_invalid() {
            return Err(argument
                .fault("invalid packets (`+inv` in the match) begin no connection; leave `commit` out"));
        }
        if out.force && !out.commit {
            return Err(argument.fault("`force` needs `commit`"));
        }
        let is_plain = |action: &Action| matches!(action, Action::Nat(nat) if nat.range.is_none());
        if !out.commit && !out.exec.iter().all(is_plain) {
            let problem =
                "only a connection that is kept has fields and translations of its own; add `commit`";
            return Err(argument.fault(problem));
        }
        Ok(Action::ConnectionTracking(Box::new(out)))
    }

    fn connection_part(&mut self, part: Token<'_>, out: &mut ConnectionTracking) -> Result<(), Fault> {
        let (key, value) = key_value(part)?;
        match key.text {
            "commit" if value.is_none() => out.commit = true,
            "force" if value.is_none() => out.force = true,
            "table" => {
                let table = number(key, value, 254)? as u8;
                (self.options.check_table)(table).map_err(|problem| value.unwrap_or(key).fault(problem))?;
                out.table = Some(table);
            }
            "zone" => out.zone = self.zone(value.ok_or_else(|| key.fault("`zone=ZONE` is expected"))?)?,
            "alg" => out.alg = self.application(value.unwrap_or(key))?,
            "nat" => {
                let action = nat(value)?;
                self.check_translation(part, &action)?;
                (self.options.check_action)(&action).map_err(|problem| part.fault(problem))?;
                out.exec.push(action);
            }
            "exec" => {
                let Some(inside) = value else { return Ok(()) };
                let actions = self.nested(inside, Place::Connection)?;
                for action in &actions {
                    self.check_in_connection(inside, action)?;
                }
                out.exec.extend(actions);
            }
            _ => return Err(key.fault("commit, force, table, zone, alg, nat or exec is expected")),
        }
        Ok(())
    }

    fn zone(&self, token: Token<'_>) -> Result<Zone, Fault> {
        if token.text.starts_with(|c: char| c.is_ascii_digit()) {
            return values::number(token, 0xffff).map(|zone| Zone::Number(zone as u16));
        }
        let part = read_part(token, &self.known)?;
        match part.bits() {
            16 => Ok(Zone::Field(part)),
            bits => Err(token.fault(format!("a zone has 16 bits, this part of a field has {bits}"))),
        }
    }

    fn application(&self, token: Token<'_>) -> Result<u16, Fault> {
        let Some((_, port)) = PROTOCOLS.iter().find(|(name, _)| *name == token.text) else {
            return Err(token.fault("ftp or tftp is expected"));
        };
        let (protocol, wanted) =
            if *port == 21 { (ip_proto::TCP, "`tcp`") } else { (ip_proto::UDP, "`udp`") };
        match self.known.is_over_ip(protocol) {
            true => Ok(*port),
            false => {
                Err(token.fault(format!("{} needs {wanted}, or that over IPv6, in the match", token.text)))
            }
        }
    }

    fn check_translation(&self, token: Token<'_>, action: &Action) -> Result<(), Fault> {
        let Action::Nat(nat) = action else { return Ok(()) };
        let is_right = match nat.range.and_then(|range| range.addresses) {
            Some((IpAddr::V4(_), _)) => self.known.may_be(ether_type::IPV4),
            Some((IpAddr::V6(_), _)) => self.known.may_be(ether_type::IPV6),
            None => true,
        };
        match is_right {
            true => Ok(()),
            false => Err(token.fault("these addresses are not of the IP version in the match")),
        }
    }

    fn check_in_connection(&self, token: Token<'_>, action: &Action) -> Result<(), Fault> {
        match matches!(action, Action::SetField { .. } | Action::Move { .. } | Action::Nat(_)) {
            true => self.check_translation(token, action),
            false => Err(token.fault("`ct(exec(…))` takes set_field, load and move to ct_mark and ct_label")),
        }
    }
}

/// `src=ADDRESS-ADDRESS:PORT-PORT,random` and the like, or nothing.
pub(super) fn nat(argument: Option<Token<'_>>) -> Result<Action, Fault> {
    let mut out = Nat::default();
    let Some(argument) = argument else { return Ok(Action::Nat(Box::new(out))) };
    for part in split(argument)? {
        let (key, value) = key_value(part)?;
        match key.text {
            "src" | "dst" if out.range.is_some() => {
                return Err(key.fault("either the source or the destination is translated, once"));
            }
            "src" | "dst" => {
                let (addresses, ports) = value.map_or(Ok((None, None)), range)?;
                out.range = Some(NatRange { is_source: key.text == "src", addresses, ports });
            }
            "persistent" => out.persistent = true,
            "hash" => out.hash = true,
            "random" => out.random = true,
            _ => return Err(key.fault("src, dst, persistent, hash or random is expected")),
        }
    }
    if out.hash && out.random {
        return Err(argument.fault("ports are chosen by a hash or at random, not both"));
    }
    if out.range.is_none() && (out.persistent || out.hash || out.random) {
        return Err(argument.fault("`src` or `dst` is expected, too"));
    }
    Ok(Action::Nat(Box::new(out)))
}

type Addresses = (IpAddr, IpAddr);
type Ports = (u16, u16);

/// `ADDRESS-ADDRESS:PORT-PORT`; an IPv6 address in front of ports is in brackets.
fn range(token: Token<'_>) -> Result<(Option<Addresses>, Option<Ports>), Fault> {
    let (addresses, ports) = if token.text.starts_with('[') {
        match token.text.rfind("]:") {
            Some(end) => (token.part(0, end + 1), Some(token.part(end + 2, token.text.len()))),
            None => (token, None),
        }
    } else if token.text.matches(':').count() == 1 {
        token.split(":").map_or((token, None), |(addresses, ports)| (addresses, Some(ports)))
    } else {
        (token, None)
    };
    let (first, last) = addresses.split("-").unwrap_or((addresses, addresses));
    // Ports without addresses are not translated, as in Open vSwitch.
    if addresses.text.is_empty() {
        return Ok((None, None));
    }
    let (low, high) = (address(first)?, address(last)?);
    if low > high || low.is_ipv4() != high.is_ipv4() {
        return Err(addresses.fault("the first address is not above the last one, and of its IP version"));
    }
    let ports = ports
        .map(|ports| {
            let (first, last) = ports.split("-").unwrap_or((ports, ports));
            let port = |token| values::number(token, 0xffff).map(|port| port as u16);
            let (low, high) = (port(first)?, port(last)?);
            match low <= high {
                true => Ok((low, high)),
                false => Err(ports.fault("the first port is not above the last one")),
            }
        })
        .transpose()?;
    Ok((Some((low, high)), ports))
}

fn address(token: Token<'_>) -> Result<IpAddr, Fault> {
    let text = token.text.trim_matches(['[', ']']);
    let v4 = || text.parse::<Ipv4Addr>().map(IpAddr::V4).ok();
    let v6 = || text.parse::<Ipv6Addr>().map(IpAddr::V6).ok();
    v4().or_else(v6).ok_or_else(|| token.fault("an IP address is expected"))
}
