use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane::generate::Random;

use super::*;

mod links;
mod peers;
mod records;

/// Returns all frames of a capture, and the error that ended it.
fn read_all(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(packet)) => frames.push((packet.time_ns, packet.bytes.to_vec())),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// Returns all frames, read in batches, and checks numbers and lengths.
fn read_batches(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<CaptureError>) {
    let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    let mut batch = Batch::default();
    loop {
        match reader.next_batch(&mut batch) {
            Ok(()) if batch.is_empty() => return (frames, None),
            Ok(()) => {
                assert_eq!(batch.first(), frames.len() as u64);
                frames.extend(batch.packets().map(|packet| (packet.time_ns, packet.bytes.to_vec())));
            }
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// Returns all frames, read by `threads` threads.
fn read_shared(bytes: &[u8], threads: usize) -> (Vec<(u64, Vec<u8>)>, Option<CaptureError>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let read = Arc::new(AtomicU64::new(0));
    let reader = match SharedReader::open(file.path(), Arc::clone(&read)) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let work = || {
        let (mut batch, mut found, mut ends) = (Batch::default(), Vec::new(), Vec::new());
        loop {
            match reader.next_batch(&mut batch) {
                Ok(()) if batch.is_empty() => return (found, ends),
                Ok(()) => {
                    let frames = batch.packets().map(|packet| (packet.time_ns, packet.bytes.to_vec()));
                    found.extend((batch.first()..).zip(frames));
                }
                Err(error) => ends.push(error),
            }
        }
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (found, ends): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let mut found: Vec<(u64, (u64, Vec<u8>))> = found.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    assert!(found.iter().map(|(number, _)| *number).eq(0..found.len() as u64), "each frame once");
    let mut ends: Vec<CaptureError> = ends.into_iter().flatten().collect();
    assert!(ends.len() <= 1, "an error is said once: {ends:?}");
    if ends.is_empty() {
        assert_eq!(read.load(Ordering::Relaxed), bytes.len() as u64);
    }
    (found.into_iter().map(|(_, frame)| frame).collect(), ends.pop())
}

/// A capture of one frame of this link type.
fn of_link(link: u32, frame: &[u8]) -> Vec<u8> {
    let mut bytes = written(FileFormat::Pcap, &[(0, frame.to_vec())]);
    bytes[20..24].copy_from_slice(&link.to_le_bytes());
    bytes
}

fn written(format: FileFormat, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), format).unwrap();
    for (time_ns, frame) in frames {
        writer.write(*time_ns, frame).unwrap();
    }
    writer.finish().unwrap()
}

fn frames() -> Vec<(u64, Vec<u8>)> {
    (0..9u64).map(|i| (1_700_000_000_123_456_789 + i, (0..i as u8 * 7).collect())).collect()
}

#[test]
fn written_frames_are_read_back() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let (read, end) = read_all(&written(format, &frames()));
        assert_eq!(read, frames(), "{format:?}");
        assert!(end.is_none());
    }
}

#[test]
fn pcap_byte_orders_and_resolutions_are_read() {
    let be = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let record = [be(&[5, 7, 2, 60]), vec![0xab, 0xcd]].concat();
    for (magic, time_ns) in [(0xa1b2_c3d4, 5_000_007_000), (0xa1b2_3c4d, 5_000_000_007)] {
        let file = [be(&[magic, 0x0002_0004, 0, 0, 65535, 1]), record.clone(), record.clone()].concat();
        let (read, end) = read_all(&file);
        assert_eq!(read, [(time_ns, vec![0xab, 0xcd]), (time_ns, vec![0xab, 0xcd])]);
        assert!(end.is_none());
    }
}

