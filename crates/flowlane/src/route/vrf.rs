//! Several tables side by side: virtual routing and forwarding instances.
//!
//! A [`Vrfs`] holds tables of any kind by number and by name, up to a fixed number of them. Lookups name a table for
//! each address: [`lookup_batch`] takes the addresses of a table together, so that each table sees batches:
//!
//! ```text
//! lanes      0  1  2  3  4  5  6  7
//! VRF        3  3  7  3  7  3  3  3        one table for all lanes: looked up where they stand
//!            └──┴─────┴─────┴──┴──┘ batch of 6 in table 3, then batch of 2 in table 7, answers put back
//! ```
//!
//! *Cost*: beside the lookups a comparison of 64 numbers for each table that occurs among 64 lanes, and moving the
//! addresses and answers of lanes where several do.

use std::collections::HashMap;

use super::Address;

/// Lanes that are sorted by table at a time.
const LANES: usize = 64;

/// The number of a table, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VrfId(pub u32);

/// A table that was not added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VrfError {
    /// No number is left.
    #[error("all {0} tables are in use; remove one, or allow more")]
    Full(usize),
    /// The name is in use.
    #[error("there is a table `{0}` already; take another name")]
    Named(String),
}

/// Tables by number and by name.
#[derive(Clone, Debug)]
pub struct Vrfs<T> {
    tables: Vec<Option<(Box<str>, T)>>,
    numbers: HashMap<Box<str>, VrfId>,
    tables_max: usize,
}

impl<T> Vrfs<T> {
    /// No tables yet, and room for so many.
    pub fn new(tables_max: usize) -> Self {
        Self { tables: Vec::new(), numbers: HashMap::new(), tables_max: tables_max.min(u32::MAX as usize) }
    }

    /// Adds a table; returns its number, the least that is free.
    ///
    /// # Errors
    /// Where there is no room, or another table has the name.
    pub fn add(&mut self, name: &str, table: T) -> Result<VrfId, VrfError> {
        if self.numbers.contains_key(name) {
            return Err(VrfError::Named(name.to_owned()));
        }
        let free = self.tables.iter().position(Option::is_none).unwrap_or(self.tables.len());
        if free >= self.tables_max {
            return Err(VrfError::Full(self.tables_max));
        }
        if free == self.tables.len() {
            self.tables.push(None);
        }
        self.tables[free] = Some((name.into(), table));
        let id = VrfId(free as u32);
        self.numbers.insert(name.into(), id);
        Ok(id)
    }

    /// Removes a table. Its number is given to one added later: nothing must name it any longer.
    pub fn remove(&mut self, id: VrfId) -> Option<T> {
        let (name, table) = self.tables.get_mut(id.0 as usize)?.take()?;
        self.numbers.remove(&name);
        Some(table)
    }

    /// The number of the table with this name.
    pub fn id(&self, name: &str) -> Option<VrfId> {
        self.numbers.get(name).copied()
    }

    /// A table.
    pub fn get(&self, id: VrfId) -> Option<&T> {
        self.tables.get(id.0 as usize)?.as_ref().map(|(_, table)| table)
    }

    /// A table, to be changed.
    pub fn get_mut(&mut self, id: VrfId) -> Option<&mut T> {
        self.tables.get_mut(id.0 as usize)?.as_mut().map(|(_, table)| table)
    }

    /// Number, name and table of each, by number.
    pub fn iter(&self) -> impl Iterator<Item = (VrfId, &str, &T)> {
        self.tables.iter().enumerate().filter_map(|(i, slot)| {
            let (name, table) = slot.as_ref()?;
            Some((VrfId(i as u32), &**name, table))
        })
    }

