//! The switch's configuration: TOML, with a JSON schema made from these types.
//!
//! Enums and sizes of other modules are read as they are ([`ByName`] for those of other crates), so that names and defaults are
//! in one place. `Source` says where in the text a part is.

mod by_name;
mod firewall;
mod gpu;
mod metrics;
mod mirror;
mod network;
mod qos;
mod router;
mod source;
mod stage;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU64};
use std::path::{Path, PathBuf};

use flowlane::isa::Variant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::by_name::ByName;
pub use self::firewall::FirewallSection;
pub use self::gpu::{GpuMethod, GpuSection};
pub use self::metrics::MetricsSection;
pub use self::mirror::MirrorSection;
pub use self::network::{
    InnerProtocol, MemberSection, NextHopSection, RouteTableSection, TunnelOptionSection,
    TunnelPolicySection, TunnelSection,
};
pub use self::qos::{QosKind, QosSection, QueueSection};
pub use self::router::{InterfaceSection, RouterSection};
pub(crate) use self::source::{KeyPath, Source};
pub use self::stage::{
    AssetTableSection, FilterTableSection, ForwardProtocol, ForwardSection, NatTableSection,
};

use crate::datapath::{CacheConfig, MalformedPolicy};
use crate::mgmt::openflow::FailMode;
use crate::ruleset::Miss;
use crate::state::conntrack::{Limits, Timeout, ZoneSettings};
use crate::state::vlan::VlanMode;

/// A switch.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Flowlane switch configuration")]
pub struct Config {
    /// Settings of the switch as a whole.
    pub switch: SwitchConfig,
    /// Sizes and policies of the flow caches.
    pub cache: CacheConfig,
    /// The CUDA device behind tables of `engine = "gpu"`.
    pub gpu: GpuSection,
    /// The MAC table (FDB) of the `normal` action.
    pub macs: MacSection,
    /// Connection tracking, for rules with `ct`.
    pub connections: ConnectionSection,
    /// A router between ports with addresses.
    pub router: Option<RouterSection>,
    /// A file that connections, learned addresses and sessions are saved in, for a start after a crash.
    pub state: Option<StateSection>,
    /// Metrics over HTTP, for Prometheus and other collectors, and a page for browsers. Without TLS; other addresses than this
    /// machine's need a token.
    pub metrics: Option<MetricsSection>,
    /// A firewall between ports.
    pub firewall: Option<FirewallSection>,
    /// Controllers that drive the switch by OpenFlow.
    pub openflow: Option<OpenflowSection>,
    /// The port that `controller` and `sample` send to; without it, such packets are dropped and counted.
    pub controller: Option<ControllerSection>,
    /// The ports.
    pub port: Vec<PortSection>,
    /// Copies of packets, for a port or a VLAN.
    pub mirror: Vec<MirrorSection>,
    /// The tables of rules. Packets enter at table 0.
    pub table: Vec<TableSection>,
    /// The groups that rules may name.
    pub groups: GroupsSection,
    /// The tables of routes. All kinds of tables share one range of numbers.
    pub route_table: Vec<RouteTableSection>,
    /// Packet filters.
    pub filter_table: Vec<FilterTableSection>,
    /// Asset detection.
    pub asset_table: Vec<AssetTableSection>,
    /// Address translation.
    pub nat_table: Vec<NatTableSection>,
    /// The tunnels that end here, and those that packets leave through.
    pub tunnel: Vec<TunnelSection>,
    /// Checks of packets that arrive through tunnels.
    pub tunnel_policy: TunnelPolicySection,
    /// The GENEVE options that have fields.
    pub tunnel_option: Vec<TunnelOptionSection>,
    /// The meters that rules may name.
    pub meter: Vec<MeterSection>,
}

