use super::caches::random_frames;
use super::*;

/// Ethernet, an IP header and UDP around a tunnel's header, with a checksum where asked for; by etherparse.
fn outer(v6: bool, port: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([4, 0, 0, 0, 0, 1], [4, 0, 0, 0, 0, 2]);
    if v6 {
        let builder = builder.ipv6([1; 16], [2; 16], 9).udp(5555, port);
        builder.write(&mut frame, body).unwrap();
    } else {
        builder.ipv4([10, 0, 0, 2], [10, 0, 0, 1], 9).udp(5555, port).write(&mut frame, body).unwrap();
    }
    frame
}

const INNER: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 9, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn with_inner(header: &[u8]) -> Vec<u8> {
    [header, &INNER].concat()
}

fn gtpu(flags: u8, message: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![flags, message, 0, (rest.len() + INNER.len()) as u8, 0, 0, 0, 7];
    header.extend(rest);
    with_inner(&header)
}

/// The result of every variant for a frame, without endpoints.
#[track_caller]
fn expect_with(policy: &Policy, frame: &[u8], wanted: Option<Refused>) {
    let table = EndpointTable::new(&EndpointConfig::default());
    for mut node in nodes(&table, policy) {
        let found = terminate(&mut node, &[frame.to_vec()], 0).remove(0);
        let name = node.variant();
        assert_eq!(found, wanted.map(Err), "{name}");
        assert_eq!(node.refused().iter().next(), wanted.map(|reason| (reason, 1)), "{name}");
    }
}

#[track_caller]
fn expect(frame: &[u8], wanted: Option<Refused>) {
    expect_with(&Policy::default(), frame, wanted);
}

/// Valid, of an endpoint that is not known.
const VALID: Option<Refused> = Some(Refused::UnknownEndpoint);

#[test]
fn vxlan_needs_the_i_flag_and_tolerates_reserved_bits() {
    expect(&outer(false, 4789, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0])), VALID);
    expect(&outer(true, 4789, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0])), VALID);
    expect(&outer(false, 4789, &with_inner(&[0xff, 1, 2, 3, 0, 0, 7, 9])), VALID);
    expect(&outer(false, 4789, &with_inner(&[0xf7, 0, 0, 0, 0, 0, 7, 0])), Some(Refused::VxlanFlags));
    expect(&outer(false, 4789, &[8, 0, 0, 0, 0, 0, 7]), Some(Refused::Truncated));
    expect(&outer(false, 4788, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0])), None);
}

/// Ethernet and an IP header around GRE.
fn gre(v6: bool, body: &[u8]) -> Vec<u8> {
    let mut frame = outer(v6, 4789, &vec![0; body.len().saturating_sub(8)]);
    frame[if v6 { 20 } else { 23 }] = 47;
    let at = frame.len() - body.len();
    frame[at..].copy_from_slice(body);
    if !v6 {
        let checksum = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..34]).unwrap().to_header();
        frame[24..26].copy_from_slice(&checksum.calc_header_checksum().to_be_bytes());
    }
    frame
}

#[test]
fn gre_is_of_version_0_with_flags_that_are_known_and_a_right_checksum() {
    for v6 in [false, true] {
        expect(&gre(v6, &with_inner(&[0, 0, 0x65, 0x58])), VALID);
        expect(&gre(v6, &with_inner(&[0x30, 0, 8, 0, 0, 0, 0, 7, 0, 0, 0, 1])), VALID);
        // Of the checksum the rest is its complement.
        let mut whole = with_inner(&[0x80, 0, 0x65, 0x58, 0, 0, 0, 0]);
        let sum: u32 = whole.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        whole[4..6].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        expect(&gre(v6, &whole), VALID);
        whole[9] ^= 1;
        expect(&gre(v6, &whole), Some(Refused::GreChecksum));
        for first in [[0x01, 0], [0x40, 0], [0x08, 0], [0, 1], [0, 0x80]] {
            let header = [&first[..], &[0x65, 0x58]].concat();
            expect(&gre(v6, &with_inner(&header)), Some(Refused::GreFormat));
        }
        expect(&gre(v6, &with_inner(&[0, 0, 0x88, 0x47])), Some(Refused::InnerProtocol));
        expect(&gre(v6, &[0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 0]), Some(Refused::Truncated));
        let others = Policy { gre: false, ..Policy::default() };
        expect_with(&others, &gre(v6, &with_inner(&[0, 0, 0x65, 0x58])), None);
    }
}

