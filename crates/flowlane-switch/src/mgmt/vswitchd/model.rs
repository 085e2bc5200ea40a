//! What a database asks for: bridges with ports, and their controllers (ovs-vswitchd.conf.db(5)).

use std::collections::BTreeMap;
use std::path::PathBuf;

use flowlane::tunnel::TunnelKind;
use flowlane_openflow::Version;
use flowlane_ovsdb::{Atom, Replica, Row, Uuid, Wanted};

use super::bfd::BfdSpec;
use super::bonds::BondSpec;
use super::controllers::ControllersSpec;
use super::mirrors::MirrorSpec;
use super::multicast::SnoopingSpec;
use super::qos::LimitsSpec;
use super::settings::FdbSettings;
use super::spanning_tree::TreeSpec;
use super::unsupported;
use crate::mgmt::config::PortSection;
use crate::mgmt::openflow::TlsFiles;
use crate::mgmt::setup::read_host_mac;
use crate::port::{PortSpec, XdpMode};
use crate::state::vlan::VlanMode;
use crate::tunnel::PortTunnelSpec;

/// The columns that are read, or written.
pub(super) const WANTED: [Wanted; 11] = [
    Wanted {
        table: "Open_vSwitch",
        columns: &["bridges", "next_cfg", "cur_cfg", "datapath_types", "iface_types", "other_config", "ssl"],
    },
    Wanted { table: "SSL", columns: &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"] },
    Wanted {
        table: "Bridge",
        columns: &[
            "name",
            "ports",
            "controller",
            "fail_mode",
            "protocols",
            "other_config",
            "datapath_id",
            "datapath_version",
            "mirrors",
            "netflow",
            "sflow",
            "ipfix",
            "stp_enable",
            "rstp_enable",
            "status",
            "rstp_status",
            "mcast_snooping_enable",
            "flood_vlans",
            "auto_attach",
        ],
    },
    Wanted {
        table: "Port",
        columns: &[
            "name",
            "interfaces",
            "tag",
            "trunks",
            "vlan_mode",
            "cvlans",
            "protected",
            "qos",
            "bond_mode",
            "bond_updelay",
            "bond_downdelay",
            "bond_active_slave",
            "lacp",
            "other_config",
            "status",
            "rstp_status",
            "statistics",
            "rstp_statistics",
            "mac",
        ],
    },
    Wanted {
        table: "Interface",
        columns: &[
            "name",
            "type",
            "options",
            "ofport",
            "ofport_request",
            "error",
            "link_state",
            "admin_state",
            "mac_in_use",
            "statistics",
            "bfd",
            "bfd_status",
            "ifindex",
            "mtu",
            "mtu_request",
            "mac",
            "link_speed",
            "duplex",
            "link_resets",
            "status",
            "lacp_current",
            "other_config",
            "cfm_mpid",
            "lldp",
            "ingress_policing_rate",
            "ingress_policing_burst",
            "ingress_policing_kpkts_rate",
            "ingress_policing_kpkts_burst",
        ],
    },
    Wanted {
        table: "Mirror",
        columns: &[
            "name",
            "select_all",
            "select_src_port",
            "select_dst_port",
            "select_vlan",
            "output_port",
            "output_vlan",
            "snaplen",
            "statistics",
        ],
    },
    Wanted { table: "QoS", columns: &["type", "queues", "other_config"] },
    Wanted { table: "Queue", columns: &["dscp", "other_config"] },
    Wanted {
        table: "Controller",
        columns: &[
            "target",
            "is_connected",
            "status",
            "inactivity_probe",
            "max_backoff",
            "connection_mode",
            "controller_rate_limit",
            "controller_queue_size",
            "enable_async_messages",
            "local_ip",
            "other_config",
        ],
    },
    Wanted { table: "Datapath", columns: &["capabilities", "ct_zones"] },
    Wanted { table: "Flow_Table", columns: &["name", "flow_limit"] },
];

/// A bridge that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BridgeSpec {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    pub(super) interfaces: Vec<InterfaceSpec>,
    /// Its ports of several interfaces, and those that speak LACP.
    pub(super) bonds: Vec<BondSpec>,
    pub(super) controllers: ControllersSpec,
    /// The files of the daemon's TLS.
    pub(super) tls: Option<TlsFiles>,
    /// Without controllers it forwards nothing but by their rules.
    pub(super) is_secure: bool,
    /// All where there are none.
    pub(super) versions: Vec<Version>,
    pub(super) datapath_id: Option<u64>,
    pub(super) fdb: FdbSettings,
    pub(super) mirrors: Vec<MirrorSpec>,
    /// `None`: all ports forward.
    pub(super) tree: Option<TreeSpec>,
    /// `None`: packets for groups go to all ports.
    pub(super) snooping: Option<SnoopingSpec>,
    /// The settings that are not supported, with the effect.
    pub(super) unsupported: Vec<String>,
}