/// Settings of the switch as a whole.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// Frames received from a port at a time, 1 to 64.
    pub burst: usize,
    /// Threads that switch packets, each on a core of its own where there are enough: 1 to 64; 0 for one on every core. Flows
    /// are distributed over them.
    pub workers: usize,
    /// How frames of ports without receive queues for each worker are distributed: captures, generators, and ports that one
    /// worker receives from.
    pub spread: SpreadMode,
    /// The treatment of malformed frames.
    pub malformed: MalformedPolicy,
    /// The clock of meters and of address ageing.
    pub clock: ClockSource,
    /// Keeps the capabilities by which interfaces are opened (CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK), for ports that are
    /// added while the switch runs, which does not end with the ports that it starts with. Without it, the capabilities that these need
    /// are kept.
    pub adds_ports: bool,
    /// The SIMD variant of parser and caches; without it, the one that `flowlane tune` or the built-in table selects.
    pub variant: Option<ByName<Variant>>,
    /// Keys the hashes of all tables. Random by default, so that no peer can craft colliding keys; set only to repeat a run
    /// exactly: then `auto` engines are not measured either.
    pub seed: Option<u32>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            burst: 64,
            workers: 1,
            spread: SpreadMode::Auto,
            malformed: MalformedPolicy::Drop,
            clock: ClockSource::Auto,
            adds_ports: false,
            variant: None,
            seed: None,
        }
    }
}

/// How frames are distributed over workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpreadMode {
    /// To the worker that has the packet's shard of a stateful table, so that few packets are handed off; by flow where there
    /// is no such table.
    Auto,
    /// By a symmetric hash of addresses and ports (the same for both directions of a flow), as RSS of network cards.
    Flow,
}

/// The clock of meters and of address ageing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClockSource {
    /// The frames' timestamps where all frames are from captures, else the machine's clock.
    Auto,
    /// The machine's clock.
    Wall,
    /// The frames' timestamps.
    Frames,
}

/// The MAC table (FDB) of the `normal` action.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MacSection {
    /// The maximum number of learned addresses.
    pub entries_max: usize,
    /// Seconds after which an address that has not been seen is removed.
    pub ageing_s: u32,
}

impl Default for MacSection {
    fn default() -> Self {
        Self { entries_max: 65_536, ageing_s: 300 }
    }
}

/// Connection tracking: the connections that rules with `ct` look up and keep.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSection {
    /// The maximum number of connections. In a full table, new ones take the place of those that have not been answered or are
    /// closing.
    pub connections_max: usize,
    /// The maximum number of connections of each zone; by default, all.
    pub per_zone_max: Option<u32>,
    /// The seconds of timeouts, by their names; those of Open vSwitch by default.
    pub timeouts: BTreeMap<Timeout, u32>,
    /// The bytes of the shortest IP packet that may be a fragment but for the last of its datagram: 1200 of IPv4 and 1280 of IPv6 by
    /// default, as in Open vSwitch. Where a path cuts fragments once more, as one through tunnels, they are shorter.
    pub fragment_min: Option<u16>,
    /// Zones with settings of their own.
    pub zone: Vec<ZoneSection>,
}

/// A zone of connections with settings of its own; those that are left out are those of all zones.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZoneSection {
    /// The zone's number.
    pub number: u16,
    /// The maximum number of its connections.
    pub connections_max: Option<u32>,
    /// The seconds of its timeouts, by their names.
    #[serde(default)]
    pub timeouts: BTreeMap<Timeout, u32>,
}

impl ConnectionSection {
    /// Returns the settings of all zones.
    pub(crate) fn of_all_zones(&self) -> ZoneSettings {
        ZoneSettings { connections_max: self.per_zone_max, timeouts: self.timeouts.clone() }
    }

    /// Returns those of zones with their own.
    pub(crate) fn of_zones(&self) -> BTreeMap<u16, ZoneSettings> {
        let own = |zone: &ZoneSection| {
            let ZoneSection { number, connections_max, timeouts } = zone.clone();
            (number, ZoneSettings { connections_max, timeouts })
        };
        self.zone.iter().map(own).collect()
    }
}

impl Default for ConnectionSection {
    fn default() -> Self {
        let Limits { connections, per_zone } = Limits::default();
        Self {
            connections_max: connections,
            per_zone_max: per_zone,
            timeouts: BTreeMap::new(),
            fragment_min: None,
            zone: Vec::new(),
        }
    }
}

