//! The switch against others that do not share its code: Open vSwitch, and a model made of the standards.

mod actions;
mod against_model;
mod clients;
mod connections;
mod derived;
mod differences;
mod differential;
mod examples;
mod flows;
mod mirrors;
mod model;
mod multicast;
mod ovn;
mod ovs;
mod packets;
mod rules;
mod selects;
mod shape;
mod shorter;
mod switch;
mod types;
mod vlans;
