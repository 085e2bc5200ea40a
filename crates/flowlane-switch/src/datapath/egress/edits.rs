//! A packet on its way out, and its edits.

use flowlane::packet::{Field, FieldRef, FlowKey, Headers};
use flowlane::rule::action::PortNo;

use super::Egress;
use crate::datapath::apply::PacketEdit;
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{is_end, keep_ends, move_field, parse_again, set_field, take_along};
use crate::packet::{Frame, Queue};
use crate::state::meter::remarked;

/// A packet on its way out.
#[derive(Debug)]
pub struct Packet<'a> {
    pub frame: &'a mut Frame,
    /// Where its headers are.
    pub headers: &'a mut Headers,
    /// Its key, as it was parsed.
    pub key: &'a mut FlowKey,
    /// The index of its input port.
    pub port: usize,
    /// The time of its arrival.
    pub now_ns: u64,
    /// Whether it has been sent somewhere.
    pub sent: bool,
    /// An action has moved headers: `headers` may be stale.
    pub moved: bool,
    /// The port that an action says it came in through.
    pub source: Option<PortNo>,
    /// A `ct` has translated it: its key has the ends that it came with.
    pub translated: bool,
    /// Which changes of actions concern its connection.
    pub changed: Changed,
}

/// Changes of a packet by actions, as far as its connection is concerned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Changed {
    #[default]
    Nothing,
    /// An address or a port: as in Open vSwitch, the next `ct` looks its connection up again.
    Ends,
    /// Its outermost headers are others: of a translation, rules see what there is.
    Headers,
    /// It is another packet, which has no connection.
    Packet,
}

impl Changed {
    /// The change that setting a field is.
    #[inline]
    pub fn by(field: Field) -> Self {
        if is_end(field) { Self::Ends } else { Self::Nothing }
    }
}

impl Packet<'_> {
    /// Parses the packet again before a table. Returns whether it continues: the malformed policy may drop it.
    #[inline]
    pub(in crate::datapath) fn parse_before(
        &mut self,
        egress: &mut Egress,
        table: u8,
        carry: &[(u8, u32, u32)],
    ) -> bool {
        let in_port = egress.ports.slots()[self.port].number.0;
        let was = self.headers.malformed.is_some();
        let before = self.translated.then(|| self.key.clone());
        parse_again(self.frame, in_port, table, carry, self.headers, self.key);
        if let Some(before) = before {
            keep_ends(&before, self.key);
        }
        egress.faults.admit(self.headers, was)
    }

    /// Makes the key that of a packet which enters a table, perhaps one behind the caches, and parses the packet for that if it must be.
    /// Returns whether it has been parsed; nothing where it does not continue.
    #[inline]
    pub(in crate::datapath) fn enter(
        &mut self,
        egress: &mut Egress,
        (table, is_behind_caches): (u8, bool),
        carry: &[(u8, u32, u32)],
        parses: bool,
    ) -> Option<bool> {
        // Those behind the caches look at headers.
        let looks = self.translated && is_behind_caches;
        if looks {
            self.show_translation();
        }
        if !parses && !looks {
            take_along(carry, self.key);
            return Some(false);
        }
        self.parse_before(egress, table, carry).then_some(true)
    }

    /// Lets the next parsing give the key the ends of a translated packet.
    pub(in crate::datapath) fn show_translation(&mut self) {
        (self.translated, self.changed) = (false, self.changed.max(Changed::Headers));
    }

    /// Notes that the packet gets other outermost headers.
    pub(super) fn type_changes(&mut self) {
        self.moved = true;
        self.show_translation();
    }

    /// Notes what follows from setting a field.
    #[inline]
    fn note_set(&mut self, field: Field) {
        self.changed = self.changed.max(Changed::by(field));
        if field == Field::InPort {
            self.source = Some(PortNo(self.key.get(Field::InPort) as u32));
        }
    }
}

impl Packet<'_> {
    /// Raises the drop precedence of the packet, if it has one.
    #[cold]
    pub(in crate::datapath) fn remark(&mut self, levels: u8) {
        if let Some(dscp) = edit::dscp(self.frame, self.headers) {
            self.set_field(Field::IpDscp, remarked(dscp, levels).into(), Field::IpDscp.info().ones());
        }
    }
}

impl PacketEdit for Packet<'_> {
    #[inline]
    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        set_field(self.frame, self.headers, self.key, field, value, mask);
        self.note_set(field);
    }

    fn set_field_of(&mut self, protocol: u8, field: Field, value: u128, mask: u128) {
        if edit::has_protocol(self.headers, protocol) {
            self.set_field(field, value, mask);
        }
    }

    fn take_along(&mut self, carry: &[(u8, u32, u32)]) {
        take_along(carry, self.key);
    }

    fn move_field(&mut self, from: FieldRef, to: FieldRef) {
        move_field(self.frame, self.headers, (self.key, self.translated), from, to);
        self.note_set(to.field());
    }

    fn push_vlan(&mut self, tpid: u16) {
        edit::push_vlan(self.frame, self.headers, tpid);
    }

    fn pop_vlan(&mut self) {
        self.moved = true;
        edit::pop_vlan(self.frame, self.headers);
    }

    fn push_mpls(&mut self, eth_type: u16) {
        self.moved = true;
        edit::push_mpls(self.frame, self.headers, eth_type);
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        self.moved = true;
        edit::pop_mpls(self.frame, self.headers, eth_type);
    }

    #[inline]
    fn dec_ttl(&mut self) -> Ttl {
        edit::dec_ttl(self.frame, self.headers)
    }

    fn dec_mpls_ttl(&mut self) -> Ttl {
        edit::dec_mpls_ttl(self.frame, self.headers)
    }

    fn dec_nsh_ttl(&mut self) -> Ttl {
        edit::dec_nsh_ttl(self.frame, self.headers)
    }

    fn set_queue(&mut self, queue: Option<u32>) {
        self.frame.queue = match queue {
            // As in Open vSwitch, a number that no queue has changes nothing.
            Some(number) => Queue::of(number).unwrap_or(self.frame.queue),
            None => Queue::NONE,
        };
    }
}
