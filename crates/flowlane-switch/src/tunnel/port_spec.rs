//! Tunnels that are ports: what a port's specification says of its tunnel (ovs-vswitchd.conf.db(5), Tunnel Options).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use flowlane::tunnel::{Sequence, TunnelKind};

use super::ErspanSpec;

/// The address of this node in a port's tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Local {
    /// Any that the node has; the system chooses the one of packets that leave.
    #[default]
    Any,
    /// This one.
    Address(IpAddr),
    /// Any; packets that leave say which, by `tun_src`.
    Flow,
}

/// The tunnel of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortTunnelSpec {
    /// The protocol: VXLAN, GENEVE, GRE or ERSPAN.
    pub kind: TunnelKind,
    /// The other end; `None`: packets that leave say which, by `tun_dst`, and those of any come in.
    pub remote: Option<IpAddr>,
    /// This node's end.
    pub local: Local,
    /// The VNI, key or session of packets that come in; `None`: any. GRE without a key has 0.
    pub in_key: Option<u32>,
    /// The VNI, key or session of packets that leave; `None`: their `tun_id`.
    pub out_key: Option<u32>,
    /// The specification names the key of packets that leave, be it 0: GRE has none else.
    pub has_key: bool,
    /// The UDP port; `None`: the protocol is not behind UDP.
    pub port: Option<u16>,
    /// The checksum of UDP, or of GRE, is computed.
    pub checksum: bool,
    /// The sequence numbers of packets of GRE that leave; `None`: they have none, as those of others. ERSPAN always has them.
    pub sequence: Option<Sequence>,
    /// The header of ERSPAN.
    pub erspan: ErspanSpec,
    /// The outer type of service, of which the ECN bits do not count; `None`: the packet's.
    pub tos: Option<u8>,
    /// The outer TTL; `None`: the packet's.
    pub ttl: Option<u8>,
    /// Outer packets are not to be fragmented.
    pub dont_fragment: bool,
}

/// The options of tunnels behind UDP, as they are named in specifications and, but for `dst_port`, `local_ip` and `df_default`, in
/// OVSDB.
const UDP_OPTIONS: [&str; 9] = ["local", "key", "in_key", "out_key", "port", "csum", "tos", "ttl", "df"];
/// Those of GRE.
const GRE_OPTIONS: [&str; 9] = ["local", "key", "in_key", "out_key", "csum", "seq", "tos", "ttl", "df"];
/// Those of ERSPAN.
const ERSPAN_OPTIONS: [&str; 11] = {
    let [version, index, direction, hardware] = ErspanSpec::OPTIONS;
    ["local", "key", "in_key", "out_key", version, index, direction, hardware, "tos", "ttl", "df"]
};

/// Why a specification is none of a tunnel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortTunnelError {
    #[error("there is no option `{key}` of {kind}; there are {all}", kind = kind.name(), all = PortTunnelSpec::options(*kind).join(", "))]
    Unknown { kind: TunnelKind, key: String },
    #[error("`{key}={value}`: {problem}")]
    Value { key: String, value: String, problem: String },
    #[error("the other end is missing: write `{0}:ADDRESS`, or `{0}:flow` where packets say it")]
    Remote(&'static str),
    #[error("`{0}` is neither an address of the other end nor `flow`")]
    Address(String),
    #[error("the two ends are of different IP versions; give both of one")]
    Families,
}

impl PortTunnelSpec {
    /// The protocols of ports.
    pub const KINDS: [TunnelKind; 4] =
        [TunnelKind::Geneve, TunnelKind::Vxlan, TunnelKind::Gre, TunnelKind::Erspan];

