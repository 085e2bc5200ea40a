//! The VLANs of ports, for the `normal` action: those of Open vSwitch's Port table (vswitchd.conf.db(5), "VLAN Configuration";
//! IEEE 802.1Q §6.9).
//!
//! A frame is received *in* a VLAN, which its port and its header determine ([`PortVlan::receive`]), is learned and looked up in
//! that VLAN, and leaves through ports that carry it ([`PortVlan::send`]):
//!
//! | mode | received | sent |
//! |---|---|---|
//! | `access` | without header: in VLAN `tag`; with a VID: refused | without header |
//! | `trunk` | in the VLAN of its header, or in VLAN 0, if the port carries it | with header, unless in VLAN 0 |
//! | `native-tagged` | as `trunk`, but without header in VLAN `tag` | as `trunk` |
//! | `native-untagged` | as `native-tagged` | as `trunk`, but without header in VLAN `tag` |
//! | `dot1q-tunnel` | in VLAN `tag`, its own header being payload | without the header of VLAN `tag` |
//!
//! A header with VID 0 (a priority tag) counts as no header. Such a header is sent only with a priority: Open vSwitch's
//! `priority-tags=never`, as version 3.1 implements it. A port without settings is a trunk of all VLANs.
//!
//! A port may be *protected*, as in Open vSwitch: it sends no frames that another protected port has received.
//!
//! Everything here is about bytes: nothing knows ports or addresses.

use std::fmt;

use flowlane::packet::parse::ether_type;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest VLAN identifier (VID).
pub const VID_MAX: u16 = 4095;

/// The length of two MAC addresses, behind which headers of VLANs begin.
const MACS: usize = 12;

/// The VID of a header's tag control information; the rest of it are the priority (3 bits) and the drop eligible bit.
const VID: u16 = 0x0fff;

/// The priority of a header.
const PRIORITY: u16 = 0xe000;

/// The treatment of VLANs by a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VlanMode {
    /// The port is in the VLAN `tag`, and its frames have no header.
    Access,
    /// The port carries the VLANs of `trunks`, or all; frames have a header, unless they are in VLAN 0.
    Trunk,
    /// A trunk where received frames without header are in the VLAN `tag`.
    NativeTagged,
    /// A trunk where frames of the VLAN `tag` are received and sent without header.
    NativeUntagged,
    /// The port is in the service VLAN `tag`; customers' frames keep their own headers.
    #[serde(rename = "dot1q-tunnel")]
    Dot1qTunnel,
}

impl VlanMode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Access, Self::Trunk, Self::NativeTagged, Self::NativeUntagged, Self::Dot1qTunnel];

    /// Returns the name, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Trunk => "trunk",
            Self::NativeTagged => "native-tagged",
            Self::NativeUntagged => "native-untagged",
            Self::Dot1qTunnel => "dot1q-tunnel",
        }
    }
}

/// A set of VLANs: a bit for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vlans(Box<[u64; 64]>);

impl Vlans {
    /// The VLANs with these identifiers.
    pub fn of(vids: impl IntoIterator<Item = u16>) -> Self {
        let mut set = Self(Box::new([0; 64]));
        vids.into_iter().for_each(|vid| set.set(vid, true));
        set
    }

    fn set(&mut self, vid: u16, is_in: bool) {
        let (word, bit) = (usize::from(vid & VID) / 64, 1 << (vid % 64));
        self.0[word] = if is_in { self.0[word] | bit } else { self.0[word] & !bit };
    }

    /// Returns whether a VLAN is among them.
    pub fn has(&self, vid: u16) -> bool {
        self.0[usize::from(vid & VID) / 64] >> (vid % 64) & 1 == 1
    }
}

/// Lists ranges of VLANs: `10,20-29`.
impl fmt::Display for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vid = 0;
        let mut separator = "";
        while vid <= VID_MAX {
            let end = (vid..=VID_MAX).find(|&end| !self.has(end)).unwrap_or(VID_MAX + 1);
            match end - vid {
                0 => {}
                1 => write!(f, "{separator}{vid}")?,
                _ => write!(f, "{separator}{vid}-{}", end - 1)?,
            }
            separator = if end > vid { "," } else { separator };
            vid = end + 1;
        }
        Ok(())
    }
}

