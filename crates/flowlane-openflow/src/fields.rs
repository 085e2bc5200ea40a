//! The table of fields on the wire: headers of NXM and OXM, and the [`Field`] that each is.
//!
//! The numbers are those of OpenFlow 1.3.5 7.2.3.7, 1.5.1 7.2.3.7 and nicira-ext (ovs-fields(7)). A field that is added to the
//! library needs a row here, or several if it has several headers, and a place in [`ORDER`].

use flowlane::{Field, Match};

use crate::version::Version;

/// NXM of OpenFlow 1.0's fields.
const NXM0: (u16, u32) = (0x0000, 0);
/// NXM of Nicira's fields.
const NXM1: (u16, u32) = (0x0001, 0);
/// OXM.
const OXM: (u16, u32) = (0x8000, 0);
/// OXM of registers of 64 bits (OpenFlow 1.5).
const XREG: (u16, u32) = (0x8001, 0);
/// OXM of Ericsson: a class of its own (nicira-ext).
const ERICSSON: (u16, u32) = (0x1000, 0);
/// OXM of the ONF as experimenter.
const ONF: (u16, u32) = (0xffff, 0x4f4e_4600);
/// OXM of NSH as experimenter (nicira-ext).
const NSH: (u16, u32) = (0xffff, 0x005a_d650);
/// OXM of Nicira as experimenter.
const NICIRA: (u16, u32) = (0xffff, 0x2320);

/// The relation of a value on the wire to the field's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// They are equal.
    Plain,
    /// The six bits of the DSCP are the upper ones of an octet.
    Tos,
    /// A port of 16 bits.
    Port16,
    /// A port of 32 bits, whose reserved numbers begin at 0xffffff00.
    Port32,
    /// The VLAN identifier with the bit for the presence of a tag: 13 bits of `vlan_tci`.
    Vid,
    /// The priority of a tag that is present: of `vlan_tci`.
    Pcp,
    /// An option of a tunnel, whose length depends on the switch's map: the number of the option.
    Option(u8),
}

/// The packets that have a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    Nothing,
    Vlan,
    Mpls,
    Arp,
    Ip,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp4,
    Icmp6,
    Solicitation,
    Advertisement,
    NeighbourDiscovery,
    Nsh,
    Connection,
}

/// A header, and the field that it names.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) field: Field,
    pub(crate) shape: Shape,
    pub(crate) class: u16,
    pub(crate) experimenter: u32,
    pub(crate) number: u8,
    /// Bytes of the value.
    pub(crate) bytes: u8,
    pub(crate) needs: Needs,
    /// The version that has the header; Open vSwitch writes a field with the newest header that a connection's version has.
    since: Version,
}

const fn row(
    (class, experimenter): (u16, u32),
    number: u8,
    bytes: u8,
    field: Field,
    shape: Shape,
    needs: Needs,
) -> Row {
    let since = match class {
        0x8000 => Version::OpenFlow13,
        0x8001 => Version::OpenFlow13,
        0xffff => Version::OpenFlow13,
        _ => Version::OpenFlow10,
    };
    Row { field, shape, class, experimenter, number, bytes, needs, since }
}

/// A row for OpenFlow 1.5 and later.
const fn since15(row: Row) -> Row {
    Row { since: Version::OpenFlow15, ..row }
}

