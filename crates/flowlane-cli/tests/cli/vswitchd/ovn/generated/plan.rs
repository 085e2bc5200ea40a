//! Random networks: the commands that ask OVN for one, and the addresses that are in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::wire::Mac;
use super::chance;
use crate::import::Random;

/// The switch outside, whose router has address translation.
pub(super) const OUTSIDE: u8 = 9;

/// A machine at a logical port.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) port: String,
    pub(super) switch: u8,
    pub(super) mac: Mac,
    /// Of IPv4 and IPv6.
    pub(super) ips: [IpAddr; 2],
    /// The port takes frames of all addresses and from all addresses.
    pub(super) is_open: bool,
}

/// An address at which a load balancer answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

/// A network.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) machines: Vec<Machine>,
    pub(super) services: Vec<Service>,
    /// Addresses outside that are translated to machines'.
    pub(super) floating: Vec<IpAddr>,
    pub(super) commands: Vec<String>,
    groups: usize,
}

/// An address of a switch's networks.
pub(super) fn address(switch: u8, host: u8, is_v6: bool) -> IpAddr {
    match (switch, is_v6) {
        (_, true) => IpAddr::from(Ipv6Addr::new(0xfd00 + u16::from(switch), 0, 0, 0, 0, 0, 0, host.into())),
        (OUTSIDE, false) => IpAddr::from(Ipv4Addr::new(172, 16, 0, host)),
        (_, false) => IpAddr::from(Ipv4Addr::new(10, switch, 0, host)),
    }
}

pub(super) const fn router_mac(switch: u8) -> Mac {
    [2, 0, 0, 0, 0xff, switch]
}

pub(super) fn pick<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len() as u64) as usize]
}

impl Plan {
    /// Makes a network of a random number.
    pub(super) fn new(random: &mut Random) -> Self {
        let mut plan = Self::default();
        let switches = 2 + random.below(3) as u8;
        plan.add_routers(random, switches);
        plan.add_machines(random, switches);
        plan.add_translation(random, switches);
        plan.add_services(random);
        plan.add_access_lists(random, switches);
        plan
    }

    fn add(&mut self, command: String) {
        self.commands.push(command);
    }

    /// One router of all switches, or two that are joined.
    fn add_routers(&mut self, random: &mut Random, switches: u8) {
        let routers = 1 + random.below(2);
        self.add("lr-add r1 -- set Logical_Router r1 options:chassis=c1".to_owned());
        if routers == 2 {
            let at = ["", " -- set Logical_Router r2 options:chassis=c1"][random.below(2) as usize];
            self.add(format!("lr-add r2{at}"));
            for (one, other, host) in [(1, 2, 1), (2, 1, 2)] {
                self.add(format!(
                    "lrp-add r{one} r{one}-r{other} 02:00:00:00:fe:0{host} 100.64.0.{host}/24 fd64::{host}/64 peer=r{other}-r{one}"
                ));
            }
        }
        for switch in (1..=switches).chain([OUTSIDE]) {
            let router = if switch == OUTSIDE { 1 } else { 1 + random.below(routers) };
            let (v4, v6) = (address(switch, 254, false), address(switch, 254, true));
            self.add(format!("ls-add sw{switch} -- lrp-add r{router} r-sw{switch} 02:00:00:00:ff:{switch:02x} {v4}/24 {v6}/64"));
            self.add(format!(
                "lsp-add sw{switch} sw{switch}-r -- lsp-set-type sw{switch}-r router -- lsp-set-addresses sw{switch}-r router \
                 -- lsp-set-options sw{switch}-r router-port=r-sw{switch}"
            ));
            if routers == 2 {
                let other = 3 - router;
                let (network4, network6) = (address(switch, 0, false), address(switch, 0, true));
                self.add(format!("lr-route-add r{other} {network4}/24 100.64.0.{router} -- lr-route-add r{other} {network6}/64 fd64::{router}"));
            }
        }
        if routers == 2 {
            self.add("lr-route-add r2 10.9.9.0/24 100.64.0.1".to_owned());
        }
    }

    fn add_machines(&mut self, random: &mut Random, switches: u8) {
        let count = 6 + random.below(7) as u8;
        for n in 1..=count {
            let switch = match n {
                1 | 2 => OUTSIDE,
                _ => 1 + (n + random.below(2) as u8) % switches,
            };
            let mac = [2, 0, 0, 0, switch, n];
            let ips = [false, true].map(|is_v6| address(switch, n, is_v6));
            let all = format!("02:00:00:00:{switch:02x}:{n:02x} {} {}", ips[0], ips[1]);
            let (is_open, is_secured) = (chance(random, 5), chance(random, 3));
            let unknown = if is_open { " unknown" } else { "" };
            self.add(format!("lsp-add sw{switch} p{n} -- lsp-set-addresses p{n} '{all}'{unknown}"));
            if is_secured && !is_open {
                self.add(format!("lsp-set-port-security p{n} '{all}'"));
            }
            self.machines.push(Machine { port: format!("p{n}"), switch, mac, ips, is_open });
        }
    }