#[test]
fn erspan_is_of_type_2_or_3_around_ethernet() {
    for v6 in [false, true] {
        let expect_header = |header: &[u8], wanted| expect(&gre(v6, &with_inner(header)), wanted);
        let version_1 = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 5, 0, 0, 0, 3];
        expect_header(&version_1, VALID);
        let version_2 = |last: [u8; 2]| {
            [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 5, 1, 2, 3, 4, 0, 0][..], &last].concat()
        };
        expect_header(&version_2([0, 0x18]), VALID);
        // With a header for the platform.
        expect_header(&[&version_2([0x80, 0x19])[..], &[0; 8]].concat(), VALID);
        let cut = [&version_2([0, 1])[..], &[0; 7]].concat();
        expect(&gre(v6, &cut), Some(Refused::Truncated));
        expect(&gre(v6, &version_1[..15]), Some(Refused::Truncated));
        // IP packets, other versions, and type I, which has no sequence number.
        expect_header(&version_2([8, 0]), Some(Refused::ErspanFormat));
        for (at, to) in [(8, 0x20), (8, 0), (0, 0), (0, 0x30), (0, 0x90)] {
            let mut other = version_1;
            other[at] = to;
            expect_header(&other, Some(Refused::ErspanFormat));
        }
        expect_header(&[0x11, 0, 0x88, 0xbe], Some(Refused::GreFormat));
    }
}

#[test]
fn checksums_are_verified_and_may_be_missing_where_that_is_allowed() {
    let good = outer(false, 4789, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0]));
    let without = |mut frame: Vec<u8>, at: usize| {
        frame[at..at + 2].fill(0);
        frame
    };
    expect(&without(good.clone(), 40), VALID);
    let flipped = |frame: &[u8], at: usize| {
        let mut frame = frame.to_vec();
        frame[at] ^= 4;
        frame
    };
    expect(&flipped(&good, good.len() - 1), Some(Refused::UdpChecksum));
    // The time to live: of the header's checksum alone.
    expect(&flipped(&good, 22), Some(Refused::Ipv4Checksum));
    expect(&flipped(&without(good.clone(), 40), 22), Some(Refused::Ipv4Checksum));
    let trusting = Policy { verify_ipv4_checksum: false, verify_udp_checksum: false, ..Policy::default() };
    expect_with(&trusting, &flipped(&good, good.len() - 1), VALID);
    expect_with(&trusting, &flipped(&good, 22), VALID);
    let good = outer(true, 4789, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0]));
    expect(&flipped(&good, good.len() - 1), Some(Refused::UdpChecksum));
    let none = without(good, 60);
    expect(&none, Some(Refused::UdpChecksumMissing));
    expect_with(&Policy { ipv6_zero_checksum: true, ..Policy::default() }, &none, VALID);
}

#[test]
fn geneve_versions_options_and_protocols() {
    let geneve = |header: &[u8]| outer(false, 6081, &with_inner(header));
    expect(&geneve(&[0, 0, 0x65, 0x58, 0, 0, 7, 0]), VALID);
    expect(&geneve(&[0, 0, 8, 0, 0, 0, 7, 0]), VALID);
    expect(&geneve(&[0x40, 0, 0x65, 0x58, 0, 0, 7, 0]), Some(Refused::GeneveVersion));
    expect(&geneve(&[0, 0x80, 0x65, 0x58, 0, 0, 7, 0]), Some(Refused::GeneveControl));
    expect(&geneve(&[0, 0, 0x12, 0x34, 0, 0, 7, 0]), Some(Refused::InnerProtocol));
    expect(&geneve(&[0x3f, 0, 0x65, 0x58, 0, 0, 7, 0]), Some(Refused::GeneveOptionLength));
    // An option of a word of data, where there is none.
    expect(&geneve(&[1, 0, 8, 0, 0, 0, 7, 0, 1, 2, 3, 1]), Some(Refused::GeneveOptionLength));
    expect(&geneve(&[2, 0, 8, 0, 0, 0, 7, 0, 1, 2, 3, 1, 9, 9, 9, 9]), VALID);
    let critical = geneve(&[1, 0x40, 8, 0, 0, 0, 7, 0, 1, 2, 0x83, 0]);
    expect(&critical, Some(Refused::GeneveCriticalOption));
    let understood = Policy { geneve_options: vec![(0x0102, 0x83)], ..Policy::default() };
    expect_with(&understood, &critical, VALID);
}

