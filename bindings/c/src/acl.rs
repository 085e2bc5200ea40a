//! Access lists and their readers.

use std::ffi::c_char;

use flowlane::{
    AclEngine, CATEGORIES_MAX, Categories, Classifier, ClassifierBuilder, ClassifierSnapshot, Reader, Rule,
    read_rules,
};
use flowlane_capture::read_text;

use crate::error::{CallError, CallResult, array, free, give_handle, guarded, handle, handle_mut, text};
use crate::rules::Users;

/// Rule number of packets that match no rule.
pub const FL_NONE: u32 = u32::MAX;

/// Maximum number of lists in one pass.
pub const FL_LISTS_MAX: u32 = 16;

const _: () = assert!(FL_NONE == flowlane::NONE && FL_LISTS_MAX as usize == CATEGORIES_MAX);

/// Configuration of an access list. Set `size`, and unused members to 0.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_acl_config {
    /// sizeof(fl_acl_config).
    pub size: usize,
    /// "auto", "tree", "dynamic" or "brute"; NULL for auto.
    pub engine: *const c_char,
    /// Maximum number of rules; 0 for 33 million.
    pub rules_max: u64,
    /// Memory limit of the tables in bytes; 0 for 16 GiB.
    pub memory_max: u64,
    /// Number of build threads; 0 for all cores.
    pub threads: u32,
    /// OpenFlow table whose rules are used.
    pub table: u8,
}

/// An access list. One thread at a time may change it.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_acl {
    rules: Classifier,
    table: u8,
    users: Users,
}

impl fl_acl {
    /// Publishes the rules to readers.
    pub fn new(rules: Classifier, table: u8) -> Self {
        let mut built = Self { rules, table, users: Users::default() };
        built.commit();
        built
    }

    fn commit(&mut self) {
        self.users.publish(self.rules.rules());
        self.rules.publish();
    }

    /// Returns the rule of a number.
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.rule(number)
    }

    /// Adds rules to their lists, all or none of them, and returns the number of the first.
    pub fn insert(&mut self, rules: Vec<(Rule, Categories)>) -> CallResult<u32> {
        let begin = self.rules.next_number();
        let mut done = Vec::with_capacity(rules.len());
        for (number, (rule, lists)) in (begin..).zip(rules) {
            let rule = Rule { table: self.table, ..rule };
            match self.rules.insert_numbered([(number, rule)], lists) {
                Ok(()) => done.push(number),
                Err(refused) => {
                    done.into_iter().for_each(|number| _ = self.rules.remove(number));
                    return Err(refused.into());
                }
            }
        }
        Ok(begin)
    }
}

/// A reader, which one thread uses for lookups.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_reader {
    reader: Reader,
    users: Users,
}

impl fl_reader {
    /// Returns the data of callers, by rule.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Returns the latest committed list.
    #[inline]
    pub fn list(&mut self) -> &ClassifierSnapshot {
        self.reader.list()
    }
}

/// Reads the caller's configuration, as far as its size goes.
///
/// # Safety
/// `config` is NULL, or points to as many bytes as its size states.
pub unsafe fn configured(config: *const fl_acl_config) -> CallResult<(ClassifierBuilder, u8)> {
    let mut given = fl_acl_config {
        size: 0,
        engine: std::ptr::null(),
        rules_max: 0,
        memory_max: 0,
        threads: 0,
        table: 0,
    };
    if !config.is_null() {
        // SAFETY: the structure begins with its size.
        let size = unsafe { config.cast::<usize>().read() };
        if !(size_of::<usize>()..=1 << 12).contains(&size) {
            return Err(CallError::input(format!(
                "fl_acl_config: its size is {size}; set it to sizeof(fl_acl_config)"
            )));
        }
        let known = size.min(size_of::<fl_acl_config>());
        // SAFETY: the caller's structure has at least `known` bytes, and `given` has room for them.
        unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut given).cast::<u8>(), known) };
    }
    // SAFETY: the caller's.
    let name = if given.engine.is_null() { "auto" } else { unsafe { text(given.engine, "engine")? } };
    let engine: AclEngine = name.parse().map_err(flowlane::Error::from)?;
    let mut own = ClassifierBuilder::new().engine(engine);
    let most = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
    // 0 selects the default.
    if given.rules_max > 0 {
        own = own.rules_max(most(given.rules_max));
    }
    if given.memory_max > 0 {
        own = own.memory_max(most(given.memory_max));
    }
    if given.threads > 0 {
        own = own.threads(given.threads as usize);
    }
    Ok((own, given.table))
}

