//! The versions of OpenFlow.

/// A version of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// OpenFlow 1.0, with Nicira's extensions.
    OpenFlow10,
    /// OpenFlow 1.3.
    OpenFlow13,
    /// OpenFlow 1.4.
    OpenFlow14,
    /// OpenFlow 1.5.
    OpenFlow15,
}

impl Version {
    /// All of them, ascending.
    pub const ALL: [Self; 4] = [Self::OpenFlow10, Self::OpenFlow13, Self::OpenFlow14, Self::OpenFlow15];

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::OpenFlow10 => 1,
            Self::OpenFlow13 => 4,
            Self::OpenFlow14 => 5,
            Self::OpenFlow15 => 6,
        }
    }

    /// Returns the version of this number on the wire.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The name, as `ovs-vsctl` has it for `protocols` and `ovs-ofctl` for `-O`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenFlow10 => "OpenFlow10",
            Self::OpenFlow13 => "OpenFlow13",
            Self::OpenFlow14 => "OpenFlow14",
            Self::OpenFlow15 => "OpenFlow15",
        }
    }

    /// The bit in a bitmap of versions ([`Hello::versions`](crate::message::Hello::versions)).
    pub const fn bit(self) -> u32 {
        1 << self.number()
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_numbers() {
        for version in Version::ALL {
            assert_eq!(Version::of_number(version.number()), Some(version));
        }
        assert_eq!(Version::of_number(2), None);
    }
}
