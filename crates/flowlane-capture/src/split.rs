//! Parts of a capture for separate processes or machines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::recognise::PACKED_BYTES;
use super::source::Source;
use super::{Batch, CaptureError, CaptureReader, Format, Step, decompress, is_compressed};

/// A range of frames of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// File offset of the first frame's record.
    pub offset: u64,
    /// Number of the first frame, from 0.
    pub first: u64,
    /// Number of frames.
    pub frames: u64,
}

impl Split {
    /// All frames of a capture.
    pub const WHOLE: Self = Self { offset: 0, first: 0, frames: u64::MAX };
}

/// Splits a capture into parts of about `bytes` bytes; also returns the damage after the last part, if any. Reads the whole
/// file once.
///
/// A compressed file is [one part](Split::WHOLE), as is a pcapng file that describes an interface after its first frame.
///
/// ```
/// # use flowlane_capture::{CaptureWriter, FileFormat};
/// # let file = tempfile::NamedTempFile::new()?;
/// # let mut writer = CaptureWriter::new(file.reopen()?, FileFormat::Pcap)?;
/// # for time in 0..100_000 {
/// #     writer.write(time, &[0xff; 60])?;
/// # }
/// # writer.finish()?;
/// # let path = file.path();
/// let (parts, damage) = flowlane_capture::splits(path, 1 << 20)?;
/// assert!(parts.len() == 8 && damage.is_none());
/// let mut reader = flowlane_capture::CaptureReader::of_split(path, &parts[3])?;
/// let mut frames = 0;
/// while reader.next()?.is_some() {
///     frames += 1;
/// }
/// assert_eq!(frames, parts[3].frames);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is not a capture, or has an unsupported link type.
pub fn splits(path: &Path, bytes: u64) -> Result<(Vec<Split>, Option<CaptureError>), CaptureError> {
    let file = open(path)?;
    if is_file_compressed(&file)? {
        return Ok((vec![Split::WHOLE], None));
    }
    let mut reader = CaptureReader::new(file)?;
    let (mut all, mut batch) = (Vec::<Split>::new(), Batch::default());
    let damage = loop {
        let (offset, first) = (reader.source.offset, reader.source.record);
        match reader.next_batch(&mut batch) {
            Ok(()) if batch.is_empty() => break None,
            Ok(()) => {}
            Err(damage) => break Some(damage),
        }
        let frames = batch.len() as u64;
        match all.last_mut() {
            Some(last) if offset - last.offset < bytes => last.frames += frames,
            _ => all.push(Split { offset, first, frames }),
        }
    };
    // A later part of such a file would not know all interfaces.
    match &reader.format {
        Format::Pcapng(section) if section.has_late_interfaces() => Ok((vec![Split::WHOLE], None)),
        _ => Ok((all, damage)),
    }
}

fn failed(source: std::io::Error) -> CaptureError {
    CaptureError::Io { offset: 0, source }
}

fn open(path: &Path) -> Result<File, CaptureError> {
    File::open(path).map_err(failed)
}

fn is_file_compressed(mut file: &File) -> Result<bool, CaptureError> {
    let mut beginning = Vec::new();
    file.take(PACKED_BYTES as u64).read_to_end(&mut beginning).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(is_compressed(&beginning))
}

impl CaptureReader<Box<dyn Read + Send>> {
    /// Opens a part of a capture.
    ///
    /// # Errors
    /// If the file cannot be read, is not a capture, or has an unsupported link type.
    pub fn of_split(path: &Path, split: &Split) -> Result<Self, CaptureError> {
        let mut file = open(path)?;
        if is_file_compressed(&file)? || *split == Split::WHOLE {
            return Self::new(decompress(file).map_err(failed)?);
        }
        let mut reader = CaptureReader::new(&mut file)?;
        // The headers before the first frame define the frame format.
        while !matches!(reader.read()?, Step::Frame | Step::End) {}
        let format = reader.format;
        file.seek(SeekFrom::Start(split.offset)).map_err(failed)?;
        let input: Box<dyn Read + Send> = Box::new(file);
        let mut source = Source::new(input);
        (source.offset, source.record) = (split.offset, split.first);
        Ok(Self { source, format, failed: None, ended: false, left: split.frames })
    }
}
