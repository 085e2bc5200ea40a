//! The switch's configuration: TOML, with a JSON schema made from these types.

mod function;
mod gpu;
mod source;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::function::{
    AssetTableSection, FilterTableSection, ForwardProtocolChoice, ForwardSection, LookupsChoice,
    NatTableSection,
};
pub use self::gpu::{GpuMethodChoice, GpuSection};
pub(crate) use self::source::{KeyPath, Source};

use crate::datapath::CacheConfig;

/// A switch.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Flowlane switch configuration")]
pub struct Config {
    /// How the switch works as a whole.
    pub switch: SwitchConfig,
    /// Sizes and policies of the flow caches.
    pub cache: CacheSection,
    /// The CUDA device behind tables of `engine = "gpu"`.
    pub gpu: GpuSection,
    /// The address table of the `normal` action.
    pub macs: MacSection,
    /// Where `controller` and `sample` send; without it, such packets are dropped and counted.
    pub controller: Option<ControllerSection>,
    /// The ports.
    pub port: Vec<PortSection>,
    /// The tables of the pipeline. Packets enter at table 0.
    pub table: Vec<TableSection>,
    /// The tables of routes; their numbers are in one sequence with those of the other tables.
    pub route_table: Vec<RouteTableSection>,
    /// Packet filters; their numbers are in the same sequence.
    pub filter_table: Vec<FilterTableSection>,
    /// Asset detection, likewise.
    pub asset_table: Vec<AssetTableSection>,
    /// Address translation, likewise.
    pub nat_table: Vec<NatTableSection>,
    /// The tunnels that end here, and that packets leave through.
    pub tunnel: Vec<TunnelSection>,
    /// What tunnels' packets must be like to be accepted.
    pub tunnel_policy: TunnelPolicySection,
    /// The meters that rules may name.
    pub meter: Vec<MeterSection>,
}

/// How the switch works as a whole.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// Frames taken from a port at a time, 1 to 64.
    pub burst: usize,
    /// Threads that switch packets, each on a core of its own where there are as many: 1 to 64; 0 for one on every core. Flows
    /// are spread over them.
    pub workers: usize,
    /// How ports that spread frames over workers themselves do that: captures, generators, and those that one worker receives from.
    pub spread: SpreadChoice,
    /// What happens to malformed frames.
    pub malformed: MalformedChoice,
    /// By what clock meters and address ageing go.
    pub clock: ClockChoice,
    /// The SIMD variant of parser and caches; where it is left out, what `flowlane tune` or the built-in table
    /// says.
    pub variant: Option<VariantChoice>,
    /// Keys the hashes of all tables. Random where it is left out, so that nobody outside can make keys
    /// collide; given only to repeat a run exactly: then `auto` engines are not measured either.
    pub seed: Option<u32>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            burst: 64,
            workers: 1,
            spread: SpreadChoice::Auto,
            malformed: MalformedChoice::Drop,
            clock: ClockChoice::Auto,
            variant: None,
            seed: None,
        }
    }
}

/// How frames are spread over workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpreadChoice {
    /// To whoever has their share of what a function knows, so that few are handed over; by flow where there is no such function.
    Auto,
    /// By a hash of addresses and ports that both directions of a flow have in common, as network cards do.
    Flow,
}

/// What happens to malformed frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MalformedChoice {
    /// They are dropped.
    Drop,
    /// They are matched on what could be parsed.
    Forward,
}

/// By what clock meters and address ageing go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClockChoice {
    /// The frames' times where all frames come from captures, else the machine's.
    Auto,
    /// The machine's.
    Wall,
    /// The frames' times.
    Frames,
}

/// A SIMD variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VariantChoice {
    /// Portable code: the definition.
    Scalar,
    /// SSE4.2.
    Sse42,
    /// AVX2.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// Sizes and policies of the flow caches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSection {
    /// Entries of the exact-match cache (128 bytes each); 0 for none.
    pub exact_entries: usize,
    /// One in so many packets that a megaflow matches is inserted into the exact-match cache.
    pub exact_insert_inverse: u32,
    /// Entries of the signature-match cache (8 bytes each); 0 for none.
    pub signature_entries: usize,
    /// One in so many packets that a megaflow matches is inserted into the signature-match cache.
    pub signature_insert_inverse: u32,
    /// Ask caches, or only the tables, as the traffic is such that it pays, which is measured all the time, and make
    /// megaflows for packets that come again; if not, ask all caches always, and make a megaflow for every packet that none
    /// knows.
    pub adaptive: bool,
    /// Tell traffic of few flows from traffic of many, and remember for each what pays: changes of traffic are then
    /// followed at once, at most once a second.
    pub hybrid: bool,
    /// The most megaflows (about 100 bytes each); 0 for none: every packet goes through the tables.
    pub megaflows_max: usize,
    /// The most distinct megaflow masks.
    pub masks_max: usize,
    /// Seconds after which a megaflow that no packet has matched is removed.
    pub idle_s: u64,
}