/// An interface that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InterfaceSpec {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    /// Its type; empty for an interface of the system.
    pub(super) kind: String,
    /// Its options, of patch ports and tunnels.
    pub(super) options: BTreeMap<String, String>,
    pub(super) ofport_request: Option<u32>,
    /// The number that the database says it has.
    pub(super) ofport: Option<i64>,
    pub(super) vlan_mode: Option<VlanMode>,
    pub(super) tag: Option<u16>,
    pub(super) trunks: Vec<u16>,
    pub(super) cvlans: Vec<u16>,
    pub(super) is_protected: bool,
    /// Its policing, and the QoS of its port.
    pub(super) limits: LimitsSpec,
    /// Its session of BFD, if it has one.
    pub(super) bfd: Option<BfdSpec>,
    /// In bytes.
    pub(super) mtu_request: Option<u32>,
    /// The Ethernet address that an interface of a bridge is to have.
    pub(super) mac: Option<[u8; 6]>,
}

/// The root of the database: its row, the configuration that clients have made last, and the one that is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root {
    pub(super) uuid: Uuid,
    pub(super) next_cfg: i64,
    pub(super) cur_cfg: i64,
}

/// The root, if the database has been made.
pub(super) fn root(replica: &Replica) -> Option<Root> {
    let (uuid, row) = replica.rows("Open_vSwitch").next()?;
    let number = |column| row.get(column).integer().unwrap_or(0);
    Some(Root { uuid, next_cfg: number("next_cfg"), cur_cfg: number("cur_cfg") })
}

/// The bridges, in the order of their names.
pub(super) fn bridges(replica: &Replica) -> Vec<BridgeSpec> {
    let Some((_, root)) = replica.rows("Open_vSwitch").next() else { return Vec::new() };
    let rows = root.get("bridges").uuids().filter_map(|uuid| Some((uuid, replica.row("Bridge", uuid)?)));
    let mut all: Vec<BridgeSpec> = rows.filter_map(|(uuid, row)| bridge(replica, uuid, row)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn bridge(replica: &Replica, uuid: Uuid, row: &Row) -> Option<BridgeSpec> {
    let name = row.get("name").text()?.to_owned();
    let ports = || row.get("ports").uuids().filter_map(|uuid| Some((uuid, replica.row("Port", uuid)?)));
    let mut interfaces: Vec<InterfaceSpec> =
        ports().flat_map(|(_, port)| interfaces(replica, port)).collect();
    let bonds = ports().filter_map(|(uuid, port)| BondSpec::read(replica, uuid, port)).collect();
    // The bridge's own first, then in the order of their names.
    interfaces.sort_by_key(|interface| (interface.name != name, interface.name.clone()));
    let versions = row.get("protocols").atoms().filter_map(|atom| match atom {
        Atom::String(name) => Version::ALL.into_iter().find(|version| version.name() == name),
        _ => None,
    });
    let config = row.get("other_config");
    let datapath_id = config.get("datapath-id");
    if let Some(own) = interfaces.first_mut().filter(|interface| interface.name == name) {
        own.mac = own.mac.or_else(|| config.get("hwaddr").and_then(read_host_mac));
    }
    Some(BridgeSpec {
        uuid,
        interfaces,
        bonds,
        controllers: ControllersSpec::read(replica, row),
        tls: tls(replica),
        is_secure: row.get("fail_mode").text() == Some("secure"),
        versions: versions.collect(),
        datapath_id: datapath_id.and_then(|id| u64::from_str_radix(id.trim_start_matches("0x"), 16).ok()),
        fdb: FdbSettings::read(row),
        mirrors: MirrorSpec::read_all(replica, row),
        tree: TreeSpec::read(replica, row),
        snooping: SnoopingSpec::read(replica, row),
        unsupported: unsupported::read(replica, row),
        name,
    })
}

/// The files of TLS, where the database names all of them (`ovs-vsctl set-ssl`).
fn tls(replica: &Replica) -> Option<TlsFiles> {
    let (_, root) = replica.rows("Open_vSwitch").next()?;
    let row = replica.row("SSL", root.get("ssl").uuids().next()?)?;
    let file = |column| row.get(column).text().filter(|path| !path.is_empty()).map(PathBuf::from);
    let (private_key, certificate) = (file("private_key")?, file("certificate")?);
    let bootstraps = row.get("bootstrap_ca_cert").boolean() == Some(true);
    Some(TlsFiles { private_key, certificate, ca_certificate: file("ca_cert")?, bootstraps })
}

/// The interfaces of a port.
fn interfaces(replica: &Replica, port: &Row) -> Vec<InterfaceSpec> {
    let vlan = |vid: &Atom| if let Atom::Integer(vid) = vid { u16::try_from(*vid).ok() } else { None };
    let vlans = |column| port.get(column).atoms().filter_map(vlan).collect::<Vec<u16>>();
    let mode = port.get("vlan_mode").text();
    let rows =
        port.get("interfaces").uuids().filter_map(|uuid| Some((uuid, replica.row("Interface", uuid)?)));
    let spec = |(uuid, row): (Uuid, &Row)| {
        Some(InterfaceSpec {
            uuid,
            name: row.get("name").text()?.to_owned(),
            kind: row.get("type").text().unwrap_or_default().to_owned(),
            options: row
                .get("options")
                .pairs()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            ofport_request: row.get("ofport_request").integer().and_then(|number| u32::try_from(number).ok()),
            ofport: row.get("ofport").integer(),
            vlan_mode: VlanMode::ALL.into_iter().find(|one| Some(one.name()) == mode),
            tag: vlans("tag").first().copied(),
            trunks: vlans("trunks"),
            cvlans: vlans("cvlans"),
            is_protected: port.get("protected").boolean() == Some(true),
            limits: LimitsSpec::read(replica, port, row),
            bfd: BfdSpec::read(row.get("bfd")),
            mtu_request: row.get("mtu_request").integer().and_then(|mtu| u32::try_from(mtu).ok()),
            mac: row.get("mac").text().and_then(read_host_mac),
        })
    };
    rows.filter_map(spec).collect()
}

/// Checks a name that becomes a part of port specifications and of paths.
///
/// # Errors
/// Where it has characters that mean something there.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ',' | ':' | '=');
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "`{}` is no name of a bridge or port: it has characters other than letters, digits and the like",
            name.escape_debug()
        )),
    }
}

