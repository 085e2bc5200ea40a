use super::*;

const FRR: &str = "\
Codes: K - kernel route, C - connected, L - local, S - static,
       R - RIP, O - OSPF, I - IS-IS, B - BGP, E - EIGRP, N - NHRP,
       > - selected route, * - FIB route, q - queued, r - rejected, b - backup
       t - trapped, o - offload failure

IPv4 unicast VRF default:
K>* 0.0.0.0/0 [0/100] via 192.0.2.1, eth0, src 192.0.2.9, 00:10:12
B   0.0.0.0/0 [200/0] via 192.0.2.200, eth0, weight 1, 00:10:12
C>* 192.0.2.0/24 is directly connected, eth0, 00:10:12
L>* 192.0.2.9/32 is directly connected, eth0, 00:10:12
B>* 10.0.0.0/8 [20/0] via 192.0.2.2, eth0, weight 1, 00:00:10
  *                   via 192.0.2.3, eth1, weight 1, 00:00:10
B>  10.1.0.0/16 [200/0] via 203.0.113.9 (recursive), weight 1, 1d02h03m
  *                       via 192.0.2.2, eth0, weight 1, 1d02h03m
S>* 10.2.0.0/16 [1/0] unreachable (blackhole), weight 1, 00:00:05
S>* 10.3.0.0/16 [1/0] unreachable (ICMP admin-prohibited), weight 1, 00:00:05
O   10.4.0.0/16 [110/10] is directly connected, eth1, weight 1, 00:01:00
                        via 192.0.2.77, eth1, weight 1, 00:01:00
B>* 10.5.0.0/16 [20/0] via fe80::1, swp1, label 100/200, weight 1, never
S>  10.6.0.0/16 [1/0] via 192.0.2.6 inactive, weight 1, 00:00:05

VRF blue:
S>* 10.7.0.0/16 [1/0] via 192.0.2.7, eth7, weight 1, 00:00:05
";

#[test]
fn selected_routes_of_frrouting_are_read_with_their_installed_paths() {
    assert_eq!(detect_format(FRR), Format::ShowRoute);
    let expected = [
        "0.0.0.0/0 192.0.2.1 dev eth0",
        "192.0.2.0/24 dev eth0",
        "192.0.2.9/32 local",
        "10.0.0.0/8 group of 192.0.2.2 dev eth0 weight 1, 192.0.2.3 dev eth1 weight 1",
        "10.1.0.0/16 192.0.2.2 dev eth0",
        "10.2.0.0/16 blackhole",
        "10.3.0.0/16 prohibit",
        "10.5.0.0/16 fe80::1 dev swp1 encap mpls 100/200",
    ];
    assert_eq!(shown(&read_text(FRR).unwrap()), expected);
    let blue = RouteOptions { table: "blue", ..RouteOptions::default() };
    assert_eq!(shown(&read(FRR, "r", None, &blue).unwrap()), ["10.7.0.0/16 192.0.2.7 dev eth7"]);
    // Without the legend.
    let two = "B>* 2001:db8::/32 [20/0] via fe80::1, eth0, 00:00:10\nC>* fe80::/64 is directly connected, eth0, 00:00:10\n";
    assert_eq!(shown(&read_text(two).unwrap()), ["2001:db8::/32 fe80::1 dev eth0", "fe80::/64 dev eth0"]);
}

const IOS: &str = "\
Router#show ip route
Codes: L - local, C - connected, S - static, R - RIP, M - mobile, B - BGP
       D - EIGRP, EX - EIGRP external, O - OSPF, IA - OSPF inter area 
       + - replicated route, % - next hop override

Gateway of last resort is 192.0.2.1 to network 0.0.0.0

S*    0.0.0.0/0 [1/0] via 192.0.2.1
      10.0.0.0/8 is variably subnetted, 4 subnets, 3 masks
C        10.0.1.0/24 is directly connected, GigabitEthernet0/0
L        10.0.1.1/32 is directly connected, GigabitEthernet0/0
O        10.0.2.0/24 [110/2] via 10.0.1.2, 00:10:12, GigabitEthernet0/0
                     [110/2] via 10.0.3.2, 00:10:12, GigabitEthernet0/1
O E2     10.0.4.0/22 
           [110/20] via 10.0.1.2, 2w3d, GigabitEthernet0/0
D        10.9.0.0/16 is a summary, 00:01:02, Null0
      172.16.0.0/24 is subnetted, 1 subnets
O IA     172.16.1.0 [110/3] via 10.0.1.2, 00:01:01, GigabitEthernet0/0
";

#[test]
fn routes_of_ios_are_read() {
    let expected = [
        "0.0.0.0/0 192.0.2.1",
        "10.0.1.0/24 dev GigabitEthernet0/0",
        "10.0.1.1/32 local",
        "10.0.2.0/24 group of 10.0.1.2 dev GigabitEthernet0/0 weight 1, 10.0.3.2 dev GigabitEthernet0/1 weight 1",
        "10.0.4.0/22 10.0.1.2 dev GigabitEthernet0/0",
        "10.9.0.0/16 blackhole",
        "172.16.1.0/24 10.0.1.2 dev GigabitEthernet0/0",
    ];
    assert_eq!(shown(&read_text(IOS).unwrap()), expected);
    let v6 = "\
IPv6 Routing Table - default - 4 entries
Codes: C - Connected, L - Local, S - Static, U - Per-user Static route
S   ::/0 [1/0]
     via 2001:DB8::1
C   2001:DB8:1::/64 [0/0]
     via GigabitEthernet0/0, directly connected
O   2001:DB8:2::/64 [110/2]
     via FE80::1, GigabitEthernet0/0
L   FF00::/8 [0/0]
     via Null0, receive
";
    let expected = [
        "::/0 2001:db8::1",
        "2001:db8:1::/64 dev GigabitEthernet0/0",
        "2001:db8:2::/64 fe80::1 dev GigabitEthernet0/0",
        "ff00::/8 local",
    ];
    assert_eq!(shown(&read_text(v6).unwrap()), expected);
}

