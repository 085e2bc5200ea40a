//! Capture files as ports.
//!
//! Every capture that `flowlane classify` reads is replayed, and each frame is parsed as there: compressed files, frames
//! truncated by a snap length and frames from before segmentation. What the capture lacks of a frame is replayed as zeros, so
//! that lengths, counters of bytes and the headers of later actions are those of the complete frame; a `pcap-out` file
//! gets what there was. Damage ends the input, not the switch: the other ports go on, and closing the port is the error.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use flowlane_capture::{CaptureError, CaptureReader, FRAME_MAX, Packet, decompress};

use super::pcap_out::{PcapOutConfig, PcapOutPort};
use super::{Port, PortError, Received, SharedPort};
use crate::packet::{Frame, Frames, Spread};

/// The most bytes of frames that are kept to be replayed several times.
pub const REPLAY_BYTES_MAX: usize = 1 << 30;

/// The most frames that are read in one go: those for other workers are passed over.
const READ_MAX: u64 = 1024;

/// The configuration of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcapConfig {
    /// The capture.
    pub file: PathBuf,
    /// How many times; 0 for ever.
    pub loops: u64,
    /// Packets a second; as fast as they are taken where it is none.
    pub rate_pps: Option<u64>,
    /// The file for frames that are sent to the port; `None` drops them.
    pub out: Option<PathBuf>,
}

impl PcapConfig {
    /// Once, as fast as possible.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), loops: 1, rate_pps: None, out: None }
    }
}

/// A capture that may be compressed.
type Reader = CaptureReader<Box<dyn Read + Send>>;

/// Frames kept in memory, one behind the other.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    frames: Vec<Kept>,
}

/// A frame in an [`Arena`].
struct Kept {
    /// End in the arena's bytes.
    end: u32,
    /// Length before truncation.
    len: u32,
    time_ns: u64,
}

enum Input {
    /// Read once, record by record.
    Stream { reader: Box<Reader> },
    /// Replayed from memory: next frame, where it begins, replays left after this one (none: no end).
    Memory { arena: Arena, next: usize, start: usize, left: Option<u64> },
    /// At its end.
    Done,
}

/// Replays a capture.
pub struct PcapPort {
    spec: String,
    input: Input,
    /// Which frames are given, of those that are read.
    spread: Spread,
    /// Damage of the capture, which closing reports.
    damage: Option<PortError>,
    pace: Option<Pace>,
    output: Option<Box<dyn Port>>,
}

/// A limit of the packet rate: computes the number of packets due by now.
struct Pace {
    rate_pps: u64,
    begun: Instant,
    gone: u64,
}

impl Pace {
    fn allowed(&self) -> u64 {
        let due = self.begun.elapsed().as_nanos() * u128::from(self.rate_pps) / 1_000_000_000;
        // The first packet goes at once.
        (due.min(u64::MAX.into()) as u64).saturating_add(1).saturating_sub(self.gone)
    }
}

impl PcapPort {
    /// Opens the capture; one that is replayed more than once is read into memory.
    ///
    /// # Errors
    /// Where it cannot be read, is no capture, or is too large to be replayed from memory.
    pub fn open(config: &PcapConfig) -> Result<Self, PortError> {
        Ok(Self::open_all(config, vec![Spread::all()])?.remove(0))
    }