/// The options of tunnels, with the names that they have in specifications of ports.
const TUNNEL_OPTIONS: [(&str, &str); 14] = [
    ("local_ip", "local"),
    ("key", "key"),
    ("in_key", "in_key"),
    ("out_key", "out_key"),
    ("dst_port", "port"),
    ("csum", "csum"),
    ("seq", "seq"),
    // The version first: where it is the packet's, the others are, too.
    ("erspan_ver", "erspan_ver"),
    ("erspan_idx", "erspan_idx"),
    ("erspan_dir", "erspan_dir"),
    ("erspan_hwid", "erspan_hwid"),
    ("tos", "tos"),
    ("ttl", "ttl"),
    ("df_default", "df"),
];

/// The modes of interfaces of type afxdp, as Open vSwitch names them.
const XDP_MODES: [(&str, XdpMode); 4] = [
    ("best-effort", XdpMode::Auto),
    ("native-with-zerocopy", XdpMode::ZeroCopy),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Skb),
];

/// Options that change packets on the wire, and are not supported. Further ones are for other programs, and ignored.
const REFUSED_OPTIONS: [&str; 3] = ["exts", "egress_pkt_mark", "packet_type"];

impl InterfaceSpec {
    /// The specification of an interface past the network stack.
    fn afxdp(&self) -> Result<String, String> {
        let mode = self.options.get("xdp-mode").map_or("best-effort", String::as_str);
        let known = XDP_MODES.iter().find(|(name, _)| *name == mode);
        let (_, mode) = known.ok_or_else(|| {
            let all = XDP_MODES.map(|(name, _)| name).join(", ");
            format!("{}: there is no options:xdp-mode={mode}; there are {all}", self.name)
        })?;
        Ok(PortSpec::AfXdp { interface: self.name.clone(), mode: *mode }.to_string())
    }

    /// The protocol of a tunnel.
    fn tunnel_kind(&self) -> Option<TunnelKind> {
        match &*self.kind {
            "geneve" => Some(TunnelKind::Geneve),
            "vxlan" => Some(TunnelKind::Vxlan),
            "gre" | "ip6gre" => Some(TunnelKind::Gre),
            "erspan" | "ip6erspan" => Some(TunnelKind::Erspan),
            _ => None,
        }
    }

    /// Its options as Open vSwitch shows them: of tunnels, those that count and are not as they are by default.
    pub(super) fn shown_options(&self) -> BTreeMap<&str, String> {
        let spec = self.tunnel_kind().and_then(|kind| self.tunnel(kind).ok());
        let Some(spec) = spec else {
            return self.options.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        };
        let name = |own: &str| TUNNEL_OPTIONS.iter().find(|(_, known)| *known == own).map(|(name, _)| *name);
        let given = spec.given().into_iter();
        let mut all: BTreeMap<&str, String> =
            given.filter_map(|(own, value)| Some((name(own)?, value))).collect();
        all.insert("remote_ip", spec.remote.map_or_else(|| "flow".to_owned(), |remote| remote.to_string()));
        all
    }