/// Numbers rules from `first` on, and returns those of one table.
fn numbered(first: u32, rules: Vec<Rule>, table: u8) -> impl Iterator<Item = (u32, Rule)> {
    (first..).zip(rules).filter(move |(_, rule)| rule.table == table)
}

/// Builds a classifier of several lists, whose rules are numbered consecutively; also returns the first number of each
/// list.
fn build(lists: Vec<Vec<Rule>>, (config, table): (ClassifierBuilder, u8)) -> CallResult<(fl_acl, Vec<u32>)> {
    let (mut firsts, mut next) = (Vec::new(), 0);
    let mut all = Vec::new();
    for (category, rules) in lists.into_iter().enumerate() {
        firsts.push(next);
        let len = rules.len() as u32;
        let own = Categories::of([category])?;
        all.extend(numbered(next, rules, table).map(|(number, rule)| (number, rule, own)));
        next += len;
    }
    let mut rules = config.build_categories(all)?;
    rules.reserve_numbers_below(next);
    Ok((fl_acl::new(rules, table), firsts))
}

/// Creates a list from a file of flows, as ovs-ofctl reads them, or ClassBench filters, optionally compressed by gzip or
/// zstd. `config` may be NULL.
///
/// A rule's number is its position in the list of the file's rules, from 0. A flow with the table, priority and match of an
/// earlier one takes that one's place, and a range of ICMP types or codes is a rule for each prefix of it.
///
/// Errors: FL_INPUT with file, line and column of all invalid lines; FL_FILE; FL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_file(
    path: *const c_char,
    config: *const fl_acl_config,
    acl: *mut *mut fl_acl,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (path, config) = unsafe { (text(path, "path")?, configured(config)?) };
        let (built, _) = build(vec![read_rules(&read_text(path.as_ref())?, path)?], config)?;
        // SAFETY: the caller's.
        unsafe { give_handle(built, acl) }
    })
}

/// Creates a list from a text. Error messages call it `rules`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_text(
    rules: *const c_char,
    config: *const fl_acl_config,
    acl: *mut *mut fl_acl,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (rules, config) = unsafe { (text(rules, "rules")?, configured(config)?) };
        let (built, _) = build(vec![read_rules(rules, "rules")?], config)?;
        // SAFETY: the caller's.
        unsafe { give_handle(built, acl) }
    })
}

/// Builds several lists for lookups in one pass.
///
/// # Safety
/// See [`fl_acl_from_texts`].
unsafe fn from_several(
    names: *const *const c_char,
    count: usize,
    config: *const fl_acl_config,
    firsts: *mut u32,
    acl: *mut *mut fl_acl,
    read: impl Fn(usize, &str) -> CallResult<Vec<Rule>>,
) -> CallResult {
    // SAFETY: the caller's, of each.
    let (names, config) = unsafe { (array(names, count, "lists")?, configured(config)?) };
    if !(1..=CATEGORIES_MAX).contains(&count) {
        return Err(CallError::input(format!("{count} lists; expected 1 to {CATEGORIES_MAX}")));
    }
    let mut lists = Vec::with_capacity(count);
    for (number, name) in names.iter().enumerate() {
        // SAFETY: the caller's.
        let name = unsafe { text(*name, &format!("lists[{number}]"))? };
        lists.push(read(number, name)?);
    }
    let (built, own) = build(lists, config)?;
    // SAFETY: the caller's.
    unsafe { give_handle(built, acl)? };
    if !firsts.is_null() {
        // SAFETY: the caller's: `firsts` has `count` elements.
        own.iter().enumerate().for_each(|(at, first)| unsafe { firsts.add(at).write(*first) });
    }
    Ok(())
}

