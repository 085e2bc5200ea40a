//! Marks of TAP interfaces that a switch has made, and left for the next one: an interface's alias in the system (`ip link` shows it).
//!
//! A TAP interface ends with its last descriptor, and its addresses with it, unless it is persistent. A switch that lets go of one makes it
//! persistent, and marks it; the one that finds the mark takes it away, and the interface ends with that switch. One that an operator has made
//! persistent has no mark, and stays.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::interface;

const MARK: &str = "flowlane: for the next switch";
const FOLDER: &str = "/sys/class/net";

fn alias_of(interface: &str) -> PathBuf {
    [FOLDER, interface, "ifalias"].iter().collect()
}

/// Returns whether the folder shows this interface, and not one of another namespace.
fn is_shown(interface: &str) -> bool {
    let shown = fs::read_to_string([FOLDER, interface, "ifindex"].iter().collect::<PathBuf>());
    let shown = shown.ok().and_then(|text| text.trim().parse().ok());
    shown.is_some() && interface::index_of(interface).is_ok_and(|index| index == shown)
}

fn is_marked(interface: &str) -> bool {
    fs::read_to_string(alias_of(interface)).is_ok_and(|alias| alias.trim_end() == MARK)
}

/// Marks an interface.
///
/// # Errors
/// Where the system does not show the interfaces of this namespace, or refuses it.
pub(super) fn mark(interface: &str) -> io::Result<()> {
    match is_shown(interface) {
        true => fs::write(alias_of(interface), MARK),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Takes the mark of an interface away; returns whether it had one.
pub(super) fn take(interface: &str) -> bool {
    // An empty text is no alias.
    is_shown(interface) && is_marked(interface) && fs::write(alias_of(interface), "\n").is_ok()
}

/// The interfaces with a mark.
pub(super) fn all() -> Vec<String> {
    let names = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_marked(name) && is_shown(name)).collect()
}
