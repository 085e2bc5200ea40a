//! The worker's ports, by number.

use std::ops::AddAssign;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use serde::{Deserialize, Serialize};

use crate::packet::Spread;
use crate::port::{Port, PortError};
use crate::ruleset::{PortFlags, PortVlans};
use crate::state::vlan::{self, PortVlan};

/// Packets and bytes of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Received packets.
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Sent packets.
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets that the port did not take, or that its settings refuse.
    pub tx_dropped: u64,
    /// Packets that came and that the system could not hand over, or that the port's settings refuse.
    pub rx_dropped: u64,
}

impl PortCounters {
    /// Does this for each of ours and theirs.
    fn each(&mut self, theirs: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.rx_packets, theirs.rx_packets);
        change(&mut self.rx_bytes, theirs.rx_bytes);
        change(&mut self.tx_packets, theirs.tx_packets);
        change(&mut self.tx_bytes, theirs.tx_bytes);
        change(&mut self.tx_dropped, theirs.tx_dropped);
        change(&mut self.rx_dropped, theirs.rx_dropped);
    }

    /// Returns the difference to `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.each(before, |now, before| *now = now.saturating_sub(before));
        self
    }
}

impl AddAssign for PortCounters {
    fn add_assign(&mut self, other: Self) {
        self.each(&other, |sum, other| *sum += other);
    }
}

/// A port with its number, name and counters.
pub struct PortSlot {
    /// Its number in rules.
    pub number: PortNo,
    /// Its name in rules and reports.
    pub name: String,
    /// The text that it was opened from.
    pub spec: String,
    /// Whether tunnels are terminated here: frames of VXLAN, GENEVE and GTP-U are matched on the inner packet, with
    /// the tunnel fields set. Where tunnels are configured, theirs only, and validated; else all.
    pub decapsulate: bool,
    /// The routing instance that tunnels' outer packets come in through.
    pub vrf: u32,
    /// The port itself.
    pub port: Box<dyn Port>,
    /// Whether its frames are parsed [as a capture has them](crate::packet::Frame::captured).
    pub is_capture: bool,
    /// To whom its frames go, where it does not know; by flow, where nothing is said.
    pub spread: Option<Spread>,
    /// Its settings.
    pub flags: PortFlags,
    /// Its VLAN settings, if it has any.
    pub vlan: Option<Arc<PortVlan>>,
    /// Its counters.
    pub counters: PortCounters,
    /// Cycles that what came in here took.
    pub cycles: u64,
    /// It has come to its end: nothing more will be received.
    pub finished: bool,
    /// Nothing more is received in this run, which ends.
    pub(super) drained: bool,
}

impl PortSlot {
    /// A port of this number.
    pub fn new(number: PortNo, name: &str, spec: &str, port: Box<dyn Port>) -> Self {
        Self {
            number,
            name: name.to_owned(),
            spec: spec.to_owned(),
            spread: None,
            decapsulate: false,
            vrf: 0,
            is_capture: port.is_capture(),
            port,
            flags: PortFlags::default(),
            vlan: None,
            counters: PortCounters::default(),
            cycles: 0,
            finished: false,
            drained: false,
        }
    }

    /// Returns whether nothing more is received here.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.finished || self.drained
    }

    /// Returns the VLANs that it carries.
    pub(super) fn vlan(&self) -> &PortVlan {
        self.vlan.as_deref().unwrap_or(&vlan::TRUNK)
    }

    /// Returns whether frames may leave here.
    pub fn is_live(&self) -> bool {
        self.port.sends() && !self.flags.has_any(PortFlags::DOWN)
    }

    /// Hands queued frames to the system, and counts those that it does not take.
    ///
    /// # Errors
    /// When the port has failed for good.
    pub fn flush(&mut self) -> Result<(), PortError> {
        let dropped = self.port.flush()?;
        self.counters.tx_dropped += dropped;
        self.counters.tx_packets -= dropped.min(self.counters.tx_packets);
        Ok(())
    }
}

const NO_PLACE: u16 = u16::MAX;

/// The ports of a worker.
#[derive(Default)]
pub struct Ports {
    slots: Vec<PortSlot>,
    /// Port number → place; [`NO_PLACE`] where there is no such port.
    places: Vec<u16>,
    /// Whether any port has VLAN settings.
    has_vlans: bool,
}

impl Ports {
    /// Adds a port and returns its place.
    ///
    /// # Panics
    /// Where the number is beyond [`PortNo::MAX`] or in use; the configuration's reader refuses both.
    pub fn add(&mut self, slot: PortSlot) -> usize {
        assert!(slot.number <= PortNo::MAX, "port number {}", slot.number.0);
        let number = slot.number.0 as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, NO_PLACE);
        }
        assert_eq!(self.places[number], NO_PLACE, "port number {number} is in use");
        self.places[number] = self.slots.len() as u16;
        self.has_vlans |= slot.vlan.is_some();
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// The place of a port number.
    #[inline]
    pub fn place(&self, number: PortNo) -> Option<usize> {
        self.places.get(number.0 as usize).filter(|&&p| p != NO_PLACE).map(|&p| p.into())
    }

    /// The ports.
    #[inline]
    pub fn slots(&self) -> &[PortSlot] {
        &self.slots
    }

    /// The ports, to be used.
    #[inline]
    pub fn slots_mut(&mut self) -> &mut [PortSlot] {
        &mut self.slots
    }

    /// Returns whether any port has VLAN settings.
    #[inline]
    pub fn has_vlans(&self) -> bool {
        self.has_vlans
    }

    /// Gives the ports these VLAN settings.
    pub fn set_vlans(&mut self, vlans: &PortVlans) {
        for slot in &mut self.slots {
            slot.vlan = vlans.get(&slot.number.0).cloned();
        }
        self.has_vlans = self.slots.iter().any(|slot| slot.vlan.is_some());
    }

    /// Number of ports.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no ports.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether no port receives any more.
    pub fn all_finished(&self) -> bool {
        self.slots.iter().all(PortSlot::is_over)
    }
}
