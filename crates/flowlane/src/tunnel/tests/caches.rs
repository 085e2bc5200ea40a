use std::collections::HashMap;

use super::*;

/// Endpoints and packets of them, of unknown ones, and of other traffic.
pub(super) fn random_frames(count: usize, tunnels: u32, random: &mut Random) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let mut tunnel = tunnel(random.below(u64::from(tunnels)) as u32);
            tunnel.checksum |= random.chance(0.1);
            let len = 20 + random.index(80);
            let mut frame = encapsulated(&tunnel, &inner_for(&tunnel, len, random));
            if random.chance(0.1) {
                let at = random.index(frame.len());
                frame[at] ^= 1 << random.index(8);
            }
            if random.chance(0.05) {
                frame.splice(12..12, [0x81, 0, 0, 7]);
            }
            frame
        })
        .collect()
}

#[test]
fn every_variant_agrees_with_one_packet_at_a_time_and_finds_what_a_map_has() {
    let mut random = Random::new(17);
    for tunnels in [1, 2, 8, 9, 200, 3000] {
        let mut table = EndpointTable::new(&EndpointConfig::default());
        let mut map = HashMap::new();
        for i in 0..tunnels {
            // Every seventh is unknown.
            if i % 7 != 6 {
                let endpoint = endpoint_of(&tunnel(i), 3);
                let before = table.insert(&endpoint, EndpointId(i)).unwrap();
                assert_eq!(before, map.insert(endpoint, EndpointId(i)));
            }
        }
        let frames = random_frames(1500, tunnels, &mut random);
        let (reader, policy) = (table.reader(), Policy::default());
        let wanted: Vec<Outcome> = frames.iter().map(|frame| one(&reader, &policy, frame, 3)).collect();
        for mut node in nodes(&table, &Policy::default()) {
            let name = format!("{}, {tunnels} tunnels", node.variant());
            let outcomes = terminate(&mut node, &frames, 3);
            let refused = outcomes.iter().filter(|o| matches!(o, Some(Err(_)))).count() as u64;
            assert_eq!(node.refused().iter().map(|(_, n)| n).sum::<u64>(), refused, "{name}");
            assert_eq!(outcomes, wanted, "{name}");
        }
        for (found, frame) in wanted.iter().zip(&frames) {
            if let Some(Ok((endpoint, id, kind, _))) = found {
                let headers = parsed(frame);
                let address = |at: usize| match headers.network {
                    crate::packet::Network::Ipv4 => {
                        IpAddr::from(<[u8; 4]>::try_from(&frame[at + 12..at + 16]).unwrap())
                    }
                    _ => IpAddr::from(<[u8; 16]>::try_from(&frame[at + 8..at + 24]).unwrap()),
                };
                let source = address(headers.l3.into());
                let destination = if source.is_ipv4() { v4(1) } else { v6(1) };
                let wanted = Endpoint { kind: *kind, id: *id, vrf: 3, source: Some(source), destination };
                assert_eq!(map.get(&wanted), Some(endpoint), "{wanted:?}");
            }
        }
    }
}

#[test]
fn batches_of_every_length_keep_lane_order() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let tunnels: Vec<Encapsulation> = (0..20).map(|i| tunnel(i * 30)).collect();
    for (i, tunnel) in tunnels.iter().enumerate() {
        table.insert(&endpoint_of(tunnel, 0), EndpointId(i as u32)).unwrap();
    }
    let mut random = Random::new(5);
    let inner = inner_frame(60, &mut random);
    for mut node in nodes(&table, &Policy::default()) {
        for len in (0..=33).chain([63, 64]) {
            let order: Vec<usize> = (0..len).map(|_| random.index(20)).collect();
            let frames: Vec<Vec<u8>> = order.iter().map(|i| encapsulated(&tunnels[*i], &inner)).collect();
            for (found, i) in terminate(&mut node, &frames, 0).iter().zip(&order) {
                let wanted = (EndpointId(*i as u32), tunnels[*i].id, TunnelKind::Vxlan, inner.clone());
                assert_eq!(*found, Some(Ok(wanted)), "{}, {len}", node.variant());
            }
        }
    }
}

