//! Packets whose type changes: random chains of `encap` and `decap` of Ethernet, NSH and MPLS through this switch and through Open
//! vSwitch, with edits between them, and tables that match the type and the fields of NSH.
//!
//! Open vSwitch ends by an assertion on many chains, so a chain keeps to those that it survives: it follows which headers
//! the packet has. What it drops altogether, and this switch from there on, is an example (`examples.txt`).

use flowlane_switch::datapath::MalformedPolicy;

use super::ovs::{Ovs, OvsPrograms};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

/// Cases that are run.
const CASES: u64 = 60;

/// Packets of a case.
const PACKETS: usize = 24;

/// A header of a packet, the outermost last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    Ipv4,
    Ipv6,
    Ethernet,
    Nsh,
    Mpls,
}

/// The packets that a case is for: the headers, and the match of a rule for them.
const STARTS: [(&[Layer], &str); 5] = [
    (&[Layer::Ipv4, Layer::Ethernet], "ip,vlan_tci=0"),
    (&[Layer::Ipv6, Layer::Ethernet], "ipv6,vlan_tci=0"),
    (&[Layer::Ipv4, Layer::Ethernet, Layer::Nsh, Layer::Ethernet], "dl_type=0x894f,nsh_np=3"),
    (&[Layer::Ipv4, Layer::Nsh, Layer::Ethernet], "dl_type=0x894f,nsh_np=1"),
    (&[Layer::Ipv6, Layer::Mpls, Layer::Ethernet], "mpls,mpls_bos=1"),
];

/// Frames of such a class, or of another one.
fn frame(r: &mut Random, layers: &[Layer]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inner = Layer::Ipv4;
    for &layer in layers {
        let eth_type: [u8; 2] = match inner {
            Layer::Ipv4 => [8, 0],
            Layer::Ipv6 => [0x86, 0xdd],
            Layer::Nsh => [0x89, 0x4f],
            Layer::Mpls => [0x88, 0x47],
            Layer::Ethernet => [0, 0],
        };
        let header = match layer {
            Layer::Ipv4 => {
                let mut ip =
                    [0x45, 0, 0, 32, 0, 1, 0, 0, r.pick(&[1, 2, 64]), 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
                let sum = super::packets::sum(&[&ip]);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                [&ip[..], &[3, 0xe8, 3, 0xe9, 0, 12, 0, 0, 1, 2, 3, r.next() as u8]].concat()
            }
            Layer::Ipv6 => {
                let mut ip = vec![0x60, 0, 0, 0, 0, 4, 59, r.pick(&[1, 2, 64])];
                ip.extend([0x20; 32]);
                ip.extend([9, 9, 9, r.next() as u8]);
                ip
            }
            Layer::Ethernet => [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, r.below(2) as u8][..], &eth_type].concat(),
            Layer::Nsh => nsh(r, inner),
            Layer::Mpls => vec![0, r.below(2) as u8, 0x31, r.pick(&[1, 2, 64])],
        };
        out = [header, out].concat();
        inner = layer;
    }
    out
}

/// NSH with metadata of either type.
fn nsh(r: &mut Random, inner: Layer) -> Vec<u8> {
    let next = match inner {
        Layer::Ipv4 => 1,
        Layer::Ipv6 => 2,
        _ => 3,
    };
    let ttl = r.pick(&[1u16, 2, 63]);
    let is_fixed = r.one_in(2);
    let (words, kind) = if is_fixed { (6, 1) } else { (4, 2) };
    let first = u16::from(r.below(4) as u8) << 12 | ttl << 6 | words;
    let mut out = first.to_be_bytes().to_vec();
    out.extend([kind, next, 0, 0, r.below(2) as u8, r.below(3) as u8]);
    out.extend((0..4 * (words as usize - 2)).map(|at| if at == 3 { r.below(2) as u8 } else { 0 }));
    if !is_fixed {
        // An option of four bytes.
        out[8..12].copy_from_slice(&[1, 2, 3, 4]);
    }
    out
}

/// A chain of actions, and the headers that the packet has on its way. `in_tables` are rules of the tables that it visits.
struct Chain<'a> {
    r: &'a mut Random,
    layers: Vec<Layer>,
    actions: Vec<String>,
    /// Tables so far.
    tables: u8,
    /// The match and actions of table `tables - 1` are these.
    rules: String,
    cookie: u32,
    matches: String,
    /// The rule says which type the packet has.
    is_known: bool,
    /// It pushes labels, and pops none.
    pushes_labels: bool,
}

