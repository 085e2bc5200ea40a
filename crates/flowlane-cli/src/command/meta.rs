//! Completions and manual pages, from the definition of the arguments.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, PageFormat};
use crate::failure::Failure;
use crate::{output, reference};

/// `flowlane completions`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "flowlane", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// `flowlane man`.
pub(crate) fn man(folder: &Path, format: PageFormat) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::written(folder, &e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    if format == PageFormat::Man {
        clap_mangen::generate_to(Arguments::command(), folder).map_err(failed)?;
    }
    for page in reference::pages() {
        let (file, text) = match format {
            PageFormat::Man => (page.file_of_manual(), page.manual()),
            PageFormat::Markdown => (page.file_of_markdown(), page.markdown()),
        };
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(|e| Failure::written(&path, &e))?;
    }
    Ok(())
}
