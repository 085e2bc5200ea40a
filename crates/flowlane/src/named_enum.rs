//! Enums whose members have names: on the command line, in files, in reports.
//!
//! An enum derives its names, parsing and the list of its members ([`strum`]). Parsing an unknown name gives an
//! [`UnknownName`], for every enum.

use std::fmt;

use strum::VariantArray;

/// An enum whose members are parsed by name.
pub trait Named: VariantArray + Copy + Into<&'static str> {
    /// The noun for a member, as in "there is no *variant* of this name".
    const KIND: &'static str;
}

/// Returns all members, in the order of their declaration. It does not compile where there are not `N`.
pub const fn all<T: VariantArray + Copy, const N: usize>() -> [T; N] {
    assert!(T::VARIANTS.len() == N);
    *T::VARIANTS.first_chunk().expect("there are as many")
}

/// A name that no member of an enum has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no {kind} `{name}`; there are {}", Listed(.names))]
pub struct UnknownName {
    /// The noun for a member of the enum.
    pub kind: &'static str,
    /// As given.
    pub name: String,
    /// The known names.
    pub names: Vec<&'static str>,
}

impl UnknownName {
    /// Returns the error for a name that no `T` has.
    pub fn of<T: Named>(name: &str) -> Self {
        Self { kind: T::KIND, name: name.to_owned(), names: T::VARIANTS.iter().map(|&v| v.into()).collect() }
    }
}

/// Returns the known name that an unknown one was probably meant to be: the only one that a slip of the keys makes of it, one
/// letter of a short name, two of a name of eight and more.
///
/// A name of another thing is no slip: `tcp_seq` is not `tcp_src`, `reg16` (another number) not `reg15`, `idle_ms` (another
/// unit) not `idle_s`. Names that are too long or too short are not compared, so that the cost does not grow with an
/// unknown name from outside.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = unknown.chars().count();
    let differ_max = if letters < 8 { 1 } else { 2 };
    let known = known.into_iter().filter(|name| name.chars().count().abs_diff(letters) <= differ_max);
    let mut near: Vec<(usize, &str)> =
        known.map(|name| (strsim::damerau_levenshtein(unknown, name), name)).collect();
    near.sort_unstable();
    near.dedup();
    match near[..] {
        [(distance, name), ref others @ ..] if distance <= differ_max => {
            let is_alone = others.first().is_none_or(|other| other.0 > distance);
            (is_alone && !is_another(unknown, name)).then_some(name)
        }
        _ => None,
    }
}

/// Returns whether two names differ in a number or a unit alone, or are of two families of numbered names.
fn is_another(a: &str, b: &str) -> bool {
    let letters = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    let is_numbered = |name: &str| name.ends_with(|c: char| c.is_ascii_digit());
    let unit = |name: &str| UNITS.into_iter().find(|unit| name.rsplit('_').next() == Some(unit));
    let is_other_family = is_numbered(a) && is_numbered(b) && letters(a).len() != letters(b).len();
    let is_other_unit = unit(a).is_some() && unit(b).is_some() && unit(a) != unit(b);
    letters(a) == letters(b) || is_other_family || is_other_unit
}

/// Units, which are the last part of a name.
const UNITS: [&str; 16] = [
    "ns", "us", "ms", "s", "min", "h", "bps", "kbps", "mbps", "gbps", "pps", "kpps", "bytes", "kib", "mib",
    "gib",
];

