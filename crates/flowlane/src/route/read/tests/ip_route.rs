use super::*;

const PRINTED: &str = "\
default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.9 metric 100 
default via 192.0.2.2 dev eth1 metric 50 onlink
10.0.0.0/8 proto static metric 20 
\tnexthop via 192.0.2.3 dev eth0 weight 1 
\tnexthop via 192.0.2.4 dev eth0 weight 3 
10.9.0.0/16 nhid 12 via inet6 fe80::1 dev eth2 proto bgp metric 20
blackhole 203.0.113.0/24 
unreachable 10.66.0.0/16 metric 1024 error -113
prohibit 198.51.100.7 
throw 198.51.100.8 
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.9 
local 192.0.2.9 dev eth0 table local proto kernel scope host src 192.0.2.9 
100.64.0.0/10 via 192.0.2.5 dev wg0 table 100
";

#[test]
fn the_output_of_ip_route_is_read() {
    assert_eq!(detect_format(PRINTED), Format::IpRoute);
    let routes = read_text(PRINTED).unwrap();
    let expected = [
        "0.0.0.0/0 192.0.2.2 dev eth1",
        "10.0.0.0/8 group of 192.0.2.3 dev eth0 weight 1, 192.0.2.4 dev eth0 weight 3",
        "10.9.0.0/16 fe80::1 dev eth2",
        "203.0.113.0/24 blackhole",
        "10.66.0.0/16 unreachable",
        "198.51.100.7/32 prohibit",
        "198.51.100.8/32 throw",
        "192.0.2.0/24 dev eth0",
    ];
    assert_eq!(shown(&routes), expected);
    let of = |table| read(PRINTED, "r", None, &RouteOptions { table, ..RouteOptions::default() }).unwrap();
    assert_eq!(shown(&of("local")), ["192.0.2.9/32 local"]);
    assert_eq!(shown(&of("100")), ["100.64.0.0/10 192.0.2.5 dev wg0"]);
}

#[test]
fn the_output_of_ip_6_route_is_read() {
    let text = "\
::1 dev lo proto kernel metric 256 pref medium
2001:db8:1::/64 dev eth0 proto kernel metric 256 expires 86000sec pref medium
unreachable fd00::/8 dev lo metric 1024 error -101 pref medium
default proto ra metric 1024 pref medium \\\tnexthop via fe80::1 dev eth0 weight 1 \\\tnexthop via fe80::2 dev eth1 weight 1 dead linkdown 
default dev tun0 metric 2048 pref medium
";
    let expected =
        ["::1/128 dev lo", "2001:db8:1::/64 dev eth0", "fd00::/8 unreachable", "::/0 fe80::1 dev eth0"];
    assert_eq!(shown(&read_text(text).unwrap()), expected);
    // Of which family is it? Of the routes around it.
    assert_eq!(shown(&read_text("default dev tun0\n2001:db8::/32 dev eth0\n").unwrap())[0], "::/0 dev tun0");
    assert_eq!(shown(&read_text("default dev tun0 scope link\n").unwrap()), ["0.0.0.0/0 dev tun0"]);
}

