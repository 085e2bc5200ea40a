//! The files of the repository, by path from its root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Folders of build results, downloads and outputs.
const SKIPPED: [&str; 6] = [".git", "target", "out", "artifacts", "corpus", "node_modules"];

/// Suffixes of the files whose text some rule reads.
const READ: [&str; 3] = [".rs", ".md", ".toml"];

/// Texts by path, with `/` between folders; files that no rule reads have an empty text.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    /// All paths, each as `/folder/file/`, to search for parts of paths.
    paths: String,
}

impl From<BTreeMap<String, String>> for Tree {
    fn from(files: BTreeMap<String, String>) -> Self {
        let paths = files.keys().map(|path| format!("/{path}/\n")).collect();
        Self { files, paths }
    }
}

impl Tree {
    /// Reads the repository of this crate.
    pub(crate) fn of_this_repository() -> Self {
        // The variable of the run: builds of several checkouts may share a target folder, and so this program.
        let crate_folder =
            std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let root = Path::new(&crate_folder).join("../..");
        let mut files = BTreeMap::new();
        read(&root, "", &mut files);
        files.into()
    }

    /// Makes a small tree for tests.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let owned = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        owned.collect::<BTreeMap<_, _>>().into()
    }

    /// Returns the text of a file, if it exists.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns paths and texts of the files whose paths end so.
    pub(crate) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.ends_with(end))
    }

    /// Returns the paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns whether a file or folder of this path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        let begins = format!("/{}/", path.trim_matches('/'));
        self.paths.lines().any(|path| path.starts_with(&begins))
    }

    /// Returns whether the path of a file or folder ends so; whole names are compared.
    pub(crate) fn has_ending(&self, path: &str) -> bool {
        self.paths.contains(&format!("/{}/", path.trim_matches('/')))
    }

    /// Returns the folders of `crates` that have a manifest.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        let folders = self.files.keys().filter_map(|path| path.strip_suffix("/Cargo.toml"));
        folders.filter(|path| path.strip_prefix("crates/").is_some_and(|name| !name.contains('/')))
    }
}

fn read(folder: &Path, path: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let entry = entry.expect("an entry of it");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        let kind = entry.file_type().expect("its kind");
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            read(&entry.path(), &path, files);
        } else if kind.is_file() {
            let is_read = READ.iter().any(|end| name.ends_with(end));
            let text = if is_read { fs::read_to_string(entry.path()).expect("UTF-8") } else { String::new() };
            files.insert(path, text);
        }
    }
}
