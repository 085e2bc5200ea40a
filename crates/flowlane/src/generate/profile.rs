//! The kinds of rule sets, by name.

use crate::named_enum::{self, Named, UnknownName};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A kind of rule set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Profile>)]
#[non_exhaustive]
pub enum Profile {
    /// An access list: long prefixes on both sides, exact destination ports, TCP mostly.
    Acl,
    /// A firewall: one side wild in most rules, source ports and ranges too.
    Fw,
    /// IP chains: a mixture.
    Ipc,
    /// The twelve fields of OpenFlow 1.0.
    OpenFlow,
    /// A firewall of long lists: few pairs of prefixes, each with many overlapping ranges of both ports.
    Ranges,
    /// Security groups of a cloud: few address blocks times many ports.
    Groups,
    /// Hosts to be dropped: source addresses and nothing else.
    Blocklist,
    /// An access list of IPv6: allocations, sites, subnets and hosts, with the ports of `acl`.
    Acl6,
    /// An access list of IPv4 and IPv6: three of five rules as in `acl`, two as in `acl6`.
    Mixed,
    /// A software-defined network with very many masks: all lengths of both prefixes, equally often.
    Masks,
    /// Prefixes of all lengths, nested in one another on both sides.
    Nested,
    /// Rules of which no two match a common packet.
    Disjoint,
    /// Rules that are wild in nearly everything, and overlap nearly all others.
    Overlap,
    /// Rules that every cut copies: long prefixes in one dimension, wild in the other.
    Cuts,
    /// Rules of the same addresses and protocol, which differ in nothing but port ranges.
    Chains,
}

impl Named for Profile {
    const KIND: &'static str = "profile";
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 15] = named_enum::all();

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The share of rules that is nested on purpose where the caller does not say. Only profiles that are
    /// drawn shape by shape nest rules on purpose.
    pub(super) fn overlap(self) -> f64 {
        match self {
            Profile::Acl => 0.2,
            Profile::Fw => 0.3,
            Profile::Ipc => 0.25,
            Profile::OpenFlow => 0.1,
            _ => 0.0,
        }
    }

    /// The share of rules that drop.
    pub(super) fn drops(self) -> f64 {
        match self {
            Profile::Blocklist => 1.0,
            Profile::Fw | Profile::Ranges => 0.5,
            Profile::OpenFlow | Profile::Masks => 0.2,
            _ => 0.0,
        }
    }
}
