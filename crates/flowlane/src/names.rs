//! Kinds of things that have names: on the command line, in files, in reports.
//!
//! An enum derives its names, their reading and the list of its variants ([`strum`]); a name that is none is an
//! [`UnknownName`], whichever kind it was to be.

use std::fmt;

use strum::VariantArray;

/// A kind of things that are read by name.
pub trait Named: VariantArray + Copy + Into<&'static str> {
    /// What they are: "there is no *variant* of this name".
    const KIND: &'static str;
}

/// All things of a kind, in the order of their declaration. It does not compile where they are not `N`.
pub const fn all<T: VariantArray + Copy, const N: usize>() -> [T; N] {
    assert!(T::VARIANTS.len() == N);
    *T::VARIANTS.first_chunk().expect("there are as many")
}

/// A name that nothing of its kind has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no {kind} `{name}`; there are {}", Listed(.names))]
pub struct UnknownName {
    /// What it was to be the name of.
    pub kind: &'static str,
    /// As given.
    pub name: String,
    /// The names that there are.
    pub names: Vec<&'static str>,
}

impl UnknownName {
    /// That no `T` has this name.
    pub fn of<T: Named>(name: &str) -> Self {
        Self { kind: T::KIND, name: name.to_owned(), names: T::VARIANTS.iter().map(|&v| v.into()).collect() }
    }
}

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

    #[test]
    fn unknown_names_are_answered_with_those_there_are() {
        let error = "avx9".parse::<Variant>().expect_err("no such variant");
        assert_eq!(error.to_string(), "there is no variant `avx9`; there are scalar, sse42, avx2 and avx512");
        let error = "3".parse::<HopSize>().expect_err("no such size");
        assert_eq!(error.to_string(), "there is no size of next hops `3`; there are 1, 2, 4 and 8");
    }

    /// They stand in files and scripts.
    #[test]
    fn names_stay_as_they_are() {
        use crate::choices::{Family, SizeClass};
        use crate::generate::Profile;
        use crate::packet::Malformed;
        use crate::route::engine::Engine;

        assert_eq!(Variant::ALL.map(Variant::name), ["scalar", "sse42", "avx2", "avx512"]);
        assert_eq!(Engine::ALL.map(Engine::name), ["dir24", "trie", "compact"]);
        assert_eq!(Profile::ALL.map(Profile::name), ["acl", "fw", "ipc", "openflow"]);
        assert_eq!(SizeClass::ALL.map(|size| size.to_string()), ["l1", "l2", "l3", "memory"]);
        assert_eq!(
            Family::ALL.map(Family::name),
            ["zen5", "zen4", "sapphire-rapids", "ice-lake", "avx2", "sse4.2", "any"]
        );
        assert_eq!(Malformed::ALL.len(), 24);
        assert_eq!(Malformed::Ipv4HeaderLength.name(), "ipv4-header-length");
        assert_eq!(Malformed::Icmpv6Truncated.to_string(), "icmpv6-truncated");
    }
}
