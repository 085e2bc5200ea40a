//! A port: its variables (IEEE 802.1D-2004 §17.19) and timers.

use serde::{Deserialize, Serialize};

use super::bpdu::{Bpdu, SenderRole};
use super::{PortSettings, Times, Vector};

/// Seconds in which a port does not change between the protocols, and waits for bridges (table 17-1, Migrate Time).
pub(super) const MIGRATE_TIME: u8 = 3;

/// The role of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Role {
    #[default]
    Disabled,
    Root,
    Designated,
    Alternate,
    Backup,
}

impl Role {
    pub(super) fn is_blocked(self) -> bool {
        matches!(self, Self::Alternate | Self::Backup)
    }

    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Root | Self::Designated)
    }

    pub(super) fn of_sender(self) -> SenderRole {
        match self {
            Self::Root => SenderRole::Root,
            Self::Designated => SenderRole::Designated,
            Self::Alternate | Self::Backup => SenderRole::Blocked,
            Self::Disabled => SenderRole::Unknown,
        }
    }
}

/// Where the vector of a port is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Information {
    #[default]
    Disabled,
    /// A neighbour's, which has been silent for too long.
    Aged,
    Mine,
    Received,
}

/// The treatment of frames that are no BPDUs by a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// None is received or sent.
    Discarding,
    /// None is received or sent, but the sources of those that come are learned.
    Learning,
    Forwarding,
}

/// A port as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStatus {
    pub role: Role,
    /// Addresses of received frames are learned.
    pub learns: bool,
    /// Frames are received and sent.
    pub forwards: bool,
    pub is_edge: bool,
    /// It speaks RSTP, not STP.
    pub speaks_rapid: bool,
    /// The vector that holds on the link.
    pub vector: Vector,
    pub sent: u64,
    pub received: u64,
    /// Received frames that were no sound BPDUs.
    pub refused: u64,
}

impl PortStatus {
    /// Returns the treatment of frames.
    pub fn state(&self) -> PortState {
        match (self.learns, self.forwards) {
            (_, true) => PortState::Forwarding,
            (true, false) => PortState::Learning,
            (false, false) => PortState::Discarding,
        }
    }
}

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Port {
    pub(super) settings: PortSettings,
    pub(super) is_up: bool,
    pub(super) role: Role,
    pub(super) selected_role: Role,
    /// The role is to be chosen again, or has been chosen.
    pub(super) reselect: bool,
    pub(super) selected: bool,
    /// The vector of the port is to become the one that it sends.
    pub(super) updt_info: bool,
    pub(super) info_is: Information,
    /// The vector and times that hold on the link, and those that the port would send.
    pub(super) port_priority: Vector,
    pub(super) port_times: Times,
    pub(super) designated_priority: Vector,
    pub(super) designated_times: Times,
    /// A message that has come and is not used up.
    #[serde(skip)]
    pub(super) message: Option<Bpdu>,
    /// The standard's flags of agreement.
    pub(super) proposing: bool,
    pub(super) proposed: bool,
    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) disputed: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) re_root: bool,
    pub(super) learn: bool,
    pub(super) forward: bool,
    pub(super) oper_edge: bool,
    pub(super) send_rstp: bool,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) new_info: bool,
    /// Topology changes.
    pub(super) is_active: bool,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) tc_ack: bool,
    /// Addresses learned here are to be forgotten.
    pub(super) flushes: bool,
    /// Timers, in seconds.
    pub(super) edge_delay_while: u8,
    pub(super) fd_while: u8,
    pub(super) hello_when: u8,
    pub(super) mdelay_while: u8,
    pub(super) rb_while: u8,
    pub(super) rcvd_info_while: u8,
    pub(super) rr_while: u8,
    pub(super) tc_while: u8,
    pub(super) tx_count: u8,
    pub(super) counts: [u64; 3],
}

impl Port {
    pub(super) fn new(settings: PortSettings, times: Times, speaks_rapid: bool) -> Self {
        Self {
            oper_edge: settings.is_edge,
            settings,
            is_up: false,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            reselect: true,
            selected: false,
            updt_info: false,
            info_is: Information::Disabled,
            port_priority: Vector::default(),
            port_times: times,
            designated_priority: Vector::default(),
            designated_times: times,
            message: None,
            proposing: false,
            proposed: false,
            agree: false,
            agreed: false,
            disputed: false,
            sync: false,
            synced: true,
            re_root: false,
            learn: false,
            forward: false,
            send_rstp: speaks_rapid,
            rcvd_rstp: false,
            rcvd_stp: false,
            new_info: false,
            is_active: false,
            rcvd_tc: false,
            rcvd_tcn: false,
            rcvd_tc_ack: false,
            tc_prop: false,
            tc_ack: false,
            flushes: false,
            edge_delay_while: MIGRATE_TIME,
            fd_while: times.max_age,
            hello_when: 0,
            mdelay_while: MIGRATE_TIME,
            rb_while: 0,
            rcvd_info_while: 0,
            rr_while: 0,
            tc_while: 0,
            tx_count: 0,
            counts: [0; 3],
        }
    }

    /// Lets a second pass.
    pub(super) fn tick(&mut self) {
        let timers = [
            &mut self.edge_delay_while,
            &mut self.fd_while,
            &mut self.hello_when,
            &mut self.mdelay_while,
            &mut self.rb_while,
            &mut self.rcvd_info_while,
            &mut self.rr_while,
            &mut self.tc_while,
            &mut self.tx_count,
        ];
        timers.into_iter().for_each(|timer| *timer = timer.saturating_sub(1));
    }

    /// The delay between two states: short where the neighbour speaks RSTP.
    pub(super) fn forward_delay(&self) -> u8 {
        if self.send_rstp { self.designated_times.hello } else { self.designated_times.forward_delay }
    }

    /// The delay before an edge is found: short on links with two ends.
    pub(super) fn edge_delay(&self) -> u8 {
        if self.settings.is_point_to_point { MIGRATE_TIME } else { self.designated_times.max_age }
    }

    pub(super) fn status(&self) -> PortStatus {
        let [sent, received, refused] = self.counts;
        PortStatus {
            role: self.role,
            learns: self.learn,
            forwards: self.forward,
            is_edge: self.oper_edge,
            speaks_rapid: self.send_rstp,
            vector: self.port_priority,
            sent,
            received,
            refused,
        }
    }
}
