//! Reloading the configuration.

use std::path::Path;

use super::RpcError;
use super::ports::refused;
use super::server::{ChangeReport, ControlServer, setup_error};
use crate::control::MeterMod;
use crate::mgmt::config::Source;
use crate::mgmt::setup::{Asked, Opened, PortSet};
use crate::state::mirror::MirrorSettings;

impl ControlServer {
    /// Changes meters one by one. One that is refused is a problem: a configuration is checked before.
    fn change_meters(&self, changes: &[MeterMod], problems: &mut Vec<String>) {
        let mut control = self.control();
        let refused = changes.iter().filter_map(|change| control.change_meters(change).err());
        problems.extend(refused.map(|error| error.to_string()));
    }

    /// Makes the mirrors those of a configuration; returns how many are other than before.
    fn replace_mirrors(&self, wanted: &[MirrorSettings]) -> usize {
        let (mirrors, changed) = self.reload.mirrors().replace(wanted);
        if changed > 0 {
            self.control().set_mirrors(mirrors);
        }
        changed
    }

    /// Opens the ports that a reload asks for.
    fn open(&self, ports: &PortSet, asked: &[Asked], source: &Source) -> Result<Vec<Opened>, RpcError> {
        let opened = asked.iter().map(|one| ports.open(one, self.workers_count(), true, source));
        opened.collect::<Result<_, _>>().map_err(refused)
    }

    /// Takes over rules, groups, meters, ports, mirrors and settings of zones from a configuration: the one that the switch was started with, or
    /// another that differs in these alone. Unchanged rules keep their counters, and unchanged ports stay open.
    ///
    /// # Errors
    /// Where the configuration is wrong, differs in more than these, or has a port that cannot be opened; nothing has changed.
    pub fn reload(&self, file: Option<&Path>) -> Result<ChangeReport, RpcError> {
        let _ended = self.begin_reload();
        self.reload_from(file)
    }

    fn reload_from(&self, file: Option<&Path>) -> Result<ChangeReport, RpcError> {
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
        let (new, replaced) = (
            self.open(&ports, &plan.new, &wanted.source)?,
            self.open(&ports, &plan.replaced, &wanted.source)?,
        );
        let (mut added, mut problems) = (Vec::new(), Vec::new());
        for opened in new {
            added.push(opened.section.number);
            problems.extend(self.put(&mut ports, opened)?);
        }
        let wanted_mirrors = wanted.mirrors.clone();
        let meters = wanted.meters.iter().map(|meter| meter.number).collect();
        let [new_meters, other_meters] = self.reload.meter_changes(&self.control(), &wanted.meters);
        let changes = self.reload.changes(&self.control(), wanted, &ports);
        // Rules may name them.
        self.change_meters(&new_meters, &mut problems);
        let report = self.make(&changes.all(), "", "configuration").inspect_err(|_| {
            let undone: Vec<_> = new_meters.iter().filter_map(undo_of).collect();
            self.change_meters(&undone, &mut Vec::new());
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
        self.change_meters(&other_meters, &mut problems);
        plan.adopted.into_iter().for_each(|number| ports.adopt(number));
        let (of_all, own) = &changes.zones;
        let report = ChangeReport {
            groups: changes.groups.len() + changes.deleted_groups.len(),
            ports: changes.vlans.len() + of_ports,
            // Workers that do not run track nothing any more, or not yet.
            zones: self.tracked().map_or(0, |(connections, _)| connections.zones().replace(of_all, own)),
            meters: new_meters.len() + other_meters.len(),
            mirrors: self.replace_mirrors(&wanted_mirrors),
            problems,
            ..report
        };
        self.reload.made(changes, meters);
        Ok(report)
    }
}

/// Returns the change that takes a new meter out again.
fn undo_of(change: &MeterMod) -> Option<MeterMod> {
    if let MeterMod::Add(spec) = change { Some(MeterMod::Delete(Some(spec.number))) } else { None }
}
