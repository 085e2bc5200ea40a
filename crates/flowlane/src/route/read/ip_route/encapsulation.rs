//! Encapsulations of routes (lightweight tunnels): `encap mpls 100`, `encap ip id 77 dst 203.0.113.5 …`.
//!
//! Words of an encapsulation may also be words of a route (`tos`, `src`, `table`): they belong to the encapsulation as long as its
//! type knows them, each once, in any order. iproute2 prints the encapsulation before the route's own attributes.

use super::words::RouteWords;
use crate::rule::error::Fault;

/// The words behind the name of a type.
struct Grammar {
    name: &'static str,
    /// Whether a value without a word comes first: labels, or a locator.
    bare: bool,
    /// Words with a value.
    values: &'static [&'static str],
    /// Words alone.
    flags: &'static [&'static str],
}

/// Words of an encapsulation that count packets instead of describing the encapsulation.
const COUNTERS: [&str; 3] = ["packets", "bytes", "errors"];

const GRAMMARS: [Grammar; 10] = [
    Grammar { name: "mpls", bare: true, values: &["ttl"], flags: &[] },
    Grammar {
        name: "ip",
        bare: false,
        values: &["id", "src", "dst", "ttl", "tos", "geneve_opts", "vxlan_opts", "erspan_opts"],
        flags: &["key", "csum", "seq"],
    },
    Grammar {
        name: "ip6",
        bare: false,
        values: &["id", "src", "dst", "hoplimit", "tc", "geneve_opts", "vxlan_opts", "erspan_opts"],
        flags: &["key", "csum", "seq"],
    },
    Grammar { name: "ila", bare: true, values: &["csum-mode", "ident-type", "hook-type"], flags: &[] },
    Grammar { name: "bpf", bare: false, values: &["in", "out", "xmit", "headroom"], flags: &[] },
    Grammar { name: "seg6", bare: false, values: &["mode", "segs", "hmac", "tunsrc"], flags: &["cleanup"] },
    Grammar {
        name: "seg6local",
        bare: false,
        values: &[
            "action", "segs", "hmac", "table", "vrftable", "nh4", "nh6", "iif", "oif", "endpoint", "flavors",
            "lblen", "nflen", "packets", "bytes", "errors",
        ],
        flags: &["srh", "count", "cleanup"],
    },
    Grammar { name: "rpl", bare: false, values: &["segs"], flags: &[] },
    Grammar {
        name: "ioam6",
        bare: false,
        values: &["freq", "mode", "tunsrc", "tundst", "type", "ns", "size"],
        flags: &["trace", "prealloc"],
    },
    Grammar { name: "xfrm", bare: false, values: &["if_id", "link_dev"], flags: &[] },
];

/// Returns whether the words of an encapsulation of this type begin with a value without a word.
pub(super) fn begins_bare(name: &str) -> bool {
    GRAMMARS.iter().any(|grammar| grammar.bare && grammar.name == name)
}

/// Reads an encapsulation from its type on, and returns it as one text: `mpls 100/200`.
pub(super) fn read(words: &mut RouteWords<'_, '_>) -> Result<Box<str>, Fault> {
    let name = words.next("a type of encapsulation")?;
    let grammar = GRAMMARS.iter().find(|grammar| grammar.name == name.text).ok_or_else(|| {
        let known: Vec<&str> = GRAMMARS.iter().map(|grammar| grammar.name).collect();
        name.fault(format!(
            "the encapsulation is unknown; known are {}. Leave the route out of the file",
            known.join(", ")
        ))
    })?;
    let mut out = vec![name.text];
    if grammar.bare {
        out.push(words.next("a value of the encapsulation")?.text);
    }
    let mut seen = Vec::new();
    while grammar.has(words.peek()) && !seen.contains(&words.peek()) {
        let word = words.next("")?;
        seen.push(word.text);
        let from = out.len();
        out.push(word.text);
        match word.text {
            flag if grammar.flags.contains(&flag) => {}
            "segs" => {
                // Text has the length of the list before it, JSON has not.
                if words.peek() != "[" {
                    words.next("a list of segments")?;
                }
                while out.last() != Some(&"]") {
                    out.push(words.next("`]` behind the segments")?.text);
                }
            }
            // A program may have no name.
            "in" | "out" | "xmit" if grammar.has(words.peek()) || super::is_attribute(words.peek()) => {}
            _ => out.push(words.next("a value of the encapsulation")?.text),
        }
        if COUNTERS.contains(&word.text) {
            out.truncate(from);
        }
    }
    Ok(out.join(" ").into())
}

impl Grammar {
    fn has(&self, word: &str) -> bool {
        self.values.contains(&word) || self.flags.contains(&word)
    }
}
