//! Routes as text that can be read again.

use std::net::IpAddr;

use flowlane::route::read::{AnyPrefix, Gateway, NextHop};

/// Returns a route as `ip route` prints it.
pub(super) fn of_route(prefix: AnyPrefix, hop: &NextHop) -> String {
    match hop {
        NextHop::Via(gateway) => format!("{prefix}{}", of_gateway(prefix, gateway)),
        NextHop::Group(members) => {
            let member = |(gateway, weight): &(Gateway, u32)| {
                format!("\n\tnexthop{} weight {weight}", of_gateway(prefix, gateway))
            };
            prefix.to_string() + &members.iter().map(member).collect::<String>()
        }
        NextHop::Object(_) => format!("{prefix} {hop}"),
        // The other kinds are words in front.
        _ => format!("{hop} {prefix}"),
    }
}

fn of_gateway(prefix: AnyPrefix, gateway: &Gateway) -> String {
    let mut text = String::new();
    if let Some(encapsulation) = &gateway.encapsulation {
        text += &format!(" encap {encapsulation}");
    }
    match (gateway.address, prefix) {
        (Some(address @ IpAddr::V6(_)), AnyPrefix::V4(_)) => text += &format!(" via inet6 {address}"),
        (Some(address @ IpAddr::V4(_)), AnyPrefix::V6(_)) => text += &format!(" via inet {address}"),
        (Some(address), _) => text += &format!(" via {address}"),
        (None, _) => {}
    }
    if let Some(device) = &gateway.device {
        text += &format!(" dev {device}");
    }
    text
}
