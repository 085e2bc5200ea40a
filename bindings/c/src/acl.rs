//! Access lists: rules, and readers of them.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::{AclSearch, Classifier};
use flowlane::rule::{ReadOptions, Rule, RuleId, read};

use crate::error::{Done, Refused, free, give, guarded, handle, handle_mut, text};

/// No rule matches.
pub const FL_NONE: u32 = u32::MAX;

/// How a list is made. Set `size` to its size, and what is not asked for to 0.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_acl_config {
    /// sizeof(fl_acl_config).
    pub size: usize,
    /// "auto", "tree", "dynamic" or "brute"; NULL: auto.
    pub engine: *const c_char,
    /// Most rules; 0: 33 million.
    pub rules_max: u64,
    /// Most bytes of tables; 0: 16 GiB.
    pub memory_max: u64,
    /// Threads that build; 0: all cores.
    pub threads: u32,
    /// The table of the rules that is meant, where flows have several.
    pub table: u8,
}

/// Rules, which one thread changes.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_acl {
    list: AclSearch,
    rules: BTreeMap<u32, Rule>,
    next: u32,
    table: u8,
    shared: Arc<Shared>,
}

/// What is published.
pub struct Shared {
    version: AtomicU64,
    latest: Mutex<Arc<AclSearch>>,
}

/// Looks packets up, for one thread.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_reader {
    shared: Arc<Shared>,
    version: u64,
    list: Arc<AclSearch>,
}

impl fl_reader {
    /// The latest list that was committed.
    #[inline]
    pub fn list(&mut self) -> &AclSearch {
        // What was committed before the version is seen with it, by the lock.
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.list = self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        &self.list
    }
}

/// What the caller's structure says, as far as it goes.
///
/// # Safety
/// `config` is NULL, or has as many bytes as its size says.
unsafe fn configured(config: *const fl_acl_config) -> Done<(AclConfig, u8)> {
    let mut given = fl_acl_config {
        size: 0,
        engine: std::ptr::null(),
        rules_max: 0,
        memory_max: 0,
        threads: 0,
        table: 0,
    };
    if !config.is_null() {
        // SAFETY: every such structure begins with its size.
        let size = unsafe { config.cast::<usize>().read() };
        if !(size_of::<usize>()..=1 << 12).contains(&size) {
            return Err(Refused::input(format!(
                "fl_acl_config: its size is {size}; set it to sizeof(fl_acl_config)"
            )));
        }
        let known = size.min(size_of::<fl_acl_config>());
        // SAFETY: so many bytes are there, by its size, and there is room for them here.
        unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut given).cast::<u8>(), known) };
    }
    // SAFETY: the caller's.
    let name = if given.engine.is_null() { "auto" } else { unsafe { text(given.engine, "engine")? } };
    let engine: AclEngine = name.parse().map_err(Refused::input)?;
    let or = |given: u64, usual: usize| {
        if given == 0 { usual } else { usize::try_from(given).unwrap_or(usize::MAX) }
    };
    let all = || std::thread::available_parallelism().map_or(1, Into::into);
    let config = AclConfig {
        engine,
        rules_max: or(given.rules_max, 32 << 20),
        memory_max: or(given.memory_max, 16 << 30),
        threads: if given.threads == 0 { all() } else { given.threads as usize },
        seed: rand::random(),
        variant: None,
    };
    Ok((config, given.table))
}

fn parse(text: &str, name: &str) -> Done<Vec<Rule>> {
    read(text, name, None, &ReadOptions::default()).map_err(Refused::input)
}

fn built(rules: Vec<Rule>, (config, table): (AclConfig, u8)) -> Done<fl_acl> {
    let next = rules.len() as u32;
    let rules: BTreeMap<u32, Rule> = (0..).zip(rules).filter(|(_, rule)| rule.table == table).collect();
    let mut best_first: Vec<(&u32, &Rule)> = rules.iter().collect();
    best_first.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority));
    let entries = best_first.into_iter().map(|(id, rule)| (RuleId(*id), rule.priority, &rule.matches));
    let list = AclSearch::build(config, entries).map_err(Refused::limit)?;
    let shared = Shared { version: AtomicU64::new(0), latest: Mutex::new(Arc::new(list.clone())) };
    Ok(fl_acl { list, rules, next, table, shared: Arc::new(shared) })
}

