//! IPv4 and IPv6 routes.

use std::ffi::c_char;

use flowlane::{IpPrefix, RouteReader, RouteTable, RouteTableBuilder, read_routes};
use flowlane_capture::read_text;

use crate::acl::FL_NONE;
use crate::error::{
    CallError, CallResult, array, array_mut, free, give_handle, guarded, handle, handle_mut, text,
};

/// A routing table. One thread at a time may change it; readers see each change immediately.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes(RouteTable);

/// A reader, which one thread uses for lookups.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_routes_reader(RouteReader);

fn build(text: &str, name: &str) -> CallResult<fl_routes> {
    let routes = read_routes(text, name)?;
    Ok(fl_routes(RouteTableBuilder::new().build(routes.iter())?))
}

/// Creates a routing table from a file: a prefix and next hop per line, or the output of `ip route`, optionally compressed
/// by gzip or zstd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_file(path: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let path = unsafe { text(path, "path")? };
        let built = build(&read_text(path.as_ref())?, path)?;
        // SAFETY: the caller's.
        unsafe { give_handle(built, routes) }
    })
}

/// Creates a routing table from a text, which may be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_from_text(lines: *const c_char, routes: *mut *mut fl_routes) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let lines = unsafe { text(lines, "lines")? };
        let built = build(lines, "routes")?;
        // SAFETY: the caller's.
        unsafe { give_handle(built, routes) }
    })
}

/// Frees a routing table. Readers keep its routes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_free(routes: *mut fl_routes) {
    // SAFETY: the caller's.
    unsafe { free(routes) }
}

/// Returns the number of routes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_len(routes: *const fl_routes) -> usize {
    // SAFETY: the caller's.
    unsafe { routes.as_ref() }.map_or(0, |routes| routes.0.len())
}

/// Parses the caller's prefix.
///
/// # Safety
/// `prefix` is NULL or ends with NUL.
unsafe fn prefix(prefix: *const c_char) -> CallResult<IpPrefix> {
    // SAFETY: the caller's.
    Ok(unsafe { text(prefix, "prefix")? }.parse()?)
}

/// Adds a route ("10.0.0.0/8", "2001:db8::/32") or replaces its next hop, which must be less than FL_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_insert(routes: *mut fl_routes, to: *const c_char, next_hop: u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (routes, to) = unsafe { (handle_mut(routes, "routes")?, prefix(to)?) };
        if next_hop == FL_NONE {
            return Err(CallError::input("the next hop FL_NONE is reserved; use a smaller number"));
        }
        routes.0.insert(to, next_hop)?;
        Ok(())
    })
}

/// Removes the route of exactly this prefix; FL_INPUT if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_remove(routes: *mut fl_routes, to: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (routes, to) = unsafe { (handle_mut(routes, "routes")?, prefix(to)?) };
        match routes.0.remove(to)? {
            Some(_) => Ok(()),
            None => Err(CallError::input(format!(
                "there is no route {to}; give_handle exactly the prefix of a route"
            ))),
        }
    })
}

/// Creates a reader for one thread. The routes may be changed, and even freed, during its lookups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_reader_new(
    routes: *const fl_routes,
    reader: *mut *mut fl_routes_reader,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let routes = unsafe { handle(routes, "routes")? };
        // SAFETY: the caller's.
        unsafe { give_handle(fl_routes_reader(routes.0.reader()), reader) }
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_routes_reader_free(reader: *mut fl_routes_reader) {
    // SAFETY: the caller's.
    unsafe { free(reader) }
}

/// Looks up the next hops of IPv4 addresses in host byte order; FL_NONE without a route.
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

/// Looks up the next hops of IPv6 addresses of 16 bytes in network byte order; FL_NONE without a route.
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