#[test]
fn lanes_that_are_not_live_are_left_alone() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let tunnel = tunnel(0);
    table.insert(&endpoint_of(&tunnel, 0), EndpointId(9)).unwrap();
    let frame = encapsulated(&tunnel, &inner_frame(60, &mut Random::new(1)));
    let headers = vec![parsed(&frame); 20];
    for mut node in nodes(&table, &Policy::default()) {
        let mut out = Decapsulated::new();
        node.decapsulate(&[&frame[..]; 20], &headers, 0, LaneMask(0x8_0101), &mut out);
        assert_eq!((out.terminated, out.refused), (LaneMask(0x8_0101), LaneMask(0)));
    }
}

#[test]
fn an_endpoint_that_went_away_is_never_found_again() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let tunnels: Vec<Encapsulation> = (0..12).map(tunnel).collect();
    let mut random = Random::new(2);
    let frames: Vec<Vec<u8>> =
        tunnels.iter().map(|t| encapsulated(t, &inner_for(t, 60, &mut random))).collect();
    let mut nodes = nodes(&table, &Policy::default());
    let mut map: HashMap<usize, u32> = HashMap::new();
    for step in 0..400 {
        let i = random.index(tunnels.len());
        let endpoint = endpoint_of(&tunnels[i], 0);
        if map.contains_key(&i) && random.chance(0.6) {
            assert_eq!(table.remove(&endpoint), map.remove(&i).map(EndpointId));
        } else {
            // Also another number for the same endpoint: the old one has gone away, too.
            let before = table.insert(&endpoint, EndpointId(step)).unwrap();
            assert_eq!(before, map.insert(i, step).map(EndpointId));
        }
        for node in &mut nodes {
            let found = terminate(node, &frames, 0);
            for (i, found) in found.into_iter().enumerate() {
                let found = found.expect("it is a tunnel's").map(|(endpoint, ..)| endpoint.0);
                let wanted = map.get(&i).copied().ok_or(Refused::UnknownEndpoint);
                assert_eq!(found, wanted, "step {step}, {}", node.variant());
            }
        }
    }
}

#[test]
fn an_endpoint_with_a_source_goes_before_an_open_one() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    for tunnel in [tunnel(0), tunnel(4)] {
        let exact = endpoint_of(&tunnel, 0);
        let open = Endpoint { source: None, ..exact };
        let frame = encapsulated(&tunnel, &inner_for(&tunnel, 60, &mut Random::new(3)));
        for mut node in nodes(&table, &Policy::default()) {
            let mut find = |wanted: Result<u32, Refused>| {
                // Twice: from the table, and from the cache.
                for _ in 0..2 {
                    let found = terminate(&mut node, std::slice::from_ref(&frame), 0).remove(0).unwrap();
                    assert_eq!(found.map(|(endpoint, ..)| endpoint.0), wanted);
                }
            };
            find(Err(Refused::UnknownEndpoint));
            table.insert(&open, EndpointId(1)).unwrap();
            find(Ok(1));
            table.insert(&exact, EndpointId(2)).unwrap();
            find(Ok(2));
            table.remove(&exact).unwrap();
            find(Ok(1));
            table.remove(&open).unwrap();
            find(Err(Refused::UnknownEndpoint));
        }
    }
}

#[test]
fn vrfs_kinds_and_ids_tell_endpoints_apart() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let tunnel = Encapsulation::new(TunnelKind::Vxlan, 7, v4(2), v4(1));
    let endpoint = endpoint_of(&tunnel, 5);
    for other in [
        Endpoint { vrf: 6, ..endpoint },
        Endpoint { id: 8, ..endpoint },
        Endpoint { kind: TunnelKind::Geneve, ..endpoint },
        Endpoint { source: Some(v4(3)), ..endpoint },
        Endpoint { destination: v4(4), ..endpoint },
    ] {
        table.insert(&other, EndpointId(1)).unwrap();
    }
    let frame = encapsulated(&tunnel, &inner_frame(60, &mut Random::new(3)));
    for mut node in nodes(&table, &Policy::default()) {
        let found = terminate(&mut node, std::slice::from_ref(&frame), 5);
        assert_eq!(found, [Some(Err(Refused::UnknownEndpoint))]);
    }
}

