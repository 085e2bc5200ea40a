//! The arguments of `flowlane switch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const SWITCH_RUN_HELP: &str = "\
Runs until every port has come to its end, --duration or --packets is reached, or Ctrl-C; then prints \
what went through each port, rule and stage.

Examples:
  flowlane switch run examples/quickstart.toml
  flowlane switch run gateway.toml --duration 60 --json > counters.json
  flowlane switch run gateway.toml --validate-simd
  flowlane switch run gswitch.toml --max-delay 500
  flowlane switch run bridge.toml --socket /tmp/bridge.sock
  flowlane switch run gateway.toml --changes changes.flows

A file of changes has a flow-mod a line, as `ovs-ofctl bundle` reads them, and when to make it:
  @0.5 add table=0,priority=100,tcp,tp_dst=22,actions=drop
  @2.5 delete table=0,tcp";

#[derive(Args, Debug)]
#[command(after_help = SWITCH_RUN_HELP)]
pub(crate) struct SwitchOptions {
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Stop after this many received packets.
    #[arg(long, value_name = "N")]
    pub(crate) packets: Option<u64>,
    /// Microseconds that a packet waits at most for others to fill its batch, where a table is on a CUDA device;
    /// instead of what the configuration says.
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) max_delay: Option<u64>,
    /// Most rules shown of each table, those with most packets first.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) rules: usize,
    /// Run every SIMD variant on every packet, compare with the scalar one, and stop at a difference (exit
    /// code 1).
    #[arg(long)]
    pub(crate) validate_simd: bool,
    /// Answer on this control socket. Where it is left out, a switch with ports of the system (TAP, AF_PACKET) answers on
    /// the usual one.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Make the changes in this file, each at its time, in seconds since the start.
    #[arg(long, value_name = "FILE")]
    pub(crate) changes: Option<PathBuf>,
    /// Print the counters as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which switch that runs, and how it is told.
#[derive(Args, Debug)]
pub(crate) struct Running {
    /// The switch's control socket; where it is left out, the usual one.
    #[arg(long, value_name = "PATH", env = "FLOWLANE_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchVerb {
    /// Run a switch.
    Run(SwitchOptions),
    /// Check a configuration and the rules that it names, without opening a port.
    #[command(after_help = "Example:\n  flowlane switch check examples/quickstart.toml")]
    Check {
        /// The configuration.
        config: PathBuf,
    },
    /// Print the JSON schema of the configuration, for editors.
    #[command(after_help = "Example:\n  flowlane switch schema > flowlane.schema.json")]
    Schema,
    /// Show what a switch that runs has done so far.
    #[command(after_help = "Example:\n  flowlane switch show")]
    Show {
        #[command(flatten)]
        running: Running,
        /// Most rules shown of each table, those with most packets first.
        #[arg(long, default_value_t = 20, value_name = "N")]
        rules: usize,
    },
    /// Show where packets' time goes: the stages of each worker, and how long packets take from receive to send.
    #[command(after_help = "Example:\n  flowlane switch stages")]
    Stages {
        #[command(flatten)]
        running: Running,
    },
    /// Show which worker receives from which port, the load that this is, and what was lost.
    #[command(after_help = "Example:\n  flowlane switch rxq")]
    Rxq {
        #[command(flatten)]
        running: Running,
    },
    /// Show workers and ports live: load, packets a second, what is lost, how long packets take. Ctrl-C ends it.
    #[command(
        after_help = "Examples:\n  flowlane switch top\n  flowlane switch top --interval 5\n  flowlane switch top --count 1 --json"
    )]
    Top {
        #[command(flatten)]
        running: Running,
        /// Seconds between two views: each is of what was since the one before.
        #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
        interval: f64,
        /// End after so many views.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// List the rules of a switch that runs, with their counters.
    #[command(
        after_help = "Examples:\n  flowlane switch flows\n  flowlane switch flows --table 0 tcp,tp_dst=22"
    )]
    Flows {
        #[command(flatten)]
        running: Running,
        /// Of this table only.
        #[arg(long, value_name = "N")]
        table: Option<u8>,
        /// Only rules that match no packets but this flow's, as in rule files without actions.
        flow: Vec<String>,
    },
    /// Add a rule to a switch that runs, or put it in the place of the one of its priority and match.
    #[command(
        after_help = "Example:\n  flowlane switch add-flow table=0,priority=100,tcp,tp_dst=22,actions=drop"
    )]
    AddFlow {
        #[command(flatten)]
        running: Running,
        /// The rule, as in rule files; idle_timeout= and hard_timeout= in seconds, where it is to go by itself.
        #[arg(required = true)]
        flow: Vec<String>,
    },
    /// Give other actions to the rules that match no packets but a flow's.
    #[command(after_help = "Example:\n  flowlane switch mod-flow tcp,tp_dst=22,actions=output:2")]
    ModFlow {
        #[command(flatten)]
        running: Running,
        /// Only to the one rule with this priority and exactly this match.
        #[arg(long)]
        strict: bool,
        /// Match and actions, as in rule files.
        #[arg(required = true)]
        flow: Vec<String>,
    },
    /// Remove the rules that match no packets but a flow's; says what they were for.
    #[command(
        after_help = "Examples:\n  flowlane switch del-flow tcp,tp_dst=22\n  flowlane switch del-flow --strict priority=100,tcp,tp_dst=22\n  flowlane switch del-flow cookie=0x10/0xf0"
    )]
    DelFlow {
        #[command(flatten)]
        running: Running,
        /// Only the one rule with this priority and exactly this match.
        #[arg(long)]
        strict: bool,
        /// The match, as in rule files; nothing: all rules.
        flow: Vec<String>,
    },
    /// Make all changes in a file, or none: each line begins with add, modify, modify_strict, delete or delete_strict.
    #[command(after_help = "Example:\n  flowlane switch bundle changes.flows")]
    Bundle {
        #[command(flatten)]
        running: Running,
        /// The file.
        file: PathBuf,
    },
    /// Read the configuration anew, and make the rules what it says; those that stay keep their counters. SIGHUP does so, too.
    #[command(after_help = "Examples:\n  flowlane switch reload\n  flowlane switch reload other.toml")]
    Reload {
        #[command(flatten)]
        running: Running,
        /// Another configuration, which differs in rules alone.
        file: Option<PathBuf>,
    },
    /// List the addresses that the switch has learned.
    #[command(after_help = "Example:\n  flowlane switch fdb")]
    Fdb {
        #[command(flatten)]
        running: Running,
    },
    /// Say what would become of a packet, and why: every table, rule, function, change and port. Nothing is sent or counted.
    #[command(
        after_help = "Examples:\n  flowlane switch trace in_port=1,tcp,nw_dst=10.0.0.5,tp_dst=22\n  flowlane switch trace --in-port 2 capture.pcap:7\n  flowlane switch trace --in-port 1 ffffffffffff0200000000010806..."
    )]
    Trace {
        #[command(flatten)]
        running: Running,
        /// The number of the port that it comes in through; where it is left out, the flow's, or the first.
        #[arg(long, value_name = "N")]
        in_port: Option<u32>,
        /// A flow as in rule files, of which a packet is made; FILE:N, the Nth packet of a capture, from 1; or a frame in
        /// hexadecimal.
        packet: String,
    },
    /// Stop a switch that runs, after what is under way.
    #[command(after_help = "Example:\n  flowlane switch stop")]
    Stop {
        #[command(flatten)]
        running: Running,
    },
}
