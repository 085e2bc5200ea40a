use super::*;

/// A frame with these headers, `TPID:TCI` in hexadecimal, before IPv4.
fn frame(headers: &str) -> Vec<u8> {
    let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    let words = headers.split([' ', ':']).filter(|word| !word.is_empty());
    frame.extend(words.flat_map(|word| u16::from_str_radix(word, 16).unwrap().to_be_bytes()));
    frame.extend([8, 0, 0x45, 0, 0, 20]);
    frame
}

/// The headers of such a frame.
fn headers(frame: &[u8]) -> String {
    let headers = frame[12..frame.len() - 6].chunks(4);
    let text = headers.map(|h| format!("{:02x}{:02x}:{:02x}{:02x}", h[0], h[1], h[2], h[3]));
    text.collect::<Vec<_>>().join(" ")
}

/// Sends a frame from one port to another; `-` where it does not get there.
fn through(from: &PortVlan, to: &PortVlan, received: &str) -> String {
    let received = frame(received);
    let Some(retag) = from.receive(&received).ok().and_then(|in_vlan| to.send(&in_vlan)) else {
        return "-".to_owned();
    };
    let Some(change) = retag else { return headers(&received) };
    let mut sent = vec![0; change.sent_len(received.len())];
    change.write(&received, &mut sent);
    assert_ne!(sent, received, "a frame that is sent as received is not copied");
    assert_eq!((&sent[..12], &sent[sent.len() - 6..]), (&received[..12], &received[received.len() - 6..]));
    headers(&sent)
}

fn access(tag: u16) -> PortVlan {
    PortVlan::new(VlanMode::Access, tag, &[])
}

fn trunk(vids: &[u16]) -> PortVlan {
    PortVlan::new(VlanMode::Trunk, 0, vids)
}

fn native(mode: VlanMode, tag: u16, vids: &[u16]) -> PortVlan {
    PortVlan::new(mode, tag, vids)
}

fn tunnel(tag: u16, vids: &[u16]) -> PortVlan {
    PortVlan::new(VlanMode::Dot1qTunnel, tag, vids)
}

/// Checks where frames of a port get, and how: by received headers, the sent ones of each port.
fn check<const N: usize>(from: &PortVlan, to: [PortVlan; N], cases: &[(&str, [&str; N])]) {
    for (received, sent) in cases {
        let got = to.each_ref().map(|to| through(from, to, received));
        assert_eq!(got, *sent, "`{received}` from {from}");
    }
}

use VlanMode::{NativeTagged, NativeUntagged};

#[test]
fn an_access_port_takes_frames_without_vid_into_its_vlan() {
    let to = [
        access(10),
        access(11),
        trunk(&[10]),
        trunk(&[11]),
        native(NativeTagged, 10, &[]),
        native(NativeUntagged, 10, &[11]),
    ];
    check(
        &access(10),
        to,
        &[
            ("", ["", "-", "8100:000a", "-", "8100:000a", ""]),
            ("8100:0000", ["", "-", "8100:000a", "-", "8100:000a", ""]),
            // A priority tag: the priority stays, and the drop eligible bit, and the TPID.
            ("8100:a000", ["", "-", "8100:a00a", "-", "8100:a00a", ""]),
            ("88a8:7000", ["", "-", "88a8:700a", "-", "88a8:700a", ""]),
            ("8100:a000 8100:6000", ["", "-", "8100:a00a", "-", "8100:a00a", ""]),
            // With a VID it is refused, also with that of the port.
            ("8100:000a", ["-"; 6]),
            ("8100:0014", ["-"; 6]),
            ("88a8:000a", ["-"; 6]),
            ("8100:0000 8100:000a", ["-"; 6]),
            ("8100:000a 8100:000b", ["-"; 6]),
        ],
    );
}

#[test]
fn a_trunk_takes_frames_into_the_vlan_of_their_header() {
    let to = [
        access(10),
        trunk(&[]),
        trunk(&[20]),
        native(NativeTagged, 10, &[]),
        native(NativeUntagged, 10, &[20]),
        tunnel(10, &[]),
    ];
    check(
        &trunk(&[]),
        to,
        &[
            // VLAN 0.
            ("", ["-", "", "-", "-", "-", "-"]),
            ("8100:0000", ["-", "", "-", "-", "-", "-"]),
            ("8100:1000", ["-", "", "-", "-", "-", "-"]),
            ("8100:a000", ["-", "8100:a000", "-", "-", "-", "-"]),
            ("8100:b00a", ["", "8100:b00a", "-", "8100:b00a", "", ""]),
            ("88a8:000a", ["", "88a8:000a", "-", "88a8:000a", "", ""]),
            ("8100:0014", ["-", "8100:0014", "8100:0014", "8100:0014", "8100:0014", "-"]),
            // A header within a header: not for access ports, unless it says no VLAN.
            (
                "8100:000a 8100:0014",
                ["-", "8100:000a 8100:0014", "-", "8100:000a 8100:0014", "8100:0014", "8100:0014"],
            ),
            (
                "8100:000a 8100:6000",
                ["", "8100:000a 8100:6000", "-", "8100:000a 8100:6000", "8100:6000", "8100:6000"],
            ),
            // Nothing becomes a frame of another VLAN.
            ("8100:0000 8100:0014", ["-", "8100:0000 8100:0014", "-", "-", "-", "-"]),
        ],
    );
    let to = || [trunk(&[]), access(0), native(NativeUntagged, 0, &[]), native(NativeTagged, 0, &[20])];
    check(&trunk(&[20, 30]), to(), &[("", ["-"; 4]), ("8100:a000", ["-"; 4]), ("8100:000a", ["-"; 4])]);
    check(&trunk(&[20]), to(), &[("8100:0014", ["8100:0014", "-", "8100:0014", "8100:0014"])]);
    check(&trunk(&[0, 20]), to(), &[("", [""; 4]), ("8100:a000", ["8100:a000", "", "", "8100:a000"])]);
}