#[test]
fn big_endian_pcapng_with_two_sections_and_all_packet_blocks_is_read() {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, &body, &len].concat()
    };
    let be = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let section = block(0x0a0d_0d0a, &be(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]));
    // Milliseconds; then a second interface with 2^-10 seconds; snap length 3.
    let interface = block(1, &be(&[1 << 16, 3, 9 << 16 | 1, 3 << 24, 0]));
    let binary = block(1, &be(&[1 << 16, 0, 9 << 16 | 1, 0x8a << 24, 0]));
    let enhanced = |n: u32| block(6, &[be(&[n, 0, 2048, 3, 99]), vec![1, 2, 3]].concat());
    let simple = block(3, &[be(&[9]), vec![4, 5, 6]].concat());
    let obsolete = block(2, &[be(&[0, 0, 1, 1, 1]), vec![7]].concat());
    let unknown = block(0xbad, b"whatever");
    let file = [&section[..], &interface, &binary, &unknown, &enhanced(0), &enhanced(1), &simple, &obsolete]
        .concat();
    // The second section redefines the first interface with an offset of 1000 s, as in merged files.
    let later = block(1, &be(&[1 << 16, 0, 14 << 16 | 8, 0, 1000, 9 << 16 | 1, 3 << 24, 0]));
    let (read, end) = read_all(&[&file[..], &file, &section, &later, &enhanced(0)].concat());
    assert!(end.is_none(), "{end:?}");
    let once = [
        (2_048_000_000, vec![1, 2, 3]),
        (2_000_000_000, vec![1, 2, 3]),
        (0, vec![4, 5, 6]),
        (1_000_000, vec![7]),
    ];
    let last = vec![(1_002_048_000_000, vec![1, 2, 3])];
    assert_eq!(read, [once.to_vec(), once.to_vec(), last].concat());
    // Interfaces of the previous section are gone.
    let (read, end) = read_all(&[&file[..], &section, &later, &enhanced(1)].concat());
    assert!(read.len() == 4 && end.unwrap().to_string().contains("names interface 1"));
}

#[test]
fn long_blocks_and_later_errors_are_handled_in_any_order() {
    let le = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let block = |kind: u32, body: &[u8]| {
        let len = body.len() as u32 + 12;
        [&le(&[kind, len])[..], body, &le(&[len])].concat()
    };
    let section = block(0x0a0d_0d0a, &le(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    let long = block(0xbad, &vec![7; 1 << 20]);
    let packet = |n: u32| block(6, &[&le(&[n, 0, 0, 60, 60])[..], &[1; 60]].concat());
    let start = [&section[..], &block(1, &le(&[1, 0])), &block(1, &le(&[147, 0]))].concat();
    let endings = [
        [&long[..], &packet(0), &le(&[6, 8]), &vec![0; 1 << 20]].concat(),
        [&long[..], &packet(1), &packet(0)].concat(),
        [&packet(0)[..], &long, &packet(0), &long, &long, &packet(1)].concat(),
        [&packet(0)[..], &long, &packet(0), &long[..1000]].concat(),
        vec![0; 2 << 20],
    ];
    for (number, ending) in endings.iter().enumerate() {
        let file = [&start[..], ending].concat();
        let [(one, one_end), (many, many_end)] = [read_all(&file), read_batches(&file)];
        assert!(one == many && format!("{one_end:?}") == format!("{many_end:?}"), "{number}");
        for threads in 1..4 {
            let (shared, end) = read_shared(&file, threads);
            assert!(
                one == shared && format!("{one_end:?}") == format!("{end:?}"),
                "{number}, {threads} threads"
            );
        }
        assert!(one_end.is_some() && one.len() == [1, 1, 2, 2, 0][number], "{number}: {one_end:?}");
    }
    // A window that was converted longer for one block is not kept so.
    let many = [&start[..], &packet(0), &long, &vec![packet(0); 40_000].concat()].concat();
    let (mut reader, mut batch) = (CaptureReader::new(&many[..]).unwrap(), Batch::default());
    let mut lens = Vec::new();
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        lens.push(batch.bytes());
    }
    assert!(lens.len() > 10 && lens[1..].iter().all(|len| *len < 1 << 19), "{lens:?}");
}

#[test]
fn threads_share_a_capture_with_records_of_any_size() {
    let mut r = Random::new(3);
    for round in 0..12 {
        // Small records, usual ones, and some longer than a part of the file.
        let most = [1, 100, 1500, 250_000][r.index(4)];
        let count = (3_000_000 / most).min(20_000) as u64;
        let frames: Vec<(u64, Vec<u8>)> =
            (0..count).map(|i| (1_700_000_000_000_000_000 + i, vec![i as u8; 1 + r.index(most)])).collect();
        let format = if r.chance(0.5) { FileFormat::Pcap } else { FileFormat::Pcapng };
        let mut bytes = written(format, &frames);
        if round % 3 == 1 {
            bytes.truncate(24 + r.index(bytes.len() - 24));
        }
        if round % 3 == 2 {
            let at = 100 + r.index(bytes.len() - 100);
            let end = (at + 16).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
        let (frames, end) = read_batches(&bytes);
        for threads in [1, 2, 5] {
            let (shared, shared_end) = read_shared(&bytes, threads);
            assert!(
                shared == frames,
                "round {round}, {threads} threads: {} of {}",
                shared.len(),
                frames.len()
            );
            assert_eq!(format!("{shared_end:?}"), format!("{end:?}"), "round {round}, {threads} threads");
        }
    }
    let packed = {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&written(FileFormat::Pcap, &frames())).unwrap();
        packer.finish().unwrap()
    };
    assert_eq!(read_shared(&packed, 3).0, frames());
}

#[test]
fn splits_are_read_independently() {
    let frames: Vec<(u64, Vec<u8>)> =
        (0..20_000).map(|i| (1_700_000_000_000_000_000 + i, vec![i as u8; 60 + i as usize % 1000])).collect();
    let save = |bytes: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    let read = |path: &std::path::Path, split: &Split| {
        let mut reader = CaptureReader::of_split(path, split).unwrap();
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        loop {
            reader.next_batch(&mut batch).unwrap();
            if batch.is_empty() {
                break found;
            }
            assert_eq!(batch.first(), split.first + found.len() as u64);
            found.extend(batch.packets().map(|packet| (packet.time_ns, packet.bytes.to_vec())));
        }
    };
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let bytes = written(format, &frames);
        let file = save(&bytes);
        let (parts, damage) = splits(file.path(), 1 << 20).unwrap();
        assert!((8..=12).contains(&parts.len()) && damage.is_none(), "{parts:?}");
        let together: Vec<_> = parts.iter().flat_map(|part| read(file.path(), part)).collect();
        assert!(together == frames);
        // Of a damaged capture, the parts before the damage.
        let cut = save(&bytes[..bytes.len() / 2]);
        let (parts, damage) = splits(cut.path(), 1 << 20).unwrap();
        let together: Vec<_> = parts.iter().flat_map(|part| read(cut.path(), part)).collect();
        assert!(together == frames[..together.len()] && together.len() > 9000);
        assert!(matches!(damage, Some(CaptureError::Truncated { .. })), "{damage:?}");
    }
    // Two sections: a part of the second would not know its interfaces.
    let twice = written(FileFormat::Pcapng, &frames).repeat(2);
    let file = save(&twice);
    assert_eq!(splits(file.path(), 1 << 20).unwrap().0, [Split::WHOLE]);
    assert_eq!(read(file.path(), &Split::WHOLE).len(), 40_000);
    let none = save(&written(FileFormat::Pcap, &[]));
    assert!(splits(none.path(), 1 << 20).unwrap().0.is_empty());
}