impl Default for CacheSection {
    fn default() -> Self {
        let cache = CacheConfig::default();
        Self {
            exact_entries: cache.exact_entries,
            exact_insert_inverse: cache.exact_insert_inverse,
            signature_entries: cache.signature_entries,
            signature_insert_inverse: cache.signature_insert_inverse,
            adaptive: cache.adaptive,
            hybrid: cache.hybrid,
            megaflows_max: cache.megaflows_max,
            masks_max: cache.masks_max,
            idle_s: cache.idle_ns / 1_000_000_000,
        }
    }
}

/// The address table of the `normal` action.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MacSection {
    /// The most learned addresses.
    pub entries_max: usize,
    /// Seconds after which an address that has not been seen is forgotten.
    pub ageing_s: u32,
}

impl Default for MacSection {
    fn default() -> Self {
        Self { entries_max: 65_536, ageing_s: 300 }
    }
}

/// The controller port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerSection {
    /// The port to open, as `open` of a port.
    pub open: String,
}

/// A port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// Its number in rules, 1 to 65279.
    pub number: u32,
    /// Its name in rules and reports; `portN` where it is left out.
    pub name: Option<String>,
    /// What it is: `pcap:FILE[,loop=N][,rate=PPS][,out=FILE]`, `pcap-out:FILE`, `gen:PROFILE`, `null`,
    /// `tap:NAME`, `afpacket:INTERFACE` or `afxdp:INTERFACE[,mode=auto|skb|native|zerocopy]`. Files are relative to the configuration's folder.
    pub open: String,
    /// Match frames of VXLAN, GENEVE and GTP-U on what is inside, with the tunnel fields set: of the tunnels that are
    /// configured, or of all where none is.
    #[serde(default)]
    pub decapsulate: bool,
    /// The routing instance that tunnels' outer packets come in through.
    #[serde(default)]
    pub vrf: u32,
}

/// A table.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The engine that finds rules.
    #[serde(default)]
    pub engine: EngineChoice,
    /// The most memory that the engines of access lists may take, in MiB.
    #[serde(default = "rules_memory_mib")]
    pub memory_mib: usize,
    /// What happens to a packet that no rule matches: `drop`, `controller` or `continue`.
    #[serde(default)]
    pub miss: MissChoice,
    /// Rules in flow syntax; a rule that names no table belongs to this one.
    #[serde(default)]
    pub rules: Vec<String>,
    /// A file of further rules, relative to the configuration's folder.
    pub rules_file: Option<PathBuf>,
    /// The most rules.
    #[serde(default = "rules_max")]
    pub rules_max: usize,
}

fn rules_max() -> usize {
    1_000_000
}

fn rules_memory_mib() -> usize {
    1024
}

/// The engine of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Linear search for up to 8 rules, tuple search for more than 64; between, the one that a short contest at the start
    /// finds faster.
    #[default]
    Auto,
    /// Linear search.
    Linear,
    /// Tuple search.
    Tuple,
    /// An access list: of the next three the one that suits the number of rules.
    Acl,
    /// All rules in vectors, compared one after the other.
    Brute,
    /// A static tree, with what has changed since beside it.
    Tree,
    /// Hash tables over planned masks, changed in place.
    Dynamic,
    /// A CUDA device: packets that no cache knows are gathered into batches for it.
    Gpu,
}

/// What happens to a packet that no rule of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MissChoice {
    /// It is dropped.
    #[default]
    Drop,
    /// It goes to the controller port.
    Controller,
    /// It goes on in the next table.
    Continue,
}

/// A table of routes: packets that a rule sends here (`goto_table`) go where their destination's longest prefix says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// What happens to a packet without a route: `drop` or `controller`.
    #[serde(default)]
    pub miss: RouteMissChoice,
    /// How routes are looked up.
    #[serde(default)]
    pub engine: FibChoice,
    /// Routes: a prefix and the name of a next hop, as in `192.0.2.0/24 198.51.100.1`, or as `ip route` prints them.
    #[serde(default)]
    pub routes: Vec<String>,
    /// A file of further routes, relative to the configuration's folder.
    pub routes_file: Option<PathBuf>,
    /// The most routes of each family.
    #[serde(default = "routes_max")]
    pub routes_max: usize,
    /// The most memory that the forwarding tables may take, in MiB.
    #[serde(default = "routes_memory_mib")]
    pub memory_mib: usize,
    /// The next hops that routes name.
    #[serde(default)]
    pub next_hop: Vec<NextHopSection>,
}

fn routes_max() -> usize {
    4_000_000
}

fn routes_memory_mib() -> usize {
    1024
}

/// What happens to a packet without a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteMissChoice {
    /// It is dropped.
    #[default]
    Drop,
    /// It goes to the controller port.
    Controller,
}

/// How routes are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FibChoice {
    /// What suits the number of routes.
    #[default]
    Auto,
    /// The structure that stays in the caches.
    Compact,
    /// DIR-24-8 for IPv4; IPv6 has the compact structure only.
    Direct,
}

