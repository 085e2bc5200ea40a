//! The match of OpenFlow 1.0 (5.2.3): 40 bytes with a bit for each field that is left out.

use flowlane::{Field, FlowMask, Match};

use crate::error::ErrorCode;
use crate::wire::{Failed, Reader, Writer};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;

/// The VLAN of packets without a tag.
const VLAN_NONE: u16 = 0xffff;

/// Bits for the fields that are left out.
mod wildcard {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_SRC: u32 = 1 << 2;
    pub(super) const DL_DST: u32 = 1 << 3;
    pub(super) const DL_TYPE: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    /// Six bits: how many of the address are left out, 32 or more for all.
    pub(super) const NW_SRC_SHIFT: u32 = 8;
    pub(super) const NW_DST_SHIFT: u32 = 14;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 20;
    pub(super) const NW_TOS: u32 = 1 << 21;
    pub(super) const ALL: u32 = (1 << 22) - 1;
}

/// The structure.
struct Fields {
    wildcards: u32,
    in_port: u16,
    dl_src: u128,
    dl_dst: u128,
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: u32,
    nw_dst: u32,
    tp_src: u16,
    tp_dst: u16,
}

fn address(bytes: [u8; 6]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

impl Fields {
    fn read(r: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (wildcards, in_port) = (r.u32()? & wildcard::ALL, r.u16()?);
        let (dl_src, dl_dst) = (address(r.array()?), address(r.array()?));
        let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        let (dl_type, nw_tos, nw_proto) = (r.u16()?, r.u8()?, r.u8()?);
        r.skip(2)?;
        let (nw_src, nw_dst, tp_src, tp_dst) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        Ok(Self {
            wildcards,
            in_port,
            dl_src,
            dl_dst,
            dl_vlan,
            dl_vlan_pcp,
            dl_type,
            nw_tos,
            nw_proto,
            nw_src,
            nw_dst,
            tp_src,
            tp_dst,
        })
    }

    fn has(&self, bit: u32) -> bool {
        self.wildcards & bit == 0
    }

    /// The mask of an address, from its count of bits that are left out.
    fn prefix(&self, shift: u32) -> u32 {
        let left_out = self.wildcards >> shift & 0x3f;
        u32::MAX.checked_shl(left_out).unwrap_or(0)
    }
}

/// Reads a match, and returns whether it leaves nothing out: the priority is then the largest (OpenFlow 1.0 3.4).
///
/// Fields that depend on others which are left out are ignored, as the specification says.
pub(crate) fn read(r: &mut Reader<'_>) -> Result<(Match, bool), ErrorCode> {
    let fields = Fields::read(r)?;
    let mut matches = Match::any();
    let mut set = |field, has, value: u128| {
        if has {
            matches.set(field, value);
        }
    };
    set(Field::InPort, fields.has(wildcard::IN_PORT), fields.in_port.into());
    set(Field::EthSrc, fields.has(wildcard::DL_SRC), fields.dl_src);
    set(Field::EthDst, fields.has(wildcard::DL_DST), fields.dl_dst);
    set(Field::EthType, fields.has(wildcard::DL_TYPE), fields.dl_type.into());
    read_tag(&fields, &mut matches);
    if fields.has(wildcard::DL_TYPE) {
        read_network(&fields, &mut matches);
    }
    Ok((matches, fields.wildcards == 0))
}

fn read_tag(fields: &Fields, matches: &mut Match) {
    let (has_vid, has_pcp) = (fields.has(wildcard::DL_VLAN), fields.has(wildcard::DL_VLAN_PCP));
    if has_vid && fields.dl_vlan == VLAN_NONE {
        matches.set(Field::VlanTci, 0);
        return;
    }
    let vid = if has_vid { (u128::from(fields.dl_vlan & 0xfff), 0xfff) } else { (0, 0) };
    let pcp = if has_pcp { (u128::from(fields.dl_vlan_pcp & 7) << 13, 0xe000) } else { (0, 0) };
    if has_vid || has_pcp {
        matches.set_masked(Field::VlanTci, vid.0 | pcp.0 | 0x1000, vid.1 | pcp.1 | 0x1000);
    }
}

fn read_network(fields: &Fields, matches: &mut Match) {
    let addresses = match fields.dl_type {
        IPV4 => Some((Field::Ipv4Src, Field::Ipv4Dst)),
        ARP | RARP => Some((Field::ArpSpa, Field::ArpTpa)),
        // Open vSwitch takes the fields that IPv6 has, too.
        IPV6 => None,
        _ => return,
    };
    if let Some((source, destination)) = addresses {
        for (address, shift, field) in [
            (fields.nw_src, wildcard::NW_SRC_SHIFT, source),
            (fields.nw_dst, wildcard::NW_DST_SHIFT, destination),
        ] {
            let mask = fields.prefix(shift);
            matches.set_masked(field, (address & mask).into(), mask.into());
        }
    }
    let has_protocol = fields.has(wildcard::NW_PROTO);
    if matches!(fields.dl_type, ARP | RARP) {
        if has_protocol {
            matches.set(Field::ArpOp, fields.nw_proto.into());
        }
        return;
    }
    if fields.has(wildcard::NW_TOS) {
        matches.set(Field::IpDscp, u128::from(fields.nw_tos >> 2));
    }
    if !has_protocol {
        return;
    }
    matches.set(Field::NwProto, fields.nw_proto.into());
    let (first, second, max) = match fields.nw_proto {
        6 | 17 | 132 => (Field::TpSrc, Field::TpDst, u16::MAX),
        protocol if protocol == icmp(fields.dl_type) => (Field::IcmpType, Field::IcmpCode, 0xff),
        _ => return,
    };
    for (field, bit, value) in
        [(first, wildcard::TP_SRC, fields.tp_src), (second, wildcard::TP_DST, fields.tp_dst)]
    {
        if fields.has(bit) {
            matches.set(field, (value & max).into());
        }
    }
}

/// The number of ICMP behind an EtherType of IP.
fn icmp(dl_type: u16) -> u8 {
    if dl_type == IPV6 { 58 } else { 1 }
}

/// A match whose conditions are taken out, one after the other.
struct Taking<'a> {
    matches: &'a Match,
    left: FlowMask,
    wildcards: u32,
}

