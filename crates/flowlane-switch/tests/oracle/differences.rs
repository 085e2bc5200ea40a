//! Where Open vSwitch and this switch differ, why, and what decides: the one list, from which
//! `docs/differences.md` is written. Every entry says which packets are not compared because of it.

use flowlane_switch::datapath::MalformedPolicy;

use super::rules::{HEADERS, Rules, leads_back};
use super::shape::{Fragment, Ip, Network, Shape};

/// A condition on a packet that a case's rules will see.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) policy: MalformedPolicy,
    pub(crate) shape: &'a Shape,
}

/// How a class of differences is kept out of the comparison.
pub(crate) enum LeftOut {
    /// The generator of rules makes none that lead there.
    Rules,
    /// Packets for which this holds are not compared.
    Packets(Holds),
    /// Packets for which this holds neither find what Open vSwitch has cached nor leave anything there.
    Caches(Holds),
    /// With such rules counters are not compared, packets are.
    Counters(fn(&Rules) -> bool),
    /// With such rules bytes are not compared, packets are.
    Bytes(fn(&Rules) -> bool),
}

/// A known difference.
pub(crate) struct Difference {
    pub(crate) class: &'static str,
    /// The difference.
    pub(crate) differs: &'static str,
    /// The side that is right, and the source.
    pub(crate) decides: &'static str,
    pub(crate) left_out: LeftOut,
}

const fn row(
    class: &'static str,
    differs: &'static str,
    decides: &'static str,
    left_out: LeftOut,
) -> Difference {
    Difference { class, differs, decides, left_out }
}

impl Asked<'_> {
    fn forwards(&self) -> bool {
        self.policy == MalformedPolicy::Forward
    }

    /// Returns whether it is, or becomes when its labels are popped, an IP packet for which this holds.
    fn ip(&self, holds: impl Fn(&Ip) -> bool) -> bool {
        (!self.shape.labelled || self.pops()) && self.shape.ip.as_ref().is_some_and(holds)
    }

    fn pushes(&self) -> bool {
        self.rules.does(&["push_mpls"])
    }

    fn pops(&self) -> bool {
        self.rules.does(&["pop_mpls"])
    }

    fn edits_tags(&self) -> bool {
        self.rules.sets(&["vlan"]) || self.rules.does(&["push_vlan", "pop_vlan", "strip_vlan"])
    }

    fn edits_addresses(&self) -> bool {
        self.rules.sets(&["nw_src", "nw_dst", "ipv6_src", "ipv6_dst"])
    }

    fn edits_ip(&self) -> bool {
        self.edits_addresses()
            || self.rules.sets(&["nw_", "ip_dscp", "ipv6_label"])
            || self.rules.does(&["dec_ttl"])
    }

    fn edits_arp(&self) -> bool {
        self.rules.sets(&["arp"])
    }
}