#[test]
fn every_reader_names_the_compression_that_it_does_not_decompress() {
    let packed: [(&[u8], &str); 3] =
        [(b"\xfd7zXZ\0\0\x04", "unxz"), (b"LZIP\x01\x0c", "lzip -d"), (b"7z\xbc\xaf\x27\x1c", "7z x")];
    for (bytes, remedy) in packed {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let part = Split { offset: 0, first: 0, frames: 1 };
        let errors = [
            SharedReader::open(file.path(), Arc::default()).err(),
            CaptureReader::of_split(file.path(), &part).err(),
        ];
        for error in errors {
            assert!(error.as_ref().is_some_and(|e| e.to_string().contains(remedy)), "{error:?}");
        }
    }
}

#[test]
fn no_frame_follows_an_error() {
    let mut file = written(FileFormat::Pcap, &frames());
    // Zeros after an invalid length would parse as records.
    file.extend([0; 400]);
    file[24 + 8..][..4].copy_from_slice(&0x0100_0000u32.to_le_bytes());
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    assert!(reader.next().is_err());
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
    let mut batch = Batch::default();
    assert!(reader.next_batch(&mut batch).is_ok() && batch.is_empty());
    for (len, is_read) in [(FRAME_MAX, true), (FRAME_MAX + 1, false)] {
        let (read, end) = read_all(&written(FileFormat::Pcap, &[(0, vec![0; len])]));
        assert_eq!((read.len() == 1, end.is_none()), (is_read, is_read));
    }
}

#[test]
fn truncated_frames_keep_their_original_length() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let mut writer = CaptureWriter::new(Vec::new(), format).unwrap();
        writer.write_truncated(1, &[7; 96], 1514).unwrap();
        writer.write(2, &[8; 60]).unwrap();
        let file = writer.finish().unwrap();
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let lens =
            |packet: Option<Packet<'_>>| packet.map(|p| (p.time_ns, p.bytes.len(), p.len, p.is_truncated()));
        assert_eq!(lens(reader.next().unwrap()), Some((1, 96, 1514, true)), "{format:?}");
        assert_eq!(lens(reader.next().unwrap()), Some((2, 60, 60, false)), "{format:?}");
        assert_eq!(lens(reader.next().unwrap()), None);
    }
    // Raw IP of 1500 bytes, truncated to 40; and an original length of 0.
    let mut file = of_link(101, &[0x45; 40]);
    for (original, len) in [(1500u32, 1514), (0, 54)] {
        file[24 + 12..24 + 16].copy_from_slice(&original.to_le_bytes());
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().len, len);
    }
}

