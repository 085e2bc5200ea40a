//! Where multicast snooping differs from that of Open vSwitch 3.1: a table of `docs/differences.md`.

/// The differences: who is right and why, and how it is kept out of the comparison.
pub(crate) const DIFFERENCES: [(&str, &str, &str); 7] = [
    (
        "a port with listeners that becomes the port of a router: Open vSwitch sends packets there twice until the listeners are \
         forgotten",
        "Flowlane: RFC 4541 §2.1.2 names ports, not how often",
        "copies of a frame count once",
    ),
    (
        "ports with `mcast-snooping-flood` and `mcast-snooping-flood-reports`: Open vSwitch sends packets there that are in VLANs \
         which the port does not carry",
        "Flowlane: no frame gets into another VLAN",
        "such ports have no VLAN settings",
    ),
    (
        "a group whose last listener has left: Open vSwitch has it without listeners, and floods nothing, until it is the one that \
         was reported longest ago",
        "neither: RFC 4541 does not say; Flowlane has no groups without listeners",
        "no packets for such groups",
    ),
    (
        "records of IGMPv3 and MLDv2: behind one of an unknown type Open vSwitch reads no more of IGMPv3, and it takes the length of \
         auxiliary data for bytes",
        "Flowlane: RFC 3376 §4.2.6, these are words of 32 bits, and §4.2.12, unknown records are ignored",
        "no such records",
    ),
    (
        "reports of addresses that are no groups: Open vSwitch keeps them",
        "Flowlane: they would take the room of groups",
        "no such reports",
    ),
    (
        "messages of a controller (packet-out): Open vSwitch learns addresses from these, but no listeners",
        "neither: nothing says; Flowlane learns both",
        "no controller",
    ),
    (
        "a report of MLDv1 that ends in front of its address, with a right checksum: ovs-vswitchd ends by a signal",
        "Flowlane ignores it; a defect of Open vSwitch",
        "no such messages",
    ),
];
