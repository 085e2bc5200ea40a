//! Actions that lead to tables and groups and come back, copies, stacks of values, parts of registers, and action sets.
//!
//! Rules go back to earlier tables, too. Such a rule matches a bit that is not set, and sets it first: so each goes back once, and
//! no packet goes round without end.

use super::{Arp, Icmp, Ip, Ipv4, Ipv6, Labels, Needs, Nothing, Random, Tcp, Udp, Vlan, Writer};

/// Actions on registers and on parts of fields; and those that send, but not to a port that they name.
const PARTS: [(Needs, &str); 64] = [
    (Nothing, "push:NXM_NX_REG0[]"),
    (Nothing, "push:reg1[0..15]"),
    (Nothing, "push:reg9[3..10]"),
    (Nothing, "push:NXM_OF_IN_PORT[]"),
    (Nothing, "push:metadata"),
    (Nothing, "push:xreg1"),
    (Nothing, "push:xxreg0[16..79]"),
    (Nothing, "push:NXM_OF_ETH_SRC[]"),
    (Nothing, "push:eth_dst[8..23]"),
    (Nothing, "pop:NXM_NX_REG0[]"),
    (Nothing, "pop:reg1[0..3]"),
    (Nothing, "pop:reg4[8..23]"),
    (Nothing, "pop:NXM_NX_REG5[]"),
    (Nothing, "pop:xreg1[4..50]"),
    (Nothing, "pop:pkt_mark"),
    (Nothing, "push:tun_metadata0[0..15]"),
    (Nothing, "pop:tun_metadata6[4..50]"),
    (Nothing, "pop:dl_dst"),
    (Nothing, "pop:NXM_OF_ETH_SRC[0..15]"),
    (Nothing, "load:0->in_port"),
    (Nothing, "load:3->NXM_OF_IN_PORT[]"),
    (Nothing, "load:0x1234->NXM_NX_REG4[3..17]"),
    (Nothing, "load:0x3->xreg1[31..32]"),
    (Nothing, "load:2->reg5[0..2]"),
    (Nothing, "load:1->reg0[2]"),
    (Nothing, "load:0x55->xxreg0[28..36]"),
    (Nothing, "set_field:0x5/0xf->xreg1"),
    (Nothing, "set_field:0x10000000000000002->xxreg1"),
    (Nothing, "set_field:0x200000000/0xf00000000->xxreg0"),
    (Nothing, "set_field:3->reg4"),
    (Nothing, "set_field:0x1/0x7->reg5"),
    (Nothing, "set_field:4->xreg2"),
    (Nothing, "move:xreg0[5..20]->reg5[1..16]"),
    (Nothing, "move:xxreg0[32..63]->reg2"),
    (Nothing, "move:reg4[0..15]->xxreg2[56..71]"),
    (Nothing, "move:xreg3->xreg1"),
    (Nothing, "move:reg5[0..2]->reg5[1..3]"),
    (Nothing, "move:dl_src[0..31]->reg3"),
    (Nothing, "move:reg3[4..19]->dl_dst[8..23]"),
    (Nothing, "move:metadata[0..15]->reg7[0..15]"),
    (Nothing, "move:NXM_OF_IN_PORT[]->reg5[0..15]"),
    (Nothing, "output:reg0"),
    (Nothing, "output:reg1[0..3]"),
    (Nothing, "output:NXM_NX_REG9[4..7]"),
    (Nothing, "output:reg4[0..15]"),
    (Nothing, "output:reg5"),
    (Nothing, "output:metadata[0..2]"),
    (Nothing, "output:NXM_OF_IN_PORT[]"),
    (Vlan, "move:vlan_vid[0..11]->reg4[0..11]"),
    (Arp, "move:arp_spa[0..15]->reg4[16..31]"),
    (Arp, "push:arp_tpa"),
    (Ipv4, "push:nw_src"),
    (Ipv4, "pop:NXM_OF_IP_DST[]"),
    (Ipv4, "pop:nw_src[0..7]"),
    (Ipv4, "move:nw_src[8..23]->reg4[0..15]"),
    (Ip, "move:nw_ttl->reg5[0..7]"),
    (Ipv6, "push:ipv6_src"),
    (Ipv6, "pop:ipv6_dst"),
    (Ipv6, "move:ipv6_src[0..63]->xreg1"),
    (Ipv6, "move:xreg1->ipv6_dst[64..127]"),
    (Tcp, "move:reg4[0..15]->tcp_dst"),
    (Udp, "pop:udp_src"),
    (Udp, "move:udp_dst[0..7]->reg5[3..10]"),
    (Icmp, "move:icmp_type->reg5[0..7]"),
];

