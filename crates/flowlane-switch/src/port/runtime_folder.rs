//! The folder of a user's locks and control socket, and the check that only this user can change what lies in a folder.
//!
//! In a folder that others may write, a socket can be replaced between two uses, and a lock can be a pipe or a link. Each folder
//! from the root down is checked, and each symbolic link on the way, as OpenSSH's `StrictModes` does.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links that are followed on the way to a folder, as in the kernel.
const LINKS_MAX: usize = 40;

/// The permission bits that let a group, or everybody, create and remove files.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit, only the owner of a file removes or renames it.
const STICKY: u32 = 0o1000;

/// The folder of the system's switch.
const SYSTEM_FOLDER: &str = "/run/flowlane";

/// Returns the folder of locks and control socket: for a service the one that its manager has made (`$RUNTIME_DIRECTORY`), else
/// `/run/flowlane` for root, `$XDG_RUNTIME_DIR/flowlane` for other users, or a folder of their own under the temporary one.
pub(crate) fn runtime_folder() -> PathBuf {
    folder_for(user(), |name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn folder_for(user: u32, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    // Several folders are separated by colons.
    let of_service = variable("RUNTIME_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    match (user, of_service, variable("XDG_RUNTIME_DIR")) {
        (_, Some(folder), _) if folder.is_absolute() => folder,
        (0, ..) => PathBuf::from(SYSTEM_FOLDER),
        (_, _, Some(folder)) => Path::new(&folder).join("flowlane"),
        (user, _, None) => std::env::temp_dir().join(format!("flowlane-{user}")),
    }
}

/// Returns whether root may rely on a program of another user that listens on this path: the system's switch, whose folder root has
/// given to that user.
pub(crate) fn is_system_socket(path: &Path, other: u32) -> bool {
    let folder = Path::new(SYSTEM_FOLDER);
    path.parent() == Some(folder) && user() == 0 && is_given(folder, other)
}

/// Returns whether root has given a folder to a user: the folder lies where only root makes some.
fn is_given(folder: &Path, other: u32) -> bool {
    let metadata = |path: &Path| path.symlink_metadata().ok().filter(std::fs::Metadata::is_dir);
    let is_of_root = |parent: std::fs::Metadata| {
        parent.uid() == 0 && parent.mode() & (STICKY | GROUP_WRITES | OTHERS_WRITE) == 0
    };
    metadata(folder).is_some_and(|own| own.uid() == other)
        && folder.parent().and_then(metadata).is_some_and(is_of_root)
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns whether another user may own what this process relies on: root, the user of this process, and the one that became root
/// by `sudo`.
pub(crate) fn is_trusted(other: u32) -> bool {
    let by_sudo = || std::env::var("SUDO_UID").ok().and_then(|user| user.parse().ok()) == Some(other);
    other == 0 || other == user() || (user() == 0 && by_sudo())
}

/// Checks that only trusted users can create, replace or remove files in a folder, or the folder itself.
///
/// # Errors
/// The first folder or link on the way that others can change, and how to fix it.
pub(crate) fn check_folder(folder: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: &std::io::Error| format!("{}: {error}", path.display());
    let whole = std::path::absolute(folder).map_err(|e| failed(folder, &e))?;
    let mut left: VecDeque<OsString> = parts(&whole);
    let mut at = PathBuf::from("/");
    check_metadata(&at, &at.symlink_metadata().map_err(|e| failed(&at, &e))?)?;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let metadata = next.symlink_metadata().map_err(|e| failed(&next, &e))?;
        check_metadata(&next, &metadata)?;
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(format!("{}: too many symbolic links", whole.display()));
        }
        let target = next.read_link().map_err(|e| failed(&next, &e))?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        let mut further = parts(&target);
        further.append(&mut left);
        left = further;
    }
    Ok(())
}

/// Returns the parts of a path, without the root and parts that stay in place.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

fn check_metadata(path: &Path, metadata: &std::fs::Metadata) -> Result<(), String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    let name = path.display();
    if !is_trusted(owner) && !is_unmapped(owner) {
        return Err(format!("{name} belongs to user {owner}, who can replace what lies there"));
    }
    if metadata.is_symlink() || mode & STICKY != 0 {
        return Ok(());
    }
    if !metadata.is_dir() {
        return Err(format!("{name} is not a folder"));
    }
    // A group of the user's own, as many systems give each user.
    let is_own_group = metadata.gid() == user() && user() != 0;
    let others = if is_own_group { OTHERS_WRITE } else { OTHERS_WRITE | GROUP_WRITES };
    match mode & others {
        0 => Ok(()),
        _ => Err(format!("others may write in {name} (mode {:o}): chmod go-w {name}", mode & 0o7777)),
    }
}

