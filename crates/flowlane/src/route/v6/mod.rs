#![doc = include_str!("README.md")]

pub mod compact;
pub mod trie;

mod hops;
mod pool;

#[cfg(test)]
mod testing;
