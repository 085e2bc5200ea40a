//! The mirrors that a database asks for (ovs-vswitchd.conf.db(5), table Mirror).

use std::collections::BTreeMap;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Atom, Replica, Row, Uuid};

use super::bridge::Bridge;
use super::model::BridgeSpec;
use crate::mgmt::rpc::ControlServer;
use crate::state::mirror::{
    MIRRORS_MAX, MirrorCounters, MirrorOutput, MirrorSettings, Mirrors, PortSelection,
};
use crate::state::vlan::Vlans;

/// A mirror that is asked for. Ports are the rows of their interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MirrorSpec {
    uuid: Uuid,
    name: String,
    takes_all: bool,
    received: Vec<Uuid>,
    sent: Vec<Uuid>,
    vlans: Vec<u16>,
    /// The interfaces of its port, if it has one.
    output: Option<Vec<Uuid>>,
    output_vlan: Option<u16>,
    bytes_max: Option<u16>,
}

/// A number of a column, within the bounds of the schema.
fn number(atom: &Atom) -> Option<u16> {
    if let Atom::Integer(number) = atom { u16::try_from(*number).ok() } else { None }
}

impl MirrorSpec {
    /// Returns whether the mirror's copies leave through an interface.
    pub(super) fn outputs_to(&self, interface: Uuid) -> bool {
        self.output.iter().flatten().any(|output| *output == interface)
    }

    /// Reads the mirrors of a bridge, in the order of their rows.
    pub(super) fn read_all(replica: &Replica, bridge: &Row) -> Vec<Self> {
        let rows = bridge.get("mirrors").uuids();
        rows.filter_map(|uuid| Some(Self::read(replica, uuid, replica.row("Mirror", uuid)?))).collect()
    }

    fn read(replica: &Replica, uuid: Uuid, row: &Row) -> Self {
        let interfaces = |port: Uuid| {
            replica.row("Port", port).into_iter().flat_map(|port| port.get("interfaces").uuids())
        };
        let ports = |column| row.get(column).uuids().flat_map(interfaces).collect();
        let number_of = |column| row.get(column).atoms().find_map(number);
        Self {
            uuid,
            name: row.get("name").text().unwrap_or_default().to_owned(),
            takes_all: row.get("select_all").boolean() == Some(true),
            received: ports("select_src_port"),
            sent: ports("select_dst_port"),
            vlans: row.get("select_vlan").atoms().filter_map(number).collect(),
            output: row.get("output_port").uuids().next().map(|port| interfaces(port).collect()),
            output_vlan: number_of("output_vlan"),
            bytes_max: number_of("snaplen"),
        }
    }

    /// The settings, where these are the numbers of the ports that are open; and a column that has no effect.
    ///
    /// # Errors
    /// Why the mirror is left out.
    fn settings(&self, numbers: &BTreeMap<Uuid, u32>) -> Result<(MirrorSettings, Option<String>), String> {
        let name = &self.name;
        let (output, note) = match (&self.output, self.output_vlan) {
            (Some(interfaces), vlan) => {
                let port = interfaces.iter().find_map(|interface| numbers.get(interface));
                let missing = || format!("mirror {name} outputs to port not on bridge");
                let note =
                    format!("mirror {name} specifies both output port and output vlan; ignoring output vlan");
                (MirrorOutput::Port(PortNo(*port.ok_or_else(missing)?)), vlan.map(|_| note))
            }
            (None, Some(vlan)) => (MirrorOutput::Vlan(vlan), None),
            (None, None) => return Err(format!("mirror {name} does not specify output; ignoring")),
        };
        let selection = |interfaces: &[Uuid]| match self.takes_all {
            true => PortSelection::All,
            false => PortSelection::Ports(
                interfaces.iter().filter_map(|interface| numbers.get(interface)).copied().collect(),
            ),
        };
        let vlans = (!self.vlans.is_empty()).then(|| Vlans::of(self.vlans.iter().copied()));
        let (received, sent) = (selection(&self.received), selection(&self.sent));
        let ports = self.output.iter().flatten().filter_map(|interface| numbers.get(interface).copied());
        let members = ports.filter(|port| output != MirrorOutput::Port(PortNo(*port))).collect();
        let (name, bytes_max) = (name.clone(), self.bytes_max);
        Ok((MirrorSettings { name, received, sent, vlans, output, members, bytes_max }, note))
    }
}

/// The mirrors of a running bridge.
#[derive(Debug, Default)]
pub(super) struct BridgeMirrors {
    /// Those in force, by their rows, and what they have counted.
    mirrors: Vec<(Uuid, MirrorSettings, Arc<MirrorCounters>)>,
    /// The problems of the mirrors that are asked for, which are reported once.
    problems: Vec<String>,
}