#[test]
fn routes_of_eos_are_read() {
    let text = "\
VRF: default
Source Codes:
       C - connected, S - static, K - kernel,
       O - OSPF, IA - OSPF inter area

Gateway of last resort:
 S        0.0.0.0/0 [1/0]
           via 172.28.138.1, Management1

 C        10.0.255.0/31 [0/1]
           directly connected, Ethernet5
 B E      10.1.0.0/16 [200/0]
           via 10.0.255.1, Ethernet5
           via 10.0.255.3, Ethernet6
 C        10.2.0.0/24 is directly connected, Ethernet7
";
    let expected = [
        "0.0.0.0/0 172.28.138.1 dev Management1",
        "10.0.255.0/31 dev Ethernet5",
        "10.1.0.0/16 group of 10.0.255.1 dev Ethernet5 weight 1, 10.0.255.3 dev Ethernet6 weight 1",
        "10.2.0.0/24 dev Ethernet7",
    ];
    assert_eq!(shown(&read_text(text).unwrap()), expected);
}

#[test]
fn faults_in_the_output_of_routers_are_located() {
    let cases = [
        (
            "Codes: C - connected\nO IA     172.16.1.0 [110/3] via 10.0.1.2",
            "routes:2:10: `172.16.1.0`",
            "without a length",
        ),
        ("Codes: C - connected\nC   10.0.0.0/40 is directly connected, e", "`40`", "0 to 32"),
        (
            "Codes: C - connected\nB>* 10.0.0.0/8 [20/0] over 192.0.2.1",
            "`over 192.0.2.1`",
            "a path is expected",
        ),
        ("Codes: C - connected\nwhat is this", "routes:2:1: `what is this`", "neither a route"),
        // No route is taken for a part of the legend.
        (
            "Codes: C - connected\nBGP 10.0.0.0/8 via 192.0.2.1 - best",
            "`BGP 10.0.0.0/8 via 192.0.2.1 - best`",
            "neither a route",
        ),
        ("Codes: C - connected\nBGP 10.0.0.0/8 show ip", "`BGP 10.0.0.0/8 show ip`", "neither a route"),
        ("Codes: C - connected\nC   10.0.0.0/40 - see show ip route", "`40`", "0 to 32"),
        (
            "Codes: C - connected\n     via 192.0.2.1, eth0\nC   10.0.0.0/8 is directly connected, e",
            "routes:2:6: `via 192.0.2.1, eth0`",
            "there is none above",
        ),
        (
            "C   10.0.0.0/8 is directly connected, e\nVRF blue:\n     via 192.0.2.1, eth0",
            "routes:3:6",
            "there is none above",
        ),
        (
            "Codes: C - connected\nS   10.0.0.0/8 [1/0]\n",
            "routes:2:1: `S   10.0.0.0/8 [1/0]`",
            "leads nowhere",
        ),
        ("Codes: C - connected\nS   10.0.0.0/8 [1/0 via 10.0.0.1\n", "`[1/0 via 10.0.0.1`", "does not end"),
    ];
    for (text, place, problem) in cases {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(place) && error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn the_shortest_path_of_a_dump_counts() {
    let line = |prefix: &str, path: &str, hop: &str| {
        format!("TABLE_DUMP2|1418774400|B|192.0.2.1|64500|{prefix}|{path}|IGP|{hop}|0|0||NAG||\n")
    };
    let text = [
        line("10.0.0.0/8", "1 2 3", "192.0.2.1"),
        line("10.0.0.0/8", "1 {2,3,4}", "192.0.2.2"),
        line("10.0.0.0/8", "5 6", "192.0.2.3"),
        line("2001:db8::/32", "(64512 64513) 7", "2001:db8::1"),
        line("2001:db8::/32", "8 9", "2001:db8::2"),
    ]
    .concat();
    assert_eq!(detect_format(&text), Format::Bgpdump);
    assert_eq!(shown(&read_text(&text).unwrap()), ["10.0.0.0/8 192.0.2.2", "2001:db8::/32 2001:db8::1"]);
    let cases = [
        ("TABLE_DUMP2|1418774400|B|192.0.2.1|64500|10.0.0.0/8", "a prefix and `|`"),
        ("TABLE_DUMP2|1|B|192.0.2.1|1|10.0.0.0/80|1|IGP|192.0.2.1|0|", "0 to 32"),
        ("TABLE_DUMP2|1|B|192.0.2.1|1|10.0.0.0/8|1|IGP|there|0|", "a next hop's address"),
    ];
    for (text, problem) in cases {
        let error = read_text(text).unwrap_err();
        assert!(error.starts_with("routes:1:") && error.contains(problem), "{text}: {error}");
    }
}