    /// Opens the capture for several workers: each reads it, and keeps its share of the frames. Sent frames go to
    /// one file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(config: &PcapConfig, spreads: Vec<Spread>) -> Result<Vec<Self>, PortError> {
        let workers = spreads.len();
        let output =
            config.out.as_deref().map(|out| PcapOutPort::create(&PcapOutConfig::new(out))).transpose()?;
        let mut outputs: Vec<Box<dyn Port>> = match (output, workers) {
            (None, _) => Vec::new(),
            (Some(output), 1) => vec![Box::new(output)],
            (Some(output), _) => {
                let handles = SharedPort::handles(Box::new(output), workers);
                handles.into_iter().map(|handle| Box::new(handle) as _).collect()
            }
        };
        outputs.reverse();
        spreads.into_iter().map(|spread| Self::share(config, spread, outputs.pop())).collect()
    }

    fn share(
        config: &PcapConfig,
        mut spread: Spread,
        output: Option<Box<dyn Port>>,
    ) -> Result<Self, PortError> {
        let spec = format!("pcap:{}", config.file.display());
        let io = |source| PortError::Io { spec: spec.clone(), source };
        let file = File::open(&config.file).and_then(decompress).map_err(io)?;
        let reader = CaptureReader::new(file);
        let mut reader = reader.map_err(|e| capture_error(&spec, e))?;
        let mut damage = None;
        // A rate counts the frames read from the file: in memory there are only those of this worker.
        let (mut mine, mut all) = (1, 1);
        let input = if config.loops == 1 {
            Input::Stream { reader: Box::new(reader) }
        } else {
            let mut arena = Arena::default();
            (damage, all) = arena.load(&mut reader, &spec, &mut spread)?;
            mine = arena.frames.len() as u128;
            let left = config.loops.checked_sub(1);
            if arena.frames.is_empty() {
                Input::Done
            } else {
                Input::Memory { arena, next: 0, start: 0, left }
            }
        };
        let rate = |rate_pps: u64| (u128::from(rate_pps) * mine / all.max(1)) as u64;
        let pace = |rate_pps| Pace { rate_pps: rate(rate_pps).max(1), begun: Instant::now(), gone: 0 };
        let pace = config.rate_pps.map(pace);
        Ok(Self { spec, input, spread, damage, pace, output })
    }
}

fn capture_error(spec: &str, error: CaptureError) -> PortError {
    PortError::Capture { spec: spec.to_owned(), problem: error.to_string() }
}

/// Returns the length of a captured frame; more than a capture can have of it is not believed.
fn len_of(packet: &Packet<'_>) -> usize {
    (packet.len as usize).min(FRAME_MAX).max(packet.bytes.len())
}

impl Arena {
    /// Reads the frames of one worker. Returns the damage of the capture, and the number of its frames.
    fn load(
        &mut self,
        reader: &mut Reader,
        spec: &str,
        spread: &mut Spread,
    ) -> Result<(Option<PortError>, u128), PortError> {
        let mut frames = 0;
        loop {
            let packet = match reader.next() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok((None, frames)),
                Err(error) if frames == 0 => return Err(capture_error(spec, error)),
                Err(error) => return Ok((Some(capture_error(spec, error)), frames)),
            };
            frames += 1;
            if !spread.is_mine(packet.bytes, packet.time_ns) {
                continue;
            }
            if self.bytes.len() + packet.bytes.len() > REPLAY_BYTES_MAX {
                let problem = format!(
                    "its frames take more than {REPLAY_BYTES_MAX} bytes, too many to replay from memory; \
                     use loop=1 or a smaller capture"
                );
                return Err(PortError::Capture { spec: spec.to_owned(), problem });
            }
            self.bytes.extend_from_slice(packet.bytes);
            let (end, len) = (self.bytes.len() as u32, len_of(&packet) as u32);
            self.frames.push(Kept { end, len, time_ns: packet.time_ns });
        }
    }
}

impl Input {
    /// Returns whether the capture has frames of other workers.
    #[inline]
    fn has_others(&self) -> bool {
        matches!(self, Input::Stream { .. })
    }