/// Linux prints each path of an IPv6 route as a route of its own where they were added one by one (before 4.11 always).
#[test]
fn ipv6_routes_of_one_prefix_and_metric_are_paths_of_one_route() {
    let text = "\
2001:db8::/32 via fe80::1 dev eth0 proto static metric 1024 pref medium
2001:db8::/32 via fe80::2 dev eth1 proto static metric 1024 pref medium
2001:db8::/32 via fe80::2 dev eth1 metric 1024 pref medium
2001:db8::/32 via fe80::3 dev eth1 metric 2048 pref medium
2001:db8:1::/48 via fe80::4 dev eth0 metric 20 pref medium
2001:db8:1::/48 metric 20 pref medium
\tnexthop via fe80::5 dev eth0 weight 3
\tnexthop via fe80::6 dev eth0 weight 1
fe80::/64 dev eth0 proto kernel metric 256 pref medium
fe80::/64 dev eth1 proto kernel metric 256 pref medium
default via fe80::8 dev eth0 proto ra metric 1024 expires 1700sec pref medium
default via fe80::9 dev eth0 proto ra metric 1024 expires 1700sec pref medium
10.0.0.0/8 via 192.0.2.1 dev eth0 metric 7
10.0.0.0/8 via 192.0.2.2 dev eth0 metric 7
";
    let expected = [
        "10.0.0.0/8 192.0.2.1 dev eth0",
        "2001:db8::/32 group of fe80::1 dev eth0 weight 1, fe80::2 dev eth1 weight 1",
        "2001:db8:1::/48 group of fe80::4 dev eth0 weight 1, fe80::5 dev eth0 weight 3, fe80::6 dev eth0 weight 1",
        "fe80::/64 dev eth0",
        "::/0 fe80::8 dev eth0",
    ];
    assert_eq!(shown(&read_text(text).unwrap()), expected);
}

#[test]
fn faults_in_the_output_of_ip_route_are_located_and_explained() {
    let cases = [
        ("default via gateway dev eth0", "routes:1:13: `gateway`", "an address is expected"),
        ("blackhole", "`default`", "the route ends"),
        ("default dev eth0\n10.0.0.0/40 dev eth0", "routes:2:10: `40`", "0 to 32"),
        ("nexthop via 10.0.0.1", "routes:1:1", "none above"),
        ("default metric 100\n\tnexthop via 10.0.0.1 weight 0", "`0`", "from 1 to"),
        ("default from 2001:db8::/32 dev eth0", "`from`", "only on the destination"),
    ];
    for (text, place, problem) in cases {
        let read = read(text, "routes", Some(Format::IpRoute), &RouteOptions::default());
        let error = read.unwrap_err().to_string();
        let mended =
            error.contains(problem) || problem.starts_with("only") && error.contains("leave them out");
        assert!(error.contains(place) && mended, "{text}: {error}");
    }
}

/// Reads the output of `ip route`, and of `ip -j route` for it.
fn both(text: &str, json: &str) -> Vec<String> {
    let routes = shown(&read_text(text).unwrap());
    assert_eq!(detect_format(json), Format::IpRouteJson);
    assert_eq!(shown(&read_text(json).unwrap()), routes);
    routes
}

#[test]
fn a_gateway_of_the_other_family_does_not_change_the_family_of_the_route() {
    let text = "default via inet6 fe80::9 dev swp1 proto bgp metric 20 \n192.0.2.0/24 dev swp2 scope link\n";
    let json = r#"[{"dst":"default","via":{"family":"inet6","host":"fe80::9"},"dev":"swp1","protocol":"bgp","metric":20,"flags":[]},
        {"dst":"192.0.2.0/24","dev":"swp2","scope":"link","flags":[]}]"#;
    assert_eq!(both(text, json), ["0.0.0.0/0 fe80::9 dev swp1", "192.0.2.0/24 dev swp2"]);
    let cases = [
        // The family of the routes before does not count.
        ("2001:db8::/32 dev eth0\ndefault via inet6 fe80::9 dev swp1", "0.0.0.0/0"),
        ("10.0.0.0/8 dev eth0\ndefault via fe80::9 dev swp1", "::/0"),
        (
            "2001:db8::/32 dev eth0\ndefault proto bgp\n\tnexthop via inet6 fe80::1 dev a\n\tnexthop via inet6 fe80::2 dev b",
            "0.0.0.0/0",
        ),
        ("2001:db8::/32 dev eth0\ndefault dev ppp0 scope link", "0.0.0.0/0"),
        ("2001:db8::/32 dev eth0\ndefault dev ppp0 src 192.0.2.1", "0.0.0.0/0"),
        ("10.0.0.0/8 dev eth0\ndefault dev tun0 metric 1024 pref medium", "::/0"),
        ("10.0.0.0/8 dev eth0\nunicast default dev tun0 scope global metric 1024 pref medium", "::/0"),
        ("10.0.0.0/8 dev eth0\ndefault via inet 192.0.2.1 dev eth0", "::/0"),
    ];
    for (text, default) in cases {
        let routes = shown(&read_text(text).unwrap());
        assert!(routes.iter().any(|route| route.starts_with(default)), "{text}: {routes:?}");
    }
}

