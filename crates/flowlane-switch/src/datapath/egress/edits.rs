//! Edits of a packet on its way out.

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::action::PortNo;

use super::Packet;
use crate::datapath::apply::PacketEdit;
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{move_field, set_field, take_along};

impl PacketEdit for Packet<'_> {
    #[inline]
    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        set_field(self.frame, self.headers, self.key, field, value, mask);
        if field == Field::InPort {
            self.source = Some(PortNo(self.key.get(Field::InPort) as u32));
        }
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
        move_field(self.frame, self.headers, self.key, from, to);
        if to.field() == Field::InPort {
            self.source = Some(PortNo(self.key.get(Field::InPort) as u32));
        }
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
}
