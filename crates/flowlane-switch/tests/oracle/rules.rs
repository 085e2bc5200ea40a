//! Random rules, in the syntax that `ovs-ofctl` and Flowlane read, over the few values that packets have.

mod fields;
mod flow_control;
mod learning;
mod most;

use std::collections::BTreeMap;

use super::packets::Random;
use fields::{FIELDS, Row};
use flow_control::Back;
pub(crate) use flow_control::leads_back;
pub(crate) use learning::is_learned;
use most::Most;

/// The prerequisite of a field: the packets that have it, which a rule must match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    Vlan,
    Arp,
    Ip,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmp6,
    Neighbour,
    Solicitation,
    Advertisement,
    Mpls,
}

use Needs::{Advertisement, Neighbour, Solicitation};
use Needs::{Arp, Icmp, Icmp6, Ip, Ipv4, Ipv6, Mpls, Nothing, Sctp, Tcp, Udp, Vlan};

/// Matches of a rule, and the prerequisites of fields that they satisfy.
const STACKS: [(&str, &[Needs]); 28] = [
    ("", &[]),
    ("", &[]),
    ("vlan_tci=0x1000/0x1000", &[Vlan]),
    ("dl_vlan=5", &[Vlan]),
    ("dl_vlan_pcp=3", &[Vlan]),
    ("arp", &[Arp]),
    ("rarp", &[Arp]),
    ("ip", &[Ip, Ipv4]),
    ("ip", &[Ip, Ipv4]),
    ("ipv6", &[Ip, Ipv6]),
    ("ipv6", &[Ip, Ipv6]),
    ("tcp", &[Ip, Ipv4, Tcp]),
    ("tcp6", &[Ip, Ipv6, Tcp]),
    ("udp", &[Ip, Ipv4, Udp]),
    ("udp", &[Ip, Ipv4, Udp]),
    ("udp6", &[Ip, Ipv6, Udp]),
    ("sctp", &[Ip, Ipv4, Sctp]),
    ("sctp6", &[Ip, Ipv6, Sctp]),
    ("icmp", &[Ip, Ipv4, Icmp]),
    ("icmp6", &[Ip, Ipv6, Icmp6]),
    ("icmp6,icmp_type=135,icmp_code=0", &[Ip, Ipv6, Neighbour, Solicitation]),
    ("icmp6,icmp_type=136,icmp_code=0", &[Ip, Ipv6, Neighbour, Advertisement]),
    ("ip,vlan_tci=0x1000/0x1000", &[Ip, Ipv4, Vlan]),
    ("udp6,dl_vlan=6", &[Ip, Ipv6, Udp, Vlan]),
    ("dl_vlan=0xffff,ip", &[Ip, Ipv4]),
    ("mpls", &[Mpls]),
    ("mplsm", &[Mpls]),
    ("mpls,vlan_tci=0x1000/0x1000", &[Mpls, Vlan]),
];