#[test]
fn an_encapsulation_is_a_part_of_the_next_hop() {
    let text = "\
10.30.0.0/16  encap ip id 77 src 0.0.0.0 dst 203.0.113.5 ttl 0 tos 8 key csum dev eth1 scope link 
10.40.0.0/16  encap mpls  100/200 ttl 64 via 192.0.2.9 dev eth0 
10.41.0.0/16  encap mpls  300 via 192.0.2.9 dev eth0 
10.42.0.0/16 via 192.0.2.9 dev eth0 
2001:db8:5::/48  encap seg6 mode encap segs 2 [ 2001:db8::7 2001:db8::8 ] dev eth0 metric 1024 pref medium
2001:db8:6::/48  encap seg6local action End.DT6 table 77 dev eth0 metric 1024 pref medium
";
    let json = r#"[{"dst":"10.30.0.0/16","encap":"ip","id":77,"src":"0.0.0.0","dst":"203.0.113.5","ttl":0,"tos":8,"key":true,"csum":true,"dev":"eth1","scope":"link","flags":[]},
{"dst":"10.40.0.0/16","encap":"mpls","dst":"100/200","ttl":64,"gateway":"192.0.2.9","dev":"eth0","flags":[]},
{"dst":"10.41.0.0/16","encap":"mpls","dst":"300","gateway":"192.0.2.9","dev":"eth0","flags":[]},
{"dst":"10.42.0.0/16","gateway":"192.0.2.9","dev":"eth0","flags":[]}]
[{"dst":"2001:db8:5::/48","encap":"seg6","mode":"encap","segs":["2001:db8::7","2001:db8::8"],"dev":"eth0","metric":1024,"flags":[],"pref":"medium"},
{"dst":"2001:db8:6::/48","encap":"seg6local","action":"End.DT6","table":"77","dev":"eth0","metric":1024,"flags":[],"pref":"medium"}]"#;
    let expected = [
        "10.30.0.0/16 dev eth1 encap ip id 77 src 0.0.0.0 dst 203.0.113.5 ttl 0 tos 8 key csum",
        "10.40.0.0/16 192.0.2.9 dev eth0 encap mpls 100/200 ttl 64",
        "10.41.0.0/16 192.0.2.9 dev eth0 encap mpls 300",
        "10.42.0.0/16 192.0.2.9 dev eth0",
        "2001:db8:5::/48 dev eth0 encap seg6 mode encap segs [ 2001:db8::7 2001:db8::8 ]",
        "2001:db8:6::/48 dev eth0 encap seg6local action End.DT6 table 77",
    ];
    assert_eq!(both(text, json), expected);
    // Behind the encapsulation its words are the route's own again.
    let own = "10.0.0.0/8 encap ip id 1 src 0.0.0.0 dst 203.0.113.5 ttl 0 tos 0 tos 0x10 dev eth0";
    assert!(read_text(own).unwrap_err().contains("more than the destination"));
    let own =
        "10.0.0.0/8 encap seg6local action End.DT4 vrftable 10 dev eth0 table 100\n11.0.0.0/8 dev eth1\n";
    assert_eq!(shown(&read_text(own).unwrap()), ["11.0.0.0/8 dev eth1"]);
    let paths = "10.0.0.0/8 \n\tnexthop  encap mpls  100 via 192.0.2.8 dev eth0 weight 1 \n\tnexthop via 192.0.2.8 dev eth0 weight 2 \n";
    assert_eq!(
        shown(&read_text(paths).unwrap()),
        ["10.0.0.0/8 group of 192.0.2.8 dev eth0 encap mpls 100 weight 1, 192.0.2.8 dev eth0 weight 2"]
    );
    let types = [
        "ip6 id 77 src :: dst 2001:db8::5 hoplimit 0 tc 0",
        "ila 1:2:3:4 csum-mode adj-transport ident-type luid hook-type output",
        "bpf in filter.o:[in] xmit headroom 20",
        "rpl segs 1 [ 2001:db8::7 ]",
        "ioam6 freq 1/1 mode inline trace prealloc type 0x800000 ns 1 size 12",
        "xfrm if_id 0x1 link_dev eth0",
        "seg6local action End.B6 srh segs 1 [ fc00::1 ] hmac 0",
    ];
    for encapsulation in types {
        let line = format!("10.0.0.0/8  encap {encapsulation} dev eth0 proto static scope link \n");
        let routes = read_text(&line).map(|routes| shown(&routes));
        assert!(
            routes.as_ref().is_ok_and(|routes| routes[0].starts_with("10.0.0.0/8 dev eth0 encap ")),
            "{routes:?}"
        );
    }
    assert!(
        read_text("10.0.0.0/8 encap gtp 7 dev eth0").unwrap_err().contains("the encapsulation is unknown")
    );
    assert!(
        read_text("10.0.0.0/8 encap seg6 mode encap segs 1 [ fc00::1 dev eth0").unwrap_err().contains("`]`")
    );
}

