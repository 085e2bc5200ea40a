use std::path::PathBuf;

use super::*;

/// Everything that a capture holds, and how it ended.
fn read_all(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    let mut frame = Vec::new();
    loop {
        match reader.next(&mut frame) {
            Ok(Some(record)) => frames.push((record.time_ns, frame.clone())),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
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
fn what_is_written_is_read_back() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let (read, end) = read_all(&written(format, &frames()));
        assert_eq!(read, frames(), "{format:?}");
        assert!(end.is_none());
    }
}

#[test]
fn both_byte_orders_and_resolutions_of_pcap() {
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
fn big_endian_pcapng_with_two_sections_and_all_packet_blocks() {
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
    let file = [section, interface, binary, unknown, enhanced(0), enhanced(1), simple, obsolete].concat();
    let (read, end) = read_all(&[file.clone(), file].concat());
    assert!(end.is_none(), "{end:?}");
    let once = [
        (2_048_000_000, vec![1, 2, 3]),
        (2_000_000_000, vec![1, 2, 3]),
        (0, vec![4, 5, 6]),
        (1_000_000, vec![7]),
    ];
    assert_eq!(read, [once.clone(), once].concat());
}

#[test]
fn other_links_become_ethernet_or_are_named() {
    let file = |link: u32, frame: &[u8]| {
        let mut bytes = written(FileFormat::Pcap, &[(0, frame.to_vec())]);
        bytes[20..24].copy_from_slice(&link.to_le_bytes());
        bytes
    };
    assert_eq!(read_all(&file(101, &[0x60, 1])).0[0].1[12..], [0x86, 0xdd, 0x60, 1]);
    let cooked = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 6, 0x77];
    assert_eq!(read_all(&file(113, &cooked)).0[0].1[6..], [2, 0, 0, 0, 0, 9, 8, 6, 0x77]);
    let error = read_all(&file(147, &[0])).1.unwrap();
    assert!(error.to_string().contains("link type 147"));
}

#[test]
fn a_cut_off_file_gives_what_is_whole_and_says_where_it_ends() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let whole = written(format, &frames());
        for len in 0..whole.len() {
            let (read, end) = read_all(&whole[..len]);
            assert!(read.len() <= 9 && read[..] == frames()[..read.len()], "{format:?} {len}");
            assert!(end.is_some() || len >= 24, "{format:?} {len}");
        }
    }
    let error = read_all(b"GIF89a").1.unwrap();
    assert!(error.to_string().contains("no pcap or pcapng"));
}

#[test]
fn lengths_are_not_believed() {
    let mut file = written(FileFormat::Pcap, &frames());
    file[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read_all(&file).1.unwrap();
    assert!(error.to_string().contains("record 0 (byte 24)"), "{error}");
}

/// The folder of captures for tests, where there is one.
fn captures() -> Vec<PathBuf> {
    let folder = flowlane::testing::data("captures").into_iter();
    folder.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn real_captures_truncated_and_mutated_make_no_reader_panic() {
    let mut state = 1u64;
    let mut files: Vec<Vec<u8>> = captures().iter().map(|path| std::fs::read(path).unwrap()).collect();
    files.push(written(FileFormat::Pcap, &frames()));
    files.push(written(FileFormat::Pcapng, &frames()));
    for bytes in files {
        read_all(&bytes);
        if bytes.len() > 4096 {
            continue;
        }
        // At every place of headers and first frames, and at some behind them.
        for len in (0..bytes.len().min(400)).chain((400..bytes.len()).step_by(37)) {
            read_all(&bytes[..len]);
        }
        for _ in 0..300 {
            let mut mutated = bytes.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % mutated.len().min(200);
                mutated[at] = (state >> 25) as u8;
            }
            read_all(&mutated);
        }
    }
}
