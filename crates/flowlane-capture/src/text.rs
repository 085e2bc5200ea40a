//! Reading text files: every program of this project reads the text of a user by [`read_text`] or [`text_of`].
//!
//! Lengths are bounded, gzip and zstd are decompressed, and a byte order mark (the bytes `EF BB BF`, which editors of Windows
//! save in front of UTF-8) is dropped, so that no parser meets it.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::decompress::{decompress, is_compressed};
use super::recognise::recognise_binary;

/// Limit of a text file's length after decompression: enough for ten million rules.
pub const TEXT_MAX: u64 = 2 << 30;

/// Limit of the compression ratio, beyond [`INFLATED_BYTES`]. Rules, routes and captures compress 5 to 50 times; a file of
/// a few megabytes that expands a thousand times (deflate's maximum is 1032) was made to exhaust memory.
const INFLATION_MAX: u64 = 100;

/// Decompressed size that is allowed for any file, however small.
const INFLATED_BYTES: u64 = 64 << 20;

/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A file that cannot be read, is too long, or is no text.
#[derive(Debug, thiserror::Error)]
#[error("{file} {problem}{}", .help.as_ref().map_or(String::new(), |help| format!("; {help}")))]
pub struct TextError {
    /// The file, as the caller named it.
    pub file: String,
    /// `InvalidData` where the content is wrong, otherwise the system's.
    pub kind: io::ErrorKind,
    /// The problem, as a predicate of the file's name: `cannot be read: …`.
    pub problem: String,
    /// A way to fix it.
    pub help: Option<String>,
}

impl TextError {
    fn unread(file: impl Display, error: &io::Error) -> Self {
        let problem = format!("cannot be read: {error}");
        Self { file: file.to_string(), kind: error.kind(), problem, help: None }
    }

    fn invalid(file: impl Display, problem: String, help: Option<String>) -> Self {
        Self { file: file.to_string(), kind: io::ErrorKind::InvalidData, problem, help }
    }
}

impl From<TextError> for io::Error {
    fn from(error: TextError) -> Self {
        Self::new(error.kind, error)
    }
}

/// Returns the maximum decompressed size of a file of `packed_len` bytes.
pub fn unpacked_max(packed_len: u64) -> u64 {
    packed_len.saturating_mul(INFLATION_MAX).clamp(INFLATED_BYTES, TEXT_MAX)
}

/// Reads the text of a file, decompressing gzip and zstd.
///
/// # Errors
/// If the file cannot be read, is too long, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, TextError> {
    text_of(read_bytes(path)?, path.display())
}

/// Reads the bytes of a file, decompressing gzip and zstd.
///
/// # Errors
/// If the file cannot be read, or is longer than [`TEXT_MAX`] or, decompressed, than [`unpacked_max`].
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, TextError> {
    let name = path.display();
    let file = File::open(path).map_err(|e| TextError::unread(&name, &e))?;
    let bytes = read_stream(file, &name)?;
    if is_compressed(&bytes) { inflate(&bytes, &name) } else { Ok(bytes) }
}

/// Reads the rest of an open file; `name` is its name in errors.
///
/// # Errors
/// If the file cannot be read, or is longer than [`TEXT_MAX`].
pub fn read_stream(file: impl Read, name: impl Display) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::new();
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(|e| TextError::unread(&name, &e))?;
    match bytes.len() as u64 > TEXT_MAX {
        true => Err(TextError::invalid(name, format!("is larger than {TEXT_MAX} bytes"), None)),
        false => Ok(bytes),
    }
}

/// Decompresses a file's bytes, up to [`unpacked_max`].
fn inflate(packed: &[u8], name: impl Display) -> Result<Vec<u8>, TextError> {
    let most = unpacked_max(packed.len() as u64);
    let mut bytes = Vec::new();
    let read = decompress(packed).and_then(|unpacked| unpacked.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|e| TextError::unread(&name, &e))?;
    if bytes.len() as u64 > most {
        let problem = format!("becomes larger than {most} bytes when decompressed");
        let help = format!("if this is intended, decompress it first: up to {TEXT_MAX} bytes are read");
        return Err(TextError::invalid(name, problem, Some(help)));
    }
    Ok(bytes)
}

/// Returns the text that a file's bytes are, without a byte order mark; `name` is the file's name in errors.
///
/// # Errors
/// If the bytes are those of a known binary format, or not UTF-8.
pub fn text_of(bytes: Vec<u8>, name: impl Display) -> Result<String, TextError> {
    if let Some(binary) = recognise_binary(&bytes) {
        let (problem, help) = (format!("is {}", binary.what), binary.remedy.to_owned());
        return Err(TextError::invalid(name, problem, Some(help)));
    }
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            if text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len_utf8());
            }
            Ok(text)
        }
        Err(error) => {
            let (before, wrong) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let before = str::from_utf8(before).expect("it is valid up to there");
            let line = before.matches('\n').count() + 1;
            let start = before.rfind('\n').map_or(0, |end| end + 1);
            let column = before[start..].trim_start_matches(BYTE_ORDER_MARK).chars().count() + 1;
            let problem = format!(
                "is not a text file: byte {:#04x} at line {line}, column {column} is not UTF-8",
                wrong[0]
            );
            Err(TextError::invalid(name, problem, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let text = |bytes: &[u8]| text_of(bytes.to_vec(), "t").map_err(|e| e.to_string());
        assert_eq!(text(b"\xef\xbb\xbfa\n").as_deref(), Ok("a\n"));
        assert_eq!(text(b"\xef\xbb\xbf").as_deref(), Ok(""));
        assert_eq!(text("a\u{feff}".as_bytes()).as_deref(), Ok("a\u{feff}"));
        let wrong = "t is not a text file: byte 0xe9 at line 2, column 2 is not UTF-8";
        assert_eq!(text(b"\xef\xbb\xbfa\n\xc3\xa9\xe9\n").unwrap_err(), wrong);
        let first = "t is not a text file: byte 0xe9 at line 1, column 2 is not UTF-8";
        assert_eq!(text(b"\xef\xbb\xbfa\xe9\n").unwrap_err(), first);
        assert!(text(b"\xff\xfea\0").unwrap_err().starts_with("t is text in UTF-16; convert it: iconv"));
    }
}
