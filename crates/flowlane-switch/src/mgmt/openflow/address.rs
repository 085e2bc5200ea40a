//! Addresses of OpenFlow connections, as Open vSwitch writes them (ovs(7), *Active OVSDB Connections* and others).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The ports that IANA assigned to OpenFlow and to OVSDB.
const PORT: u16 = 6653;
const DATABASE_PORT: u16 = 6640;

/// Where controllers connect from, or are connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// `punix:PATH`: controllers connect to this socket.
    ListenUnix(PathBuf),
    /// `ptcp:[PORT][:HOST]`: controllers connect to this port; without a host, of any address.
    ListenTcp(SocketAddr),
    /// `pssl:[PORT][:HOST]`: controllers connect to this port with TLS; without a host, of any address.
    ListenSsl(SocketAddr),
    /// `unix:PATH`: the switch connects to this socket.
    ConnectUnix(PathBuf),
    /// `tcp:HOST[:PORT]`: the switch connects there.
    ConnectTcp(SocketAddr),
    /// `ssl:HOST[:PORT]`: the switch connects there with TLS.
    ConnectSsl(SocketAddr),
}

impl Address {
    /// Reads the address of a server of OVSDB, whose port is 6640 unless it says another.
    ///
    /// # Errors
    /// The text is no address.
    pub fn of_database(text: &str) -> Result<Self, BadAddress> {
        Self::read(text, DATABASE_PORT)
    }

    /// Returns whether the connections have TLS.
    pub fn has_tls(&self) -> bool {
        matches!(self, Self::ListenSsl(_) | Self::ConnectSsl(_))
    }

    /// Returns whether the switch connects there.
    pub fn is_connected_to(&self) -> bool {
        matches!(self, Self::ConnectUnix(_) | Self::ConnectTcp(_) | Self::ConnectSsl(_))
    }
}

/// A text that is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no address of a controller: write `punix:PATH`, `ptcp:[PORT][:ADDRESS]` or `pssl:[PORT][:ADDRESS]` to listen, `unix:PATH`, `tcp:ADDRESS[:PORT]` or `ssl:ADDRESS[:PORT]` to connect"
)]
pub struct BadAddress(String);

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ListenUnix(path) => write!(f, "punix:{}", path.display()),
            Self::ListenTcp(at) => write!(f, "ptcp:{}:{}", at.port(), at.ip()),
            Self::ListenSsl(at) => write!(f, "pssl:{}:{}", at.port(), at.ip()),
            Self::ConnectUnix(path) => write!(f, "unix:{}", path.display()),
            Self::ConnectTcp(to) => write!(f, "tcp:{to}"),
            Self::ConnectSsl(to) => write!(f, "ssl:{to}"),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::read(text, PORT)
    }
}

impl Address {
    /// Reads an address, which has this port unless it says another.
    fn read(text: &str, port: u16) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        match kind {
            "punix" | "unix" if rest.is_empty() => Err(bad()),
            "punix" => Ok(Self::ListenUnix(rest.into())),
            "unix" => Ok(Self::ConnectUnix(rest.into())),
            "ptcp" => listened(rest, port).map(Self::ListenTcp).ok_or_else(bad),
            "pssl" => listened(rest, port).map(Self::ListenSsl).ok_or_else(bad),
            "tcp" => connected(rest, port).map(Self::ConnectTcp).ok_or_else(bad),
            "ssl" => connected(rest, port).map(Self::ConnectSsl).ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

/// Reads an IP address, in brackets or not.
fn host(text: &str) -> Option<IpAddr> {
    text.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Reads `[PORT][:HOST]`.
fn listened(text: &str, default: u16) -> Option<SocketAddr> {
    let (port, at) = text.split_once(':').unwrap_or((text, ""));
    let port = if port.is_empty() { default } else { port.parse().ok()? };
    let at = if at.is_empty() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { host(at)? };
    Some(SocketAddr::new(at, port))
}

/// Reads `HOST[:PORT]`.
fn connected(text: &str, default: u16) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(host(text)?, default)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_open_vswitch_writes_them() {
        let tcp = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (text, address) in [
            ("punix:/run/br0.mgmt", Address::ListenUnix("/run/br0.mgmt".into())),
            ("ptcp:", Address::ListenTcp(tcp("0.0.0.0:6653"))),
            ("ptcp:6633:127.0.0.1", Address::ListenTcp(tcp("127.0.0.1:6633"))),
            ("ptcp:6633:[::1]", Address::ListenTcp(tcp("[::1]:6633"))),
            ("tcp:192.0.2.1", Address::ConnectTcp(tcp("192.0.2.1:6653"))),
            ("tcp:[2001:db8::1]:6633", Address::ConnectTcp(tcp("[2001:db8::1]:6633"))),
            ("pssl:", Address::ListenSsl(tcp("0.0.0.0:6653"))),
            ("pssl:6633:[::1]", Address::ListenSsl(tcp("[::1]:6633"))),
            ("ssl:192.0.2.1", Address::ConnectSsl(tcp("192.0.2.1:6653"))),
            ("ssl:[2001:db8::1]:6633", Address::ConnectSsl(tcp("[2001:db8::1]:6633"))),
            ("unix:/run/c.sock", Address::ConnectUnix("/run/c.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        for (text, address) in [
            ("tcp:192.0.2.1", Address::ConnectTcp(tcp("192.0.2.1:6640"))),
            ("ssl:[2001:db8::1]", Address::ConnectSsl(tcp("[2001:db8::1]:6640"))),
            ("ssl:[2001:db8::1]:6633", Address::ConnectSsl(tcp("[2001:db8::1]:6633"))),
        ] {
            assert_eq!(Address::of_database(text), Ok(address), "{text}");
        }
        for text in
            ["", "br0", "punix:", "ptcp:70000", "tcp:name", "udp:1.2.3.4", "ptcp:1:x", "ssl:", "pssl:x"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
