//! Values of arguments: sizes, threads, files.

use std::num::NonZeroUsize;
use std::path::PathBuf;

/// More threads than that are a mistake.
const THREADS_MAX: usize = 1024;

/// How many threads there are to be.
pub(super) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("1 to {THREADS_MAX} threads are possible"))
}

/// Bytes, perhaps in larger units: `500000`, `512M`, `4GiB`. A thousand of a unit that engineers use for memory are 1024.
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
    bytes.ok_or_else(|| "bytes are a number, perhaps of K, M, G or T: 500000, 512M, 4GiB".to_owned())
}

/// A file that is read; `-` is standard input.
#[expect(clippy::unnecessary_wraps, reason = "clap wants it so")]
pub(super) fn input(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(if text == "-" { "/dev/stdin" } else { text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("500000"), Ok(500_000));
        assert_eq!([bytes("1k"), bytes("1KB"), bytes("1 KiB"), bytes("1K")], [1024; 4].map(Ok));
        assert_eq!((bytes("3G"), bytes("2TiB")), (Ok(3 << 30), Ok(2 << 40)));
        for wrong in ["", "G", "-1", "1.5G", "1x", "99999999999999999999", "99999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_are_as_many_as_there_can_be() {
        assert_eq!(threads("3").map(NonZeroUsize::get), Ok(3));
        assert!(["0", "1025", "-1", "many"].iter().all(|wrong| threads(wrong).is_err()));
    }
}