/// A file that the state of packets is saved in while the switch runs: connections, learned addresses and sessions of address
/// translation. At the next start it is read, unless ports or stages are others; what has expired meanwhile is left out.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateSection {
    /// The file, relative to the configuration's folder. Only trusted users may write in its folder.
    pub file: PathBuf,
    /// The least seconds between two copies, 1 to 86400.
    #[serde(default = "every_s")]
    pub every_s: u32,
}

fn every_s() -> u32 {
    1
}

/// Controllers that drive the switch by OpenFlow (1.0, 1.3, 1.4 and 1.5), as they drive Open vSwitch. All tables from 0 to 253 exist
/// then, and `controller` sends packets to the connected controllers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenflowSection {
    /// The bridge's name. Its sockets `BRIDGE.mgmt` and `BRIDGE.snoop` are in `/run/flowlane`, or in
    /// `$XDG_RUNTIME_DIR/flowlane` where the switch does not run as root, for `ovs-ofctl`.
    #[serde(default = "bridge")]
    pub bridge: String,
    /// The identifier of the switch, up to 16 hexadecimal digits.
    #[serde(default)]
    pub datapath_id: Option<String>,
    /// Where controllers connect, or are connected to: `punix:PATH`, `ptcp:[PORT][:ADDRESS]`, `unix:PATH` or
    /// `tcp:ADDRESS[:PORT]`; with TLS, `pssl:[PORT][:ADDRESS]` or `ssl:ADDRESS[:PORT]`; port 6653 by default.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// The versions that the switch speaks: `OpenFlow10`, `OpenFlow13`, `OpenFlow14` and `OpenFlow15`; all by default.
    #[serde(default)]
    pub protocols: Vec<String>,
    /// The mode while none of the controllers that the switch connects to is connected: `secure` by default.
    #[serde(default)]
    pub fail_mode: FailMode,
    /// The files of TLS, for `pssl:` and `ssl:`.
    #[serde(default)]
    pub tls: Option<TlsSection>,
}

/// The files of TLS 1.2 and 1.3 between the switch and its controllers, in PEM format: those of `ovs-vsctl set-ssl`. Relative paths
/// start from the folder of the configuration. Each side accepts the other's certificate where it chains to its authority, whatever
/// host it names. Each new connection uses the files as they are then: a renewed certificate needs no restart.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsSection {
    /// The switch's private key, not encrypted.
    pub private_key: PathBuf,
    /// The switch's certificate, followed by those between it and its authority, if there are any.
    pub certificate: PathBuf,
    /// The certificates of the authorities that sign for controllers.
    pub ca_certificate: PathBuf,
}

fn bridge() -> String {
    "br0".to_owned()
}

/// The controller port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerSection {
    /// The port to open, as `open` of a port.
    pub open: String,
}

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// Its number in rules, 1 to 65279, or 65534 for the port of the switch's own host, which rules call `LOCAL`.
    pub number: u32,
    /// Its name in rules and reports; `portN` by default.
    pub name: Option<String>,
    /// The device: `pcap:FILE[,loop=N][,rate=PPS][,out=FILE]`, `pcap-out:FILE[,rotate=BYTES][,files=N]` (written each second; of 10
    /// files, or N, the oldest goes when another is full), `gen:PROFILE`, `null`,
    /// `tap:NAME`, `afpacket:INTERFACE`, `afxdp:INTERFACE[,mode=auto|skb|native|zerocopy]`, or `patch:NAME,peer=NAME`, whose other end is a port of
    /// this process. Files are relative to the configuration's folder.
    pub open: String,
    /// Match frames of VXLAN, GENEVE, GTP-U, GRE and ERSPAN on their inner headers, with the tunnel fields set: of the configured tunnels,
    /// or of all where none is configured.
    #[serde(default)]
    pub decapsulate: bool,
    /// The routing instance (VRF) of tunnels' outer packets that arrive here.
    #[serde(default)]
    pub vrf: u32,
    /// The treatment of VLANs by `normal`, as in Open vSwitch's Port table. By default, a port with `tag` is an access port, and
    /// another a trunk.
    pub vlan_mode: Option<VlanMode>,
    /// The VLAN of an access port, the native VLAN of a trunk, or the service VLAN of a tunnel, 0 to 4095.
    pub tag: Option<u16>,
    /// The VLANs that a trunk carries; all by default. The native VLAN is always carried.
    #[serde(default)]
    pub trunks: Vec<u16>,
    /// The customer VLANs that a tunnel (`dot1q-tunnel`) carries; all by default.
    #[serde(default)]
    pub cvlans: Vec<u16>,
    /// It exchanges no frames with other protected ports by `normal`.
    #[serde(default)]
    pub protected: bool,
    /// The discipline of the kernel by which packets leave the interface, of a port `afpacket:` or `tap:`. Rules choose its queues by
    /// `set_queue` and `enqueue` on ports `afpacket:`; of a TAP, it is for what the system sends to the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosSection>,
    /// The router's addresses here, each with the length of its network's prefix, as in `192.0.2.1/24`: hosts of these networks
    /// are neighbours, and are answered.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The router's Ethernet address here; by default that of the interface, or one made from the machine, the port's name and
    /// its addresses where there is none (a TAP's belongs to its other end).
    pub mac: Option<String>,
    /// The longest IP packet that the router sends here; by default the MTU of the interface, or 1500.
    pub mtu: Option<u16>,
}

