//! Interfaces of ports that vanish or come back, noted once each for the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use super::ports::Link;
use super::server::ControlServer;
use crate::mgmt::setup::PortSet;
use crate::port::PortSpec;

/// Notices that wait for the log: an interface that flaps while nothing takes them must not fill the memory.
const WAITING_MAX: usize = 1000;

/// The interfaces of ports as they were last seen, and the notices that nothing has taken yet.
#[derive(Debug, Default)]
pub(super) struct LinkNotices {
    /// The index of each interface; `None` while there is none of the name.
    seen: BTreeMap<String, Option<u32>>,
    waiting: Vec<String>,
}

impl LinkNotices {
    /// Compares interfaces with those seen last. An interface that is new here is noted only when it changes.
    fn follow(&mut self, now: BTreeMap<String, Option<u32>>) {
        for (name, index) in &now {
            let notice = match (self.seen.get(name), index) {
                (Some(Some(_)), None) => format!("interface {name} has vanished"),
                (Some(None), Some(_)) => format!("interface {name} is back"),
                (Some(Some(before)), Some(now)) if before != now => {
                    format!("interface {name} has been replaced by another of its name")
                }
                _ => continue,
            };
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push(notice);
            }
        }
        self.seen = now;
    }
}

impl ControlServer {
    /// Notes interfaces of ports that have vanished or come back. The other end of a TAP may be in another namespace: it is left out.
    pub(super) fn note_links(&self, ports: &PortSet, links: &HashMap<String, Link>) {
        let of_ports = ports.interfaces().filter(|(_, spec)| !matches!(spec, PortSpec::Tap { .. }));
        let names = of_ports.filter_map(|(_, spec)| spec.interface());
        let now = names.map(|name| (name.to_owned(), links.get(name).map(|link| link.index)));
        self.link_notices.lock().unwrap_or_else(PoisonError::into_inner).follow(now.collect());
    }

    /// Takes the notices of interfaces that have vanished or come back since the last call.
    pub fn take_link_notices(&self) -> Vec<String> {
        let mut notices = self.link_notices.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut notices.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_vanishes_and_comes_back_is_noted_once_each() {
        let mut notices = LinkNotices::default();
        let mut follow = |index: Option<u32>| {
            notices.follow([("eth1".to_owned(), index)].into());
            std::mem::take(&mut notices.waiting)
        };
        assert_eq!(follow(Some(4)), Vec::<String>::new());
        assert_eq!(follow(Some(4)), Vec::<String>::new());
        assert_eq!(follow(None), ["interface eth1 has vanished"]);
        assert_eq!(follow(None), Vec::<String>::new());
        assert_eq!(follow(Some(9)), ["interface eth1 is back"]);
        assert_eq!(follow(Some(10)), ["interface eth1 has been replaced by another of its name"]);
    }

    #[test]
    fn a_port_that_is_removed_with_its_interface_is_not_noted() {
        let mut notices = LinkNotices::default();
        notices.follow([("eth1".to_owned(), Some(1))].into());
        notices.follow(BTreeMap::new());
        assert!(notices.waiting.is_empty());
        for index in 0..2 * WAITING_MAX as u32 {
            notices.follow([("eth2".to_owned(), Some(index))].into());
        }
        assert_eq!(notices.waiting.len(), WAITING_MAX);
    }
}
