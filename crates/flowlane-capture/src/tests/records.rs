//! Records that cannot be read, versions, and the less usual formats.

use super::*;

fn le(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn be(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_be_bytes()).collect()
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = body.len() as u32 + 12;
    [&le(&[kind, len])[..], &body, &le(&[len])].concat()
}

/// A section header of a version whose minor number is in the upper half.
fn section(version: u32) -> Vec<u8> {
    block(0x0a0d_0d0a, &le(&[0x1a2b_3c4d, version, u32::MAX, u32::MAX]))
}

fn interface(link: u32) -> Vec<u8> {
    block(1, &le(&[link, 0]))
}

fn packet(interface: u32, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u32;
    block(6, &[&le(&[interface, 0, 0, len, len])[..], bytes].concat())
}

/// Captures of the formats that the test data have not.
pub(super) fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &[0x45], &[0; 45]].concat();
    let of_link = |link: u8, frame: &[u8]| {
        let mut file = written(FileFormat::Pcap, &vec![(0, frame.to_vec()); 3]);
        file[20] = link;
        file
    };
    let ppi = [&[0, 0, 8, 0, 1, 0, 0, 0][..], &frame].concat();
    let nflog = [&[2, 0, 0, 0, 24, 0, 9, 0][..], &frame[14..34]].concat();
    let two_links =
        [section(1), interface(1), interface(220), packet(0, &frame), packet(1, &[0; 64])].concat();
    vec![
        ("snoop.cap", snoop(4, &[(60, &frame), (1514, &frame), (60, &frame)])),
        ("ppi.pcap", of_link(192, &ppi)),
        ("nflog.pcap", of_link(239, &nflog)),
        ("links.pcapng", two_links),
        ("1.2.pcapng", [section(2 << 16 | 1), interface(1), packet(0, &frame)].concat()),
    ]
}

/// Reads a file in every way, and checks that all agree. Returns the frames' bytes, the number of unreadable records and the
/// message of the end.
fn read(file: &[u8]) -> (Vec<Vec<u8>>, u64, String) {
    let (frames, end) = read_all(file);
    let (batched, batched_end) = read_batches(file);
    assert!(frames == batched && format!("{end:?}") == format!("{batched_end:?}"), "{end:?} {batched_end:?}");
    for threads in 1..3 {
        let (shared, shared_end) = read_shared(file, threads);
        assert!(frames == shared && format!("{end:?}") == format!("{shared_end:?}"), "{shared_end:?}");
    }
    let skipped = match &end {
        Some(CaptureError::Skipped { records, .. }) => *records,
        _ => 0,
    };
    let message = end.map(|end| end.to_string()).unwrap_or_default();
    (frames.into_iter().map(|(_, bytes)| bytes).collect(), skipped, message)
}

#[test]
fn unreadable_records_are_skipped_and_counted() {
    let good = |n: u8| packet(0, &[n; 60]);
    let start = [section(1), interface(1)].concat();
    let mut other_len = good(9);
    let last = other_len.len() - 4;
    other_len[last] ^= 4;
    let mut too_long = good(9);
    too_long[20] = 61;
    let bad_option = block(1, &le(&[1, 0, 9 | 90 << 16, 9]));
    let bad_resolution = block(1, &le(&[1, 0, 9 | 2 << 16, 9]));
    let cases: [(&str, Vec<u8>, &str); 11] = [
        (
            "another link type",
            [interface(220), packet(1, &[9; 60])].concat(),
            "link type 220 is not supported",
        ),
        ("no such interface", packet(7, &[9; 60]), "names interface 7"),
        ("too many captured bytes", too_long, "do not fit"),
        ("a short packet block", block(6, &[0; 16]), "too short"),
        ("a short simple packet block", block(3, &[]), "too short"),
        ("a short obsolete packet block", block(2, &[0; 8]), "too short"),
        ("two lengths", other_len, "88 at its end"),
        ("a short interface", block(1, &[0; 4]), "too short"),
        ("an option that is too long", bad_option, "longer than its block"),
        ("a resolution of two bytes", bad_resolution, "wrong length"),
        ("a frame that is too long", packet(0, &vec![9; FRAME_MAX + 1]), "do not fit"),
    ];
    for (name, bad, problem) in cases {
        let file = [&start[..], &good(1), &bad, &good(2), &bad, &good(3)].concat();
        let (frames, skipped, message) = read(&file);
        assert_eq!(frames, [[1; 60], [2; 60], [3; 60]], "{name}: {message}");
        assert_eq!(skipped, 2, "{name}: {message}");
        assert!(
            message.starts_with("2 unreadable records were skipped; the first: record 1 (byte "),
            "{message}"
        );
        assert!(message.contains(problem), "{name}: {message}");
        // The damage that ends the reading follows.
        let (frames, skipped, message) = read(&[&file[..], &good(4)[..20]].concat());
        assert!(frames.len() == 3 && skipped == 2, "{name}: {message}");
        assert!(message.contains("; after them: the file ends within record 3"), "{message}");
    }
    // Of a damaged interface description the number remains.
    let file =
        [&start[..], &block(1, &[0; 4]), &interface(1), &packet(2, &[5; 60]), &packet(1, &[6; 60])].concat();
    let (frames, skipped, message) = read(&file);
    assert_eq!((frames, skipped), (vec![vec![5; 60]], 2), "{message}");
    // Nothing but unreadable records.
    let (frames, skipped, message) = read(&[section(1), interface(220), packet(0, &[1; 60])].concat());
    assert!(frames.is_empty() && skipped == 1, "{message}");
    assert!(message.starts_with("1 unreadable record was skipped"), "{message}");
}