/// Actions that send parts of a packet, or do nothing, or have one answer whatever a hash is.
const OTHERS: [&str; 15] = [
    "output(port=1,max_len=14)",
    "output(port=2,max_len=20)",
    "output(port=3,max_len=60)",
    "output(port=4,max_len=1000)",
    "note:01.02.03",
    "enqueue:2:1",
    "enqueue:3:0",
    "set_queue:1",
    "pop_queue",
    "multipath(symmetric_l4,0,modulo_n,1,0,NXM_NX_REG4[0..3])",
    "multipath(eth_src,50,hrw,1,0,reg5[1..2])",
    "bundle(eth_src,0,active_backup,ofport,members:7,3,2)",
    "bundle(symmetric_l4,0,hrw,ofport,members:2)",
    "bundle_load(eth_src,0,active_backup,ofport,reg4[0..15],members:7,1)",
    "bundle_load(nw_src,1,hrw,ofport,reg5[],members:3)",
];

/// The answers go into registers on which rules match.
const LARGER: [&str; 3] =
    ["check_pkt_larger(60)->reg5[0]", "check_pkt_larger(80)->reg4[0]", "check_pkt_larger(55)->xreg1[32]"];

/// Matches on registers that [`PARTS`] write.
const MATCHES: [&str; 8] = [
    "reg4=3",
    "reg4=0/0x1",
    "reg5=0x1/0x1",
    "reg5=0",
    "xreg1=0/0x4",
    "xreg1=0x100000000/0x100000000",
    "reg2=0/0xff",
    "reg7=0",
];

/// Numbers of groups; the buckets of those below [`LEADING`] may call the last table.
const GROUPS: u8 = 5;
const LEADING: u8 = 2;

/// The bits that have marked ways back so far.
#[derive(Default)]
pub(super) struct Back(u8);

impl Back {
    /// Draws whether a rule leads back: its actions for that, and the match.
    pub(super) fn draw(&mut self, writer: &mut Writer<'_>) -> Option<String> {
        if writer.r.one_in(3) {
            writer.matches.push(writer.r.pick(&MATCHES).to_owned());
        }
        if self.0 == 3 || writer.limits.asks_length || !writer.r.one_in(5) {
            return None;
        }
        let bit = self.0;
        self.0 += 1;
        let (mark, field, bit) = match writer.r.one_in(2) {
            true => (format!("metadata=0/{:#x}", 1u64 << (40 + bit)), "OXM_OF_METADATA", 40 + bit),
            false => (format!("reg13=0/{:#x}", 1 << bit), "NXM_NX_REG13", bit),
        };
        writer.matches.push(mark);
        let to = writer.r.below(u32::from(writer.table) + 1) as u8;
        let call = match to == writer.table && writer.r.one_in(2) {
            true => format!("resubmit:{}", writer.port()),
            false => writer.call(to),
        };
        Some(format!("load:1->{field}[{bit}],{call}"))
    }
}

/// Returns whether a rule goes back to its own table or an earlier one.
pub(crate) fn leads_back(rule: &str) -> bool {
    rule.contains("reg13=0/")
        || rule.contains("metadata=0/0x10000000000")
        || rule.contains("metadata=0/0x20000000000")
        || rule.contains("metadata=0/0x40000000000")
}