#[test]
fn a_word_in_the_place_of_a_value_is_no_attribute() {
    let text = "10.0.0.0/8 via 192.0.2.1 dev dead proto nexthop\n11.0.0.0/8 dev table src 192.0.2.9\n12.0.0.0/8 dev tos\n";
    assert_eq!(
        shown(&read_text(text).unwrap()),
        ["10.0.0.0/8 192.0.2.1 dev dead", "11.0.0.0/8 dev table", "12.0.0.0/8 dev tos"]
    );
}

#[test]
fn what_iproute2_prints_with_details_and_statistics_is_read_over() {
    let text = "\
unicast 10.50.0.0/16 via 192.0.2.2 dev eth0 proto boot scope global realm 5 mtu lock 1400 rtt 100ms advmss 1300 features ecn congctl cubic 
unicast 10.60.0.0/16 nhid 12 via 192.0.2.2 dev eth0 proto boot scope global 
\tnh_info id 12 via 192.0.2.200 dev eth9 scope link proto unspec 
unicast 10.61.0.0/16 nhid 30 proto boot scope global 
\tnh_info id 30 group 12/13,3 scope global proto unspec 
\tnexthop via 192.0.2.2 dev eth0 weight 1 
\tnexthop via 198.51.100.2 dev eth1 weight 3 
10.0.0.1 via 198.51.100.3 dev eth1 src 198.51.100.9 uid 0 
    cache <redirect> expires 300sec users 2 age 7sec 
10.70.0.0/16 via 192.0.2.2 dev eth0 onlink linkdown offload rt_trap # the uplink
2001:db8:7::1 from :: via fe80::2 dev eth1 src 2001:db8:1::9 metric 1024 error -101 hoplimit 64 pref medium
";
    let expected = [
        "10.50.0.0/16 192.0.2.2 dev eth0",
        "10.60.0.0/16 192.0.2.2 dev eth0",
        "10.61.0.0/16 group of 192.0.2.2 dev eth0 weight 1, 198.51.100.2 dev eth1 weight 3",
        "10.0.0.1/32 198.51.100.3 dev eth1",
        "10.70.0.0/16 192.0.2.2 dev eth0",
        "2001:db8:7::1/128 fe80::2 dev eth1",
    ];
    assert_eq!(shown(&read_text(text).unwrap()), expected);
    let joined = text.replace("\n\t", "\\\t").replace("\n    ", "\\    ").replace("\\", " \\");
    assert_eq!(shown(&read_text(&joined).unwrap()), expected);
    let json = r#"[{"type":"unicast","dst":"10.50.0.0/16","gateway":"192.0.2.2","dev":"eth0","protocol":"boot","scope":"global","flags":["onlink","linkdown"],"flow":{"to":"5"},"metrics":[{"mtu":1400,"rtt":100,"ecn":null,"congestion":"cubic"}]},
{"type":"unicast","dst":"10.61.0.0/16","nhid":30,"protocol":"boot","scope":"global","flags":[],"nh_info":{"id":30,"group":[{"id":12},{"id":13,"weight":3}],"flags":[]},"nexthops":[{"gateway":"192.0.2.2","dev":"eth0","weight":1,"flags":["dead","linkdown"]},{"gateway":"198.51.100.2","dev":"eth1","weight":3,"flags":[]}]},
{"type":"blackhole","dst":"203.0.113.0/24","flags":[]},
{"dst":"10.0.0.1","gateway":"198.51.100.3","dev":"eth1","prefsrc":"198.51.100.9","flags":[],"uid":0,"cache":[]}]"#;
    assert_eq!(
        shown(&read_text(json).unwrap()),
        [
            "10.50.0.0/16 192.0.2.2 dev eth0",
            "10.61.0.0/16 198.51.100.2 dev eth1",
            "203.0.113.0/24 blackhole",
            "10.0.0.1/32 198.51.100.3 dev eth1"
        ]
    );
}