    /// The names of a protocol's options.
    pub fn options(kind: TunnelKind) -> &'static [&'static str] {
        match kind {
            TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => &UDP_OPTIONS,
            TunnelKind::Gre => &GRE_OPTIONS,
            TunnelKind::Erspan => &ERSPAN_OPTIONS,
        }
    }

    /// The tunnel to another end with the defaults of Open vSwitch: VNI 0 or no key, any address of this node, a TTL of 64.
    pub fn new(kind: TunnelKind, remote: Option<IpAddr>) -> Self {
        Self {
            kind,
            remote,
            local: Local::Any,
            in_key: Some(0),
            out_key: Some(0),
            has_key: false,
            port: kind.own_port(),
            checksum: false,
            sequence: (kind == TunnelKind::Erspan).then(Sequence::default),
            erspan: ErspanSpec::default(),
            tos: Some(0),
            ttl: Some(64),
            dont_fragment: true,
        }
    }

    /// Reads the other end and the options of a specification.
    ///
    /// # Errors
    /// The first option that is wrong, and why.
    pub fn parse(kind: TunnelKind, remote: &str, options: &[(&str, &str)]) -> Result<Self, PortTunnelError> {
        let remote = match remote {
            "" => return Err(PortTunnelError::Remote(kind.name())),
            "flow" => None,
            text => Some(text.parse().map_err(|_| PortTunnelError::Address(text.to_owned()))?),
        };
        let mut spec = Self::new(kind, remote);
        for &(key, value) in options {
            spec.set(key, value)?;
        }
        match (spec.remote, spec.local) {
            (Some(remote), Local::Address(local)) if remote.is_ipv4() != local.is_ipv4() => {
                Err(PortTunnelError::Families)
            }
            _ => Ok(spec),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), PortTunnelError> {
        let kind = self.kind;
        if !Self::options(kind).contains(&key) {
            return Err(PortTunnelError::Unknown { kind, key: key.to_owned() });
        }
        let wrong = |problem: &str| PortTunnelError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        };
        let id = || match value {
            "flow" => Ok(None),
            text => match number(text) {
                Some(id) if id <= u64::from(kind.id_max()) => Ok(Some(id as u32)),
                _ => {
                    let what = match kind {
                        TunnelKind::Gre => "key",
                        TunnelKind::Erspan => "session",
                        _ => "VNI",
                    };
                    Err(wrong(&format!("a {what} of 0 to {} or `flow` is expected", kind.id_max())))
                }
            },
        };
        let yes = || match value {
            "true" | "" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong("`true` or `false` is expected")),
        };
        let byte = || match value {
            "inherit" => Ok(None),
            text => match number(text).map(u8::try_from) {
                Some(Ok(byte)) => Ok(Some(byte)),
                _ => Err(wrong("a number of 0 to 255 or `inherit` is expected")),
            },
        };
        match key {
            "local" if value == "flow" => self.local = Local::Flow,
            "local" => {
                let address = value.parse().map_err(|_| wrong("an address or `flow` is expected"))?;
                self.local = Local::Address(address);
            }
            "key" => (self.in_key, self.out_key, self.has_key) = (id()?, id()?, true),
            "in_key" => self.in_key = id()?,
            "out_key" => (self.out_key, self.has_key) = (id()?, true),
            "port" => match number(value).map(u16::try_from) {
                Some(Ok(port @ 1..)) => self.port = Some(port),
                _ => return Err(wrong("a UDP port of 1 to 65535 is expected")),
            },
            "csum" => self.checksum = yes()?,
            "seq" => self.sequence = yes()?.then(Sequence::default),
            "tos" => self.tos = byte()?.map(|tos| tos & !3),
            // Zero is the system's own, as in Open vSwitch.
            "ttl" => self.ttl = byte()?.map(|ttl| if ttl == 0 { 64 } else { ttl }),
            "df" => self.dont_fragment = yes()?,
            // The others, which are known, are of ERSPAN.
            _ => self.erspan.set(key, value).map_err(wrong)?,
        }
        Ok(())
    }

    /// Returns whether a packet of the tunnel's protocol and UDP port comes in here; `None`: its tunnel header is cut off or malformed.
    pub fn takes(&self, remote: IpAddr, local: IpAddr, id: Option<u32>) -> bool {
        id.is_none_or(|id| self.in_key.is_none_or(|key| key == id))
            && self.remote.is_none_or(|own| own == remote)
            && match self.local {
                Local::Address(own) => own == local,
                Local::Any | Local::Flow => true,
            }
    }

    /// Among the tunnels that take a packet the least of these does, as in Open vSwitch: the VNI counts first, then the other end,
    /// then this one.
    pub fn precedence(&self) -> [u8; 3] {
        let local = match self.local {
            Local::Address(_) => 0,
            Local::Any => 1,
            Local::Flow => 2,
        };
        [self.in_key.is_none().into(), self.remote.is_none().into(), local]
    }

    /// Returns whether the two tunnels take the same packets in all cases.
    pub fn is_same_end(&self, other: &Self) -> bool {
        let end = |spec: &Self| (spec.kind, spec.port, spec.in_key, spec.remote, spec.local);
        end(self) == end(other)
    }

    /// The options that are not as they are by default, with their values.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let or = |value: Option<u32>, other: &str| {
            value.map_or_else(|| other.to_owned(), |value| value.to_string())
        };
        let mut out = Vec::new();
        match self.local {
            Local::Any => {}
            Local::Address(address) => out.push(("local", address.to_string())),
            Local::Flow => out.push(("local", "flow".to_owned())),
        }
        match (self.in_key, self.out_key) {
            (Some(0), _) if !self.has_key => {}
            (a, _) if !self.has_key => out.push(("in_key", or(a, "flow"))),
            (a, b) if a == b => out.push(("key", or(a, "flow"))),
            (a, b) => out.extend([("in_key", or(a, "flow")), ("out_key", or(b, "flow"))]),
        }
        if let Some(port) = self.port.filter(|_| self.port != self.kind.own_port()) {
            out.push(("port", port.to_string()));
        }
        match self.kind {
            TunnelKind::Erspan => out.extend(self.erspan.given()),
            _ => {
                let flags = [("csum", self.checksum), ("seq", self.sequence.is_some())];
                let set = flags.into_iter().filter(|(_, is_set)| *is_set);
                out.extend(set.map(|(key, _)| (key, "true".to_owned())));
            }
        }
        if self.tos != Some(0) {
            out.push(("tos", self.tos.map_or_else(|| "inherit".to_owned(), |tos| format!("{tos:#x}"))));
        }
        if self.ttl != Some(64) {
            out.push(("ttl", or(self.ttl.map(Into::into), "inherit")));
        }
        if !self.dont_fragment {
            out.push(("df", "false".to_owned()));
        }
        out
    }

    /// An address of no node, of the IP version of `other`.
    pub fn unspecified(other: IpAddr) -> IpAddr {
        match other {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// Reads a number, in hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for PortTunnelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remote = self.remote.map_or_else(|| "flow".to_owned(), |remote| remote.to_string());
        write!(f, "{}:{remote}", self.kind.name())?;
        self.given().iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<PortTunnelSpec, PortTunnelError> {
        of_kind(TunnelKind::Geneve, text)
    }

    fn of_kind(kind: TunnelKind, text: &str) -> Result<PortTunnelSpec, PortTunnelError> {
        let mut parts = text.split(',');
        let remote = parts.next().unwrap();
        let options: Vec<_> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
        PortTunnelSpec::parse(kind, remote, &options)
    }

    #[test]
    fn a_specification_is_printed_as_it_is_read() {
        for text in [
            "192.0.2.7",
            "flow,key=flow",
            "2001:db8::7,local=2001:db8::1,key=5000,csum=true",
            "flow,local=flow,in_key=7,out_key=flow,port=7000,tos=0xb8,ttl=inherit,df=false",
            "192.0.2.7,tos=inherit,ttl=3",
        ] {
            assert_eq!(of(text).unwrap().to_string(), format!("geneve:{text}"));
        }
        for text in [
            "192.0.2.7",
            "2001:db8::7,key=0,csum=true,seq=true",
            "flow,in_key=7",
            "flow,in_key=0,out_key=flow",
        ] {
            assert_eq!(of_kind(TunnelKind::Gre, text).unwrap().to_string(), format!("gre:{text}"));
        }
        for (text, shown) in [
            ("192.0.2.7,key=5", "192.0.2.7,key=5,erspan_ver=1,erspan_idx=0x0"),
            ("::7,key=1023,erspan_ver=1,erspan_idx=0xabcde", "::7,key=1023,erspan_ver=1,erspan_idx=0xabcde"),
            (
                "flow,key=flow,erspan_ver=2,erspan_dir=1,erspan_hwid=3f,erspan_idx=7",
                "flow,key=flow,erspan_ver=2,erspan_dir=1,erspan_hwid=0x3f",
            ),
            (
                "192.0.2.7,erspan_ver=flow,ttl=9",
                "192.0.2.7,erspan_ver=flow,erspan_idx=flow,erspan_dir=flow,erspan_hwid=flow,ttl=9",
            ),
        ] {
            let spec = of_kind(TunnelKind::Erspan, text).unwrap();
            assert_eq!(spec.to_string(), format!("erspan:{shown}"));
            assert_eq!(of_kind(TunnelKind::Erspan, shown).unwrap().to_string(), spec.to_string());
        }
        // The congestion bits are those of packets.
        assert_eq!(
            of("flow,tos=0x0f,ttl=0,csum,port=6081").unwrap().to_string(),
            "geneve:flow,csum=true,tos=0xc"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("", "write `geneve:ADDRESS`, or `geneve:flow`"),
            ("eth0", "`eth0` is neither an address"),
            ("192.0.2.7,key=16777216", "`key=16777216`: a VNI of 0 to 16777215"),
            ("192.0.2.7,port=0", "a UDP port of 1 to 65535"),
            ("192.0.2.7,csum=yes", "`true` or `false`"),
            ("192.0.2.7,ttl=256", "0 to 255 or `inherit`"),
            ("192.0.2.7,local=::1", "different IP versions"),
            ("192.0.2.7,remote=::1", "no option `remote` of geneve; there are local, key"),
            ("192.0.2.7,seq=true", "no option `seq` of geneve"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        for (text, problem) in [
            ("192.0.2.7,port=5", "no option `port` of gre; there are local, key, in_key, out_key, csum, seq"),
            ("192.0.2.7,key=4294967296", "a key of 0 to 4294967295 or `flow` is expected"),
        ] {
            let error = of_kind(TunnelKind::Gre, text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        for (text, problem) in [
            ("192.0.2.7,csum=true", "no option `csum` of erspan; there are local, key"),
            ("192.0.2.7,key=1024", "a session of 0 to 1023 or `flow` is expected"),
            ("192.0.2.7,erspan_ver=0", "1, 2 or `flow`"),
            ("192.0.2.7,erspan_idx=100000", "an index of 0 to fffff"),
            ("192.0.2.7,erspan_dir=2", "0, 1 or `flow`"),
            ("192.0.2.7,erspan_hwid=0x40", "a number of 0 to 3f"),
        ] {
            let error = of_kind(TunnelKind::Erspan, text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
