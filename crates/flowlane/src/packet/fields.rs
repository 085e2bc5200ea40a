//! The one table of fields: name, class, position in the flow key, width, form, prerequisites.
//!
//! Parsers, rule readers, printers and actions are all driven by [`Field::all`]; a field that is added
//! here can be matched, printed and (where [`FieldInfo::writable`]) set.
//!
//! The words of a key: tunnel, then L2, L3, L4, metadata, connection state, registers. The words that rules look at most are
//! neighbours, and those that most packets have are in the first half ([`WordSet`]):
//!
//! ```text
//!  0        in_port                       36       tp_src | tp_dst
//!  1        malformed | recirc_id         37       nw_proto | nw_tos | nw_ttl | nw_frag
//!  2..=3    tun_id                        38..=39  nw_src, nw_dst (ARP: spa, tpa)
//!  4..=5    tun_src, tun_dst              40       ipv6_label
//!  6..=13   tun_ipv6_src, tun_ipv6_dst    41       tcp_flags | icmp_type | icmp_code
//! 14        tun_flags | tun_tos | tun_ttl 42       arp_op | nd_options | .. | nd_options_type
//! 15        tun_gbp_id | .. | tun_type    43..=45  arp_sha, arp_tha (ND: sll, tll), 48 bits each
//! 16        gtpu flags | type | ..        46..=50  nd_reserved, nd_target
//! 17..=19   tun_option, tun_option_data   51..=52  metadata
//! 20..=22   dl_dst, dl_src                53       pkt_mark
//! 23        vlan_tci | eth_type           54       ct_state
//! 24        vlan_tpid | vlan_tci1         55       ct_zone | ct_nw_proto | ..
//! 25..=27   mpls_lse, mpls_lse1, mpls_lse2 56      ct_mark
//! 28..=35   ipv6_src, ipv6_dst            57..=59  ct_nw_src, ct_nw_dst, ct_tp_src | ct_tp_dst
//! 60..=75   reg0..=reg15 (xreg0: reg0, reg1; xxreg0: reg0..=reg3)
//! 76..=79   ct_label
//! 80..=87   ct_ipv6_src, ct_ipv6_dst
//! 88..=92   conj_id, dp_hash, packet_type, actset_output, skb_priority
//! 93..=98   nsh_flags | nsh_ttl | nsh_np | nsh_mdtype, nsh_spi | nsh_si, nsh_c1..=nsh_c4
//! 99        tun_erspan_idx | tun_erspan_ver | tun_erspan_dir | tun_erspan_hwid
//! 100..=127 tun_metadata0..=tun_metadata6 (with the bits of word 16 that say which are present)
//! ```
//!
//! The IPv4 5-tuple is words 36 to 39, the IPv6 5-tuple words 28 to 37. In memory, words 12 to 27, 28 to 43 and 60 to 75 are a
//! cache line each.

mod described;
mod table;
#[cfg(test)]
mod tests;
pub mod word;

use std::fmt;

use super::word_set::WordSet;
use crate::error::Error;
use table::FIELDS;

/// Where a field comes from, and so what reads and writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FieldClass {
    /// The frame's headers: a field is read and written there.
    Header,
    /// The tunnel that the frame came out of, or goes into.
    Tunnel,
    /// The switch: port, marks, registers.
    Metadata,
    /// The connection that the packet belongs to.
    Connection,
}

impl FieldClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Header, Self::Tunnel, Self::Metadata, Self::Connection];

    /// The words of all fields of the class. No word has fields of two classes.
    #[inline(always)]
    pub(super) const fn words(self) -> WordSet {
        CLASS_WORDS[self as usize]
    }
}

const CLASS_WORDS: [WordSet; FieldClass::ALL.len()] = {
    let mut words = [WordSet::EMPTY; FieldClass::ALL.len()];
    let mut i = 0;
    while i < FIELD_COUNT {
        let info = &FIELDS[i];
        let (first, last) = (info.bit as usize / 32, (info.bit as usize + info.width as usize - 1) / 32);
        let class = info.class as usize;
        words[class] = words[class].union(WordSet::range(first..last + 1));
        i += 1;
    }
    words
};

/// How a field's value is written and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A decimal number.
    Decimal,
    /// The six bits of a DSCP as the octet that they are the upper bits of, whose lower two (ECN) are ignored, as Open
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
    /// `+trk-new`, likewise.
    CtState,
    /// `+oam`, likewise.
    TunFlags,
    /// `(1,0x800)`: name space and type.
    PacketType,
}

/// The kind of packet that has a field.
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
    /// `eth_type` 0x894f.
    Nsh,
    /// The frame arrived through a tunnel that was terminated here.
    Tunnel,
}

