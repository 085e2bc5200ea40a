//! Texts that are recognised and not read, and how to get the routes as a text that is.

use std::ops::Range;

use crate::rule::error::lines;

/// How the first line of a text begins, what prints such a text, and the remedy.
const BEGINNINGS: [(&str, &str, &str); 12] = [
    ("Kernel IP routing table", "`route` and `netstat -r` print this", IP_ROUTE),
    ("Kernel IPv6 routing table", "`route` and `netstat -r` print this", IP_ROUTE),
    ("Iface", "this is /proc/net/route", IP_ROUTE),
    ("Routing tables", "`netstat -r` prints this", IP_ROUTE),
    (
        "BIRD ",
        "`show route` of BIRD prints this",
        "give what BIRD exports to Linux: `ip route show proto bird`",
    ),
    (
        "Table master",
        "`show route` of BIRD prints this",
        "give what BIRD exports to Linux: `ip route show proto bird`",
    ),
    ("inet.0:", "`show route` of Junos prints this", PLAIN),
    ("inet6.0:", "`show route` of Junos prints this", PLAIN),
    ("IP Route Table for VRF", "`show ip route` of NX-OS prints this", PLAIN),
    ("IPv6 Routing Table for VRF", "`show ipv6 route` of NX-OS prints this", PLAIN),
    ("BGP4MP", "`bgpdump -m` prints this for updates, not for a table", "give a table: `bgpdump -m rib.mrt`"),
    (
        "{",
        "this is JSON of another program than `ip`",
        "give `ip -j route show`, or `show ip route` of FRRouting without `json`",
    ),
];

const IP_ROUTE: &str = "give the output of `ip route show` and `ip -6 route show`";
const PLAIN: &str = "write a prefix and its next hop on each line: `192.0.2.0/24 198.51.100.1`";

/// Returns the first line of a text that is not read, and the reason.
pub(super) fn recognise(text: &str) -> Option<(Range<usize>, String)> {
    let (_, start, line) = lines(text).next()?;
    let line = line.trim();
    let start = start + line.at;
    if line.text.contains('\u{1b}') {
        let what = "the text has colours; print it without, as with `ip -c=never route show`";
        return Some((start..start + line.text.len(), what.to_owned()));
    }
    let (_, what, remedy) = BEGINNINGS.iter().find(|(beginning, ..)| line.text.starts_with(beginning))?;
    Some((start..start + line.text.len(), format!("{what}, and it is not read; {remedy}")))
}
