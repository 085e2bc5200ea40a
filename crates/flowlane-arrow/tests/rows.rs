//! Record batches of hand-made packets.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use flowlane_arrow::{Column, Rows};
use flowlane_capture::{Batch, CaptureReader, CaptureWriter, FileFormat};

/// Builds a UDP packet from 10.0.0.1 to 10.0.0.2.
fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0]);
    frame.extend((20 + udp_len).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(ports[0].to_be_bytes());
    frame.extend(ports[1].to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn rows(
    frames: &[Vec<u8>],
    columns: &[&str],
    decapsulate: bool,
    wanted: impl Fn(u64) -> bool,
) -> RecordBatch {
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap).unwrap();
    for (time, frame) in (1000..).zip(frames) {
        writer.write(time, frame).unwrap();
    }
    let file = writer.finish().unwrap();
    let columns: Vec<Column> = columns.iter().map(|name| Column::by_name(name).unwrap()).collect();
    let rows = Rows::new(&columns, 3);
    let mut rows = if decapsulate { rows.decapsulated() } else { rows };
    let (mut reader, mut batch) = (CaptureReader::new(&file[..]).unwrap(), Batch::default());
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break rows.finish();
        }
        rows.add(&batch, |packet| wanted(packet.time_ns));
    }
}

#[test]
fn unwanted_packets_are_skipped_and_numbers_kept() {
    let frames: Vec<Vec<u8>> = (0..1000).map(|port| udp([port, 53], b"x")).collect();
    let made = rows(&frames, &["packet", "tp_src", "in_port"], false, |time| time % 3 == 0);
    let wanted: Vec<u64> = (0..1000).filter(|n| (1000 + n) % 3 == 0).collect();
    assert_eq!(made.column(0).as_primitive::<UInt64Type>().values(), &wanted[..]);
    let ports: Vec<u16> = wanted.iter().map(|n| *n as u16).collect();
    assert_eq!(made.column(1).as_primitive::<UInt16Type>().values(), &ports[..]);
    assert!(made.column(2).as_primitive::<UInt32Type>().values().iter().all(|port| *port == 3));
    assert_eq!(made.column(1).null_count(), 0);
}

#[test]
fn metadata_columns_need_no_parsing() {
    let frames = [udp([1, 2], b"x"), vec![0; 14]];
    let made = rows(&frames, &["length"], false, |_| true);
    assert_eq!(made.column(0).as_primitive::<UInt32Type>().values(), &[43, 14]);
    assert_eq!(rows(&frames, &[], false, |_| true).num_rows(), 2);
}

#[test]
fn decapsulation_replaces_outer_by_inner_headers() {
    let inner = udp([7, 8], b"inner");
    // VXLAN (RFC 7348, section 5): flags, VNI 0x123456.
    let vxlan = [&[8, 0, 0, 0, 0x12, 0x34, 0x56, 0][..], &inner].concat();
    // GTP-U (TS 29.281, section 5.1): version 1, a G-PDU, TEID 0xabcd; IP without Ethernet.
    let ip = &inner[14..];
    let gtpu = [&[0x30, 255, 0, ip.len() as u8, 0, 0, 0xab, 0xcd][..], ip].concat();
    let frames =
        [udp([1, 4789], &vxlan), udp([1, 2152], &gtpu), udp([1, 53], b"dns"), udp([1, 4789], &[8, 0, 0])];
    let columns = ["tp_dst", "tun_id", "tun_dst", "dl_src", "fault", "nw_ttl"];
    let made = rows(&frames, &columns, true, |_| true);
    assert_eq!(made.column(0).as_primitive::<UInt16Type>().values(), &[8, 8, 53, 4789]);
    let ids: Vec<Option<u64>> = made.column(1).as_primitive::<UInt64Type>().iter().collect();
    assert_eq!(ids, [Some(0x12_3456), Some(0xabcd), None, None]);
    let ends: Vec<Option<u32>> = made.column(2).as_primitive::<UInt32Type>().iter().collect();
    assert_eq!(ends, [Some(0x0a00_0002), Some(0x0a00_0002), None, None]);
    // IP without Ethernet gets zero MAC addresses.
    assert_eq!(made.column(3).as_fixed_size_binary().value(1), [0; 6]);
    let faults: Vec<bool> = made.column(4).as_string::<i32>().iter().map(|fault| fault.is_some()).collect();
    assert_eq!(faults, [false, false, false, true]);
    assert!(made.column(5).as_primitive::<UInt8Type>().values().iter().all(|ttl| *ttl == 64));

    let plain = rows(&frames, &columns, false, |_| true);
    assert_eq!(plain.column(0).as_primitive::<UInt16Type>().values(), &[4789, 2152, 53, 4789]);
    assert_eq!(plain.column(1).null_count(), 4);
}
