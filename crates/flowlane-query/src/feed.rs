//! Captures that several threads read: each has a file of its own as long as there are enough of them, and then helps with those
//! of others.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane_capture::{Batch, SharedReader};

/// The progress of reading, and the damage found.
#[derive(Default, Debug)]
pub struct Progress {
    /// Bytes of files that have been read.
    bytes: Arc<AtomicU64>,
    damage: Mutex<Vec<String>>,
}

impl Progress {
    /// Bytes of captures that have been read, as they lie there.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes the damage found in captures, each of which gave the packets before it.
    pub fn take_damage(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.damage))
    }

    fn add_damage(&self, name: &str, what: &dyn std::fmt::Display) {
        let damage = format!("{name}: {what}");
        let mut all = lock(&self.damage);
        // A table that is read twice is damaged once.
        if !all.contains(&damage) {
            all.push(damage);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread has left is whole: a reader that panicked has ended.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture that is being read.
#[derive(Clone)]
struct Open {
    name: Arc<str>,
    reader: Arc<SharedReader>,
}

/// Captures that are being read.
pub(crate) struct Feed {
    left: Mutex<VecDeque<PathBuf>>,
    /// The file of each thread.
    open: Vec<Mutex<Option<Open>>>,
    progress: Arc<Progress>,
}

impl Feed {
    /// For so many threads.
    pub(crate) fn new(files: &[PathBuf], threads: usize, progress: Arc<Progress>) -> Self {
        let open = (0..threads).map(|_| Mutex::new(None)).collect();
        Self { left: Mutex::new(files.iter().cloned().collect()), open, progress }
    }

    /// Puts the next packets for a thread into `batch`; the file that they are of, or none where there are no more.
    pub(crate) fn next(&self, thread: usize, batch: &mut Batch) -> Option<Arc<str>> {
        loop {
            if let Some(name) = self.read(thread, batch) {
                return Some(name);
            }
            // Who finds no file left waits here for the one that is being opened, and helps with it.
            let mut own = lock(&self.open[thread]);
            *own = self.open_next();
            if own.is_none() {
                break;
            }
        }
        let mut others = (1..self.open.len()).map(|i| (thread + i) % self.open.len());
        others.find_map(|other| self.read(other, batch))
    }

    /// The next file that can be opened; none where there are no more.
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

    /// The next packets of the file of a thread, perhaps another one; the file is closed at its end.
    fn read(&self, thread: usize, batch: &mut Batch) -> Option<Arc<str>> {
        let Open { name, reader } = lock(&self.open[thread]).clone()?;
        match reader.next_batch(batch) {
            Ok(()) if !batch.is_empty() => return Some(name),
            Ok(()) => {}
            Err(what) => self.progress.add_damage(&name, &what),
        }
        let mut open = lock(&self.open[thread]);
        // It may be another one's by now.
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.reader, &reader)) {
            *open = None;
        }
        None
    }
}
