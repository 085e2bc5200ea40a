//! The one table of fields: name, position in the flow key, width, form, prerequisites.
//!
//! Parsers, rule readers, printers and actions are all driven by [`Field::all`]; a field that is added
//! here can be matched, printed and (where [`FieldInfo::writable`]) set.
//!
//! The words of a key, metadata and tunnel first, then L2, L3, L4, connection state, registers; the
//! words that rules look at most stand next to each other:
//!
//! ```text
//!  0        in_port                       38       tp_src | tp_dst
//!  1        malformed | recirc_id         39       nw_proto | nw_tos | nw_ttl | nw_frag
//!  2..=3    metadata                      40..=41  nw_src, nw_dst (ARP: spa, tpa)
//!  4..=5    tun_id                        42       ipv6_label
//!  6..=7    tun_src, tun_dst              43       tcp_flags | icmp_type | icmp_code
//!  8..=15   tun_ipv6_src, tun_ipv6_dst    44       arp_op | nd_options_type
//!  16       tun_flags | tun_tos | tun_ttl 45..=48  arp_sha, arp_tha (ND: sll, tll), 48 bits each
//!  17       tun_gbp_id | .. | tun_type    49..=52  nd_target
//!  18       gtpu flags | type | ..        53..=58  kept for connection state
//!  19..=21  tun_option, tun_option_data   59       pkt_mark
//!  22..=24  dl_dst, dl_src                60..=63  reg0..=reg3
//!  25       vlan_tci | eth_type
//!  26       vlan_tpid | vlan_tci1
//!  27..=29  mpls_lse, mpls_lse1, mpls_lse2
//!  30..=37  ipv6_src, ipv6_dst
//! ```
//!
//! The IPv4 5-tuple is words 38 to 41, the IPv6 5-tuple words 30 to 39.

/// How a field's value is written and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A decimal number.
    Decimal,
    /// The six bits of a DSCP as the octet that they are the upper bits of, whose lower two (ECN) do not count, as Open
    /// vSwitch writes `nw_tos`: 32 is DSCP 8.
    Tos,
    /// A hexadecimal number.
    Hex,
    /// A port number or port name of the switch.
    Port,
    /// `192.0.2.1`, with `/24` or `/255.255.0.255`.
    Ipv4,
    /// `2001:db8::1`, with `/64` or `/ffff::`.
    Ipv6,
    /// `02:00:00:00:00:01`, with a mask of the same form.
    Mac,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// `+syn-ack`, or a number with a mask.
    TcpFlags,
}

/// What a packet must be for a field to mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prerequisite {
    /// Nothing: every packet has the field.
    None,
    /// An 802.1Q or 802.1ad tag.
    Vlan,
    /// `eth_type` 0x8847 or 0x8848.
    Mpls,
    /// `eth_type` 0x0806 (or RARP, 0x8035).
    Arp,
    /// `eth_type` 0x0800 or 0x86dd.
    Ip,
    /// `eth_type` 0x0800.
    Ipv4,
    /// `eth_type` 0x86dd.
    Ipv6,
    /// `nw_proto` 6, 17 or 132.
    Ports,
    /// `nw_proto` 6.
    Tcp,
    /// `nw_proto` 1 over IPv4 or 58 over IPv6.
    Icmp,
    /// `nw_proto` 58 over IPv6, `icmp_type` 135 or 136.
    NeighbourDiscovery,
    /// The frame arrived through a tunnel that was terminated here.
    Tunnel,
}

