//! State that packets change and other packets see.

pub mod bfd;
pub mod bond;
pub mod bytes;
pub mod conntrack;
pub mod fdb;
pub mod lacp;
pub mod meter;
pub mod mirror;
pub mod multicast;
pub mod policer;
pub mod router;
pub mod rstp;
pub mod vlan;