/// Names, as a sentence has them.
struct Listed<'a>(&'a [&'static str]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.len().saturating_sub(1);
        for (at, name) in self.0.iter().enumerate() {
            let before = if at == 0 {
                ""
            } else if at == last {
                " and "
            } else {
                ", "
            };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::isa::Variant;
    use crate::route::HopSize;

    use super::nearest;

    #[test]
    fn the_nearest_name_is_found_and_a_huge_one_is_not_compared() {
        let known = ["output", "in_port", "drop"];
        assert_eq!(nearest("ouput", known), Some("output"));
        assert_eq!(nearest("inport", known), Some("in_port"));
        assert_eq!(nearest("drpo", known), Some("drop"));
        assert_eq!(nearest("resubmit", known), None);
        // Compared letter by letter, it would take minutes, and gigabytes.
        assert_eq!(nearest(&"output".repeat(1 << 20), known), None);
    }

    #[test]
    fn a_name_of_another_thing_is_no_hint() {
        let fields = ["reg0", "reg15", "tcp_src", "tcp_dst", "ip_ecn", "ipv6", "tun_metadata0", "pkt_mark"];
        for name in ["reg16", "reg1", "tcp_seq", "ip_len", "ipv4", "tun_metadata1", "ct_mark", "xreg0"] {
            assert_eq!(nearest(name, fields), None, "{name}");
        }
        let keys = ["idle_s", "rate_kbps", "rate_pps", "memory_mib"];
        for name in ["idle_ms", "rate_bps", "rate_mbps", "memory_gib"] {
            assert_eq!(nearest(name, keys), None, "{name}");
        }
        assert_eq!(nearest("idel_s", keys), Some("idle_s"));
        // Near two names, it may be either.
        assert_eq!(nearest("p_dst", ["tp_dst", "ip_dst"]), None);
    }

    #[test]
    fn unknown_names_are_answered_with_those_there_are() {
        let error = "avx9".parse::<Variant>().expect_err("no such variant");
        assert_eq!(
            error.to_string(),
            "there is no variant `avx9`; there are scalar, sse42, avx2, avx512 and neon"
        );
        let error = "3".parse::<HopSize>().expect_err("no such size");
        assert_eq!(error.to_string(), "there is no size of next hops in bytes `3`; there are 1, 2, 4 and 8");
    }

    /// They are in files and scripts.
    #[test]
    fn names_stay_as_they_are() {
        use crate::bloom::Algorithm;
        use crate::classify::acl::AclEngine;
        use crate::dispatch::{Family, SizeClass};
        use crate::generate::Profile;
        use crate::route::engine::Engine;
        use crate::rule::Command;
        use crate::tunnel::TunnelKind;

        assert_eq!(Variant::ALL.map(Variant::name), ["scalar", "sse42", "avx2", "avx512", "neon"]);
        assert_eq!(Engine::ALL.map(Engine::name), ["dir24", "compact", "trie"]);
        assert_eq!(
            Profile::ALL.map(Profile::name).join(" "),
            "acl fw ipc openflow ranges groups blocklist acl6 mixed masks nested disjoint overlap cuts chains"
        );
        assert_eq!(SizeClass::ALL.map(|size| size.to_string()), ["l1", "l2", "l3", "memory"]);
        assert_eq!(
            Family::ALL.map(Family::name),
            ["zen5", "zen4", "sapphire-rapids", "ice-lake", "skylake-sp", "avx2", "sse4.2", "neon", "any"]
        );
        assert_eq!(AclEngine::ALL.map(AclEngine::name), ["auto", "brute", "tree", "dynamic"]);
        assert_eq!(
            Algorithm::ALL.map(Algorithm::name),
            ["scalar", "avx2-staged", "avx512-staged", "neon-staged"]
        );
        assert_eq!(TunnelKind::ALL.map(TunnelKind::name), ["vxlan", "geneve", "gtpu", "gre", "erspan"]);
        assert_eq!(
            Command::ALL.map(Command::name),
            ["add", "modify", "modify_strict", "delete", "delete_strict"]
        );
    }

    /// They are in reports and in the counters that people watch.
    #[test]
    fn reasons_stay_as_they_are() {
        use crate::packet::Malformed;
        use crate::tunnel::Refused;

        assert_eq!(
            Malformed::ALL.map(Malformed::name),
            [
                "ethernet-truncated",
                "vlan-truncated",
                "mpls-truncated",
                "nsh-truncated",
                "nsh-format",
                "arp-truncated",
                "arp-format",
                "ipv4-truncated",
                "ipv4-version",
                "ipv4-header-length",
                "ipv4-total-length",
                "ipv6-truncated",
                "ipv6-version",
                "ipv6-payload-length",
                "ipv6-extension-truncated",
                "ipv6-extension-limit",
                "tcp-truncated",
                "tcp-header-length",
                "udp-truncated",
                "udp-length",
                "sctp-truncated",
                "icmp-truncated",
                "icmpv6-truncated",
                "neighbour-discovery",
                "tunnel-truncated",
                "tunnel-format",
                "not-captured",
            ]
        );
        assert_eq!(
            Refused::ALL.map(Refused::name),
            [
                "ipv4-checksum",
                "udp-checksum",
                "udp-checksum-missing",
                "tunnel-truncated",
                "vxlan-flags",
                "geneve-version",
                "geneve-option-length",
                "geneve-critical-option",
                "geneve-control",
                "gtpu-version",
                "gtpu-signalling",
                "gtpu-length",
                "gtpu-extension-length",
                "gtpu-extension",
                "gre-format",
                "erspan-format",
                "gre-checksum",
                "inner-protocol",
                "ecn-not-capable",
                "unknown-endpoint",
            ]
        );
        for (name, shown) in Refused::ALL.map(|reason| (reason.name(), reason.to_string())) {
            assert_eq!(name, shown);
        }
    }
}
