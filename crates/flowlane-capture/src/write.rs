//! Writing captures.

use std::io::{self, Write};
use std::path::Path;

/// The format of a capture file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileFormat {
    /// pcap with nanosecond timestamps.
    #[default]
    Pcap,
    /// pcapng with nanosecond timestamps.
    Pcapng,
}

impl FileFormat {
    /// Returns the format for a file name: pcapng for `.pcapng` and `.ntar`, else pcap.
    pub fn of_path(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("pcapng" | "ntar") => Self::Pcapng,
            _ => Self::Pcap,
        }
    }
}

/// Maximum snap length of Ethernet links.
const SNAP_LEN: u32 = 262_144;

/// Writes Ethernet frames into a capture.
pub struct CaptureWriter<W: Write> {
    output: W,
    format: FileFormat,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the file header. `output` should be buffered.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(mut output: W, format: FileFormat) -> io::Result<Self> {
        match format {
            FileFormat::Pcap => {
                let mut header = Vec::with_capacity(24);
                for number in [0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAP_LEN, 1u32] {
                    header.extend(number.to_le_bytes());
                }
                output.write_all(&header)?;
            }
            FileFormat::Pcapng => {
                // Section header of unknown length, version 1.0.
                let section = [0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX];
                write_block(&mut output, 0x0a0d_0d0a, &section.map(u32::to_le_bytes).concat())?;
                // Ethernet; if_tsresol (9) of one byte: 10^-9 s; end of options.
                let interface = [1, SNAP_LEN, 0x0001_0009, 9, 0];
                write_block(&mut output, 1, &interface.map(u32::to_le_bytes).concat())?;
            }
        }
        Ok(Self { output, format })
    }

    /// Writes a complete frame.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> io::Result<()> {
        self.write_truncated(time_ns, frame, frame.len() as u32)
    }

    /// Writes the captured bytes of a frame of `original` bytes.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_truncated(&mut self, time_ns: u64, frame: &[u8], original: u32) -> io::Result<()> {
        let len = frame.len() as u32;
        match self.format {
            FileFormat::Pcap => {
                let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
                let header = [seconds as u32, rest as u32, len, original].map(u32::to_le_bytes);
                self.output.write_all(header.as_flattened())?;
                self.output.write_all(frame)
            }
            FileFormat::Pcapng => {
                let header = [0, (time_ns >> 32) as u32, time_ns as u32, len, original].map(u32::to_le_bytes);
                let padding = &[0; 3][..frame.len().next_multiple_of(4) - frame.len()];
                let total = (12 + header.as_flattened().len() + frame.len() + padding.len()) as u32;
                self.output.write_all(&6u32.to_le_bytes())?;
                self.output.write_all(&total.to_le_bytes())?;
                self.output.write_all(header.as_flattened())?;
                self.output.write_all(frame)?;
                self.output.write_all(padding)?;
                self.output.write_all(&total.to_le_bytes())
            }
        }
    }

    /// Returns the output; between two calls of [`write`](Self::write), it is at a record boundary.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

fn write_block(output: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = (12 + body.len()) as u32;
    output.write_all(&kind.to_le_bytes())?;
    output.write_all(&total.to_le_bytes())?;
    output.write_all(body)?;
    output.write_all(&total.to_le_bytes())
}
