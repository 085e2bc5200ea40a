//! Routes of IPv4 and IPv6.

use std::ffi::c_char;

use flowlane::{IpPrefix, RouteConfig, RouteReader, RouteTable, read_routes};

use crate::acl::{FL_NONE, file_text};
use crate::error::{Done, Refused, array, array_mut, free, give, guarded, handle, handle_mut, text};

/// Routes, which one thread changes: readers see each change as it is made.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes(RouteTable);

/// Looks addresses up, for one thread.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes_reader(RouteReader);

fn built(text: &str, name: &str) -> Done<fl_routes> {
    let routes = read_routes(text, name)?;
    Ok(fl_routes(RouteConfig::new().build(routes.iter())?))
}

/// The routes of a file: prefix and next hop, a line each, or the output of `ip route`; packed by gzip or zstd or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_file(path: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let path = unsafe { text(path, "path")? };
        let made = built(&file_text(path)?, path)?;
        // SAFETY: the caller's.
        unsafe { give(made, routes) }
    })
}

/// The same of a text, which may be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_text(lines: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let lines = unsafe { text(lines, "lines")? };
        let made = built(lines, "routes")?;
        // SAFETY: the caller's.
        unsafe { give(made, routes) }
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
    unsafe { routes.as_ref() }.map_or(0, |routes| routes.0.len())
}

/// A prefix of the caller's.
///
/// # Safety
/// `prefix` is NULL or ends with a 0.
unsafe fn prefix(prefix: *const c_char) -> Done<IpPrefix> {
    // SAFETY: the caller's.
    Ok(unsafe { text(prefix, "prefix")? }.parse()?)
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
        routes.0.insert(to, next_hop)?;
        Ok(())
    })
}

/// Removes the route of exactly this prefix; FL_INPUT where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_remove(routes: *mut fl_routes, to: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (routes, to) = unsafe { (handle_mut(routes, "routes")?, prefix(to)?) };
        match routes.0.remove(to)? {
            Some(_) => Ok(()),
            None => Err(Refused::input(format!(
                "there is no such route as {to}; only a route's own prefix names it, not what that covers"
            ))),
        }
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
        // SAFETY: the caller's.
        unsafe { give(fl_routes_reader(routes.0.reader()), reader) }
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
        reader.0.lookup_v4(addresses, found);
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
        reader.0.lookup_v6(addresses, found);
        Ok(())
    })
}