#[test]
fn keys_alone_are_found_as_in_the_table() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let endpoint =
        |i: u32| Endpoint { kind: TunnelKind::Vxlan, id: i, vrf: 0, source: Some(v4(i)), destination: v4(1) };
    for i in (0..9000).step_by(3) {
        table.insert(&endpoint(i), EndpointId(i)).unwrap();
    }
    let mut random = Random::new(8);
    let mut cache = EndpointCache::new(table.reader());
    for batch in 0..600 {
        // Long enough that it is no longer asked, and begins again.
        let range = if batch < 300 { 9000 } else { 12 };
        let numbers: Vec<u32> = (0..random.index(65)).map(|_| random.below(range) as u32).collect();
        let keys: Vec<V4Key> = numbers.iter().map(|i| endpoint(*i).v4_key().unwrap()).collect();
        let mut found = vec![u32::MAX; keys.len()];
        let hits = cache.lookup_batch(&keys, &mut found);
        for (lane, number) in numbers.iter().enumerate() {
            let hit = hits.0 >> lane & 1 != 0;
            assert_eq!(hit, number % 3 == 0, "{number}");
            assert!(!hit || found[lane] == *number);
        }
    }
}

#[test]
fn errors_of_limits_and_endpoints_name_the_remedy() {
    let config = EndpointConfig { endpoints_max: 3, ..EndpointConfig::default() };
    let mut table = EndpointTable::new(&config);
    let endpoint = |i: u32| endpoint_of(&tunnel(i), 0);
    for i in [0, 4, 1] {
        table.insert(&endpoint(i), EndpointId(i)).unwrap();
    }
    let full = table.insert(&endpoint(2), EndpointId(2)).unwrap_err();
    assert!(full.to_string().contains("3 tunnel endpoints, of at most 3; remove some"), "{full}");
    assert_eq!(table.insert(&endpoint(0), EndpointId(7)), Ok(Some(EndpointId(0))));
    assert_eq!(table.remove(&endpoint(2)), None);
    assert_eq!(table.len(), 3);
    let mixed = Endpoint { source: Some(v6(1)), ..endpoint(0) };
    assert!(table.insert(&mixed, EndpointId(0)).unwrap_err().to_string().contains("give both of one"));
    let vni = Endpoint { id: 1 << 24, ..endpoint(0) };
    assert_eq!(table.insert(&vni, EndpointId(0)), Err(EndpointError::Vni { id: 1 << 24 }));
    let vrf = Endpoint { vrf: 1 << 24, ..endpoint(0) };
    assert_eq!(table.insert(&vrf, EndpointId(0)), Err(EndpointError::Vrf { vrf: 1 << 24 }));
}

#[test]
fn a_worker_beside_the_writer_finds_an_endpoint_as_it_was_or_is() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let tunnel = tunnel(0);
    let endpoint = endpoint_of(&tunnel, 0);
    let frame = encapsulated(&tunnel, &inner_frame(60, &mut Random::new(1)));
    let nodes = nodes(&table, &Policy::default());
    // The last removal, with all numbers below it.
    let gone = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for mut node in nodes {
            let (gone, frame) = (&gone, &frame);
            scope.spawn(move || {
                for _ in 0..300 {
                    let before = gone.load(std::sync::atomic::Ordering::Acquire);
                    let found = terminate(&mut node, &vec![frame.clone(); 8], 0);
                    for found in found.into_iter().flatten().flatten() {
                        assert!(found.0.0 > before, "{} of {before}, {}", found.0.0, node.variant());
                    }
                }
            });
        }
        for number in 1..3000 {
            table.insert(&endpoint, EndpointId(number)).unwrap();
            table.remove(&endpoint).unwrap();
            gone.store(number, std::sync::atomic::Ordering::Release);
        }
    });
}