/// Actions that do not set [`FIELDS`].
const ACTIONS: [(Needs, &str); 60] = [
    (Nothing, "mod_dl_src:02:00:00:00:00:01"),
    (Nothing, "mod_dl_dst:02:00:00:00:00:03"),
    (Nothing, "move:dl_src->dl_dst"),
    (Nothing, "move:reg0->reg1"),
    (Nothing, "move:NXM_NX_REG1[]->NXM_NX_REG9[]"),
    (Nothing, "move:pkt_mark->reg0"),
    (Nothing, "move:reg0->tun_metadata0[0..31]"),
    (Nothing, "move:tun_metadata6[0..31]->reg1"),
    (Nothing, "delete_field:tun_metadata0"),
    (Nothing, "delete_field:tun_metadata6"),
    (Nothing, "load:3->NXM_NX_REG0[4..7]"),
    (Nothing, "load:1->reg15[0]"),
    (Nothing, "move:NXM_NX_REG1[0..3]->NXM_NX_REG9[4..7]"),
    (Nothing, "load:0xa->OXM_OF_METADATA[8..11]"),
    (Nothing, "push_vlan:0x8100"),
    (Nothing, "push_vlan:0x88a8"),
    (Vlan, "mod_vlan_vid:6"),
    (Vlan, "mod_vlan_pcp:2"),
    (Vlan, "load:9->vlan_tci[0..3]"),
    (Vlan, "load:0x1007->NXM_OF_VLAN_TCI[]"),
    (Vlan, "pop_vlan"),
    (Vlan, "strip_vlan"),
    (Arp, "move:arp_spa->arp_tpa"),
    (Arp, "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]"),
    (Arp, "move:arp_sha->dl_dst"),
    (Arp, "move:reg0->arp_spa"),
    (Arp, "load:2->NXM_OF_ARP_OP[]"),
    (Ipv4, "mod_nw_src:10.0.0.2"),
    (Ipv4, "mod_nw_dst:10.1.0.1"),
    (Ipv4, "move:nw_src->nw_dst"),
    (Ipv4, "move:NXM_OF_IP_DST[]->NXM_NX_REG0[]"),
    (Ipv4, "move:reg0->nw_src"),
    (Ipv4, "load:5->NXM_OF_IP_DST[0..7]"),
    (Ip, "mod_nw_tos:40"),
    (Ip, "mod_nw_ecn:1"),
    (Ip, "mod_nw_ttl:3"),
    (Ip, "dec_ttl"),
    (Ip, "dec_ttl"),
    (Ip, "load:32->NXM_OF_IP_TOS[]"),
    (Ip, "load:3->ip_dscp[0..1]"),
    (Ip, "load:1->NXM_NX_IP_TTL[]"),
    (Ipv6, "move:ipv6_src->ipv6_dst"),
    (Ipv6, "load:0x77->NXM_NX_IPV6_DST[0..15]"),
    (Ipv6, "load:1->ipv6_label[0..3]"),
    (Tcp, "mod_tp_src:80"),
    (Tcp, "move:tcp_dst->tcp_src"),
    (Tcp, "load:1->NXM_OF_TCP_DST[0..7]"),
    (Udp, "mod_tp_dst:443"),
    (Udp, "move:udp_src->udp_dst"),
    (Udp, "load:0->OXM_OF_UDP_SRC[]"),
    (Icmp, "load:1->icmp_code[0]"),
    (Neighbour, "move:nd_reserved->reg1"),
    (Neighbour, "move:reg0->nd_reserved"),
    (Neighbour, "move:ERICOXM_OF_ICMPV6_ND_RESERVED[24..31]->reg9[0..7]"),
    (Mpls, "set_mpls_label:16"),
    (Mpls, "set_mpls_tc:3"),
    (Mpls, "set_mpls_ttl:2"),
    (Mpls, "dec_mpls_ttl"),
    (Mpls, "dec_mpls_ttl"),
    (Mpls, "load:2->mpls_tc[0..1]"),
];

const OUTPUTS: [&str; 12] = [
    // No port has queues, so that these send as ever.
    "enqueue:3:1",
    "set_queue:5,output:2,pop_queue",
    "output:1",
    "output:2",
    "output:3",
    "output:4",
    "2",
    "output:7",
    "in_port",
    "flood",
    "all",
    "controller",
];

/// Parts of actions that add or remove headers.
pub(crate) const HEADERS: [&str; 6] = ["push_", "pop_", "strip_vlan", "->vlan", "VLAN_TCI", "mod_vlan"];

/// The use of labels by a case's rules: only one, since Open vSwitch cancels a label that is pushed and popped again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labels {
    Push,
    Pop,
    Neither,
}

/// The use of link-layer options of neighbour discovery by a case's rules: only one, since Open vSwitch matches a value that was set
/// though the message lacks the option, and an option that gets another type keeps its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkOptions {
    Match,
    SetAddresses,
    SetTypes,
}

impl LinkOptions {
    /// Returns whether rules match a field.
    fn may_match(self, field: &str) -> bool {
        self == Self::Match || !matches!(field, "nd_sll" | "nd_tll" | "nd_options_type")
    }

