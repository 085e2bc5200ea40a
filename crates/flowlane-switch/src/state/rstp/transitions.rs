//! From roles to states (IEEE 802.1D-2004 §17.29), and topology changes (§17.31).

use flowlane::rule::action::PortNo;

use super::bridge::Rstp;
use super::port::{Port, Role};

/// The other ports of the bridge, as a port's next step depends on them.
#[derive(Clone, Copy)]
pub(super) struct Others {
    /// All have their roles, and all but the root port are in step.
    all_synced: bool,
    /// None was the root port lately.
    re_rooted: bool,
}

impl Rstp {
    pub(super) fn others(&self, number: PortNo) -> Others {
        let is_synced = |port: &Port| {
            let has_role = port.selected && !port.updt_info && port.role == port.selected_role;
            has_role && (port.synced || port.role == Role::Root)
        };
        Others {
            all_synced: self.ports.values().all(is_synced),
            re_rooted: self.ports.iter().all(|(other, port)| *other == number || port.rr_while == 0),
        }
    }

    /// Steps the machine of a port's role. Returns whether anything has changed.
    pub(super) fn step_role(&mut self, number: PortNo) -> bool {
        let others = self.others(number);
        let Some(port) = self.ports.get_mut(&number) else { return false };
        if !port.selected || port.updt_info {
            return false;
        }
        let is_new = port.role != port.selected_role;
        match port.selected_role {
            Role::Disabled | Role::Alternate | Role::Backup => {
                let (changed, syncs) = port.step_blocked(is_new, others);
                if syncs {
                    self.ports.values_mut().for_each(|port| port.sync = true);
                }
                changed
            }
            Role::Root => self.step_root(number, is_new, others),
            Role::Designated => {
                if is_new {
                    port.role = Role::Designated;
                }
                port.step_designated() || is_new
            }
        }
    }

    fn step_root(&mut self, number: PortNo, is_new: bool, others: Others) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let mut changed = is_new;
        port.role = Role::Root;
        port.rr_while = port.designated_times.forward_delay;
        let (mut syncs, mut re_roots) = (false, false);
        if port.proposed && !port.agree {
            (syncs, port.proposed) = (true, false);
            changed = true;
        }
        if !syncs && (others.all_synced && !port.agree || port.proposed && port.agree) {
            (port.proposed, port.sync, port.agree, port.new_info) = (false, false, true, true);
            changed = true;
        }
        if !port.forward && !port.re_root {
            re_roots = true;
            changed = true;
        }
        let may = port.fd_while == 0 || others.re_rooted && port.rb_while == 0 && port.send_rstp;
        if may && !port.learn {
            (port.learn, port.fd_while) = (true, port.forward_delay());
            changed = true;
        } else if may && !port.forward {
            (port.forward, port.fd_while) = (true, 0);
            changed = true;
        }
        if syncs {
            self.ports.values_mut().for_each(|port| port.sync = true);
        }
        if re_roots {
            self.ports.values_mut().for_each(|port| port.re_root = true);
        }
        if let Some(port) = self.ports.get_mut(&number)
            && port.re_root
            && port.forward
        {
            port.re_root = false;
            changed = true;
        }
        changed
    }

    /// Steps the topology change machine of a port.
    pub(super) fn step_change(&mut self, number: PortNo) -> bool {
        let (max_age, forward_delay) = (self.root_times.max_age, self.root_times.forward_delay);
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let is_open = port.role.is_open() && port.forward && !port.oper_edge;
        let (mut propagates, mut changed, mut is_new) = (false, false, false);
        if !port.is_active {
            if is_open {
                (port.is_active, is_new, propagates, changed) = (true, true, true, true);
            }
            (port.rcvd_tc, port.rcvd_tcn, port.rcvd_tc_ack, port.tc_prop) = (false, false, false, false);
        } else if !port.role.is_open() || port.oper_edge {
            // Addresses learned here are at other ports now.
            port.flushes |= !port.oper_edge;
            (port.is_active, port.tc_while, port.tc_ack, changed) = (false, 0, false, true);
        } else if port.rcvd_tc || port.rcvd_tcn {
            is_new = port.rcvd_tcn;
            port.tc_ack |= port.rcvd_tcn && port.role == Role::Designated;
            (port.rcvd_tc, port.rcvd_tcn, propagates, changed) = (false, false, true, true);
        } else if port.tc_prop {
            (port.tc_prop, port.flushes, is_new, changed) = (false, true, true, true);
        } else if port.rcvd_tc_ack {
            (port.rcvd_tc_ack, port.tc_while, changed) = (false, 0, true);
        }
        if is_new && port.tc_while == 0 {
            port.tc_while =
                if port.send_rstp { port.designated_times.hello + 1 } else { max_age + forward_delay };
            port.new_info = true;
        }
        if propagates {
            self.changes += u64::from(is_new);
            let others = self.ports.iter_mut().filter(|(other, _)| **other != number);
            others.for_each(|(_, port)| port.tc_prop = true);
        }
        changed
    }
}

impl Port {
    /// Steps the machine of a port that discards; the second value says that others are to be in step before it agrees.
    fn step_blocked(&mut self, is_new: bool, others: Others) -> (bool, bool) {
        let is_alternate = self.selected_role.is_blocked();
        let mut changed = is_new || self.learn || self.forward;
        self.role = self.selected_role;
        (self.learn, self.forward) = (false, false);
        self.fd_while = if is_alternate { self.forward_delay() } else { self.designated_times.max_age };
        (self.synced, self.sync, self.re_root, self.rr_while) = (true, false, false, 0);
        if self.role == Role::Backup {
            self.rb_while = 2 * self.designated_times.hello;
        }
        let mut syncs = false;
        if is_alternate && self.proposed && !self.agree {
            (syncs, self.proposed, changed) = (true, false, true);
        } else if is_alternate && (others.all_synced && !self.agree || self.proposed && self.agree) {
            (self.proposed, self.agree, self.new_info, changed) = (false, true, true, true);
        }
        (changed, syncs)
    }

    fn step_designated(&mut self) -> bool {
        let mut changed = false;
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            (self.proposing, self.new_info, changed) = (true, true, true);
            self.edge_delay_while = self.edge_delay();
        }
        let is_in_step = !self.learn && !self.forward || self.agreed || self.oper_edge;
        if is_in_step && !self.synced || self.sync && self.synced {
            (self.rr_while, self.synced, self.sync, changed) = (0, true, false, true);
        }
        if self.rr_while == 0 && self.re_root {
            (self.re_root, changed) = (false, true);
        }
        let is_held = self.sync && !self.synced || self.re_root && self.rr_while != 0 || self.disputed;
        if is_held && !self.oper_edge && (self.learn || self.forward) {
            (self.learn, self.forward, self.disputed) = (false, false, false);
            self.fd_while = self.forward_delay();
            return true;
        }
        let may = self.fd_while == 0 || self.agreed || self.oper_edge;
        if may && !self.re_root && !self.sync {
            if !self.learn {
                (self.learn, self.fd_while, changed) = (true, self.forward_delay(), true);
            } else if !self.forward {
                (self.forward, self.fd_while, changed) = (true, 0, true);
                self.agreed = self.send_rstp;
            }
        }
        changed
    }
}