    /// The specification of a tunnel.
    fn tunnel(&self, kind: TunnelKind) -> Result<PortTunnelSpec, String> {
        let failed = |problem: &dyn std::fmt::Display| format!("{}: {problem}", self.name);
        let option = |key: &str| self.options.get(key).map(String::as_str);
        // Extensions are VXLAN's: others have nothing of the kind, and ignore the option.
        let is_refused = |(key, value): &(&str, &str)| match *key {
            "exts" => kind == TunnelKind::Vxlan,
            _ => *value != "legacy_l2",
        };
        let refused = REFUSED_OPTIONS.iter().filter_map(|key| Some((*key, option(key)?))).find(is_refused);
        if let Some((key, value)) = refused {
            return Err(failed(&format_args!("options:{key}={value} is not supported")));
        }
        let remote = option("remote_ip")
            .ok_or_else(|| failed(&format_args!("{} type requires valid 'remote_ip' argument", self.kind)))?;
        // Of other types than its own, an option is ignored, as in Open vSwitch.
        let names = PortTunnelSpec::options(kind);
        let known = TUNNEL_OPTIONS.iter().filter(|(_, own)| names.contains(own));
        let options: Vec<(&str, &str)> = known.filter_map(|&(key, own)| Some((own, option(key)?))).collect();
        PortTunnelSpec::parse(kind, remote, &options).map_err(|error| failed(&error))
    }

    /// The type of its port of the datapath, as `ovs-appctl` shows it: interfaces of bridges are TAP interfaces.
    pub(super) fn datapath_type(&self) -> &str {
        match &*self.kind {
            "" => "system",
            "internal" => "tap",
            other => other,
        }
    }

    /// Returns whether the system has an interface of its name when it is open.
    pub(super) fn has_link(&self) -> bool {
        self.is_of_system() || matches!(&*self.kind, "internal" | "tap")
    }

    /// Returns whether it is an interface that the system has already.
    pub(super) fn is_of_system(&self) -> bool {
        matches!(&*self.kind, "" | "system" | "afxdp")
    }

    /// The section of the port that it is to be.
    ///
    /// # Errors
    /// Why there is none for its type.
    pub(super) fn section(&self, number: u32) -> Result<PortSection, String> {
        check_name(&self.name)?;
        let open = match (&*self.kind, self.tunnel_kind()) {
            (_, Some(kind)) => self.tunnel(kind)?.to_string(),
            ("" | "system", _) => format!("afpacket:{}", self.name),
            // As in Open vSwitch, an administrator sets it up.
            ("internal" | "tap", _) => format!("tap:{},up=no", self.name),
            ("null" | "dummy", _) => "null".to_owned(),
            ("patch", _) => {
                let missing = || format!("{}: patch type requires valid 'peer' argument", self.name);
                let peer = self.options.get("peer").ok_or_else(missing)?;
                check_name(peer)?;
                format!("patch:{},peer={peer}", self.name)
            }
            ("afxdp", _) => self.afxdp()?,
            (other, None) => {
                return Err(format!(
                    "could not open network device {} (Address family not supported by protocol): \
                     interfaces of type `{other}` are not supported",
                    self.name
                ));
            }
        };
        Ok(PortSection {
            number,
            name: Some(self.name.clone()),
            open,
            decapsulate: false,
            vrf: 0,
            vlan_mode: self.vlan_mode,
            tag: self.tag,
            trunks: self.trunks.clone(),
            cvlans: self.cvlans.clone(),
            protected: self.is_protected,
            // The bridge follows it, with the port's other limits.
            qos: None,
            addresses: Vec::new(),
            mac: None,
            mtu: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that is not asked for looks empty.
    #[test]
    fn all_tables_that_are_read_here_are_asked_for() {
        let source = include_str!("model.rs");
        let (read, _) = source.split_once("mod tests").unwrap();
        for call in ["row(\"", "rows(\""] {
            for table in read.split(call).skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(WANTED.iter().any(|wanted| wanted.table == table), "{table}");
            }
        }
    }

    #[test]
    fn names_mean_nothing_in_paths_and_specifications() {
        for name in ["br-int", "eth0.7", "patch-br-int-to-provnet-5e1c", "p_1", "v@2"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", ".hidden", "a/b", "../br0", "x,peer=y", "a b", "a\n", "\u{e9}", "tap:x"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
