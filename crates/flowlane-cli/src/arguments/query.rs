//! The arguments of `flowlane query`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

const HELP: &str = "\
The captures are the table `packets`; other tables are called as files, folders and patterns: FROM 'archive/*.pcap.gz',
FROM 'flows.parquet'. Columns are fields as in rules (nw_src, tp_dst, ..), and file, packet, time, captured, length, fault
and frame; DESCRIBE packets lists them. Functions beside those of SQL (Apache DataFusion's):

  matches('rules.txt')          number of the rule that wins, from 0; action('rules.txt') and priority('rules.txt') of it
  flow('tcp,tp_dst=443')        whether the packet is of such a flow
  route('routes.txt', nw_dst)   next hop of an address
  in_prefix(nw_src, '10.0.0.0/8'), address(nw_src)

Examples:
  flowlane query \"SELECT nw_src, count(*) AS packets FROM packets GROUP BY 1 ORDER BY 2 DESC LIMIT 10\" trace.pcap
  flowlane query \"SELECT matches('fw.flows') AS rule, sum(length) FROM packets GROUP BY 1\" archive/
  flowlane query \"SELECT * FROM packets WHERE flow('tcp,tcp_flags=+syn-ack')\" t.pcap.gz --output syn.parquet
  flowlane query \"SELECT time, nw_src FROM 'a.pcap' WHERE time >= '2026-01-01T00:00:00Z' AND nw_dst = '192.0.2.1'\"";

/// How answers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AnswerFormat {
    /// A table for people.
    Table,
    /// Comma-separated values.
    Csv,
    /// One JSON array.
    Json,
    /// A JSON object a line.
    Ndjson,
    /// A Parquet file.
    Parquet,
    /// An Arrow file.
    Arrow,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct QueryOptions {
    /// The query; - reads it from standard input.
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// Captures (pcap, pcapng, packed by gzip or zstd or not), folders of them, and patterns; - is standard input.
    #[arg(value_name = "CAPTURE")]
    pub(crate) captures: Vec<String>,
    /// Write the answer here: .parquet, .arrow, .csv, .json or .ndjson say how, unless --format does.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How the answer is written; a table where neither this nor the output's name says it.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<AnswerFormat>,
    /// Give so many rows at most, 0 for all; 100 of a table where it is left out.
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// Threads; as many as there are cores where it is left out.
    #[arg(long, value_name = "N", value_parser = super::values::threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Bytes (512M, 4G) that sorting, grouping and joining may take in memory; what needs more goes to files where it can.
    #[arg(long, default_value = "256M", value_name = "BYTES", value_parser = super::values::bytes)]
    pub(crate) memory_max: usize,
    /// Port that packets came in at.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) in_port: u32,
    /// Read packets in VXLAN, GENEVE and GTP-U in the place of what carries them; they have the tunnel's fields (tun_id, ..).
    #[arg(long)]
    pub(crate) decapsulate: bool,
}
