//! Exact match.

use std::ffi::c_void;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use flowlane::CuckooMap;

use crate::bloom::write_found;
use crate::error::{Done, array, array_mut, free, give, guarded, handle, times};

/// Numbers of 64 bits by keys of one length. Any number of threads may look up, and change it: a change waits until calls that are
/// under way have come back, and the next wait for it.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_map {
    map: RwLock<CuckooMap>,
    key_bytes: usize,
}

impl fl_map {
    // What panicked is a fault that was told; the map goes on as it is.
    fn read(&self) -> RwLockReadGuard<'_, CuckooMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CuckooMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys of the caller's, one behind the other.
    ///
    /// # Safety
    /// `keys` is NULL, or there are so many.
    unsafe fn rows<'a>(&self, keys: *const c_void, count: usize) -> Done<&'a [u8]> {
        // SAFETY: the caller's.
        unsafe { array(keys.cast(), times(count, self.key_bytes, "keys")?, "keys") }
    }
}

/// An empty map for up to `keys_max` keys (2^30 at most) of `key_bytes` each, 1 to 64. Memory is reserved for all, and taken as it
/// grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_new(key_bytes: usize, keys_max: usize, map: *mut *mut fl_map) -> i32 {
    guarded(|| {
        let made = RwLock::new(CuckooMap::new(key_bytes, keys_max)?);
        // SAFETY: the caller's.
        unsafe { give(fl_map { map: made, key_bytes }, map) }
    })
}

/// Frees a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_free(map: *mut fl_map) {
    // SAFETY: the caller's.
    unsafe { free(map) }
}

/// Number of keys; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_len(map: *const fl_map) -> usize {
    // SAFETY: the caller's.
    unsafe { map.as_ref() }.map_or(0, |map| map.read().len())
}

/// Bytes of the map, as reserved; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_bytes(map: *const fl_map) -> usize {
    // SAFETY: the caller's.
    unsafe { map.as_ref() }.map_or(0, |map| map.read().table_bytes())
}

/// Gives `count` keys, one behind the other, these values, in their order; keys that are there get the new ones. `inserted` (may be
/// NULL) gets how many that were: all, or, with FL_LIMIT, those before the first that found no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_insert(
    map: *mut fl_map,
    keys: *const c_void,
    values: *const u64,
    count: usize,
    inserted: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (map, keys, values) = unsafe {
            let map = handle(map, "map")?;
            (map, map.rows(keys, count)?, array(values, count, "values")?)
        };
        let result = map.write().insert_rows(keys, values);
        if !inserted.is_null() {
            let done = result.as_ref().err().map_or(count, |full| full.row().unwrap_or(0));
            // SAFETY: the caller's.
            unsafe { inserted.write(done) };
        }
        Ok(result?)
    })
}

/// The value of each key, and whether it is there; values of those that are not stay as they are. `found` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_lookup(
    map: *const fl_map,
    keys: *const c_void,
    count: usize,
    values: *mut u64,
    found: *mut bool,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (map, keys, values) = unsafe {
            let map = handle(map, "map")?;
            (map, map.rows(keys, count)?, array_mut(values, count, "values")?)
        };
        let table = map.read();
        let mut look_up = |first: usize, found: &mut [bool]| {
            let rows = first..first + found.len();
            let keys = &keys[rows.start * map.key_bytes..rows.end * map.key_bytes];
            table.lookup_rows(keys, &mut values[rows], found);
        };
        if found.is_null() {
            let mut own = [false; 256];
            (0..count)
                .step_by(own.len())
                .for_each(|first| look_up(first, &mut own[..(count - first).min(256)]));
        } else {
            // SAFETY: the caller's.
            write_found(unsafe { array_mut(found.cast::<u8>(), count, "found")? }, look_up);
        }
        Ok(())
    })
}

/// Removes keys; for each whether it was there. `found` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_remove(
    map: *mut fl_map,
    keys: *const c_void,
    count: usize,
    found: *mut bool,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (map, keys) = unsafe {
            let map = handle(map, "map")?;
            (map, map.rows(keys, count)?)
        };
        let mut table = map.write();
        for (row, key) in keys.chunks_exact(map.key_bytes).enumerate() {
            let was_there = table.remove(key).is_some();
            if !found.is_null() {
                // SAFETY: the caller's: there is room for as many as keys.
                unsafe { found.add(row).write(was_there) };
            }
        }
        Ok(())
    })
}
