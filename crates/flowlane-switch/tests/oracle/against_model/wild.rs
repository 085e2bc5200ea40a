//! Random rules as data: any field matched and set, whether or not the packets that come have it, actions in
//! any order.

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Match, Priority, Rule};

use crate::model::{Kind, Miss, Route, Routes};
use crate::packets::Random;

/// Fields with values that packets have, to be matched or set.
const VALUES: [(Field, &[u128]); 36] = [
    (Field::EthDst, &[0x0200_0000_0001, 0x0200_0000_0002]),
    (Field::EthSrc, &[0x0200_0000_0001, 0x0200_0000_0003]),
    (Field::VlanVid, &[5, 6]),
    (Field::VlanPcp, &[0, 3]),
    (Field::VlanTci, &[0x1005, 0x7006, 0x1000]),
    (Field::MplsLabel, &[7, 16]),
    (Field::MplsTc, &[0, 5]),
    (Field::MplsTtl, &[1, 2, 64]),
    (Field::Ipv4Src, &[0x0a00_0001, 0x0a00_0002]),
    (Field::Ipv4Dst, &[0x0a00_0001, 0xc000_0207]),
    (Field::Ipv6Src, &[0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2]),
    (Field::Ipv6Dst, &[0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 3]),
    (Field::Ipv6Label, &[0, 5]),
    (Field::IpDscp, &[0, 8]),
    (Field::IpEcn, &[0, 1, 3]),
    (Field::NwTtl, &[0, 1, 2, 63, 64]),
    (Field::TpSrc, &[80, 443]),
    (Field::TpDst, &[53, 80]),
    (Field::IcmpType, &[8, 128, 0]),
    (Field::IcmpCode, &[0, 1]),
    (Field::ArpOp, &[1, 2]),
    (Field::ArpSpa, &[0x0a00_0001, 0x0a00_0002]),
    (Field::ArpTpa, &[0x0a00_0001, 0x0a00_0002]),
    (Field::ArpSha, &[0x0200_0000_0001, 0x0200_0000_0002]),
    (Field::ArpTha, &[0x0200_0000_0001, 0x0200_0000_0002]),
    (Field::NdSll, &[0x0200_0000_0001, 0x0200_0000_0002]),
    (Field::NdTll, &[0x0200_0000_0001, 0x0200_0000_0002]),
    (Field::NdReserved, &[0, 0x6000_0000]),
    (Field::NdOptionsType, &[0, 1, 2]),
    (Field::NdTarget, &[0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2]),
    (Field::Metadata, &[0, 5]),
    (Field::PktMark, &[0, 5]),
    (Field::Reg0, &[0, 1, 2]),
    (Field::Reg1, &[0, 1, 2]),
    (Field::Reg9, &[0, 1]),
    (Field::Reg15, &[0, 1]),
];

/// Fields that are matched only.
const MATCHED: [(Field, &[u128]); 10] = [
    (Field::InPort, &[1, 2]),
    (Field::EthType, &[0x0800, 0x86dd, 0x0806, 0x8035, 0x8847, 0x8848, 0x8100, 0x05ff, 0x88cc]),
    (Field::NwProto, &[0, 1, 6, 17, 44, 58, 132, 136]),
    (Field::IpFrag, &[0, 1, 3]),
    (Field::TcpFlags, &[0x12, 0x10]),
    (Field::MplsBos, &[0, 1]),
    (Field::VlanTpid, &[0, 0x8100, 0x88a8]),
    (Field::VlanTci1, &[0, 0x1005, 0x1006]),
    (Field::MplsLse1, &[0]),
    (Field::MplsLse2, &[0]),
];

/// Pairs of one width, to be moved.
const MOVES: [(Field, Field); 14] = [
    (Field::Ipv4Src, Field::Ipv4Dst),
    (Field::Ipv4Dst, Field::Reg0),
    (Field::Reg1, Field::Ipv4Src),
    (Field::TpSrc, Field::TpDst),
    (Field::TpDst, Field::TpSrc),
    (Field::EthSrc, Field::EthDst),
    (Field::Ipv6Src, Field::Ipv6Dst),
    (Field::ArpSpa, Field::ArpTpa),
    (Field::ArpSha, Field::EthDst),
    (Field::MplsTc, Field::VlanPcp),
    (Field::MplsTtl, Field::NwTtl),
    (Field::NwTtl, Field::IcmpCode),
    (Field::VlanTci, Field::TpDst),
    (Field::Reg0, Field::Reg1),
];

/// One to four tables of rules, and in every third case one of routes and another of rules behind them.
pub(super) fn tables(r: &mut Random) -> Vec<Kind> {
    let rules = |r: &mut Random| Kind::Rules(r.pick(&[Miss::Drop, Miss::Continue, Miss::Controller]));
    let mut out: Vec<Kind> = (0..1 + r.below(4)).map(|_| rules(r)).collect();
    if r.one_in(3) {
        let number = out.len() as u8;
        out.push(Kind::Routes(routes(r, number)));
        out.push(rules(r));
    }
    out
}