/// All headers. Of several of a field, the newest is the last.
#[rustfmt::skip]
pub(crate) static ROWS: &[Row] = {
    use Field as F;
    use Needs::*;
    use Shape::*;
    &[
        row(NXM0, 0, 2, F::InPort, Port16, Nothing),
        row(OXM, 0, 4, F::InPort, Port32, Nothing),
        row(NXM1, 35, 4, F::DpHash, Plain, Nothing),
        row(NXM1, 36, 4, F::RecircId, Plain, Nothing),
        row(NXM1, 37, 4, F::ConjId, Plain, Nothing),
        row(ONF, 43, 4, F::ActsetOutput, Port32, Nothing),
        since15(row(OXM, 43, 4, F::ActsetOutput, Port32, Nothing)),
        since15(row(OXM, 44, 4, F::PacketType, Plain, Nothing)),
        row(OXM, 2, 8, F::Metadata, Plain, Nothing),
        row(NXM1, 16, 8, F::TunId, Plain, Nothing),
        row(OXM, 38, 8, F::TunId, Plain, Nothing),
        row(NXM1, 31, 4, F::TunSrc, Plain, Nothing),
        row(NXM1, 32, 4, F::TunDst, Plain, Nothing),
        row(NXM1, 109, 16, F::TunIpv6Src, Plain, Nothing),
        row(NXM1, 110, 16, F::TunIpv6Dst, Plain, Nothing),
        row(NXM1, 104, 2, F::TunFlags, Plain, Nothing),
        row(NXM1, 38, 2, F::TunGbpId, Plain, Nothing),
        row(NXM1, 39, 1, F::TunGbpFlags, Plain, Nothing),
        row(NICIRA, 15, 1, F::TunGtpuFlags, Plain, Nothing),
        row(NICIRA, 16, 1, F::TunGtpuMsgType, Plain, Nothing),
        row(NICIRA, 11, 4, F::TunErspanIdx, Plain, Nothing),
        row(NICIRA, 12, 1, F::TunErspanVer, Plain, Nothing),
        row(NICIRA, 13, 1, F::TunErspanDir, Plain, Nothing),
        row(NICIRA, 14, 1, F::TunErspanHwid, Plain, Nothing),
        row(NXM1, 40, 16, F::TunMetadata0, Option(0), Nothing),
        row(NXM1, 41, 16, F::TunMetadata1, Option(1), Nothing),
        row(NXM1, 42, 16, F::TunMetadata2, Option(2), Nothing),
        row(NXM1, 43, 16, F::TunMetadata3, Option(3), Nothing),
        row(NXM1, 44, 16, F::TunMetadata4, Option(4), Nothing),
        row(NXM1, 45, 16, F::TunMetadata5, Option(5), Nothing),
        row(NXM1, 46, 16, F::TunMetadata6, Option(6), Nothing),
        row(NXM0, 2, 6, F::EthSrc, Plain, Nothing),
        row(OXM, 4, 6, F::EthSrc, Plain, Nothing),
        row(NXM0, 1, 6, F::EthDst, Plain, Nothing),
        row(OXM, 3, 6, F::EthDst, Plain, Nothing),
        row(NXM0, 3, 2, F::EthType, Plain, Nothing),
        row(OXM, 5, 2, F::EthType, Plain, Nothing),
        row(NXM0, 4, 2, F::VlanTci, Plain, Nothing),
        row(OXM, 6, 2, F::VlanVid, Vid, Nothing),
        row(OXM, 7, 1, F::VlanPcp, Pcp, Vlan),
        row(OXM, 34, 4, F::MplsLabel, Plain, Mpls),
        row(OXM, 35, 1, F::MplsTc, Plain, Mpls),
        row(OXM, 36, 1, F::MplsBos, Plain, Mpls),
        row(NXM1, 30, 1, F::MplsTtl, Plain, Mpls),
        row(NXM0, 7, 4, F::Ipv4Src, Plain, Ipv4),
        row(OXM, 11, 4, F::Ipv4Src, Plain, Ipv4),
        row(NXM0, 8, 4, F::Ipv4Dst, Plain, Ipv4),
        row(OXM, 12, 4, F::Ipv4Dst, Plain, Ipv4),
        row(NXM1, 19, 16, F::Ipv6Src, Plain, Ipv6),
        row(OXM, 26, 16, F::Ipv6Src, Plain, Ipv6),
        row(NXM1, 20, 16, F::Ipv6Dst, Plain, Ipv6),
        row(OXM, 27, 16, F::Ipv6Dst, Plain, Ipv6),
        row(NXM1, 27, 4, F::Ipv6Label, Plain, Ipv6),
        row(OXM, 28, 4, F::Ipv6Label, Plain, Ipv6),
        row(NXM0, 6, 1, F::NwProto, Plain, Ip),
        row(OXM, 10, 1, F::NwProto, Plain, Ip),
        row(NXM0, 5, 1, F::IpDscp, Tos, Ip),
        row(OXM, 8, 1, F::IpDscp, Plain, Ip),
        row(NXM1, 28, 1, F::IpEcn, Plain, Ip),
        row(OXM, 9, 1, F::IpEcn, Plain, Ip),
        row(NXM1, 29, 1, F::NwTtl, Plain, Ip),
        row(NXM1, 26, 1, F::IpFrag, Plain, Ip),
        row(NXM0, 15, 2, F::ArpOp, Plain, Arp),
        row(OXM, 21, 2, F::ArpOp, Plain, Arp),
        row(NXM0, 16, 4, F::ArpSpa, Plain, Arp),
        row(OXM, 22, 4, F::ArpSpa, Plain, Arp),
        row(NXM0, 17, 4, F::ArpTpa, Plain, Arp),
        row(OXM, 23, 4, F::ArpTpa, Plain, Arp),
        row(NXM1, 17, 6, F::ArpSha, Plain, Arp),
        row(OXM, 24, 6, F::ArpSha, Plain, Arp),
        row(NXM1, 18, 6, F::ArpTha, Plain, Arp),
        row(OXM, 25, 6, F::ArpTha, Plain, Arp),
        row(NSH, 1, 1, F::NshFlags, Plain, Nsh),
        row(NSH, 10, 1, F::NshTtl, Plain, Nsh),
        row(NSH, 2, 1, F::NshMdtype, Plain, Nsh),
        row(NSH, 3, 1, F::NshNp, Plain, Nsh),
        row(NSH, 4, 4, F::NshSpi, Plain, Nsh),
        row(NSH, 5, 1, F::NshSi, Plain, Nsh),
        row(NSH, 6, 4, F::NshC1, Plain, Nsh),
        row(NSH, 7, 4, F::NshC2, Plain, Nsh),
        row(NSH, 8, 4, F::NshC3, Plain, Nsh),
        row(NSH, 9, 4, F::NshC4, Plain, Nsh),
        row(NXM0, 9, 2, F::TpSrc, Plain, Tcp),
        row(OXM, 13, 2, F::TpSrc, Plain, Tcp),
        row(NXM0, 10, 2, F::TpDst, Plain, Tcp),
        row(OXM, 14, 2, F::TpDst, Plain, Tcp),
        row(NXM1, 34, 2, F::TcpFlags, Plain, Tcp),
        row(ONF, 42, 2, F::TcpFlags, Plain, Tcp),
        since15(row(OXM, 42, 2, F::TcpFlags, Plain, Tcp)),
        row(NXM0, 11, 2, F::TpSrc, Plain, Udp),
        row(OXM, 15, 2, F::TpSrc, Plain, Udp),
        row(NXM0, 12, 2, F::TpDst, Plain, Udp),
        row(OXM, 16, 2, F::TpDst, Plain, Udp),
        row(OXM, 17, 2, F::TpSrc, Plain, Sctp),
        row(OXM, 18, 2, F::TpDst, Plain, Sctp),
        row(NXM0, 13, 1, F::IcmpType, Plain, Icmp4),
        row(OXM, 19, 1, F::IcmpType, Plain, Icmp4),
        row(NXM0, 14, 1, F::IcmpCode, Plain, Icmp4),
        row(OXM, 20, 1, F::IcmpCode, Plain, Icmp4),
        row(NXM1, 21, 1, F::IcmpType, Plain, Icmp6),
        row(OXM, 29, 1, F::IcmpType, Plain, Icmp6),
        row(NXM1, 22, 1, F::IcmpCode, Plain, Icmp6),
        row(OXM, 30, 1, F::IcmpCode, Plain, Icmp6),
        row(NXM1, 23, 16, F::NdTarget, Plain, NeighbourDiscovery),
        row(OXM, 31, 16, F::NdTarget, Plain, NeighbourDiscovery),
        row(NXM1, 24, 6, F::NdSll, Plain, Solicitation),
        row(OXM, 32, 6, F::NdSll, Plain, Solicitation),
        row(NXM1, 25, 6, F::NdTll, Plain, Advertisement),
        row(OXM, 33, 6, F::NdTll, Plain, Advertisement),
        row(ERICSSON, 1, 4, F::NdReserved, Plain, NeighbourDiscovery),
        row(ERICSSON, 2, 1, F::NdOptionsType, Plain, NeighbourDiscovery),
        row(NXM1, 33, 4, F::PktMark, Plain, Nothing),
        row(NXM1, 0, 4, F::Reg0, Plain, Nothing),
        row(NXM1, 1, 4, F::Reg1, Plain, Nothing),
        row(NXM1, 2, 4, F::Reg2, Plain, Nothing),
        row(NXM1, 3, 4, F::Reg3, Plain, Nothing),
        row(NXM1, 4, 4, F::Reg4, Plain, Nothing),
        row(NXM1, 5, 4, F::Reg5, Plain, Nothing),
        row(NXM1, 6, 4, F::Reg6, Plain, Nothing),
        row(NXM1, 7, 4, F::Reg7, Plain, Nothing),
        row(NXM1, 8, 4, F::Reg8, Plain, Nothing),
        row(NXM1, 9, 4, F::Reg9, Plain, Nothing),
        row(NXM1, 10, 4, F::Reg10, Plain, Nothing),
        row(NXM1, 11, 4, F::Reg11, Plain, Nothing),
        row(NXM1, 12, 4, F::Reg12, Plain, Nothing),
        row(NXM1, 13, 4, F::Reg13, Plain, Nothing),
        row(NXM1, 14, 4, F::Reg14, Plain, Nothing),
        row(NXM1, 15, 4, F::Reg15, Plain, Nothing),
        row(XREG, 0, 8, F::XReg0, Plain, Nothing),
        row(XREG, 1, 8, F::XReg1, Plain, Nothing),
        row(XREG, 2, 8, F::XReg2, Plain, Nothing),
        row(XREG, 3, 8, F::XReg3, Plain, Nothing),
        row(XREG, 4, 8, F::XReg4, Plain, Nothing),
        row(XREG, 5, 8, F::XReg5, Plain, Nothing),
        row(XREG, 6, 8, F::XReg6, Plain, Nothing),
        row(XREG, 7, 8, F::XReg7, Plain, Nothing),
        row(NXM1, 111, 16, F::XxReg0, Plain, Nothing),
        row(NXM1, 112, 16, F::XxReg1, Plain, Nothing),
        row(NXM1, 113, 16, F::XxReg2, Plain, Nothing),
        row(NXM1, 114, 16, F::XxReg3, Plain, Nothing),
        row(NXM1, 105, 4, F::CtState, Plain, Nothing),
        row(NXM1, 106, 2, F::CtZone, Plain, Nothing),
        row(NXM1, 107, 4, F::CtMark, Plain, Nothing),
        row(NXM1, 108, 16, F::CtLabel, Plain, Nothing),
        row(NXM1, 119, 1, F::CtNwProto, Plain, Connection),
        row(NXM1, 120, 4, F::CtIpv4Src, Plain, Connection),
        row(NXM1, 121, 4, F::CtIpv4Dst, Plain, Connection),
        row(NXM1, 122, 16, F::CtIpv6Src, Plain, Connection),
        row(NXM1, 123, 16, F::CtIpv6Dst, Plain, Connection),
        row(NXM1, 124, 2, F::CtTpSrc, Plain, Connection),
        row(NXM1, 125, 2, F::CtTpDst, Plain, Connection),
    ]
};