#[test]
fn all_lines_decide_about_the_format() {
    // The first line is a prefix alone, as in a list, or a mixed file has it first.
    let group = "10.0.0.0/8 \n\tnexthop via 192.0.2.2 dev eth0 weight 1 \n\tnexthop via 192.0.2.3 dev eth1 weight 1 \n";
    assert_eq!(shown(&read_text(group).unwrap()).len(), 1);
    assert_eq!(detect_format("10.0.0.0/8 \\\tnexthop via 192.0.2.2 dev eth0 weight 1 \n"), Format::IpRoute);
    for text in
        ["10.0.0.0/8 192.0.2.1\ndefault via 192.0.2.9\n", "default via 192.0.2.9\n10.0.0.0/8 192.0.2.1\n"]
    {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(":12: `192.0.2.1`") && error.contains("cannot be mixed"), "{error}");
    }
    assert_eq!(detect_format("10.0.0.0/8\n11.0.0.0/8\n"), Format::Plain);
    // A byte order mark is no part of the JSON.
    let marked = "\u{feff}[{\"dst\":\"10.0.0.0/8\",\"dev\":\"eth0\"}]";
    assert_eq!(shown(&read_text(marked).unwrap()), ["10.0.0.0/8 dev eth0"]);
    let error = read_text(&marked.replace('}', "")).unwrap_err();
    assert!(error.contains(":1:34: `]`"), "{error}");
}

#[test]
fn a_route_leads_somewhere() {
    let nowhere = [
        "10.0.0.0/8 proto static\n11.0.0.0/8 dev eth0",
        "default metric 100",
        "10.0.0.0/8 proto static\n\tnexthop weight 1",
        "10.0.0.0/8 proto static\n\tnexthop via 192.0.2.1 weight 1\n\tnexthop weight 1",
        r#"[{"dst":"10.0.0.0/8","flags":[]}]"#,
    ];
    for text in nowhere {
        let error = read_text(text).unwrap_err();
        assert!(error.starts_with("routes:1:") && error.contains("leads nowhere"), "{text}: {error}");
    }
    // With net.ipv4.nexthop_compat_mode = 0 Linux prints the number of a nexthop object only.
    assert_eq!(shown(&read_text("10.60.0.0/16 nhid 12 proto zebra\n").unwrap()), ["10.60.0.0/16 nhid 12"]);
    assert_eq!(shown(&read_text("10.0.0.0/8 via 192.0.2.1 dev eth0 dead linkdown\n").unwrap()), [""; 0]);
}

