//! Which captures are meant: files, folders and patterns.

use std::path::{Path, PathBuf};

use crate::QueryError;

/// How captures end, where a folder or pattern has other files, too.
const ENDINGS: [&str; 3] = ["pcap", "pcapng", "cap"];
/// How packed ones end behind that.
const PACKED: [&str; 3] = ["gz", "zst", "zstd"];

/// Whether a file is called as captures are.
pub(crate) fn is_capture(path: &Path) -> bool {
    let ending = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let is = |path: &Path| ending(path).is_some_and(|e| ENDINGS.contains(&e.as_str()));
    match ending(path) {
        Some(packed) if PACKED.contains(&packed.as_str()) => is(&path.with_extension("")),
        _ => is(path),
    }
}

/// The captures of a name: a file, those of a folder and the folders in it, or those of a pattern.
///
/// # Errors
/// Where there are none.
pub(crate) fn captures(name: &str) -> Result<Vec<PathBuf>, QueryError> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !path.exists() && !name.contains(['*', '?', '[']) {
        return Err(QueryError::File { name: name.to_owned(), what: "no such file or folder".to_owned() });
    }
    let pattern = match path.is_dir() {
        true => format!("{}/**/*", glob::Pattern::escape(name.trim_end_matches('/'))),
        false => name.to_owned(),
    };
    let found =
        glob::glob(&pattern).map_err(|e| QueryError::File { name: name.to_owned(), what: e.to_string() })?;
    // What cannot be looked at is said, and not passed over.
    let found =
        found.map(|path| path.map_err(|e| QueryError::File { name: name.to_owned(), what: e.to_string() }));
    let mut found = found.collect::<Result<Vec<PathBuf>, _>>()?;
    found.retain(|path| path.is_file() && is_capture(path));
    match found.is_empty() {
        true => Err(QueryError::NoCaptures { name: name.to_owned() }),
        false => Ok(found),
    }
}
