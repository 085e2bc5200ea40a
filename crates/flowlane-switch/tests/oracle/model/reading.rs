//! What a switch reads in a packet, from its bytes alone.
//!
//! How deep it looks is part of what the switch promises (its parser's documentation): two tags, three
//! labels and nothing behind them, up to 16 extension headers, and of a malformed packet the part in
//! front of the fault.

/// The headers of a packet, as far as they were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// The fault, if there is one; nothing behind it has been read.
    pub(crate) fault: Option<&'static str>,
    /// Whether there is an Ethernet header.
    pub(crate) ethernet: bool,
    /// Tag control information of the tags, outermost first, the drop eligible bit included.
    pub(crate) tags: Vec<u16>,
    /// All tags, also those deeper than the switch looks.
    pub(crate) tags_in_all: usize,
    /// The outermost tag's TPID.
    pub(crate) tpid: u16,
    /// Offset of the type or length behind the tags.
    pub(crate) type_at: usize,
    /// Offset of the EtherType: behind SNAP where there is one; none in other 802.3 frames.
    pub(crate) ether_type_at: Option<usize>,
    /// The EtherType; 0x05ff where there is none (OpenFlow 1.0 §3.4).
    pub(crate) ether_type: u16,
    /// Where the label stack entries begin.
    pub(crate) labels: Vec<usize>,
    /// Where the ARP packet begins.
    pub(crate) arp: Option<usize>,
    pub(crate) ip: Option<Ip>,
    pub(crate) transport: Option<Transport>,
    /// A transport header of which a first fragment has only the beginning (RFC 791 §3.2). It is matched, and not changed.
    pub(crate) begun: Option<Transport>,
    pub(crate) neighbour: Neighbour,
}

/// An IP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    pub(crate) at: usize,
    /// Behind it the transport header would begin.
    pub(crate) header_end: usize,
    /// Where the packet ends.
    pub(crate) end: usize,
    pub(crate) protocol: u8,
    pub(crate) fragment: bool,
    /// A fragment other than the first.
    pub(crate) later: bool,
    /// A Routing header has segments left: the destination is not the last one.
    pub(crate) segments_left: bool,
}

/// A transport header that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    UdpLite,
    Sctp,
    Icmp,
    Icmp6,
}

/// The fields of neighbour discovery, by offset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Neighbour {
    pub(crate) reserved: Option<usize>,
    pub(crate) target: Option<usize>,
    /// The type of the first option with an address.
    pub(crate) option: Option<usize>,
    pub(crate) source_address: Option<usize>,
    pub(crate) target_address: Option<usize>,
}

/// Tags that are looked for in a packet that is parsed.
pub(crate) const TAGS_MAX: usize = 2;

/// Extension headers that are followed.
const EXTENSIONS_MAX: usize = 16;

pub(crate) fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |n, &b| n << 8 | u128::from(b))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    number(&bytes[at..at + 2]) as u16
}

impl Reading {
    /// Reads a frame in which no more than `tags_max` tags are looked for.
    pub(crate) fn of(frame: &[u8], tags_max: usize) -> Self {
        let mut reading = Self::default();
        reading.fault = reading.ethernet(frame, tags_max).err();
        reading
    }

