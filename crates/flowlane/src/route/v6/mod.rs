#![doc = include_str!("README.md")]

pub mod compact;

mod hops;
mod pool;

#[cfg(test)]
mod testing;