/// A field of the flow key. Its properties are in [`Field::info`], its names those of Open vSwitch.
///
/// A value is a number, right-aligned: addresses and ports as they are written, `0xc000_0201` for 192.0.2.1. A packet without a
/// field has 0 there.
///
/// A field prints as its name in rules, and is read from any name that rules take.
///
/// ```
/// use flowlane::Field;
///
/// let field: Field = "nw_dst".parse()?;
/// assert_eq!((field, field.info().width), (Field::Ipv4Dst, 32));
/// assert_eq!(field.to_string(), "nw_dst");
/// assert_eq!("tcp_dst".parse(), Ok(Field::TpDst));
/// assert_eq!("NXM_OF_IP_DST".parse(), Ok(Field::Ipv4Dst));
/// let error = "tp_dts".parse::<Field>().unwrap_err();
/// assert_eq!(error.to_string(), "`tp_dts`: there is no such field; did you mean `tp_dst`?");
/// # Ok::<(), flowlane::Error>(())
/// ```
///
#[doc = include_str!("fields/fields.md")]
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
    NdReserved,
    NdOptionsType,
    PktMark,
    Reg0,
    Reg1,
    Reg2,
    Reg3,
    Reg4,
    Reg5,
    Reg6,
    Reg7,
    Reg8,
    Reg9,
    Reg10,
    Reg11,
    Reg12,
    Reg13,
    Reg14,
    Reg15,
    CtState,
    CtZone,
    CtMark,
    CtLabel,
    CtNwProto,
    CtIpv4Src,
    CtIpv4Dst,
    CtIpv6Src,
    CtIpv6Dst,
    CtTpSrc,
    CtTpDst,
    ConjId,
    DpHash,
    PacketType,
    ActsetOutput,
    SkbPriority,
    NshFlags,
    NshTtl,
    NshNp,
    NshMdtype,
    NshSpi,
    NshSi,
    NshC1,
    NshC2,
    NshC3,
    NshC4,
    TunErspanIdx,
    TunErspanVer,
    TunErspanDir,
    TunErspanHwid,
    TunMetadata0,
    TunMetadata1,
    TunMetadata2,
    TunMetadata3,
    TunMetadata4,
    TunMetadata5,
    TunMetadata6,
    XReg0,
    XReg1,
    XReg2,
    XReg3,
    XReg4,
    XReg5,
    XReg6,
    XReg7,
    XxReg0,
    XxReg1,
    XxReg2,
    XxReg3,
    /// Options of neighbour discovery that are present: [`ND_SLL_PRESENT`], [`ND_TLL_PRESENT`]. Rules cannot name it.
    #[doc(hidden)]
    NdOptions,
    /// Tunnel options that are present: bit n for `tun_metadataN`. A match on the option asks for it.
    #[doc(hidden)]
    TunMetadataPresent,
}

/// The properties of a [`Field`]: one row of the table of fields.
#[derive(Debug)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The field.
    pub field: Field,
    /// The name under which it is printed: Open vSwitch's where it has one.
    pub name: &'static str,
    /// Other names that are read.
    pub aliases: &'static [&'static str],
    /// Where the field comes from.
    pub class: FieldClass,
    /// Position of the field's most significant bit, counted from the most significant bit of word 0.
    #[doc(hidden)]
    pub bit: u16,
    /// Width in bits, 1 to 128.
    pub width: u8,
    /// How values are written.
    #[doc(hidden)]
    pub form: Form,
    /// The kind of packet that has the field.
    #[doc(hidden)]
    pub prerequisite: Prerequisite,
    /// Whether rules may look at, and set, some of its bits only (ovs-fields(7), *Maskable*).
    pub maskable: bool,
    /// Whether an action may set it.
    pub writable: bool,
}

/// Number of rows of the table of fields.
const FIELD_COUNT: usize = Field::TunMetadataPresent as usize + 1;

/// Rows of the fields that show words of their own. Those of `xreg0` to `xxreg3` follow.
const OWN: usize = Field::XReg0 as usize;

/// Rows of the fields that can be named. Those that rules cannot name follow.
pub(crate) const NAMED: usize = Field::XxReg3 as usize + 1;

// Field::info indexes the table by the discriminant.
const _: () = {
    let mut i = 0;
    while i < FIELD_COUNT {
        assert!(FIELDS[i].field as usize == i);
        assert!(FIELDS[i].bit as usize + FIELDS[i].width as usize <= word::END * 32);
        i += 1;
    }
};

