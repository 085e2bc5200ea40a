//! Where connection tracking differs from that of Open vSwitch 3.1: the table of `docs/differences.md`.

/// The differences: who is right and why, and how it is kept out of the comparison.
pub(crate) const DIFFERENCES: [(&str, &str, &str); 12] = [
    (
        "replies of a new connection that look like packets of another: Open vSwitch keeps both, and finds one of them; Flowlane \
         keeps the older",
        "Flowlane: no packet shows to which of two connections with one tuple it belongs; the kernel drops such packets",
        "a case ends there",
    ),
    (
        "`commit` with `nat` alone: Open vSwitch keeps a reply tuple of zeros, Flowlane that of the packet",
        "Flowlane: ovs-actions(7), `nat` alone translates as the connection does",
        "no such rules",
    ),
    (
        "a connection that is translated and begins again (a SYN after its end): Open vSwitch keeps the former reply tuple, so that \
         the port moves",
        "Flowlane: the former connection has ended",
        "conversations with translation do not begin again",
    ),
    (
        "`force` with `nat`: Open vSwitch ends by an assertion now and then",
        "Flowlane",
        "rules have one or the other",
    ),
    (
        "identifiers of ICMP that are in use behind one address: Open vSwitch 3.1 keeps no connection, Flowlane moves the identifier",
        "Flowlane: so do Linux and Open vSwitch since 2026",
        "a case ends there",
    ),
    ("ports of SCTP: Open vSwitch 3.1 does not look at them", "Flowlane: RFC 9260", "no SCTP"),
    (
        "errors of ICMPv6 that quote less than a TCP header: Open vSwitch calls them invalid",
        "Flowlane: eight bytes have the ports, as with ICMP",
        "errors quote 20 bytes",
    ),
    (
        "translated packets that errors of ICMPv6 quote: Open vSwitch leaves a wrong checksum there",
        "Flowlane: RFC 5508 REQ-3 asks for the translation of the quoted packet",
        "no such errors",
    ),
    (
        "original tuple of an error in the original direction, and ports of it for later fragments: Open vSwitch has none",
        "neither: nothing says",
        "they are not shown",
    ),
    (
        "fragments of a datagram: Open vSwitch takes one action after the other for all, Flowlane one fragment after the other \
         through all actions; where they meet `ct` on several ways, Open vSwitch now and then waits for fragments that it has had",
        "Flowlane",
        "frames in one order; rules with one way",
    ),
    (
        "the last fragment twice: Open vSwitch sends it twice, Flowlane calls the second invalid",
        "Flowlane: RFC 8200 §4.5, RFC 5722",
        "no fragment comes twice",
    ),
    (
        "fragments that are never complete: Open vSwitch sends them as invalid after 15 s, Flowlane drops them",
        "neither",
        "cases take less",
    ),
];
