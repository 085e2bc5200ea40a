//! Every order in which a reader and the writer can take turns, and every value that a relaxed load may
//! return, on tables of two buckets (loom, up to three preemptions):
//! `RUSTFLAGS="--cfg loom" cargo test -p flowlane --release cuckoo::loom`.

use ::loom::thread;

use std::sync::atomic::Ordering::Release;

use super::geometry::alternate_hash;
use super::*;
use crate::isa::Variant;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn table<const W: usize>(entries_max: usize) -> CuckooWriter<W> {
    let config = CuckooConfig::new(entries_max, 1).growing_from(1);
    CuckooWriter::new(&config.with_variant(Variant::Scalar).expect("is always available"))
}

/// Moves the key, the only one, from the bucket in which it is to the other.
fn displace<const W: usize>(writer: &mut CuckooWriter<W>, hash: u32) {
    let geometry = writer.geometry();
    let (primary, alternate) = (geometry.bucket(hash), geometry.bucket(alternate_hash(hash)));
    let taken = |at: u32| {
        let taken = writer.buckets[at as usize].taken();
        (taken != 0).then(|| taken.trailing_zeros() as usize)
    };
    let moved = match taken(primary) {
        Some(slot) => writer.move_slot(primary, slot, alternate),
        None => writer.move_slot(alternate, taken(alternate).expect("is there"), primary),
    };
    assert!(moved);
}

fn find_one<const W: usize>(reader: &CuckooReader<W>, key: [u32; W], hash: u32, batch: bool) -> Option<u32> {
    if !batch {
        return reader.lookup_with_hash(&key, hash);
    }
    let mut values = [0];
    let hits = reader.lookup_batch_with_hashes(&[key], &[hash], &mut values);
    (hits == 1).then_some(values[0])
}

fn a_moving_key_is_found<const W: usize>(batch: bool, displaced_at_first: bool) {
    check(move || {
        let mut writer = table::<W>(1);
        let hash = writer.hash(&[5; W]);
        assert_eq!(writer.insert(&[5; W], 50), Ok(None));
        if displaced_at_first {
            displace(&mut writer, hash);
        }
        let reader = writer.reader();
        let reading = thread::spawn(move || find_one(&reader, [5; W], hash, batch));
        displace(&mut writer, hash);
        assert_eq!(reading.join().expect("does not panic"), Some(50));
    });
}

#[test]
fn a_key_that_moves_to_its_alternate_bucket_is_found() {
    for batch in [false, true] {
        a_moving_key_is_found::<1>(batch, false);
    }
}

#[test]
fn a_key_that_moves_to_its_primary_bucket_is_found() {
    for batch in [false, true] {
        a_moving_key_is_found::<1>(batch, true);
    }
}

#[test]
fn a_reused_entry_gives_no_other_keys_value() {
    for batch in [false, true] {
        a_reused_place_gives_no_other_keys_value::<1>(batch);
    }
}

fn a_reused_place_gives_no_other_keys_value<const W: usize>(batch: bool) {
    check(move || {
        let mut writer = table::<W>(1);
        assert_eq!(writer.insert_with_hash(&[5; W], 9, 50), Ok(None));
        let reader = writer.reader();
        let reading = thread::spawn(move || find_one(&reader, [5; W], 9, batch));
        assert_eq!(writer.remove_with_hash(&[5; W], 9), Some(50));
        assert_eq!(writer.insert_with_hash(&[6; W], 9, 60), Ok(None));
        let found = reading.join().expect("does not panic");
        assert!(found.is_none() || found == Some(50), "{found:?}");
    });
}

/// Of two writes of a key's words no reader sees the half: the key is never there with mixed words.
#[test]
fn a_key_half_written_is_not_found() {
    for batch in [false, true] {
        check(move || {
            let mut writer = table::<3>(1);
            assert_eq!(writer.insert_with_hash(&[5, 5, 5], 9, 50), Ok(None));
            let reader = writer.reader();
            let reading = thread::spawn(move || find_one(&reader, [6, 6, 5], 9, batch));
            assert_eq!(writer.remove_with_hash(&[5, 5, 5], 9), Some(50));
            assert_eq!(writer.insert_with_hash(&[6, 6, 6], 9, 60), Ok(None));
            assert_eq!(reading.join().expect("does not panic"), None);
        });
    }
}

#[test]
fn a_split_hides_no_key() {
    for batch in [false, true] {
        for displaced in [false, true] {
            a_split_hides_none::<1>(batch, displaced);
        }
    }
}

fn a_split_hides_none<const W: usize>(batch: bool, displaced: bool) {
    check(move || {
        // Two buckets at first, four in the end. The hash leaves bucket 0 for bucket 2.
        let mut writer = table::<W>(2 * SLOTS);
        let hash = (0..).find(|hash| goes(*hash, displaced)).expect("some do");
        assert_eq!(writer.insert_with_hash(&[5; W], hash, 50), Ok(None));
        if displaced {
            displace(&mut writer, hash);
        }
        let reader = writer.reader();
        let reading = thread::spawn(move || find_one(&reader, [5; W], hash, batch));
        assert!(writer.split_next());
        assert_eq!(reading.join().expect("does not panic"), Some(50));
    });
}

/// Returns whether the bucket that a key of this hash is in is split from 0 to 2.
fn goes(hash: u32, displaced: bool) -> bool {
    let hash = if displaced { alternate_hash(hash) } else { hash };
    hash & 3 == 2
}

/// The place of a removed key gets another key's value, and is then the first one's again: a reader sees a value that the key has
/// had. The table is one word here, whose writes release and whose reads acquire, as those of the table do.
#[test]
fn a_value_beside_the_table_is_that_of_its_key() {
    use std::sync::Arc;

    use ::loom::sync::atomic::AtomicU32;

    const GONE: u32 = u32::MAX;
    check(|| {
        let (beside, place) = (Arc::new(beside::Beside::default()), Arc::new(AtomicU32::new(0)));
        beside.set(0, 100);
        let (values, table) = (Arc::clone(&beside), Arc::clone(&place));
        let reading = thread::spawn(move || {
            let own = table.load(Acquire);
            if own == GONE {
                return None;
            }
            let count = values.count(own);
            if table.load(Acquire) != own { None } else { values.read(own, count) }
        });
        place.store(GONE, Release);
        beside.set(0, 200); // of another key
        beside.set(0, 300);
        place.store(0, Release);
        let found = reading.join().expect("does not panic");
        assert!(matches!(found, None | Some(100 | 300)), "{found:?}");
    });
}
