//! Reading what the arguments name.

use std::io::Read;
use std::path::Path;

use flowlane::rule::{Flags, Format, ReadOptions, Rule};

use crate::arguments::{RulesFormat, RulesInput};
use crate::failure::Failure;

/// The most bytes that a text file may have, decompressed: enough for ten million rules.
const TEXT_BYTES_MAX: u64 = 2 << 30;

/// A file's bytes; one that is gzipped is decompressed.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: &std::io::Error| Failure::file(path, "read", e);
    let file = std::fs::File::open(path).map_err(|e| failed(&e))?;
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut inner = Vec::new();
        let decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        decoder.take(TEXT_BYTES_MAX).read_to_end(&mut inner).map_err(|e| failed(&e))?;
        bytes = inner;
    }
    if bytes.len() as u64 >= TEXT_BYTES_MAX {
        return Err(Failure::input(format!("{} is larger than {TEXT_BYTES_MAX} bytes", path.display())));
    }
    Ok(bytes)
}

/// A file's text.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::input(format!("{} is no text: byte {at} is not UTF-8", path.display()))
    })
}

/// The rules of a file, and the format that they were written in.
pub(crate) fn read_rules(input: &RulesInput) -> Result<(Vec<Rule>, Format), Failure> {
    let text = read_text(&input.rules)?;
    let format = match input.rules_format {
        RulesFormat::Auto => flowlane::rule::detect_format(&text),
        RulesFormat::Classbench => Format::Classbench,
        RulesFormat::Flows => Format::Flows,
    };
    let flags = if input.match_flags { Flags::Match } else { Flags::Ignore };
    let options = ReadOptions { flags, ..ReadOptions::default() };
    let name = input.rules.display().to_string();
    match flowlane::rule::read(&text, &name, Some(format), &options) {
        Ok(rules) => Ok((rules, format)),
        Err(errors) => Err(Failure::lines(text, &errors)),
    }
}

/// Applies `--max-simd`, which clap has filled in from the environment where it was not given.
pub(crate) fn limit_simd(bits: Option<&str>) -> Result<(), Failure> {
    let Some(bits) = bits else { return Ok(()) };
    let limit = bits.parse::<flowlane::isa::MaxSimd>();
    limit.map(flowlane::isa::set_max_simd).map_err(|e| Failure::input(format!("--max-simd: {e}")))
}
