//! The disciplines of ports' interfaces, and the counters of their queues.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use flowlane::rule::action::PortNo;

use super::server::ControlServer;
use crate::mgmt::config::{PortSection, QosSection};
use crate::mgmt::discipline::{self, Installed, QueueCounters};
use crate::mgmt::setup::qos_interface;

/// The disciplines that have been set up, by the number of their port.
pub(super) type Disciplines = BTreeMap<u32, (QosSection, Installed)>;

/// A queue of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueState {
    pub(crate) port: PortNo,
    pub(crate) queue: u32,
    pub(crate) counters: QueueCounters,
    /// How long it has been there.
    pub(crate) age: Duration,
}

impl ControlServer {
    fn disciplines(&self) -> MutexGuard<'_, Disciplines> {
        // It is whole between two changes.
        self.disciplines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the interface of a port a discipline, in place of the one that it had.
    ///
    /// # Errors
    /// Why the system does not do that; the interface then has the system's own discipline.
    pub(crate) fn set_qos(&self, port: PortNo, interface: &str, qos: &QosSection) -> Result<(), String> {
        let mut all = self.disciplines();
        // That of another interface goes.
        let before = all.remove(&port.0);
        let before = before.filter(|(_, before)| {
            let is_same = before.interface() == interface;
            if !is_same {
                before.remove();
            }
            is_same
        });
        let installed = Installed::set_up(interface, qos, before.as_ref().map(|(_, before)| before))?;
        all.insert(port.0, (qos.clone(), installed));
        Ok(())
    }

    /// Gives the interface of a port the discipline that its section asks for, and takes the one that it asks for no more.
    ///
    /// # Errors
    /// Why the system does not do that; the interface then has the system's own discipline.
    pub(super) fn follow_qos(&self, section: &PortSection) -> Result<(), String> {
        let port = PortNo(section.number);
        match section.qos.as_ref().zip(qos_interface(section)) {
            Some((qos, interface)) => {
                let done = self.set_qos(port, &interface, qos);
                done.map_err(|problem| format!("port {}: {problem}", section.number))
            }
            None => {
                self.remove_qos(port);
                Ok(())
            }
        }
    }

    /// Gives the interfaces of all ports the disciplines that their sections ask for, when the switch begins.
    ///
    /// # Errors
    /// Why the system does not do that.
    pub fn set_up_qos(&self) -> Result<(), String> {
        let sections: Vec<PortSection> = self.reload.ports().with_qos().cloned().collect();
        sections.iter().try_for_each(|section| self.follow_qos(section))
    }

    /// Takes the discipline from the interface of a port, if it has been given one.
    pub(crate) fn remove_qos(&self, port: PortNo) {
        if let Some((_, installed)) = self.disciplines().remove(&port.0) {
            installed.remove();
        }
    }

    /// Takes the disciplines from the interfaces of all ports.
    pub fn remove_all_qos(&self) {
        let all = std::mem::take(&mut *self.disciplines());
        all.into_values().for_each(|(_, installed)| installed.remove());
    }

    /// Removes what another process has left on an interface.
    pub(crate) fn remove_left_qos(interface: &str) {
        discipline::remove_left(interface);
    }

    /// Gives interfaces that have come in place of others of their name the disciplines of these.
    pub(crate) fn renew_qos(&self) {
        for (qos, installed) in self.disciplines().values_mut().filter(|(_, installed)| installed.is_gone()) {
            // What fails is tried again.
            if let Ok(again) = Installed::set_up(installed.interface(), qos, None) {
                *installed = again;
            }
        }
    }

    /// Describes the discipline of a port, as `ovs-appctl qos/show` does; `None`: it has been given none.
    pub(crate) fn show_qos(&self, port: PortNo) -> Option<String> {
        self.disciplines().get(&port.0).and_then(|(_, installed)| installed.show())
    }

    /// The queues of a port, or of all ports, in the order of their numbers.
    pub(crate) fn queues(&self, port: Option<PortNo>) -> Vec<QueueState> {
        let all = self.disciplines();
        let wanted = all.iter().filter(|(number, _)| port.is_none_or(|port| port.0 == **number));
        let states = wanted.flat_map(|(number, (_, installed))| {
            let (counters, age) = (installed.counters(), installed.since().elapsed());
            let state = move |queue| {
                let counters = counters.get(&queue).copied().unwrap_or_default();
                QueueState { port: PortNo(*number), queue, counters, age }
            };
            installed.queues().map(state)
        });
        states.collect()
    }
}