/// The fields of a match in the order in which Open vSwitch writes them, so that messages are equal to its messages. A field whose
/// prerequisites depend on others comes behind them.
#[rustfmt::skip]
pub(crate) static ORDER: &[Field] = {
    use Field::*;
    &[
        DpHash, RecircId, ConjId, InPort, ActsetOutput, PacketType, EthSrc, EthDst, EthType, VlanTci, MplsTc, MplsBos, MplsTtl, MplsLabel,
        Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, IpFrag, IpDscp, IpEcn, NwTtl, Ipv6Label, NwProto,
        TpSrc, TpDst, TcpFlags, IcmpType, IcmpCode, NdReserved, NdTarget, NdOptionsType, NdSll, NdTll,
        ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
        NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi, NshC1, NshC2, NshC3, NshC4,
        TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags, TunGtpuFlags,
        TunGtpuMsgType, TunErspanIdx, TunErspanVer, TunErspanDir, TunErspanHwid,
        TunMetadata0, TunMetadata1, TunMetadata2, TunMetadata3, TunMetadata4, TunMetadata5, TunMetadata6,
        Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
        PktMark, CtState, CtZone, CtMark, CtLabel, CtIpv4Src, CtIpv4Dst, CtIpv6Src, CtIpv6Dst,
        CtNwProto, CtTpSrc, CtTpDst, Metadata,
    ]
};