    /// Returns whether rules set a field.
    fn may_set(self, field: &str) -> bool {
        match field {
            "nd_sll" | "nd_tll" => self == Self::SetAddresses,
            "nd_options_type" => self == Self::SetTypes,
            _ => true,
        }
    }
}

/// Limits on the rules drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) labels: Labels,
    pub(crate) options: LinkOptions,
    /// Rules call tables, make copies, lead to groups and write action sets.
    pub(crate) calls: bool,
    /// Copies are made where rules call tables.
    pub(crate) copies: bool,
    /// Rules ask how long a packet is. Open vSwitch then loses what would come behind a call, and executes action sets twice.
    pub(crate) asks_length: bool,
    /// Rules make others of packets.
    pub(crate) learns: bool,
}

/// Rules, one per line, each with its own cookie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) text: String,
    pub(crate) tables: u8,
    /// Groups that rules lead to, one per line, in the syntax of `ovs-ofctl add-groups`; each leads to groups above it only.
    pub(crate) groups: String,
    /// How many VLAN tags and labels are pushed on a packet, at most.
    pub(crate) tags_pushed: usize,
    pub(crate) labels_pushed: usize,
}

impl Rules {
    pub(crate) fn new(text: String, groups: String, tables: u8) -> Self {
        let mut rules = Self { text, tables, groups, tags_pushed: 0, labels_pushed: 0 };
        (rules.tags_pushed, rules.labels_pushed) = (rules.most("push_vlan"), rules.most("push_mpls"));
        rules
    }

    /// Removes the rules for which this holds.
    fn leave_out(&mut self, holds: impl Fn(&str) -> bool) {
        let kept = self.text.lines().filter(|line| !holds(line));
        let text = kept.map(|line| format!("{line}\n")).collect();
        *self = Self::new(text, std::mem::take(&mut self.groups), self.tables);
    }

    /// Lets the rules send whole packets where they send their first bytes.
    fn send_whole(&mut self) {
        let mut parts = self.text.split("output(port=");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (port, rest) = part.split_once(",max_len=").expect("so it is drawn");
            text.push_str(&format!(
                "output:{port}{}",
                rest.trim_start_matches(|c: char| c.is_ascii_digit()).replacen(')', "", 1)
            ));
        }
        *self = Self::new(text, std::mem::take(&mut self.groups), self.tables);
    }

    /// Returns how often a packet can meet an action, at most.
    fn most(&self, action: &str) -> usize {
        Most { rules: self, action, taken: Vec::new(), known: BTreeMap::new() }.in_table(0)
    }

    /// Returns whether a rule's actions, or those of a group, contain one of these texts.
    pub(crate) fn does(&self, actions: &[&str]) -> bool {
        let lines = self.text.lines().chain(self.groups.lines());
        let mut all = lines.filter_map(|line| line.split_once("actions=")).map(|(_, a)| a);
        all.any(|text| actions.iter().any(|action| text.contains(action)))
    }

    /// Returns whether rules make others of packets.
    pub(crate) fn learns(&self) -> bool {
        self.does(&["learn("])
    }

    /// Returns whether a rule sets a field whose name begins with one of these.
    pub(crate) fn sets(&self, fields: &[&str]) -> bool {
        fields.iter().any(|field| {
            let by_load =
                nxm(field).iter().any(|name| self.does(&[&format!("->{name}"), &format!("pop:{name}")]));
            by_load
                || self.does(&[&format!("pop:{field}")])
                || self.does(&[&format!("->{field}"), &format!("mod_{field}"), &format!("set_{field}")])
        })
    }
}

/// Returns prefixes of the other names that [`ACTIONS`] use for a field.
fn nxm(field: &str) -> &'static [&'static str] {
    match field {
        "vlan" => &["NXM_OF_VLAN_TCI"],
        "arp" => &["NXM_OF_ARP", "NXM_NX_ARP"],
        "nw_dst" => &["NXM_OF_IP_DST"],
        "nw_" => &["NXM_OF_IP", "NXM_NX_IP_"],
        "ipv6_dst" => &["NXM_NX_IPV6_DST"],
        "tcp" => &["NXM_OF_TCP"],
        "udp" => &["OXM_OF_UDP"],
        "nd_reserved" => &["ERICOXM_OF_ICMPV6_ND_RESERVED"],
        _ => &[],
    }
}

