//! Bloom filters.

use std::ffi::c_void;

use flowlane::BloomFilter;

use crate::error::{Done, Refused, array, array_mut, free, give, guarded, handle, times};

/// Keys that are looked up at a time.
const CHUNK: usize = 256;

/// A set that forgets what it holds: no key that was inserted is denied, others are confirmed at a rate. Any number of threads may
/// insert and ask at a time.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_bloom(BloomFilter);

/// An empty filter that, holding `items` keys, confirms a key that it does not hold with the probability `rate` at most (above 0, below
/// 1).
///
/// FL_INPUT: the rate; FL_LIMIT: it would be larger than 4 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_new(items: u64, rate: f64, bloom: *mut *mut fl_bloom) -> i32 {
    guarded(|| {
        let made = BloomFilter::new(items, rate)?;
        // SAFETY: the caller's.
        unsafe { give(fl_bloom(made), bloom) }
    })
}

/// Frees a filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_free(bloom: *mut fl_bloom) {
    // SAFETY: the caller's.
    unsafe { free(bloom) }
}

/// Bytes of the filter; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_bytes(bloom: *const fl_bloom) -> usize {
    // SAFETY: the caller's.
    unsafe { bloom.as_ref() }.map_or(0, |bloom| bloom.0.table_bytes())
}

/// Keys of the caller's, one behind the other.
///
/// # Safety
/// `keys` is NULL, or there are so many.
unsafe fn rows<'a>(keys: *const c_void, key_bytes: usize, count: usize) -> Done<&'a [u8]> {
    if key_bytes == 0 {
        return Err(Refused::input("keys of 0 bytes; they have at least 1"));
    }
    // SAFETY: the caller's.
    unsafe { array(keys.cast(), times(count, key_bytes, "keys")?, "keys") }
}

/// Inserts `count` keys of `key_bytes` each, one behind the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_insert(
    bloom: *mut fl_bloom,
    keys: *const c_void,
    key_bytes: usize,
    count: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (bloom, keys) = unsafe { (handle(bloom, "bloom")?, rows(keys, key_bytes, count)?) };
        bloom.0.insert_rows(keys, key_bytes);
        Ok(())
    })
}

/// Inserts numbers. The same key as a number and as bytes is two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_insert_u64(bloom: *mut fl_bloom, keys: *const u64, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (bloom, keys) = unsafe { (handle(bloom, "bloom")?, array(keys, count, "keys")?) };
        bloom.0.insert_u64(keys);
        Ok(())
    })
}

/// Writes what `ask` says of the keys in parts of [`CHUNK`]. What the caller's memory has before may be no `bool`.
pub fn write_found(found: &mut [u8], mut ask: impl FnMut(usize, &mut [bool])) {
    let mut own = [false; CHUNK];
    for (part, found) in found.chunks_mut(CHUNK).enumerate() {
        let own = &mut own[..found.len()];
        ask(part * CHUNK, own);
        found.iter_mut().zip(own).for_each(|(found, own)| *found = u8::from(*own));
    }
}

/// For each of `count` keys of `key_bytes` whether it may be in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_contains(
    bloom: *const fl_bloom,
    keys: *const c_void,
    key_bytes: usize,
    count: usize,
    found: *mut bool,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (bloom, keys, found) = unsafe {
            let keys = rows(keys, key_bytes, count)?;
            (handle(bloom, "bloom")?, keys, array_mut(found.cast::<u8>(), count, "found")?)
        };
        write_found(found, |first, found| {
            let keys = &keys[first * key_bytes..(first + found.len()) * key_bytes];
            bloom.0.contains_rows(keys, key_bytes, found);
        });
        Ok(())
    })
}

/// For each number whether it may be in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_contains_u64(
    bloom: *const fl_bloom,
    keys: *const u64,
    count: usize,
    found: *mut bool,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (bloom, keys, found) = unsafe {
            let keys = array(keys, count, "keys")?;
            (handle(bloom, "bloom")?, keys, array_mut(found.cast::<u8>(), count, "found")?)
        };
        write_found(found, |first, found| bloom.0.contains_u64(&keys[first..first + found.len()], found));
        Ok(())
    })
}
