//! Every order in which a reader and the writer can take turns, and every value that a relaxed load may
//! return, on tables of two buckets (loom, up to three preemptions):
//! `RUSTFLAGS="--cfg loom" cargo test -p flowlane --release cuckoo::loom`.

use ::loom::thread;

use super::geometry::alternate_hash;
use super::*;
use crate::isa::Variant;

type Key = [u32; 1];

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn table(entries_max: usize) -> CuckooWriter<1> {
    let config = CuckooConfig::new(entries_max, 1).growing_from(1);
    CuckooWriter::new(&config.with_variant(Variant::Scalar).expect("is always available"))
}

/// Moves the key, the only one, from the bucket in which it is to the other.
fn displace(writer: &mut CuckooWriter<1>, hash: u32) {
    let geometry = writer.geometry();
    let (primary, alternate) = (geometry.bucket(hash), geometry.bucket(alternate_hash(hash)));
    let taken = |at: u32| (0..SLOTS).find(|slot| writer.buckets[at as usize].signature(*slot) != 0);
    let moved = match taken(primary) {
        Some(slot) => writer.move_slot(primary, slot, alternate),
        None => writer.move_slot(alternate, taken(alternate).expect("is there"), primary),
    };
    assert!(moved);
}

fn find_one(reader: &CuckooReader<1>, key: Key, hash: u32, batch: bool) -> Option<u64> {
    if !batch {
        return reader.lookup_with_hash(&key, hash);
    }
    let mut values = [0];
    let hits = reader.lookup_batch_with_hashes(&[key], &[hash], &mut values);
    (hits == 1).then_some(values[0])
}

fn a_moving_key_is_found(batch: bool, displaced_at_first: bool) {
    check(move || {
        let mut writer = table(1);
        let hash = writer.hash(&[5]);
        assert_eq!(writer.insert(&[5], 50), Ok(None));
        if displaced_at_first {
            displace(&mut writer, hash);
        }
        let reader = writer.reader();
        let reading = thread::spawn(move || find_one(&reader, [5], hash, batch));
        displace(&mut writer, hash);
        assert_eq!(reading.join().expect("does not panic"), Some(50));
    });
}

#[test]
fn a_key_that_moves_to_its_alternate_bucket_is_found() {
    a_moving_key_is_found(false, false);
    a_moving_key_is_found(true, false);
}

#[test]
fn a_key_that_moves_to_its_primary_bucket_is_found() {
    a_moving_key_is_found(false, true);
    a_moving_key_is_found(true, true);
}

#[test]
fn a_reused_entry_gives_no_other_keys_value() {
    for batch in [false, true] {
        check(move || {
            let mut writer = table(1);
            assert_eq!(writer.insert_with_hash(&[5], 9, 50), Ok(None));
            let reader = writer.reader();
            let reading = thread::spawn(move || find_one(&reader, [5], 9, batch));
            assert_eq!(writer.remove_with_hash(&[5], 9), Some(50));
            assert_eq!(writer.insert_with_hash(&[6], 9, 60), Ok(None));
            let found = reading.join().expect("does not panic");
            assert!(found.is_none() || found == Some(50), "{found:?}");
        });
    }
}

#[test]
fn a_split_hides_no_key() {
    for batch in [false, true] {
        for displaced in [false, true] {
            check(move || {
                // Room for 16 slots at first, 32 in the end. The hash leaves bucket 0 for bucket 2.
                let mut writer = table(20);
                let hash = (0..).find(|hash| goes(*hash, displaced)).expect("some do");
                assert_eq!(writer.insert_with_hash(&[5], hash, 50), Ok(None));
                if displaced {
                    displace(&mut writer, hash);
                }
                let reader = writer.reader();
                let reading = thread::spawn(move || find_one(&reader, [5], hash, batch));
                assert!(writer.split_next());
                assert_eq!(reading.join().expect("does not panic"), Some(50));
            });
        }
    }
}

/// Whether the bucket that a key of this hash is in is split from 0 to 2.
fn goes(hash: u32, displaced: bool) -> bool {
    let hash = if displaced { alternate_hash(hash) } else { hash };
    hash & 3 == 2
}