impl Chain<'_> {
    fn outer(&self) -> Layer {
        *self.layers.last().expect("a packet has a header")
    }

    fn packet_type(&self) -> &'static str {
        match self.outer() {
            Layer::Ethernet => "packet_type=(0,0)",
            Layer::Ipv4 => "packet_type=(1,0x800)",
            Layer::Ipv6 => "packet_type=(1,0x86dd)",
            Layer::Nsh => "packet_type=(1,0x894f)",
            Layer::Mpls => "packet_type=(1,0x8847)",
        }
    }

    fn add(&mut self, action: impl Into<String>) {
        self.actions.push(action.into());
    }

    fn step(&mut self) {
        match (self.outer(), self.r.below(3)) {
            (Layer::Ethernet | Layer::Nsh, 0) => {
                self.layers.pop();
                self.is_known = false;
                let action = if self.r.one_in(2) { self.typed_decap() } else { "decap".to_owned() };
                self.add(action);
            }
            (Layer::Ethernet, 1) if self.pushes_labels && !self.layers.contains(&Layer::Mpls) => {
                self.encap_mpls()
            }
            (Layer::Ipv4 | Layer::Ipv6, 1) if self.pushes_labels => self.encap_mpls(),
            (Layer::Mpls, 0) if !self.pushes_labels => {
                self.layers.pop();
                self.is_known = false;
                let action = self.typed_decap();
                self.add(action);
            }
            (Layer::Mpls, _) => {
                self.add("encap(ethernet)");
                self.layers.push(Layer::Ethernet);
            }
            (Layer::Ethernet | Layer::Ipv4 | Layer::Ipv6 | Layer::Nsh, 2) | (Layer::Ethernet, _) => {
                let header = self.r.pick(&[
                    "nsh",
                    "nsh(md_type=1)",
                    "nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x0002,3,0xab))",
                ]);
                self.add(format!("encap({header})"));
                self.layers.push(Layer::Nsh);
            }
            (Layer::Ipv4 | Layer::Ipv6 | Layer::Nsh, _) => {
                self.add("encap(ethernet)");
                self.layers.push(Layer::Ethernet);
            }
        }
        self.is_known |= self.actions.last().is_some_and(|action| action.starts_with("encap"));
        // Open vSwitch lets rules edit what they know.
        if self.is_known {
            self.edit();
        }
    }

    /// A `decap` that names the type of the payload.
    fn typed_decap(&self) -> String {
        let inner = match self.outer() {
            Layer::Ethernet => "ns=0,type=0",
            Layer::Ipv4 => "ns=1,type=0x800",
            Layer::Ipv6 => "ns=1,type=0x86dd",
            Layer::Nsh => "ns=1,type=0x894f",
            Layer::Mpls => "ns=1,type=0x8847",
        };
        format!("decap(packet_type({inner}))")
    }

    fn encap_mpls(&mut self) {
        // Fields that a rule changes are what it sets them to: no label before it has any.
        let (label, tc) = (self.r.below(9), self.r.below(8));
        self.add("encap(mpls)");
        self.add(format!("set_mpls_label:{label},set_mpls_tc:{tc}"));
        self.is_known = true;
        self.layers.push(Layer::Mpls);
    }

    fn edit(&mut self) {
        let value = self.r.below(200);
        match self.outer() {
            Layer::Nsh if self.r.one_in(2) => {
                let field = self.r.pick(&["nsh_spi", "nsh_si", "nsh_ttl", "nsh_c1", "nsh_c4"]);
                let action = match self.r.below(4) {
                    0 => "dec_nsh_ttl".to_owned(),
                    1 => format!("set_field:{}->nsh_flags", value & 3),
                    2 => "move:nsh_c2[0..7]->nsh_si[]".to_owned(),
                    _ => format!("set_field:{}->{field}", value & 63),
                };
                self.add(action);
            }
            Layer::Ethernet if self.r.one_in(3) => {
                self.add(format!("set_field:02:00:00:00:00:{value:02x}->eth_dst"))
            }
            Layer::Mpls if self.r.one_in(3) => self.add(format!("set_mpls_ttl:{}", value + 2)),
            _ => {}
        }
    }

    /// Goes on in another table, whose rule matches the type that the packet has by now.
    fn table(&mut self) {
        let next = self.tables;
        self.tables += 1;
        let jump = match self.r.below(2) {
            0 => format!("goto_table:{next}"),
            _ => format!("resubmit(,{next})"),
        };
        self.add(jump);
        self.end_rule();
        self.matches = self.packet_type().to_owned();
        self.is_known = true;
        if self.outer() == Layer::Nsh {
            let field = self.r.pick(&[
                "",
                ",nsh_si=1",
                ",nsh_mdtype=1",
                ",nsh_spi=1",
                ",nsh_ttl=62",
                ",nsh_c1=0x1",
                ",nsh_flags=1",
            ]);
            self.matches += field;
            if !field.is_empty() && self.r.one_in(2) {
                // The others.
                let out =
                    if self.outer() == Layer::Ethernet { "output:3" } else { "encap(ethernet),output:3" };
                self.rule(next, 1, self.packet_type(), out);
            }
        }
        // It is for packets of any type, or for Ethernet only.
        let matches = self.r.pick(&[
            "",
            "in_port=1",
            "packet_type=(0,0)",
            "eth_src=02:00:00:00:00:00/ff:ff:ff:ff:ff:fe",
        ]);
        self.rule(next, 0, matches, "output:4,encap(ethernet),output:4");
    }

    fn rule(&mut self, table: u8, priority: u8, matches: &str, actions: &str) {
        self.cookie += 1;
        let cookie = self.cookie;
        let comma = if matches.is_empty() { "" } else { "," };
        self.rules +=
            &format!("table={table},cookie={cookie},priority={priority}{comma}{matches},actions={actions}\n");
    }

    fn end_rule(&mut self) {
        let (table, matches) = (self.tables - 2, self.matches.clone());
        let actions = std::mem::take(&mut self.actions).join(",");
        self.rule(table, 9, &matches, &actions);
    }
}

