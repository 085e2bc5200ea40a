//! The sizes in a configuration, and the most that each may be: what cannot be had is refused when the configuration is
//! read, and not where memory is asked for, since nothing can go on there.
//!
//! Two kinds of sizes: what is allocated, or reserved, at once, and what only bounds that which packets or files bring. The
//! former are asked for together ([`room`]) before anything is built, since how much there is depends on the machine.

use std::hint::black_box;

use crate::config::{Config, ConfigError, MacSection};
use crate::datapath::CacheConfig;
use crate::setup::Checker;

/// Exact-match entries have 128 bytes, and are written at once: 2 GiB.
const EXACT_ENTRIES_MAX: usize = 1 << 24;
/// Signature-match entries have 8 bytes: 2 GiB.
const SIGNATURE_ENTRIES_MAX: usize = 1 << 28;
/// Megaflows have 64 bytes, for which addresses are reserved at once: 2 GiB; what comes with each makes about as much again.
const MEGAFLOWS_MAX: usize = 1 << 25;
/// A packet that no megaflow matches is looked for under every mask.
const MASKS_MAX: usize = 1 << 16;
/// The table of addresses has 16 bytes an entry and is at most half full: 512 MiB.
const MACS_MAX: usize = 1 << 24;
/// Rules and routes are numbered with 32 bits, some of which mark what they are.
const NUMBERED_MAX: usize = 1 << 30;
/// Threads. Each looks at what all others have handed over.
pub(super) const WORKERS_MAX: usize = 64;
/// A terabyte.
const MEMORY_MIB_MAX: usize = 1 << 20;

/// A size as it stands in a configuration.
struct Size {
    key: &'static str,
    what: &'static str,
    value: usize,
    most: usize,
    /// Why not more.
    because: &'static str,
    /// None where it is not for the user to know, since the section has others.
    default: Option<usize>,
}

fn sizes(config: &Config) -> Vec<Size> {
    let default = CacheConfig::default();
    let cache = &config.cache;
    let size = |key, what, value, most, because, default| Size { key, what, value, most, because, default };
    let mut sizes = vec![
        size("workers", "workers", config.switch.workers, WORKERS_MAX, "each is a thread", Some(1)),
        size(
            "exact_entries",
            "entries in the exact-match cache",
            cache.exact_entries,
            EXACT_ENTRIES_MAX,
            "2 GiB, taken at once",
            Some(default.exact_entries),
        ),
        size(
            "signature_entries",
            "entries in the signature-match cache",
            cache.signature_entries,
            SIGNATURE_ENTRIES_MAX,
            "2 GiB",
            Some(default.signature_entries),
        ),
        size(
            "megaflows_max",
            "megaflows",
            cache.megaflows_max,
            MEGAFLOWS_MAX,
            "2 GiB, reserved at once",
            Some(default.megaflows_max),
        ),
        size(
            "masks_max",
            "masks of megaflows",
            cache.masks_max,
            MASKS_MAX,
            "a packet that none matches is looked for under all",
            Some(default.masks_max),
        ),
        size(
            "entries_max",
            "addresses",
            config.macs.entries_max,
            MACS_MAX,
            "512 MiB",
            Some(MacSection::default().entries_max),
        ),
    ];
    let numbers = "they are numbered with 32 bits";
    for table in &config.table {
        sizes.push(size("rules_max", "rules in a table", table.rules_max, NUMBERED_MAX, numbers, None));
        sizes.push(memory(table.memory_mib));
    }
    for table in &config.route_table {
        sizes.push(size("routes_max", "routes in a table", table.routes_max, NUMBERED_MAX, numbers, None));
        sizes.push(memory(table.memory_mib));
    }
    sizes
}

fn memory(value: usize) -> Size {
    let because = "a TiB";
    Size { key: "memory_mib", what: "MiB of memory", value, most: MEMORY_MIB_MAX, because, default: None }
}