/// Draws random rules.
pub(crate) fn rules(r: &mut Random, limits: Limits) -> Rules {
    let tables = 1 + r.below(4) as u8;
    // Labels are pushed in one table only: Open vSwitch keeps three.
    let pushes = r.below(tables.into()) as u8;
    let groups = if limits.calls { flow_control::groups(r, tables, limits.copies) } else { String::new() };
    let mut text = String::new();
    let mut cookie = 0;
    let mut back = Back::default();
    for table in 0..tables {
        let count = 2 + r.below(7) + u32::from(tables == 1) * 4;
        for place in 0..count {
            cookie += 1;
            let mut writer = Writer::new(r, limits, (table, tables), &groups);
            writer.write(table == pushes, &mut back);
            let (matches, actions) = (writer.matches.join(","), writer.actions.join(","));
            // Which of two rules of one priority wins is undefined (OpenFlow 1.3.5 §5.3).
            let priority = 1 + r.below(3) * 100 + place;
            let line = format!("table={table},priority={priority},cookie={cookie},{matches}");
            text.push_str(&format!("{},actions={actions}\n", line.trim_end_matches(',')));
        }
        if limits.calls && r.one_in(3) {
            text.push_str(&conjunction(r, limits, (table, tables), &groups, &mut cookie, &mut back));
        }
    }
    let mut rules = Rules::new(text, groups, tables);
    if rules.does(&["max_len="]) && rules.does(&HEADERS) {
        // Open vSwitch cuts a packet off where it would end without the headers that were pushed or popped just before.
        match r.one_in(2) {
            true => rules.leave_out(|rule| HEADERS.iter().any(|part| rule.contains(part))),
            false => rules.send_whole(),
        }
        if rules.groups.contains("push_vlan") {
            rules = Rules::new(rules.text, rules.groups.replace("push_vlan:0x8100,", ""), tables);
        }
    }
    // At most two tags are pushed.
    while rules.tags_pushed > 2 {
        match rules.text.lines().rfind(|line| line.contains("push_vlan")).map(str::to_owned) {
            Some(last) => rules.leave_out(|rule| rule == last),
            None => rules = Rules::new(rules.text, rules.groups.replace("push_vlan:0x8100,", ""), tables),
        }
    }
    rules
}

/// Draws the parts of a conjunction, which have a priority that no other rule of the table has, and the rule of packets that meet it.
fn conjunction(
    r: &mut Random,
    limits: Limits,
    tables: (u8, u8),
    groups: &str,
    cookie: &mut u32,
    back: &mut Back,
) -> String {
    let (mut text, table) = (String::new(), tables.0);
    let (id, clauses, priority) = (1 + r.below(3), 2 + r.below(2), 50 + 100 * r.below(3));
    let mut add = |priority: u32, matches: String, actions: String| {
        *cookie += 1;
        let line = format!("table={table},priority={priority},cookie={cookie},{matches}");
        text.push_str(&format!("{},actions={actions}\n", line.trim_end_matches(',')));
    };
    for clause in 1..=clauses {
        for _ in 0..1 + r.below(2) {
            let mut writer = Writer::new(r, limits, tables, groups);
            writer.start();
            for _ in 0..writer.r.below(2) {
                writer.match_field();
            }
            // No ordinary rule has the match of a part: Open vSwitch may pass over it then.
            writer.matches.push("reg14=0/0x1".to_owned());
            let matches = writer.matches.join(",");
            add(priority, matches, format!("conjunction({id},{clause}/{clauses})"));
        }
    }
    let mut writer = Writer::new(r, limits, tables, groups);
    writer.matches.push(format!("conj_id={id}"));
    writer.write(false, back);
    let (matches, actions) = (writer.matches.join(","), writer.actions.join(","));
    add(350, matches, actions);
    text
}

