//! What the files of `benches/` call, so that `cargo bench` measures the same workloads as the command line does.

use std::process::ExitCode;

use crate::measure::Effort;
use crate::{Options, Report, Topic};

/// Measures a topic as the arguments say, and prints its tables: `--quick`, `--rounds N`, `--seconds S`, names of
/// variants, parts of names of Bloom kernels.
pub fn main(topic: Topic) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let report = read(&arguments).and_then(|options| {
        let command = format!("cargo bench --bench {topic} -- {}", arguments.join(" "));
        Report::measure(&[topic], &options, command, &mut |_, _| ()).map_err(|e| e.to_string())
    });
    match report {
        Ok(report) => {
            print!("{}", report.text());
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = |what: &str| {
            let text = arguments.next().ok_or(format!("{argument} needs {what}"))?;
            text.parse::<f64>().map_err(|_| format!("{argument} {text}: not {what}"))
        };
        match argument.as_str() {
            "--quick" => options.effort = Effort { quick: true, ..options.effort },
            "--rounds" => options.effort.rounds = Some(number("a number of rounds")? as usize),
            "--seconds" => options.effort.seconds = Some(number("a number of seconds")?),
            flag if flag.starts_with('-') => {
                return Err(format!("{flag} is not known; there are --quick, --rounds N and --seconds S"));
            }
            name => match name.parse() {
                Ok(variant) => options.variants.push(variant),
                Err(_) => options.kernels.push(name.to_owned()),
            },
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_options_variants_and_kernels() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = read(&words("--quick --rounds 7 scalar staged/u8")).unwrap();
        assert!(options.effort.quick);
        assert_eq!(options.effort.rounds, Some(7));
        assert_eq!(options.variants, [flowlane::isa::Variant::Scalar]);
        assert_eq!(options.kernels, ["staged/u8"]);
        assert!(read(&words("--rounds x")).unwrap_err().contains("not a number of rounds"));
        assert!(read(&words("--fast")).unwrap_err().contains("--quick"));
    }
}
