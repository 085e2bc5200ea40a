//! `flowlane sim record`: the instructions of this machine's lookups.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use flowlane::named_enum::UnknownName;
use flowlane_sim::host_calibration::{Lookup, look_up_recorded};
use flowlane_sim::trace::{self, RecordError, Trace};

use crate::arguments::SimRecordOptions;
use crate::failure::Failure;

pub(super) fn run(options: &SimRecordOptions) -> Result<(), Failure> {
    let unknown = |e: UnknownName| Failure::input(e.to_string());
    let (method, level) = (options.method.parse().map_err(unknown)?, options.level.parse().map_err(unknown)?);
    let lookup = Lookup { method, level, small_pages: options.small_pages, bytes: 0, ns: 0.0 };
    if options.recorded {
        return look_up_recorded(&lookup, options.lookups as usize, options.quick).map_err(refused);
    }
    // Opened first, so that an unwritable path fails before the work.
    let file = create(&options.output)?;
    write_to(file, &of(&lookup, options.lookups, options.quick).map_err(refused)?, &options.output)
}

/// Records lookups of another process of this program.
pub(super) fn of(lookup: &Lookup, lookups: u32, quick: bool) -> Result<Trace, RecordError> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    command.args(["sim", "record", lookup.method.name(), "--level", lookup.level.name()]);
    command.args(["--recorded", "--output", "-", "--lookups", &lookups.to_string()]);
    command.args(lookup.small_pages.then_some("--small-pages"));
    command.args(quick.then_some("--quick"));
    let trace = trace::record(&mut command)?;
    Ok(Trace { lookups: lookups.into(), bytes: lookup.bytes, ..trace })
}

pub(super) fn write(trace: &Trace, path: &Path) -> Result<(), Failure> {
    write_to(create(path)?, trace, path)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|e| Failure::written(path, &e))
}

fn write_to(file: File, trace: &Trace, path: &Path) -> Result<(), Failure> {
    trace.write(&mut BufWriter::new(file)).map_err(|e| Failure::written(path, &e))
}

fn refused(error: RecordError) -> Failure {
    Failure::Environment(error.to_string())
}
