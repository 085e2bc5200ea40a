//! Arguments of `flowlane switch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

const SWITCH_RUN_HELP: &str = "\
Runs until every port has ended, --duration or --packets is reached, or Ctrl-C; then prints the counters of \
ports, rules and stages.

Examples:
  flowlane switch run examples/quickstart.toml
  flowlane switch run gateway.toml --duration 60 --json > counters.json
  flowlane switch run gateway.toml --validate-simd
  flowlane switch run gswitch.toml --max-delay 500
  flowlane switch run bridge.toml --socket /tmp/bridge.sock
  flowlane switch run gateway.toml --changes changes.flows
  flowlane switch run gateway.toml --take-over      # upgrade, or restart with other ports and tables

With --take-over, the configuration is read and its tables are built first. Then the running switch stops, hands over its \
state and ends; it goes on if the new one does not. Rules are those of the running switch afterwards: `switch reload` \
takes those of the file.

As a service (NOTIFY_SOCKET, WATCHDOG_USEC: sd_notify(3)) it reports when it is ready, reloads and ends, and that its workers make \
progress: docs/operation.md.

With a section [metrics] in the configuration, http://127.0.0.1:9464/ is a page of the counters, and \
http://127.0.0.1:9464/metrics has them for Prometheus (docs/metrics.md):
  curl -s http://127.0.0.1:9464/metrics

A file of changes has one flow-mod per line, in the syntax of `ovs-ofctl bundle`, after its time in seconds:
  @0.5 add table=0,priority=100,tcp,tp_dst=22,actions=drop
  @2.5 delete table=0,tcp";

/// A port that is added: the keys of a section `[[port]]`.
#[derive(Args, Debug, serde::Serialize)]
pub(crate) struct AddedPort {
    /// The device, as `open` of a section [[port]]: tap:NAME, afpacket:INTERFACE, afxdp:INTERFACE, pcap:FILE, …
    pub(crate) open: String,
    /// Its number in rules [default: the lowest that is free].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u32>,
    /// Its name in rules and reports [default: portN].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The VLAN of an access port, or the native VLAN of a trunk.
    #[arg(long, value_name = "VLAN")]
    pub(crate) tag: Option<u16>,
    /// The VLANs of a trunk [default: all].
    #[arg(long, value_name = "VLAN,…", value_delimiter = ',')]
    pub(crate) trunks: Vec<u16>,
    /// access, trunk, native-tagged, native-untagged or dot1q-tunnel.
    #[arg(long, value_name = "MODE")]
    pub(crate) vlan_mode: Option<String>,
    /// Match frames of tunnels on their inner headers.
    #[arg(long)]
    pub(crate) decapsulate: bool,
}

#[derive(Args, Debug)]
#[command(after_help = SWITCH_RUN_HELP)]
pub(crate) struct SwitchOptions {
    /// Configuration file (TOML).
    pub(crate) config: PathBuf,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Stop after this many received packets.
    #[arg(long, value_name = "N")]
    pub(crate) packets: Option<u64>,
    /// Maximum time in microseconds that a packet waits for its batch to fill, for tables on a CUDA device; overrides the
    /// configuration.
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) max_delay: Option<u64>,
    /// Maximum number of rules shown per table, those with most packets first.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) limit: usize,
    /// Run every SIMD variant on every packet, compare with the scalar one, and stop at a difference (exit code 1).
    #[arg(long)]
    pub(crate) validate_simd: bool,
    /// Path of the control socket [default: the standard path, if the switch has system ports (TAP, AF_PACKET)].
    #[arg(long, value_name = "PATH", env = "FLOWLANE_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Take the place of the switch that runs on the control socket, with its connections, sessions, learned addresses, rules,
    /// groups, meters and added routes; without one, start as usual.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Apply the flow-mods of this file, each at its time in seconds since the start.
    #[arg(long, value_name = "FILE")]
    pub(crate) changes: Option<PathBuf>,
    /// Print the counters as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The running switch that a command addresses.
