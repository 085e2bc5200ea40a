//! A bridge: its ports, time, and the BPDUs that it sends.

use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;

use super::bpdu::{Bpdu, Flags, Refused};
use super::port::{Information, MIGRATE_TIME, Port, PortStatus, Role};
use super::{BridgeSettings, PortSettings, TICK_MS, Times, Vector};

/// Rounds of all machines until nothing changes any more; far more than it takes.
const ROUNDS_MAX: usize = 256;

/// The spanning tree of a bridge.
#[derive(Clone, Debug)]
pub struct Rstp {
    pub(super) settings: BridgeSettings,
    pub(super) ports: BTreeMap<PortNo, Port>,
    pub(super) root_port: Option<PortNo>,
    /// The way to the root, and its times.
    pub(super) root_priority: Vector,
    pub(super) root_times: Times,
    /// Topology changes that this bridge has noticed.
    pub(super) changes: u64,
    ticked_ms: u64,
}

impl Rstp {
    /// Makes a bridge without ports.
    pub fn new(settings: BridgeSettings, now_ms: u64) -> Self {
        let own = settings.id;
        let root_priority = Vector { root: own, designated_bridge: own, ..Vector::default() };
        let root_times = settings.times;
        Self {
            settings,
            ports: BTreeMap::new(),
            root_port: None,
            root_priority,
            root_times,
            changes: 0,
            ticked_ms: now_ms,
        }
    }

    /// Changes the settings; ports choose their roles again.
    pub fn configure(&mut self, settings: BridgeSettings) {
        if self.settings != settings {
            let is_other = settings.speaks_rapid != self.settings.speaks_rapid;
            self.settings = settings;
            for port in self.ports.values_mut() {
                port.choose_again();
                if is_other {
                    port.check_neighbour(self.settings.speaks_rapid);
                }
            }
            self.settle();
        }
    }

    /// Makes the ports these, each with whether its link is up.
    pub fn set_ports(&mut self, wanted: &[(PortNo, PortSettings, bool)]) {
        self.ports.retain(|number, _| wanted.iter().any(|(port, ..)| port == number));
        let (times, speaks_rapid) = (self.settings.times, self.settings.speaks_rapid);
        for (number, settings, is_up) in wanted {
            let new = || Port::new(settings.clone(), times, speaks_rapid);
            let port = self.ports.entry(*number).or_insert_with(new);
            if port.settings != *settings {
                port.oper_edge |= settings.is_edge && !port.settings.is_edge;
                port.oper_edge &= settings.is_edge || settings.finds_edge;
                port.settings.clone_from(settings);
            }
            port.is_up = *is_up;
        }
        // The root port may have gone.
        self.ports.values_mut().for_each(Port::choose_again);
        self.settle();
    }

    /// Notes whether the link of a port is up.
    pub fn set_up(&mut self, port: PortNo, is_up: bool) {
        if let Some(port) = self.ports.get_mut(&port)
            && port.is_up != is_up
        {
            port.is_up = is_up;
            self.settle();
        }
    }

    /// Takes a frame that a port has received.
    ///
    /// # Errors
    /// Why it is discarded.
    pub fn receive(&mut self, port: PortNo, frame: &[u8]) -> Result<(), Refused> {
        let port = self.ports.get_mut(&port).filter(|port| port.is_up).ok_or(Refused::NoPort)?;
        let [_, received, refused] = &mut port.counts;
        let bpdu = Bpdu::read(frame).inspect_err(|_| *refused += 1)?;
        *received += 1;
        port.take(bpdu, self.settings.speaks_rapid);
        self.settle();
        Ok(())
    }