/// The registers in OpenFlow 1.5, in pairs.
pub(crate) static PAIRS: &[Field] = &[
    Field::XReg0,
    Field::XReg1,
    Field::XReg2,
    Field::XReg3,
    Field::XReg4,
    Field::XReg5,
    Field::XReg6,
    Field::XReg7,
];

/// Returns the row of a header.
pub(crate) fn find(class: u16, experimenter: u32, number: u8, bytes: usize) -> Option<&'static Row> {
    let is = |row: &&Row| (row.class, row.experimenter, row.number) == (class, experimenter, number);
    let mut rows = ROWS.iter().filter(is);
    let first = rows.next()?;
    // Nothing but the length tells a few of Nicira's headers apart.
    if usize::from(first.bytes) == bytes {
        return Some(first);
    }
    rows.find(|row| usize::from(row.bytes) == bytes).or(Some(first))
}

/// Returns the row by which a version writes a field. `protocol`: of IP, where ports and ICMP's fields have several headers.
pub(crate) fn of_field(field: Field, version: Version, protocol: u8) -> Option<&'static Row> {
    let mut found = None;
    for row in ROWS.iter().filter(|row| row.field == field && row.needs.allows_protocol(protocol)) {
        if found.is_none() || row.since <= version {
            found = Some(row);
        }
    }
    found.or_else(|| ROWS.iter().find(|row| row.field == field))
}