    /// IEEE 802.3 §3.2.6, IEEE 802.1Q §9.6, RFC 1042.
    fn ethernet(&mut self, frame: &[u8], tags_max: usize) -> Result<(), &'static str> {
        if frame.len() < 14 {
            return Err("no Ethernet header");
        }
        self.ethernet = true;
        self.type_at = 12;
        let is_tag = |at| matches!(be16(frame, at), 0x8100 | 0x88a8);
        let mut at = 12;
        while frame.len() >= at + 6 && is_tag(at) {
            self.tags_in_all += 1;
            at += 4;
        }
        for i in 0..self.tags_in_all.min(tags_max) {
            self.tags.push(be16(frame, 14 + 4 * i));
            self.type_at += 4;
        }
        self.tpid = if self.tags.is_empty() { 0 } else { be16(frame, 12) };
        let at = self.type_at;
        self.ether_type = be16(frame, at);
        self.ether_type_at = Some(at);
        if self.tags.len() < tags_max && is_tag(at) {
            return Err("a tag is cut off");
        }
        let mut behind = at + 2;
        if self.ether_type < 0x600 {
            (self.ether_type, self.ether_type_at) = (0x05ff, None);
            let header = frame.get(behind..behind + 8);
            if let Some([0xaa, 0xaa, 3, 0, 0, 0, high, low]) = header
                && *high >= 6
            {
                self.ether_type = u16::from_be_bytes([*high, *low]);
                self.ether_type_at = Some(behind + 6);
                behind += 8;
            }
        }
        match self.ether_type {
            0x0800 => self.ipv4(frame, behind),
            0x86dd => self.ipv6(frame, behind),
            0x0806 | 0x8035 => self.arp(frame, behind),
            0x8847 | 0x8848 => self.mpls(frame, behind),
            _ => Ok(()),
        }
    }

    /// RFC 3032 §2.1.
    fn mpls(&mut self, frame: &[u8], mut at: usize) -> Result<(), &'static str> {
        while self.labels.len() < 3 {
            let Some(entry) = frame.get(at..at + 4) else { return Err("a label is cut off") };
            self.labels.push(at);
            at += 4;
            if entry[2] & 1 != 0 {
                break;
            }
        }
        Ok(())
    }

    /// RFC 826, for Ethernet and IPv4.
    fn arp(&mut self, frame: &[u8], at: usize) -> Result<(), &'static str> {
        if frame.len() < at + 28 {
            return Err("ARP is cut off");
        }
        if frame[at..at + 6] != [0, 1, 8, 0, 6, 4] {
            return Err("ARP is not for Ethernet and IPv4");
        }
        self.arp = Some(at);
        Ok(())
    }

    /// RFC 791 §3.1.
    fn ipv4(&mut self, frame: &[u8], at: usize) -> Result<(), &'static str> {
        let Some(header) = frame.get(at..at + 20) else { return Err("the IPv4 header is cut off") };
        let header_len = usize::from(header[0] & 15) * 4;
        let total_len = usize::from(be16(header, 2));
        if header[0] >> 4 != 4 {
            return Err("not IP version 4");
        }
        if header_len < 20 || total_len < header_len {
            return Err("the IPv4 header's length is wrong");
        }
        if at + total_len > frame.len() {
            return Err("the IPv4 packet is cut off");
        }
        let (more, offset) = (header[6] & 0x20 != 0, be16(header, 6) & 0x1fff);
        let ip = Ip {
            v6: false,
            at,
            header_end: at + header_len,
            end: at + total_len,
            protocol: header[9],
            fragment: more || offset != 0,
            later: offset != 0,
            segments_left: false,
        };
        self.ip = Some(ip);
        self.transport(frame, ip)
    }

    /// RFC 8200 §3.
    fn ipv6(&mut self, frame: &[u8], at: usize) -> Result<(), &'static str> {
        let Some(header) = frame.get(at..at + 40) else { return Err("the IPv6 header is cut off") };
        if header[0] >> 4 != 6 {
            return Err("not IP version 6");
        }
        let mut end = at + 40 + usize::from(be16(header, 4));
        if end == at + 40 && header[6] == 0 {
            end = frame.len(); // RFC 2675 §3, whether or not the option is there.
        }
        if end > frame.len() {
            return Err("the IPv6 packet is cut off");
        }
        let mut ip = Ip {
            v6: true,
            at,
            header_end: at + 40,
            end,
            protocol: header[6],
            fragment: false,
            later: false,
            segments_left: false,
        };
        let chain = extensions(frame, &mut ip);
        self.ip = Some(ip);
        chain?;
        self.transport(frame, ip)
    }

    fn transport(&mut self, frame: &[u8], ip: Ip) -> Result<(), &'static str> {
        if ip.later {
            return Ok(());
        }
        let segment = &frame[ip.header_end..ip.end];
        let whole = !ip.fragment;
        let least = match (ip.protocol, ip.v6) {
            (6, _) => Some((Transport::Tcp, 20)),
            (17, _) => Some((Transport::Udp, 8)),
            (132, _) => Some((Transport::Sctp, 12)),
            (1, false) => Some((Transport::Icmp, 8)),
            (58, true) => Some((Transport::Icmp6, 4)),
            _ => None,
        };
        if let Some((transport, least)) = least
            && ip.fragment
            && segment.len() < least
        {
            self.begun = Some(transport);
            return Ok(());
        }
        match (ip.protocol, ip.v6) {
            (6, _) => {
                let header_len = segment.get(12).map_or(0, |b| usize::from(b >> 4) * 4);
                if segment.len() < 20 || header_len < 20 || whole && header_len > segment.len() {
                    return Err("TCP's header is cut off or its offset wrong");
                }
                self.transport = Some(Transport::Tcp);
            }
            (17, _) => {
                if segment.len() < 8 {
                    return Err("UDP's header is cut off");
                }
                let len = usize::from(be16(segment, 4));
                // RFC 768; 0 is for jumbograms (RFC 2675 §4).
                if len != 0 && (len < 8 || whole && len > segment.len()) {
                    return Err("UDP's length is wrong");
                }
                self.transport = Some(Transport::Udp);
            }
            // Its ports are not read: one that is cut off is no fault.
            (136, _) => self.transport = (segment.len() >= 8).then_some(Transport::UdpLite),
            (132, _) if segment.len() < 12 => return Err("SCTP's header is cut off"),
            (132, _) => self.transport = Some(Transport::Sctp),
            (1, false) if segment.len() < 8 => return Err("ICMP's header is cut off"),
            (1, false) => self.transport = Some(Transport::Icmp),
            (58, true) if segment.len() < 4 => return Err("ICMPv6's header is cut off"),
            (58, true) => {
                self.transport = Some(Transport::Icmp6);
                if matches!(segment, [135 | 136, 0, ..]) && whole {
                    return self.neighbour(segment, ip.header_end);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// RFC 4861 §4.3, §4.4, §4.6: of several options of one type the first counts.
    fn neighbour(&mut self, message: &[u8], start: usize) -> Result<(), &'static str> {
        self.neighbour.reserved = (message.len() >= 8).then_some(start + 4);
        if message.len() < 24 {
            return Err("neighbour discovery is cut off");
        }
        self.neighbour.target = Some(start + 8);
        let mut at = 24;
        while at + 2 <= message.len() {
            let (kind, len) = (message[at], usize::from(message[at + 1]) * 8);
            if len == 0 || at + len > message.len() {
                return Err("an option's length is wrong");
            }
            match kind {
                1 => _ = self.neighbour.source_address.get_or_insert(start + at + 2),
                2 => _ = self.neighbour.target_address.get_or_insert(start + at + 2),
                _ => {}
            }
            if kind == 1 || kind == 2 {
                self.neighbour.option.get_or_insert(start + at);
            }
            at += len;
        }
        Ok(())
    }
}

/// RFC 8200 §4; RFC 4302 §2.2 for the authentication header; RFC 6275 §6.1 for mobility.
fn extensions(frame: &[u8], ip: &mut Ip) -> Result<(), &'static str> {
    let mut count = 0;
    while matches!(ip.protocol, 0 | 43 | 44 | 51 | 60 | 135) {
        if count == EXTENSIONS_MAX {
            return Err("too many extension headers");
        }
        count += 1;
        let rest = &frame[ip.header_end..ip.end];
        if rest.len() < 8 {
            return Err("an extension header is cut off");
        }
        let len = match ip.protocol {
            44 => 8,
            51 => (usize::from(rest[1]) + 2) * 4,
            _ => (usize::from(rest[1]) + 1) * 8,
        };
        let (offset, more) = (be16(rest, 2) >> 3, rest[3] & 1 != 0);
        if ip.protocol == 44 && (offset != 0 || more) {
            (ip.fragment, ip.later) = (true, offset != 0);
        }
        if len > rest.len() {
            return Err("an extension header is cut off");
        }
        ip.segments_left |= ip.protocol == 43 && rest[3] != 0;
        ip.header_end += len;
        if ip.later {
            // ovs-fields(7): what follows is the middle of something, so the protocol is the Fragment header's.
            ip.protocol = 44;
            return Ok(());
        }
        ip.protocol = rest[0];
    }
    Ok(())
}
