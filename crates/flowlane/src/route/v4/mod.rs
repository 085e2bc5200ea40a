#![doc = include_str!("README.md")]

pub mod compact;
pub mod dir24;

#[cfg(test)]
mod tests;