/// Returns whether a user is one that this user namespace has no number for: there, files of the system's root look so.
fn is_unmapped(user: u32) -> bool {
    let number = |file: &str| std::fs::read_to_string(file).ok();
    let map = number("/proc/self/uid_map").unwrap_or_default();
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]) || map.is_empty();
    let unmapped = number("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok());
    !is_whole && unmapped == Some(user)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_that_others_may_write_are_refused_wherever_they_are_on_the_way() {
        let base = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let (middle, last) = (base.path().join("middle"), base.path().join("middle/last"));
        create_dir(&middle).unwrap();
        create_dir(&last).unwrap();
        let link = base.path().join("link");
        symlink("middle/../middle/last/.", &link).unwrap();
        let whole = base.path().join("whole");
        symlink(&last, &whole).unwrap();
        let ways = [last.clone(), link, whole, middle.join("../middle/last")];
        for (of_middle, of_last, is_fine) in [
            (0o755, 0o700, true),
            (0o755, 0o1777, true),
            (0o755, 0o777, false),
            (0o755, 0o702, false),
            (0o777, 0o700, false),
            (0o1777, 0o700, true),
        ] {
            mode(&last, of_last);
            mode(&middle, of_middle);
            for way in &ways {
                let checked = check_folder(way);
                assert_eq!(
                    checked.is_ok(),
                    is_fine,
                    "{of_middle:o} {of_last:o} {}: {checked:?}",
                    way.display()
                );
                if let Err(problem) = checked {
                    assert!(problem.contains("chmod go-w"), "{problem}");
                }
            }
        }
        assert!(check_folder(&base.path().join("missing")).is_err());
        symlink("loop", base.path().join("loop")).unwrap();
        assert!(check_folder(&base.path().join("loop")).unwrap_err().contains("too many"));
        std::fs::write(base.path().join("file"), "").unwrap();
        assert!(check_folder(&base.path().join("file")).unwrap_err().contains("not a folder"));
    }

    #[test]
    fn a_service_has_the_folder_that_the_system_has_made_for_it() {
        let folder = |user, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            folder_for(user, |name| find(name).map(|(_, value)| (*value).into())).display().to_string()
        };
        let of_user = ("XDG_RUNTIME_DIR", "/run/user/7");
        assert_eq!(folder(7, &[("RUNTIME_DIRECTORY", "/run/a:/run/b"), of_user]), "/run/a");
        assert_eq!(folder(0, &[("RUNTIME_DIRECTORY", "/run/a")]), "/run/a");
        assert_eq!(folder(7, &[("RUNTIME_DIRECTORY", "relative"), of_user]), "/run/user/7/flowlane");
        assert_eq!(folder(0, &[of_user]), "/run/flowlane");
        assert!(folder(7, &[]).ends_with("/flowlane-7"));
    }

    #[test]
    fn root_relies_on_a_folder_that_it_has_given_to_a_user() {
        if user() != 0 {
            return println!("skipped: needs root");
        }
        let base = tempfile::tempdir().unwrap();
        let parent = base.path().join("run");
        let folder = parent.join("flowlane");
        create_dir(&parent).unwrap();
        create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(61_002), None).unwrap();
        let mode = |mode| set_permissions(&parent, Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        assert!(is_given(&folder, 61_002) && !is_given(&folder, 61_003));
        // There, others make folders, too.
        for open in [0o1777, 0o775, 0o757] {
            mode(open);
            assert!(!is_given(&folder, 61_002), "{open:o}");
        }
        mode(0o755);
        symlink(&folder, parent.join("link")).unwrap();
        assert!(!is_given(&parent.join("link"), 0));
        assert!(!is_system_socket(&folder.join("control.sock"), 61_002), "it is another folder");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        if user() != 0 {
            return println!("skipped: needs root");
        }
        let base = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(base.path(), Some(61_002), None).unwrap();
        assert!(check_folder(base.path()).unwrap_err().contains("belongs to user 61002"));
        // A group of root has members that are not root.
        std::os::unix::fs::chown(base.path(), Some(0), Some(0)).unwrap();
        set_permissions(base.path(), Permissions::from_mode(0o770)).unwrap();
        assert!(check_folder(base.path()).unwrap_err().contains("others may write"));
    }
}
