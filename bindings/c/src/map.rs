//! Exact-match tables.

use std::ffi::c_void;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use flowlane::CuckooMap;

use crate::bloom::write_found;
use crate::error::{CallResult, array, array_mut, free, give_handle, guarded, handle, times};

/// An exact-match table from keys of one length to 64-bit values. Any number of threads may look up and change it; a change
/// waits for running calls, and later calls wait for it.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_map {
    map: RwLock<CuckooMap>,
    key_bytes: usize,
}

impl fl_map {
    // After a panic, which was reported as a bug, the map remains usable.
    fn read(&self) -> RwLockReadGuard<'_, CuckooMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CuckooMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows the caller's contiguous keys.
    ///
    /// # Safety
    /// `keys` is NULL, or points to `count` keys.
    unsafe fn rows<'a>(&self, keys: *const c_void, count: usize) -> CallResult<&'a [u8]> {
        // SAFETY: the caller's.
        unsafe { array(keys.cast(), times(count, self.key_bytes, "keys")?, "keys") }
    }
}

/// Creates an empty map for up to `keys_max` keys (at most 2^30) of `key_bytes` bytes each, 1 to 64. Address space is
/// reserved for all keys; memory is used as the map grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_new(key_bytes: usize, keys_max: usize, map: *mut *mut fl_map) -> i32 {
    guarded(|| {
        let built = RwLock::new(CuckooMap::new(key_bytes, keys_max)?);
        // SAFETY: the caller's.
        unsafe { give_handle(fl_map { map: built, key_bytes }, map) }
    })
}

/// Frees a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_free(map: *mut fl_map) {
    // SAFETY: the caller's.
    unsafe { free(map) }
}

/// Returns the number of keys; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_len(map: *const fl_map) -> usize {
    // SAFETY: the caller's.
    unsafe { map.as_ref() }.map_or(0, |map| map.read().len())
}

/// Returns the reserved size in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_map_bytes(map: *const fl_map) -> usize {
    // SAFETY: the caller's.
    unsafe { map.as_ref() }.map_or(0, |map| map.read().table_bytes())
}

/// Inserts `count` contiguous keys with their values, in order; existing keys get the new values. `inserted` (may be NULL)
/// receives the number of keys inserted: all, or, with FL_LIMIT, those before the first one without room.
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

/// Looks up the value and presence of each key; values of absent keys are left unchanged. `found` may be NULL.
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

/// Removes keys; `found` (may be NULL) receives whether each key was present.
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
                // SAFETY: the caller's: `found` has `count` elements.
                unsafe { found.add(row).write(was_there) };
            }
        }
        Ok(())
    })
}