    /// Puts the next frame into `frame`; says whether there was one.
    #[inline]
    fn next(&mut self, frame: &mut Frame) -> Result<bool, CaptureError> {
        match self {
            Input::Stream { reader } => {
                let Some(packet) = reader.next()? else { return Ok(false) };
                frame.fill_captured(packet.bytes, len_of(&packet));
                frame.time_ns = packet.time_ns;
                Ok(true)
            }
            Input::Memory { arena, next, start, left } => {
                if *next == arena.frames.len() {
                    if *left == Some(0) {
                        return Ok(false);
                    }
                    *left = left.map(|n| n - 1);
                    (*next, *start) = (0, 0);
                }
                let Kept { end, len, time_ns } = arena.frames[*next];
                frame.fill_captured(&arena.bytes[*start..end as usize], len as usize);
                frame.time_ns = time_ns;
                (*next, *start) = (*next + 1, end as usize);
                Ok(true)
            }
            Input::Done => Ok(false),
        }
    }
}

impl Port for PcapPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let most = self.pace.as_ref().map_or(u64::MAX, Pace::allowed);
        let mut taken = 0;
        while taken < most.min(READ_MAX) {
            let Some(frame) = frames.next_frame() else { break };
            match self.input.next(frame) {
                Ok(true) => {
                    taken += 1;
                    if self.input.has_others() && !self.spread.is_mine(frame.bytes(), frame.time_ns) {
                        frames.unget();
                    }
                }
                Ok(false) => {
                    frames.unget();
                    self.input = Input::Done;
                    return Ok(Received::Finished);
                }
                Err(error) => {
                    frames.unget();
                    self.input = Input::Done;
                    self.damage = Some(capture_error(&self.spec, error));
                    return Ok(Received::Finished);
                }
            }
        }
        if let Some(pace) = &mut self.pace {
            pace.gone += taken;
        }
        Ok(if frames.is_full() { Received::More } else { Received::Idle })
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.output.as_mut().map_or(Ok(false), |output| output.send(frame))
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        self.output.as_mut().map_or(Ok(0), |output| output.flush())
    }

    fn close(&mut self) -> Result<(), PortError> {
        let closed = self.output.as_mut().map_or(Ok(()), |output| output.close());
        closed.and(self.damage.take().map_or(Ok(()), Err))
    }

    fn is_capture(&self) -> bool {
        true
    }

    fn sends(&self) -> bool {
        self.output.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flowlane_capture::{CaptureWriter, FileFormat};

    use super::*;

    fn frame(bytes: &[u8], time_ns: u64) -> Frame {
        let mut frame = Frame::default();
        frame.fill(bytes);
        frame.time_ns = time_ns;
        frame
    }

    fn drain(port: &mut PcapPort) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let mut burst = Frames::new(4);
        loop {
            burst.clear();
            let received = port.receive(&mut burst).unwrap();
            out.extend(burst.iter().map(|f| (f.time_ns, f.bytes().to_vec())));
            if received == Received::Finished {
                return out;
            }
        }
    }

    #[test]
    fn a_capture_is_written_replayed_and_looped() {
        let folder = std::env::temp_dir().join(format!("flowlane-pcap-{}", std::process::id()));
        let file = folder.join("a/b.pcapng");
        let mut out = PcapOutPort::create(&PcapOutConfig::new(&file)).unwrap();
        let frames: Vec<_> = (0..9u8).map(|i| (u64::from(i), vec![i; 60])).collect();
        for (time_ns, bytes) in &frames {
            assert!(out.send(&frame(bytes, *time_ns)).unwrap());
        }
        out.close().unwrap();
        assert_eq!(drain(&mut PcapPort::open(&PcapConfig::new(&file)).unwrap()), frames);
        let thrice = PcapConfig { loops: 3, ..PcapConfig::new(&file) };
        let replayed = drain(&mut PcapPort::open(&thrice).unwrap());
        assert_eq!(replayed, [frames.clone(), frames.clone(), frames].concat());
        let slow = PcapConfig { rate_pps: Some(1), ..PcapConfig::new(&file) };
        let mut slow = PcapPort::open(&slow).unwrap();
        let mut burst = Frames::new(4);
        assert_eq!(slow.receive(&mut burst).unwrap(), Received::Idle);
        assert_eq!(burst.len(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Writes a capture of frames with their original lengths, and opens it.
    fn opened(name: &str, file: &[u8], loops: u64) -> Result<PcapPort, PortError> {
        let path = std::env::temp_dir().join(format!("flowlane-{}-{name}", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let port = PcapPort::open(&PcapConfig { loops, ..PcapConfig::new(&path) });
        std::fs::remove_file(&path).unwrap();
        port
    }

    fn capture(frames: &[(&[u8], u32)]) -> Vec<u8> {
        let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap).unwrap();
        for (bytes, len) in frames {
            writer.write_truncated(7, bytes, *len).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn compressed_captures_are_replayed() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&capture(&[(&[1; 60], 60), (&[2; 60], 60)])).unwrap();
        let packed = packer.finish().unwrap();
        for loops in [1, 2] {
            let mut port = opened(&format!("packed{loops}"), &packed, loops).unwrap();
            assert_eq!(drain(&mut port).len() as u64, 2 * loops);
            port.close().unwrap();
        }
    }

    #[test]
    fn truncated_frames_keep_their_length_and_are_written_truncated() {
        let file = capture(&[(&[1; 40], 60), (&[2; 60], 60), (&[3; 20], u32::MAX)]);
        for loops in [1, 2] {
            let mut port = opened(&format!("cut{loops}"), &file, loops).unwrap();
            let mut burst = Frames::new(4);
            port.receive(&mut burst).unwrap();
            assert_eq!(burst[0].bytes(), [&[1; 40][..], &[0; 20]].concat());
            let seen = |frame: &Frame| (frame.captured().bytes().to_vec(), frame.captured().len());
            assert_eq!(seen(&burst[0]), (vec![1; 40], 60));
            assert_eq!(seen(&burst[1]), (vec![2; 60], 60));
            // No capture has frames that long.
            assert_eq!(seen(&burst[2]), (vec![3; 20], FRAME_MAX));
            // Headers in front and bytes cut off at the end leave the rest truncated.
            burst[0].push(4);
            assert_eq!((burst[0].captured().bytes().len(), burst[0].len()), (44, 64));
            burst[0].truncate(50);
            assert_eq!((burst[0].captured().bytes().len(), burst[0].len()), (44, 50));
            burst[0].truncate(30);
            assert_eq!((burst[0].captured().bytes().len(), burst[0].len()), (30, 30));
            // Another frame in the same buffer is complete.
            burst[2].fill(&[4; 60]);
            assert_eq!(seen(&burst[2]), (vec![4; 60], 60));
        }
        let mut port = opened("again", &file, 1).unwrap();
        let path = std::env::temp_dir().join(format!("flowlane-{}-written", std::process::id()));
        let mut outputs =
            SharedPort::handles(Box::new(PcapOutPort::create(&PcapOutConfig::new(&path)).unwrap()), 2);
        let mut burst = Frames::new(2);
        port.receive(&mut burst).unwrap();
        for frame in burst.iter() {
            outputs[1].send(frame).unwrap();
        }
        outputs.iter_mut().for_each(|output| output.close().unwrap());
        outputs[1].flush().unwrap();
        outputs[1].close().unwrap();
        outputs[0].close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), capture(&[(&[1; 40], 60), (&[2; 60], 60)]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn damage_ends_the_input_and_is_the_error_of_closing() {
        let mut file = capture(&[(&[1; 60], 60), (&[2; 60], 60)]);
        file.truncate(file.len() - 1);
        for loops in [1, 3] {
            let mut port = opened(&format!("damaged{loops}"), &file, loops).unwrap();
            assert_eq!(drain(&mut port).len() as u64, loops);
            let error = port.close().unwrap_err().to_string();
            assert!(error.contains("ends within record 1"), "{error}");
            port.close().unwrap();
        }
        file.truncate(50);
        assert!(opened("none", &file, 3).is_err());
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let error = PcapPort::open(&PcapConfig::new("/no/such.pcap")).err().unwrap();
        assert!(error.to_string().contains("/no/such.pcap"));
    }
}
