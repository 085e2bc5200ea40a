//! The commands about learned addresses: `fdb/*`.

use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::Uuid;

use super::{NO_BRIDGE, find, lines, one_or_all};
use crate::mgmt::rpc::RpcError;
use crate::mgmt::setup::read_mac;
use crate::mgmt::vswitchd::bridge::Bridge;

/// Executes a command about addresses, if it is one.
pub(super) fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
) -> Option<Result<String, String>> {
    Some(match (command, arguments) {
        ("fdb/show", [name]) => find(bridges, name, NO_BRIDGE).and_then(show),
        ("fdb/stats-show", [name]) => find(bridges, name, NO_BRIDGE).and_then(statistics),
        ("fdb/stats-clear", names) => one_or_all(bridges, names.first()).and_then(|bridges| {
            bridges.iter().try_for_each(|bridge| bridge.served().clear_fdb_counters()).map_err(text)?;
            Ok("statistics successfully cleared\n".to_owned())
        }),
        ("fdb/flush", names) => one_or_all(bridges, names.first()).and_then(|bridges| {
            bridges.iter().try_for_each(|bridge| bridge.served().flush_fdb()).map_err(text)?;
            Ok("table successfully flushed\n".to_owned())
        }),
        ("fdb/add", [name, port, vlan, mac]) => {
            find(bridges, name, NO_BRIDGE).and_then(|bridge| add(bridge, port, vlan, mac))
        }
        ("fdb/del", [name, vlan, mac]) => {
            find(bridges, name, NO_BRIDGE).and_then(|bridge| remove(bridge, vlan, mac))
        }
        _ => return None,
    })
}

fn text(error: RpcError) -> String {
    error.message
}

fn show(bridge: &Bridge) -> Result<String, String> {
    let mut all = vec![" port  VLAN  MAC                Age".to_owned()];
    for entry in bridge.served().fdb().map_err(text)? {
        let port = if entry.port == PortNo::LOCAL.0 { "LOCAL".to_owned() } else { entry.port.to_string() };
        let age = if entry.is_static { "static".to_owned() } else { format!("{:>3}", entry.age_s) };
        all.push(format!("{port:>5}  {:>4}  {}  {age}", entry.vlan, entry.mac));
    }
    Ok(lines(all))
}

fn statistics(bridge: &Bridge) -> Result<String, String> {
    let figures = bridge.served().fdb_figures().map_err(text)?;
    let fixed = bridge.served().fdb().map_err(text)?.iter().filter(|entry| entry.is_static).count();
    let counters = figures.counters;
    Ok(lines([
        format!("Statistics for bridge \"{}\":", bridge.name()),
        format!("  Current/maximum MAC entries in the table: {}/{}", figures.entries, figures.entries_max),
        format!("  Current static MAC entries in the table : {fixed}"),
        format!("  Total number of learned MAC entries     : {}", counters.learned),
        format!("  Total number of expired MAC entries     : {}", counters.aged),
        format!("  Total number of evicted MAC entries     : {}", counters.replaced),
        format!("  Total number of port moved MAC entries  : {}", counters.moved),
    ]))
}

fn mac_of(text: &str) -> Result<u64, String> {
    let [a, b, c, d, e, f] = read_mac(text).ok_or_else(|| "bad MAC address".to_owned())?;
    Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

fn vlan_of(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("bad VLAN {text}"))
}

fn add(bridge: &Bridge, port: &str, vlan: &str, mac: &str) -> Result<String, String> {
    let vlan = vlan_of(vlan)?;
    let mac = mac_of(mac)?;
    let opened = bridge.opened();
    let found = opened.iter().find(|(_, spec)| spec.name == port);
    // The words of Open vSwitch, by which its clients know the case.
    let (number, _) =
        found.ok_or_else(|| "software error, odp port is present but no ofp port".to_owned())?;
    bridge.served().add_static_address(mac, vlan, PortNo(*number)).map_err(text)?;
    Ok(String::new())
}

fn remove(bridge: &Bridge, vlan: &str, mac: &str) -> Result<String, String> {
    let (vlan, mac) = (vlan_of(vlan)?, mac_of(mac)?);
    match bridge.served().remove_static_address(mac, vlan).map_err(text)? {
        true => Ok(String::new()),
        false => Err("could not find static mac entry".to_owned()),
    }
}
