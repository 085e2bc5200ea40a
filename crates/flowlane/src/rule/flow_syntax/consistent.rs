//! Actions that need headers which packets of their rule may lack (OpenFlow 1.3.5, 7.4.4: `OFPBAC_MATCH_INCONSISTENT`).

use std::net::IpAddr;

use super::super::{Action, Rule};
use super::known::Known;
use crate::packet::FieldRef;
use crate::packet::fields::Field;
use crate::packet::parse::{ether_type, ip_proto};
use crate::rule::action::{ConnectionTracking, SetForm, Zone};

/// The ports of protocols that have a helper.
const FTP: u16 = 21;
const TFTP: u16 = 69;

/// Returns whether each action of a rule finds the headers that it needs in all packets of the rule.
///
/// The actions of OpenFlow 1.0 (`mod_nw_src`, `strip_vlan`, `dec_ttl`, …) leave alone a packet that lacks the header: with
/// `is_lenient` they need none, as in OpenFlow 1.0. Fields that are loaded, moved, pushed or popped are checked in all versions. What
/// `learn` and action sets contain is not checked.
pub fn is_consistent(rule: &Rule, is_lenient: bool) -> bool {
    are_consistent(Known::of(&rule.matches), &rule.actions, is_lenient)
}

fn are_consistent(mut known: Known, actions: &[Action], is_lenient: bool) -> bool {
    // A packet without a tag has no priority, but an identifier, as far as these actions are concerned: that without `CFI`.
    let has = |known: &Known, part: &FieldRef| match part.field() {
        Field::VlanVid => !known.lacks_ethernet(Field::VlanVid),
        field => has_field(known, field, None),
    };
    for action in actions {
        let finds = match action {
            Action::SetField { form: SetForm::Own, .. } if is_lenient => true,
            Action::SetField { field, protocol, .. } => has_field(&known, *field, *protocol),
            Action::Move { from, to } => has(&known, from) && has(&known, to),
            Action::Push(part) | Action::Pop(part) | Action::OutputField { port: part, .. } => {
                has(&known, part)
            }
            Action::PopVlan => is_lenient || has_field(&known, Field::VlanPcp, None),
            Action::DecTtl(_) => is_lenient || known.is_ip(),
            Action::DecMplsTtl | Action::PopMpls(_) => is_lenient || has_field(&known, Field::MplsTtl, None),
            Action::FinTimeout { .. } => is_lenient || known.is_over_ip(ip_proto::TCP),
            Action::ConnectionTracking(ct) => can_track(&known, ct),
            Action::Resubmit { original: true, .. } => known.may_show_connection(),
            Action::Clone(nested) => are_consistent(known.clone(), nested, is_lenient),
            _ => true,
        };
        if !finds {
            return false;
        }
        known.after(action);
    }
    true
}

/// Returns whether the packets may have connections: those of the protocol of a helper and of the addresses of a translation.
fn can_track(known: &Known, ct: &ConnectionTracking) -> bool {
    let has_protocol = match ct.alg {
        FTP => known.is_over_ip(ip_proto::TCP),
        TFTP => known.is_over_ip(ip_proto::UDP),
        _ => true,
    };
    let has_zone = match &ct.zone {
        Zone::Number(_) => true,
        Zone::Field(part) => has_field(known, part.field(), None),
    };
    let is_translated = ct.exec.iter().all(|action| match action {
        Action::Nat(nat) => match nat.range.and_then(|range| range.addresses) {
            Some((IpAddr::V4(_), _)) => known.may_be(ether_type::IPV4),
            Some((IpAddr::V6(_), _)) => known.may_be(ether_type::IPV6),
            None => true,
        },
        _ => true,
    });
    known.is_ip() && !(ct.commit && known.is_invalid()) && has_protocol && has_zone && is_translated
}

