//! Messages for ports that the system refuses to open for want of permission.

use rustix::thread::CapabilitySet;

/// A capability that a port needs, its name, and what for.
pub(super) type Needed = (CapabilitySet, &'static str, &'static str);

pub(super) const SOCKETS: Needed = (CapabilitySet::NET_RAW, "cap_net_raw", "to open sockets that see frames");
pub(super) const INTERFACES: Needed = (CapabilitySet::NET_ADMIN, "cap_net_admin", "to change interfaces");
pub(super) const PROGRAMS: Needed = (CapabilitySet::BPF, "cap_bpf", "to load a program for an interface");

/// Which of these capabilities are missing for `what`, and how to give them.
pub(super) fn refused(what: &str, needed: &[Needed]) -> String {
    // Where the system does not say, none is there.
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let names = needed.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(",");
    let missing = needed.iter().filter(|(capability, ..)| !has.contains(*capability));
    let missing: Vec<String> = missing.map(|(_, name, why)| format!("{name} ({why})")).collect();
    if missing.is_empty() {
        return format!(
            "the system refuses {what} although this process has {names}: so does the policy of a container, or a security module"
        );
    }
    let missing = missing.join(", ");
    format!(
        "{what}: permission is missing: {missing}; run as root, or allow it with `setcap {names}+ep` on the flowlane binary"
    )
}
