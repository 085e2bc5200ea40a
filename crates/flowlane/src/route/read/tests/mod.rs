use std::io::Read;

use super::*;

mod foreign;
mod ip_route;
mod routers;

fn read_text(text: &str) -> Result<RouteList, String> {
    read(text, "routes", None, &RouteOptions::default()).map_err(|e| e.to_string())
}

/// RouteList as text, IPv4 first.
fn shown(routes: &RouteList) -> Vec<String> {
    let line = |prefix: String, number: u64| match routes.next_hops.get(number) {
        Some(next_hop) => format!("{prefix} {next_hop}"),
        None => format!("{prefix} {number}"),
    };
    let v4 = routes.v4.iter().map(|(prefix, n)| line(prefix.to_string(), *n));
    v4.chain(routes.v6.iter().map(|(prefix, n)| line(prefix.to_string(), *n))).collect()
}

#[test]
fn prefixes_with_addresses_numbers_or_nothing_are_read() {
    let text =
        "# table\n10.0.0.0/8 192.0.2.1\n2001:db8::/32 2001:db8::1 # neighbour\n\n192.0.2.7 192.0.2.1\r\n";
    let routes = read_text(text).unwrap();
    assert_eq!(
        shown(&routes),
        ["10.0.0.0/8 192.0.2.1", "192.0.2.7/32 192.0.2.1", "2001:db8::/32 2001:db8::1"]
    );
    assert_eq!((routes.v4[0].1, routes.v6[0].1, routes.v4[1].1), (1, 2, 1));
    let numbers = read_text("10.0.0.0/8 7\n::/0 18446744073709551615\n").unwrap();
    assert_eq!(shown(&numbers), ["10.0.0.0/8 7", "::/0 18446744073709551615"]);
    assert_eq!(numbers.next_hop_max(), u64::MAX);
    let bare = read_text("10.0.0.0/8\n11.0.0.0/8\n").unwrap();
    assert_eq!(shown(&bare), ["10.0.0.0/8 1", "11.0.0.0/8 2"]);
    assert!(bare.next_hops.is_empty());
}

#[test]
fn of_several_lines_for_a_prefix_the_last_counts() {
    let routes = read_text("10.0.0.0/8 1\n10.1.0.0/16 2\n10.200.3.4/8 3\n").unwrap();
    assert_eq!(shown(&routes), ["10.1.0.0/16 2", "10.0.0.0/8 3"]);
}

#[test]
fn faults_in_lists_are_located_and_explained() {
    let cases = [
        ("10.0.0.0/33 1", "routes:1:10: `33`", "0 to 32"),
        ("10.0.0.0/8 1\n10.0.0/8 1", "routes:2:1: `10.0.0/8`", "192.0.2.0/24"),
        ("2001:db8::/129", "`129`", "0 to 128"),
        ("10.0.0.0/8 eth0", "routes:1:12: `eth0`", "an address as 192.0.2.1"),
        ("10.0.0.0/8 1 2", "`2`", "nothing is expected"),
        ("10.0.0.0/8 1\n11.0.0.0/8 192.0.2.1", "routes:2:12", "all as addresses or all as numbers"),
        ("10.0.0.0/8 192.0.2.1\n11.0.0.0/8 1", "routes:2:12", "all as addresses or all as numbers"),
    ];
    for (text, place, problem) in cases {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(place) && error.contains(problem), "{text}: {error}");
    }
    let few = RouteOptions { routes_max: 2, ..RouteOptions::default() };
    let error = read("10.0.0.0/8\n11.0.0.0/8\n12.0.0.0/8\n", "routes", None, &few).unwrap_err();
    assert!(error.to_string().contains("routes:3:1: `12.0.0.0/8`: more than 2 routes"), "{error}");
}

#[test]
fn traces_of_updates_are_read() {
    let text = "1418774413 w 202.70.88.0/21 0.0.0.0\n1418774414 a 2001:db8::/32 2001:db8::1\n";
    let (updates, hops) = read_updates(text, "trace", 10).unwrap();
    let v4 = "202.70.88.0/21".parse().unwrap();
    let v6 = "2001:db8::/32".parse().unwrap();
    assert_eq!(updates[0], Update { time: 1418774413, prefix: v4, next_hop: None });
    assert_eq!(updates[1], Update { time: 1418774414, prefix: v6, next_hop: Some(1) });
    assert_eq!(hops.get(1).unwrap().to_string(), "2001:db8::1");
    let error = read_updates("1 x 10.0.0.0/8 1\n", "trace", 10).unwrap_err().to_string();
    assert!(error.contains("trace:1:3: `x`: `a` is expected"), "{error}");
}

#[test]
fn real_tables_are_read() {
    let files = [("bgp-prefixes.txt", 901_899, 160_147), ("linx-rib-ipv6.20141225.txt", 0, 20_440)];
    for (name, v4, v6) in files {
        let Some(path) = crate::testing::data(format!("fib/{name}.gz")) else { continue };
        let file = std::fs::File::open(path).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let routes = read(&text, name, None, &RouteOptions::default()).unwrap();
        assert_eq!((routes.v4.len(), routes.v6.len()), (v4, v6), "{name}");
    }
}
