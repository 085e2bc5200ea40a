//! The set of lists that a rule is in.

use super::{CATEGORIES_MAX, Error};

/// The categories that a rule is in: at least one of 0 to [`CATEGORIES_MAX`] − 1.
///
/// ```
/// use flowlane::Categories;
///
/// let both = Categories::of([0, 3])?;
/// assert_eq!(both.bits(), 0b1001);
/// assert!(both.contains(3) && !both.contains(1));
/// assert_eq!(Categories::from_bits(0b1001)?, both);
/// assert!(Categories::of([16]).is_err() && Categories::from_bits(0).is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Categories(u16);

impl Categories {
    /// Category 0 alone, which rules are in where none is named.
    pub const FIRST: Self = Self(1);

    /// Returns the set of these categories.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): there is none, or one is not below [`CATEGORIES_MAX`].
    pub fn of(categories: impl IntoIterator<Item = usize>) -> Result<Self, Error> {
        let mut bits = 0;
        for category in categories {
            if category >= CATEGORIES_MAX {
                return Err(Error::input(format!(
                    "category {category}; they are 0 to {}",
                    CATEGORIES_MAX - 1
                )));
            }
            bits |= 1 << category;
        }
        Self::from_bits(bits)
    }

    /// Returns the set of the categories whose bits are set: bit 0 for category 0.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): no bit is set.
    pub fn from_bits(bits: u16) -> Result<Self, Error> {
        match bits {
            0 => {
                Err(Error::input(format!("a rule is in 1 to {CATEGORIES_MAX} categories; name at least one")))
            }
            bits => Ok(Self(bits)),
        }
    }

    /// Returns a bit for each category: bit 0 for category 0.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether a category is in the set.
    pub fn contains(self, category: usize) -> bool {
        category < CATEGORIES_MAX && self.0 >> category & 1 == 1
    }
}

impl Default for Categories {
    /// Returns [`FIRST`](Self::FIRST).
    fn default() -> Self {
        Self::FIRST
    }
}
