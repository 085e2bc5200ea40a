//! Checks of the numbers and names in a configuration.

use std::collections::BTreeSet;

use flowlane::rule::action::PortNo;

use super::{limits, qos, table_numbers, vlans, workers};
use crate::control::BANDS_MAX;
use crate::mgmt::config::{ByName, Config, ConfigError, KeyPath, Source};
use crate::state::meter::CONTROLLER_METER;

/// Checks that numbers are in their ranges and not in use twice.
pub(super) fn check(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let switch = KeyPath::of("switch");
    if !(1..=64).contains(&config.switch.burst) {
        let message = format!("a burst of {} frames", config.switch.burst);
        return Err(source.error(&switch.key("burst"), message, "take 1 to 64; 64 is the default"));
    }
    if let Some(variant) = config.switch.variant.map(|ByName(variant)| variant)
        && !variant.available()
    {
        let message =
            format!("variant {variant} cannot be used: this CPU lacks it, or --max-simd forbids it");
        let help = "`flowlane cpu` says which can; leave it out to take the fastest";
        let error = source.error(&switch.key("variant"), message, help);
        return Err(ConfigError { environment: true, ..error });
    }
    limits::check(config, source)?;
    workers::check(config, source)?;
    ports(config, source)?;
    vlans::check(config, source)?;
    qos::check(config, source)?;
    tables(config, source)?;
    zones(config, source)?;
    for (n, meter) in config.meter.iter().enumerate() {
        if meter.rate_kbps.is_some() == meter.rate_pps.is_some() {
            let message = format!("meter {} needs one rate", meter.number);
            let help = "give either rate_kbps or rate_pps";
            return Err(source.error(&KeyPath::section("meter", n), message, help));
        }
        let remarks = meter.remark.is_some() || meter.band.iter().any(|band| band.remark.is_some());
        if meter.number == CONTROLLER_METER && remarks {
            let message = "the meter of packets for controllers cannot remark them";
            let help = "leave `remark` out: it drops packets beyond its rate";
            return Err(source.error(&KeyPath::section("meter", n), message, help));
        }
        if meter.band.len() >= BANDS_MAX {
            let message = format!("meter {} has {} bands", meter.number, meter.band.len() + 1);
            let help =
                format!("give {} sections [[meter.band]] at most: its own rate is a band", BANDS_MAX - 1);
            return Err(source.error(&KeyPath::section("meter", n), message, &help));
        }
    }
    Ok(())
}

/// Checks the numbers and names of ports.
pub(super) fn ports(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (n, port) in config.port.iter().enumerate() {
        let at = KeyPath::section("port", n);
        if !(1..=PortNo::MAX.0).contains(&port.number) && port.number != PortNo::LOCAL.0 {
            let message = format!("port number {} is out of range", port.number);
            let help = "take 1 to 65279, or 65534 for LOCAL, the port of the switch's own host";
            return Err(source.error(&at.key("number"), message, help));
        }
        if !numbers.insert(port.number) {
            let message = format!("two ports have the number {}", port.number);
            return Err(source.error(&at.key("number"), message, "give each its own"));
        }
        let name = port.name().into_owned();
        if !names.insert(name.clone()) {
            let message = format!("two ports are called `{name}`");
            return Err(source.error(&at.key("name"), message, "give each its own name"));
        }
    }
    Ok(())
}

fn zones(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let mut numbers = BTreeSet::new();
    for (n, zone) in config.connections.zone.iter().enumerate() {
        let at = KeyPath::of("connections").key("zone").item(n);
        if !numbers.insert(zone.number) {
            let message = format!("two zones have the number {}", zone.number);
            return Err(source.error(
                &at.key("number"),
                message,
                "put the settings of a zone into one section",
            ));
        }
        if zone.connections_max.is_none() && zone.timeouts.is_empty() {
            let message = format!("zone {} has no settings of its own", zone.number);
            return Err(source.error(&at, message, "give it connections_max or timeouts, or leave it out"));
        }
    }
    Ok(())
}

fn tables(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let mut numbers = BTreeSet::new();
    for (number, at) in table_numbers(config) {
        if !numbers.insert(number) || number == u8::MAX {
            let message = format!("table number {number} is in use or out of range");
            return Err(source.error(&at.key("number"), message, "take 0 to 254, each once"));
        }
    }
    if numbers.is_empty() {
        let help = "add a [[table]] with number = 0";
        return Err(source.error(&KeyPath::default(), "there is no table", help));
    }
    if !numbers.contains(&0) {
        let (_, first) = table_numbers(config).next().expect("there is a table");
        let message = "packets enter at table 0, which is not there";
        return Err(source.error(&first.key("number"), message, "number one 0"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::mgmt::setup::{Setup, SetupError};

    #[test]
    fn a_zone_has_one_section_with_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("switch.toml");
        let wrong = |zones: &str| {
            let text = format!("[[table]]\nnumber = 0\n{zones}");
            std::fs::write(&file, &text).unwrap();
            match Setup::read(&file) {
                Err(SetupError::Config(error)) => (error.message, text[error.span.unwrap()].to_owned()),
                _ => panic!("{text} is wrong"),
            }
        };
        let section = "[[connections.zone]]\nnumber = 5\n";
        let (message, _) = wrong(section);
        assert_eq!(message, "zone 5 has no settings of its own");
        let twice =
            format!("{section}connections_max = 1\n{}timeouts.udp_first = 9\n", section.replace('5', "0x5"));
        assert_eq!(wrong(&twice), ("two zones have the number 5".to_owned(), "0x5".to_owned()));
        let (message, place) = wrong(&format!("{section}timeouts = {{ tcp_sent = 9 }}\n"));
        assert!(message.contains("tcp_sent") && place == "tcp_sent", "{message}: {place}");
    }
}
