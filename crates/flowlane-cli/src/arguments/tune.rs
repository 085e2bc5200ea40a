//! Arguments of `flowlane tune`.

use std::path::PathBuf;

use clap::Args;
use flowlane::tune::Budget;

const TUNE_HELP: &str = "\
Takes a few seconds. Every other command reads the selection from the file that this command writes, \
$XDG_CONFIG_HOME/flowlane/tune.toml or ~/.config/flowlane/tune.toml; without a file, it uses the defaults built in for \
the CPU family. An explicitly named variant overrides the selection.

Examples:
  flowlane tune
  flowlane tune --show
  flowlane tune --quick --dry-run --json";

#[derive(Debug, Args)]
#[command(after_help = TUNE_HELP)]
pub(crate) struct TuneOptions {
    /// Store the selection in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Measure without storing the selection.
    #[arg(long, conflicts_with = "output")]
    pub(crate) dry_run: bool,
    /// Measure for about a second, with fewer rounds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Size limit of the filters and cuckoo tables measured, 1M to 512M, for machines with little memory; larger sizes are then
    /// judged by smaller ones. (Route tables take 64 MiB in any case.)
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = table_bytes)]
    pub(crate) table_max: u64,
    /// Print the selection in use and its origin, without measuring.
    #[arg(long, conflicts_with_all = ["output", "dry_run", "quick", "table_max"])]
    pub(crate) show: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the size of a measured table.
fn table_bytes(text: &str) -> Result<u64, String> {
    let bytes = super::values::bytes(text)? as u64;
    let (min, max) = (1 << 20, Budget::TABLE_BYTES_MAX);
    let range = || format!("expected 1M to {}M, with the unit", max >> 20);
    Some(bytes).filter(|bytes| (min..=max).contains(bytes)).ok_or_else(range)
}
