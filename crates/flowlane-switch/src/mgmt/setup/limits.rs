//! The maximum sizes in a configuration. A size that no machine can provide is rejected when the configuration is read, since a
//! failed allocation could not be handled.
//!
//! Some sizes are allocated, or reserved, at once; others only limit what packets or files add. The former are requested together
//! ([`room`]) before anything is built, since available memory depends on the machine.

use std::hint::black_box;

use crate::datapath::CacheConfig;
use crate::mgmt::config::{Config, ConfigError, ConnectionSection, KeyPath, MacSection, Source};

/// Exact-match entries have 128 bytes, and are written at once: 2 GiB.
const EXACT_ENTRIES_MAX: usize = 1 << 24;
/// Signature-match entries have 8 bytes: 2 GiB.
const SIGNATURE_ENTRIES_MAX: usize = 1 << 28;
/// Megaflows have 64 bytes, for which addresses are reserved at once: 2 GiB; what comes with each makes about as much again.
const MEGAFLOWS_MAX: usize = 1 << 25;
/// A packet that no megaflow matches is looked up with every mask.
const MASKS_MAX: usize = 1 << 16;
/// The table of addresses has 16 bytes an entry and is at most half full: 512 MiB.
const MACS_MAX: usize = 1 << 24;

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 1 << 24;
/// Rules and routes are numbered with 32 bits, some of which mark what they are.
const NUMBERED_MAX: usize = 1 << 30;
/// Threads. Each polls the handoff rings of all others.
pub(super) const WORKERS_MAX: usize = 64;
/// A terabyte.
const MEMORY_MIB_MAX: usize = 1 << 20;

/// Memory of a worker without its caches: the stack of its thread (2 MiB), bursts and rings.
const WORKER_BYTES: usize = 4 << 20;
/// Memory of a switch without its workers: the threads that control it, ports, and tables of a few rules.
const SWITCH_BYTES: usize = 16 << 20;

/// A size of a configuration.
struct Size {
    at: KeyPath,
    what: &'static str,
    value: usize,
    most: usize,
    /// Why not more.
    because: &'static str,
    /// None for sections that may be repeated.
    default: Option<usize>,
}

/// Returns the sizes of the caches.
fn cache_sizes(config: &Config) -> [Size; 4] {
    let default = CacheConfig::default();
    let cache = &config.cache;
    let of_cache = |key, what, value, most, because, default| {
        let at = KeyPath::of("cache").key(key);
        Size { at, what, value, most, because, default: Some(default) }
    };
    [
        of_cache(
            "exact_entries",
            "entries in the exact-match cache",
            cache.exact_entries,
            EXACT_ENTRIES_MAX,
            "2 GiB, taken at once",
            default.exact_entries,
        ),
        of_cache(
            "signature_entries",
            "entries in the signature-match cache",
            cache.signature_entries,
            SIGNATURE_ENTRIES_MAX,
            "2 GiB",
            default.signature_entries,
        ),
        of_cache(
            "megaflows_max",
            "megaflows",
            cache.megaflows_max,
            MEGAFLOWS_MAX,
            "2 GiB, reserved at once",
            default.megaflows_max,
        ),
        of_cache(
            "masks_max",
            "masks of megaflows",
            cache.masks_max,
            MASKS_MAX,
            "a packet that none matches is looked up with all",
            default.masks_max,
        ),
    ]
}

fn sizes(config: &Config) -> Vec<Size> {
    let size = |at, what, value, most, because, default| Size { at, what, value, most, because, default };
    let workers = KeyPath::of("switch").key("workers");
    let mut sizes = vec![
        size(workers, "workers", config.switch.workers, WORKERS_MAX, "each is a thread", Some(1)),
        size(
            KeyPath::of("macs").key("entries_max"),
            "addresses",
            config.macs.entries_max,
            MACS_MAX,
            "512 MiB",
            Some(MacSection::default().entries_max),
        ),
        size(
            KeyPath::of("connections").key("connections_max"),
            "connections",
            config.connections.connections_max,
            CONNECTIONS_MAX,
            "4 GiB",
            Some(ConnectionSection::default().connections_max),
        ),
    ];
    sizes.extend(cache_sizes(config));
    let numbers = "they are numbered with 32 bits";
    for (n, table) in config.table.iter().enumerate() {
        let at = KeyPath::section("table", n);
        let rules = at.key("rules_max");
        sizes.push(size(rules, "rules in a table", table.rules_max, NUMBERED_MAX, numbers, None));
        sizes.push(memory(&at, table.memory_mib));
    }
    for (n, table) in config.route_table.iter().enumerate() {
        let at = KeyPath::section("route_table", n);
        let routes = at.key("routes_max");
        sizes.push(size(routes, "routes in a table", table.routes_max, NUMBERED_MAX, numbers, None));
        sizes.push(memory(&at, table.memory_mib));
    }
    sizes
}

