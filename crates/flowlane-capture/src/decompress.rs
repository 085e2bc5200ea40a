//! Decompression of gzip and zstd.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::recognise::{PACKED_BYTES, recognise_packed};

/// Read buffer for compressed data.
const BUFFER: usize = 1 << 16;

fn is_gzip(beginning: &[u8]) -> bool {
    beginning.starts_with(&[0x1f, 0x8b])
}

fn is_zstd(beginning: &[u8]) -> bool {
    matches!(beginning, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Returns whether a file that begins with these bytes, of which six are needed, is compressed: [`decompress`] decompresses it, or
/// says that it cannot.
pub fn is_compressed(beginning: &[u8]) -> bool {
    is_gzip(beginning) || is_zstd(beginning) || recognise_packed(beginning).is_some()
}

/// Returns a reader of a file's contents, which decompresses gzip and zstd as it reads.
///
/// # Errors
/// If the file cannot be read.
pub fn decompress<'a>(mut file: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut beginning = Vec::new();
    file.by_ref().take(PACKED_BYTES as u64).read_to_end(&mut beginning)?;
    if let Some(packed) = recognise_packed(&beginning) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is {packed}")));
    }
    let (is_gzip, is_zstd) = (is_gzip(&beginning), is_zstd(&beginning));
    let file = Cursor::new(beginning).chain(file);
    let buffered = |file| BufReader::with_capacity(BUFFER, file);
    Ok(match () {
        () if is_gzip => Box::new(MultiGzDecoder::new(buffered(file))),
        () if is_zstd => Box::new(Zstd { file: buffered(file), frame: FrameDecoder::new() }),
        () => Box::new(file),
    })
}

/// Decodes the frames of a zstd file (RFC 8878), concatenated.
struct Zstd<R> {
    file: R,
    frame: FrameDecoder,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        let sums = [self.frame.get_checksum_from_data(), self.frame.get_calculated_checksum()];
        if let [Some(stored), Some(calculated)] = sums
            && stored != calculated
        {
            return Err(io::Error::other("the checksum of a zstd frame is wrong"));
        }
        loop {
            if self.file.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frame.reset(&mut self.file) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => _ = io::copy(&mut self.file.by_ref().take(length.into()), &mut io::sink())?,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.frame.can_collect() == 0 {
            if self.frame.is_finished() && !self.begin()? {
                return Ok(0);
            }
            let block = self.frame.decode_blocks(&mut self.file, BlockDecodingStrategy::UptoBlocks(1));
            block.map_err(io::Error::other)?;
        }
        self.frame.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn unpacked(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompress(file)?.read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn members_and_frames_are_concatenated() {
        let content: Vec<u8> = (0..300_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let halves = content.split_at(500_001);
        let gzip = |bytes: &[u8]| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        };
        let zstd = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
        assert_eq!(unpacked(&[gzip(halves.0), gzip(halves.1)].concat()).unwrap(), content);
        // A skippable frame before, between and after the others.
        let other = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let packed = [&other[..], &zstd(halves.0), &other, &zstd(&[]), &zstd(halves.1), &other].concat();
        assert!(unpacked(&packed).unwrap() == content);
        assert_eq!(unpacked(&content).unwrap(), content);
        for short in [&b""[..], &[0x1f], &[0xff, 0xff, 0xff]] {
            assert_eq!(unpacked(short).unwrap(), short);
        }
        // A wrong checksum is an error, with and without a following frame.
        let mut wrong = zstd(&content);
        let last = wrong.len() - 1;
        assert!(wrong[4] & 4 != 0, "it has a checksum");
        wrong[last] ^= 1;
        assert!(unpacked(&wrong).is_err() && unpacked(&[wrong, zstd(&content)].concat()).is_err());
        // Truncated input is an error, not the end.
        for packed in [gzip(&content), zstd(&content)] {
            assert!(unpacked(&packed[..packed.len() / 2]).is_err());
        }
    }
}