/// The VLAN settings of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortVlan {
    mode: VlanMode,
    /// The VLAN of frames without header; of a trunk, 0.
    tag: u16,
    /// The VLANs of a trunk, the customer VLANs of a tunnel; `None`: all.
    carried: Option<Vlans>,
    /// Frames of other such ports are not sent here.
    is_protected: bool,
}

/// A trunk of all VLANs: the settings of a port that has none.
pub static TRUNK: PortVlan = PortVlan { mode: VlanMode::Trunk, tag: 0, carried: None, is_protected: false };

/// A header of a VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    tpid: u16,
    tci: u16,
}

impl Header {
    /// The header at a place of a frame, if there is one.
    #[inline]
    fn at(frame: &[u8], at: usize) -> Option<Self> {
        let bytes = frame.get(at..)?.first_chunk::<4>()?;
        let [tpid, tci] = [[bytes[0], bytes[1]], [bytes[2], bytes[3]]].map(u16::from_be_bytes);
        matches!(tpid, ether_type::VLAN | ether_type::QINQ).then_some(Self { tpid, tci })
    }

    fn vid(self) -> u16 {
        self.tci & VID
    }

    fn with_vid(self, vid: u16) -> Self {
        Self { tci: self.tci & !VID | vid, ..self }
    }

    /// Returns whether it has a VID or a priority.
    fn says_something(self) -> bool {
        self.tci & (VID | PRIORITY) != 0
    }
}

/// A received frame, as far as VLANs are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InVlan {
    /// Its VLAN.
    pub vid: u16,
    /// The VLAN of the header within that of its VLAN; 0 without one.
    inner_vid: u16,
    /// Whether headers within that of its VLAN have a VID, or are more than two: the frame is not for access ports.
    is_tagged_within: bool,
    /// Its outermost header, as received.
    received: Option<Header>,
    /// The number of its headers, up to two.
    headers: u8,
    /// The number of those that are not payload of its VLAN.
    own: u8,
    /// The header of its VLAN on a trunk.
    header: Option<Header>,
    /// Its port is a protected one.
    is_protected: bool,
}

/// The change of a frame's headers before it is sent; by default, none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retag {
    /// The number of headers removed.
    strip: u8,
    /// The header added then.
    push: Option<Header>,
}

impl Retag {
    /// Returns the length of a frame of `len` bytes when it is sent.
    pub fn sent_len(self, len: usize) -> usize {
        len + 4 * usize::from(self.push.is_some()) - 4 * usize::from(self.strip)
    }

    /// Writes the frame as it is sent into `out`, which has [that length](Self::sent_len).
    pub fn write(self, frame: &[u8], out: &mut [u8]) {
        let rest = MACS + 4 * usize::from(self.strip);
        let header =
            self.push.map(|Header { tpid, tci }| (u32::from(tpid) << 16 | u32::from(tci)).to_be_bytes());
        let header = header.as_ref().map_or(&[][..], |header| header);
        out[..MACS].copy_from_slice(&frame[..MACS]);
        out[MACS..MACS + header.len()].copy_from_slice(header);
        out[MACS + header.len()..].copy_from_slice(&frame[rest..]);
    }
}

/// A received frame that its port refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The VLAN of its header; 0 without one.
    pub vid: u16,
}

impl PortVlan {
    /// The settings of a port in the VLAN `tag`, or with that native VLAN. `carried` are the VLANs of a trunk, or the customer VLANs of a
    /// tunnel: all, if there are none.
    pub fn new(mode: VlanMode, tag: u16, carried: &[u16]) -> Self {
        let mut set = (!carried.is_empty()).then(|| Vlans::of(carried.iter().copied()));
        if matches!(mode, VlanMode::NativeTagged | VlanMode::NativeUntagged) {
            // The native VLAN is always carried. Without header, a frame is in it, and not in VLAN 0.
            let set = set.get_or_insert_with(|| Vlans::of(0..=VID_MAX));
            set.set(0, false);
            set.set(tag, true);
        }
        Self { mode, tag, carried: set, is_protected: false }
    }