fn routes(r: &mut Random, number: u8) -> Routes {
    let behind = |action: &Action| match action {
        // What only rules may do.
        Action::Move { .. } => false,
        Action::SetField { field, .. } => {
            !matches!(field, Field::Metadata | Field::PktMark)
                && !(Field::Reg0..=Field::XxReg3).contains(field)
        }
        _ => true,
    };
    let mut hops = Vec::new();
    for _ in 0..3 {
        let mut actions: Vec<Action> = (0..r.below(4)).map(|_| action(r)).filter(behind).collect();
        actions.push(if r.one_in(2) { Action::Goto(number + 1) } else { Action::Output(PortNo(3)) });
        hops.push(actions);
    }
    let v4 = [(0x0a00_0000, 8), (0x0a00_0002, 32), (0xc000_0200, 24)];
    let v6 = [(0x2001_0db8 << 96, 32), (0x2001_0db8 << 96 | 2, 128), (0x2001_0db8_0000_0001 << 64, 64)];
    let mut routes = Vec::new();
    for (v6, prefixes) in [(false, v4), (true, v6)] {
        for (address, len) in prefixes {
            if r.below(4) > 0 {
                routes.push(Route { v6, address, len, hop: r.below(3) as usize });
            }
        }
    }
    Routes { to_controller: r.one_in(2), routes, hops }
}

/// Rules for the tables that hold them.
pub(super) fn rules(r: &mut Random, kinds: &[Kind]) -> Vec<Rule> {
    let tables = kinds.len() as u8;
    let mut out = Vec::new();
    for (table, kind) in (0..).zip(kinds) {
        if matches!(kind, Kind::Routes(_)) {
            continue;
        }
        for _ in 0..1 + r.below(8) {
            let matches = matches(r);
            let mut actions: Vec<Action> = (0..r.below(5)).map(|_| action(r)).collect();
            if r.one_in(2) {
                actions.push(Action::Output(PortNo(1 + r.below(4))));
            }
            if table + 1 < tables && r.below(3) > 0 {
                let behind = u32::from(tables - 1 - table);
                actions.push(Action::Goto(table + 1 + r.below(behind) as u8));
            }
            out.push(Rule { table, priority: Priority(r.below(4)), cookie: 0, matches, actions });
        }
    }
    out
}

fn matches(r: &mut Random) -> Match {
    let mut out = Match::any();
    for _ in 0..r.pick(&[0, 1, 1, 1, 2, 2, 3]) {
        let (field, values) = if r.one_in(2) { r.pick(&VALUES) } else { r.pick(&MATCHED) };
        let (value, ones) = (r.pick(values), field.info().ones());
        let mask = if r.one_in(4) { ones & r.pick(&[1, 3, !0xff, 0x1000]) } else { ones };
        out.set_masked(field, value, mask);
    }
    let port = r.pick(&[Field::TpSrc, Field::TpDst]);
    if r.one_in(12) && out.get(port).1 == 0 {
        out.set_range(port, 53, r.pick(&[80, 442, 443]));
    }
    out
}

fn action(r: &mut Random) -> Action {
    match r.below(24) {
        0..3 => Action::Output(PortNo(1 + r.below(5))),
        3 => r
            .pick(&[Copied::InPort, Copied::Flood, Copied::Controller(u16::MAX), Copied::Controller(20)])
            .action(),
        4 => Action::PushVlan(r.pick(&[0x8100, 0x88a8])),
        5 | 6 => Action::PopVlan,
        7 => Action::PushMpls(r.pick(&[0x8847, 0x8848])),
        8 | 9 => Action::PopMpls(r.pick(&[0x0800, 0x0800, 0x86dd, 0x8847, 0x0806])),
        10 | 11 => Action::dec_ttl(),
        12 => Action::DecMplsTtl,
        13 | 14 => {
            let (from, to) = r.pick(&MOVES);
            let width = u32::from(from.info().width);
            if to == Field::VlanPcp || !r.one_in(3) {
                return Action::Move { from: from.into(), to: to.into() };
            }
            let bits = 1 + r.below(width);
            let mut part = |field| {
                let first = r.below(width - bits + 1);
                FieldRef::new(field, first as u8, bits as u8).expect("it is within the field")
            };
            Action::Move { from: part(from), to: part(to) }
        }
        _ => {
            let (field, values) = r.pick(&VALUES);
            let ones = field.info().ones();
            let mask = match field {
                Field::VlanTci | Field::VlanVid | Field::VlanPcp => ones,
                _ if r.one_in(4) => ones & r.pick(&[1, 0xf, !0xf]),
                _ => ones,
            };
            let value = r.pick(values) & mask;
            if mask == 0 {
                return Action::dec_ttl();
            }
            Action::set_field(field, value, mask)
        }
    }
}

/// Actions that are picked from a list.
#[derive(Clone, Copy)]
enum Copied {
    InPort,
    Flood,
    Controller(u16),
}

impl Copied {
    fn action(self) -> Action {
        match self {
            Self::InPort => Action::InPort,
            Self::Flood => Action::Flood,
            Self::Controller(max_len) => Action::controller(max_len),
        }
    }
}