#[test]
fn records_of_unsupported_link_types_within_ppi_are_skipped() {
    let ppi = |link: u32, bytes: &[u8]| [&[0, 0, 8, 0][..], &le(&[link]), bytes].concat();
    let frames = [(0, ppi(1, &[1; 60])), (0, ppi(220, &[2; 60])), (0, ppi(1, &[3; 60]))];
    let mut file = written(FileFormat::Pcap, &frames);
    file[20] = 192;
    let (frames, skipped, message) = read(&file);
    assert_eq!((frames, skipped), (vec![vec![1; 60], vec![3; 60]], 1), "{message}");
}

#[test]
fn many_unreadable_records_take_no_memory() {
    let bad = packet(7, &[9; 60]).repeat(50_000);
    let (frames, skipped, _) = read(&[&section(1)[..], &interface(1), &bad, &packet(0, &[1; 60])].concat());
    assert_eq!((frames.len(), skipped), (1, 50_000));
}

#[test]
fn sections_of_other_versions_are_skipped_up_to_the_next_section() {
    let body = |n: u8| [interface(1), packet(0, &[n; 60])].concat();
    for version in [2, 0, 1 << 16 | 1, 3 << 16 | 1] {
        let (minor, major) = (version >> 16, version & 0xffff);
        let other = [section(version), body(9), block(0xbad, &[1; 40]), body(9)].concat();
        let file = [&section(1)[..], &body(1), &other, &section(1), &body(2)].concat();
        let (frames, skipped, message) = read(&file);
        assert_eq!((frames, skipped), (vec![vec![1; 60], vec![2; 60]], 1), "{message}");
        assert!(message.contains(&format!("version {major}.{minor} is not supported")), "{message}");
        // At the beginning and at the end of a file.
        assert_eq!(read(&[&other[..], &section(1), &body(2)].concat()).0, [[2; 60]]);
        assert_eq!(read(&[&section(1)[..], &body(2), &other].concat()).0, [[2; 60]]);
    }
    let (frames, skipped, _) = read(&[section(2 << 16 | 1), body(1)].concat());
    assert_eq!((frames.len(), skipped), (1, 0), "1.2 means 1.0");
}

#[test]
fn later_versions_of_pcap_and_snoop_are_rejected() {
    for (version, is_read) in
        [((2, 4), true), ((2, 0), true), ((543, 0), true), ((2, 5), false), ((3, 0), false)]
    {
        let mut file = written(FileFormat::Pcap, &[(0, vec![1; 60])]);
        file[4..6].copy_from_slice(&u16::to_le_bytes(version.0));
        file[6..8].copy_from_slice(&u16::to_le_bytes(version.1));
        let (frames, _, message) = read(&file);
        assert_eq!(!frames.is_empty(), is_read, "{version:?}: {message}");
        assert!(is_read || message.contains("pcap version"), "{message}");
    }
    let mut file = snoop(4, &[(60, &[1; 60])]);
    file[11] = 3;
    assert!(read(&file).2.contains("snoop version 3.0 is not supported"));
}