#[test]
fn gtpu_messages_and_extensions() {
    let gtpu = |flags, message, rest: &[u8]| outer(false, 2152, &gtpu(flags, message, rest));
    expect(&gtpu(0x30, 255, &[]), VALID);
    expect(&gtpu(0x38, 255, &[]), VALID);
    expect(&gtpu(0x30, 1, &[]), Some(Refused::GtpuSignalling));
    expect(&gtpu(0x50, 255, &[]), Some(Refused::GtpuVersion));
    expect(&gtpu(0x20, 255, &[]), Some(Refused::GtpuVersion));
    expect(&gtpu(0x32, 255, &[0, 1, 0, 0]), VALID);
    expect(&gtpu(0x34, 255, &[0, 0, 0, 0x85, 1, 0, 9, 0]), VALID);
    expect(&gtpu(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 9, 0]), Some(Refused::GtpuExtensionLength));
    expect(&gtpu(0x34, 255, &[0, 0, 0, 0x85, 200, 0, 9, 0]), Some(Refused::GtpuExtensionLength));
    expect(&gtpu(0x34, 255, &[0, 0, 0, 0x99, 1, 0, 9, 0]), Some(Refused::GtpuExtension));
    // One that need not be understood.
    expect(&gtpu(0x34, 255, &[0, 0, 0, 0x40, 1, 0, 9, 0]), VALID);
    let mut length = gtpu(0x30, 255, &[]);
    length[45] ^= 1;
    length[40..42].fill(0);
    expect(&length, Some(Refused::GtpuLength));
    let mut inner = gtpu(0x30, 255, &[]);
    inner[50] = 0x95;
    inner[40..42].fill(0);
    expect(&inner, Some(Refused::InnerProtocol));
}

#[test]
fn configured_ports_are_terminated_and_disabled_ones_ignored() {
    let frame = outer(false, 8472, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0]));
    expect(&frame, None);
    let linux = Policy { vxlan_port: Some(8472), ..Policy::default() };
    expect_with(&linux, &frame, VALID);
    expect_with(&Policy { vxlan_port: None, ..linux }, &frame, None);
}

#[test]
fn frames_cut_anywhere_and_random_bytes_do_no_harm() {
    let table = EndpointTable::new(&EndpointConfig::default());
    let mut nodes = nodes(&table, &Policy::default());
    let mut random = Random::new(23);
    let whole = [
        outer(false, 4789, &with_inner(&[8, 0, 0, 0, 0, 0, 7, 0])),
        outer(false, 6081, &with_inner(&[2, 0, 8, 0, 0, 0, 7, 0, 1, 2, 3, 1, 9, 9, 9, 9])),
        outer(true, 2152, &gtpu(0x34, 255, &[0, 0, 0, 0x85, 1, 0, 9, 0])),
    ];
    let mut frames: Vec<Vec<u8>> =
        whole.iter().flat_map(|frame| (0..frame.len()).map(|len| frame[..len].to_vec())).collect();
    for _ in 0..2000 {
        let mut frame = whole[random.index(3)].clone();
        for _ in 0..1 + random.index(4) {
            let at = 12 + random.index(frame.len() - 12);
            frame[at] = random.bits() as u8;
        }
        frames.push(frame);
    }
    let (reader, policy) = (table.reader(), Policy::default());
    let wanted: Vec<Outcome> = frames.iter().map(|frame| one(&reader, &policy, frame, 0)).collect();
    for node in &mut nodes {
        assert_eq!(terminate(node, &frames, 0), wanted, "{}", node.variant());
    }
}

/// The law of [`Plain`], by which the variants' kernels read, too.
#[test]
fn plain_packets_are_valid_and_parsed_equally() {
    let mut random = Random::new(29);
    let frames = random_frames(3000, 200, &mut random);
    let trusting = Policy {
        verify_ipv4_checksum: false,
        verify_udp_checksum: false,
        gtpu_port: None,
        ..Policy::default()
    };
    for policy in [Policy::default(), trusting] {
        let plain = Plain::new(&policy);
        let mut plain_frames = 0;
        for frame in &frames {
            let headers = parsed(frame);
            let Some(packet) = plain.read(frame, &headers, 3) else { continue };
            let valid = match validate(frame, &headers, 3, &policy) {
                Some(Ok(valid)) => valid,
                other => panic!("plain, but {other:?}: {frame:02x?}"),
            };
            assert_eq!(valid.key, Key::V4(packet.key));
            let mut out = Decapsulated::new();
            out.describe_plain(0, &headers, &packet);
            out.describe(1, &valid);
            let said = |lane| {
                (out.ids[lane], out.inner_at[lane], out.inner_len[lane], out.kinds[lane], out.inner[lane])
            };
            assert_eq!(said(0), said(1), "{frame:02x?}");
            plain_frames += 1;
        }
        // Five in six tunnels are over IPv4, two in five of those VXLAN or GENEVE, and most of their packets unharmed.
        assert!(plain_frames > frames.len() / 4, "{plain_frames} of {} are plain", frames.len());
    }
}
