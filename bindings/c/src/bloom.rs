//! Bloom filters.

use std::ffi::c_void;

use flowlane::BloomFilter;

use crate::error::{CallError, CallResult, array, array_mut, free, give_handle, guarded, handle, times};

/// Number of keys looked up at a time.
const CHUNK: usize = 256;

/// A Bloom filter: a set without false negatives, and with false positives at a given rate. Any number of threads may
/// insert and look up concurrently.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_bloom(BloomFilter);

/// Creates an empty filter that, holding `items` keys, returns a false positive with a probability of at most `rate`
/// (between 0 and 1).
///
/// Errors: FL_INPUT for an invalid rate; FL_LIMIT for a filter larger than 4 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_new(items: u64, rate: f64, bloom: *mut *mut fl_bloom) -> i32 {
    guarded(|| {
        let built = BloomFilter::new(items, rate)?;
        // SAFETY: the caller's.
        unsafe { give_handle(fl_bloom(built), bloom) }
    })
}

/// Frees a filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_free(bloom: *mut fl_bloom) {
    // SAFETY: the caller's.
    unsafe { free(bloom) }
}

/// Returns the size of the filter in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_bytes(bloom: *const fl_bloom) -> usize {
    // SAFETY: the caller's.
    unsafe { bloom.as_ref() }.map_or(0, |bloom| bloom.0.table_bytes())
}

/// Borrows the caller's contiguous keys.
///
/// # Safety
/// `keys` is NULL, or points to `count` keys.
unsafe fn rows<'a>(keys: *const c_void, key_bytes: usize, count: usize) -> CallResult<&'a [u8]> {
    if key_bytes == 0 {
        return Err(CallError::input("keys of 0 bytes; expected at least 1"));
    }
    // SAFETY: the caller's.
    unsafe { array(keys.cast(), times(count, key_bytes, "keys")?, "keys") }
}

/// Inserts `count` contiguous keys of `key_bytes` bytes each.
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

/// Inserts integer keys. An integer and its bytes are different keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bloom_insert_u64(bloom: *mut fl_bloom, keys: *const u64, count: usize) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (bloom, keys) = unsafe { (handle(bloom, "bloom")?, array(keys, count, "keys")?) };
        bloom.0.insert_u64(keys);
        Ok(())
    })
}

/// Writes the results of `ask` in parts of [`CHUNK`]. The caller's memory may hold invalid `bool` values before.
pub fn write_found(found: &mut [u8], mut ask: impl FnMut(usize, &mut [bool])) {
    let mut own = [false; CHUNK];
    for (part, found) in found.chunks_mut(CHUNK).enumerate() {
        let own = &mut own[..found.len()];
        ask(part * CHUNK, own);
        found.iter_mut().zip(own).for_each(|(found, own)| *found = u8::from(*own));
    }
}

/// Tests `count` keys of `key_bytes` bytes each.
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

/// Tests integer keys.
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
