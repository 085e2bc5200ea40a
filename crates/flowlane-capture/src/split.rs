//! Parts of a capture that are read apart: by other processes, or on other machines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::source::Source;
use super::{Batch, CaptureError, CaptureReader, Reading, Step, is_packed, unpack};

/// Some frames of a capture: where the record of the first begins in the file, its number, and how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Byte of the file.
    pub offset: u64,
    /// The number of the first frame, from 0.
    pub first: u64,
    /// How many frames there are.
    pub frames: u64,
}

impl Split {
    /// All frames, however many there are.
    pub const WHOLE: Self = Self { offset: 0, first: 0, frames: u64::MAX };
}

/// Splits a capture into parts of about so many bytes; and says what is wrong behind the last one. The file is read once.
///
/// A file that is packed is [one part](Split::WHOLE), and so is one of pcapng that describes interfaces behind its first frame.
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
/// Where it cannot be read, or is no capture, or one of another link type.
pub fn splits(path: &Path, bytes: u64) -> Result<(Vec<Split>, Option<CaptureError>), CaptureError> {
    let file = open(path)?;
    if is_file_packed(&file)? {
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
    // A part of such a file does not know all interfaces.
    match &reader.format {
        Reading::Pcapng(section) if section.is_described_late() => Ok((vec![Split::WHOLE], None)),
        _ => Ok((all, damage)),
    }
}

fn failed(source: std::io::Error) -> CaptureError {
    CaptureError::Io { offset: 0, source }
}

fn open(path: &Path) -> Result<File, CaptureError> {
    File::open(path).map_err(failed)
}

fn is_file_packed(mut file: &File) -> Result<bool, CaptureError> {
    let mut beginning = Vec::new();
    file.take(4).read_to_end(&mut beginning).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(is_packed(&beginning))
}

impl CaptureReader<Box<dyn Read + Send>> {
    /// Reads a part of a capture.
    ///
    /// # Errors
    /// Where the file cannot be read, or is no capture, or one of another link type.
    pub fn of_split(path: &Path, split: &Split) -> Result<Self, CaptureError> {
        let mut file = open(path)?;
        if is_file_packed(&file)? || *split == Split::WHOLE {
            return Self::new(unpack(file).map_err(failed)?);
        }
        let mut reader = CaptureReader::new(&mut file)?;
        // What stands before the first frame says what frames are.
        while !matches!(reader.read()?, Step::Frame | Step::End) {}
        let format = reader.format;
        file.seek(SeekFrom::Start(split.offset)).map_err(failed)?;
        let input: Box<dyn Read + Send> = Box::new(file);
        let mut source = Source::new(input);
        (source.offset, source.record) = (split.offset, split.first);
        Ok(Self { source, format, failed: None, ended: false, left: split.frames })
    }
}
