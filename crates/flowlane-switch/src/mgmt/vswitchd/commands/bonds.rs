//! The commands about bonds: `bond/*` and `lacp/*`.

use std::collections::BTreeMap;

use flowlane_ovsdb::Uuid;

use super::lines;
use crate::mgmt::setup::read_mac;
use crate::mgmt::vswitchd::bridge::Bridge;
use crate::state::bond::source_hash;

const NO_BOND: &str = "no such bond";
const NO_LACP: &str = "no such lacp object";

/// Executes a command about bonds, if it is one.
pub(super) fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
) -> Option<Result<String, String>> {
    let bonds = || bridges.values().map(Bridge::bonds);
    let one = arguments.first().copied();
    // The answer of the bridge that has the bond of a name.
    let first = |answer: Option<Result<String, String>>| answer.unwrap_or_else(|| Err(NO_BOND.to_owned()));
    Some(match (command, arguments) {
        ("bond/list", _) => {
            let title = "bond\ttype\trecircID\tmembers".to_owned();
            Ok(lines(std::iter::once(title).chain(bonds().flat_map(|bonds| bonds.list()))))
        }
        ("bond/show", _) => {
            let describe = |bridge: &Bridge| bridge.bonds().describe(one, bridge.served());
            joined(one, bridges.values().filter_map(describe), NO_BOND)
        }
        ("lacp/show", _) => joined(one, bonds().filter_map(|bonds| bonds.describe_lacp(one)), NO_LACP),
        ("lacp/show-stats", _) => {
            joined(one, bonds().filter_map(|bonds| bonds.describe_lacp_counters(one)), NO_LACP)
        }
        ("bond/set-active-member", [bond, member]) => {
            first(bonds().find_map(|bonds| bonds.set_active(bond, member)))
        }
        ("bond/enable-member" | "bond/disable-member", [bond, member]) => {
            let is_enabled = command == "bond/enable-member";
            first(bonds().find_map(|bonds| bonds.set_enabled(bond, member, is_enabled)))
        }
        ("bond/migrate", [bond, bucket, member]) => {
            first(bonds().find_map(|bonds| bonds.migrate(bond, bucket, member)))
        }
        ("bond/hash", [mac, rest @ ..]) => hash(mac, rest),
        _ => return None,
    })
}

/// The descriptions of all, or of one that has to be there.
fn joined(
    one: Option<&str>,
    descriptions: impl Iterator<Item = String>,
    problem: &str,
) -> Result<String, String> {
    let all: Vec<String> = descriptions.collect();
    match one.is_some() && all.is_empty() {
        true => Err(problem.to_owned()),
        false => Ok(all.concat()),
    }
}

/// The bucket of a source address, with a VLAN and a basis.
fn hash(mac: &str, rest: &[&str]) -> Result<String, String> {
    let [a, b, c, d, e, f] = read_mac(mac).ok_or_else(|| "invalid mac".to_owned())?;
    let number = |at: usize, problem: &str| match rest.get(at) {
        Some(text) => text.parse::<u32>().map_err(|_| problem.to_owned()),
        None => Ok(0),
    };
    let (vlan, basis) = (number(0, "invalid vlan")?, number(1, "invalid basis")?);
    let hash = source_hash(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), vlan as u16, basis);
    Ok(format!("{}\n", hash as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_open_vswitch() {
        for (arguments, expected) in [
            (&["02:00:00:00:00:01"][..], Ok("38\n")),
            (&["02:00:00:00:00:01", "5", "7"], Ok("18\n")),
            (&["02:00:00:00:00:01", "5000"], Ok("141\n")),
            (&["zz"], Err("invalid mac")),
            (&["02:00:00:00:00:01", "x"], Err("invalid vlan")),
            (&["02:00:00:00:00:01", "5", "x"], Err("invalid basis")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(execute("bond/hash", arguments, &BTreeMap::new()), Some(expected), "{arguments:?}");
        }
    }
}
