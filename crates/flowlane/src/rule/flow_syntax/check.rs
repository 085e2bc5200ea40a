//! Whether a rule is one that a text could say: its match names fields with their prerequisites, its actions set values that fit.

use super::super::{Action, Match, Rule};
use super::known::Known;
use crate::error::Error;
use crate::packet::fields::{Field, FieldInfo, Prerequisite, word};

/// Says that a field lacks a condition on the packets, and where that is to be added.
pub(super) fn needs(name: &str, missing: &str, place: &str) -> String {
    format!("{name} needs {missing} {place}")
}

impl Match {
    /// Checks that the match asks for the packets that have its fields, as the text of a rule must: `tp_dst` needs IP, say.
    /// Without, it would match packets that have no such field, and others that have another field in its place.
    ///
    /// Ports may be looked at for any protocol over IP.
    ///
    /// ```
    /// use flowlane::{Field, Match};
    ///
    /// let mut web = Match::any();
    /// web.set(Field::TpDst, 80);
    /// let error = web.check().unwrap_err();
    /// assert_eq!(error.to_string(), "tp_dst needs `tcp`, `udp` or `sctp` (or `ip`, for any of them) in the match");
    /// assert!(web.set(Field::EthType, 0x0800).set(Field::NwProto, 6).check().is_ok());
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): a field lacks its prerequisite.
    pub fn check(&self) -> Result<(), Error> {
        let known = Known::of(self);
        let range = [(self.tp_src_range(), 0xffff_0000), (self.tp_dst_range(), 0xffff)];
        let ranges = range.into_iter().filter_map(|(range, bits)| range.map(|_| (word::PORTS, bits)));
        for (word, mask) in self.words().iter().map(|w| (usize::from(w.word), w.mask)).chain(ranges) {
            match lacking(&known, word, mask) {
                Some((name, missing)) => return Err(Error::input(needs(name, missing, "in the match"))),
                None => continue,
            }
        }
        Ok(())
    }
}

/// The first field of which these packets are not known to have the bits, and the condition that says that they have. Bits may be
/// those of several fields, of which one suffices.
fn lacking(known: &Known, word: usize, mask: u32) -> Option<(&'static str, &'static str)> {
    let in_word = |info: &FieldInfo| bits_of(info, word) & mask;
    let lacks = |info: &FieldInfo| match info.prerequisite {
        // Of any protocol, as filters of ClassBench have them.
        Prerequisite::Ports if known.is_ip() => None,
        _ => known.lacks_to_match(info.field, info.name),
    };
    let fields = || Field::rows().iter().filter(|info| in_word(info) != 0);
    let left = fields().filter(|info| lacks(info).is_none()).fold(mask, |left, info| left & !in_word(info));
    let info = fields().find(|info| in_word(info) & left != 0)?;
    Some((info.name, lacks(info)?))
}

/// The bits of a word that are a field's.
fn bits_of(info: &FieldInfo, word: usize) -> u32 {
    let (first, last) =
        (usize::from(info.bit) / 32, (usize::from(info.bit) + usize::from(info.width) - 1) / 32);
    if !(first..=last).contains(&word) {
        return 0;
    }
    let piece = info.pieces().find(|(own, ..)| *own == word);
    piece.map_or(0, |(_, shift, width)| (u32::MAX >> (32 - width)) << shift)
}

impl Rule {
    /// Checks that the text of a rule could say this: its [match](Match::check) has the prerequisites of its fields, and its actions set
    /// fields to values that they can hold. A classifier refuses other rules.
    ///
    /// ```
    /// use flowlane::{Action, Field, Match, Rule};
    ///
    /// let rule = Rule::new(Match::any(), vec![Action::set_field(Field::PktMark, 1 << 32, u32::MAX.into())]);
    /// let error = rule.check().unwrap_err();
    /// assert_eq!(error.to_string(), "0x100000000 does not fit into the 32 bits of pkt_mark; the largest value is 0xffffffff");
    /// ```
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): a field lacks its prerequisite, or cannot hold a value.
    pub fn check(&self) -> Result<(), Error> {
        self.matches.check()?;
        self.actions.iter().try_for_each(check_action)
    }
}