#[test]
fn a_table_that_no_route_is_of_is_an_error() {
    let of = |text, table| {
        let read = read(text, "routes", None, &RouteOptions { table, ..RouteOptions::default() });
        read.map(|routes| shown(&routes)).map_err(|error| error.to_string())
    };
    let one = "default via 192.0.2.66 dev eth3 \n192.0.2.64/27 dev eth3 scope link \n";
    let error = of(one, "77").unwrap_err();
    assert!(
        error.starts_with(
            "routes:1:1: `default via 192.0.2.66 dev eth3`: no route is of table `77`: none names a table"
        ),
        "{error}"
    );
    let error = of(PRINTED, "77").unwrap_err();
    assert!(error.contains("no route is of table `77`, but of main, local, 100"), "{error}");
    let error = of("10.0.0.0/8 dev eth0 table 100\n", "main").unwrap_err();
    assert!(error.contains("no route is of table `main`, but of 100"), "{error}");
    // Linear: a search among the tables before each would take minutes.
    let many: String = (0..200_000).map(|n| format!("10.0.0.0/8 dev eth0 table {}\n", 1000 + n)).collect();
    let error = of(&many, "77").unwrap_err();
    assert!(error.contains(", 1019 and 199980 more; name one of these"), "{error}");
    assert_eq!(of(PRINTED, "254"), of(PRINTED, "main"));
    assert_eq!(of(PRINTED, "255"), of(PRINTED, "local"));
    assert!(of(PRINTED, "all").unwrap_err().contains("`all`"));
    let json = r#"[{"dst":"10.0.0.0/8","dev":"eth0","table":"100","flags":[]},{"dst":"11.0.0.0/8","dev":"eth0","flags":[]}]"#;
    assert_eq!(of(json, "100"), Ok(vec!["10.0.0.0/8 dev eth0".to_owned()]));
    assert!(of(json, "7").unwrap_err().contains("but of 100, main"));
    assert_eq!(of("", "main"), Ok(Vec::new()));
    assert_eq!(of("[ ]", "main"), Ok(Vec::new()));
}

#[test]
fn unknown_and_repeated_words_are_located() {
    let cases = [
        ("10.0.0.0/8 dev eth0 metrik 7", "routes:1:21: `metrik`", "did you mean `metric`?"),
        ("10.0.0.0/8 via 192.0.2.1 via 192.0.2.2", "routes:1:26: `via`", "a second `via`"),
        ("10.0.0.0/8 dev eth0 table 1 table 2", "routes:1:29", "a second `table`"),
        ("10.0.0.0/8 dev", "routes:1:15", "a device is expected"),
        ("10.0.0.0/8 dev eth0 mark 0x10", "`mark`", "more than the destination"),
        ("Deleted 10.0.0.0/8 dev eth0", "routes:1:1: `Deleted`", "`ip monitor`"),
        ("[{\"dst\":\"10.0.0.0/8\",\n \"dev\":\"eth0\", \"odd\": 1}]", "routes:2:17: `odd`", "unknown"),
        ("[{\"dst\":\"10.0.0.0/8\" \"dev\":\"eth0\"}]", "`\"dev\"`", "`,` is expected"),
        ("[{\"dst\":\"10.0.0.0/8", "routes:1:9", "does not end"),
        ("[{\"dst\":\"10.0.0.0/40\",\"dev\":\"e\"}]", "`40`", "0 to 32"),
        ("[{}]", "routes:1", "a route is expected"),
    ];
    for (text, place, problem) in cases {
        let error = match text.starts_with('[') {
            true => read_text(text).unwrap_err(),
            false => {
                let read = read(text, "routes", Some(Format::IpRoute), &RouteOptions::default());
                read.unwrap_err().to_string()
            }
        };
        assert!(error.contains(place) && error.contains(problem), "{text}: {error}");
    }
}
