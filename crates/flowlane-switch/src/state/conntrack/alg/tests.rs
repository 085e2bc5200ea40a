use flowlane::generate::Random;

use super::expectations::{EXPECTATIONS_MAX, Expectations, VALID_MS};
use super::*;

fn named(direction: usize, is_ipv6: bool, text: &str) -> Option<Announcement> {
    ftp::read(text.as_bytes(), direction, is_ipv6)
}

#[test]
fn messages_of_ftp_name_an_address_and_a_port() {
    let cases = [
        (0, false, "PORT 10,0,0,1,4,1\r\n", Some("10.0.0.1"), 1025),
        (0, false, "port  10,0,0,1,255,255\nRETR x\r\n", Some("10.0.0.1"), 65_535),
        (0, false, "PORT 0,0,0,0,0,1\r", Some("0.0.0.0"), 1),
        (0, false, "EPRT |1|132.235.1.2|6275|\r\n", Some("132.235.1.2"), 6275),
        (0, true, "eprt !2!1080::8:800:200C:417A!5282!\r\n", Some("1080::8:800:200c:417a"), 5282),
        (1, false, "227 Entering Passive Mode (192,0,2,1,004,2).\r\n", Some("192.0.2.1"), 1026),
        (1, false, "227 =192,0,2,1,4,2\r\n", Some("192.0.2.1"), 1026),
        (1, false, "229 Entering Extended Passive Mode (|||6446|)\r\n", None, 6446),
        (1, true, "229 any words (!!!1!)\r\n", None, 1),
    ];
    for (direction, is_ipv6, text, address, port) in cases {
        let read = named(direction, is_ipv6, text).expect(text).expect(text);
        assert_eq!(read.port, port, "{text}");
        assert_eq!(
            read.address.as_ref().map(|(ip, _)| *ip),
            address.map(|text| text.parse().unwrap()),
            "{text}"
        );
        if let Some((ip, part)) = &read.address {
            assert!(text[part.clone()].eq_ignore_ascii_case(&read.written(*ip)), "{text}");
        }
    }
}

#[test]
fn other_texts_are_no_messages() {
    let cases = [
        (0, false, ""),
        (0, false, "POR"),
        (0, false, "PORTAL 10,0,0,1,4,1\r\n"),
        (0, false, "STOR PORT 10,0,0,1,4,1\r\n"),
        (0, false, "\r\nPORT 10,0,0,1,4,1\r\n"),
        // Each end has its own messages, and IPv6 has no numbers with commas.
        (1, false, "PORT 10,0,0,1,4,1\r\n"),
        (0, false, "227 Entering Passive Mode (192,0,2,1,4,2)\r\n"),
        (0, true, "PORT 10,0,0,1,4,1\r\n"),
        (1, true, "227 Entering Passive Mode (192,0,2,1,4,2)\r\n"),
        (1, false, "2270 (192,0,2,1,4,2)\r\n"),
        // An echo of the client's words opens nothing.
        (1, true, "550 Extended Passive Mode (|||22|): no such file\r\n"),
    ];
    for (direction, is_ipv6, text) in cases {
        assert_eq!(named(direction, is_ipv6, text), None, "{text}");
    }
}

#[test]
fn messages_that_are_cut_off_or_wrong_cannot_be_read() {
    let cases = [
        (0, false, "PORT"),
        (0, false, "PORT\r\n"),
        (0, false, "PORT 10,0,0,1\r\n"),
        (0, false, "PORT 10,0,0,1,4,"),
        // More digits may follow.
        (0, false, "PORT 10,0,0,1,4,1"),
        (0, false, "PORT 10,0,0,256,4,1\r\n"),
        (0, false, "PORT 10,0,0,1,256,1\r\n"),
        (0, false, "PORT 10,0,0,1,4,1000\r\n"),
        (0, false, "PORT 10,0,0,99999999999999999999,4,1\r\n"),
        (0, false, "PORT 010,0,0,1,4,1\r\n"),
        (0, false, "PORT 10,,0,1,4,1\r\n"),
        (0, false, "PORT 10.0.0.1,4,1\r\n"),
        (0, false, "PORT 10, 0,0,1,4,1\r\n"),
        (0, false, "PORT \r\n10,0,0,1,4,1\r\n"),
        (0, false, "PORT 10,0,0,1,0,0\r\n"),
        (0, false, "PORT 10,0,0,1,4\0,1\r\n"),
        (0, false, "EPRT |2|2001:db8::1|99|\r\n"),
        (0, false, "EPRT |1|10.0.0.1|65536|\r\n"),
        (0, false, "EPRT |1|10.0.0.1|99"),
        (0, false, "EPRT 1|10.0.0.1|99|\r\n"),
        (0, true, "EPRT |1|10.0.0.1|99|\r\n"),
        (0, true, "EPRT |2|10.0.0.1|99|\r\n"),
        (0, true, "EPRT |2|2001:db8::1%eth0|99|\r\n"),
        (0, true, "EPRT |2|2001:db8::1!99|\r\n"),
        (1, false, "227 Entering Passive Mode\r\n"),
        (1, false, "227"),
        (1, false, "229 Entering Extended Passive Mode (||22|)\r\n"),
        (1, false, "229 (|||0|)\r\n"),
        (1, true, "229 Entering Extended Passive Mode |||22|\r\n"),
    ];
    for (direction, is_ipv6, text) in cases {
        assert_eq!(named(direction, is_ipv6, text), Some(Err(Unreadable)), "{text}");
    }
}