impl PortSection {
    /// Its name in rules and reports.
    pub fn name(&self) -> Cow<'_, str> {
        let unnamed = || Cow::Owned(format!("port{}", self.number));
        self.name.as_deref().map_or_else(unnamed, Cow::Borrowed)
    }
}

/// A table of rules.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The engine that looks rules up.
    #[serde(default)]
    pub engine: TableEngine,
    /// The maximum memory of the engines of access lists, in MiB.
    #[serde(default = "memory_mib")]
    pub memory_mib: usize,
    /// The treatment of packets that no rule matches: `drop`, `controller` or `continue`.
    #[serde(default)]
    pub miss: Miss,
    /// Rules in flow syntax; a rule without `table=` belongs to this table.
    #[serde(default)]
    pub rules: Vec<String>,
    /// A file with further rules, relative to the configuration's folder.
    pub rules_file: Option<PathBuf>,
    /// The maximum number of rules.
    #[serde(default = "rules_max")]
    pub rules_max: usize,
}

impl TableSection {
    /// A table that only controllers fill.
    pub(crate) fn of_controllers(number: u8) -> Self {
        Self {
            number,
            name: String::new(),
            engine: TableEngine::Tuple,
            memory_mib: memory_mib(),
            miss: Miss::Drop,
            rules: Vec::new(),
            rules_file: None,
            rules_max: rules_max(),
        }
    }
}

fn rules_max() -> usize {
    1_000_000
}

fn memory_mib() -> usize {
    1024
}

/// The groups: in the syntax of `ovs-ofctl add-groups`, one a string or line.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupsSection {
    /// Groups, as `group_id=1,type=select,bucket=output:1,bucket=weight:2,output:2`.
    pub groups: Vec<String>,
    /// A file with further groups, relative to the configuration's folder.
    pub groups_file: Option<PathBuf>,
}

/// The engine of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableEngine {
    /// Linear search for up to 8 rules, tuple search for more than 64; between, the one that a short measurement at the start
    /// finds faster.
    #[default]
    Auto,
    /// Linear search.
    Linear,
    /// Tuple search.
    Tuple,
    /// An access list: one of the following three, selected by the number of rules.
    Acl,
    /// All rules in vectors, compared one after the other.
    Brute,
    /// A static tree, with an overlay for rules that have changed since it was built.
    Tree,
    /// Hash tables over planned masks, updated in place.
    Dynamic,
    /// A CUDA device: packets that miss the caches are gathered into batches for it.
    Gpu,
}

/// A meter: packets beyond its rate are dropped, or marked as those to drop first.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterSection {
    /// Its number in rules.
    pub number: u32,
    /// Kilobits per second (frames without checksum). A meter has this rate or the next.
    pub rate_kbps: Option<u64>,
    /// Packets per second.
    pub rate_pps: Option<u64>,
    /// Kilobits or packets of a burst; a tenth of a second's worth by default.
    pub burst: Option<u64>,
    /// Levels by which the drop precedence of packets beyond the rate rises (classes of assured forwarding, RFC 2597). They are
    /// dropped by default.
    #[serde(default)]
    pub remark: Option<NonZeroU8>,
    /// Further rates: to a packet beyond several, the band of the highest rate applies.
    #[serde(default)]
    pub band: Vec<BandSection>,
}

