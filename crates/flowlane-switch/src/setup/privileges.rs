//! What a switch may still do once its ports are open: as little as it needs.

use super::Setup;
use super::workers;

/// What a switch of a configuration needs of the system once its ports are open.
#[derive(Clone, Copy, Debug)]
pub struct Privileges {
    /// It opens packet sockets anew where an interface comes back: `CAP_NET_RAW`.
    packet_sockets: bool,
    /// It loads its ruleset anew there: `CAP_NET_ADMIN`, `CAP_BPF`, and memory for frames that no limit is for, `CAP_IPC_LOCK`.
    programs: bool,
}

impl Setup {
    /// What it will need once its ports are open.
    pub fn privileges(&self) -> Privileges {
        use crate::port::PortSpec;
        let programs = self.specs.iter().any(|spec| matches!(spec, PortSpec::AfXdp { .. }));
        // A socket that is no one of several is bound again, which needs nothing.
        let several = workers::number(&self.config) > 1;
        let sockets = several && self.specs.iter().any(|spec| matches!(spec, PortSpec::AfPacket { .. }));
        Privileges { packet_sockets: programs || sockets, programs }
    }
}

impl Privileges {
    /// Gives up all others that this process has, and those that programs it starts could get; but for reading files, since a
    /// configuration may be read anew. To be called before there are other threads: each has its own.
    ///
    /// # Errors
    /// Where the system refuses it.
    #[cfg(target_os = "linux")]
    pub fn give_up_others(self) -> std::io::Result<()> {
        use rustix::thread::{CapabilitySet, CapabilitySets};
        let mut needed = CapabilitySet::DAC_READ_SEARCH;
        needed.set(CapabilitySet::NET_RAW, self.packet_sockets);
        let for_programs = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::IPC_LOCK;
        needed.set(for_programs, self.programs);
        let has = rustix::thread::capabilities(None)?;
        let kept = CapabilitySets {
            effective: has.effective & needed,
            permitted: has.permitted & needed,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, kept)?;
        Ok(rustix::thread::set_no_new_privs(true)?)
    }

    /// There is nothing to give up.
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn give_up_others(self) -> std::io::Result<()> {
        Ok(())
    }
}