/// Texts made of parts of messages: nothing panics, and an address that is read is in the text.
#[test]
fn random_texts_are_read_or_refused() {
    let parts: [&[u8]; 22] = [
        b"PORT",
        b"EPRT",
        b"227",
        b"229",
        b" ",
        b"10",
        b",",
        b"0",
        b"1",
        b"255",
        b"999",
        b"(",
        b"|",
        b"|||",
        b"2001:db8::1",
        b".",
        b"\r\n",
        b"\0",
        b"\xff",
        b"2",
        b"10,0,0,1,4,1",
        b":",
    ];
    let mut random = Random::for_purpose(1, "texts of ftp");
    let mut read = 0;
    for _ in 0..60_000 {
        let mut text = parts[random.below(4) as usize].to_vec();
        for _ in 0..random.below(14) {
            text.extend(parts[random.below(22) as usize]);
        }
        text.truncate(random.below(160) as usize);
        for (direction, is_ipv6) in [(0, false), (0, true), (1, false), (1, true)] {
            let Some(Ok(named)) = ftp::read(&text, direction, is_ipv6) else { continue };
            assert!(named.port > 0);
            if let Some((address, part)) = &named.address {
                let written = std::str::from_utf8(&text[part.clone()]).unwrap().replace(',', ".");
                assert_eq!(written.parse(), Ok(*address));
                assert_eq!(address.is_ipv6(), is_ipv6);
            }
            read += 1;
        }
    }
    assert!(read > 200, "{read}");
}

fn control(entry: u32) -> Place {
    Place { entry, generation: 2 }
}

fn expectation(entry: u32, mark: u32) -> Expectation {
    Expectation {
        control: control(entry),
        control_tuple: Tuple::default(),
        direction: 0,
        mark,
        label: 0,
        reply_addresses: [0; 2],
        reply_port: 0,
        translated: Translated::default(),
    }
}

fn to_port(port: u16, from: u16) -> Tuple {
    let end = |address, port| End { address, port, icmp_type: 0 };
    Tuple { source: end(1, from), destination: end(2, port), zone: 3, proto: ip_proto::TCP, is_ipv6: false }
}

#[test]
fn expectations_expire_and_end_with_their_control_connection() {
    let all = Expectations::default();
    let there = |_: Place| true;
    assert!(!all.add(&to_port(7, 0), expectation(1, 5), 0, there));
    // From any port; until its time is over, or its control connection is gone.
    assert_eq!(all.find(&to_port(7, 999), 1, there).map(|found| found.mark), Some(5));
    assert_eq!(all.find(&to_port(8, 999), 1, there), None);
    assert_eq!(all.find(&to_port(7, 999), 1, |place| place != control(1)), None);
    assert_eq!(all.find(&Tuple { zone: 4, ..to_port(7, 0) }, 1, there), None);
    assert!(all.find(&to_port(7, 0), VALID_MS - 1, there).is_some());
    assert_eq!(all.find(&to_port(7, 0), VALID_MS, there), None);
    // Another connection's is in the way while that is there.
    assert!(all.add(&to_port(7, 0), expectation(2, 6), 1, there));
    assert!(!all.add(&to_port(7, 0), expectation(2, 6), 1, |place| place != control(1)));
    assert_eq!(all.find(&to_port(7, 0), 1, there).map(|found| found.mark), Some(6));
    // One that is announced again keeps its fields, and is valid for longer.
    assert!(!all.add(&to_port(7, 0), expectation(2, 9), VALID_MS - 1, there));
    assert_eq!(all.find(&to_port(7, 0), VALID_MS + 9, there).map(|found| found.mark), Some(6));
    all.remove(&to_port(7, 0), control(1));
    assert_eq!(all.len(), 1, "it is another connection's");
    all.remove(&to_port(7, 0), control(2));
    assert_eq!((all.len(), all.find(&to_port(7, 0), VALID_MS, there)), (0, None));
}

#[test]
fn the_oldest_expectation_makes_room() {
    let all = Expectations::default();
    let tuple = |n: u32| Tuple { zone: (n >> 16) as u16, ..to_port(n as u16, 0) };
    let count = EXPECTATIONS_MAX as u32 + 1000;
    for n in 0..count {
        all.add(&tuple(n), expectation(n, 0), u64::from(n), |_| true);
        // A message that is sent again and again takes no room.
        all.add(&tuple(0), expectation(0, 0), 0, |_| true);
    }
    assert!(all.len() <= EXPECTATIONS_MAX);
    assert!(all.find(&tuple(count - 1), count.into(), |_| true).is_some());
    assert!(all.find(&tuple(900), count.into(), |_| true).is_none());
    // All that have expired are removed with the next one.
    all.add(&tuple(1 << 20), expectation(1, 0), 2 * VALID_MS, |_| true);
    assert_eq!(all.len(), 1);
    all.sweep(3 * VALID_MS - 1);
    assert_eq!(all.len(), 1);
    all.sweep(3 * VALID_MS);
    assert_eq!(all.len(), 0);
}

#[test]
fn a_control_connection_has_few_announced_ends() {
    let mut alg = Alg::of_new(&to_port(21, 9), Some(Application::Ftp), None).expect("a control connection");
    let Alg::Control(control) = &mut *alg else { panic!("it was not expected") };
    let ports = 0..ANNOUNCED_MAX as u16;
    assert!(ports.clone().all(|port| control.announce((0, port)).is_none()));
    assert!(ports.clone().all(|port| control.announce((0, port)).is_none()), "announced again");
    assert!(ports.clone().all(|port| control.announce((1, port)) == Some((0, port))));
    assert!(Alg::of_new(&to_port(21, 9), Some(Application::Tftp), None).is_none(), "of another protocol");
}
