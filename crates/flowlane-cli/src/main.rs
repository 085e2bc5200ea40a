//! The `flowlane` binary: arguments and output, nothing else.

mod arguments;
mod command;
mod failure;
mod input;
mod output;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: &Arguments) -> Result<(), failure::Failure> {
    input::limit_simd(arguments.max_simd.as_deref())?;
    match &arguments.command {
        Command::Classify(options) => command::classify::run(options),
        Command::Switch(verb) => command::switch::run(verb),
        Command::Rules(verb) => command::rules::run(verb),
        Command::Generate(verb) => command::generate::run(verb),
        Command::Bench(options) => command::bench::run(options),
        Command::Cpu(options) => command::cpu::run(options),
        Command::Completions { shell } => command::meta::completions(*shell),
        Command::Man { folder } => command::meta::man(folder),
    }
}