/// Returns the numbers behind each of these words in a line.
fn numbers(line: &str, word: &str) -> Vec<u8> {
    let rest = line.split(word).skip(1);
    let digits = rest.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// Returns the tables to which a rule of this table leads, or the buckets of a group.
pub(super) fn tables_of(line: &str, table: u8) -> Vec<u8> {
    let called = line.split("resubmit(").skip(1).filter_map(|call| {
        let to = call.split_once(',')?.1.split_once(')')?.0;
        to.parse().ok()
    });
    let again = line.matches("resubmit:").map(|_| table);
    called.chain(again).chain(numbers(line, "goto_table:")).collect()
}

/// Returns the groups to which a line leads.
pub(super) fn groups_of(line: &str) -> Vec<u8> {
    numbers(line, "group:")
}

pub(super) fn is_group(line: &str, id: u8) -> bool {
    line.starts_with(&format!("group_id={id},"))
}

/// How select groups choose a bucket.
const SELECTIONS: [&str; 5] = [
    "",
    ",selection_method=dp_hash",
    ",selection_method=hash",
    ",selection_method=hash,fields(eth_src,ip_src,ipv6_dst)",
    ",selection_method=hash,selection_method_param=7,fields(tcp_dst,udp_src,nw_tos)",
];

/// Draws groups.
pub(super) fn groups(r: &mut Random, tables: u8, copies: bool) -> String {
    // Each leads to groups of a higher number, which both switches must know before.
    let drawn: Vec<String> = (1..=GROUPS).map(|id| group(r, id, tables, copies)).collect();
    drawn.into_iter().rev().collect()
}

fn group(r: &mut Random, id: u8, tables: u8, copies: bool) -> String {
    // Open vSwitch takes packets through its caches again for a hash, and does not come back from that to a copy's original.
    let kinds = ["all", "all", "indirect", "ff", "select"];
    let kind = r.pick(&kinds[..kinds.len() - usize::from(copies)]);
    let count = match kind {
        "indirect" => 1,
        "select" => r.pick(&[1, 2, 3, 4]),
        _ => 1 + r.below(3),
    };
    // Hashes differ, so that all buckets do the same.
    let same = (kind == "select").then(|| bucket_actions(r, id, tables));
    let selection = if kind == "select" { r.pick(&SELECTIONS) } else { "" };
    let mut text = format!("group_id={id},type={kind}{selection}");
    for number in 0..count {
        let watched = match kind {
            "ff" if id < GROUPS && r.one_in(4) => format!("watch_group:{},", id + 1),
            "ff" => format!("watch_port:{},", r.pick(&[1, 2, 3, 7])),
            "select" if number > 0 => format!("weight:{},", r.below(4)),
            "select" => "weight:1,".to_owned(),
            _ => String::new(),
        };
        let actions = same.clone().unwrap_or_else(|| bucket_actions(r, id, tables));
        text.push_str(&format!(",bucket=bucket_id:{number},{watched}actions={actions}"));
    }
    text + "\n"
}

fn bucket_actions(r: &mut Random, id: u8, tables: u8) -> String {
    const SETS: [&str; 14] = [
        "set_field:02:00:00:00:00:07->dl_dst",
        "set_field:3->reg4",
        "set_field:0x2/0xf->reg0",
        "set_field:0x100000001/0xf0000000f->xreg1",
        "set_field:0x20/0xf0->metadata",
        "move:reg0->reg1",
        "move:dl_src[0..15]->dl_dst[0..15]",
        "set_field:10.9.0.1->nw_dst",
        "set_field:9->ip_dscp",
        "set_field:53->udp_dst",
        "set_field:80->tcp_src",
        "set_field:2001:db8::9->ipv6_src",
        "dec_ttl",
        "push_vlan:0x8100",
    ];
    let mut actions: Vec<String> = (0..r.pick(&[0, 0, 1, 2])).map(|_| r.pick(&SETS).to_owned()).collect();
    actions.push(match r.below(8) {
        0 | 1 if id < GROUPS => format!("group:{}", u32::from(id) + 1 + r.below(u32::from(GROUPS - id))),
        2 | 3 if id <= LEADING => format!("resubmit(,{})", tables - 1),
        4 => r.pick(&["in_port", "flood", "all"]).to_owned(),
        _ => format!("output:{}", 1 + r.below(4)),
    });
    actions.join(",")
}

impl Writer<'_> {
    fn port(&mut self) -> u32 {
        1 + self.r.below(3)
    }

    fn call(&mut self, table: u8) -> String {
        match self.r.one_in(4) {
            true => format!("resubmit({},{table})", self.port()),
            false => format!("resubmit(,{table})"),
        }
    }

    /// A call of a later table, if there is one.
    fn call_later(&mut self) -> Option<String> {
        let behind = self.tables - 1 - self.table;
        let to = (behind > 0).then(|| self.table + 1 + self.r.below(behind.into()) as u8);
        to.map(|to| self.call(to))
    }

    /// A group whose buckets lead to later tables only.
    fn group(&mut self) -> Option<String> {
        let first = if self.table + 1 < self.tables { 1 } else { LEADING + 1 };
        let id = u32::from(first) + self.r.below(u32::from(GROUPS - first) + 1);
        (!self.groups.is_empty()).then(|| format!("group:{id}"))
    }

    /// Writes an action that leads elsewhere, or is about parts of fields.
    pub(super) fn lead(&mut self) {
        // A table that is called might pop the label that the rule is to pop.
        let drawn = match if self.pops { 19 } else { self.r.below(20) } {
            0..4 => self.call_later(),
            4 | 5 if self.limits.copies && self.depth < 2 => Some(self.clone_of()),
            6 => self.group(),
            7 if self.r.one_in(3) => Some("exit".to_owned()),
            8..=11 if self.limits.asks_length && self.table == 0 && self.depth == 0 => {
                Some(self.r.pick(&LARGER).to_owned())
            }
            8 | 9 => Some(self.r.pick(&OTHERS).to_owned()),
            _ => {
                let possible: Vec<_> = PARTS.iter().filter(|(needs, _)| self.has(*needs)).collect();
                Some(self.r.pick(&possible).1.to_owned())
            }
        };
        self.actions.extend(drawn);
    }

    /// A copy, whose changes are undone behind it.
    fn clone_of(&mut self) -> String {
        let (needs, outer) = (self.needs.clone(), std::mem::take(&mut self.actions));
        self.depth += 1;
        for _ in 0..1 + self.r.below(3) {
            self.act();
        }
        self.depth -= 1;
        self.needs = needs;
        let inner = std::mem::replace(&mut self.actions, outer);
        format!("clone({})", inner.join(","))
    }

    /// Puts the way back somewhere among the actions, and instructions behind them.
    pub(super) fn finish(&mut self, way: Option<String>) {
        if let Some(way) = way {
            // What a push of a label leaves open is set directly behind it.
            let is_free =
                |at: &usize| !self.actions.get(*at).is_some_and(|next| next.contains("->mpls_label"));
            let free: Vec<usize> = (0..=self.actions.len()).filter(is_free).collect();
            let at = if self.pops { self.actions.len() } else { self.r.pick(&free) };
            self.actions.insert(at, way);
        }
        if self.r.one_in(12) {
            self.actions.push("clear_actions".to_owned());
        }
        // Open vSwitch ends itself at times where labels are popped, or a group selects, while a set waits.
        let selects = self.groups.contains("type=select");
        let may_wait = self.limits.labels != Labels::Pop && !self.limits.asks_length && !selects;
        if may_wait && self.r.one_in(4) {
            let written: Vec<String> = (0..1 + self.r.below(3)).map(|_| self.written()).collect();
            self.actions.push(format!("write_actions({})", written.join(",")));
        }
    }

    /// An action of an action set.
    fn written(&mut self) -> String {
        const SETS: [&str; 6] = [
            "set_field:02:00:00:00:00:08->dl_src",
            "set_field:0x7->reg4",
            "set_field:0x3/0xf->reg0",
            "set_field:0x10/0xf0->metadata",
            "move:reg0->reg1",
            "move:reg5[0..7]->dl_dst[0..7]",
        ];
        let other = match self.r.below(8) {
            // Open vSwitch ends itself where it takes the packet through its caches again on that way.
            0 | 1 if self.limits.copies => self.group(),
            2 if self.limits.copies => self.call_later(),
            3 if self.has(Ip) => Some("dec_ttl".to_owned()),
            4 if self.has(Ipv4) => Some("set_field:10.8.0.1->nw_src".to_owned()),
            5 => Some(self.r.pick(&SETS).to_owned()),
            _ => None,
        };
        other.unwrap_or_else(|| format!("output:{}", 1 + self.r.below(4)))
    }
}
