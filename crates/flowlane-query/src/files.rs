//! Which captures are meant: files, folders and patterns.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flowlane_capture::CaptureReader;

use crate::QueryError;

/// How captures end, where a folder or pattern has other files, too.
const ENDINGS: [&str; 3] = ["pcap", "pcapng", "cap"];
/// How packed ones end behind that.
const PACKED: [&str; 3] = ["gz", "zst", "zstd"];

/// Whether a file is called as captures are.
pub(crate) fn is_called_so(path: &Path) -> bool {
    let ending = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let is = |path: &Path| ending(path).is_some_and(|e| ENDINGS.contains(&e.as_str()));
    match ending(path) {
        Some(packed) if PACKED.contains(&packed.as_str()) => is(&path.with_extension("")),
        _ => is(path),
    }
}

/// Whether a file begins as captures do, whatever it is called: `tcpdump -C` numbers those that it begins.
fn begins_so(path: &Path) -> bool {
    let mut beginning = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && CaptureReader::<File>::is_capture(&beginning)
}

/// The captures of some names: files, those of folders and of the folders in them, and those of patterns. Each file once, by
/// whatever names it is reached.
///
/// # Errors
/// Where a name has none.
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
    let wrong = |what: String| QueryError::File { name: name.to_owned(), what };
    let mut found = Vec::new();
    if path.is_dir() {
        below(path, &mut found).map_err(|e| wrong(e.to_string()))?;
    } else if path.exists() {
        // Whatever it is called, and be it a pipe.
        return Ok(vec![path.to_owned()]);
    } else if name.contains(['*', '?', '[']) {
        let paths = glob::glob(name).map_err(|e| wrong(e.to_string()))?;
        // What cannot be looked at is said, and not passed over.
        found = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(|e| wrong(e.to_string()))?;
    } else {
        return Err(wrong("no such file or folder".to_owned()));
    }
    found.retain(|path| path.is_file() && (is_called_so(path) || begins_so(path)));
    match found.is_empty() {
        true => Err(QueryError::NoCaptures { name: name.to_owned() }),
        false => Ok(found),
    }
}

/// The files of a folder and of the folders in it, in order. Links to folders are not followed: they may lead back.
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
