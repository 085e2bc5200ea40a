//! The map of tunnel options.

use flowlane_openflow::message::{TlvCommand, TlvMapping, TlvTable, TlvTableMod};

use super::*;

fn mapping(index: u16, kind: u8, length: u8) -> TlvMapping {
    TlvMapping { class: 0x102, kind, length, index }
}

impl Controller {
    /// Changes the map; returns the error if that is refused.
    fn map(&mut self, command: TlvCommand, mappings: &[TlvMapping]) -> Option<ErrorKind> {
        self.send(&Message::TlvTableMod(TlvTableMod { command, mappings: mappings.to_vec() }));
        self.barrier()
    }

    fn mappings(&mut self) -> Vec<TlvMapping> {
        match self.ask(&Message::TlvTableRequest) {
            Message::TlvTableReply(TlvTable { space_max: 112, fields_max: 7, mappings }) => mappings,
            other => panic!("{other:?}"),
        }
    }
}

fn refused(code: ErrorCode) -> Option<ErrorKind> {
    Some(ErrorKind::Known(code))
}

#[test]
fn options_are_mapped_and_unmapped() {
    for version in Version::ALL {
        with_switch(|path, _| {
            let mut controller = Controller::connect(path, version);
            assert_eq!(controller.mappings(), []);
            let (first, last) = (mapping(0, 0x80, 4), mapping(6, 1, 16));
            assert_eq!(controller.map(TlvCommand::Add, &[first, last]), None);
            assert_eq!(controller.mappings(), [first, last]);
            let refusals = [
                (mapping(0, 7, 4), ErrorCode::TlvTableAlreadyMapped),
                (mapping(1, 1, 4), ErrorCode::TlvTableDupEntry),
                (mapping(1, 7, 20), ErrorCode::TlvTableTableFull),
                (mapping(7, 7, 4), ErrorCode::TlvTableBadFieldIdx),
            ];
            for (wrong, code) in refusals {
                assert_eq!(controller.map(TlvCommand::Add, &[mapping(5, 9, 4), wrong]), refused(code));
            }
            assert_eq!(controller.mappings(), [first, last], "all or none");
            // A mapping that is not there is not missed, as in Open vSwitch.
            assert_eq!(controller.map(TlvCommand::Delete, &[last, mapping(3, 3, 4)]), None);
            assert_eq!(controller.mappings(), [first]);
            assert_eq!(controller.map(TlvCommand::Clear, &[]), None);
            assert_eq!(controller.mappings(), []);
        });
    }
}

#[test]
fn rules_have_mapped_options_only_and_keep_them() {
    with_switch(|path, wires| {
        let mut controller = Controller::connect(path, Version::OpenFlow13);
        let absent = refused(ErrorCode::NiciraFlowModInvalidTlvField);
        let users = [
            "add table=1,tun_metadata2=5 actions=drop",
            "add table=1,tun_metadata2 actions=drop",
            "add table=1 actions=load:5->tun_metadata2[]",
            "add table=1 actions=clone(push:tun_metadata2[0..31])",
            "add table=1 actions=learn(table=2,tun_metadata2[0..31]=reg0[])",
            "add table=1 actions=delete_field:tun_metadata2",
        ];
        for line in users {
            assert_eq!(controller.change(line), absent, "{line}");
        }
        let two = mapping(2, 0x80, 4);
        assert_eq!(controller.map(TlvCommand::Add, &[two]), None);
        controller.codec.option_bytes[2] = 4;
        let mut other = Controller::connect(path, Version::OpenFlow10);
        other.codec.option_bytes[2] = 4;
        for line in users {
            assert_eq!(controller.change(line), None, "{line}");
            assert_eq!(other.flows().len(), 1, "{line}");
            let in_use = refused(ErrorCode::TlvTableInvalidTlvDel);
            assert_eq!(controller.map(TlvCommand::Delete, &[two]), in_use, "{line}");
            assert_eq!(controller.map(TlvCommand::Clear, &[]), in_use, "{line}");
            assert_eq!(controller.change("delete"), None);
        }
        // An option that is written is there, and one that is deleted is not, whatever its value.
        let lines = [
            "add table=0,udp,tp_dst=1 actions=load:5->tun_metadata2[],resubmit(,1)",
            "add table=0,udp,tp_dst=2 actions=load:5->tun_metadata2[],delete_field:tun_metadata2,move:tun_metadata2[0..31]->reg0[],resubmit(,1)",
            "add table=1,priority=2,tun_metadata2=5 actions=output:2",
            "add table=1,priority=1,reg0=5 actions=output:3",
        ];
        for line in lines {
            assert_eq!(controller.change(line), None, "{line}");
        }
        for port in [1, 2, 1, 2] {
            wires.arrive(0, frame(port));
            assert_eq!(wait_for(&wires.left[usize::from(port)]), frame(port));
        }
        assert_eq!(controller.change("delete"), None);
        assert_eq!(controller.map(TlvCommand::Delete, &[two]), None);
    });
}