#[test]
fn batches_contain_the_same_frames_for_any_record_sizes() {
    let mut state = 7u64;
    let mut number = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..12 {
        let format = if round % 2 == 0 { FileFormat::Pcap } else { FileFormat::Pcapng };
        // Small records, and some longer than a window.
        let longest = [90, 1600, 70_000, 262_000][round / 3];
        let frames: Vec<(u64, Vec<u8>)> = (0..1_200_000 / longest.max(300))
            .map(|i| (i, vec![i as u8; number(longest + 1) as usize]))
            .collect();
        let mut file = written(format, &frames);
        if round % 3 == 2 && format == FileFormat::Pcap {
            // Each frame gets an Ethernet header.
            file[20..24].copy_from_slice(&101u32.to_le_bytes());
        }
        let (read, end) = read_batches(&file);
        assert!(end.is_none());
        assert_eq!(read, read_all(&file).0);
        assert_eq!(read.len(), frames.len());
        for _ in 0..20 {
            let cut = number(file.len() as u64) as usize;
            let [(a, a_end), (b, b_end)] = [read_batches(&file[..cut]), read_all(&file[..cut])];
            assert!(a == b && format!("{a_end:?}") == format!("{b_end:?}"), "{format:?} {cut}");
        }
    }
    // Single frames after a batch.
    let frames: Vec<(u64, Vec<u8>)> = (0..9000).map(|i| (i, vec![i as u8; 100])).collect();
    let file = written(FileFormat::Pcap, &frames);
    let (mut reader, mut batch, mut seen) = (CaptureReader::new(&file[..]).unwrap(), Batch::default(), 0);
    while seen < frames.len() {
        reader.next_batch(&mut batch).unwrap();
        assert!(!batch.is_empty());
        for packet in batch.packets() {
            assert_eq!(packet.time_ns, seen as u64);
            seen += 1;
        }
        if let Some(packet) = reader.next().unwrap() {
            assert_eq!((packet.time_ns, packet.bytes), (seen as u64, &frames[seen].1[..]));
            seen += 1;
        }
    }
}

#[test]
fn truncated_files_yield_complete_frames_and_the_position() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let whole = written(format, &frames());
        for len in 0..whole.len() {
            let (read, end) = read_all(&whole[..len]);
            assert!(read.len() <= 9 && read[..] == frames()[..read.len()], "{format:?} {len}");
            assert!(end.is_some() || len >= 24, "{format:?} {len}");
        }
    }
    let error = read_all(b"GIF89a").1.unwrap();
    assert!(error.to_string().contains("not a pcap, pcapng or snoop file"));
}

#[test]
fn invalid_lengths_are_rejected() {
    let mut file = written(FileFormat::Pcap, &frames());
    file[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read_all(&file).1.unwrap();
    assert!(error.to_string().contains("record 0 (byte 24)"), "{error}");
}

/// The captures in the test data, if present.
fn captures() -> Vec<PathBuf> {
    let folder = flowlane::testing::data("captures").into_iter();
    folder.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path()).collect()
}

/// Reads a capture cut off at every place up to `dense` and at some behind it, and with `mutations` sets of four bytes changed.
fn read_damaged(bytes: &[u8], dense: usize, mutations: usize) {
    read_all(bytes);
    if bytes.len() > 4096 {
        return;
    }
    for len in (0..bytes.len().min(dense)).chain((dense..bytes.len()).step_by(37)) {
        read_all(&bytes[..len]);
    }
    let mut state = 1u64;
    for _ in 0..mutations {
        let mut mutated = bytes.to_vec();
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % mutated.len().min(200);
            mutated[at] = (state >> 25) as u8;
        }
        read_all(&mutated);
    }
}

#[test]
fn damaged_captures_do_not_panic() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        read_damaged(&written(format, &frames()), 400, 500);
    }
}

#[test]
fn damaged_captures_of_other_programs_do_not_panic() {
    // There are hundreds, most of which differ only in their first blocks.
    let captures = captures();
    std::thread::scope(|threads| {
        for half in captures.chunks(captures.len().div_ceil(2).max(1)) {
            threads
                .spawn(|| half.iter().for_each(|path| read_damaged(&std::fs::read(path).unwrap(), 100, 60)));
        }
    });
}