/// A field of the flow key. Its properties are in [`Field::info`], its names those of Open vSwitch.
///
/// A value is a number, right-aligned: addresses and ports as they are written, `0xc000_0201` for 192.0.2.1. A packet without a
/// field has 0 there.
///
/// ```
/// use flowlane::Field;
///
/// let field = Field::by_name("nw_dst").unwrap();
/// assert_eq!((field, field.info().width), (Field::Ipv4Dst, 32));
/// assert_eq!(Field::by_name("tcp_dst"), Field::by_name("tp_dst"));
/// ```
///
#[doc = include_str!("fields.md")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every variant's documentation is its row of FIELDS")]
pub enum Field {
    InPort,
    Malformed,
    RecircId,
    Metadata,
    TunId,
    TunSrc,
    TunDst,
    TunIpv6Src,
    TunIpv6Dst,
    TunFlags,
    TunTos,
    TunTtl,
    TunGbpId,
    TunGbpFlags,
    TunType,
    TunGtpuFlags,
    TunGtpuMsgType,
    TunOptionClass,
    TunOptionType,
    TunOptionLen,
    TunOptionData,
    EthDst,
    EthSrc,
    VlanTci,
    VlanVid,
    VlanPcp,
    EthType,
    VlanTpid,
    VlanTci1,
    MplsLabel,
    MplsTc,
    MplsBos,
    MplsTtl,
    MplsLse1,
    MplsLse2,
    Ipv6Src,
    Ipv6Dst,
    TpSrc,
    TpDst,
    NwProto,
    IpDscp,
    IpEcn,
    NwTtl,
    IpFrag,
    Ipv4Src,
    Ipv4Dst,
    ArpSpa,
    ArpTpa,
    Ipv6Label,
    TcpFlags,
    IcmpType,
    IcmpCode,
    ArpOp,
    ArpSha,
    ArpTha,
    NdSll,
    NdTll,
    NdTarget,
    PktMark,
    Reg0,
    Reg1,
    Reg2,
    Reg3,
}

/// What a [`Field`] is: one row of the table of fields.
#[derive(Debug)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The field.
    pub field: Field,
    /// The name under which it is printed: Open vSwitch's where it has one.
    pub name: &'static str,
    /// Other names that are read.
    pub aliases: &'static [&'static str],
    /// Position of the field's most significant bit, counted from the most significant bit of word 0.
    #[doc(hidden)]
    pub bit: u16,
    /// Width in bits, 1 to 128.
    pub width: u8,
    /// How values are written.
    #[doc(hidden)]
    pub form: Form,
    /// What a packet must be to have the field.
    #[doc(hidden)]
    pub prerequisite: Prerequisite,
    /// Whether rules may look at, and set, some of its bits only (ovs-fields(7), *Maskable*).
    pub maskable: bool,
    /// Whether an action may set it.
    pub writable: bool,
}

/// Number of fields.
pub const FIELD_COUNT: usize = Field::Reg3 as usize + 1;

#[expect(clippy::too_many_arguments, reason = "a row of the table has nine columns")]
const fn row(
    field: Field,
    name: &'static str,
    aliases: &'static [&'static str],
    (word, bit): (u16, u16),
    width: u8,
    form: Form,
    prerequisite: Prerequisite,
    maskable: bool,
    writable: bool,
) -> FieldInfo {
    FieldInfo { field, name, aliases, bit: word * 32 + bit, width, form, prerequisite, maskable, writable }
}