    /// Returns these settings, for a port that exchanges no frames with other protected ones.
    #[must_use]
    pub fn protected(self, is_protected: bool) -> Self {
        Self { is_protected, ..self }
    }

    /// Returns whether a frame is not sent here because of the port that it was received at, whatever its VLAN.
    pub fn is_protected_from(&self, frame: &InVlan) -> bool {
        self.is_protected && frame.is_protected
    }

    fn has(&self, vid: u16) -> bool {
        self.carried.as_ref().is_none_or(|carried| carried.has(vid))
    }

    /// Returns whether frames of a VLAN can be received or sent here.
    pub fn carries(&self, vid: u16) -> bool {
        match self.mode {
            VlanMode::Access | VlanMode::Dot1qTunnel => vid == self.tag,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => self.has(vid),
        }
    }

    /// Returns whether frames that are received here are in a VLAN: those with a header that has this VID, or those without one. Where
    /// headers are payload, none is in a VLAN because of its header.
    pub fn takes_into(&self, vid: u16, header: Option<u16>) -> bool {
        let is_payload = self.mode == VlanMode::Dot1qTunnel && header.is_some();
        let mut frame = [0; MACS + 4];
        if let Some(header) = header {
            let [tpid, tci] = [ether_type::VLAN, header].map(u16::to_be_bytes);
            frame[MACS..].copy_from_slice(&[tpid[0], tpid[1], tci[0], tci[1]]);
        }
        !is_payload && self.receive(&frame).is_ok_and(|received| received.vid == vid)
    }

    /// Returns the VLAN of a frame that is received here.
    ///
    /// # Errors
    /// If the port does not carry its VLAN.
    pub fn receive(&self, frame: &[u8]) -> Result<InVlan, Refused> {
        let outer = Header::at(frame, MACS);
        let inner = outer.and_then(|_| Header::at(frame, MACS + 4));
        let [vid, inner_vid] = [outer, inner].map(|header| header.map_or(0, Header::vid));
        let (headers, own) =
            (u8::from(outer.is_some()) + u8::from(inner.is_some()), u8::from(outer.is_some()));
        let refused = Err(Refused { vid: if vid == 0 { inner_vid } else { vid } });
        let header = outer.unwrap_or(Header { tpid: ether_type::VLAN, tci: 0 });
        // With three headers, the third might become one of a VLAN.
        let is_deeper = inner.is_some_and(|_| Header::at(frame, MACS + 8).is_some());
        let is_tagged_within = inner_vid != 0 || is_deeper;
        let in_trunk = InVlan {
            vid,
            inner_vid,
            is_tagged_within,
            received: outer,
            headers,
            own,
            header: outer,
            is_protected: self.is_protected,
        };
        let (native, native_header) = (self.tag, header.with_vid(self.tag));
        let native_header = native_header.says_something().then_some(native_header);
        match self.mode {
            VlanMode::Access if vid != 0 || is_tagged_within => refused,
            VlanMode::Access => Ok(InVlan { vid: native, own: headers, header: native_header, ..in_trunk }),
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => {
                let header = native_header.or(inner.map(|_| header.with_vid(native)));
                Ok(InVlan { vid: native, header, ..in_trunk })
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                if !self.has(vid) {
                    return refused;
                }
                // Without the outer header, the frame would be in the VLAN of the inner one.
                let header = outer.filter(|outer| outer.says_something() || inner.is_some());
                Ok(InVlan { header, ..in_trunk })
            }
            VlanMode::Dot1qTunnel if !self.has(vid) => refused,
            VlanMode::Dot1qTunnel => {
                let service = Header { tpid: ether_type::QINQ, tci: native };
                let is_tagged_within = vid != 0 || is_tagged_within;
                let (own, header) = (0, Some(service));
                Ok(InVlan { vid: native, inner_vid: vid, is_tagged_within, own, header, ..in_trunk })
            }
        }
    }

