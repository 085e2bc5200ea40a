//! Captures that several threads read: each has a file of its own as long as there are enough of them, and then helps with those
//! of others.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane_capture::{Batch, CaptureReader, unpack};

/// How far reading has come, and what was wrong.
#[derive(Default, Debug)]
pub struct Progress {
    /// Bytes of files that have been read.
    bytes: AtomicU64,
    damage: Mutex<Vec<String>>,
}

impl Progress {
    /// Bytes of captures that have been read, as they lie there.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What is wrong with captures: each gave the packets before that. From then on it is forgotten.
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

/// A file that says how much of it has been read.
struct Counted {
    file: File,
    progress: Arc<Progress>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A capture that is being read.
struct Open {
    name: Arc<str>,
    reader: CaptureReader<Box<dyn Read + Send>>,
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
        let mut own = lock(&self.open[thread]);
        loop {
            if let Some(name) = self.read(&mut own, batch) {
                return Some(name);
            }
            match self.open_next() {
                Some(open) => *own = Some(open),
                None => break,
            }
        }
        drop(own);
        let mut others = (1..self.open.len()).map(|i| (thread + i) % self.open.len());
        others.find_map(|other| self.read(&mut lock(&self.open[other]), batch))
    }

    /// The next file that can be opened; none where there are no more.
    fn open_next(&self) -> Option<Open> {
        loop {
            let path = lock(&self.left).pop_front()?;
            let name = path.display().to_string();
            let opened = File::open(&path)
                .and_then(|file| unpack(Counted { file, progress: Arc::clone(&self.progress) }))
                .map_err(|e| e.to_string())
                .and_then(|file| CaptureReader::new(file).map_err(|e| e.to_string()));
            match opened {
                Ok(reader) => return Some(Open { name: name.into(), reader }),
                Err(what) => self.progress.add_damage(&name, &what),
            }
        }
    }

    /// The next packets of a file; it is closed at its end.
    fn read(&self, open: &mut Option<Open>, batch: &mut Batch) -> Option<Arc<str>> {
        let Open { name, reader } = open.as_mut()?;
        match reader.next_batch(batch) {
            Ok(()) if !batch.is_empty() => return Some(Arc::clone(name)),
            Ok(()) => {}
            Err(what) => self.progress.add_damage(name, &what),
        }
        *open = None;
        None
    }
}