#[test]
fn a_native_vlan_has_the_frames_without_vid() {
    for mode in [NativeTagged, NativeUntagged] {
        let to = || {
            [
                access(10),
                trunk(&[]),
                native(NativeTagged, 10, &[]),
                native(NativeUntagged, 10, &[]),
                native(NativeUntagged, 20, &[10]),
                tunnel(10, &[]),
            ]
        };
        let always = [
            ("", ["", "8100:000a", "8100:000a", "", "8100:000a", ""]),
            ("8100:a000", ["", "8100:a00a", "8100:a00a", "", "8100:a00a", ""]),
            ("8100:000a", ["", "8100:000a", "8100:000a", "", "8100:000a", ""]),
            (
                "8100:a000 8100:0014",
                [
                    "-",
                    "8100:a00a 8100:0014",
                    "8100:a00a 8100:0014",
                    "8100:0014",
                    "8100:a00a 8100:0014",
                    "8100:0014",
                ],
            ),
        ];
        check(&native(mode, 10, &[]), to(), &always);
        check(&native(mode, 10, &[20]), to(), &always);
        check(&native(mode, 10, &[20]), to(), &[("8100:001e", ["-"; 6])]);
        check(
            &native(mode, 10, &[20]),
            to(),
            &[("8100:0014", ["-", "8100:0014", "8100:0014", "8100:0014", "", "-"])],
        );
    }
}

#[test]
fn a_tunnel_carries_frames_with_their_own_headers() {
    let to = || {
        [
            access(10),
            trunk(&[10]),
            native(NativeUntagged, 10, &[]),
            tunnel(10, &[]),
            tunnel(10, &[20]),
            tunnel(11, &[]),
        ]
    };
    check(
        &tunnel(10, &[]),
        to(),
        &[
            ("", ["", "88a8:000a", "", "", "-", "-"]),
            ("8100:0014", ["-", "88a8:000a 8100:0014", "8100:0014", "8100:0014", "8100:0014", "-"]),
            ("8100:000a", ["-", "88a8:000a 8100:000a", "8100:000a", "8100:000a", "-", "-"]),
            ("8100:a000", ["", "88a8:000a 8100:a000", "8100:a000", "8100:a000", "-", "-"]),
            // All that a customer sends arrives.
            (
                "8100:0014 8100:001e",
                [
                    "-",
                    "88a8:000a 8100:0014 8100:001e",
                    "8100:0014 8100:001e",
                    "8100:0014 8100:001e",
                    "8100:0014 8100:001e",
                    "-",
                ],
            ),
        ],
    );
    check(&tunnel(10, &[20]), to(), &[("", ["-"; 6]), ("8100:001e", ["-"; 6])]);
    check(
        &trunk(&[]),
        to(),
        &[("88a8:000a 8100:0014", ["-", "88a8:000a 8100:0014", "8100:0014", "8100:0014", "8100:0014", "-"])],
    );
}

#[test]
fn short_frames_have_no_header() {
    for len in 0..18 {
        let mut short = frame("8100:000a");
        short.truncate(len);
        let received = trunk(&[]).receive(&short).unwrap();
        assert_eq!(received.vid, if len < 16 { 0 } else { 10 }, "{len} bytes");
    }
}

#[test]
fn settings_are_shown_as_they_are_written() {
    let shown = |settings: PortVlan| settings.to_string();
    assert_eq!(shown(TRUNK.clone()), "trunk");
    assert_eq!(shown(trunk(&[0, 1, 2, 9, 4094, 4095])), "trunk 0-2,9,4094-4095");
    assert_eq!(shown(access(7)), "access 7");
    assert_eq!(shown(native(NativeTagged, 7, &[9])), "native-tagged 7, trunk 7,9");
    assert_eq!(shown(native(NativeUntagged, 7, &[])), "native-untagged 7, trunk 1-4095");
    assert_eq!(shown(tunnel(7, &[9])), "dot1q-tunnel 7, customers 9");
}

#[test]
fn protected_ports_exchange_nothing_with_each_other() {
    let (open, closed) = (trunk(&[]), trunk(&[]).protected(true));
    let access = access(9).protected(true);
    assert_eq!(through(&closed, &closed, ""), "-");
    assert_eq!(through(&closed, &access, "8100:0009"), "-");
    assert_eq!(through(&access, &closed, ""), "-");
    assert_eq!(through(&closed, &open, "8100:0009"), "8100:0009");
    assert_eq!(through(&open, &access, "8100:0009"), "");
    assert_eq!(closed.to_string(), "protected, trunk");
}