/// A further band of a meter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandSection {
    /// The rate, in the unit of the meter's own.
    pub rate: NonZeroU64,
    /// Kilobits or packets of a burst; a tenth of a second's worth by default.
    pub burst: Option<u64>,
    /// Levels by which the drop precedence of packets beyond the rate rises; they are dropped by default.
    #[serde(default)]
    pub remark: Option<NonZeroU8>,
}

/// An error of a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The file's text, where it could be read.
    pub text: String,
    /// The bytes of the text that are wrong.
    pub span: Option<std::ops::Range<usize>>,
    /// The problem.
    pub message: String,
    /// A way to fix it.
    pub help: Option<String>,
    /// The environment lacks something; the configuration is not wrong.
    pub environment: bool,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Where the file cannot be read, is not TOML, or has unknown or ill-typed keys.
    pub(crate) fn read(file: &Path) -> Result<(Self, Source), ConfigError> {
        match flowlane_capture::read_text(file) {
            Ok(text) => Self::parse(Source { file: file.to_owned(), text }),
            Err(error) => {
                let source = Source { file: file.to_owned(), text: String::new() };
                let help = error.help.as_deref().unwrap_or_default();
                Err(source.error(&KeyPath::default(), error.problem, help))
            }
        }
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// Where it is not TOML, or has unknown or ill-typed keys.
    pub(crate) fn parse(source: Source) -> Result<(Self, Source), ConfigError> {
        match toml::from_str(&source.text) {
            Ok(config) => Ok((config, source)),
            Err(error) => {
                let help = suggest(error.message()).unwrap_or_default();
                let root = KeyPath::default();
                Err(ConfigError { span: error.span(), ..source.error(&root, error.message(), help) })
            }
        }
    }
}

/// For serde's "unknown field `a`, expected one of `b`, `c`" (or variant), suggests the nearest of those expected.
fn suggest(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let (unknown, known) = (quoted.next()?, quoted);
    if !message.starts_with("unknown") {
        return None;
    }
    flowlane::named_enum::nearest(unknown, known).map(|name| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let error = toml::from_str::<Config>("[[port]]\nnumber = 1\nopne = \"null\"\n").unwrap_err();
        assert_eq!(suggest(error.message()).as_deref(), Some("did you mean `open`?"));
        let error = toml::from_str::<Config>("[cahce]\n").unwrap_err();
        assert_eq!(suggest(error.message()).as_deref(), Some("did you mean `cache`?"));
        let error = toml::from_str::<Config>("[[table]]\nnumber = 0\nengine = \"tupel\"").unwrap_err();
        assert_eq!(suggest(error.message()).as_deref(), Some("did you mean `tuple`?"));
    }

    #[test]
    fn everything_but_ports_and_tables_has_a_default() {
        let config: Config = toml::from_str("").unwrap();
        assert_eq!((config.switch.burst, config.cache.exact_entries), (64, 8192));
        assert_eq!(config.cache.idle_ns, 10_000_000_000);
        let library = flowlane::cache::MegaflowConfig::default();
        let limits = (config.cache.megaflows_max, config.cache.masks_max);
        assert_eq!(limits, (library.flows_max, library.masks_max));
    }

    #[test]
    fn enums_of_other_crates_are_read_by_their_names() {
        let config: Config =
            toml::from_str("switch.variant = \"avx2\"\ngpu.method = \"bloom\"\ncache.idle_s = 3").unwrap();
        assert_eq!(config.switch.variant, Some(ByName(Variant::Avx2)));
        assert_eq!(config.gpu.method, GpuMethod(Some(flowlane_gpu::Method::Bloom)));
        assert_eq!(config.cache.idle_ns, 3_000_000_000);
        let schema = schemars::schema_for!(Config).to_value().to_string();
        for part in [r#"["scalar","sse42","avx2","avx512""#, r#""auto","linear","tuple","bloom""#, "idle_s"] {
            assert!(schema.contains(part), "{part} in {schema}");
        }
        assert!(!schema.contains("idle_ns"), "{schema}");
    }
}
