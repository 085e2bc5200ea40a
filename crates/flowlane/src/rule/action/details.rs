//! Arguments of actions that have several.

use std::net::IpAddr;

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Action, PortNo};
use crate::packet::{Field, FieldRef};

/// The action by which a field is set. The packet is the same; Open vSwitch prints rules as they were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SetForm {
    /// `set_field:VALUE->FIELD`.
    #[default]
    SetField,
    /// `load:VALUE->FIELD[..]`.
    Load,
    /// The field's own action: `mod_nw_src`, `set_mpls_ttl`, `set_tunnel`, `write_metadata`, …
    Own,
    /// `set_tunnel64`.
    SetTunnel64,
}

impl SetForm {
    /// The action of a field's own, by which OpenFlow 1.0 and Open vSwitch set it; `None` if it has none.
    pub fn own_action(self, field: Field) -> Option<&'static str> {
        Some(match (field, self) {
            (Field::TunId, Self::SetTunnel64) => "set_tunnel64",
            (_, Self::SetField | Self::Load | Self::SetTunnel64) => return None,
            (Field::EthSrc, _) => "mod_dl_src",
            (Field::EthDst, _) => "mod_dl_dst",
            (Field::VlanVid, _) => "mod_vlan_vid",
            (Field::VlanPcp, _) => "mod_vlan_pcp",
            (Field::Ipv4Src, _) => "mod_nw_src",
            (Field::Ipv4Dst, _) => "mod_nw_dst",
            (Field::IpDscp, _) => "mod_nw_tos",
            (Field::IpEcn, _) => "mod_nw_ecn",
            (Field::NwTtl, _) => "mod_nw_ttl",
            (Field::TpSrc, _) => "mod_tp_src",
            (Field::TpDst, _) => "mod_tp_dst",
            (Field::MplsLabel, _) => "set_mpls_label",
            (Field::MplsTc, _) => "set_mpls_tc",
            (Field::MplsTtl, _) => "set_mpls_ttl",
            (Field::TunId, _) => "set_tunnel",
            (Field::Metadata, _) => "write_metadata",
            _ => return None,
        })
    }
}

/// Arguments of `controller`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    /// Bytes kept of each packet; 65535 for all.
    pub max_len: u16,
    /// `ofp_packet_in_reason` of the message; 1 (action) by default.
    pub reason: u8,
    /// Only controllers with this identifier get the message.
    pub id: u16,
    /// Bytes that the message has for the controller.
    pub userdata: Vec<u8>,
    /// The packet waits for the controller to resume it.
    pub pause: bool,
    /// Messages beyond this meter's rate are dropped.
    pub meter: Option<u32>,
}

impl Default for Controller {
    fn default() -> Self {
        Self { max_len: u16::MAX, reason: 1, id: 0, userdata: Vec::new(), pause: false, meter: None }
    }
}

/// The direction of a packet that is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SampleDirection {
    /// Not given.
    #[default]
    Default,
    /// It enters.
    Ingress,
    /// It leaves.
    Egress,
}

/// Arguments of `sample`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sample {
    /// 0 (never) to 65535 (always), as in Open vSwitch.
    pub probability: u16,
    /// The set of collectors that get the samples.
    pub collector_set_id: u32,
    /// IPFIX's observation domain.
    pub observation_domain_id: u32,
    /// IPFIX's observation point.
    pub observation_point_id: u32,
    /// The port that the sample is said to be of.
    pub port: Option<PortNo>,
    /// The direction.
    pub direction: SampleDirection,
}

/// The headers that a hash of a packet covers (`enum nx_hash_fields`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PacketHash {
    /// The source Ethernet address.
    EthSrc,
    /// L2 to L4, equal for both directions.
    #[strum(serialize = "symmetric_l4")]
    SymmetricL4,
    /// L3 and, of TCP and SCTP, L4, equal for both directions.
    #[strum(serialize = "symmetric_l3l4")]
    SymmetricL3L4,
    /// L3 and L4, with UDP.
    #[strum(serialize = "symmetric_l3l4+udp")]
    SymmetricL3L4Udp,
    /// The source IP address.
    NwSrc,
    /// The destination IP address.
    NwDst,
    /// Both IP addresses.
    #[strum(serialize = "symmetric_l3")]
    SymmetricL3,
}

/// How `multipath` chooses a link (`enum nx_mp_algorithm`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MultipathAlgorithm {
    /// The hash modulo the number of links.
    ModuloN,
    /// The hash divided by the size of a link's share.
    HashThreshold,
    /// The link whose own hash is the highest.
    Hrw,
    /// Hashes until one is a link's number.
    IterHash,
}

/// Arguments of `multipath`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Multipath {
    /// The headers that the hash covers.
    pub hash: PacketHash,
    /// The hash's parameter.
    pub basis: u16,
    /// How a link is chosen.
    pub algorithm: MultipathAlgorithm,
    /// The number of links, 1 to 65,536.
    pub links: u32,
    /// The algorithm's parameter.
    pub argument: u32,
    /// Where the link's number goes.
    pub to: FieldRef,
}

