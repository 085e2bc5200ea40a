//! Finding captures: files, directories and patterns.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flowlane_capture::CaptureReader;

use crate::QueryError;

/// File name extensions of captures, for directories and patterns with other files.
const EXTENSIONS: [&str; 4] = ["pcap", "pcapng", "cap", "snoop"];
/// Extensions of compressed captures, after those.
const COMPRESSED_EXTENSIONS: [&str; 3] = ["gz", "zst", "zstd"];

/// Returns whether a file has the extension of a capture.
pub(crate) fn has_capture_extension(path: &Path) -> bool {
    let ending = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let is = |path: &Path| ending(path).is_some_and(|e| EXTENSIONS.contains(&e.as_str()));
    match ending(path) {
        Some(packed) if COMPRESSED_EXTENSIONS.contains(&packed.as_str()) => is(&path.with_extension("")),
        _ => is(path),
    }
}

/// Returns whether a file has the magic number of a capture: `tcpdump -C` appends numbers to file names.
fn has_capture_magic(path: &Path) -> bool {
    let mut beginning = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && CaptureReader::<File>::is_capture(&beginning)
}

/// Returns the captures of files, directories (recursively) and patterns; each file once.
///
/// # Errors
/// If a name yields none.
pub(crate) fn captures(names: &[String]) -> Result<Vec<PathBuf>, QueryError> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    for name in names {
        let own = of_name(name)?;
        all.extend(own.into_iter().filter(|path| match path.canonicalize() {
            Ok(own) if path.is_file() => known.insert(own),
            _ => true,
        }));
    }
    Ok(all)
}

fn of_name(name: &str) -> Result<Vec<PathBuf>, QueryError> {
    let path = Path::new(name);
    let file_error = |what: String| QueryError::File { name: name.to_owned(), what };
    let mut found = Vec::new();
    if path.is_dir() {
        below(path, &mut found).map_err(|e| file_error(e.to_string()))?;
    } else if path.exists() {
        // Any extension is accepted, and so is a pipe.
        return Ok(vec![path.to_owned()]);
    } else if name.contains(['*', '?', '[']) {
        let paths = glob::glob(name).map_err(|e| file_error(e.to_string()))?;
        // Unreadable entries are errors.
        found = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(|e| file_error(e.to_string()))?;
    } else {
        return Err(file_error("no such file or folder".to_owned()));
    }
    found.retain(|path| path.is_file() && (has_capture_extension(path) || has_capture_magic(path)));
    match found.is_empty() {
        true => Err(QueryError::NoCaptures { name: name.to_owned() }),
        false => Ok(found),
    }
}

/// Collects the files of a directory recursively, sorted. Symbolic links to directories are not followed, because they may
/// form cycles.
fn below(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        match entry.file_type()?.is_dir() {
            true => below(&entry.path(), found)?,
            false => found.push(entry.path()),
        }
    }
    Ok(())
}
