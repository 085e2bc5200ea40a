//! Reloading the configuration.

use std::path::Path;

use super::RpcError;
use super::ports::refused;
use super::server::{ChangeReport, ControlServer, setup_error};
use crate::mgmt::setup::{Asked, Opened, PortSet};

impl ControlServer {
    /// Takes over rules, groups, ports, mirrors and settings of zones from a configuration: the one that the switch was started with, or
    /// another that differs in these alone. Unchanged rules keep their counters, and unchanged ports stay open.
    ///
    /// # Errors
    /// Where the configuration is wrong, differs in more than these, or has a port that cannot be opened; nothing has changed.
    pub fn reload(&self, file: Option<&Path>) -> Result<ChangeReport, RpcError> {
        // A pipe or a device might never end.
        if let Some(other) = file.filter(|file| file.metadata().is_ok_and(|metadata| !metadata.is_file())) {
            return Err(RpcError::new(RpcError::PARAMS, format!("{} is not a file", other.display())));
        }
        let wanted = self.reload.read(file).map_err(|error| setup_error(&error))?;
        let mut ports = self.reload.ports();
        let plan = ports.plan(&wanted.ports);
        if plan.is_needed() {
            // Nothing is opened, or changed, for workers that do not run.
            self.call_worker(0, |_| ())?;
        }
        ports.check_changed(&plan.changed, &wanted.source).map_err(refused)?;
        let open = |ports: &PortSet, asked: &[Asked]| -> Result<Vec<Opened>, RpcError> {
            let opened = asked.iter().map(|one| ports.open(one, self.workers_count(), true, &wanted.source));
            opened.collect::<Result<_, _>>().map_err(refused)
        };
        let (new, replaced) = (open(&ports, &plan.new)?, open(&ports, &plan.replaced)?);
        let (mut added, mut problems) = (Vec::new(), Vec::new());
        for opened in new {
            added.push(opened.section.number);
            problems.extend(self.put(&mut ports, opened)?);
        }
        let wanted_mirrors = wanted.mirrors.clone();
        let changes = self.reload.changes(&self.control(), wanted, &ports);
        let report = self.make(&changes.all(), "", "configuration").inspect_err(|_| {
            // No rule names them. An error is of a switch that ends.
            added.iter().for_each(|number| _ = self.take_out(&mut ports, *number));
        })?;
        let of_ports = added.len() + replaced.len() + plan.changed.len() + plan.gone.len();
        for opened in replaced {
            problems.extend(self.put(&mut ports, opened)?);
        }
        for section in plan.changed {
            problems.extend(self.set_port(&mut ports, section)?);
        }
        for number in plan.gone {
            match self.take_out(&mut ports, number) {
                Ok(report) => problems.extend(report.problem),
                Err(error) => problems.push(error.message),
            }
        }
        let (mirrors, mirrors_changed) = self.reload.mirrors().replace(&wanted_mirrors);
        if mirrors_changed > 0 {
            self.control().set_mirrors(mirrors);
        }
        plan.adopted.into_iter().for_each(|number| ports.adopt(number));
        let (of_all, own) = &changes.zones;
        let report = ChangeReport {
            groups: changes.groups.len() + changes.deleted_groups.len(),
            ports: changes.vlans.len() + of_ports,
            // Workers that do not run track nothing any more, or not yet.
            zones: self.tracked().map_or(0, |(connections, _)| connections.zones().replace(of_all, own)),
            mirrors: mirrors_changed,
            problems,
            ..report
        };
        self.reload.made(changes);
        Ok(report)
    }
}