#[derive(Args, Debug)]
pub(crate) struct RunningSwitch {
    /// Control socket of the switch [default: the standard path].
    #[arg(long, value_name = "PATH", env = "FLOWLANE_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Wait up to this many seconds for a switch that is starting.
    #[arg(long, value_name = "SECONDS", default_value = "0", hide_default_value = true, value_parser = super::values::seconds)]
    pub(crate) wait: Duration,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchVerb {
    /// Run a switch.
    Run(SwitchOptions),
    /// Check a configuration and its rules, without opening a port.
    #[command(
        after_help = "Examples:\n  flowlane switch check examples/quickstart.toml\n  flowlane switch check --explain examples/firewall.toml > firewall.flows\n  flowlane switch check --json examples/quickstart.toml"
    )]
    Check {
        /// Configuration file (TOML).
        config: PathBuf,
        /// Print counts, errors and warnings with their places as JSON.
        #[arg(long, conflicts_with = "explain")]
        json: bool,
        /// Print the rules that the section [firewall] expands to, as `ovs-ofctl parse-flows` reads them.
        #[arg(long)]
        explain: bool,
    },
    /// Print the JSON schema of the configuration, for editors.
    #[command(after_help = "Example:\n  flowlane switch schema > flowlane.schema.json")]
    Schema,
    /// Show the counters of a running switch.
    #[command(after_help = "Example:\n  flowlane switch show")]
    Show {
        #[command(flatten)]
        running: RunningSwitch,
        /// Maximum number of rules shown per table, those with most packets first.
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Show processing time: the stages of each worker, and packet latency from receive to send.
    #[command(after_help = "Example:\n  flowlane switch stages")]
    Stages {
        #[command(flatten)]
        running: RunningSwitch,
    },
    /// Show the assignment of rx queues to workers, their load and losses.
    #[command(after_help = "Example:\n  flowlane switch rxq")]
    Rxq {
        #[command(flatten)]
        running: RunningSwitch,
    },
    /// Show workers and ports live: load, packet rates, losses and latency. Ctrl-C quits.
    #[command(
        after_help = "Examples:\n  flowlane switch top\n  flowlane switch top --interval 5\n  flowlane switch top --count 1 --json"
    )]
    Top {
        #[command(flatten)]
        running: RunningSwitch,
        /// Seconds between two updates; each shows the interval since the previous one.
        #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
        interval: f64,
        /// Exit after this many updates.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// List the rules of a running switch, with their counters.
    #[command(
        after_help = "Examples:\n  flowlane switch flows\n  flowlane switch flows --table 0 tcp,tp_dst=22\n  flowlane switch flows --table access"
    )]
    Flows {
        #[command(flatten)]
        running: RunningSwitch,
        /// Only this table, by number or name.
        #[arg(long, value_name = "TABLE")]
        table: Option<String>,
        /// Only rules within this flow, in the syntax of rule files without actions.
        flow: Vec<String>,
    },
    /// Add a rule to a running switch, replacing the one with the same priority and match.
    #[command(
        after_help = "Example:\n  flowlane switch add-flow table=0,priority=100,tcp,tp_dst=22,actions=drop"
    )]
    AddFlow {
        #[command(flatten)]
        running: RunningSwitch,
        /// The rule, in the syntax of rule files; idle_timeout= and hard_timeout= (seconds) make it expire.
        #[arg(required = true)]
        flow: Vec<String>,
    },
    /// Change the actions of rules within a flow.
    #[command(after_help = "Example:\n  flowlane switch mod-flow tcp,tp_dst=22,actions=output:2")]
    ModFlow {
        #[command(flatten)]
        running: RunningSwitch,
        /// Match priority and match fields exactly.
        #[arg(long)]
        strict: bool,
        /// Match and actions, in the syntax of rule files.
        #[arg(required = true)]
        flow: Vec<String>,
    },
    /// Delete rules within a flow; prints their counters.
    #[command(
        after_help = "Examples:\n  flowlane switch del-flow tcp,tp_dst=22\n  flowlane switch del-flow --strict priority=100,tcp,tp_dst=22\n  flowlane switch del-flow cookie=0x10/0xf0"
    )]
    DelFlow {
        #[command(flatten)]
        running: RunningSwitch,
        /// Match priority and match fields exactly.
        #[arg(long)]
        strict: bool,
        /// The match, in the syntax of rule files; without one, all rules.
        flow: Vec<String>,
    },
    /// Apply a file of flow-mods atomically: each line begins with add, modify, modify_strict, delete or delete_strict.
    #[command(after_help = "Example:\n  flowlane switch bundle changes.flows")]
    Bundle {
        #[command(flatten)]
        running: RunningSwitch,
        /// File of flow-mods.
        file: PathBuf,
    },
    /// Reload the configuration's rules, groups, meters, mirrors and ports; unchanged rules keep their counters, and unchanged ports stay open. SIGHUP
    /// does the same.
    #[command(after_help = "Examples:\n  flowlane switch reload\n  flowlane switch reload other.toml")]
    Reload {
        #[command(flatten)]
        running: RunningSwitch,
        /// Another configuration, which differs in rules, groups, meters, mirrors, ports and zones only.
        file: Option<PathBuf>,
    },
    /// Add a port to a running switch, until it is removed or the switch ends.
    #[command(
        after_help = "Examples:\n  flowlane switch add-port tap:vm7\n  flowlane switch add-port afpacket:eth2 --number 9 --name uplink\n  flowlane switch add-port tap:vm8 --tag 100\n\nInterfaces need capabilities, which a switch keeps with `adds_ports = true` in its section [switch]. Files are relative to the folder of the switch's configuration."
    )]
    AddPort {
        #[command(flatten)]
        running: RunningSwitch,
        #[command(flatten)]
        port: AddedPort,
    },
    /// Remove a port from a running switch.
    #[command(after_help = "Examples:\n  flowlane switch del-port vm7\n  flowlane switch del-port 9")]
    DelPort {
        #[command(flatten)]
        running: RunningSwitch,
        /// The port's name or number.
        port: String,
    },
    /// Show the FDB (learned MAC addresses).
    #[command(after_help = "Example:\n  flowlane switch fdb")]
    Fdb {
        #[command(flatten)]
        running: RunningSwitch,
    },
    /// List routes, find the one of an address, or add and remove routes.
    #[command(
        after_help = "Examples:\n  flowlane switch routes\n  flowlane switch routes 203.0.113.7                        # the route that packets for it take\n  flowlane switch routes --add 'default via 198.51.100.1' --add '10.0.0.0/8 via 192.0.2.9 dev lan'\n  flowlane switch routes --delete 10.0.0.0/8\n\nRoutes that are added last until the switch ends, or the last of those that take its place, and go before those of the configuration."
    )]
    Routes {
        #[command(flatten)]
        running: RunningSwitch,
        /// The address whose route is shown.
        #[arg(value_name = "ADDRESS", conflicts_with_all = ["add", "delete"])]
        address: Option<std::net::IpAddr>,
        /// The table of routes by number or name, if there are several.
        #[arg(long, value_name = "TABLE")]
        table: Option<String>,
        /// Add a route, as `ip route` prints it.
        #[arg(long, value_name = "ROUTE")]
        add: Vec<String>,
        /// Remove a route that was added.
        #[arg(long, value_name = "PREFIX")]
        delete: Vec<String>,
        /// Routes that are listed at most [default: 1000].
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// List a router's ports and neighbours, or forget neighbours.
    #[command(
        after_help = "Examples:\n  flowlane switch neighbours\n  flowlane switch neighbours --port wan\n  flowlane switch neighbours --address 192.0.2.7 --flush   # it is asked for again"
    )]
    Neighbours {
        #[command(flatten)]
        running: RunningSwitch,
        /// Neighbours at this port only.
        #[arg(long, value_name = "NAME")]
        port: Option<String>,
        /// The neighbour with this address only.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<std::net::IpAddr>,
        /// Forget them.
        #[arg(long)]
        flush: bool,
    },
    /// List connections that rules with `ct` keep, count them by zone and state, follow their changes, or remove them.
    #[command(
        after_help = "Examples:\n  flowlane switch connections\n  flowlane switch connections --zone 5 --proto tcp --address 192.0.2.7\n  flowlane switch connections --count\n  flowlane switch connections --zone 5 --flush\n  flowlane switch connections --follow --proto tcp\n  flowlane switch connections --text          # as ovs-appctl dpctl/dump-conntrack"
    )]
    Connections {
        #[command(flatten)]
        running: RunningSwitch,
        /// Connections of this zone only.
        #[arg(long, value_name = "N")]
        zone: Option<u16>,
        /// Connections of this protocol only: tcp, udp, icmp, icmpv6, sctp, or a number.
        #[arg(long, value_name = "NAME")]
        proto: Option<String>,
        /// Connections with this address at an end, before or after translation.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<std::net::IpAddr>,
        /// Connections with this port at an end.
        #[arg(long, value_name = "N")]
        port: Option<u16>,
        /// Connections with this mark; only its bits in a mask count, if there is one.
        #[arg(long, value_name = "VALUE[/MASK]")]
        mark: Option<String>,
        /// Connections that are listed at most [default: 1000], or changes after which --follow ends [default: any number].
        #[arg(long, value_name = "N", conflicts_with_all = ["count", "flush"])]
        limit: Option<usize>,
        /// Count them by zone and state, and list none.
        #[arg(long, conflicts_with_all = ["flush", "text"])]
        count: bool,
        /// Print each as Open vSwitch does.
        #[arg(long, conflicts_with = "flush")]
        text: bool,
        /// Remove them.
        #[arg(long)]
        flush: bool,
        /// Print a line for each connection that begins, changes its state, mark or label, or ends. Ctrl-C quits.
        #[arg(long, conflicts_with_all = ["count", "flush"])]
        follow: bool,
    },
    /// List zones of connections with their limits and timeouts, or change these until the switch ends or is reloaded.
    #[command(
        after_help = "Examples:\n  flowlane switch zones\n  flowlane switch zones --zone 5 --connections-max 1000 --timeout tcp_established=600 --timeout udp_first=10\n  flowlane switch zones --zone 5 --remove      # as zones without settings of their own\n  flowlane switch zones --all --timeout tcp_established=3600"
    )]
    Zones {
        #[command(flatten)]
        running: RunningSwitch,
        /// The zone; without it, all are listed.
        #[arg(long, value_name = "N")]
        zone: Option<u16>,
        /// Change zones without settings of their own.
        #[arg(long, conflicts_with_all = ["zone", "remove"])]
        all: bool,
        /// The connections that it may have.
        #[arg(long, value_name = "N")]
        connections_max: Option<u32>,
        /// A timeout of its connections; it begins with their next packets.
        #[arg(long, value_name = "NAME=SECONDS")]
        timeout: Vec<String>,
        /// Take its own settings away, before others are set.
        #[arg(long, requires = "zone")]
        remove: bool,
    },
    /// Trace a packet: every table, rule, stage, modification and port. Nothing is sent, learned or counted.
    #[command(
        after_help = "Examples:\n  flowlane switch trace in_port=1,tcp,nw_dst=10.0.0.5,tp_dst=22\n  flowlane switch trace --in-port 2 capture.pcap:7\n  flowlane switch trace --in-port 1 ffffffffffff0200000000010806...\n  flowlane switch trace --ct-next trk,est in_port=1,tcp,nw_dst=10.0.0.5,tp_dst=22"
    )]
    Trace {
        #[command(flatten)]
        running: RunningSwitch,
        /// Ingress port number [default: the flow's in_port, else the first port].
        #[arg(long, value_name = "N")]
        in_port: Option<u32>,
        /// The ct_state that the next `ct` finds, instead of that of a connection; may be given several times.
        #[arg(long, value_name = "FLAGS")]
        ct_next: Vec<String>,
        /// A flow, in the syntax of rule files, to build a packet from; FILE:N, the Nth packet of a capture, from 1; or a
        /// frame in hexadecimal.
        packet: String,
    },
    /// Stop a running switch.
    #[command(after_help = "Example:\n  flowlane switch stop")]
    Stop {
        #[command(flatten)]
        running: RunningSwitch,
    },
}