impl Field {
    /// Every field, but the views of several registers (`xreg0`, `xxreg0`).
    pub fn all() -> &'static [FieldInfo] {
        &FIELDS[..OWN]
    }

    /// Every field that can be named: those of [`all`](Self::all) and the views of several registers.
    pub(crate) fn named() -> &'static [FieldInfo] {
        &FIELDS[..NAMED]
    }

    /// The rows of all fields, those that rules cannot name included.
    pub(crate) fn rows() -> &'static [FieldInfo] {
        &FIELDS
    }

    /// The field's row of the table.
    #[inline]
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }

    /// Returns whether `ct(exec(…))` may set the field; of other actions `pop` and learned rules may.
    pub fn is_set_with_connection(self) -> bool {
        matches!(self, Self::CtMark | Self::CtLabel)
    }

    /// The field of a tunnel option by its number; `None` for one that the key has no room for.
    pub fn tun_metadata(number: usize) -> Option<Field> {
        (number < TUN_METADATA_COUNT).then(|| FIELDS[Self::TunMetadata0 as usize + number].field)
    }

    /// The number of the option that a field of a tunnel is.
    pub fn tun_metadata_number(self) -> Option<usize> {
        (self as usize).checked_sub(Self::TunMetadata0 as usize).filter(|number| *number < TUN_METADATA_COUNT)
    }

    /// The field called `name`, by its own name or an alias; views of registers are among them.
    pub fn by_name(name: &str) -> Option<Field> {
        Self::named().iter().find(|f| f.name == name || f.aliases.contains(&name)).map(|f| f.field)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.info().name)
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

    /// Spreads a value and mask of the field (right-aligned) over the words that it lies in: (word, value
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

    /// Checks that the field can hold a value.
    ///
    /// ```
    /// use flowlane::Field;
    ///
    /// assert!(Field::TpDst.info().check(65_535).is_ok());
    /// let error = Field::TpDst.info().check(70_000).unwrap_err();
    /// assert_eq!(error.to_string(), "70000 does not fit into the 16 bits of tp_dst; the largest value is 65535");
    /// ```
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): the value has more bits than the field.
    pub fn check(&self, value: u128) -> Result<(), Error> {
        if value <= self.ones() { Ok(()) } else { Err(self.too_large(value, u32::from(self.width))) }
    }

    /// Makes the error of a value that a field, or a part of it of some bits, cannot hold.
    #[cold]
    pub(super) fn too_large(&self, value: u128, bits: u32) -> Error {
        let largest = u128::MAX >> (128 - bits);
        let part = if bits == u32::from(self.width) { "the" } else { "these" };
        Error::input(match self.form {
            Form::Decimal | Form::Tos | Form::Port | Form::Frag => {
                format!(
                    "{value} does not fit into {part} {bits} bits of {}; the largest value is {largest}",
                    self.name
                )
            }
            _ => format!(
                "{value:#x} does not fit into {part} {bits} bits of {}; the largest value is {largest:#x}",
                self.name
            ),
        })
    }

    /// Checks a value under a mask, of which all ones mean the whole field.
    pub(crate) fn check_masked(&self, value: u128, mask: u128) -> Result<(), Error> {
        self.check(value & mask)?;
        if mask == u128::MAX || mask <= self.ones() {
            return Ok(());
        }
        Err(Error::input(format!(
            "the mask {mask:#x} does not fit into the {} bits of {}; the largest mask is {:#x}",
            self.width,
            self.name,
            self.ones()
        )))
    }

    /// # Panics
    /// Where the field is too narrow for `value`.
    #[track_caller]
    pub(crate) fn assert_fits(&self, value: u128) {
        assert!(value <= self.ones(), "{}", self.too_large(value, u32::from(self.width)));
    }
}

/// The options of tunnels that have a field: `tun_metadata0` and following, of 16 bytes each.
pub const TUN_METADATA_COUNT: usize = 7;

/// In `tun_flags`: GENEVE's O, the packet is for the end of the tunnel itself.
pub const TUN_OAM: u16 = 0x80;

/// `packet_type` of an IP packet or other without an Ethernet header: this, and its EtherType below.
pub const PACKET_TYPE_ETHERTYPE: u32 = 1 << 16;

/// Set in `vlan_tci` where a tag is present, as in Open vSwitch (the place of the CFI/DEI bit).
pub const VLAN_PRESENT: u16 = 0x1000;

/// Set in [`Field::NdOptions`] if the message has a source link-layer address, be it zero.
pub const ND_SLL_PRESENT: u8 = 1;
/// Set in [`Field::NdOptions`] if the message has a target link-layer address, be it zero.
pub const ND_TLL_PRESENT: u8 = 2;

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
/// `tun_type` of a frame that came through GRE (RFC 2784).
pub const TUNNEL_GRE: u8 = 4;
/// `tun_type` of a frame that came through ERSPAN (draft-foschiano-erspan-03).
pub const TUNNEL_ERSPAN: u8 = 5;
