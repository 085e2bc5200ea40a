//! Captures that ports write.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flowlane_capture::{CaptureWriter, FileFormat};

use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames};

/// The configuration of a capture that is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcapOutConfig {
    /// The capture.
    pub file: PathBuf,
    /// Its format; by the file's name where it is none.
    pub format: Option<FileFormat>,
    /// When another file is begun; never where it is none.
    pub rotation: Option<Rotation>,
}

/// When another file is begun, and how many are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// The bytes of a file, at least: it ends behind a whole record.
    pub bytes: u64,
    /// The files that are kept, with the one that is being written: 2 and more.
    pub files: u32,
}

impl Rotation {
    /// The files where no number is given.
    pub const FILES: u32 = 10;
    /// The most files.
    pub const FILES_MAX: u32 = 1000;
}

impl PcapOutConfig {
    /// One file, in the format of its name.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), format: None, rotation: None }
    }

    /// All files that are written: the one that is being written, and full ones, the newest first: `x.pcap`, `x.1.pcap`, `x.2.pcap`.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        (0..self.rotation.map_or(1, |rotation| rotation.files)).map(|age| aged(&self.file, age))
    }
}

/// Returns the name of a file after some rotations.
fn aged(file: &Path, age: u32) -> PathBuf {
    if age == 0 {
        return file.to_owned();
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{age}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// Frames do not wait longer than this to be written, so that a file can be read while the switch runs.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of whole records that are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 18;

/// Returns the format of a file.
fn format_of(config: &PcapOutConfig) -> FileFormat {
    config.format.unwrap_or(FileFormat::of_path(&config.file))
}

/// Writes sent frames into a capture, each second and whenever many wait.
///
/// Where the file takes no more (a full disk), this is said once; frames are counted as not sent from then on, and the switch goes
/// on. The file ends behind a whole record.
pub struct PcapOutPort {
    spec: String,
    config: PcapOutConfig,
    file: File,
    /// When records were written last.
    written: Instant,
    /// Records that are still to be written.
    records: CaptureWriter<Vec<u8>>,
    /// How many frames those hold.
    frames: u64,
    /// Bytes of whole records in the file.
    len: u64,
    /// Frames that were taken, and lost.
    lost: u64,
    /// Why no more are taken.
    failed: Option<io::Error>,
}

impl PcapOutPort {
    /// Makes the file and its folders.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn create(config: &PcapOutConfig) -> Result<Self, PortError> {
        let spec = format!("pcap-out:{}", config.file.display());
        let create = || -> io::Result<_> {
            if let Some(folder) = config.file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let records = CaptureWriter::new(Vec::with_capacity(WRITTEN_AT_ONCE), format_of(config))?;
            Ok((File::create(&config.file)?, records))
        };
        let (file, records) = create().map_err(|source| PortError::Io { spec: spec.clone(), source })?;
        let (config, written) = (config.clone(), Instant::now());
        Ok(Self { spec, config, file, written, records, frames: 0, len: 0, lost: 0, failed: None })
    }

    /// Writes the records that wait.
    fn write(&mut self) {
        let records = self.records.output_mut();
        if self.failed.is_some() {
            return;
        }
        match self.file.write_all(records) {
            Ok(()) => self.len += records.len() as u64,
            Err(error) => {
                // Only regular files can be truncated.
                _ = self.file.set_len(self.len);
                self.lost += self.frames;
                self.fail(error);
            }
        }
        self.records.output_mut().clear();
        (self.frames, self.written) = (0, Instant::now());
        if let Some(rotation) = self.config.rotation.filter(|rotation| self.len >= rotation.bytes)
            && self.failed.is_none()
            && let Err(error) = self.rotate(rotation)
        {
            self.fail(error);
        }
    }

    /// Takes no more frames, and says why.
    fn fail(&mut self, error: io::Error) {
        let message = format!("flowlane: port `{}`: {error}; nothing more is written there\n", self.spec);
        // Standard error may be closed.
        _ = io::stderr().write_all(message.as_bytes());
        self.failed = Some(error);
    }

    /// Begins another file, in the place of which the full one gets the next name, and so on.
    fn rotate(&mut self, rotation: Rotation) -> io::Result<()> {
        let file = &self.config.file;
        for age in (0..rotation.files - 1).rev() {
            match std::fs::rename(aged(file, age), aged(file, age + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = File::create(file)?;
        self.records =
            CaptureWriter::new(std::mem::take(self.records.output_mut()), format_of(&self.config))?;
        self.len = 0;
        Ok(())
    }
}

impl Port for PcapOutPort {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Finished)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        if self.failed.is_some() {
            return Ok(false);
        }
        let (captured, len) = (frame.captured().bytes(), frame.len() as u32);
        let written = self.records.write_truncated(frame.time_ns, captured, len);
        written.map_err(|source| PortError::Io { spec: self.spec.clone(), source })?;
        self.frames += 1;
        if self.records.output_mut().len() >= WRITTEN_AT_ONCE {
            self.write();
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        if self.frames > 0 && self.written.elapsed() >= WAIT_MAX {
            self.write();
        }
        Ok(std::mem::take(&mut self.lost))
    }

    fn close(&mut self) -> Result<(), PortError> {
        self.write();
        let error = self.failed.as_ref().map(|error| io::Error::new(error.kind(), error.to_string()));
        error.map_or(Ok(()), |source| Err(PortError::Io { spec: self.spec.clone(), source }))
    }
}

impl Drop for PcapOutPort {
    /// Flushes accepted frames where the switch ends without closing the port.
    fn drop(&mut self) {
        self.write();
    }
}

#[cfg(test)]
mod tests {
    use flowlane_capture::CaptureReader;

    use super::*;

    /// The times of a capture's frames.
    fn times(file: &Path) -> Vec<u64> {
        let mut reader = CaptureReader::new(File::open(file).unwrap()).unwrap();
        std::iter::from_fn(|| reader.next().unwrap().map(|packet| packet.time_ns)).collect()
    }

    fn frame(bytes: &[u8], time_ns: u64) -> Frame {
        let mut frame = Frame::default();
        frame.fill(bytes);
        frame.time_ns = time_ns;
        frame
    }

    fn send(port: &mut PcapOutPort, time_ns: u64, bytes: usize) {
        assert!(port.send(&frame(&vec![7; bytes], time_ns)).unwrap());
    }

    #[test]
    fn a_full_file_gets_the_next_name_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Some(Rotation { bytes: WRITTEN_AT_ONCE as u64, files: 3 });
        let config = PcapOutConfig { rotation, ..PcapOutConfig::new(folder.path().join("x.pcap")) };
        let names = ["x.pcap", "x.1.pcap", "x.2.pcap"].map(|name| folder.path().join(name));
        assert_eq!(config.files().collect::<Vec<_>>(), names);
        let mut port = PcapOutPort::create(&config).unwrap();
        // A file for every two, since records are written when these many bytes wait.
        (0..9).for_each(|time| send(&mut port, time, WRITTEN_AT_ONCE / 2));
        port.close().unwrap();
        assert_eq!(names.each_ref().map(|file| times(file)), [vec![8], vec![6, 7], vec![4, 5]]);
        assert_eq!(folder.path().read_dir().unwrap().count(), 3, "no other file");
    }

    #[test]
    fn frames_wait_no_longer_than_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.pcapng");
        let mut port = PcapOutPort::create(&PcapOutConfig::new(&file)).unwrap();
        send(&mut port, 3, 60);
        port.flush().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0, "it waits for others");
        port.written -= WAIT_MAX;
        port.flush().unwrap();
        assert_eq!(times(&file), [3]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_full_disk_does_not_take_is_counted() {
        let mut out = PcapOutPort::create(&PcapOutConfig::new("/dev/full")).unwrap();
        let frames = 2 * (WRITTEN_AT_ONCE as u64 / 1000);
        let taken = (0..frames).filter(|&i| out.send(&frame(&[1; 1000], i)).unwrap()).count() as u64;
        assert!(taken < frames);
        assert_eq!(out.flush().unwrap(), taken);
        assert_eq!(out.flush().unwrap(), 0);
        let error = out.close().unwrap_err().to_string();
        assert!(error.contains("/dev/full"), "{error}");
        // Those that were still waiting are counted, too.
        let mut out = PcapOutPort::create(&PcapOutConfig::new("/dev/full")).unwrap();
        assert!(out.send(&frame(&[1; 1000], 0)).unwrap());
        assert_eq!(out.flush().unwrap(), 0);
        assert!(out.close().is_err());
        assert_eq!(out.flush().unwrap(), 1);
    }
}
