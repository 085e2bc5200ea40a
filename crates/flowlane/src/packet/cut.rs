//! Frames of which only the first bytes were captured.

use super::tests::every_kind;
use super::*;
use crate::isa::Variant;

/// The fields of `key` that the cut one has not, or not so; each has nothing then.
fn lacking(cut: &FlowKey, key: &FlowKey) -> Vec<Field> {
    let fields = Field::all().iter().map(|info| info.field);
    let lacking: Vec<Field> = fields.filter(|f| cut.get(*f) != key.get(*f)).collect();
    for field in &lacking {
        let says_so = *field == Field::Malformed;
        assert!(says_so || cut.get(*field) == 0, "{}: {:#x}", field.info().name, cut.get(*field));
    }
    lacking
}

#[test]
fn what_is_there_of_a_frame_is_parsed_as_in_the_whole_and_the_rest_is_not_known() {
    for frame in every_kind() {
        let mut whole = FlowKey::zero();
        let headers = parse(&frame, 3, &mut whole);
        let mut known = usize::MAX;
        for captured in 0..=frame.len() {
            let mut cut = FlowKey::zero();
            let found = parse_captured(Captured::new(&frame[..captured], frame.len()), 3, &mut cut);
            let lacking = lacking(&cut, &whole);
            // More bytes never say less.
            assert!(lacking.len() <= known, "{captured} of {}: {lacking:?}", frame.len());
            known = lacking.len();
            match found.malformed {
                // Payload is not asked for.
                reason if reason == headers.malformed => {
                    assert_eq!((found, &lacking[..]), (headers, &[][..]), "{captured}");
                }
                reason => assert_eq!(reason, Some(Malformed::NotCaptured), "{captured} of {frame:02x?}"),
            }
            for parser in Variant::ALL.into_iter().filter_map(Parser::with_variant) {
                let mut other = FlowKey::zero();
                other.set_word(40, 0xdead_beef);
                let frame = Captured::new(&frame[..captured], frame.len());
                assert_eq!(parser.parse_captured(frame, 3, &mut other), found, "{}", parser.variant());
                assert!(other == cut && other.present() == cut.present(), "{}", parser.variant());
            }
        }
        assert_eq!(known, 0);
    }
}

#[test]
fn ports_and_flags_are_there_where_their_bytes_are() {
    // Ethernet, IPv4, TCP of 1,000 bytes: what common snap lengths keep of it.
    let mut frame = vec![0; 1054];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 4, 16, 0, 0, 0, 0, 64, 6]);
    frame[34..38].copy_from_slice(&[0x12, 0x34, 0, 80]);
    frame[46..48].copy_from_slice(&[0x50, 0x12]);
    let cut = |captured: usize| {
        let mut key = FlowKey::zero();
        let headers = parse_captured(Captured::new(&frame[..captured], frame.len()), 1, &mut key);
        (headers.malformed, [Field::TpSrc, Field::TpDst, Field::TcpFlags, Field::NwProto].map(|f| key.get(f)))
    };
    let lacks = Some(Malformed::NotCaptured);
    assert_eq!(cut(96), (None, [0x1234, 80, 0x12, 6]));
    assert_eq!(cut(54), (None, [0x1234, 80, 0x12, 6]));
    assert_eq!(cut(48), (lacks, [0x1234, 80, 0x12, 6]));
    assert_eq!(cut(40), (lacks, [0x1234, 80, 0, 6]));
    assert_eq!(cut(36), (lacks, [0, 0, 0, 6]));
    assert_eq!(cut(20), (lacks, [0; 4]));
    // A frame that is so short by itself is malformed, as ever.
    let mut key = FlowKey::zero();
    assert_eq!(parse(&frame[..96], 1, &mut key).malformed, Some(Malformed::Ipv4TotalLength));
}

#[test]
fn segments_that_are_still_to_be_cut_are_as_long_as_their_frame() {
    let length_at = |frame: &[u8], headers: &Headers| match (headers.network, headers.l3 as usize) {
        (Network::Ipv4, at) => Some((at + 2, frame.len() - at)),
        (Network::Ipv6, at) => Some((at + 4, frame.len() - at - 40)),
        _ => None,
    };
    let mut seen = 0;
    for mut frame in every_kind() {
        let mut whole = FlowKey::zero();
        let headers = parse(&frame, 3, &mut whole);
        let Some((at, len)) = length_at(&frame, &headers) else { continue };
        let said = usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        frame[at..at + 2].fill(0);
        // Nothing can be known of the bytes behind the packet (padding, say).
        if headers.malformed.is_some() || said != len || len == 0 {
            continue;
        }
        seen += 1;
        for parser in Variant::ALL.into_iter().filter_map(Parser::with_variant) {
            let uncut = Captured::new(&frame, frame.len()).uncut();
            let mut key = FlowKey::zero();
            assert_eq!(parser.parse_captured(uncut, 3, &mut key), headers, "{}", parser.variant());
            assert!(key == whole, "{}", parser.variant());
            // Correct parts make no difference.
            frame[at..at + 2].copy_from_slice(&(said as u16).to_be_bytes());
            let uncut = Captured::new(&frame, frame.len()).uncut();
            assert_eq!(parser.parse_captured(uncut, 3, &mut key), headers, "{}", parser.variant());
            assert!(key == whole, "{}", parser.variant());
            frame[at..at + 2].fill(0);
        }
        // From a wire that is malformed.
        let strict = parse(&frame, 3, &mut FlowKey::zero());
        assert!(strict.malformed.is_some() || headers.network == Network::Ipv6, "{strict:?}");
    }
    assert!(seen > 6, "{seen}");
}

#[test]
fn captures_cut_to_any_length_say_nothing_that_the_whole_does_not() {
    // Recorded and mutated frames, at the snap lengths that are common.
    let mut r = crate::generate::Random::new(11);
    for frame in every_kind() {
        for _ in 0..200 {
            let mut mutated = frame.clone();
            for _ in 0..r.below(4) {
                let at = r.below(mutated.len() as u64) as usize;
                mutated[at] = r.bits() as u8;
            }
            let (mut whole, mut cut) = (FlowKey::zero(), FlowKey::zero());
            let headers = parse(&mutated, 3, &mut whole);
            let captured = r.below(mutated.len() as u64 + 1) as usize;
            let captured = Captured::new(&mutated[..captured], mutated.len());
            let found = parse_captured(captured, 3, &mut cut);
            // A fault further back is not known, nor that the parts before it do not count.
            if headers.malformed.is_none() {
                lacking(&cut, &whole);
            }
            for parser in Variant::ALL.into_iter().filter_map(Parser::with_variant) {
                let mut other = FlowKey::zero();
                assert_eq!(parser.parse_captured(captured, 3, &mut other), found, "{}", parser.variant());
                assert!(other == cut, "{}", parser.variant());
            }
        }
    }
}
