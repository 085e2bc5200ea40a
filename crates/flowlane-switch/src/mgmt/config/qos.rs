//! The discipline of the kernel by which packets leave a port's interface, and its queues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A discipline of the kernel (tc(8)), by the name that it has in Open vSwitch's table QoS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum QosKind {
    /// Queues with rates, of which each may lend what it does not use (`htb`).
    #[serde(rename = "linux-htb")]
    Htb,
    /// Queues with rates, by service curves (`hfsc`).
    #[serde(rename = "linux-hfsc")]
    Hfsc,
    /// Flows in turns (`sfq`).
    #[serde(rename = "linux-sfq")]
    Sfq,
    /// A queue that stays short (`codel`).
    #[serde(rename = "linux-codel")]
    Codel,
    /// A queue that stays short for each flow (`fq_codel`).
    #[serde(rename = "linux-fq_codel")]
    FqCodel,
    /// Delay and loss, for experiments (`netem`).
    #[serde(rename = "linux-netem")]
    Netem,
    /// The discipline that an administrator has given the interface, which stays as it is.
    #[serde(rename = "linux-noop")]
    Noop,
}

impl QosKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Htb, Self::Hfsc, Self::Sfq, Self::Codel, Self::FqCodel, Self::Netem, Self::Noop];

    /// Its name in configurations and databases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Htb => "linux-htb",
            Self::Hfsc => "linux-hfsc",
            Self::Sfq => "linux-sfq",
            Self::Codel => "linux-codel",
            Self::FqCodel => "linux-fq_codel",
            Self::Netem => "linux-netem",
            Self::Noop => "linux-noop",
        }
    }

    /// Returns whether rules choose among its queues.
    pub fn has_queues(self) -> bool {
        matches!(self, Self::Htb | Self::Hfsc)
    }
}

/// The discipline by which packets leave a port's interface. Settings that are left out are as in Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosSection {
    /// Which discipline.
    #[serde(rename = "type")]
    pub kind: QosKind,
    /// Bits a second that all queues share (`linux-htb`, `linux-hfsc`); by default, the speed of the interface's link, or 10 Gbit/s where that is unknown.
    pub max_rate_bps: Option<u64>,
    /// The queues that rules choose by `set_queue` and `enqueue` (`linux-htb`, `linux-hfsc`). Queue 0, which other packets go through,
    /// is there in any case.
    #[serde(default)]
    pub queue: Vec<QueueSection>,
    /// Bytes of a flow at a time (`linux-sfq`: the interface's MTU by default, `linux-fq_codel`: 1514).
    pub quantum_bytes: Option<u32>,
    /// Seconds after which flows are hashed otherwise (`linux-sfq`): 10 by default.
    pub perturb_s: Option<u32>,
    /// Packets that may wait (`linux-codel` and `linux-fq_codel`: 10240 by default, `linux-netem`: 1000).
    pub limit_packets: Option<u32>,
    /// Microseconds that packets should wait at most (`linux-codel`, `linux-fq_codel`): 5000 by default.
    pub target_us: Option<u32>,
    /// Microseconds in which the wait is measured (`linux-codel`: 100000 by default, `linux-fq_codel`: 1000000).
    pub interval_us: Option<u32>,
    /// Number of queues that flows are hashed to (`linux-fq_codel`): 1024 by default.
    pub flows: Option<u32>,
    /// Microseconds by which packets are delayed (`linux-netem`).
    pub latency_us: Option<u32>,
    /// Percent of packets that are lost (`linux-netem`).
    pub loss_percent: Option<u32>,
}

impl QosSection {
    /// A discipline with its defaults.
    pub fn new(kind: QosKind) -> Self {
        Self {
            kind,
            max_rate_bps: None,
            queue: Vec::new(),
            quantum_bytes: None,
            perturb_s: None,
            limit_packets: None,
            target_us: None,
            interval_us: None,
            flows: None,
            latency_us: None,
            loss_percent: None,
        }
    }
}

/// A queue of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// Its number in rules, 0 to 61439.
    pub number: u32,
    /// Bits a second that it gets in any case; of `linux-htb` at least 12000.
    pub min_rate_bps: Option<u64>,
    /// Bits a second that it gets where others leave them; by default, all that there are.
    pub max_rate_bps: Option<u64>,
    /// Bits that pass at once (`linux-htb`), at least a frame's.
    pub burst_bits: Option<u64>,
    /// Of queues that want more than their rate, those with the smallest number come first (`linux-htb`): 0 by default.
    pub priority: Option<u32>,
}