fn memory(section: &KeyPath, value: usize) -> Size {
    let (at, because) = (section.key("memory_mib"), "a TiB");
    Size { at, what: "MiB of memory", value, most: MEMORY_MIB_MAX, because, default: None }
}

/// Checks that no size is larger than any machine could have.
pub(super) fn check(config: &Config, source: &Source) -> Result<(), ConfigError> {
    match sizes(config).into_iter().find(|size| size.value > size.most) {
        None => Ok(()),
        Some(Size { at, what, value, most, because, default }) => {
            let default = default.map_or_else(String::new, |n| format!("; {n} is the default"));
            let help = format!("take up to {most} ({because}){default}");
            Err(source.error(&at, format!("{value} {what}"), help))
        }
    }
}

/// Checks that this machine has the memory that a switch allocates at once: the caches and the thread of each worker, and what
/// every switch has.
pub(super) fn room(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let cache = &config.cache;
    let of_worker = cache.exact_entries.next_power_of_two() * 128
        + cache.signature_entries.next_power_of_two() * 8
        + cache.megaflows_max * 64
        + WORKER_BYTES;
    let bytes = of_worker.saturating_mul(super::workers::number(config)).saturating_add(SWITCH_BYTES);
    let mut probe = Vec::<u8>::new();
    // The black box keeps the compiler from removing the unused allocation.
    if black_box(&mut probe).try_reserve_exact(bytes).is_ok() && black_box(&probe).capacity() >= bytes {
        return Ok(());
    }
    let limit = match address_limit() {
        Some(limit) => format!("the limit of memory is {} MiB (`ulimit -v`)", limit >> 20),
        None => "this machine does not have that much".to_owned(),
    };
    let message = format!("the switch takes {} MiB, and {limit}", bytes >> 20);
    let help = "lower workers, exact_entries, signature_entries or megaflows_max";
    Err(ConfigError { environment: true, ..source.error(&KeyPath::of("cache"), message, help) })
}

/// Returns the limit of this process's memory in bytes, if there is one.
fn address_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn refusal(text: &str) -> Option<String> {
        let config: Config = toml::from_str(text).expect("it is well formed");
        let source = Source { file: PathBuf::from("c.toml"), text: text.to_owned() };
        let error = check(&config, &source).err()?;
        let value = error.message.split(' ').next()?;
        assert_eq!(error.span.clone().map(|span| &text[span]), Some(value), "{text}");
        Some(format!("{}: {}", error.message, error.help.unwrap_or_default()))
    }

    #[test]
    fn sizes_beyond_any_machine_are_rejected_with_reason_and_maximum() {
        let table = |line: &str| format!("[[table]]\nnumber = 0\n{line}");
        let routes = |line: &str| format!("[[route_table]]\nnumber = 1\n{line}");
        let sizes = [
            ("[cache]\nexact_entries = ".to_owned(), 1u64 << 24, "2 GiB"),
            ("[cache]\nsignature_entries = ".to_owned(), 1 << 28, "2 GiB"),
            ("[cache]\nmegaflows_max = ".to_owned(), 1 << 25, "2 GiB"),
            ("[cache]\nmasks_max = ".to_owned(), 1 << 16, "looked up with all"),
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

    /// `check` reports what `run` could not allocate.
    #[test]
    fn too_little_memory_is_an_error_and_does_not_abort() {
        let config = |megaflows_max| {
            let mut config = Config::default();
            config.cache.megaflows_max = megaflows_max;
            config
        };
        let source = Source { file: PathBuf::from("c.toml"), text: "[cache]\n".to_owned() };
        assert!(room(&Config::default(), &source).is_ok());
        // More than addresses have bits for.
        let error = room(&config(1 << 56), &source).expect_err("no machine has that much");
        assert!(error.environment && error.message.contains("does not have that much"), "{error}");
    }
}
