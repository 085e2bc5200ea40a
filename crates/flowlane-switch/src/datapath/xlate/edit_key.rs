//! [`PacketEdit`] on a key: what actions do to a packet, done to its key, and recorded as steps.

use flowlane::packet::FieldRef;
use flowlane::packet::fields::Field;
use flowlane::rule::Action;
use flowlane::rule::action::SetForm;

use super::super::apply::PacketEdit;
use super::{TrackedKey, set_field};
use crate::packet::edit::Ttl;
use crate::packet::recirculate::in_headers;

impl PacketEdit for TrackedKey {
    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        if !self.parse_again {
            return self.set_followed(field, value, mask);
        }
        if !in_headers(field) {
            self.write_outside(field, value, mask);
            if self.moved.get(field) == 0 && field != Field::InPort {
                return;
            }
        }
        self.push(set_field(field, value, mask));
    }

    fn set_field_of(&mut self, protocol: u8, field: Field, value: u128, mask: u128) {
        if self.parse_again {
            let form = SetForm::SetField;
            self.push(Action::SetField { field, value, mask, form, protocol: Some(protocol) });
        } else if self.look(Field::NwProto, u128::MAX) == protocol.into() {
            self.set_followed(field, value, mask);
        }
    }

    fn take_along(&mut self, _: &[(u8, u32, u32)]) {
        // The steps of rules carry nothing: the key has it.
    }

    fn move_field(&mut self, from: FieldRef, to: FieldRef) {
        if !self.parse_again || !in_headers(from.field()) && from.get(&self.moved) == 0 {
            self.depend_on_field(from.field(), from.mask());
            let value = to.place(from.get(&self.key));
            return self.set_field(to.field(), value, to.mask());
        }
        if !in_headers(to.field()) {
            to.set(&mut self.moved, to.ones());
            to.set(&mut self.written, 0);
        }
        self.push(Action::Move { from, to });
    }

    fn push_vlan(&mut self, tpid: u16) {
        match self.parse_again {
            true => self.push(Action::PushVlan(tpid)),
            false => self.push_vlan_followed(tpid),
        }
    }

    fn pop_vlan(&mut self) {
        match self.parse_again {
            true => self.push(Action::PopVlan),
            false => self.pop_vlan_followed(),
        }
    }

    fn push_mpls(&mut self, eth_type: u16) {
        self.parse_again = true;
        self.push(Action::PushMpls(eth_type));
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        if !self.parse_again && !self.has(Field::MplsLabel) {
            return;
        }
        self.parse_again = true;
        self.push(Action::PopMpls(eth_type));
    }

    fn dec_ttl(&mut self) -> Ttl {
        self.decrement(Field::NwTtl, Action::dec_ttl())
    }

    fn dec_mpls_ttl(&mut self) -> Ttl {
        self.decrement(Field::MplsTtl, Action::DecMplsTtl)
    }

    fn dec_nsh_ttl(&mut self) -> Ttl {
        self.decrement(Field::NshTtl, Action::DecNshTtl)
    }

    fn set_queue(&mut self, queue: Option<u32>) {
        self.push(queue.map_or(Action::PopQueue, Action::SetQueue));
    }
}
