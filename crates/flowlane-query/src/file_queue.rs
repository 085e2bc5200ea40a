//! Distribution of captures over threads: each thread reads a file of its own as long as there are files left, and then
//! helps with those of other threads.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane_capture::{Batch, SharedReader};

/// Progress of reading, and errors in captures.
#[derive(Default, Debug)]
pub struct Progress {
    /// Bytes read from files.
    bytes: Arc<AtomicU64>,
    damage: Mutex<Vec<String>>,
}

impl Progress {
    /// Returns the number of bytes read, as stored on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns and clears the errors in captures; the packets before each error were read.
    pub fn take_damage(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.damage))
    }

    fn add_damage(&self, name: &str, what: &dyn std::fmt::Display) {
        let damage = format!("{name}: {what}");
        let mut all = lock(&self.damage);
        // A table that is scanned twice reports its damage once.
        if !all.contains(&damage) {
            all.push(damage);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves consistent state: its reader has ended.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open capture.
#[derive(Clone)]
struct Open {
    name: Arc<str>,
    reader: Arc<SharedReader>,
}

/// Captures to read, shared by threads.
pub(crate) struct FileQueue {
    left: Mutex<VecDeque<PathBuf>>,
    /// Open file of each thread.
    open: Vec<Mutex<Option<Open>>>,
    progress: Arc<Progress>,
}

impl FileQueue {
    /// Creates a queue for `threads` threads.
    pub(crate) fn new(files: &[PathBuf], threads: usize, progress: Arc<Progress>) -> Self {
        let open = (0..threads).map(|_| Mutex::new(None)).collect();
        Self { left: Mutex::new(files.iter().cloned().collect()), open, progress }
    }

    /// Reads the next packets for a thread into `batch`; returns the name of their file, or `None` at the end.
    pub(crate) fn next(&self, thread: usize, batch: &mut Batch) -> Option<Arc<str>> {
        loop {
            if let Some(name) = self.read(thread, batch) {
                return Some(name);
            }
            // A thread that finds no file left blocks here until other threads have opened theirs, and then helps with
            // them.
            let mut own = lock(&self.open[thread]);
            *own = self.open_next();
            if own.is_none() {
                break;
            }
        }
        let mut others = (1..self.open.len()).map(|i| (thread + i) % self.open.len());
        others.find_map(|other| self.read(other, batch))
    }

    /// Opens the next file that can be opened; returns `None` if there are no more.
    fn open_next(&self) -> Option<Open> {
        loop {
            let path = lock(&self.left).pop_front()?;
            let name = path.display().to_string();
            match SharedReader::open(&path, Arc::clone(&self.progress.bytes)) {
                Ok(reader) => return Some(Open { name: name.into(), reader: Arc::new(reader) }),
                Err(what) => self.progress.add_damage(&name, &what),
            }
        }
    }

    /// Reads the next packets of the file of `thread`, which may be another thread; closes the file at its end.
    fn read(&self, thread: usize, batch: &mut Batch) -> Option<Arc<str>> {
        let Open { name, reader } = lock(&self.open[thread]).clone()?;
        match reader.next_batch(batch) {
            Ok(()) if !batch.is_empty() => return Some(name),
            Ok(()) => {}
            Err(what) => self.progress.add_damage(&name, &what),
        }
        let mut open = lock(&self.open[thread]);
        // The thread may have opened another file meanwhile.
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.reader, &reader)) {
            *open = None;
        }
        None
    }
}
