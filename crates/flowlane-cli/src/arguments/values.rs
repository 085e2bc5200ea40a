//! Parsers of argument values: sizes, threads, files.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flowlane::named_enum::Named;

/// A value of an enum, or `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OrAuto<T>(pub(crate) Option<T>);

fn names<T: Named>(values: &[T]) -> impl Iterator<Item = &'static str> {
    values.iter().map(|value| (*value).into())
}

/// Parses some values of an enum by their names, which the help lists.
pub(super) fn one_of<T: Named + FromStr + Send + Sync + 'static>(
    values: &[T],
) -> impl TypedValueParser<Value = T> + use<T> {
    PossibleValuesParser::new(names(values))
        .map(|name| name.parse().unwrap_or_else(|_| unreachable!("one of the possible values")))
}

/// Parses an enum by its names, which the help lists.
pub(super) fn named<T: Named + FromStr + Send + Sync + 'static>() -> impl TypedValueParser<Value = T> {
    one_of(T::VARIANTS)
}

/// Parses an enum by its names, or `auto`.
pub(super) fn or_auto<T: Named + FromStr + Send + Sync + 'static>() -> impl TypedValueParser<Value = OrAuto<T>>
{
    PossibleValuesParser::new(["auto"].into_iter().chain(names(T::VARIANTS)))
        .map(|name| OrAuto(name.parse().ok()))
}

/// Limit of a thread count; a larger one is taken for a mistake.
const THREADS_MAX: usize = 1024;

/// Parses a number of threads.
pub(super) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("expected 1 to {THREADS_MAX} threads"))
}

/// Parses a size in bytes, with an optional binary unit: `500000`, `512M`, `4GiB`. Units are powers of 1024.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let exponent = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => 64,
    };
    let number: Option<usize> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1_usize.checked_shl(exponent)?));
    bytes.ok_or_else(|| {
        "expected a number of bytes, optionally with the unit K, M, G or T: 500000, 512M, 4GiB".to_owned()
    })
}

/// Parses a time in seconds, with decimals if wanted.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, as 10 or 0.5".to_owned())
}

/// Parses the path of an input file; `-` is standard input.
#[expect(clippy::unnecessary_wraps, reason = "clap requires a fallible parser")]
pub(super) fn input(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(if text == "-" { "/dev/stdin" } else { text }))
}