#[rustfmt::skip]
static FIELDS: [FieldInfo; FIELD_COUNT] = {
    use Form::*;
    use Prerequisite as P;
    [
        //  field                  name               other names                 word, bit  width form      needs            maskable  writable
        row(Field::InPort,         "in_port",         &[],                        (0, 0),    32,  Port,     P::None,         false,    false),
        row(Field::Malformed,      "malformed",       &[],                        (1, 0),    8,   Decimal,  P::None,         false,    false),
        row(Field::RecircId,       "recirc_id",       &[],                        (1, 8),    24,  Hex,      P::None,         false,    false),
        row(Field::Metadata,       "metadata",        &[],                        (2, 0),    64,  Hex,      P::None,         true,     true),
        row(Field::TunId,          "tun_id",          &["tunnel_id"],             (4, 0),    64,  Hex,      P::Tunnel,       true,     true),
        row(Field::TunSrc,         "tun_src",         &[],                        (6, 0),    32,  Ipv4,     P::Tunnel,       true,     true),
        row(Field::TunDst,         "tun_dst",         &[],                        (7, 0),    32,  Ipv4,     P::Tunnel,       true,     true),
        row(Field::TunIpv6Src,     "tun_ipv6_src",    &[],                        (8, 0),    128, Ipv6,     P::Tunnel,       true,     true),
        row(Field::TunIpv6Dst,     "tun_ipv6_dst",    &[],                        (12, 0),   128, Ipv6,     P::Tunnel,       true,     true),
        row(Field::TunFlags,       "tun_flags",       &[],                        (16, 0),   16,  Hex,      P::Tunnel,       true,     true),
        row(Field::TunTos,         "tun_tos",         &[],                        (16, 16),  8,   Decimal,  P::Tunnel,       false,    true),
        row(Field::TunTtl,         "tun_ttl",         &[],                        (16, 24),  8,   Decimal,  P::Tunnel,       false,    true),
        row(Field::TunGbpId,       "tun_gbp_id",      &[],                        (17, 0),   16,  Decimal,  P::Tunnel,       true,     true),
        row(Field::TunGbpFlags,    "tun_gbp_flags",   &[],                        (17, 16),  8,   Hex,      P::Tunnel,       true,     true),
        row(Field::TunType,        "tun_type",        &[],                        (17, 24),  8,   Decimal,  P::Tunnel,       true,     false),
        row(Field::TunGtpuFlags,   "tun_gtpu_flags",  &[],                        (18, 0),   8,   Hex,      P::Tunnel,       true,     true),
        row(Field::TunGtpuMsgType, "tun_gtpu_msgtype",&[],                        (18, 8),   8,   Decimal,  P::Tunnel,       true,     true),
        row(Field::TunOptionClass, "tun_opt_class",   &[],                        (19, 0),   16,  Hex,      P::Tunnel,       true,     true),
        row(Field::TunOptionType,  "tun_opt_type",    &[],                        (19, 16),  8,   Hex,      P::Tunnel,       true,     true),
        row(Field::TunOptionLen,   "tun_opt_len",     &[],                        (19, 24),  8,   Decimal,  P::Tunnel,       true,     false),
        row(Field::TunOptionData,  "tun_metadata0",   &["tun_opt_data"],          (20, 0),   64,  Hex,      P::Tunnel,       true,     true),
        row(Field::EthDst,         "dl_dst",          &["eth_dst"],               (22, 0),   48,  Mac,      P::None,         true,     true),
        row(Field::EthSrc,         "dl_src",          &["eth_src"],               (23, 16),  48,  Mac,      P::None,         true,     true),
        row(Field::VlanTci,        "vlan_tci",        &[],                        (25, 0),   16,  Hex,      P::None,         true,     true),
        row(Field::VlanVid,        "dl_vlan",         &["vlan_vid"],              (25, 4),   12,  Decimal,  P::Vlan,         false,    true),
        row(Field::VlanPcp,        "dl_vlan_pcp",     &["vlan_pcp"],              (25, 0),   3,   Decimal,  P::Vlan,         false,    true),
        row(Field::EthType,        "dl_type",         &["eth_type"],              (25, 16),  16,  Hex,      P::None,         false,    false),
        row(Field::VlanTpid,       "vlan_tpid",       &[],                        (26, 0),   16,  Hex,      P::Vlan,         true,     false),
        row(Field::VlanTci1,       "vlan_tci1",       &[],                        (26, 16),  16,  Hex,      P::Vlan,         true,     false),
        row(Field::MplsLabel,      "mpls_label",      &[],                        (27, 0),   20,  Decimal,  P::Mpls,         false,    true),
        row(Field::MplsTc,         "mpls_tc",         &[],                        (27, 20),  3,   Decimal,  P::Mpls,         false,    true),
        row(Field::MplsBos,        "mpls_bos",        &[],                        (27, 23),  1,   Decimal,  P::Mpls,         false,    false),
        row(Field::MplsTtl,        "mpls_ttl",        &[],                        (27, 24),  8,   Decimal,  P::Mpls,         false,    true),
        row(Field::MplsLse1,       "mpls_lse1",       &[],                        (28, 0),   32,  Hex,      P::Mpls,         true,     false),
        row(Field::MplsLse2,       "mpls_lse2",       &[],                        (29, 0),   32,  Hex,      P::Mpls,         true,     false),
        row(Field::Ipv6Src,        "ipv6_src",        &[],                        (30, 0),   128, Ipv6,     P::Ipv6,         true,     true),
        row(Field::Ipv6Dst,        "ipv6_dst",        &[],                        (34, 0),   128, Ipv6,     P::Ipv6,         true,     true),
        row(Field::TpSrc,          "tp_src",          &["tcp_src", "udp_src", "sctp_src"], (38, 0), 16, Decimal, P::Ports,   true,     true),
        row(Field::TpDst,          "tp_dst",          &["tcp_dst", "udp_dst", "sctp_dst"], (38, 16), 16, Decimal, P::Ports,  true,     true),
        row(Field::NwProto,        "nw_proto",        &["ip_proto"],              (39, 0),   8,   Decimal,  P::Ip,           false,    false),
        row(Field::IpDscp,         "nw_tos",          &["ip_dscp"],               (39, 8),   6,   Tos,      P::Ip,           false,    true),
        row(Field::IpEcn,          "nw_ecn",          &["ip_ecn"],                (39, 14),  2,   Decimal,  P::Ip,           false,    true),
        row(Field::NwTtl,          "nw_ttl",          &["ip_ttl"],                (39, 16),  8,   Decimal,  P::Ip,           false,    true),
        row(Field::IpFrag,         "ip_frag",         &["nw_frag"],               (39, 24),  2,   Frag,     P::Ip,           false,    false),
        row(Field::Ipv4Src,        "nw_src",          &["ip_src"],                (40, 0),   32,  Ipv4,     P::Ipv4,         true,     true),
        row(Field::Ipv4Dst,        "nw_dst",          &["ip_dst"],                (41, 0),   32,  Ipv4,     P::Ipv4,         true,     true),
        row(Field::ArpSpa,         "arp_spa",         &[],                        (40, 0),   32,  Ipv4,     P::Arp,          true,     true),
        row(Field::ArpTpa,         "arp_tpa",         &[],                        (41, 0),   32,  Ipv4,     P::Arp,          true,     true),
        row(Field::Ipv6Label,      "ipv6_label",      &[],                        (42, 12),  20,  Hex,      P::Ipv6,         true,     true),
        row(Field::TcpFlags,       "tcp_flags",       &[],                        (43, 4),   12,  TcpFlags, P::Tcp,          true,     false),
        row(Field::IcmpType,       "icmp_type",       &["icmpv6_type"],           (43, 16),  8,   Decimal,  P::Icmp,         false,    true),
        row(Field::IcmpCode,       "icmp_code",       &["icmpv6_code"],           (43, 24),  8,   Decimal,  P::Icmp,         false,    true),
        row(Field::ArpOp,          "arp_op",          &[],                        (44, 0),   16,  Decimal,  P::Arp,          false,    true),
        row(Field::ArpSha,         "arp_sha",         &[],                        (45, 0),   48,  Mac,      P::Arp,          true,     true),
        row(Field::ArpTha,         "arp_tha",         &[],                        (46, 16),  48,  Mac,      P::Arp,          true,     true),
        row(Field::NdSll,          "nd_sll",          &[],                        (45, 0),   48,  Mac,      P::NeighbourDiscovery, true,     true),
        row(Field::NdTll,          "nd_tll",          &[],                        (46, 16),  48,  Mac,      P::NeighbourDiscovery, true,     true),
        row(Field::NdTarget,       "nd_target",       &[],                        (49, 0),   128, Ipv6,     P::NeighbourDiscovery, true,     true),
        row(Field::PktMark,        "pkt_mark",        &[],                        (59, 0),   32,  Hex,      P::None,         true,     true),
        row(Field::Reg0,           "reg0",            &[],                        (60, 0),   32,  Hex,      P::None,         true,     true),
        row(Field::Reg1,           "reg1",            &[],                        (61, 0),   32,  Hex,      P::None,         true,     true),
        row(Field::Reg2,           "reg2",            &[],                        (62, 0),   32,  Hex,      P::None,         true,     true),
        row(Field::Reg3,           "reg3",            &[],                        (63, 0),   32,  Hex,      P::None,         true,     true),
    ]
};