#[test]
fn lengths_that_old_programs_swapped_are_put_right() {
    let mut file = written(FileFormat::Pcap, &[(0, vec![1; 60])]);
    file[6] = 2;
    file[24 + 8..24 + 16].copy_from_slice(&le(&[1514, 60]));
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    let packet = reader.next().unwrap().unwrap();
    assert_eq!((packet.len, packet.bytes.len()), (1514, 60));
}

#[test]
fn modified_pcap_is_read_in_both_byte_orders() {
    for numbers in [le, be] {
        let header = numbers(&[0xa1b2_cd34]);
        let version: &[u8] = if header[0] == 0x34 { &[2, 0, 4, 0] } else { &[0, 2, 0, 4] };
        let record = [numbers(&[5, 7, 2, 60, 3, 0x0800_0100]), vec![0xab, 0xcd]].concat();
        let file = [&header[..], version, &numbers(&[0, 0, 65535, 1]), &record, &record].concat();
        assert!(CaptureReader::<&[u8]>::is_capture(&file));
        let (frames, end) = read_all(&file);
        assert!(end.is_none(), "{end:?}");
        assert_eq!(frames, vec![(5_000_007_000, vec![0xab, 0xcd]); 2]);
        assert_eq!(read(&file).0.len(), 2);
        damaged(&file);
    }
}

/// A snoop file of frames with their original lengths, each padded to 4 bytes.
fn snoop(link: u32, frames: &[(u32, &[u8])]) -> Vec<u8> {
    let mut file = [&b"snoop\0\0\0"[..], &be(&[2, link])].concat();
    for (original, frame) in frames {
        let padded = frame.len().next_multiple_of(4);
        file.extend(be(&[*original, frame.len() as u32, 24 + padded as u32, 0, 5, 7]));
        file.extend_from_slice(frame);
        file.resize(file.len() + padded - frame.len(), 0);
    }
    file
}

#[test]
fn snoop_is_read() {
    let file = snoop(4, &[(3, &[1, 2, 3]), (1514, &[4; 60]), (4, &[5; 4])]);
    assert!(CaptureReader::<&[u8]>::is_capture(&file));
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    let packet = reader.next().unwrap().unwrap();
    assert_eq!((packet.time_ns, packet.len, packet.bytes), (5_000_007_000, 3, &[1, 2, 3][..]));
    let packet = reader.next().unwrap().unwrap();
    assert_eq!((packet.len, packet.bytes), (1514, &[4; 60][..]));
    assert_eq!(read(&file).0.len(), 3);
    // More captured bytes than the record has: this record only.
    let mut wrong = file.clone();
    wrong[16 + 7] = 9;
    let (frames, skipped, message) = read(&wrong);
    assert_eq!((frames.len(), skipped), (2, 1), "{message}");
    wrong[16 + 11] = 23;
    assert!(read(&wrong).2.contains("a record of 23 bytes"));
    assert!(read(&snoop(3, &[])).2.contains("snoop's data link type 3"));
    assert!(read(b"snooker 12345678").2.contains("not a pcap, pcapng or snoop file"));
    damaged(&file);
}

/// Reads damaged copies of a file.
fn damaged(file: &[u8]) {
    read_damaged(file, 400, 300);
}

#[test]
fn damaged_nflog_and_ppi_do_not_panic() {
    let nflog = [7, 0, 0, 0, 8, 0, 1, 0, 8, 0, 0, 0, 8, 0, 9, 0, 0x45, 1, 2, 3];
    let ppi = [0, 0, 8, 0, 105, 0, 0, 0, 8, 1, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2];
    for (link, frame) in [(239, nflog), (192, ppi)] {
        let mut file = written(FileFormat::Pcap, &vec![(0, frame.to_vec()); 3]);
        file[20] = link;
        assert_eq!(read(&file).0.len(), 3);
        damaged(&file);
        for at in 0..frame.len() {
            for value in 0..=255 {
                file[40 + at] = value;
                read_all(&file);
            }
            file[40 + at] = frame[at];
        }
    }
}