impl Taking<'_> {
    /// Takes a field that is compared whole; otherwise sets its bit.
    fn take(&mut self, field: Field, bit: u32) -> u128 {
        let (value, mask) = self.matches.get(field);
        if mask == field.info().ones() {
            self.left.set(field, 0);
            return value;
        }
        self.wildcards |= bit;
        0
    }

    fn prefix(&mut self, field: Field, shift: u32) -> Result<u32, Failed> {
        let (value, mask) = self.matches.get(field);
        let mask = mask as u32;
        self.wildcards |= (32 - mask.leading_ones()) << shift;
        self.left.set(field, 0);
        if mask.count_ones() == mask.leading_ones() { Ok(value as u32) } else { Err(Failed) }
    }

    /// Service, protocol and ports.
    fn network(&mut self, dl_type: u16) -> [u128; 4] {
        let protocol = self.matches.get(Field::NwProto);
        if matches!(dl_type, IPV4 | IPV6) {
            let is_icmp = protocol == (icmp(dl_type).into(), 0xff);
            let (first, second) =
                if is_icmp { (Field::IcmpType, Field::IcmpCode) } else { (Field::TpSrc, Field::TpDst) };
            let tos = self.take(Field::IpDscp, wildcard::NW_TOS) << 2;
            let protocol = self.take(Field::NwProto, wildcard::NW_PROTO);
            return [tos, protocol, self.take(first, wildcard::TP_SRC), self.take(second, wildcard::TP_DST)];
        }
        self.wildcards |= wildcard::NW_TOS | wildcard::TP_SRC | wildcard::TP_DST;
        let operation = match (matches!(dl_type, ARP | RARP), self.matches.get(Field::ArpOp)) {
            (true, (0..=0xff, 0xffff)) => self.take(Field::ArpOp, wildcard::NW_PROTO),
            _ => {
                self.wildcards |= wildcard::NW_PROTO;
                0
            }
        };
        [0, operation, 0, 0]
    }
}