// Field::info indexes the table by the discriminant.
const _: () = {
    let mut i = 0;
    while i < FIELD_COUNT {
        assert!(FIELDS[i].field as usize == i);
        assert!(FIELDS[i].bit as usize + FIELDS[i].width as usize <= 64 * 32);
        i += 1;
    }
};

impl Field {
    /// Every field, in the order of the key.
    pub fn all() -> &'static [FieldInfo] {
        &FIELDS
    }

    /// The field's row of the table.
    #[inline]
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }

    /// The field called `name`, by its own name or an alias.
    pub fn by_name(name: &str) -> Option<Field> {
        FIELDS.iter().find(|f| f.name == name || f.aliases.contains(&name)).map(|f| f.field)
    }
}

impl FieldInfo {
    /// The words that the field lies in, most significant first: (word, shift of the piece's lowest
    /// bit, width of the piece).
    #[doc(hidden)]
    pub fn pieces(&self) -> impl Iterator<Item = (usize, u32, u32)> + use<> {
        let end = u32::from(self.bit) + u32::from(self.width);
        let mut at = u32::from(self.bit);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let stop = end.min((at / 32 + 1) * 32);
                let piece = ((at / 32) as usize, (32 - stop % 32) % 32, stop - at);
                at = stop;
                piece
            })
        })
    }

    /// What a value and mask of the field (right-aligned) are in the words that it lies in: (word, value
    /// bits, mask bits), the value's within the mask.
    #[doc(hidden)]
    pub fn spread(&self, value: u128, mask: u128) -> impl Iterator<Item = (usize, u32, u32)> + use<> {
        let mut left = u32::from(self.width);
        self.pieces().map(move |(word, shift, width)| {
            left -= width;
            let ones = ((1u64 << width) - 1) as u32;
            let bits = |of: u128| ((of >> left) as u32 & ones) << shift;
            (word, bits(value & mask), bits(mask))
        })
    }

    /// A mask of the field's width, right-aligned.
    pub fn ones(&self) -> u128 {
        u128::MAX >> (128 - u32::from(self.width))
    }
}

