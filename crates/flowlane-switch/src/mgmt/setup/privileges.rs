//! The capabilities that a switch keeps once its ports are open: only those it needs.

use super::Setup;
use super::workers;

/// The capabilities that a switch needs once its ports are open.
#[derive(Clone, Copy, Debug)]
pub struct Privileges {
    /// To reopen packet sockets when an interface reappears, and to open those that send GRE: `CAP_NET_RAW`.
    packet_sockets: bool,
    /// To reload its BPF program then, or to make interfaces: `CAP_NET_ADMIN`, `CAP_BPF`, and `CAP_IPC_LOCK` for locked memory without limit.
    programs: bool,
    /// To change the queues of interfaces, and to send through them: `CAP_NET_ADMIN`.
    queues: bool,
}

impl Setup {
    /// Returns the capabilities that it needs once its ports are open.
    pub fn privileges(&self) -> Privileges {
        use crate::port::PortSpec;
        let opens = |is: fn(&PortSpec) -> bool| self.specs.iter().chain(&self.controller).any(is);
        let adds_ports = self.config.switch.adds_ports;
        let programs = adds_ports || opens(|spec| matches!(spec, PortSpec::AfXdp { .. }));
        // A single socket is only bound again, which needs no capability.
        let several = workers::number(&self.config) > 1;
        let sockets = several && opens(|spec| matches!(spec, PortSpec::AfPacket { .. }));
        let gre = opens(|spec| spec.tunnel().is_some_and(|tunnel| tunnel.kind.own_port().is_none()));
        let queues = self.config.port.iter().any(|port| port.qos.is_some());
        Privileges { packet_sockets: programs || sockets || gre, programs, queues }
    }
}

impl Privileges {
    /// Drops all other capabilities of this process and of programs that it starts, except reading files, since a reload reads the
    /// configuration again. Call it before other threads exist: each has capabilities of its own.
    ///
    /// # Errors
    /// Where the system rejects it.
    #[cfg(target_os = "linux")]
    pub fn give_up_others(self) -> std::io::Result<()> {
        use rustix::thread::{CapabilitySet, CapabilitySets};
        let mut needed = CapabilitySet::DAC_READ_SEARCH;
        needed.set(CapabilitySet::NET_RAW, self.packet_sockets);
        let for_programs = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::IPC_LOCK;
        needed.set(for_programs, self.programs);
        needed.set(CapabilitySet::NET_ADMIN, self.programs || self.queues);
        let has = rustix::thread::capabilities(None)?;
        let kept = CapabilitySets {
            effective: has.effective & needed,
            permitted: has.permitted & needed,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, kept)?;
        Ok(rustix::thread::set_no_new_privs(true)?)
    }

    /// Does nothing: there are no capabilities.
    ///
    /// # Errors
    /// Never.
    #[cfg(not(target_os = "linux"))]
    pub fn give_up_others(self) -> std::io::Result<()> {
        Ok(())
    }
}