    fn add_translation(&mut self, random: &mut Random, switches: u8) {
        for switch in 1..=switches {
            if chance(random, 2) {
                let network = address(switch, 0, false);
                self.add(format!("lr-nat-add r1 snat 172.16.0.254 {network}/24"));
            }
        }
        let inside: Vec<Machine> =
            self.machines.iter().filter(|machine| machine.switch != OUTSIDE).cloned().collect();
        for n in 0..random.below(3) as u8 {
            let floating = address(OUTSIDE, 50 + n, false);
            let kind = *pick(random, &["dnat_and_snat", "dnat"]);
            let machine = &inside[usize::from(n)];
            self.add(format!("lr-nat-add r1 {kind} {floating} {}", machine.ips[0]));
            self.floating.push(floating);
        }
    }

    fn add_services(&mut self, random: &mut Random) {
        for n in 1..=random.below(5) as u8 {
            let name = *pick(random, &["tcp", "udp"]);
            let (is_v6, port) = (chance(random, 4), *pick(random, &[80, 443, 8080]));
            let ip = address(9, n, is_v6);
            let ip = if is_v6 { ip } else { IpAddr::from([10, 9, 9, n]) };
            let backend = pick(random, &self.machines).ips[usize::from(is_v6)];
            let (inner, has_ports) = (*pick(random, &[80, 85]), !chance(random, 5));
            let (vip, backend, end) = match (has_ports, is_v6) {
                (true, true) => (format!("[{ip}]:{port}"), format!("[{backend}]:{inner}"), name),
                (true, false) => (format!("{ip}:{port}"), format!("{backend}:{inner}"), name),
                (false, _) => (ip.to_string(), backend.to_string(), ""),
            };
            self.add(format!("lb-add lb{n} {vip} {backend} {end}"));
            let router = chance(random, 2);
            let mut switches: Vec<u8> = self.machines.iter().map(|machine| machine.switch).collect();
            switches.sort_unstable();
            switches.dedup();
            for switch in switches {
                if !chance(random, 3) {
                    self.add(format!("ls-lb-add sw{switch} lb{n}"));
                }
            }
            if router {
                self.add(format!("lr-lb-add r1 lb{n}"));
            }
            self.services.push(Service { ip, port });
        }
    }

    fn add_access_lists(&mut self, random: &mut Random, switches: u8) {
        let some = |random: &mut Random, all: &[Machine]| {
            let some: Vec<Machine> = all.iter().filter(|_| chance(random, 3)).cloned().collect();
            if some.is_empty() { vec![pick(random, all).clone()] } else { some }
        };
        self.groups = 2;
        for group in 1..=2 {
            let ports: Vec<String> =
                some(random, &self.machines).into_iter().map(|machine| machine.port).collect();
            self.add(format!("pg-add pg{group} {}", ports.join(" ")));
            for (family, name) in [(0, "four"), (1, "six")] {
                let all: Vec<String> = some(random, &self.machines)
                    .iter()
                    .map(|machine| format!("\"{}\"", machine.ips[family]))
                    .collect();
                self.add(format!("create Address_Set name={name}{group} 'addresses={}'", all.join(",")));
            }
        }
        // Two lists of one priority that take the same packet leave open which is taken: each has its own.
        for n in 0..random.below(12) {
            let priority = 1000 + (n * 7) % 12;
            self.add_access_list(random, switches, priority);
        }
    }

    fn add_access_list(&mut self, random: &mut Random, switches: u8, priority: u64) {
        let (direction, end) = *pick(random, &[("from-lport", "inport"), ("to-lport", "outport")]);
        let group = 1 + random.below(self.groups as u64);
        let (at, mut terms) = match random.below(3) {
            0 => (format!("pg{group}"), vec![format!("{end} == @pg{group}")]),
            1 => {
                let machine = pick(random, &self.machines);
                (format!("sw{}", machine.switch), vec![format!("{end} == \"{}\"", machine.port)])
            }
            _ => (format!("sw{}", 1 + random.below(switches.into())), Vec::new()),
        };
        for _ in 0..=random.below(2) {
            let (set, switch, way) =
                (1 + random.below(2), 1 + random.below(switches.into()), *pick(random, &["src", "dst"]));
            terms.push(match random.below(13) {
                0 => "ip4".to_owned(),
                1 => "ip6".to_owned(),
                2 => format!("ip4.{way} == $four{set}"),
                3 => format!("ip6.{way} == $six{set}"),
                4 => format!("ip4.{way} == 10.{switch}.0.0/24"),
                5 => "tcp.dst == {80, 443}".to_owned(),
                6 => "tcp.dst >= 80 && tcp.dst <= 90".to_owned(),
                7 => "udp".to_owned(),
                8 => format!("udp.{way} == 80"),
                9 => "icmp4 || icmp6".to_owned(),
                // OVN multiplies all but a set by other sets: 80,000 flows of one list.
                10 if terms.iter().all(|term| !term.contains('$')) => format!("ip4.{way} != $four{set}"),
                11 => "ip.ttl < 64".to_owned(),
                _ => "tcp || udp".to_owned(),
            });
        }
        let action =
            *pick(random, &["allow", "allow-related", "allow-related", "allow-stateless", "drop", "reject"]);
        let condition: Vec<String> = terms.iter().map(|term| format!("({term})")).collect();
        self.add(format!("acl-add {at} {direction} {priority} '{}' {action}", condition.join(" && ")));
    }
}