/// Word indices that code outside the table of fields names.
pub mod word {
    /// `in_port`.
    pub const IN_PORT: usize = 0;
    /// `malformed` and `recirc_id`.
    pub const RECIRC_ID: usize = 1;
    /// First of two words of `tun_id`.
    pub const TUN_ID: usize = 4;
    /// `tun_src`.
    pub const TUN_SRC: usize = 6;
    /// `tun_dst`.
    pub const TUN_DST: usize = 7;
    /// First of four words of `tun_ipv6_src`.
    pub const TUN_IPV6_SRC: usize = 8;
    /// First of four words of `tun_ipv6_dst`.
    pub const TUN_IPV6_DST: usize = 12;
    /// `tun_flags`, `tun_tos`, `tun_ttl`.
    pub const TUN_FLAGS: usize = 16;
    /// `tun_gbp_id`, `tun_gbp_flags`, `tun_type`.
    pub const TUN_GBP: usize = 17;
    /// `tun_gtpu_flags`, `tun_gtpu_msgtype`.
    pub const TUN_GTPU: usize = 18;
    /// GENEVE option class, type, length; two words of its data follow.
    pub const TUN_OPTION: usize = 19;
    /// First of three words of `dl_dst` and `dl_src`.
    pub const ETH: usize = 22;
    /// `vlan_tci` and `eth_type`.
    pub const VLAN_ETH_TYPE: usize = 25;
    /// `vlan_tpid` and `vlan_tci1`.
    pub const VLAN_INNER: usize = 26;
    /// First of three label stack entries.
    pub const MPLS: usize = 27;
    /// First of four words of `ipv6_src`.
    pub const IPV6_SRC: usize = 30;
    /// First of four words of `ipv6_dst`.
    pub const IPV6_DST: usize = 34;
    /// `tp_src` and `tp_dst`.
    pub const PORTS: usize = 38;
    /// `nw_proto`, `nw_tos`, `nw_ttl`, `ip_frag`.
    pub const NW_PROTO: usize = 39;
    /// `nw_src`.
    pub const IPV4_SRC: usize = 40;
    /// `nw_dst`.
    pub const IPV4_DST: usize = 41;
    /// `ipv6_label`.
    pub const IPV6_LABEL: usize = 42;
    /// `tcp_flags`, `icmp_type`, `icmp_code`.
    pub const FLAGS: usize = 43;
    /// `arp_op`.
    pub const ARP_OP: usize = 44;
    /// First of four words: three of `arp_sha`/`nd_sll` and `arp_tha`/`nd_tll`, the fourth unused.
    pub const ARP_HA: usize = 45;
    /// First of four words of `nd_target`.
    pub const ND_TARGET: usize = 49;
    /// First of the words that hold no packet header: `pkt_mark`, registers.
    pub const PKT_MARK: usize = 59;
}