    /// How many tables there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Looks each address up in the table that `vrfs` names for it. `lookup` does a batch of at most 64 in one table:
/// number, addresses, room for the next hops.
///
/// # Panics
/// Where the three slices differ in length.
pub fn lookup_batch<A: Address>(
    vrfs: &[VrfId],
    addresses: &[A],
    next_hops: &mut [u64],
    mut lookup: impl FnMut(VrfId, &[A], &mut [u64]),
) {
    assert!(vrfs.len() == addresses.len() && vrfs.len() == next_hops.len());
    let lanes = vrfs.chunks(LANES).zip(addresses.chunks(LANES)).zip(next_hops.chunks_mut(LANES));
    for ((vrfs, addresses), next_hops) in lanes {
        let lanes_of = |vrf: VrfId| (0..).zip(vrfs).fold(0, |m, (i, v)| m | u64::from(*v == vrf) << i);
        let mut left = u64::MAX >> (LANES - vrfs.len());
        while left != 0 {
            let vrf = vrfs[left.trailing_zeros() as usize];
            let these = lanes_of(vrf);
            if these.count_ones() as usize == vrfs.len() {
                lookup(vrf, addresses, next_hops);
                break;
            }
            sorted_lookup(these, addresses, next_hops, |addresses, hops| lookup(vrf, addresses, hops));
            left &= !these;
        }
    }
}

/// Looks up the lanes of `these` together.
fn sorted_lookup<A: Address>(
    these: u64,
    addresses: &[A],
    next_hops: &mut [u64],
    lookup: impl FnOnce(&[A], &mut [u64]),
) {
    let (mut packed, mut found, mut count) = ([A::ZERO; LANES], [0; LANES], 0);
    let lanes =
        || std::iter::successors(Some(these), |m| Some(m & m.wrapping_sub(1))).take_while(|m| *m != 0);
    for lane in lanes().map(u64::trailing_zeros) {
        packed[count] = addresses[lane as usize];
        count += 1;
    }
    lookup(&packed[..count], &mut found[..count]);
    for (lane, next_hop) in lanes().map(u64::trailing_zeros).zip(found) {
        next_hops[lane as usize] = next_hop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;
    use crate::route::{Prefix, Rib};

    #[test]
    fn tables_are_found_by_number_and_by_name_up_to_a_limit() {
        let mut vrfs = Vrfs::new(2);
        let red = vrfs.add("red", 1).unwrap();
        let blue = vrfs.add("blue", 2).unwrap();
        assert_eq!((red, blue), (VrfId(0), VrfId(1)));
        assert_eq!(vrfs.add("red", 3), Err(VrfError::Named("red".into())));
        assert_eq!(vrfs.add("green", 3), Err(VrfError::Full(2)));
        *vrfs.get_mut(blue).unwrap() += 10;
        assert_eq!((vrfs.id("blue"), vrfs.get(blue)), (Some(blue), Some(&12)));
        assert_eq!(vrfs.remove(red), Some(1));
        assert_eq!(vrfs.remove(red), None);
        assert_eq!((vrfs.id("red"), vrfs.get(red), vrfs.len()), (None, None, 1));
        assert_eq!(vrfs.add("green", 3), Ok(VrfId(0)));
        let all: Vec<_> = vrfs.iter().collect();
        assert_eq!(all, [(VrfId(0), "green", &3), (VrfId(1), "blue", &12)]);
    }

    #[test]
    fn each_address_is_looked_up_in_its_own_table() {
        let mut vrfs: Vrfs<Rib<u32>> = Vrfs::new(8);
        for i in 0..5u64 {
            let mut rib = Rib::new(10);
            rib.insert(Prefix::ALL, 10 * i + 1).unwrap();
            rib.insert("128.0.0.0/1".parse().unwrap(), 10 * i + 2).unwrap();
            vrfs.add(&i.to_string(), rib).unwrap();
        }
        let mut random = Random::new(1);
        for len in 0..200 {
            let tables = 1 + random.below(6);
            let ids: Vec<VrfId> = (0..len).map(|_| VrfId(random.below(tables) as u32)).collect();
            let addresses: Vec<u32> = (0..len).map(|_| random.bits() as u32).collect();
            let mut next_hops = vec![u64::MAX; len];
            lookup_batch(&ids, &addresses, &mut next_hops, |vrf, addresses, next_hops| {
                for (address, next_hop) in addresses.iter().zip(next_hops) {
                    *next_hop = vrfs.get(vrf).and_then(|rib| rib.lookup(*address)).map_or(0, |(_, hop)| hop);
                }
            });
            for ((id, address), next_hop) in ids.iter().zip(&addresses).zip(&next_hops) {
                let expected =
                    if id.0 == 5 { 0 } else { 10 * u64::from(id.0) + 1 + u64::from(address >> 31) };
                assert_eq!(*next_hop, expected, "{len} lanes, {id:?}, {address:#x}");
            }
        }
    }
}
