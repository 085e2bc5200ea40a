//! What `ovs-ofctl` prints of this switch otherwise than of Open vSwitch, and why. `clients.txt` names the commands.

/// The name of a difference, and why it remains.
pub(super) const DIFFERENCES: [(&str, &str); 13] = [
    ("dscp-remark", "Open vSwitch has no bands that raise the drop precedence (OpenFlow 1.3.5, 5.7.1)"),
    ("description", "the switch has another name and maker"),
    (
        "frags",
        "the ports of first fragments are always matched, as with nx-match; the setting is kept for its \
         connection, and has no effect",
    ),
    ("group-features", "fewer groups, and chains of groups are checked"),
    ("group-loop", "groups that lead to each other are refused with OFPGMFC_LOOP, as OpenFlow wants it"),
    ("hidden-table", "Open vSwitch has table 254 for itself and permits no access; here it does not exist"),
    ("local", "there is no port of the host"),
    (
        "lost-field",
        "Open vSwitch keeps a port without its protocol as a match of its own, which it does not print; OpenFlow 1.0 \
         ignores such a field",
    ),
    ("meter-features", "there are at most 65,536 meters"),
    ("option-space", "options of tunnels have 112 bytes, in the fields 0 to 6"),
    ("queue", "Open vSwitch's dummy ports have a queue 0; here no port has a queue"),
    ("slowpath", "there is no slow path that a meter could limit"),
    ("table-features", "fewer fields and actions are listed than rules may have"),
];
