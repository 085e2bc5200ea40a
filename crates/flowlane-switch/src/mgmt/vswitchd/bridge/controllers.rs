//! The controllers of a bridge, with TLS or without.

use flowlane_openflow::Version;

use super::Bridge;
use crate::mgmt::openflow::{Address, Agent, AgentError, FailMode, Service, TlsFiles};
use crate::mgmt::vswitchd::model::BridgeSpec;

/// Returns the addresses of a bridge's controllers, and why some are left out: those with TLS, without its files.
fn reachable(spec: &BridgeSpec) -> (Vec<Address>, Vec<String>) {
    let problem = match spec.tls.as_ref().map(TlsFiles::check) {
        Some(Ok(())) => return (spec.controllers.addresses.clone(), Vec::new()),
        Some(Err(error)) => error.to_string(),
        None => "the database names no files of TLS (ovs-vsctl set-ssl)".to_owned(),
    };
    let (secured, plain): (Vec<_>, Vec<_>) =
        spec.controllers.addresses.iter().cloned().partition(Address::has_tls);
    let left_out = secured.iter().map(|address| format!("{address} is left out: {problem}"));
    (plain, left_out.collect())
}

impl Bridge {
    /// Opens the agent of OpenFlow, with the bridge's own socket and its controllers.
    pub(super) fn open_agent(&mut self, spec: &BridgeSpec) {
        let folder = &self.folder;
        let own = Address::ListenUnix(folder.join(format!("{}.mgmt", spec.name)));
        let versions = if spec.versions.is_empty() { Version::ALL.to_vec() } else { spec.versions.clone() };
        let fail_mode = if spec.is_secure { FailMode::Secure } else { FailMode::default() };
        let standalone_after =
            fail_mode.standalone_after().filter(|_| !spec.controllers.addresses.is_empty());
        // As in Open vSwitch, three times the longest interval of probes.
        let standalone_after = standalone_after
            .map(|usual| spec.controllers.longest_probe().map_or(usual, |longest| 3 * longest));
        let service =
            Service::new(self.served.clone(), &spec.name, self.datapath_id, self.packet_ins.clone())
                .with_versions(versions)
                .with_standalone_after(standalone_after)
                .with_settings(spec.controllers.settings.clone())
                .with_texts(spec.controllers.texts.clone());
        let open = |addresses: &[Address]| {
            let mut agent = Agent::open(addresses, spec.tls.as_ref(), service.clone())?;
            agent.open_snoop(&folder.join(format!("{}.snoop", spec.name)))?;
            Ok::<_, AgentError>(agent)
        };
        let (controllers, left_out) = reachable(spec);
        self.waits_for_tls = !left_out.is_empty();
        let addresses: Vec<Address> = std::iter::once(own).chain(controllers).collect();
        let problems = &mut self.problems;
        self.agent.replace(|| match open(&addresses) {
            Ok(agent) => Some(agent),
            Err(error) => {
                problems.push(error.to_string());
                // Its own socket must not fail with an address of a controller.
                open(&addresses[..1]).map_err(|error| problems.push(error.to_string())).ok()
            }
        });
        self.problems.extend(left_out);
        let unknown = spec.controllers.unknown.iter();
        self.problems
            .extend(unknown.map(|target| format!("{target} is left out: it is no address of a controller")));
    }

    /// Opens the agent again, where it was lost, or files of TLS can be used now.
    pub(super) fn retry_agent(&mut self) {
        let can_be_used = |files: &TlsFiles| files.check().is_ok();
        if self.agent.take_lost() || self.waits_for_tls && self.spec.tls.as_ref().is_some_and(can_be_used) {
            self.open_agent(&self.spec.clone());
        }
    }
}