/// Returns whether packets have a field: that of a protocol, where fields of several are one.
fn has_field(known: &Known, field: Field, protocol: Option<u8>) -> bool {
    let name = match (field, protocol) {
        (Field::VlanVid, _) => "vlan_vid",
        (Field::VlanPcp, _) => "vlan_pcp",
        (Field::TpSrc | Field::TpDst, Some(ip_proto::TCP)) => "tcp_port",
        (Field::TpSrc | Field::TpDst, Some(ip_proto::UDP)) => "udp_port",
        (Field::TpSrc | Field::TpDst, Some(ip_proto::SCTP)) => "sctp_port",
        (Field::IcmpType | Field::IcmpCode, Some(ip_proto::ICMPV6)) => "icmpv6",
        (Field::IcmpType | Field::IcmpCode, Some(ip_proto::ICMP)) => "icmpv4",
        _ => field.info().name,
    };
    !known.lacks_ethernet(field) && known.lacks_to_act(field, name).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Match, ReadOptions, action::PortNo, read};

    #[test]
    fn actions_need_their_headers_in_the_match() {
        let mut tcp = Match::any();
        tcp.set(Field::EthType, ether_type::IPV4.into());
        tcp.set(Field::NwProto, ip_proto::TCP.into());
        let set = |field, protocol, form| Action::SetField { field, value: 5, mask: 0xffff, form, protocol };
        let part = |field: Field| FieldRef::of_mask(field, field.info().ones()).unwrap();
        let udp = Some(ip_proto::UDP);
        let port = PortNo(1);
        // The action, and whether it is consistent with all packets, and with TCP, in OpenFlow 1.0 and later.
        let cases = [
            (Action::Output(port), [true, true], [true, true]),
            (set(Field::TpDst, udp, SetForm::SetField), [false, false], [false, false]),
            (set(Field::TpDst, None, SetForm::SetField), [false, false], [true, true]),
            (set(Field::TpDst, None, SetForm::Own), [true, false], [true, true]),
            (set(Field::VlanVid, None, SetForm::SetField), [false, false], [false, false]),
            (Action::Push(part(Field::Ipv4Src)), [false, false], [true, true]),
            (Action::dec_ttl(), [true, false], [true, true]),
            (Action::DecMplsTtl, [true, false], [true, false]),
            (Action::PopVlan, [true, false], [true, false]),
            (Action::Clone(vec![Action::dec_ttl()]), [true, false], [true, true]),
        ];
        for (action, of_all, of_tcp) in cases {
            for (matches, expected) in [(Match::any(), of_all), (tcp.clone(), of_tcp)] {
                let rule = Rule::new(matches, vec![action.clone()]);
                assert_eq!([true, false].map(|lenient| is_consistent(&rule, lenient)), expected, "{rule}");
            }
        }
        let text = |line: &str| {
            let mut rules = read(line, "rules", None, &ReadOptions::default()).expect("it is well formed");
            rules.remove(0)
        };
        let (v4, v6) = (text("ip actions=ct(commit,nat(src=10.0.0.1))"), text("ipv6 actions=ct(commit)"));
        let helper = text("tcp actions=ct(commit,alg=ftp)");
        let invalid = text("ip,ct_state=+inv+trk actions=ct");
        assert!([&v4, &v6, &helper, &invalid].iter().all(|rule| is_consistent(rule, true)));
        let of = |matches: &Rule, actions: &Rule| Rule::new(matches.matches.clone(), actions.actions.clone());
        for (matches, actions) in [(&v6, &v4), (&invalid, &v6), (&v4, &helper)] {
            assert!(!is_consistent(&of(matches, actions), true), "{matches}, {actions}");
        }
        assert!(!is_consistent(&Rule::new(Match::any(), v6.actions.clone()), true));
        let shows = text("ct_state=+est actions=resubmit(,1,ct)");
        for (of, expected) in
            [("+trk", false), ("+new", true), ("+trk-inv", true), ("-inv", false), ("-est", false)]
        {
            let of = text(&format!("ip,ct_state={of} actions=drop"));
            assert_eq!(is_consistent(&Rule::new(of.matches, shows.actions.clone()), true), expected);
        }
        let tagged = vec![Action::PushVlan(0x8100), set(Field::VlanVid, None, SetForm::SetField)];
        assert!(is_consistent(&Rule::new(Match::any(), tagged), false));
    }
}