impl BridgeMirrors {
    /// Makes the mirrors those that are asked for, where these are the numbers of the ports that are open. Returns new problems.
    pub(super) fn follow(
        &mut self,
        wanted: &[MirrorSpec],
        numbers: &BTreeMap<Uuid, u32>,
        served: &ControlServer,
    ) -> Vec<String> {
        let (mut now, mut problems) = (Vec::new(), Vec::new());
        for spec in wanted {
            match spec.settings(numbers) {
                _ if now.len() == MIRRORS_MAX => problems.push(format!(
                    "maximum of {MIRRORS_MAX} port mirrors reached, cannot create {}",
                    spec.name
                )),
                Ok((settings, note)) => {
                    problems.extend(note);
                    now.push((spec.uuid, settings, self.counters_of(spec.uuid)));
                }
                Err(problem) => problems.push(problem),
            }
        }
        let key = |(uuid, settings, _): &(Uuid, MirrorSettings, _)| (*uuid, settings.clone());
        if !now.iter().map(key).eq(self.mirrors.iter().map(key)) {
            let mirrors = now.iter().map(|(_, settings, counters)| (settings.clone(), counters.clone()));
            let mirrors = (!now.is_empty()).then(|| Arc::new(Mirrors::new(mirrors)));
            served.control().set_mirrors(mirrors);
            self.mirrors = now;
        }
        let new = problems.iter().filter(|problem| !self.problems.contains(problem)).cloned().collect();
        self.problems = problems;
        new
    }

    /// The counters of a mirror, which stay while its row is there.
    fn counters_of(&self, uuid: Uuid) -> Arc<MirrorCounters> {
        let known = self.mirrors.iter().find(|(known, ..)| *known == uuid);
        known.map(|(.., counters)| counters.clone()).unwrap_or_default()
    }

    /// The packets and bytes of each mirror, by its row.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Uuid, (u64, u64))> {
        self.mirrors.iter().map(|(uuid, _, counters)| (*uuid, counters.get()))
    }
}

impl Bridge {
    /// Makes the mirrors those that are asked for, between the ports that are open.
    pub(super) fn follow_mirrors(&mut self, spec: &BridgeSpec) {
        let mut mirrors = std::mem::take(&mut self.mirrors);
        let problems = mirrors.follow(&spec.mirrors, &self.numbers().collect(), self.served());
        self.mirrors = mirrors;
        self.problems.extend(problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(number: u8) -> Uuid {
        Uuid::read(&format!("3ac15d72-3a63-4226-b67c-d7ec44d93b{number:02x}")).unwrap()
    }

    fn spec() -> MirrorSpec {
        MirrorSpec {
            uuid: uuid(0),
            name: "m".to_owned(),
            takes_all: false,
            received: vec![uuid(1), uuid(9)],
            sent: vec![uuid(2)],
            vlans: Vec::new(),
            output: None,
            output_vlan: None,
            bytes_max: Some(64),
        }
    }

    #[test]
    fn mirrors_without_a_destination_are_left_out_with_open_vswitchs_reason() {
        let numbers: BTreeMap<Uuid, u32> = (1..=3).map(|number| (uuid(number), number.into())).collect();
        let settings = |spec: MirrorSpec| spec.settings(&numbers);
        assert_eq!(settings(spec()).unwrap_err(), "mirror m does not specify output; ignoring");
        let elsewhere = MirrorSpec { output: Some(vec![uuid(9)]), ..spec() };
        assert_eq!(settings(elsewhere).unwrap_err(), "mirror m outputs to port not on bridge");
        let (both, note) = settings(MirrorSpec {
            output: Some(vec![uuid(3), uuid(2), uuid(9)]),
            output_vlan: Some(7),
            ..spec()
        })
        .unwrap();
        assert!(note.unwrap().ends_with("ignoring output vlan"));
        let ports = |numbers: &[u32]| PortSelection::Ports(numbers.iter().copied().collect());
        // The port of row 9 is not open.
        let wanted = MirrorSettings {
            name: spec().name,
            received: ports(&[1]),
            sent: ports(&[2]),
            vlans: None,
            output: MirrorOutput::Port(PortNo(3)),
            members: [2].into(),
            bytes_max: Some(64),
        };
        assert_eq!(both, wanted);
        let (all, note) =
            settings(MirrorSpec { takes_all: true, vlans: vec![5], output_vlan: Some(7), ..spec() }).unwrap();
        assert_eq!((all.received, all.output, note), (PortSelection::All, MirrorOutput::Vlan(7), None));
        assert!(all.vlans.unwrap().has(5));
    }
}