    /// Returns the change of a frame that is sent here: `None` if the port does not carry it, `Some(None)` if it is sent as received.
    pub fn send(&self, frame: &InVlan) -> Option<Option<Retag>> {
        let is_carried = !self.is_protected_from(frame)
            && self.carries(frame.vid)
            && match self.mode {
                VlanMode::Access => !frame.is_tagged_within,
                VlanMode::Dot1qTunnel => self.has(frame.inner_vid),
                VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => true,
            };
        is_carried.then(|| self.retag(frame, frame.headers))
    }

    /// Returns the change of a mirror's copy that is sent here, whatever the VLAN. Headers within that of its VLAN stay.
    pub fn send_copy(&self, frame: &InVlan) -> Option<Retag> {
        self.retag(frame, frame.own)
    }

    /// Returns whether a mirror's copy is sent here that is in a VLAN with other packets.
    pub fn carries_copy(&self, frame: &InVlan) -> bool {
        self.carries(frame.vid) && (self.mode != VlanMode::Dot1qTunnel || self.has(frame.inner_vid))
    }

    /// Returns the change of a frame that is sent here, without which it is sent as received; an access port strips `access` headers.
    fn retag(&self, frame: &InVlan, access: u8) -> Option<Retag> {
        let retag = match self.mode {
            VlanMode::Access => Retag { strip: access, push: None },
            VlanMode::NativeUntagged if frame.vid != self.tag => frame.on_trunk(),
            VlanMode::NativeUntagged | VlanMode::Dot1qTunnel => Retag { strip: frame.own, push: None },
            VlanMode::Trunk | VlanMode::NativeTagged => frame.on_trunk(),
        };
        let is_same = retag.strip <= 1 && retag.push == frame.received.filter(|_| retag.strip == 1);
        (!is_same).then_some(retag)
    }
}

impl InVlan {
    /// Returns the frame in another VLAN, with the priority and the type of its header.
    #[must_use]
    pub fn moved_to(self, vid: u16) -> Self {
        let header = self.header.unwrap_or(Header { tpid: ether_type::VLAN, tci: 0 });
        Self { vid, header: Some(header.with_vid(vid)), ..self }
    }

    fn on_trunk(&self) -> Retag {
        Retag { strip: self.own, push: self.header }
    }

    /// Describes what a change does to the frame's header.
    pub fn describe(&self, retag: Option<Retag>) -> String {
        match retag {
            None if self.received.is_none() => "sent without a header, as received".to_owned(),
            None => "sent with its header, as received".to_owned(),
            Some(Retag { push: None, .. }) => "sent without the header of its VLAN".to_owned(),
            Some(Retag { push: Some(header), strip }) => {
                let change = if strip == 0 { "added" } else { "written" };
                format!("sent with a header of VLAN {}, which is {change}", header.vid())
            }
        }
    }
}

/// Writes the settings in words: `access 10`, `trunk`, `trunk 10,20`, `native-untagged 10, trunk 10,20`.
impl fmt::Display for PortVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, tag, carried, is_protected } = self;
        if *is_protected {
            f.write_str("protected, ")?;
        }
        let (separator, list) = match carried {
            Some(carried) => (" ", carried.to_string()),
            None => ("", String::new()),
        };
        match mode {
            VlanMode::Trunk => write!(f, "trunk{separator}{list}"),
            VlanMode::Access => write!(f, "access {tag}"),
            VlanMode::Dot1qTunnel if carried.is_some() => write!(f, "dot1q-tunnel {tag}, customers {list}"),
            VlanMode::Dot1qTunnel => write!(f, "dot1q-tunnel {tag}"),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                write!(f, "{} {tag}, trunk{separator}{list}", mode.name())
            }
        }
    }
}

#[cfg(test)]
mod tests;