/// Writes a match; fails if the structure cannot express it.
pub(crate) fn put(w: &mut Writer, matches: &Match) -> Result<(), Failed> {
    let mut taking = Taking { matches, left: matches.word_mask(), wildcards: 0 };
    let in_port = taking.take(Field::InPort, wildcard::IN_PORT) as u16;
    let dl_src = taking.take(Field::EthSrc, wildcard::DL_SRC);
    let dl_dst = taking.take(Field::EthDst, wildcard::DL_DST);
    let dl_type = taking.take(Field::EthType, wildcard::DL_TYPE) as u16;
    let [nw_tos, nw_proto, tp_src, tp_dst] = taking.network(dl_type);
    let (dl_vlan, dl_vlan_pcp) = put_tag(matches, &mut taking.wildcards)?;
    taking.left.set(Field::VlanTci, 0);
    let (nw_src, nw_dst) = match dl_type {
        IPV4 => (
            taking.prefix(Field::Ipv4Src, wildcard::NW_SRC_SHIFT)?,
            taking.prefix(Field::Ipv4Dst, wildcard::NW_DST_SHIFT)?,
        ),
        ARP | RARP => (
            taking.prefix(Field::ArpSpa, wildcard::NW_SRC_SHIFT)?,
            taking.prefix(Field::ArpTpa, wildcard::NW_DST_SHIFT)?,
        ),
        _ => {
            taking.wildcards |= 32 << wildcard::NW_SRC_SHIFT | 32 << wildcard::NW_DST_SHIFT;
            (0, 0)
        }
    };
    // Ports say nothing without a protocol that has them.
    let has_ports = matches!(nw_proto, 6 | 17 | 132)
        || nw_proto == u128::from(icmp(dl_type))
        || taking.wildcards & wildcard::TP_DST != 0 && taking.wildcards & wildcard::TP_SRC != 0;
    let has_ranges = matches.tp_src_range().is_some() || matches.tp_dst_range().is_some();
    if has_ranges || !has_ports || taking.left.words().iter().any(|word| *word != 0) {
        return Err(Failed);
    }
    let wildcards = taking.wildcards;
    w.u32(wildcards).u16(in_port).put(&dl_src.to_be_bytes()[10..]).put(&dl_dst.to_be_bytes()[10..]);
    w.u16(dl_vlan).u8(dl_vlan_pcp).zeros(1).u16(dl_type).u8(nw_tos as u8).u8(nw_proto as u8).zeros(2);
    w.u32(nw_src).u32(nw_dst).u16(tp_src as u16).u16(tp_dst as u16);
    Ok(())
}

/// The VLAN and the priority.
fn put_tag(matches: &Match, wildcards: &mut u32) -> Result<(u16, u8), Failed> {
    let (value, mask) = matches.get(Field::VlanTci);
    match mask {
        0 => {
            *wildcards |= wildcard::DL_VLAN | wildcard::DL_VLAN_PCP;
            Ok((0, 0))
        }
        _ if mask & 0x1000 != 0 && value & 0x1000 == 0 => {
            *wildcards |= if mask == 0xffff { 0 } else { wildcard::DL_VLAN_PCP };
            Ok((VLAN_NONE, 0))
        }
        _ => {
            let (vid, pcp) = (mask & 0xfff, mask & 0xe000);
            let is_whole = (vid == 0 || vid == 0xfff) && (pcp == 0 || pcp == 0xe000) && vid | pcp != 0;
            if !is_whole || mask & 0x1000 == 0 {
                return Err(Failed);
            }
            *wildcards |= if vid == 0 { wildcard::DL_VLAN } else { 0 };
            *wildcards |= if pcp == 0 { wildcard::DL_VLAN_PCP } else { 0 };
            Ok(((value & 0xfff) as u16, (value >> 13) as u8))
        }
    }
}