/// Whether all sizes can be had anywhere.
pub(super) fn check(config: &Config, checker: &Checker<'_>) -> Result<(), ConfigError> {
    match sizes(config).into_iter().find(|size| size.value > size.most) {
        None => Ok(()),
        Some(Size { key, what, value, most, because, default }) => {
            let default = default.map_or_else(String::new, |n| format!("; {n} is the default"));
            let help = format!("take up to {most} ({because}){default}");
            Err(checker.error(key, format!("{value} {what}"), Some(help)))
        }
    }
}

/// Whether this machine has what the caches take at once.
pub(super) fn room(config: &Config, checker: &Checker<'_>) -> Result<(), ConfigError> {
    let cache = &config.cache;
    let bytes = cache.exact_entries.next_power_of_two() * 128
        + cache.signature_entries.next_power_of_two() * 8
        + cache.megaflows_max * 64;
    let mut probe = Vec::<u8>::new();
    // Behind the black box, lest the compiler leave out what is given back unused.
    if black_box(&mut probe).try_reserve_exact(bytes).is_ok() && black_box(&probe).capacity() >= bytes {
        return Ok(());
    }
    let message = format!("the caches take {} MiB, and this machine does not give so much", bytes >> 20);
    let help = "lower exact_entries, signature_entries or megaflows_max".to_owned();
    Err(ConfigError { environment: true, ..checker.error("[cache]", message, Some(help)) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn refusal(text: &str) -> Option<String> {
        let config: Config = toml::from_str(text).expect("it is well formed");
        let checker = Checker { file: Path::new("c.toml"), text };
        let error = check(&config, &checker).err()?;
        assert!(error.span.is_some(), "{text}");
        Some(format!("{}: {}", error.message, error.help.unwrap_or_default()))
    }

    #[test]
    fn sizes_that_cannot_be_had_are_refused_with_the_reason_and_the_most() {
        let table = |line: &str| format!("[[table]]\nnumber = 0\n{line}");
        let routes = |line: &str| format!("[[route_table]]\nnumber = 1\n{line}");
        let sizes = [
            ("[cache]\nexact_entries = ".to_owned(), 1u64 << 24, "2 GiB"),
            ("[cache]\nsignature_entries = ".to_owned(), 1 << 28, "2 GiB"),
            ("[cache]\nmegaflows_max = ".to_owned(), 1 << 25, "2 GiB"),
            ("[cache]\nmasks_max = ".to_owned(), 1 << 16, "looked for under all"),
            ("[macs]\nentries_max = ".to_owned(), 1 << 24, "512 MiB"),
            (table("rules_max = "), 1 << 30, "32 bits"),
            (table("memory_mib = "), 1 << 20, "TiB"),
            (routes("routes_max = "), 1 << 30, "32 bits"),
            (routes("memory_mib = "), 1 << 20, "TiB"),
        ];
        for (line, most, because) in sizes {
            assert_eq!(refusal(&format!("{line}{most}\n")), None, "{line}{most}");
            for value in [most + 1, 1_000_000_000_000, i64::MAX as u64] {
                let said = refusal(&format!("{line}{value}\n")).unwrap_or_default();
                assert!(said.starts_with(&format!("{value} ")), "{line}{value}: {said:?}");
                assert!(said.contains(&format!("take up to {most} (")), "{said}");
                assert!(said.contains(because), "{said}");
            }
        }
        assert!(refusal("[cache]\nmegaflows_max = 1000000000\n").is_some());
    }

    /// What `run` allocates it can have, or `check` says so.
    #[test]
    fn what_the_machine_does_not_give_is_said_and_does_not_abort() {
        let config = |megaflows_max| {
            let mut config = Config::default();
            config.cache.megaflows_max = megaflows_max;
            config
        };
        let checker = Checker { file: Path::new("c.toml"), text: "[cache]\n" };
        assert!(room(&Config::default(), &checker).is_ok());
        // More than addresses have bits for.
        let error = room(&config(1 << 56), &checker).expect_err("no machine has so much");
        assert!(error.environment && error.message.contains("does not give so much"), "{error}");
    }
}
