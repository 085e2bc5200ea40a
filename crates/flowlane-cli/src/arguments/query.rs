//! Arguments of `flowlane query`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use flowlane_query::Format;

const HELP: &str = "\
The captures form the table `packets`; other tables are named by file, directory or pattern: FROM 'archive/*.pcap.gz',
FROM 'flows.parquet'. Columns are the match fields of rules (nw_src, tp_dst, ..), and file, packet, time, captured,
length, fault and frame; DESCRIBE packets lists them. Functions in addition to those of Apache DataFusion:

  matches('rules.txt')          number of the matching rule, from 0; also action('rules.txt') and priority('rules.txt')
  flow('tcp,tp_dst=443')        true if the packet matches this flow
  route('routes.txt', nw_dst)   next hop of an address
  in_prefix(nw_src, '10.0.0.0/8'), address(nw_src)

Examples:
  flowlane query \"SELECT nw_src, count(*) AS packets FROM packets GROUP BY 1 ORDER BY 2 DESC LIMIT 10\" trace.pcap
  flowlane query \"SELECT matches('fw.flows') AS rule, sum(length) FROM packets GROUP BY 1\" archive/
  flowlane query \"SELECT * FROM packets WHERE flow('tcp,tcp_flags=+syn-ack')\" t.pcap.gz --output syn.parquet
  flowlane query \"SELECT time, nw_src FROM 'a.pcap' WHERE time >= '2026-01-01T00:00:00Z' AND nw_dst = '192.0.2.1'\"";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct QueryOptions {
    /// SQL query; - reads it from standard input.
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// Captures (pcap, pcapng or snoop, optionally compressed by gzip or zstd), directories and patterns; - is standard input.
    #[arg(value_name = "CAPTURE")]
    pub(crate) captures: Vec<String>,
    /// Write the result here; .parquet, .arrow, .csv, .json or .ndjson selects the format, unless --format does.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Output format [default: by the name of --output, else a table].
    #[arg(long, value_parser = super::values::named::<Format>(), value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Maximum number of rows; 0 for no limit [default: 100 for a table].
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// Number of threads [default: the number of cores].
    #[arg(long, value_name = "N", value_parser = super::values::threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Memory limit of sorts, groupings and joins in bytes (512M, 4G); larger ones spill to disk where possible.
    #[arg(long, default_value = "256M", value_name = "BYTES", value_parser = super::values::bytes)]
    pub(crate) memory_max: usize,
    /// Ingress port number of packets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) in_port: u32,
    /// Parse the inner headers of VXLAN, GENEVE, GTP-U, GRE and ERSPAN packets instead of the outer ones; tunnel fields (tun_id, ..) are
    /// set.
    #[arg(long)]
    pub(crate) decapsulate: bool,
}