/// A next hop: what happens to the packets of its routes, or among which others their flows are shared.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextHopSection {
    /// Its name in routes: an address, a number, or `dev NAME`; `blackhole`, `unreachable`, `prohibit`, `local`.
    pub name: String,
    /// Actions as in rules, or
    pub actions: Option<String>,
    /// next hops that share its flows.
    #[serde(default)]
    pub members: Vec<MemberSection>,
}

/// A member of a group of next hops.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberSection {
    /// The next hop's name.
    pub name: String,
    /// Its share, in proportion to those of the others.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// A tunnel. Packets of it that come in through a port with `decapsulate` are matched on what is inside; `encap:NUMBER`
/// sends packets into it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelSection {
    /// Its number in actions.
    pub number: u32,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The protocol.
    pub kind: TunnelKindChoice,
    /// VNI (VXLAN, GENEVE: 24 bits) or TEID (GTP-U: 32 bits).
    pub id: u32,
    /// TEID of packets that leave, where GTP-U's other end wants another; `id` where it is left out.
    pub id_out: Option<u32>,
    /// This node's address: the outer destination of what comes, the outer source of what leaves.
    pub local: IpAddr,
    /// The other end's address. Left out: packets come from anybody, and none leave.
    pub remote: Option<IpAddr>,
    /// The routing instance of the ports that its packets come in through.
    #[serde(default)]
    pub vrf: u32,
    /// What rules see as `in_port` of packets that come out of it; the port that brought them where it is left out.
    pub in_port: Option<u32>,
    /// What is inside: by default `ethernet`, and `ipv4` for GTP-U.
    pub inner: Option<InnerChoice>,
    /// Outer MAC addresses of what leaves, as in `02:00:00:00:00:01`; zeros where they are left out.
    pub eth_src: Option<String>,
    /// The next hop's.
    pub eth_dst: Option<String>,
    /// Outer TTL or hop limit.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Outer DSCP; that of the inner packet where it is left out. ECN is always the inner packet's (RFC 6040).
    pub dscp: Option<u8>,
    /// The longest outer IP packet.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// Whether outer UDP checksums are computed; by default over IPv6 only.
    pub udp_checksum: Option<bool>,
    /// GENEVE options of what leaves, in hexadecimal.
    #[serde(default)]
    pub options: String,
}

fn ttl() -> u8 {
    64
}

fn mtu() -> u16 {
    1600
}

/// The protocol of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TunnelKindChoice {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// 3GPP TS 29.281.
    Gtpu,
}

/// What is inside a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InnerChoice {
    /// Ethernet frames.
    Ethernet,
    /// IPv4 packets.
    Ipv4,
    /// IPv6 packets.
    Ipv6,
}

/// What tunnels' packets must be like to be accepted.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelPolicySection {
    /// Verify IPv4 header checksums.
    pub verify_ipv4_checksum: bool,
    /// Verify UDP checksums where there are any.
    pub verify_udp_checksum: bool,
    /// Accept UDP over IPv6 without checksum (RFC 6935).
    pub ipv6_zero_checksum: bool,
    /// Critical GENEVE options that are understood: class and type.
    pub geneve_options: Vec<(u16, u8)>,
}

impl Default for TunnelPolicySection {
    fn default() -> Self {
        Self {
            verify_ipv4_checksum: true,
            verify_udp_checksum: true,
            ipv6_zero_checksum: false,
            geneve_options: Vec::new(),
        }
    }
}

/// A meter: packets beyond its rate are dropped.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterSection {
    /// Its number in rules.
    pub number: u32,
    /// Kilobits a second (frames without checksum), or
    pub rate_kbps: Option<u64>,
    /// packets a second.
    pub rate_pps: Option<u64>,
    /// Kilobits or packets that may come at once; a tenth of a second's worth where it is left out.
    pub burst: Option<u64>,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Its text, where it could be read.
    pub text: String,
    /// Where in the text, in bytes.
    pub span: Option<std::ops::Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: Option<String>,
    /// It is the environment that lacks something, not the configuration that is wrong.
    pub environment: bool,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Where the file cannot be read, is no TOML, or has unknown or ill-typed keys.
    pub(crate) fn read(file: &Path) -> Result<(Self, Source), ConfigError> {
        let text = std::fs::read_to_string(file);
        let source = Source { file: file.to_owned(), text: text.as_ref().map_or("", |text| text).to_owned() };
        let root = KeyPath::default();
        text.map_err(|error| source.error(&root, format!("cannot be read: {error}"), ""))?;
        match toml::from_str(&source.text) {
            Ok(config) => Ok((config, source)),
            Err(error) => {
                let help = suggest(error.message()).unwrap_or_default();
                Err(ConfigError { span: error.span(), ..source.error(&root, error.message(), help) })
            }
        }
    }
}

/// For serde's "unknown field `a`, expected one of `b`, `c`" (or variant): the nearest of those expected.
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
        let library = flowlane::cache::MegaflowConfig::default();
        let limits = (config.cache.megaflows_max, config.cache.masks_max);
        assert_eq!(limits, (library.flows_max, library.masks_max));
    }
}