/// The text of a file, unpacked where it is packed by gzip or zstd.
pub fn file_text(path: &str) -> Done<String> {
    flowlane_capture::read_text(path.as_ref()).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => Refused::input(format!("{path}: {e}")),
        _ => Refused::file(format!("{path}: {e}")),
    })
}

/// A list of the rules in a file: flows as ovs-ofctl reads them, or ClassBench filters, packed by gzip or zstd or not. A rule's number
/// is its position in the file, from 0. `config` may be NULL.
///
/// FL_INPUT with file, line and column of all lines that are wrong; FL_FILE; FL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_file(
    path: *const c_char,
    config: *const fl_acl_config,
    acl: *mut *mut fl_acl,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (path, config) = unsafe { (text(path, "path")?, configured(config)?) };
        let made = built(parse(&file_text(path)?, path)?, config)?;
        // SAFETY: the caller's.
        unsafe { give(made, acl) }
    })
}

/// The same of a text; its lines are those of `rules` in errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_text(
    rules: *const c_char,
    config: *const fl_acl_config,
    acl: *mut *mut fl_acl,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (rules, config) = unsafe { (text(rules, "rules")?, configured(config)?) };
        let made = built(parse(rules, "rules")?, config)?;
        // SAFETY: the caller's.
        unsafe { give(made, acl) }
    })
}

/// Frees a list. Readers go on with what was committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_free(acl: *mut fl_acl) {
    // SAFETY: the caller's.
    unsafe { free(acl) }
}

/// Number of rules; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_len(acl: *const fl_acl) -> usize {
    // SAFETY: the caller's.
    unsafe { acl.as_ref() }.map_or(0, |acl| acl.rules.len())
}

/// Bytes of tables; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_bytes(acl: *const fl_acl) -> usize {
    // SAFETY: the caller's.
    unsafe { acl.as_ref() }.map_or(0, |acl| acl.list.table_bytes())
}

/// Adds the rules of a text, all or none of them. They are numbered one after the other from `*first` on; readers see them after
/// fl_acl_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_insert(acl: *mut fl_acl, rules: *const c_char, first: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (acl, rules) = unsafe { (handle_mut(acl, "acl")?, text(rules, "rules")?) };
        let rules = parse(rules, "rules")?;
        let begin = acl.next;
        for (number, rule) in (begin..).zip(rules) {
            if rule.table == acl.table {
                if let Err(refused) = acl.list.insert(RuleId(number), rule.priority, &rule.matches) {
                    let gone = acl.rules.split_off(&begin);
                    gone.keys().for_each(|number| _ = acl.list.remove(RuleId(*number)));
                    acl.next = begin;
                    return Err(Refused::limit(refused));
                }
                acl.rules.insert(number, rule);
            }
            acl.next = number + 1;
        }
        if !first.is_null() {
            // SAFETY: the caller's.
            unsafe { first.write(begin) };
        }
        Ok(())
    })
}

/// Removes a rule; FL_INPUT where there is none of this number. Readers see it after fl_acl_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_remove(acl: *mut fl_acl, rule: u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let acl = unsafe { handle_mut(acl, "acl")? };
        match acl.rules.remove(&rule).is_some() && acl.list.remove(RuleId(rule)) {
            true => Ok(()),
            false => Err(Refused::input(format!("there is no rule {rule}"))),
        }
    })
}

/// Shows readers the list as it is now, all changes at once: those since the latest time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_commit(acl: *mut fl_acl) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let acl = unsafe { handle_mut(acl, "acl")? };
        let new = Arc::new(acl.list.clone());
        let old =
            std::mem::replace(&mut *acl.shared.latest.lock().unwrap_or_else(PoisonError::into_inner), new);
        acl.shared.version.fetch_add(1, Ordering::Release);
        drop(old);
        Ok(())
    })
}

/// A reader, for one thread: the list may be changed, and even freed, while it looks up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_new(acl: *const fl_acl, reader: *mut *mut fl_reader) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let shared = Arc::clone(unsafe { &handle(acl, "acl")?.shared });
        let version = shared.version.load(Ordering::Acquire);
        let list = shared.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // SAFETY: the caller's.
        unsafe { give(fl_reader { shared, version, list }, reader) }
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_free(reader: *mut fl_reader) {
    // SAFETY: the caller's.
    unsafe { free(reader) }
}