/// Returns whether OpenFlow has a header for a field.
pub fn has_header(field: Field) -> bool {
    ROWS.iter().any(|row| row.field == field)
}

impl Row {
    /// Returns whether the value of the header is a part of `vlan_tci`, where it is matched.
    pub(crate) fn is_tag(&self) -> bool {
        matches!(self.shape, Shape::Vid | Shape::Pcp)
    }

    /// Returns whether the field is in an Ethernet header, or between that and what follows.
    pub(crate) fn is_of_ethernet(&self) -> bool {
        self.is_tag() || matches!(self.field, Field::EthSrc | Field::EthDst | Field::EthType | Field::VlanTci)
    }
}

impl Needs {
    /// Returns the IP protocol of the packets, where several headers name one field.
    pub(crate) fn protocol(self) -> Option<u8> {
        match self {
            Self::Tcp => Some(6),
            Self::Udp => Some(17),
            Self::Sctp => Some(132),
            Self::Icmp4 => Some(1),
            Self::Icmp6 => Some(58),
            _ => None,
        }
    }

    fn allows_protocol(self, protocol: u8) -> bool {
        match self {
            Self::Tcp => protocol != 17 && protocol != 132,
            Self::Udp => protocol == 17,
            Self::Sctp => protocol == 132,
            Self::Icmp4 => protocol != 58,
            Self::Icmp6 => protocol == 58,
            Self::Nothing
            | Self::Vlan
            | Self::Mpls
            | Self::Arp
            | Self::Ip
            | Self::Ipv4
            | Self::Ipv6
            | Self::Solicitation
            | Self::Advertisement
            | Self::NeighbourDiscovery
            | Self::Nsh
            | Self::Connection => true,
        }
    }

    /// Returns whether all packets of a match have the field.
    pub(crate) fn are_met(self, matches: &Match) -> bool {
        let exactly = |field: Field| {
            let (value, mask) = matches.get(field);
            (mask == field.info().ones()).then_some(value)
        };
        // The type of a packet without an Ethernet header is an EtherType, too.
        let packet_type = exactly(Field::PacketType).filter(|kind| kind >> 16 == 1);
        let eth_type = exactly(Field::EthType).or(packet_type.map(|kind| kind & 0xffff));
        let ip = || eth_type == Some(0x0800) || eth_type == Some(0x86dd);
        let transport = |protocol| ip() && exactly(Field::NwProto) == Some(protocol);
        let icmp6 = || eth_type == Some(0x86dd) && exactly(Field::NwProto) == Some(58);
        let discovers = |kind| icmp6() && exactly(Field::IcmpType) == Some(kind);
        match self {
            Self::Nothing => true,
            Self::Vlan => {
                let (tci, mask) = matches.get(Field::VlanTci);
                tci & mask & 0x1000 != 0
            }
            Self::Mpls => eth_type == Some(0x8847) || eth_type == Some(0x8848),
            Self::Arp => eth_type == Some(0x0806) || eth_type == Some(0x8035),
            Self::Ip => ip(),
            Self::Ipv4 => eth_type == Some(0x0800),
            Self::Ipv6 => eth_type == Some(0x86dd),
            Self::Nsh => eth_type == Some(0x894f),
            Self::Tcp => transport(6),
            Self::Udp => transport(17),
            Self::Sctp => transport(132),
            Self::Icmp4 => eth_type == Some(0x0800) && exactly(Field::NwProto) == Some(1),
            Self::Icmp6 => icmp6(),
            Self::Solicitation => discovers(135),
            Self::Advertisement => discovers(136),
            Self::NeighbourDiscovery => discovers(135) || discovers(136),
            Self::Connection => {
                // New, established, related, reply, translated; or tracked and not invalid.
                let (state, mask) = matches.get(Field::CtState);
                state & 0xcf != 0 || state & 0x20 != 0 && mask & 0x10 != 0 && state & 0x10 == 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_is_found_again_and_fits_its_field() {
        for row in ROWS {
            let found = find(row.class, row.experimenter, row.number, row.bytes.into());
            assert!(std::ptr::eq(found.unwrap(), row), "{row:?}");
            if row.shape == Shape::Plain {
                assert!(u32::from(row.bytes) * 8 >= row.field.info().width.into(), "{row:?}");
            }
        }
    }

    #[test]
    fn every_field_of_a_match_has_a_header_in_every_version() {
        for field in ORDER.iter().chain(PAIRS) {
            for version in Version::ALL {
                assert!(*field == Field::VlanTci || of_field(*field, version, 6).is_some(), "{field:?}");
            }
        }
    }
}
