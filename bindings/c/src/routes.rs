//! Routes of IPv4 and IPv6.

use std::ffi::c_char;

use flowlane::route::engine::{AnyFib, AnyReader, Family};
use flowlane::route::read::{AnyPrefix, RouteList, RouteOptions, read};
use flowlane::route::{Fib, FibConfig, FibReader, HopSize, Prefix, Rib, Routes};

use crate::acl::{FL_NONE, file_text};
use crate::error::{Done, Refused, array, array_mut, free, give, guarded, handle, handle_mut, text};

/// Addresses looked up at a time.
const CHUNK: usize = 256;

/// Routes, which one thread changes: readers see each change as it is made.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes {
    v4: Routes<u32, AnyFib<u32>>,
    v6: Routes<u128, AnyFib<u128>>,
}

/// Looks addresses up, for one thread.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes_reader {
    v4: AnyReader<u32>,
    v6: AnyReader<u128>,
}

fn table<A: Family>(list: &[(Prefix<A>, u64)]) -> Done<Routes<A, AnyFib<A>>> {
    let mut rib = Rib::new(2 * list.len() + (1 << 20));
    for (prefix, next_hop) in list {
        if *next_hop >= u64::from(FL_NONE) {
            return Err(Refused::input(format!("{prefix}: next hop {next_hop}; they are below {FL_NONE}")));
        }
        rib.insert(*prefix, *next_hop).map_err(Refused::limit)?;
    }
    let config = FibConfig::new(HopSize::B4).with_default_next_hop(FL_NONE.into());
    Routes::with_rib(rib, &config).map_err(Refused::limit)
}

fn built(list: &RouteList) -> Done<fl_routes> {
    Ok(fl_routes { v4: table(&list.v4)?, v6: table(&list.v6)? })
}

/// The routes of a file: prefix and next hop, a line each, or the output of `ip route`; packed by gzip or zstd or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_file(path: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let path = unsafe { text(path, "path")? };
        let list = read(&file_text(path)?, path, None, &RouteOptions::default()).map_err(Refused::input)?;
        // SAFETY: the caller's.
        unsafe { give(built(&list)?, routes) }
    })
}

/// The same of a text, which may be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_text(lines: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let lines = unsafe { text(lines, "lines")? };
        let list = read(lines, "routes", None, &RouteOptions::default()).map_err(Refused::input)?;
        // SAFETY: the caller's.
        unsafe { give(built(&list)?, routes) }
    })
}

/// Frees routes. Readers go on with them as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_free(routes: *mut fl_routes) {
    // SAFETY: the caller's.
    unsafe { free(routes) }
}

/// Number of routes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_len(routes: *const fl_routes) -> usize {
    // SAFETY: the caller's.
    unsafe { routes.as_ref() }.map_or(0, |routes| routes.v4.len() + routes.v6.len())
}

/// A prefix of the caller's.
///
/// # Safety
/// `prefix` is NULL or ends with a 0.
unsafe fn prefix(prefix: *const c_char) -> Done<AnyPrefix> {
    // SAFETY: the caller's.
    let prefix = unsafe { text(prefix, "prefix")? };
    prefix.parse().map_err(|e| Refused::input(format!("`{prefix}`: {e}")))
}

/// Adds a route ("10.0.0.0/8", "2001:db8::/32"), or replaces its next hop, a number below FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_insert(routes: *mut fl_routes, to: *const c_char, next_hop: u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (routes, to) = unsafe { (handle_mut(routes, "routes")?, prefix(to)?) };
        if next_hop == FL_NONE {
            return Err(Refused::input("FL_NONE stands for no route; next hops are below it"));
        }
        let done = match to {
            AnyPrefix::V4(to) => routes.v4.replace(to, next_hop.into()),
            AnyPrefix::V6(to) => routes.v6.replace(to, next_hop.into()),
        };
        done.map(drop).map_err(Refused::limit)
    })
}

/// Removes the route of exactly this prefix; FL_INPUT where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_remove(routes: *mut fl_routes, to: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (routes, to) = unsafe { (handle_mut(routes, "routes")?, prefix(to)?) };
        let done = match to {
            AnyPrefix::V4(to) => routes.v4.delete(to),
            AnyPrefix::V6(to) => routes.v6.delete(to),
        };
        done.map(drop).map_err(Refused::input)
    })
}

/// A reader, for one thread: routes may be changed, and even freed, while it looks up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_reader_new(
    routes: *const fl_routes,
    reader: *mut *mut fl_routes_reader,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let routes = unsafe { handle(routes, "routes")? };
        let made = fl_routes_reader { v4: routes.v4.fib().reader(), v6: routes.v6.fib().reader() };
        // SAFETY: the caller's.
        unsafe { give(made, reader) }
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_reader_free(reader: *mut fl_routes_reader) {
    // SAFETY: the caller's.
    unsafe { free(reader) }
}

/// The next hop of each address of IPv4, in this machine's order; FL_NONE where there is no route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_lookup_ipv4(
    reader: *mut fl_routes_reader,
    addresses: *const u32,
    count: usize,
    next_hops: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, addresses, found) = unsafe {
            let addresses = array(addresses, count, "addresses")?;
            (handle_mut(reader, "reader")?, addresses, array_mut(next_hops, count, "next_hops")?)
        };
        let mut wide = [0; CHUNK];
        for (addresses, found) in addresses.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
            reader.v4.lookup_batch(addresses, &mut wide[..addresses.len()]);
            found.iter_mut().zip(wide).for_each(|(found, hop)| *found = hop as u32);
        }
        Ok(())
    })
}

/// The next hop of each address of IPv6, 16 bytes in network order; FL_NONE where there is no route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_lookup_ipv6(
    reader: *mut fl_routes_reader,
    addresses: *const [u8; 16],
    count: usize,
    next_hops: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, addresses, found) = unsafe {
            let addresses = array(addresses, count, "addresses")?;
            (handle_mut(reader, "reader")?, addresses, array_mut(next_hops, count, "next_hops")?)
        };
        let (mut own, mut wide) = ([0; CHUNK], [0; CHUNK]);
        for (addresses, found) in addresses.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
            own.iter_mut().zip(addresses).for_each(|(own, address)| *own = u128::from_be_bytes(*address));
            reader.v6.lookup_batch(&own[..addresses.len()], &mut wide[..addresses.len()]);
            found.iter_mut().zip(wide).for_each(|(found, hop)| *found = hop as u32);
        }
        Ok(())
    })
}