/// Rules of a case.
fn rules(r: &mut Random, (layers, matches): (&[Layer], &str)) -> Rules {
    let pushes_labels = !layers.contains(&Layer::Mpls) && r.one_in(2);
    let mut chain = Chain {
        r,
        pushes_labels,
        layers: layers.to_vec(),
        actions: Vec::new(),
        tables: 1,
        rules: String::new(),
        cookie: 0,
        matches: matches.to_owned(),
        is_known: true,
    };
    chain.rule(0, 0, "", "output:4");
    for _ in 0..1 + chain.r.below(5) {
        chain.step();
        if chain.outer() == Layer::Ethernet && chain.r.one_in(4) {
            chain.add("output:3");
        }
        if chain.r.one_in(3) {
            chain.table();
        }
    }
    if chain.outer() != Layer::Ethernet {
        // Refused there.
        if chain.r.one_in(3) {
            chain.add("output:3");
        }
        chain.add("encap(ethernet)");
    }
    chain.add("output:2");
    chain.tables += 1;
    chain.end_rule();
    let tables = chain.tables - 1;
    Rules::new(std::mem::take(&mut chain.rules), String::new(), tables)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn open_vswitch_changes_the_types_of_packets_alike() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("FLOWLANE_TYPES_FIRST").unwrap_or(0);
    let (mut compared, mut sent) = (0, 0);
    for seed in first..first + number("FLOWLANE_TYPES_CASES").unwrap_or(CASES) {
        let r = &mut Random::new(1 << 40 | seed);
        let start = r.pick(&STARTS);
        let rules = rules(r, start);
        println!("CASE {seed}\n{}", rules.text);
        let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed)
            .unwrap_or_else(|why| panic!("case {seed}: {why}\n{}", rules.text));
        ovs.set_rules(&rules).unwrap_or_else(|why| panic!("case {seed}: {why}\n{}", rules.text));
        for _ in 0..PACKETS {
            let layers = if r.one_in(6) { r.pick(&STARTS).0 } else { start.0 };
            let packet = frame(r, layers);
            let traced = flowlane.traced(1, &packet);
            let (ours, _) = flowlane.forward(1, &packet);
            let theirs = ovs.forward(1, &[&packet]);
            let shown = || format!("case {seed}: {}\n{}", hex(&packet), rules.text);
            assert_eq!(ours, theirs, "{}", shown());
            assert_eq!(traced, ours, "the trace of {}", shown());
            compared += 1;
            sent += ours.iter().map(Vec::len).sum::<usize>();
        }
        let packets = |counters: Vec<(u64, super::ovs::Counters)>| {
            let mut all: Vec<_> = counters.into_iter().map(|(cookie, c)| (cookie, c.packets)).collect();
            all.sort_unstable();
            all
        };
        let (ours, theirs) = (packets(flowlane.counters()), packets(ovs.counters().expect("it answers")));
        assert_eq!(ours, theirs, "case {seed}: the rules' counters\n{}", rules.text);
    }
    println!("{compared} frames, sent {sent} times, compared with Open vSwitch");
    assert!(sent * 2 > compared);
}