fn check_action(action: &Action) -> Result<(), Error> {
    if let Action::SetField { field, value, mask, .. } = action {
        field.info().check(*value)?;
        field.info().check_masked(0, *mask)?;
    }
    action.nested().iter().try_for_each(check_action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::flow_syntax::print_value;
    use crate::rule::{Priority, ReadOptions, read};

    fn check(matches: &Match) -> Result<(), String> {
        matches.check().map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_match_that_a_text_cannot_say_is_refused_with_the_reason_of_the_text() {
        for info in Field::named() {
            let mut matches = Match::any();
            matches.set(info.field, 1);
            let text = format!("{} actions=drop", print_value(info.field, 1));
            let read = read(&text, "flows", None, &ReadOptions::default()).map(drop);
            let read = read.map_err(|refused| refused.errors()[0].problem.clone());
            let own = check(&matches);
            match read {
                Err(problem) if problem.contains("needs") => {
                    let problem = problem.replace("on the same line", "in the match");
                    // The bits of ARP's addresses are those of IP's, which come first.
                    let same = own.clone().unwrap_err();
                    assert!(
                        same == problem || problem.starts_with("arp_") || problem.starts_with("nd_"),
                        "{same}, {problem}"
                    );
                }
                _ => assert_eq!(own, Ok(()), "{}", info.name),
            }
        }
    }

    #[test]
    fn prerequisites_may_be_those_of_any_field_in_the_same_bits() {
        let of = |fields: &[(Field, u128)]| {
            let mut matches = Match::any();
            fields.iter().for_each(|(field, value)| _ = matches.set(*field, *value));
            check(&matches)
        };
        use Field::*;
        assert_eq!(of(&[(EthType, 0x0800), (Ipv4Src, 1)]), Ok(()));
        assert_eq!(of(&[(EthType, 0x0806), (ArpSpa, 1)]), Ok(()));
        assert_eq!(of(&[(EthType, 0x86dd), (NwProto, 58), (IcmpType, 135), (NdSll, 1)]), Ok(()));
        assert_eq!(of(&[(EthType, 0x0800), (NwProto, 1), (TpDst, 80)]), Ok(()), "a filter of ClassBench");
        assert_eq!(of(&[(EthType, 0x86dd), (Ipv4Src, 1)]), Err("nw_src needs `ip` in the match".to_owned()));
        assert!(of(&[(NwProto, 6)]).is_err() && of(&[(EthType, 0x0800), (TcpFlags, 2)]).is_err());
        assert!(of(&[(VlanVid, 5), (Reg3, 1), (XxReg1, 7), (TunId, 9), (CtZone, 1)]).is_ok());
        let mut range = Match::any();
        range.set_range(TpSrc, 5, 100);
        assert!(check(&range).unwrap_err().starts_with("tp_src needs `tcp`"));
        assert_eq!(check(range.set(EthType, 0x86dd)), Ok(()));
    }

    #[test]
    fn every_rule_that_readers_make_passes() {
        let texts = [
            "@10.0.0.0/8\t192.0.2.1/32\t0 : 65535\t80 : 90\t0x01/0xFF\t0x0800/0xff00",
            "@2001:db8::/32\t::/0\t1 : 2\t0 : 65535\t0x00/0x00",
            "icmp6,icmp_type=135,nd_target=2001:db8::1,nd_sll=02:00:00:00:00:01 actions=drop",
            "tcp,tcp_flags=+syn-ack,tp_dst=80-90 actions=set_field:5->tcp_src,clone(mod_nw_ttl:3)",
            "mpls,mpls_label=5,mpls_bos=1 actions=drop\ndl_vlan=5,dl_vlan_pcp=3 actions=drop\ntun_metadata3=5 actions=drop",
            "udp,ip_frag=later,nw_tos=32 actions=ct(commit,exec(set_field:7->ct_mark))",
        ];
        for text in texts {
            let rules = read(text, "rules", None, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            rules.iter().for_each(|rule| assert_eq!(rule.check(), Ok(()), "{rule}"));
        }
    }

    #[test]
    fn values_of_actions_must_fit_wherever_they_are() {
        let wide = || Action::set_field(Field::NwTtl, 256, 0xff);
        let rule = |action| Rule { priority: Priority(1), ..Rule::new(Match::any(), vec![action]) };
        for action in
            [wide(), Action::Clone(vec![wide()]), Action::WriteActions(vec![Action::dec_ttl(), wide()])]
        {
            let refused = rule(action).check().unwrap_err().to_string();
            assert_eq!(refused, "256 does not fit into the 8 bits of nw_ttl; the largest value is 255");
        }
        let refused = rule(Action::set_field(Field::NwTtl, 1, 0x1ff)).check().unwrap_err().to_string();
        assert!(refused.starts_with("the mask 0x1ff does not fit into the 8 bits of nw_ttl"), "{refused}");
    }
}
