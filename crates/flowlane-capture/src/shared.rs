//! One capture for several threads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::batch::WINDOW;
use super::{Batch, CaptureError, CaptureReader, is_packed, unpack};

/// Bytes behind a part that are read with it, since its last record seldom ends where the part does.
const BEHIND: usize = 1 << 11;

/// How often a thread looks whether it is its turn before it sleeps.
const LOOKS: u32 = 2000;

/// A capture that several threads read. Each takes a part of the file and copies it; in turn, they find where its records begin:
/// the first does where the part before ends. A file that is packed is read by one thread at a time.
pub struct SharedReader(Kind);

enum Kind {
    File(Parts),
    Stream(Mutex<CaptureReader<Box<dyn Read + Send>>>),
}

struct Parts {
    file: Arc<File>,
    /// The part that is to be taken next.
    next: AtomicU64,
    /// The part whose records are to be found.
    turn: AtomicU64,
    shared: Mutex<Shared>,
    changed: Condvar,
    bytes: Arc<AtomicU64>,
}

struct Shared {
    reader: CaptureReader<At>,
    /// Threads that sleep until it is their turn.
    sleepers: u32,
}

/// A place in a file.
pub(super) struct At {
    file: Arc<File>,
    pub(super) position: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = read_at(&self.file, buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

/// As much of `buffer` as the file has there.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_at(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Says how much of a stream has been read.
struct Counted(File, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// What a thread that panicked has left is whole: its part has no frames.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedReader {
    /// Opens a capture, packed by gzip or zstd or not. Bytes of the file that have been read are added to `bytes` as it goes on.
    ///
    /// # Errors
    /// Where it cannot be read, or is no capture, or one of another link type.
    pub fn open(path: &Path, bytes: Arc<AtomicU64>) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Io { offset: 0, source };
        let file = File::open(path).map_err(failed)?;
        let is_file = file.metadata().map_err(failed)?.is_file();
        let mut beginning = [0; 4];
        let filled = if is_file { fill(&file, &mut beginning, 0).map_err(failed)? } else { 0 };
        if !is_file || is_packed(&beginning[..filled]) {
            let stream: Box<dyn Read + Send> = unpack(Counted(file, bytes)).map_err(failed)?;
            return Self::of_stream(stream);
        }
        let file = Arc::new(file);
        let reader = CaptureReader::new(At { file: Arc::clone(&file), position: 0 })?;
        let shared = Mutex::new(Shared { reader, sleepers: 0 });
        let (next, turn) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self(Kind::File(Parts { file, next, turn, shared, changed: Condvar::new(), bytes })))
    }

    /// A capture that comes from elsewhere than a file: one thread reads at a time.
    ///
    /// # Errors
    /// Where it cannot be read, or is no capture, or one of another link type.
    pub fn of_stream(stream: Box<dyn Read + Send>) -> Result<Self, CaptureError> {
        Ok(Self(Kind::Stream(Mutex::new(CaptureReader::new(stream)?))))
    }

    /// The next frames, in the place of those that `batch` had. None at the end of the file.
    ///
    /// Batches are consecutive: [`Batch::first`] says which frames a batch has.
    ///
    /// # Errors
    /// Where the file is damaged or cut off, once; frames before that are in batches, perhaps of other threads.
    pub fn next_batch(&self, batch: &mut Batch) -> Result<(), CaptureError> {
        match &self.0 {
            Kind::Stream(reader) => lock(reader).next_batch(batch),
            // A part may have no record that begins in it.
            Kind::File(parts) => {
                while parts.next_batch(batch)? {}
                Ok(())
            }
        }
    }
}

impl Parts {
    /// The frames of the next part; says whether there are none, and there are more parts.
    fn next_batch(&self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let part = self.next.fetch_add(1, Ordering::Relaxed);
        let from = part * WINDOW as u64;
        batch.places.clear();
        batch.store.make_room();
        let filled = fill(&self.file, &mut batch.store.window[..WINDOW + BEHIND], from);
        if let Ok(filled) = filled {
            self.bytes.fetch_add(filled.min(WINDOW) as u64, Ordering::Relaxed);
        }
        // Whatever comes of it, others wait for their turn.
        let mut turn = self.wait(part);
        let found = turn.shared.reader.next_part(batch, from, filled);
        drop(turn);
        found.map(|is_end| batch.is_empty() && !is_end)
    }

    /// Waits until it is this part's turn.
    fn wait(&self, part: u64) -> Turn<'_> {
        for _ in 0..LOOKS {
            if self.turn.load(Ordering::Acquire) == part {
                break;
            }
            std::hint::spin_loop();
        }
        let mut shared = lock(&self.shared);
        while self.turn.load(Ordering::Acquire) != part {
            shared.sleepers += 1;
            shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
            shared.sleepers -= 1;
        }
        Turn { shared, parts: self }
    }
}

/// The turn of a part; then it is the next one's.
struct Turn<'a> {
    shared: MutexGuard<'a, Shared>,
    parts: &'a Parts,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.parts.turn.fetch_add(1, Ordering::Release);
        if self.shared.sleepers > 0 {
            self.parts.changed.notify_all();
        }
    }
}