/// Writes one rule.
struct Writer<'a> {
    r: &'a mut Random,
    limits: Limits,
    /// The prerequisites that its packets meet after the actions so far.
    needs: Vec<Needs>,
    /// The tags in front of labels that it has pushed: Open vSwitch counts them, the rule cannot reach them any more.
    hidden_tags: usize,
    matches: Vec<String>,
    actions: Vec<String>,
    table: u8,
    tables: u8,
    groups: &'a str,
    /// How deep the actions that it writes are within others.
    depth: usize,
    /// The rule pops a label.
    pops: bool,
}

impl<'a> Writer<'a> {
    fn new(r: &'a mut Random, limits: Limits, (table, tables): (u8, u8), groups: &'a str) -> Self {
        let (matches, actions) = (Vec::new(), Vec::new());
        let (needs, hidden_tags, depth, pops) = (Vec::new(), 0, 0, false);
        Self { r, limits, needs, hidden_tags, matches, actions, table, tables, groups, depth, pops }
    }

    /// Draws the kind of packets.
    fn start(&mut self) {
        let (text, needs) = self.r.pick(&STACKS);
        self.matches.extend((!text.is_empty()).then(|| text.to_owned()));
        self.needs = needs.to_vec();
    }

    fn write(&mut self, may_push: bool, back: &mut Back) {
        let pops = self.limits.labels == Labels::Pop && self.r.one_in(4);
        let bottom = self.r.one_in(2);
        self.pops = pops;
        if pops {
            self.matches.push(format!("mpls,mpls_bos={}", u8::from(bottom)));
            self.needs = vec![Mpls];
        } else {
            self.start();
        }
        let way = if self.limits.calls { back.draw(self) } else { None };
        for _ in 0..self.r.pick(&[0, 0, 1, 1, 2]) {
            self.match_field();
        }
        for _ in 0..self.r.pick(&[0, 1, 1, 2, 3, 4]) {
            self.act();
        }
        if pops {
            self.pop(bottom);
        } else if may_push && self.limits.labels == Labels::Push && self.r.one_in(2) {
            self.push();
        }
        if self.r.below(3) > 0 {
            self.actions.push(self.r.pick(&OUTPUTS).to_owned());
        }
        if self.limits.calls {
            self.finish(way);
        }
        if self.r.one_in(6) {
            let values = [("0x5", ""), ("0x1", "/0x3"), ("0x10", "/0xf0")];
            // A way back is marked by other bits of it.
            let (value, mask) = self.r.pick(&values[usize::from(self.limits.calls)..]);
            self.actions.push(format!("write_metadata:{value}{mask}"));
        }
        let behind = self.tables - 1 - self.table;
        if behind > 0 && self.r.below(4) > 0 {
            let next = self.table + 1 + self.r.below(behind.into()) as u8;
            self.actions.push(format!("goto_table:{next}"));
        }
        if self.actions.is_empty() {
            self.actions.push("drop".to_owned());
        }
    }

    fn has(&self, needs: Needs) -> bool {
        needs == Nothing || self.needs.contains(&needs)
    }

    fn match_field(&mut self) {
        let (name, needs, values, _) = self.r.pick(&FIELDS);
        let has = |name: &str| {
            let same = |m: &str| m.split('=').next() == Some(name);
            self.matches.iter().any(|text| text.split(',').any(same))
        };
        let options = self.limits.options.may_match(name);
        let transport = [Tcp, Udp, Sctp, Icmp, Icmp6, Neighbour].iter().any(|&n| self.has(n));
        let vlan = needs == Vlan && self.matches.iter().any(|m| m.contains("vlan"));
        let twice = has(name) || vlan || name == "nw_proto" && transport;
        let dscp = matches!(name, "nw_tos" | "ip_dscp") && (has("nw_tos") || has("ip_dscp"));
        if self.has(needs) && !values.is_empty() && options && !twice && !dscp {
            let value = self.r.pick(values);
            if (name, value) == ("ip_frag", "later") && transport {
                // These have no ports; Open vSwitch refuses rules that set them.
                return;
            }
            self.matches.push(format!("{name}={value}"));
        }
    }

