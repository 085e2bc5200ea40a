use super::*;

/// The frames of a capture in the classic format; none where there is no such file.
fn frames(name: &str) -> Option<Vec<Vec<u8>>> {
    let bytes = std::fs::read(crate::testing::data(format!("captures/{name}"))?).unwrap();
    assert_eq!(bytes[..4], 0xa1b2_c3d4u32.to_le_bytes(), "{name} is little-endian");
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while rest.len() >= 16 {
        let len = u32::from_le_bytes(*rest[8..].first_chunk().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    Some(frames)
}

/// Terminates a capture with every variant, no endpoint being known; returns what became of its
/// frames.
fn outcomes(name: &str, policy: &Policy) -> Option<Vec<Outcome>> {
    let frames = frames(name)?;
    let table = EndpointTable::new(&EndpointConfig::default());
    let wanted: Vec<Outcome> = frames.iter().map(|frame| one(&table.reader(), policy, frame, 0)).collect();
    for mut node in nodes(&table, policy) {
        assert_eq!(terminate(&mut node, &frames, 0), wanted, "{name} {}", node.variant());
    }
    Some(wanted)
}

#[test]
fn tunnels_in_captures_are_valid() {
    let unknown = Some(Err(Refused::UnknownEndpoint));
    let linux = Policy { vxlan_port: Some(8472), ..Policy::default() };
    let understood = Policy { geneve_options: vec![(0, 0x80)], ..Policy::default() };
    let captures =
        [("vxlan.pcap", Policy::default()), ("vxlan_port_8472.pcap", linux), ("geneve.pcap", understood)];
    for (name, policy) in captures {
        let Some(outcomes) = outcomes(name, &policy) else { continue };
        let valid = outcomes.iter().filter(|outcome| **outcome == unknown).count();
        println!("{name}: {valid} of {}: {outcomes:?}", outcomes.len());
        assert!(valid > 0 && outcomes.iter().all(|o| o.is_none() || *o == unknown), "{name}");
    }
}

#[test]
fn a_capture_goes_through_known_endpoints() {
    let Some(frames) = frames("vxlan.pcap") else { return };
    let mut table = EndpointTable::new(&EndpointConfig::default());
    for frame in &frames {
        let mut key = FlowKey::zero();
        let headers = parse(frame, 1, &mut key);
        let Ok(Some(tunnel)) = crate::packet::tunnel::read(frame, &headers) else { continue };
        let destination = IpAddr::from(<[u8; 4]>::try_from(&frame[30..34]).unwrap());
        let endpoint = Endpoint { kind: TunnelKind::Vxlan, id: tunnel.id, vrf: 0, source: None, destination };
        table.insert(&endpoint, EndpointId(tunnel.id)).unwrap();
    }
    for mut node in nodes(&table, &Policy::default()) {
        for (outcome, frame) in terminate(&mut node, &frames, 0).into_iter().zip(&frames) {
            let (endpoint, id, kind, inner) = outcome.expect("a tunnel's").expect("of a known endpoint");
            assert_eq!((endpoint.0, kind), (id, TunnelKind::Vxlan));
            assert!(frame.ends_with(&inner) && parsed(&inner).malformed.is_none());
        }
    }
}
