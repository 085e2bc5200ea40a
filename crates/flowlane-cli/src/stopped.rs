//! Files that are removed where somebody stops the program: what is half written, and what sorting has put aside.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Says which files and folders are to be removed.
type Left = Box<dyn Fn() -> Vec<PathBuf> + Send>;

/// All that there is, each by its number; none before the first, with which the thread begins that waits for signals.
static ALL: Mutex<Option<Vec<(u64, Left)>>> = Mutex::new(None);

fn all() -> MutexGuard<'static, Option<Vec<(u64, Left)>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as this lives, a signal that ends the program removes what was said.
#[must_use]
pub(crate) struct Removed(u64);

/// What `left` says is removed where SIGINT or SIGTERM ends the program from now on.
pub(crate) fn removed(left: impl Fn() -> Vec<PathBuf> + Send + 'static) -> Removed {
    let mut all = all();
    let is_first = all.is_none();
    let known = all.get_or_insert_default();
    let number = known.last().map_or(0, |(number, _)| number + 1);
    known.push((number, Box::new(left)));
    // Where there can be no handler, the program ends as it would without, and files stay.
    if is_first && let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                remove_all();
                // By the signal, as whoever waits for the program expects.
                let _ = emulate_default_handler(signal);
            }
        });
    }
    Removed(number)
}

fn remove_all() {
    let all = all();
    let paths = all.iter().flatten().flat_map(|(_, left)| left());
    for path in paths {
        // Nobody is left to be told.
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        all().iter_mut().for_each(|known| known.retain(|(number, _)| *number != self.0));
    }
}