/// Set in `vlan_tci` where a tag is present, as in Open vSwitch (the place of the CFI/DEI bit).
pub const VLAN_PRESENT: u16 = 0x1000;

/// `ip_frag`: the packet is a fragment.
pub const FRAG_ANY: u8 = 1;
/// `ip_frag`: the packet is a fragment other than the first, and has no L4 header. Its `nw_proto` is the header's over
/// IPv4, and 44 (the fragment header) over IPv6.
pub const FRAG_LATER: u8 = 2;

/// `tun_type` of a frame that came through VXLAN (RFC 7348).
pub const TUNNEL_VXLAN: u8 = 1;
/// `tun_type` of a frame that came through GENEVE (RFC 8926).
pub const TUNNEL_GENEVE: u8 = 2;
/// `tun_type` of a frame that came through GTP-U (3GPP TS 29.281).
pub const TUNNEL_GTPU: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn of_which_packets(info: &FieldInfo) -> &'static str {
        match info.prerequisite {
            Prerequisite::None => "all",
            Prerequisite::Vlan => "with a VLAN tag",
            Prerequisite::Mpls => "with a label",
            Prerequisite::Arp => "ARP",
            Prerequisite::Ip => "IPv4, IPv6",
            Prerequisite::Ipv4 => "IPv4",
            Prerequisite::Ipv6 => "IPv6",
            Prerequisite::Ports => "TCP, UDP, SCTP",
            Prerequisite::Tcp => "TCP",
            Prerequisite::Icmp => "ICMP, ICMPv6",
            Prerequisite::NeighbourDiscovery => "neighbour discovery",
            Prerequisite::Tunnel => "out of a tunnel",
        }
    }

    #[test]
    fn the_documented_table_is_that_of_the_fields() {
        let mut table = "| field | names in rules | bits | of packets |\n|---|---|---|---|\n".to_owned();
        for info in Field::all() {
            let names: Vec<String> =
                [info.name].iter().chain(info.aliases).map(|name| format!("`{name}`")).collect();
            let (field, names, packets) = (info.field, names.join(", "), of_which_packets(info));
            table += &format!("| `{field:?}` | {names} | {} | {packets} |\n", info.width);
        }
        assert_eq!(include_str!("fields.md"), table, "packet/fields.md is to have what is on the right");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> =
            FIELDS.iter().flat_map(|f| f.aliases.iter().copied().chain([f.name])).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn pieces_follow_word_boundaries() {
        let pieces: Vec<_> = Field::EthSrc.info().pieces().collect();
        assert_eq!(pieces, [(23, 0, 16), (24, 0, 32)]);
        let pieces: Vec<_> = Field::VlanPcp.info().pieces().collect();
        assert_eq!(pieces, [(25, 29, 3)]);
    }
}
