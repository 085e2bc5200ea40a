//! A capture that several threads read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::batch::WINDOW_BYTES;
use super::recognise::PACKED_BYTES;
use super::{Batch, CaptureError, CaptureReader, decompress, is_compressed};

/// Bytes read beyond a part, because its last record usually ends there.
const TAIL_BYTES: usize = 1 << 11;

/// Number of polls of the turn before a thread sleeps.
const TURN_POLLS: u32 = 2000;

/// A capture that several threads read. Each thread reads a part of the file into its own buffer; then the threads find the
/// record boundaries in file order, each starting where the previous part ends. A compressed file is read by one thread at
/// a time.
pub struct SharedReader(Kind);

enum Kind {
    File(Parts),
    Stream(Mutex<CaptureReader<Box<dyn Read + Send>>>),
}

struct Parts {
    file: Arc<File>,
    /// Next part to read.
    next: AtomicU64,
    /// Part whose records may be found next.
    turn: AtomicU64,
    shared: Mutex<Shared>,
    changed: Condvar,
    bytes: Arc<AtomicU64>,
}

struct Shared {
    reader: CaptureReader<FileCursor>,
    /// Threads that sleep until their turn.
    sleepers: u32,
}

/// A position in a file.
pub(super) struct FileCursor {
    file: Arc<File>,
    pub(super) position: u64,
}

impl Read for FileCursor {
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

/// Fills `buffer` from `offset`, up to the end of the file.
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

/// Counts the bytes read from a stream.
struct CountingReader(File, Arc<AtomicU64>);

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A thread that panicked leaves consistent state: its part has no frames.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedReader {
    /// Opens a capture, which may be compressed by gzip or zstd. Adds the bytes read from the file to `bytes`.
    ///
    /// # Errors
    /// If the file cannot be read, is not a capture, or has an unsupported link type.
    pub fn open(path: &Path, bytes: Arc<AtomicU64>) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Io { offset: 0, source };
        let file = File::open(path).map_err(failed)?;
        let is_file = file.metadata().map_err(failed)?.is_file();
        let mut beginning = [0; PACKED_BYTES];
        let filled = if is_file { fill(&file, &mut beginning, 0).map_err(failed)? } else { 0 };
        if !is_file || is_compressed(&beginning[..filled]) {
            let stream: Box<dyn Read + Send> = decompress(CountingReader(file, bytes)).map_err(failed)?;
            return Self::of_stream(stream);
        }
        let file = Arc::new(file);
        let reader = CaptureReader::new(FileCursor { file: Arc::clone(&file), position: 0 })?;
        let shared = Mutex::new(Shared { reader, sleepers: 0 });
        let (next, turn) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self(Kind::File(Parts { file, next, turn, shared, changed: Condvar::new(), bytes })))
    }

    /// Opens a capture from a stream, which one thread reads at a time.
    ///
    /// # Errors
    /// If the stream cannot be read, is not a capture, or has an unsupported link type.
    pub fn of_stream(stream: Box<dyn Read + Send>) -> Result<Self, CaptureError> {
        Ok(Self(Kind::Stream(Mutex::new(CaptureReader::new(stream)?))))
    }

    /// Reads the next frames into `batch`, replacing its frames. The batch is empty at the end of the file.
    ///
    /// Batches are consecutive: [`Batch::first`] gives the position of a batch.
    ///
    /// # Errors
    /// If the file is damaged or truncated, once; the frames before the damage are in batches, possibly of other threads.
    pub fn next_batch(&self, batch: &mut Batch) -> Result<(), CaptureError> {
        match &self.0 {
            Kind::Stream(reader) => lock(reader).next_batch(batch),
            // A part may lie within a long record, and so contain no frame.
            Kind::File(parts) => {
                while parts.next_batch(batch)? {}
                Ok(())
            }
        }
    }
}

impl Parts {
    /// Reads the frames of the next part; returns whether to continue with the part after it.
    fn next_batch(&self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let part = self.next.fetch_add(1, Ordering::Relaxed);
        let from = part * WINDOW_BYTES as u64;
        batch.spans.clear();
        batch.store.make_room();
        let filled = fill(&self.file, &mut batch.store.window[..WINDOW_BYTES + TAIL_BYTES], from);
        if let Ok(filled) = filled {
            self.bytes.fetch_add(filled.min(WINDOW_BYTES) as u64, Ordering::Relaxed);
        }
        // The turn must be taken even after an error, because other threads wait for it.
        let mut turn = self.wait(part);
        let found = turn.shared.reader.next_part(batch, from, filled);
        drop(turn);
        found.map(|is_end| batch.is_empty() && !is_end)
    }

    /// Waits for the turn of a part.
    fn wait(&self, part: u64) -> Turn<'_> {
        for _ in 0..TURN_POLLS {
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

/// The turn of a part, which passes to the next part when dropped.
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
