//! The writer's accounts, compared with a recount of the table.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use super::{BLOCKS, SLOTS, Writer};
use crate::generate::random::Random;
use crate::route::v4::compact::long;
use crate::route::{BuildError, FibConfig, HopSize, Prefix, Rib};

/// Every piece that blocks lead to belongs to one of them, constant chunks apart; nothing else is taken; and each next hop is
/// named as often as slots and runs say.
fn assert_accounts(writer: &Writer) {
    let pool = &writer.table.pool;
    let (mut named, mut chunks, mut words) = (HashMap::new(), HashMap::new(), HashSet::new());
    for block in 0..BLOCKS as u32 {
        let first = writer.first_place(block);
        *chunks.entry(first).or_insert(0) += 1;
        let directory = writer.table.directories[block as usize].load(Relaxed);
        if let Some(hop) = writer.constant_of(first) {
            *named.entry(hop).or_insert(0) += SLOTS as u32;
            assert_eq!(directory, 0, "block {block:#x} has one next hop");
            continue;
        }
        assert_eq!(chunks[&first], 1, "block {block:#x} shares a chunk");
        let hops: Vec<Option<u16>> = (0..SLOTS as u32).map(|slot| writer.hop_at(first + slot)).collect();
        assert!(hops.iter().any(|hop| *hop != hops[0] || hop.is_none()), "block {block:#x} could share one");
        hops.iter().flatten().for_each(|hop| *named.entry(*hop).or_insert(0) += 1);
        let listed = long::directory(pool, directory);
        assert!(directory == 0 || words.insert(directory), "block {block:#x} shares a directory");
        for (hop, chunk) in hops.iter().zip(listed) {
            assert_eq!(hop.is_none(), chunk != 0, "block {block:#x}");
            if chunk != 0 {
                assert!(words.insert(chunk), "block {block:#x} shares a long chunk");
                long::each_hop(pool, chunk, |hop| *named.entry(hop).or_insert(0) += 1);
            }
        }
    }
    let (chunks_taken, words_taken) = writer.room.taken_and_not_retired();
    assert_eq!((chunks_taken, words_taken), (chunks.len(), words.len()));
    assert_eq!(writer.hops.counts(), named);
    assert!(writer.table_bytes() <= writer.room.memory_max());
}

#[test]
fn accounts_are_right_after_any_changes() {
    // Ample memory; so little that changes are refused; and enough next hops that codes get two bytes.
    for (seed, (bytes, hops)) in
        [(1 << 30, 40), (40_000, 40), (1 << 30, 600), (60_000, 600)].iter().enumerate()
    {
        let mut random = Random::new(seed as u64);
        let mut rib = Rib::new(3000);
        let fixed = Writer::build(&rib, &FibConfig::new(HopSize::B4)).expect("there is memory").table_bytes();
        let config = FibConfig::new(HopSize::B4).with_memory_max(fixed + bytes);
        let mut writer = Writer::build(&rib, &config).expect("there is memory");
        let mut refused = 0;
        for step in 0..3000 {
            let address = 0x0a00_0000 | random.bits() as u32 & 0x003f_ffff;
            let len = [8, 12, 15, 16, 17, 20, 24, 24, 24, 28, 32, 32][random.index(12)];
            let route = Prefix::truncated(address, if random.below(400) == 0 { 0 } else { len });
            let before = rib.remove(route);
            if random.below(3) > 0 {
                rib.insert(route, random.below(*hops)).expect("there is room");
            }
            if let Err(error) = writer.update(&rib, route) {
                assert!(matches!(error, BuildError::NeedsMemory { .. }), "{error}");
                refused += 1;
                rib.remove(route);
                before.into_iter().for_each(|hop| _ = rib.insert(route, hop).expect("there is room"));
            }
            if step % 100 == 0 {
                assert_accounts(&writer);
            }
        }
        assert_eq!(refused > 0, *bytes < 1 << 20, "{refused} changes refused");
        // Long ones first: what they leave is there for what short ones need.
        for len in (0..=32).rev() {
            for (route, _) in rib.clone().walk(Prefix::ALL).filter(|(route, _)| route.len() == len) {
                rib.remove(route);
                writer.update(&rib, route).expect("a removal takes less");
            }
        }
        assert_accounts(&writer);
        assert_eq!(writer.next_hops(), 1);
    }
}