    /// Lets a port speak RSTP again, where its neighbour may have learned to.
    pub fn check_neighbour(&mut self, port: PortNo) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.check_neighbour(self.settings.speaks_rapid);
        }
    }

    /// Notices a change of the topology at all ports that forward.
    pub fn change_topology(&mut self) {
        self.ports.values_mut().filter(|port| port.is_active).for_each(|port| port.rcvd_tcn = true);
        self.settle();
    }

    /// Lets time pass; returns the frames to be sent. After a pause it is one tick, however long it was: neighbours have not been heard
    /// meanwhile, and no port must open for that.
    pub fn run(&mut self, now_ms: u64) -> Vec<(PortNo, Vec<u8>)> {
        let passed = now_ms.saturating_sub(self.ticked_ms) / TICK_MS;
        self.ticked_ms += passed * TICK_MS;
        let mut frames = self.transmit();
        if passed > 0 {
            self.ports.values_mut().for_each(Port::tick);
            self.settle();
            frames.extend(self.transmit());
        }
        frames
    }

    /// When [`run`](Self::run) has more to do.
    pub fn deadline_ms(&self) -> u64 {
        self.ticked_ms + TICK_MS
    }

    /// Takes the ports whose addresses are to be forgotten.
    pub fn take_flushes(&mut self) -> Vec<PortNo> {
        let flushing =
            |(number, port): (&PortNo, &mut Port)| std::mem::take(&mut port.flushes).then_some(*number);
        self.ports.iter_mut().filter_map(flushing).collect()
    }

    /// Returns how a port is.
    pub fn status(&self, port: PortNo) -> Option<PortStatus> {
        self.ports.get(&port).map(Port::status)
    }

    /// The ports.
    pub fn ports(&self) -> impl Iterator<Item = (PortNo, PortStatus)> {
        self.ports.iter().map(|(number, port)| (*number, port.status()))
    }

    /// Returns the way to the root: its port, none on the root itself, the vector, and the times.
    pub fn root(&self) -> (Option<PortNo>, Vector, Times) {
        (self.root_port, self.root_priority, self.root_times)
    }

    /// Returns the number of topology changes that this bridge has noticed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Steps all machines until nothing changes.
    pub(super) fn settle(&mut self) {
        if self.ports.is_empty() {
            // Nothing asks for a choice: the bridge is the root.
            *self = Self { changes: self.changes, ..Self::new(self.settings.clone(), self.ticked_ms) };
        }
        let numbers: Vec<PortNo> = self.ports.keys().copied().collect();
        for _ in 0..ROUNDS_MAX {
            let mut changed = false;
            for port in self.ports.values_mut() {
                changed |= port.migrate(self.settings.speaks_rapid);
                changed |= port.find_edge();
                changed |= port.inform(self.settings.id);
            }
            changed |= self.select_roles();
            for number in &numbers {
                changed |= self.step_role(*number);
            }
            for number in &numbers {
                changed |= self.step_change(*number);
            }
            if !changed {
                return;
            }
        }
    }

    /// The BPDUs that are due.
    fn transmit(&mut self) -> Vec<(PortNo, Vec<u8>)> {
        let mut frames = Vec::new();
        for (number, port) in &mut self.ports {
            if let Some(bpdu) = port.due(self.settings.hold_count) {
                frames.push((*number, bpdu.frame(port.settings.mac)));
                port.counts[0] += 1;
            }
        }
        frames
    }
}

impl Port {
    /// Lets the port choose its role again.
    fn choose_again(&mut self) {
        (self.reselect, self.selected) = (true, false);
    }

    fn check_neighbour(&mut self, speaks_rapid: bool) {
        (self.send_rstp, self.mdelay_while) = (speaks_rapid, MIGRATE_TIME);
    }

    /// Steps the port transmit machine: returns a BPDU that is due.
    fn due(&mut self, hold_count: u8) -> Option<Bpdu> {
        if !self.is_up || !self.selected || self.updt_info || self.info_is == Information::Disabled {
            return None;
        }
        if self.hello_when == 0 {
            self.hello_when = self.designated_times.hello;
            self.new_info |= self.role == Role::Designated || self.role == Role::Root && self.tc_while > 0;
        }
        let speaks = self.send_rstp || self.role.is_open();
        if !self.new_info || !speaks || self.tx_count >= hold_count {
            return None;
        }
        self.new_info = false;
        self.tx_count += 1;
        if !self.send_rstp && self.role == Role::Root {
            return Some(Bpdu::Change);
        }
        let is_rapid = self.send_rstp;
        let is_acknowledgement = std::mem::take(&mut self.tc_ack) && !is_rapid;
        let flags = Flags {
            is_change: self.tc_while > 0,
            is_acknowledgement,
            is_proposal: is_rapid && self.proposing,
            is_agreement: is_rapid && self.agree,
            learns: is_rapid && self.learn,
            forwards: is_rapid && self.forward,
        };
        let role = if is_rapid { self.role.of_sender() } else { super::SenderRole::Designated };
        let vector = Vector { bridge_port: 0, ..self.designated_priority };
        Some(Bpdu::Tree { is_rapid, role, flags, vector, times: self.designated_times })
    }
}
