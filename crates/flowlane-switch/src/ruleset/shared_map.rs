//! A map by number whose copies share their parts.
//!
//! The copies of a ruleset have one map of groups and one of meters, of which a change concerns one entry. The entries lie in
//! chunks, in order: a change copies one chunk and the list of chunks, which takes about the square root of the time of a copy of
//! all. 10,000 meters that come one after the other would otherwise cost 50 million copies of entries.

use std::sync::Arc;

/// The most entries of a chunk. A full one is split.
const CHUNK_MAX: usize = 128;

/// Entries in the order of their numbers.
type Chunk<V> = Vec<(u32, V)>;

/// A map by number.
#[derive(Clone, Debug)]
pub struct SharedMap<V> {
    /// None is empty.
    chunks: Arc<Vec<Arc<Chunk<V>>>>,
    len: usize,
}

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<V: Clone> SharedMap<V> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunk that a number belongs to.
    fn chunk_of(&self, number: u32) -> usize {
        self.chunks.partition_point(|chunk| chunk[0].0 <= number).saturating_sub(1)
    }

    /// Returns the value of a number.
    pub fn get(&self, number: u32) -> Option<&V> {
        let chunk = self.chunks.get(self.chunk_of(number))?;
        let place = chunk.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&chunk[place].1)
    }

    /// Returns all entries, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(number, value)| (*number, value))
    }

    /// Adds an entry, or replaces that of its number.
    pub fn insert(&mut self, number: u32, value: V) {
        let at = self.chunk_of(number);
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut chunks[at]);
        match chunk.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => chunk[place].1 = value,
            Err(place) => {
                chunk.insert(place, (number, value));
                self.len += 1;
            }
        }
        if chunk.len() > CHUNK_MAX {
            let upper = chunk.split_off(CHUNK_MAX / 2);
            chunks.insert(at + 1, Arc::new(upper));
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u32) {
        if self.get(number).is_none() {
            return;
        }
        let at = self.chunk_of(number);
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[at]);
        chunk.retain(|(one, _)| *one != number);
        self.len -= 1;
        if chunk.is_empty() {
            chunks.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_shared_map_is_a_map_whose_copies_stay_as_they_are() {
        let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
        let mut seed = 1_u32;
        for step in 0..20_000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = seed >> 22;
            let (copy, before) = (map.clone(), map.get(number).copied());
            if seed & 3 == 0 {
                map.remove(number);
                model.remove(&number);
            } else {
                map.insert(number, step);
                model.insert(number, step);
            }
            assert_eq!(copy.get(number).copied(), before, "step {step}");
            assert_eq!((map.len(), map.get(number)), (model.len(), model.get(&number)), "step {step}");
        }
        assert!(map.iter().eq(model.iter().map(|(number, value)| (*number, value))));
        model.keys().for_each(|number| map.remove(*number));
        assert!(map.is_empty() && map.iter().next().is_none());
    }
}
