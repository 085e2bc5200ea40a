//! Removal of temporary files when a signal ends the program.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Returns the files and directories to remove.
type Paths = Box<dyn Fn() -> Vec<PathBuf> + Send>;

/// Registered removals by number; `None` before the first one, which starts the signal thread.
static REGISTERED: Mutex<Option<Vec<(u64, Paths)>>> = Mutex::new(None);

fn registered() -> MutexGuard<'static, Option<Vec<(u64, Paths)>>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a removal registered while alive.
#[must_use]
pub(crate) struct CleanupGuard(u64);

/// Removes the paths that `paths` returns if SIGINT or SIGTERM ends the program.
pub(crate) fn remove_on_signal(paths: impl Fn() -> Vec<PathBuf> + Send + 'static) -> CleanupGuard {
    let mut registered = registered();
    let is_first = registered.is_none();
    let known = registered.get_or_insert_default();
    let number = known.last().map_or(0, |(number, _)| number + 1);
    known.push((number, Box::new(paths)));
    // Without a handler the program ends as usual, and the files stay.
    if is_first && let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                remove_all();
                // Ends by the signal, as the parent process expects.
                let _ = emulate_default_handler(signal);
            }
        };
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    }
    CleanupGuard(number)
}

fn remove_all() {
    let registered = registered();
    let paths = registered.iter().flatten().flat_map(|(_, paths)| paths());
    for path in paths {
        // The program is ending; there is no place to report a failure.
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        registered().iter_mut().for_each(|known| known.retain(|(number, _)| *number != self.0));
    }
}
