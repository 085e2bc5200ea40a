//! The `flowlane` binary: parses arguments and prints results.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod cleanup;
mod command;
mod failure;
mod input;
mod kind;
mod limits;
mod output;
mod reference;
mod repeats;
mod service;
mod stderr;
mod trace;
mod tuning;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let done = limits::prepare().map_err(failure::Failure::Environment).and_then(|()| {
        let words = std::env::args_os();
        #[cfg(target_os = "linux")]
        let words = arguments::with_levels(words);
        match Arguments::try_parse_from(words) {
            Ok(arguments) => run(&arguments),
            Err(other) => print_usage(&other),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints the help or the version that the arguments ask for, or the mistake in them.
fn print_usage(usage: &clap::Error) -> Result<(), failure::Failure> {
    if usage.use_stderr() {
        return Err(failure::Failure::Usage(usage.render().ansi().to_string()));
    }
    output::print(&stderr::for_terminal(&std::io::stdout(), usage.render().ansi().to_string()))
}

fn run(arguments: &Arguments) -> Result<(), failure::Failure> {
    if let Some(variant) = arguments.max_simd {
        flowlane::isa::set_max_simd(variant);
    }
    tuning::give_clock();
    let tune = arguments.tune.as_deref();
    if arguments.command.builds_tables() {
        tuning::load_noting(tune)?;
    }
    match &arguments.command {
        Command::Classify(options) => command::classify::run(options),
        #[cfg(feature = "query")]
        Command::Query(options) => command::query::run(options),
        #[cfg(not(feature = "query"))]
        Command::Query { asked: _ } => Err(failure::Failure::Environment(
            "this flowlane was built without the SQL engine; build it with `cargo install --path crates/flowlane-cli \
             --features query`"
                .to_owned(),
        )),
        Command::Switch(verb) => command::switch::run(verb),
        #[cfg(target_os = "linux")]
        Command::Vswitchd(options) => command::vswitchd::run(options),
        Command::Route(verb) => command::route::run(verb),
        Command::Rules(verb) => command::rules::run(verb),
        Command::Generate(verb) => command::generate::run(verb),
        Command::Tune(options) => command::tune::run(options, tune),
        Command::Bench(options) => command::bench::run(options),
        Command::Sim(verb) => command::sim::run(verb),
        Command::Selftest(options) => command::selftest::run(options),
        Command::Cpu(options) => command::cpu::run(options, tune),
        Command::Completions { shell } => command::meta::completions(*shell),
        Command::Man { folder, format } => command::meta::man(folder, *format),
    }
}
