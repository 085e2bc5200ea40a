//! What a port takes from the BPDUs that it hears (IEEE 802.1D-2004 §17.21, §17.23, §17.27).

use super::bpdu::{Bpdu, Flags, SenderRole};
use super::port::{Information, MIGRATE_TIME, Port};
use super::{BridgeId, Times, Vector};

/// The tree of a BPDU.
#[derive(Clone, Copy)]
struct Message {
    is_rapid: bool,
    role: SenderRole,
    flags: Flags,
    vector: Vector,
    times: Times,
}

/// How the vector of a message compares with the one that holds on the link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

impl Port {
    /// Takes a BPDU that has come: the port receive machine.
    pub(super) fn take(&mut self, bpdu: Bpdu, speaks_rapid: bool) {
        let is_rapid = matches!(bpdu, Bpdu::Tree { is_rapid: true, .. });
        self.rcvd_rstp |= is_rapid && speaks_rapid;
        self.rcvd_stp |= !is_rapid;
        self.oper_edge = false;
        self.edge_delay_while = MIGRATE_TIME;
        self.message = Some(bpdu);
    }

    /// Steps the protocol migration machine: a port speaks as its neighbour does.
    pub(super) fn migrate(&mut self, speaks_rapid: bool) -> bool {
        if !self.is_up || !speaks_rapid {
            let is_changed = self.send_rstp != speaks_rapid;
            (self.send_rstp, self.mdelay_while) = (speaks_rapid, MIGRATE_TIME);
            (self.rcvd_rstp, self.rcvd_stp) = (false, false);
            return is_changed;
        }
        if self.mdelay_while > 0 {
            (self.rcvd_rstp, self.rcvd_stp) = (false, false);
            return false;
        }
        let to_stp = self.send_rstp && self.rcvd_stp;
        let to_rapid = !self.send_rstp && self.rcvd_rstp;
        if to_stp || to_rapid {
            (self.send_rstp, self.mdelay_while) = (to_rapid, MIGRATE_TIME);
        }
        (self.rcvd_rstp, self.rcvd_stp) = (false, false);
        to_stp || to_rapid
    }

    /// Steps the bridge detection machine: a port where no bridge is forwards at once.
    pub(super) fn find_edge(&mut self) -> bool {
        let before = self.oper_edge;
        if !self.is_up {
            self.oper_edge = self.settings.is_edge;
        } else if self.edge_delay_while == 0 && self.settings.finds_edge && self.send_rstp && self.proposing {
            self.oper_edge = true;
        }
        self.oper_edge != before
    }

    /// Steps the port information machine. `own` is this bridge.
    pub(super) fn inform(&mut self, own: BridgeId) -> bool {
        if !self.is_up {
            self.message = None;
            return self.disable();
        }
        match self.info_is {
            Information::Disabled => self.age(),
            _ if self.selected && self.updt_info => self.update(),
            Information::Received
                if self.rcvd_info_while == 0 && !self.updt_info && self.message.is_none() =>
            {
                self.age();
            }
            _ if !self.updt_info && self.message.is_some() => self.receive(own),
            _ => return false,
        }
        true
    }

    fn disable(&mut self) -> bool {
        if self.info_is == Information::Disabled
            && !(self.proposing || self.proposed || self.agree || self.agreed)
        {
            return false;
        }
        (self.proposing, self.proposed, self.agree, self.agreed) = (false, false, false, false);
        self.rcvd_info_while = 0;
        self.info_is = Information::Disabled;
        (self.reselect, self.selected) = (true, false);
        true
    }

    fn age(&mut self) {
        self.info_is = Information::Aged;
        (self.reselect, self.selected) = (true, false);
    }

    /// The vector that the port sends holds on the link.
    fn update(&mut self) {
        (self.proposing, self.proposed) = (false, false);
        let is_no_worse = self.info_is == Information::Mine && self.designated_priority <= self.port_priority;
        self.agreed &= is_no_worse;
        self.synced &= self.agreed;
        (self.port_priority, self.port_times) = (self.designated_priority, self.designated_times);
        self.updt_info = false;
        self.info_is = Information::Mine;
        self.new_info = true;
    }

    fn receive(&mut self, own: BridgeId) {
        let Some(bpdu) = self.message.take() else { return };
        let Bpdu::Tree { is_rapid, role, flags, vector, times } = bpdu else {
            self.rcvd_tcn = true;
            return;
        };
        // The port's own, which has come back.
        let is_own = vector.designated_bridge == own && vector.designated_port == self.settings.id;
        if is_own && role == SenderRole::Designated {
            return;
        }
        let vector = Vector { bridge_port: self.settings.id, ..vector };
        let message = Message { is_rapid, role, flags, vector, times };
        let heard = self.compare(&message);
        match heard {
            Heard::SuperiorDesignated => {
                (self.agreed, self.proposing) = (false, false);
                self.record_proposal(&message);
                self.set_tc_flags(&message);
                self.agree &= self.info_is == Information::Received && vector <= self.port_priority;
                self.record_agreement(&message);
                self.synced &= self.agreed;
                (self.port_priority, self.port_times) = (vector, times);
                self.restart_information();
                self.info_is = Information::Received;
                (self.reselect, self.selected) = (true, false);
            }
            Heard::RepeatedDesignated => {
                self.record_proposal(&message);
                self.set_tc_flags(&message);
                self.record_agreement(&message);
                self.restart_information();
            }
            Heard::InferiorDesignated => {
                // The neighbour does not hear this port, or has not heard it yet.
                if message.is_rapid && message.flags.learns {
                    (self.disputed, self.agreed) = (true, false);
                }
            }
            Heard::InferiorRootAlternate => {
                self.record_agreement(&message);
                self.set_tc_flags(&message);
            }
            Heard::Other => {}
        }
    }

    fn compare(&self, message: &Message) -> Heard {
        let (theirs, held) = (&message.vector, &self.port_priority);
        match message.role {
            SenderRole::Designated => {
                // From the same port of the same bridge, a worse vector holds, too.
                let is_same_sender = theirs.designated_bridge.mac() == held.designated_bridge.mac()
                    && theirs.designated_port & 0xfff == held.designated_port & 0xfff;
                let is_same = theirs == held && message.times == self.port_times;
                match self.info_is == Information::Received && is_same {
                    true => Heard::RepeatedDesignated,
                    false if theirs < held || is_same_sender => Heard::SuperiorDesignated,
                    false => Heard::InferiorDesignated,
                }
            }
            SenderRole::Root | SenderRole::Blocked if theirs >= held => Heard::InferiorRootAlternate,
            _ => Heard::Other,
        }
    }

    fn record_proposal(&mut self, message: &Message) {
        self.proposed |= message.is_rapid && message.flags.is_proposal;
    }

    fn record_agreement(&mut self, message: &Message) {
        self.agreed = self.send_rstp && self.settings.is_point_to_point && message.flags.is_agreement;
        self.proposing &= !self.agreed;
    }

    fn set_tc_flags(&mut self, message: &Message) {
        self.rcvd_tc |= message.flags.is_change;
        self.rcvd_tc_ack |= message.flags.is_acknowledgement;
    }

    /// The information of the neighbour lasts for three of its hellos, if it has not passed too many bridges.
    fn restart_information(&mut self) {
        let Times { message_age, max_age, hello, .. } = self.port_times;
        self.rcvd_info_while = if message_age < max_age { 3 * hello } else { 0 };
    }
}