/// Creates up to FL_LISTS_MAX lists from `count` texts, for lookups in one pass by fl_classify_ipv4_lists and similar
/// functions. Rules are numbered consecutively through all lists; `firsts` (may be NULL) receives the first number of each
/// list. Other lookup functions use the first list.
///
/// Errors: FL_INPUT as for fl_acl_from_text, with names such as `lists[1]`; FL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_texts(
    lists: *const *const c_char,
    count: usize,
    config: *const fl_acl_config,
    firsts: *mut u32,
    acl: *mut *mut fl_acl,
) -> i32 {
    let read = |number: usize, rules: &str| Ok(read_rules(rules, &format!("lists[{number}]"))?);
    // SAFETY: the caller's.
    guarded(|| unsafe { from_several(lists, count, config, firsts, acl, read) })
}

/// Creates lists from files; otherwise like fl_acl_from_texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_files(
    paths: *const *const c_char,
    count: usize,
    config: *const fl_acl_config,
    firsts: *mut u32,
    acl: *mut *mut fl_acl,
) -> i32 {
    let read = |_: usize, path: &str| Ok(read_rules(&read_text(path.as_ref())?, path)?);
    // SAFETY: the caller's.
    guarded(|| unsafe { from_several(paths, count, config, firsts, acl, read) })
}

/// Frees a list. Readers keep the last committed rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_free(acl: *mut fl_acl) {
    // SAFETY: the caller's.
    unsafe { free(acl) }
}

/// Returns the number of rules; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_len(acl: *const fl_acl) -> usize {
    // SAFETY: the caller's.
    unsafe { acl.as_ref() }.map_or(0, |acl| acl.rules.len())
}

/// Returns the size of the tables in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_bytes(acl: *const fl_acl) -> usize {
    // SAFETY: the caller's.
    unsafe { acl.as_ref() }.map_or(0, |acl| acl.rules.table_bytes())
}

/// Adds the rules of a text, all or none. They are numbered consecutively from `*first` (may be NULL) on; readers see them
/// after fl_acl_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_insert(acl: *mut fl_acl, rules: *const c_char, first: *mut u32) -> i32 {
    // SAFETY: the caller's.
    unsafe { fl_acl_insert_into(acl, 0, rules, first) }
}

/// Adds rules to one of several lists, numbered from 0; otherwise like fl_acl_insert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_insert_into(
    acl: *mut fl_acl,
    list: u32,
    rules: *const c_char,
    first: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (acl, rules) = unsafe { (handle_mut(acl, "acl")?, text(rules, "rules")?) };
        if list >= FL_LISTS_MAX {
            return Err(CallError::input(format!(
                "list {list}; the limit is {FL_LISTS_MAX}, numbered from 0"
            )));
        }
        let rules = read_rules(rules, "rules")?;
        let (begin, len) = (acl.rules.next_number(), rules.len() as u32);
        acl.rules.insert_numbered(numbered(begin, rules, acl.table), Categories::of([list as usize])?)?;
        // Numbers of other tables' rules are used up as well.
        acl.rules.reserve_numbers_below(begin.saturating_add(len));
        if !first.is_null() {
            // SAFETY: the caller's.
            unsafe { first.write(begin) };
        }
        Ok(())
    })
}

/// Removes a rule; FL_INPUT if there is no such rule. Readers see the change after fl_acl_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_remove(acl: *mut fl_acl, rule: u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let acl = unsafe { handle_mut(acl, "acl")? };
        let gone = acl.rules.remove(rule);
        gone.map(drop).ok_or_else(|| CallError::input(format!("there is no rule {rule}")))
    })
}

/// Publishes all changes since the last commit to readers, atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_commit(acl: *mut fl_acl) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        unsafe { handle_mut(acl, "acl")? }.commit();
        Ok(())
    })
}

/// Creates a reader for one thread. The list may be changed, and even freed, during its lookups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_new(acl: *const fl_acl, reader: *mut *mut fl_reader) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let acl = unsafe { handle(acl, "acl")? };
        let built = fl_reader { reader: acl.rules.reader(), users: acl.users.clone() };
        // SAFETY: the caller's.
        unsafe { give_handle(built, reader) }
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_free(reader: *mut fl_reader) {
    // SAFETY: the caller's.
    unsafe { free(reader) }
}
