//! The spanning tree of a bridge: which of its ports take part.

use std::collections::{BTreeMap, BTreeSet};

use flowlane::rule::action::PortNo;

use super::Bridge;
use crate::mgmt::vswitchd::model::{BridgeSpec, InterfaceSpec};
use crate::mgmt::vswitchd::spanning_tree::TreePort;

impl Bridge {
    /// Makes the tree the one that is asked for, with the ports that are open, and one that comes.
    pub(super) fn follow_tree(&mut self, spec: &BridgeSpec, coming: Option<(&InterfaceSpec, u32)>) {
        if spec.tree.is_none() && self.tree.thread.get().is_none() {
            return;
        }
        if let Err(error) = self.start_tree() {
            self.problems.push(format!("the spanning tree has no thread: {error}"));
        }
        let mut ports: BTreeMap<PortNo, TreePort> = BTreeMap::new();
        let settings = spec.tree.as_ref().map(|tree| {
            let opened = self.opened().into_iter().map(|(number, port)| (port, number, true));
            let all = opened.chain(coming.map(|(port, number)| (port, number, false)));
            let is_output =
                |port: &InterfaceSpec| spec.mirrors.iter().any(|mirror| mirror.outputs_to(port.uuid));
            let all = all.filter(|(port, ..)| !is_output(port));
            ports.extend(
                all.filter_map(|(port, number, is_open)| tree.port(port, number, is_open, &self.served)),
            );
            (tree.settings(self.own_mac(spec)), tree.is_rapid)
        });
        let mut taken = BTreeSet::new();
        ports.retain(|_, port| port.take_number(&mut taken));
        self.tree.follow(settings, ports, &self.served);
        self.tree.update(&self.served, &self.snooping);
    }

    /// Starts the thread of the tree, if it does not run.
    fn start_tree(&mut self) -> std::io::Result<()> {
        if self.tree.thread.get().is_some() {
            return Ok(());
        }
        let (served, tree) = (self.served.clone(), self.tree.clone());
        let (snooping, is_over) = (self.snooping.clone(), self.is_over.clone());
        let thread = self.spawn("tree", move || tree.run(&served, &snooping, &is_over))?;
        self.tree.thread.set(thread);
        Ok(())
    }
}
