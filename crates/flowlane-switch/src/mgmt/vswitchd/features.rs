//! The abilities of the datapath, by which clients choose actions: names and values as Open vSwitch 3.1 has them.
//!
//! OVN commits connections with `nat(src)`, which moves ports that are in use, where `ct_zero_snat` says that it may.

/// An ability: its title in `dpif/show-dp-features`, if it is there, its key in the column `capabilities`, and its value.
struct Feature {
    title: Option<&'static str>,
    key: &'static str,
    /// A number; none: the datapath has it.
    number: Option<&'static str>,
}

const fn has(title: &'static str, key: &'static str) -> Feature {
    Feature { title: Some(title), key, number: None }
}

/// All of them, in the order of `dpif/show-dp-features`.
const FEATURES: [Feature; 17] = [
    has("Masked set action", "masked_set_action"),
    has("Truncate action", "trunc"),
    has("Clone action", "clone"),
    has("Conntrack clear", "ct_clear"),
    has("Check pkt length action", "check_pkt_len"),
    has("Conntrack all-zero IP SNAT", "ct_zero_snat"),
    Feature { title: Some("Max VLAN headers"), key: "max_vlan_headers", number: Some("2") },
    has("Recirc", "recirc"),
    has("CT state", "ct_state"),
    has("CT zone", "ct_zone"),
    has("CT mark", "ct_mark"),
    has("CT label", "ct_label"),
    has("CT state NAT", "ct_state_nat"),
    has("CT orig tuple", "ct_orig_tuple"),
    has("CT orig tuple for IPv6", "ct_orig_tuple6"),
    has("IPv6 ND Extension", "nd_ext"),
    Feature { title: None, key: "ct_flush", number: None },
];

/// The lines of `dpif/show-dp-features`.
pub(super) fn lines() -> impl Iterator<Item = String> {
    let line = |feature: &Feature| Some(format!("{}: {}", feature.title?, feature.number.unwrap_or("Yes")));
    FEATURES.iter().filter_map(line)
}

/// The pairs of the column `capabilities`.
pub(super) fn capabilities() -> impl Iterator<Item = (&'static str, &'static str)> {
    FEATURES.iter().map(|feature| (feature.key, feature.number.unwrap_or("true")))
}