/// The known differences.
#[rustfmt::skip]
pub(crate) const DIFFERENCES: &[Difference] = &[
    row("mpls-push-initial",
        "first label of an IP packet: Open vSwitch fills in label 2 for IPv6, TC from the DSCP, and TTL 64 for an IP TTL of 0",
        "Flowlane: OpenFlow 1.3.5 §5.12.1, fields without a source are zero (the rules set label and TC behind each push)",
        LeftOut::Packets(|a| a.pushes() && a.ip(|ip| ip.ttl == 0 || a.rules.does(&["set_field:0->nw_ttl"])))),
    row("mpls-push-cut",
        "malformed = forward: a label in front of an IP header that is cut off or wrong, whose TTL a rule has set: Open vSwitch gives the label that TTL, which it has not written",
        "neither: OpenFlow does not say",
        LeftOut::Packets(|a| a.forwards() && a.pushes() && a.rules.sets(&["nw_ttl"]) && a.ip(|ip| !ip.sound))),
    row("conjunction-hides",
        "a packet that meets a conjunction is looked up with its number as conj_id; Open vSwitch then passes over ordinary rules that have the match of a part of conjunctions with a higher priority",
        "Flowlane: ovs-fields(7), the rule of the highest priority that matches; a defect of Open vSwitch (no rules have matches of both)",
        LeftOut::Rules),
    row("resubmit-loop",
        "tables that go on in each other without end: Open vSwitch drops the packet and all its outputs, Flowlane has sent those on the way",
        "neither: OpenFlow has no way back; both end the packet's way by a limit (rules that go back do so once)",
        LeftOut::Rules),
    row("mpls-stack-limit",
        "pushing onto 3 labels or popping of more than 3: Open vSwitch drops the packet and all its outputs (FLOW_MAX_MPLS_LABELS)",
        "Flowlane does what OpenFlow says; a limit of Open vSwitch",
        LeftOut::Packets(|a| {
            let deep = a.shape.labels.len();
            deep + a.rules.labels_pushed > 3 && a.pushes() || a.pops() && deep > 3
        })),
    row("mpls-pop-type",
        "pop_mpls to an IP type where labels are left (Open vSwitch pops them all), or to MPLS where none is left (Open vSwitch does not look on)",
        "neither: OpenFlow leaves it to the rule to be right; ovs-actions(7) says that the type must fit (the rules pop by mpls_bos)",
        LeftOut::Packets(|a| a.pops() && a.shape.labelled && !a.shape.bottom)),
    row("mpls-cut",
        "labels set, pushed or popped where the first label is cut off: Open vSwitch writes a label in front of the rest, and such packets or those behind them may be missing in counters",
        "Flowlane leaves the packet alone; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.shape.labelled && a.shape.labels.is_empty())),
    row("mpls-push-pop",
        "a label that is pushed and popped again on one path: Open vSwitch cancels the two, and the EtherType that pop_mpls names with them",
        "Flowlane: OpenFlow 1.3.5 §5.12, pop_mpls sets the EtherType (no rules have both)",
        LeftOut::Rules),
    row("mpls-zero-entry",
        "a label stack entry of 32 zero bits is not counted by Open vSwitch: a label is edited in front of it, and such packets or those behind them may be missing in counters",
        "Flowlane: RFC 3032 §2.1, label 0 is as good as any; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.shape.labels.contains(&0))),
    row("mpls-cached-entry",
        "label, TC or TTL set: Open vSwitch writes the whole label stack entry, as the first packet of the megaflow had it, into all later ones",
        "Flowlane: OpenFlow 1.3.5 §5.12, set-field sets the field that it names; a defect of Open vSwitch (the entry is not in the mask)",
        LeftOut::Caches(|a| a.shape.labelled && (a.rules.sets(&["mpls"]) || a.rules.does(&["dec_mpls_ttl"])))),
    row("vlan-third-tag",
        "Open vSwitch keeps two tags in a flow: pushing onto two loses the inner one, and behind two that are popped it sees no third",
        "Flowlane does what OpenFlow says; a limit of Open vSwitch (FLOW_MAX_VLAN_HEADERS)",
        LeftOut::Packets(|a| {
            let deep = a.shape.tags.len();
            a.edits_tags() && deep + a.rules.tags_pushed > 2
        })),
    row("vlan-dei",
        "Open vSwitch clears the drop eligible bit of a tag that it rewrites",
        "Flowlane keeps it: IEEE 802.1Q §6.9.3; OpenFlow has no field for it",
        LeftOut::Packets(|a| a.edits_tags() && a.shape.tags.iter().any(|tci| tci & 0x1000 != 0))),
    row("vlan-tci-cfi-0",
        "vlan_tci set to a value without CFI: Open vSwitch drops all tags of the packet, Flowlane the outermost for 0, and it refuses other values",
        "Flowlane: ovs-fields(7) has no meaning for such values but 0, 'no tag', which strip_vlan makes of one",
        LeftOut::Packets(|a| a.rules.does(&["set_field:0->vlan_tci"]) && a.shape.tags.len() + a.rules.tags_pushed > 1)),
    row("ipv4-later-fragment",
        "where an address changes Open vSwitch 'adjusts' a transport checksum in the payload of later fragments",
        "Flowlane: RFC 791 §3.2, no transport header is there; a defect of Open vSwitch's user space",
        LeftOut::Packets(|a| a.edits_addresses() && a.ip(|ip| !ip.v6 && ip.fragment == Fragment::Later))),
    row("ipv6-atomic-fragment",
        "where an address changes Open vSwitch leaves the transport checksum of a packet with an atomic fragment header",
        "Flowlane adjusts it: RFC 6946 §4, it is a whole packet; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.edits_addresses() && a.ip(|ip| ip.fragment == Fragment::Atomic))),
    row("routing-source",
        "ipv6_src set where a Routing header has segments left: Open vSwitch leaves the transport checksum, as it must for ipv6_dst",
        "Flowlane adjusts it: RFC 8200 §8.1, only the destination in the pseudo header is another one then; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.rules.sets(&["ipv6_src"]) && a.ip(|ip| ip.segments_left))),
    row("ip-protocol-0",
        "Open vSwitch changes no IP header whose protocol is 0",
        "Flowlane does what the rule says; a limit of Open vSwitch",
        LeftOut::Packets(|a| a.edits_ip() && a.ip(|ip| !ip.v6 && ip.protocol == 0))),
    row("udp-lite",
        "addresses of UDP-Lite packets: Open vSwitch leaves the checksum as it was",
        "Flowlane: RFC 3828 §3.1, the checksum covers a pseudo header with the addresses; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.edits_addresses() && a.ip(|ip| ip.protocol == 136))),
    row("sctp-fragment",
        "ports of the first fragment of an SCTP packet: Open vSwitch patches a CRC32c that it cannot know, Flowlane leaves the ports",
        "neither: without the other fragments no answer can be right (RFC 9260 §6.8)",
        LeftOut::Packets(|a| a.rules.sets(&["sctp"]) && a.ip(|ip| ip.protocol == 132 && ip.fragment == Fragment::First))),
    row("tiny-fragment",
        "first fragments that end within the transport header: Open vSwitch finds no ports, Flowlane those that are there",
        "Flowlane: RFC 1858 §3, fragments made small must not pass a rule for a port",
        LeftOut::Packets(|a| a.ip(|ip| ip.fragment == Fragment::First && ip.transport.len() < header_least(ip)))),
    row("llc-mpls",
        "push_mpls and pop_mpls of an 802.3 frame: Open vSwitch overwrites the length and leaves LLC and SNAP in front of the label",
        "Flowlane does neither; a defect of Open vSwitch (IEEE 802.3 §3.2.6: a type is no length)",
        LeftOut::Packets(|a| (a.pushes() || a.pops()) && a.shape.llc)),
    row("rarp-edit",
        "Open vSwitch ignores fields set in RARP",
        "Flowlane sets it: RFC 903, RARP has the fields of ARP; a limit of Open vSwitch",
        LeftOut::Packets(|a| a.edits_arp() && a.shape.network == Network::Rarp)),
    row("arp-op-wide",
        "Open vSwitch has 8 bits of the ARP operation: 0 and above 255 are 'no ARP' and not edited, 255 is not counted",
        "Flowlane: RFC 826, the operation has 16 bits; a limit of Open vSwitch",
        LeftOut::Packets(|a| a.shape.arp.get(6..8).is_some_and(|op| !matches!(op, [0, 1..=254])))),
    row("nd-options",
        "neighbour discovery with both link-layer options, one twice, or one not 8 bytes long: Open vSwitch edits the first only, or sees none",
        "Flowlane: RFC 4861 §4.6 allows them; a limit of Open vSwitch",
        LeftOut::Packets(|a| a.ip(|ip| neighbour(ip) && odd_options(ip)))),
    row("nd-missing-option",
        "nd_sll or nd_tll set where the message has no such option: later tables of Open vSwitch match the value all the same",
        "Flowlane leaves the packet and its key alone; a limit of Open vSwitch (no rules set and match them)",
        LeftOut::Rules),
    row("nd-options-type",
        "nd_options_type: Open vSwitch reads 0 where a rule moves or pushes it, or sets a part of it; it matches the first option with an address and sets the type of the first option of any kind; later tables match the value though the message has no option, and the addresses under their former names",
        "Flowlane sets the type that it matches, of the first option with an address (RFC 4861 §4.6.1), and parses the packet again; defects of Open vSwitch (rules either match it or set it whole)",
        LeftOut::Rules),
    row("nd-reserved-part",
        "a part of nd_reserved set, where nothing else depends on the others: Open vSwitch clears these",
        "Flowlane: ovs-actions(7), other bits stay; a defect of Open vSwitch (rules set it whole)",
        LeftOut::Rules),
    row("nd-checksum",
        "nd_reserved or nd_options_type set: Open vSwitch computes the whole checksum, which makes a wrong one right, and one behind extension headers wrong",
        "Flowlane adjusts it: RFC 1624 §1, a packet that was damaged stays so; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.rules.sets(&["nd_reserved", "nd_options_type"])
            && a.ip(|ip| neighbour(ip) && !(ip.icmp6_right && ip.extensions.is_empty())))),
    row("icmp-later-fragment",
        "icmp_type and icmp_code of a later fragment: Open vSwitch writes them, and a checksum, into the payload",
        "Flowlane: RFC 791 §3.2; ovs-fields(7), a later fragment has no L4 fields; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.rules.sets(&["icmp"]) && a.ip(|ip| ip.fragment == Fragment::Later))),
    row("icmpv6-short",
        "ICMPv6 messages of 4 to 7 bytes: Open vSwitch takes type and code of 8 bytes or more only",
        "Flowlane: RFC 4443 §2.1, the header has 4 bytes",
        LeftOut::Packets(|a| a.ip(|ip| ip.v6 && ip.protocol == 58 && ip.transport.len() < 8))),
    row("jumbogram",
        "IPv6 payload length 0 with a hop-by-hop header: Flowlane reads to the frame's end, Open vSwitch nothing",
        "neither: RFC 2675 §3 wants a Jumbo Payload option, and both ignore it",
        LeftOut::Packets(|a| a.ip(|ip| ip.jumbogram))),
    row("nd-fragment",
        "neighbour discovery in a first fragment: Open vSwitch reads target and options from what there is",
        "Flowlane: RFC 6980 §5, such fragments are to be ignored",
        LeftOut::Packets(|a| a.ip(|ip| neighbour(ip) && ip.fragment == Fragment::First))),
    row("ip-version",
        "malformed = forward: IP headers whose version does not fit the EtherType; Open vSwitch does not look at the version",
        "Flowlane: RFC 791 §3.1, RFC 8200 §3; with malformed = drop they are dropped, and that is compared",
        LeftOut::Packets(|a| a.forwards() && (a.ip(|ip| !ip.version_fits) || a.pops() && pops_to_another(a)))),
    row("unreadable-cached",
        "malformed = forward: after a packet whose IP header is cut off Open vSwitch does not set a field of later, sound ones in which it is 0",
        "Flowlane does what the rule says; a defect of Open vSwitch (that there is no protocol is not in the mask)",
        LeftOut::Caches(|a| a.forwards() && a.edits_ip() && a.ip(|ip| !ip.sound))),
    row("unreadable-dec-ttl",
        "malformed = forward: dec_ttl of an IP header that is cut off or lies about lengths: Open vSwitch ends the path (it reads TTL 0), Flowlane leaves the action out",
        "neither: OpenFlow does not say",
        LeftOut::Packets(|a| a.forwards() && a.rules.does(&["dec_ttl"]) && a.ip(|ip| !ip.sound))),
    row("extension-cut",
        "malformed = forward: an IPv6 extension chain that is cut off or longer than 16: Open vSwitch matches no protocol, TTL, TOS or label, and edits what it has read of it",
        "neither: OpenFlow does not say",
        LeftOut::Packets(|a| a.forwards() && a.ip(|ip| !ip.chain_whole || ip.extensions.len() > 16))),
    row("udp-length",
        "malformed = forward: UDP length below 8 or beyond the packet: Open vSwitch does not look at it, Flowlane finds no ports",
        "neither: RFC 768 wants at least 8; OpenFlow does not say",
        LeftOut::Packets(|a| a.forwards() && a.ip(|ip| ip.protocol == 17 && !udp_length_fits(ip)))),
    row("tcp-offset",
        "malformed = forward: TCP with an impossible data offset: Open vSwitch adjusts the checksum for addresses, Flowlane does not",
        "neither: OpenFlow does not say",
        LeftOut::Packets(|a| a.forwards() && a.edits_addresses() && a.ip(|ip| ip.protocol == 6 && !tcp_offset_fits(ip)))),
    row("tcp-options-fragment",
        "TCP ports set in a first fragment that ends within the TCP options: Open vSwitch leaves them",
        "Flowlane: RFC 791 §3.2, RFC 9293 §3.1, the ports are there; a limit of Open vSwitch (it wants the whole header)",
        LeftOut::Packets(|a| a.rules.sets(&["tcp", "tp_"]) && a.ip(|ip| ip.protocol == 6 && ip.fragment == Fragment::First && !tcp_offset_fits(ip)))),
    row("arp-format",
        "malformed = forward: fields set in ARP that is cut off or not for Ethernet and IPv4: Open vSwitch writes at the usual offsets",
        "Flowlane: RFC 826, the lengths say where the fields are; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.forwards() && a.edits_arp() && odd_arp(a.shape))),
    row("mobility-header",
        "Open vSwitch takes the IPv6 mobility header (135) for the transport protocol, Flowlane goes on behind it",
        "Flowlane: IANA lists 135 as an extension header (RFC 7045 §4)",
        LeftOut::Packets(|a| a.ip(|ip| ip.extensions.contains(&135) || ip.protocol == 135))),
    row("copy-recirculation",
        "a copy (`clone`) that Open vSwitch takes through its caches again, for the hash of a select group or behind pop_mpls: the original packet ends there, its outputs behind the copy are lost",
        "Flowlane: ovs-actions(7), clone executes its actions and then goes on behind them; a defect of Open vSwitch (no rules have both)",
        LeftOut::Rules),
    row("set-recirculation",
        "an action set that waits, or is executed, while Open vSwitch takes the packet through its caches again, for a select group or behind pop_mpls: ovs-vswitchd may end by an assertion (`action_set_len <= ofpacts_len`, ofproto-dpif-rid.c)",
        "Flowlane does what OpenFlow says; a defect of Open vSwitch (no rules have both)",
        LeftOut::Rules),
    row("learn-recirculation",
        "a packet that makes a rule, and that Open vSwitch takes through its caches again, for a select group or behind pop_mpls: the packet itself meets the rule behind that",
        "Flowlane: a rule is there for later packets, as in Open vSwitch where it need not do so (rules that learn pop no labels, and there are no select groups then)",
        LeftOut::Rules),
    row("learn-deleted",
        "rules with `learn(delete_learned)` that go with what another such rule has learned, in one removal: ovs-vswitchd ends by an assertion (`delta > 0`, ofproto.c). In a bundle, it removes learned rules at the end, with the rules of that cookie which the bundle has added",
        "Flowlane removes each once, and learned rules with the rule that learns; a defect of Open vSwitch (rules that learn have no cookie of learned ones)",
        LeftOut::Rules),
    row("fin-timeout-neighbours",
        "fin_timeout, and neighbour discovery with the link-layer address of the source: Open vSwitch has the type of the option, 1, where it has TCP's flags, and lowers the timeouts as for FIN",
        "Flowlane: ovs-actions(7), a TCP packet with FIN or RST does that; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.rules.does(&["fin_"]) && a.ip(|ip| neighbour(ip) && has_source_option(ip)))),
    row("fin-timeout-label",
        "fin_timeout behind push_mpls: Open vSwitch has TCP's flags from when it parsed the packet, and lowers the timeouts",
        "Flowlane: ovs-actions(7), a TCP packet with FIN or RST does that; to the tables behind push_mpls it is one of MPLS",
        LeftOut::Packets(|a| a.rules.does(&["fin_"]) && a.pushes() && a.ip(ends_connection))),
    row("fin-timeout-learned",
        "a rule that fin_timeout lowers and packets learn again: where the packet with FIN changes its actions, Open vSwitch lowers the rule that is replaced; where a packet learns it twice, it loses the count of that packet",
        "Flowlane: ovs-actions(7), the timeouts of the rule are lowered, whatever its actions are, and each packet counts; a defect of Open vSwitch",
        LeftOut::Packets(|a| a.rules.does(&["fin_"]) && learns_again(a.rules) && a.ip(ends_connection))),
    row("learn-deleted-copy",
        "`clone(learn(delete_learned))`: Open vSwitch leaves the learned rules where the rule that learns is removed",
        "Flowlane: ovs-actions(7), they are removed with it; a defect of Open vSwitch (such rules are not removed)",
        LeftOut::Rules),
    row("type-refused",
        "encap or decap that the type of a packet does not allow: Open vSwitch drops the packet and all its outputs, Flowlane has sent those in front",
        "neither: OpenFlow has no way back (no rules do that)",
        LeftOut::Rules),
    row("label-decap",
        "decap() of a label, which does not name the type of its payload: Open vSwitch gives the packet the EtherType 0xfffe",
        "Flowlane drops the packet: no such type exists; decap(packet_type(ns=1,type=0x800)) names it (no rules do that)",
        LeftOut::Rules),
    row("type-assertion",
        "encap(mpls) around a frame that has labels, behind decap of a label, or push_mpls behind decap: ovs-vswitchd ends by an assertion (`!dp_packet_is_eth(packet)`, packets.c); push_vlan behind decap writes a tag into the IP header",
        "Flowlane puts one label more around the packet, and a tag around nothing; defects of Open vSwitch (no rules do that)",
        LeftOut::Rules),
    row("truncated-in-port",
        "output(port=in_port,max_len=N): Open vSwitch accepts it and sends nothing",
        "Flowlane: ovs-actions(7) names in_port among the ports; a defect of Open vSwitch (no rules do that)",
        LeftOut::Rules),
    row("outputs-in-set",
        "output(port=P,max_len=N) and output:FIELD in a bucket: Open vSwitch accepts them, but its action sets have no such outputs, and it drops the packet",
        "Flowlane does what the bucket says; a limit of Open vSwitch (no buckets have them)",
        LeftOut::Rules),
    row("truncated-pushed",
        "output(port=P,max_len=N) behind a header that was pushed or popped: Open vSwitch cuts the packet before it pushes, so that it is longer by the header",
        "Flowlane: ovs-actions(7), at most N bytes are sent; a defect of Open vSwitch (no rules have both)",
        LeftOut::Rules),
    row("length-asked",
        "check_pkt_larger: Open vSwitch counts rules behind it for both answers, and forgets answer and changes where a called table returns",
        "Flowlane: ovs-actions(7), the bit is set and the actions go on; a defect of Open vSwitch (rules ask in table 0 only, and have no action sets then)",
        LeftOut::Counters(|rules| rules.does(&["check_pkt_larger"]))),
    row("normal-priority-tag",
        "normal, and a tag with VID 0 and priority 0: Open vSwitch removes it, Flowlane leaves it unless a port has VLAN settings",
        "neither: a bridge of IEEE 802.1Q treats both alike; frames are not changed where no VLAN is asked for (no rules have normal; the tests of VLANs have settings)",
        LeftOut::Rules),
    row("vlan-inner-tag",
        "a port with VLAN settings, and a frame with two tags: Open vSwitch drops the inner tag of a frame that an access port or a tunnel receives, and behind or in a tag with VID 0 and priority 0, and heeds inner tags and cvlans only where it floods a frame, not where the destination was learned",
        "Flowlane: no frame gets into another VLAN or loses the tag of a customer; an access port refuses a frame with a VID, also behind a priority tag, and gets none with an inner VID; defects of Open vSwitch (the tests of VLANs make no such frames)",
        LeftOut::Rules),
    row("vlan-native-zero",
        "a port with the native VLAN 0, and trunks without 0: Open vSwitch takes frames of VLAN 0 from it, and floods none to it",
        "Flowlane: vswitchd.conf.db(5), a native VLAN is always trunked (the tests of VLANs have no such ports)",
        LeftOut::Rules),
    row("bytes-behind-headers",
        "bytes of rules behind a header that was pushed or popped: Open vSwitch counts the length that the packet had when it was parsed last, Flowlane the one that it came with",
        "neither: OpenFlow 1.3.5 §5.8 does not say at which place bytes are counted",
        LeftOut::Bytes(|rules| rules.does(&HEADERS))),
];

/// Bytes of the transport header at least.
fn header_least(ip: &Ip) -> usize {
    match ip.protocol {
        6 => 20,
        132 => 12,
        1 | 17 => 8,
        58 => 4,
        _ => 0,
    }
}

/// ARP that is cut off, or not for Ethernet and IPv4.
fn odd_arp(shape: &Shape) -> bool {
    let is_arp = matches!(shape.network, Network::Arp | Network::Rarp);
    is_arp && !(shape.arp.starts_with(&[0, 1, 8, 0, 6, 4]) && shape.arp.len() >= 28)
}

/// Neighbour solicitations and advertisements.
fn neighbour(ip: &Ip) -> bool {
    ip.v6 && ip.protocol == 58 && matches!(ip.transport.first(), Some(135 | 136))
}

/// Returns whether there is an option that is not 8 bytes long, or more than one with an address.
fn odd_options(ip: &Ip) -> bool {
    let options = ip.transport.get(24..).unwrap_or_default();
    let odd = options.chunks(8).any(|option| option.len() < 8 || option[1] != 1);
    odd || options.chunks(8).filter(|option| matches!(option[0], 1 | 2)).count() > 1
}

/// Returns whether there is an option with the link-layer address of the source.
fn has_source_option(ip: &Ip) -> bool {
    ip.transport.get(24..).unwrap_or_default().chunks(8).any(|option| option[0] == 1)
}

/// Returns whether it is TCP with FIN or RST.
fn ends_connection(ip: &Ip) -> bool {
    ip.protocol == 6 && ip.transport.get(13).is_some_and(|flags| flags & 5 != 0)
}

/// Returns whether a rule may be learned with other actions, or twice by one packet.
fn learns_again(rules: &Rules) -> bool {
    let learning = rules.text.matches("learn(").count();
    learning > 1 || rules.does(&["load:NXM", "load:OXM"]) || rules.text.lines().any(leads_back)
}

fn udp_length_fits(ip: &Ip) -> bool {
    let Some(length) = ip.transport.get(4..6) else { return true };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    length >= 8 && (length <= ip.transport.len() || ip.fragment == Fragment::First)
}

fn tcp_offset_fits(ip: &Ip) -> bool {
    ip.transport.get(12).is_none_or(|byte| (20..=ip.transport.len()).contains(&(usize::from(byte >> 4) * 4)))
}

/// Returns whether the last label may be popped to a type that does not fit the packet under it.
fn pops_to_another(a: Asked<'_>) -> bool {
    let to = |kind: &str, network| a.rules.does(&[kind]) && a.shape.under != network;
    a.shape.labelled && (to("pop_mpls:0x0800", Network::Ipv4) || to("pop_mpls:0x86dd", Network::Ipv6))
}

/// Says for which packets something holds.
type Holds = fn(Asked<'_>) -> bool;

/// Classes that are being fixed, and not compared until then.
pub(crate) const BEING_MENDED: &[(&str, Holds)] = &[];

/// Why a packet is not compared, if it is not. The class named `included` is compared nevertheless.
pub(crate) fn left_out(asked: Asked<'_>, included: Option<&str>) -> Option<&'static str> {
    let known = DIFFERENCES.iter().find(|d| match d.left_out {
        LeftOut::Packets(holds) => Some(d.class) != included && holds(asked),
        LeftOut::Rules | LeftOut::Caches(_) | LeftOut::Counters(_) | LeftOut::Bytes(_) => false,
    });
    let mended = || BEING_MENDED.iter().find(|(class, holds)| Some(*class) != included && holds(asked));
    known.map(|d| d.class).or_else(|| mended().map(|m| m.0))
}

/// Returns whether a packet needs empty caches, and must leave them empty.
pub(crate) fn without_caches(asked: Asked<'_>, included: Option<&str>) -> bool {
    DIFFERENCES
        .iter()
        .any(|d| matches!(d.left_out, LeftOut::Caches(holds) if Some(d.class) != included && holds(asked)))
}

/// Returns whether the rules' bytes are not compared.
pub(crate) fn without_bytes(rules: &Rules, included: Option<&str>) -> bool {
    DIFFERENCES
        .iter()
        .any(|d| matches!(d.left_out, LeftOut::Bytes(holds) if Some(d.class) != included && holds(rules)))
}

/// Returns whether the rules' counters are not compared.
pub(crate) fn without_counters(rules: &Rules, included: Option<&str>) -> bool {
    DIFFERENCES
        .iter()
        .any(|d| matches!(d.left_out, LeftOut::Counters(holds) if Some(d.class) != included && holds(rules)))
}
