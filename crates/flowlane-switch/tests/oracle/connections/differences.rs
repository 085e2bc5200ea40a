//! Where connection tracking differs from that of Open vSwitch 3.1: the table of `docs/differences.md`.

/// The differences: who is right and why, and how it is kept out of the comparison.
pub(crate) const DIFFERENCES: [(&str, &str, &str); 24] = [
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
    (
        "an address that is set behind `ct(nat)`, to what it was before the translation: Open vSwitch leaves the translated one",
        "Flowlane: a field has the value that a rule sets",
        "each rule sets other bits",
    ),
    (
        "a bucket of a group with `ct` or `ct_clear`: in Open vSwitch the packet behind the group is translated, too, and `ct_clear` there does \
         nothing",
        "Flowlane: OpenFlow 1.3.5, 5.6.1, each bucket has a copy of the packet",
        "nothing follows a group",
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
        "ports that `resubmit(…,ct)` shows of the connection of a fragment: Open vSwitch shows 0, and has 0 in `ct_tp_src` and `ct_tp_dst` \
         behind it",
        "Flowlane: ovs-actions(7), the fields of the original direction are shown",
        "no fragments are shown",
    ),
    (
        "the last fragment twice: Open vSwitch sends it twice, Flowlane calls the second invalid",
        "Flowlane: RFC 8200 §4.5, RFC 5722",
        "no fragment comes twice",
    ),
    (
        "a fragment that overlaps others: Open vSwitch calls it alone invalid, Flowlane gives the datagram up, with those that come later",
        "Flowlane: RFC 8200 §4.5, RFC 5722 §3",
        "no fragments overlap",
    ),
    (
        "fragments of one source: Open vSwitch lets them have all the room, 1,000, and refuses others; in Flowlane a source has another waiting \
         only while there is room for as many as it has, and the oldest make room for other sources",
        "Flowlane: one host would stop the fragments of all others",
        "few wait",
    ),
    (
        "fragments that are never complete: Open vSwitch sends them as invalid after 15 s, Flowlane drops them",
        "neither",
        "cases take less",
    ),
    (
        "`EPRT` and reply 229 of FTP over IPv4: Open vSwitch 3.1 does not read them",
        "Flowlane: RFC 2428; so does Open vSwitch since 2025",
        "no such messages over IPv4",
    ),
    (
        "messages of FTP and TFTP that are read: Open vSwitch reads those of either end, in packets outside of the window too, \
         `EXTENDED PASSIVE` anywhere in a segment, a number that the segment cuts off, and any packet to the port of TFTP; \
         Flowlane those at the beginning of a sound segment of the end that sends them, and requests",
        "Flowlane: a text that a server repeats, or a packet that neither end has sent, opens no port",
        "each end sends its own messages, whole",
    ),
    (
        "sequence numbers after a text of another length: Open vSwitch has one skew for a connection, which it adds to segments \
         that are sent again and takes from late acknowledgements too, but not from SACK, and not where a message is refused; \
         Flowlane has two for each end, as Linux",
        "Flowlane: the ends would disagree",
        "nothing is sent again; no bad messages with translation",
    ),
    (
        "connections that are expected: Open vSwitch keeps any number until the control connection ends; Flowlane 8 for each \
         control connection and 16,384 in all, for 5 minutes",
        "Flowlane: memory that clients can fill is bounded",
        "few ports",
    ),
    (
        "TFTP where the client's port is translated: Open vSwitch expects packets to the former port",
        "Flowlane: servers know the translated one",
        "addresses alone are translated",
    ),
    (
        "a control connection on another port: Open vSwitch looks at the ports of the packet that its megaflow was made of, \
         Flowlane at `alg=` of the packet's `ct`; in frames with a tag and IPv6, and in those without room behind them, Open \
         vSwitch reads and rewrites nothing",
        "Flowlane",
        "ports 21 and 69; a tag is pushed for a while",
    ),
    (
        "`ct(commit,alg=…)` of a connection that was announced: Open vSwitch reads its packets as those of a control \
         connection; and Flowlane reads no fragments of one",
        "Flowlane: data is no control connection; the second: neither",
        "no such rules, no such fragments",
    ),
];
