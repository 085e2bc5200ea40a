//! The disciplines of ports' interfaces, and the counters of their queues.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;

use super::server::ControlServer;
use crate::mgmt::config::{PortSection, QosSection};
use crate::mgmt::discipline::{self, Installed, QueueCounters};
use crate::mgmt::setup::qos_interface;

/// The interval at which disciplines that are missing are set up again.
const RENEW: Duration = Duration::from_secs(1);

/// The remedy where a reload lacks permission that a start has.
const RESTART: &str =
    ", which a switch drops at its start unless a port has qos: restart it with this configuration";

/// The disciplines that interfaces of ports are to have.
#[derive(Default)]
pub(super) struct Disciplines {
    /// By the number of their port.
    ports: BTreeMap<u32, PortDiscipline>,
    /// When those that are missing are set up again.
    renewed_next: Option<Instant>,
}

/// The discipline that the interface of a port is to have.
struct PortDiscipline {
    interface: String,
    qos: QosSection,
    /// The reason for which there is none, as it has been reported.
    installed: Result<Installed, String>,
    /// Another process may have changed it.
    is_due: bool,
}

impl PortDiscipline {
    /// Returns whether the interface lacks the discipline, as far as is known.
    fn is_missing(&self) -> bool {
        self.is_due || self.installed.as_ref().map_or(true, Installed::is_gone)
    }

    /// Gives the interface the discipline again. Returns a problem unless it has been reported.
    fn renew(&mut self) -> Option<String> {
        let now = Installed::set_up(&self.interface, &self.qos, self.installed.as_ref().ok());
        let is_new = now.as_ref().err() != self.installed.as_ref().err();
        (self.installed, self.is_due) = (now, false);
        self.installed.as_ref().err().filter(|_| is_new).cloned()
    }

    fn remove(&self) {
        self.installed.iter().for_each(Installed::remove);
    }
}

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
    /// Why the system does not do that; the interface then has the system's own discipline, until [`renew_qos`](Self::renew_qos) sets
    /// up the one that is wanted.
    pub(crate) fn set_qos(&self, port: PortNo, interface: &str, qos: &QosSection) -> Result<(), String> {
        let mut all = self.disciplines();
        // That of another interface goes.
        let before = all.ports.remove(&port.0).filter(|before| {
            let is_same = before.interface == interface;
            if !is_same {
                before.remove();
            }
            is_same
        });
        if let Some(same) = before.as_ref().filter(|before| before.qos == *qos)
            && !same.is_missing()
        {
            // Packets that wait in it stay.
            all.ports.extend(before.map(|before| (port.0, before)));
            return Ok(());
        }
        let before = before.and_then(|before| before.installed.ok());
        let installed = Installed::set_up(interface, qos, before.as_ref());
        let problem = installed.as_ref().err().cloned();
        let now =
            PortDiscipline { interface: interface.to_owned(), qos: qos.clone(), installed, is_due: false };
        all.ports.insert(port.0, now);
        problem.map_or(Ok(()), Err)
    }

    /// Gives the interface of a port the discipline that its section asks for, and takes the one that it asks for no more.
    ///
    /// # Errors
    /// Why the system does not do that; the interface then has the system's own discipline.
    pub(super) fn follow_qos(&self, section: &PortSection) -> Result<(), String> {
        let done = self.follow_section(section);
        done.map_err(|problem| match problem.ends_with(discipline::NO_PERMISSION) {
            true => format!("{problem}{RESTART}"),
            false => problem,
        })
    }

    fn follow_section(&self, section: &PortSection) -> Result<(), String> {
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
        sections.iter().try_for_each(|section| self.follow_section(section))
    }

    /// Takes the discipline from the interface of a port, if it has been given one.
    pub(crate) fn remove_qos(&self, port: PortNo) {
        if let Some(before) = self.disciplines().ports.remove(&port.0) {
            before.remove();
        }
    }

    /// Takes the disciplines from the interfaces of all ports.
    pub fn remove_all_qos(&self) {
        let all = std::mem::take(&mut *self.disciplines());
        all.ports.into_values().for_each(|before| before.remove());
    }

    /// Removes what another process has left on an interface.
    pub(crate) fn remove_left_qos(interface: &str) {
        discipline::remove_left(interface, false);
    }

    /// Sets up disciplines that could not be set up, and those of interfaces that have come in place of others of their name: once a
    /// second, however often it is called. Returns the problems that are new.
    pub fn renew_qos(&self) -> Vec<String> {
        let (mut all, now) = (self.disciplines(), Instant::now());
        if all.renewed_next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        all.renewed_next = Some(now + RENEW);
        let missing = all.ports.iter_mut().filter(|(_, port)| port.is_missing());
        let renew = |(number, port): (&u32, &mut PortDiscipline)| {
            let problem = port.renew()?;
            Some(format!("port {number}: {}: {problem}", port.interface))
        };
        missing.filter_map(renew).collect()
    }

    /// Sets up the disciplines of all ports again in a while, in place of those of a process that has not taken over and removes its own
    /// until then.
    pub(super) fn restore_qos(&self) {
        let mut all = self.disciplines();
        all.ports.values_mut().for_each(|port| port.is_due = true);
        all.renewed_next = Some(Instant::now() + RENEW);
    }

    /// Describes the discipline of a port, as `ovs-appctl qos/show` does; `None`: it has been given none.
    pub(crate) fn show_qos(&self, port: PortNo) -> Option<String> {
        self.disciplines().ports.get(&port.0)?.installed.as_ref().ok()?.show()
    }

    /// The queues of a port, or of all ports, in the order of their numbers.
    pub(crate) fn queues(&self, port: Option<PortNo>) -> Vec<QueueState> {
        let all = self.disciplines();
        let wanted = all.ports.iter().filter(|(number, _)| port.is_none_or(|port| port.0 == **number));
        let there = wanted.filter_map(|(number, of)| Some((number, of.installed.as_ref().ok()?)));
        let states = there.flat_map(|(number, installed)| {
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