    fn act(&mut self) {
        if self.limits.learns && self.r.one_in(3) {
            return self.learn();
        }
        if self.limits.calls && self.r.below(5) < 2 {
            return self.lead();
        }
        match self.r.below(6) {
            0 => self.actions.push(self.r.pick(&OUTPUTS).to_owned()),
            1 | 2 => {
                // Open vSwitch refuses rules that push onto two tags.
                let full = self.tags() + self.hidden_tags >= 2;
                let fits = |(needs, text): &&(Needs, &str)| {
                    self.has(*needs) && !(full && text.starts_with("push_vlan"))
                };
                let possible: Vec<_> = ACTIONS.iter().filter(fits).collect();
                let (_, text) = *self.r.pick(&possible);
                self.actions.push(text.to_owned());
                match text {
                    // Open vSwitch does not know whether there is a tag where a part of its TCI is set.
                    "pop_vlan" | "strip_vlan" | "load:9->vlan_tci[0..3]" => self.needs.retain(|&n| n != Vlan),
                    _ if text.starts_with("push_vlan") => self.needs.push(Vlan),
                    _ => {}
                }
            }
            _ => self.set_field(),
        }
    }

    fn set_field(&mut self) {
        let sets = |row: &&Row| self.has(row.1) && !row.3.is_empty() && self.limits.options.may_set(row.0);
        let mut possible: Vec<&Row> = FIELDS.iter().filter(sets).collect();
        // Registers are always available, and would be nearly all that is set.
        let headers: Vec<&Row> = possible.iter().copied().filter(|row| row.1 != Nothing).collect();
        if !headers.is_empty() && self.r.below(4) > 0 {
            possible = headers;
        }
        let (name, _, _, values) = self.r.pick(&possible);
        let value = self.r.pick(values);
        if self.limits.calls && *name == "metadata" && !value.contains('/') {
            return; // A way back is marked by other bits of it.
        }
        self.actions.push(format!("set_field:{value}->{name}"));
        if (*name, value) == ("vlan_tci", "0") {
            self.needs.retain(|&n| n != Vlan);
        }
    }

    /// Pushes a label, and sets its fields that have no source in the packet (OpenFlow 1.3.5 §5.12.1).
    fn push(&mut self) {
        let kind = self.r.pick(&["0x8847", "0x8848"]);
        let (label, tc) = (self.r.pick(&[7, 99, 0xf_ffff]), self.r.pick(&[0, 5]));
        self.actions.push(format!("push_mpls:{kind}"));
        self.actions.push(format!("set_field:{label}->mpls_label,set_field:{tc}->mpls_tc"));
        if self.r.one_in(2) {
            self.actions.push(format!("set_field:{}->mpls_ttl", self.r.pick(&[1, 2, 64])));
        }
        self.hidden_tags = self.tags();
        self.needs = vec![Mpls];
        for _ in 0..self.r.pick(&[0, 0, 1, 2]) {
            self.act();
        }
    }

    /// The tags that its packets have after the actions so far.
    fn tags(&self) -> usize {
        self.needs.iter().filter(|&&n| n == Vlan).count()
    }

    /// Pops a label, to the type that fits.
    fn pop(&mut self, bottom: bool) {
        let kind = if bottom { self.r.pick(&["0x0800", "0x0800", "0x86dd"]) } else { "0x8847" };
        self.actions.push(format!("pop_mpls:{kind}"));
        self.needs.retain(|&n| n == Vlan);
        self.needs.extend(match kind {
            "0x0800" => &[Ip, Ipv4][..],
            "0x86dd" => &[Ip, Ipv6],
            _ => &[Mpls],
        });
        for _ in 0..self.r.pick(&[0, 0, 1, 2]) {
            self.act();
        }
    }
}
