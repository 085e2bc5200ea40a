//! The ports that a traced packet would leave through.

use flowlane::rule::Action;
use flowlane::rule::action::{Controller, PortNo};

use super::super::egress::NO_PLACE;
use super::super::ports::PortSlot;
use super::{TraceSent, Traced, Tracer, hex, text};
use crate::ruleset::PortFlags;
use crate::state::fdb::NormalDecision;
use crate::state::meter::Verdict;
use crate::state::multicast::{self, Snooping};
use crate::state::vlan::{self, InVlan, Retag};

/// Why the `normal` action floods a packet.
const UNKNOWN: &str = "its destination is a group, or is not known";

/// Why the `normal` action sends a packet for a group to a port.
const LISTENS: &str = "listeners of its group or a router are there";

/// Why the `normal` action drops a packet of a bond.
const NOT_LET_IN: &str = "this member of the bond does not let it in";

impl Tracer<'_> {
    /// Switches the packet as `normal` does.
    pub(super) fn normal(&mut self) {
        let port = self.packet.source();
        let ports = &self.worker.egress.ports;
        if ports.is_plain() {
            let decision = self.destination(None, port);
            return match decision {
                NormalDecision::To(to) if to != port => {
                    self.send(&text(&Action::Normal), to, "its destination was learned there");
                }
                NormalDecision::Flood => {
                    self.flood_to(&text(&Action::Normal), PortFlags::NOT_SWITCHED, UNKNOWN)
                }
                decision => self.not_forwarded(decision),
            };
        }
        let settings = ports.place(port).map_or(&vlan::TRUNK, |place| ports.slots()[place].vlan());
        let received = settings.receive(self.packet.frame.bytes());
        let setting = format!("port {} is {settings}", port.0);
        let in_vlan = match received {
            Ok(in_vlan) => in_vlan,
            Err(vlan::Refused { vid }) => {
                let why = format!("{setting}, and the frame is of VLAN {vid}");
                return self.tell(text(&Action::Normal), "dropped", why);
            }
        };
        self.tell(text(&Action::Normal), format!("in VLAN {}", in_vlan.vid), setting);
        let (egress, place) = (&self.worker.egress, ports.place(port));
        let now_s = (self.packet.now_ns / 1_000_000_000) as u32;
        let frame = self.packet.frame.bytes();
        let Some(number) = egress.admitted(place, port, frame, in_vlan.vid, now_s) else {
            return self.tell(text(&Action::Normal), "dropped", NOT_LET_IN);
        };
        let is_same = |to: PortNo| ports.place(to).is_some_and(|to| ports.is_one_port(place, to));
        match self.destination(Some(in_vlan.vid), number) {
            NormalDecision::To(to) if !is_same(to) => self.send_in_vlan(to, &in_vlan),
            NormalDecision::Flood => self.send_to_listeners(&in_vlan),
            decision => self.not_forwarded(decision),
        }
    }

    /// Sends the packet to the ports that want it, if it is for a group that is snooped, else to all.
    fn send_to_listeners(&mut self, in_vlan: &InVlan) {
        let (ports, packet) = (&self.worker.egress.ports, &*self.packet);
        let (bytes, vid) = (packet.frame.bytes(), in_vlan.vid);
        let now_s = (packet.now_ns / 1_000_000_000) as u32;
        let group = multicast::read(bytes, packet.frame.offload.is_none());
        let mut listeners = Vec::new();
        let mut is_known = |multicast: &Snooping| {
            group.is_some_and(|group| multicast.ports_for(&group, vid, now_s, &mut listeners))
        };
        if !ports.multicast().is_some_and(|multicast| is_known(multicast)) {
            return self.flood_in_vlan(in_vlan, UNKNOWN);
        }
        let from = ports.place(packet.source());
        let exits =
            (0..listeners.len()).filter_map(|at| ports.group_exit(&listeners, at, from, (bytes, vid)));
        let places: Vec<usize> = exits.map(|exit| exit.place).collect();
        for slot in places.into_iter().map(|place| &ports.slots()[place]) {
            if let Some(retag) = slot.vlan().send(in_vlan) {
                self.send_retagged(slot, retag, in_vlan, LISTENS);
            }
        }
    }

    /// Returns the decision of the learning switch.
    fn destination(&self, vid: Option<u16>, source: PortNo) -> NormalDecision {
        let Traced { frame, now_ns, .. } = &*self.packet;
        let now_s = (now_ns / 1_000_000_000) as u32;
        self.worker.egress.macs.decide(vid, frame.bytes(), source, now_s)
    }

    fn not_forwarded(&mut self, decision: NormalDecision) {
        let (what, why) = match decision {
            NormalDecision::Drop => ("dropped", "its destination is reserved for the link"),
            NormalDecision::To(_) | NormalDecision::Flood => {
                ("not sent", "its destination was learned at the port that it came in through")
            }
        };
        self.tell(text(&Action::Normal), what, why);
    }

    /// Sends the packet to the port where its destination was learned.
    fn send_in_vlan(&mut self, to: PortNo, in_vlan: &InVlan) {
        let ports = &self.worker.egress.ports;
        let Some(place) = ports.place(to) else {
            return self.tell(text(&Action::Normal), "not sent", "there is no such port");
        };
        let Some(exit) = ports.exit(place, self.packet.frame.bytes(), in_vlan.vid) else {
            return self.tell(text(&Action::Normal), "not sent", "the bond sends through no member");
        };
        let slot = &ports.slots()[exit.place];
        match slot.vlan().send(in_vlan) {
            None if slot.vlan().is_protected_from(in_vlan) => {
                let why = format!("port {} and the port that it came in through are protected", to.0);
                self.tell(text(&Action::Normal), "not sent", why);
            }
            Some(retag) => self.send_retagged(slot, retag, in_vlan, "its destination was learned there"),
            None => {
                let why = format!("its destination was learned at port {}, which does not carry it", to.0);
                self.flood_in_vlan(in_vlan, &why);
            }
        }
    }

    /// Sends the packet to the ports that carry it.
    fn flood_in_vlan(&mut self, in_vlan: &InVlan, why: &str) {
        let ports = &self.worker.egress.ports;
        let from = ports.place(self.packet.source()).unwrap_or(NO_PLACE);
        for target in 0..ports.flood_targets() {
            let exit = ports.flood_exit(
                target,
                from,
                self.packet.frame.bytes(),
                in_vlan.vid,
                PortFlags::NOT_SWITCHED,
            );
            let Some(exit) = exit else { continue };
            let slot = &ports.slots()[exit.place];
            match slot.vlan().send(in_vlan) {
                Some(retag) => self.send_retagged(slot, retag, in_vlan, why),
                None => {
                    let what = format!("not sent through port {} {}", slot.number.0, slot.name);
                    let why = format!("port {} is {}", slot.number.0, slot.vlan());
                    self.tell(text(&Action::Normal), what, why);
                }
            }
        }
    }

    /// Sends the packet with a change of its headers.
    fn send_retagged(&mut self, slot: &PortSlot, retag: Option<Retag>, in_vlan: &InVlan, why: &str) {
        let mut bytes = self.packet.frame.bytes().to_vec();
        if let Some(change) = retag {
            let mut out = vec![0; change.sent_len(bytes.len())];
            change.write(&bytes, &mut out);
            bytes = out;
        }
        let change = in_vlan.describe(retag);
        let why = format!("{why}; port {} is {}: {change}", slot.number.0, slot.vlan());
        self.send_bytes(&text(&Action::Normal), slot.number, &why, (&bytes, &bytes));
    }

    /// Floods the packet as `flood` does: bonds send it once.
    pub(super) fn flood(&mut self, text: &str, why: &str) {
        let ports = &self.worker.egress.ports;
        if ports.bonds().is_empty() {
            return self.flood_to(text, PortFlags::NOT_FLOODED, why);
        }
        let (frame, from) = (self.packet.frame.bytes(), ports.place(self.packet.source()));
        let vid = vlan::TRUNK.receive(frame).map_or(0, |in_vlan| in_vlan.vid);
        let exit =
            |target| ports.flood_exit(target, from.unwrap_or(NO_PLACE), frame, vid, PortFlags::NOT_FLOODED);
        let exits = (0..ports.flood_targets()).filter_map(exit);
        let to: Vec<PortNo> = exits.map(|exit| ports.slots()[exit.place].number).collect();
        to.into_iter().for_each(|to| self.send(text, to, why));
    }

    pub(super) fn flood_to(&mut self, text: &str, without: PortFlags, why: &str) {
        let slots = self.worker.egress.ports.slots();
        let may_send = |slot: &&PortSlot| slot.port.sends() && !slot.flags.has_any(without);
        let others = slots.iter().filter(|slot| slot.number != self.packet.source()).filter(may_send);
        let others: Vec<PortNo> = others.map(|slot| slot.number).collect();
        others.into_iter().for_each(|to| self.send(text, to, why));
    }

    pub(super) fn send(&mut self, text: &str, to: PortNo, why: &str) {
        let bytes = self.packet.frame.bytes().to_vec();
        self.send_bytes(text, to, why, (&bytes, &bytes));
    }

    /// Sends a part of a frame; mirrors take the whole frame.
    pub(super) fn send_bytes(&mut self, text: &str, to: PortNo, why: &str, (bytes, whole): (&[u8], &[u8])) {
        let Some(place) = self.worker.egress.ports.place(to) else {
            return self.tell(text, "not sent", "there is no such port");
        };
        let slot = &self.worker.egress.ports.slots()[place];
        if self.packet.frame.is_bare() {
            return self.tell(text, "not sent", "the packet has no Ethernet header");
        }
        if slot.flags.refuses_sent(whole) {
            return self.tell(text, "not sent", "the port's settings refuse it");
        }
        let (name, mirrors) = (slot.name.clone(), slot.mirrors.sent);
        self.tell(text, format!("sent through port {} {name}", to.0), why);
        let frame = hex(bytes);
        self.packet.trace.sent.push(TraceSent { port: Some(to.0), port_name: name, frame });
        self.mirror(mirrors, place, whole);
    }

    pub(super) fn send_to_controller(&mut self, text: &str, to: &Controller) {
        let (egress, max_len) = (&self.worker.egress, to.max_len);
        let is_agent = egress.packet_ins.is_some();
        if !is_agent && egress.controller.is_none() {
            return self.tell(text, "not sent", "there is no controller port");
        }
        if !is_agent && self.packet.frame.is_bare() {
            return self.tell(text, "not sent", "the packet has no Ethernet header");
        }
        let Traced { frame, now_ns, .. } = &*self.packet;
        let verdict = egress.controller_meter(to.meter).map(|meter| meter.decide(frame.len(), *now_ns));
        if verdict == Some(Verdict::Dropped) {
            return self.tell(
                text,
                "not sent",
                "the rate of the meter for controllers is exceeded at present",
            );
        }
        self.tell(text, "to the controller", "");
        let bytes = self.packet.frame.packet();
        // Controllers of OpenFlow get all of it.
        let whole = is_agent || max_len == u16::MAX || bytes.len() <= usize::from(max_len);
        let frame = hex(if whole { bytes } else { &bytes[..max_len.into()] });
        self.packet.trace.sent.push(TraceSent { port: None, port_name: "controller".to_owned(), frame });
    }
}