/// The kind of a bundle's members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemberChoice {
    /// The first that is live.
    ActiveBackup,
    /// The live one whose own hash is the highest.
    Hrw,
}

/// Arguments of `bundle` and `bundle_load`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bundle {
    /// The headers that the hash covers.
    pub hash: PacketHash,
    /// The hash's parameter.
    pub basis: u16,
    /// How a member is chosen.
    pub algorithm: MemberChoice,
    /// The ports.
    pub members: Vec<PortNo>,
    /// Where the port's number goes; `None`: the packet is sent there.
    pub to: Option<FieldRef>,
}

/// A value of a learned rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// That of the packet's field.
    Field(FieldRef),
    /// A constant, right-aligned.
    Value(u128),
}

/// A part of a learned rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSpec {
    /// It matches a field.
    Match {
        /// The field.
        to: FieldRef,
        /// Its value.
        from: LearnSource,
    },
    /// It sets a field.
    Load {
        /// The field.
        to: FieldRef,
        /// Its value.
        from: LearnSource,
    },
    /// It sends packets to the port that this field of the packet names.
    Output(FieldRef),
}

/// Arguments of `learn`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Seconds without a packet after which the rule goes; 0: never.
    pub idle_timeout_s: u16,
    /// Seconds after which the rule goes; 0: never.
    pub hard_timeout_s: u16,
    /// Its priority.
    pub priority: u16,
    /// Its table.
    pub table: u8,
    /// Its cookie.
    pub cookie: u64,
    /// Its `fin_timeout`, idle.
    pub fin_idle_timeout_s: u16,
    /// Its `fin_timeout`, hard.
    pub fin_hard_timeout_s: u16,
    /// Controllers get a message when it goes.
    pub send_flow_removed: bool,
    /// Learned rules go with the last rule that has this action.
    pub delete_learned: bool,
    /// The most rules of its table and cookie that are learned; 0: no limit.
    pub limit: u32,
    /// The bit that says whether a rule was learned in spite of the limit.
    pub result: Option<FieldRef>,
    /// The parts of the rule, in order.
    pub specs: Vec<LearnSpec>,
}

/// A header that `encap` adds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EncapsulateHeader {
    /// Ethernet, with addresses of zeros.
    Ethernet,
    /// A label stack entry of MPLS.
    Mpls,
    /// One of MPLS with a multicast EtherType.
    MplsMulticast,
    /// NSH (RFC 8300).
    Nsh {
        /// The type of the metadata, 1 or 2; 0 where it is not given, which is as 1.
        metadata_type: u8,
        /// TLVs of type 2: class, type, value.
        tlvs: Vec<(u16, u8, Vec<u8>)>,
    },
}

/// The zone of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// A number.
    Number(u16),
    /// That of a field of 16 bits.
    Field(FieldRef),
}

/// Arguments of `ct`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionTracking {
    /// The connection is kept.
    pub commit: bool,
    /// The packet's direction is made the original one.
    pub force: bool,
    /// The zone.
    pub zone: Zone,
    /// The table in which a copy of the packet goes on.
    pub table: Option<u8>,
    /// The port of the application's protocol (21: FTP, 69: TFTP); 0: none.
    pub alg: u16,
    /// `nat` and `exec(…)`: translation, and fields of the connection that are set.
    pub exec: Vec<Action>,
}

/// Addresses and ports that `nat` translates to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRange {
    /// The source is translated; otherwise the destination.
    pub is_source: bool,
    /// The first and the last address.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The first and the last port.
    pub ports: Option<(u16, u16)>,
}

/// Arguments of `nat`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// Addresses and ports for new connections; `None`: those of the packet's connection.
    pub range: Option<NatRange>,
    /// An address keeps its translation.
    pub persistent: bool,
    /// Ports are chosen by a hash.
    pub hash: bool,
    /// Ports are chosen at random.
    pub random: bool,
}

impl ConnectionTracking {
    /// Returns the translation.
    pub fn nat(&self) -> Option<&Nat> {
        self.exec.iter().find_map(|action| match action {
            Action::Nat(nat) => Some(&**nat),
            _ => None,
        })
    }
}

impl PacketHash {
    /// The fields that the hash covers.
    pub fn fields(self) -> &'static [Field] {
        use Field::{
            EthDst, EthSrc, EthType, Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Src, NwProto, TpDst, TpSrc, VlanTci,
        };
        const L3: [Field; 4] = [Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst];
        const L3L4: [Field; 7] = [NwProto, Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, TpSrc, TpDst];
        const L2L4: [Field; 11] =
            [EthSrc, EthDst, VlanTci, EthType, NwProto, Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, TpSrc, TpDst];
        match self {
            Self::EthSrc => &[EthSrc],
            Self::SymmetricL4 => &L2L4,
            Self::SymmetricL3L4 | Self::SymmetricL3L4Udp => &L3L4,
            Self::NwSrc => &[Ipv4Src, Ipv6Src],
            Self::NwDst => &[Ipv4Dst, Ipv6Dst],
            Self::SymmetricL3 => &L3,
        }
    }
}
