//! Access lists: rules, and readers of them.

use std::ffi::c_char;

use flowlane::{AccessList, CATEGORIES_MAX, Classifier, ClassifierConfig, Reader, Rule, read_rules};

use crate::error::{Done, Refused, array, free, give, guarded, handle, handle_mut, text};

/// No rule matches.
pub const FL_NONE: u32 = u32::MAX;

/// Most lists that are asked in one pass.
pub const FL_LISTS_MAX: u32 = 16;

const _: () = assert!(FL_NONE == flowlane::NONE && FL_LISTS_MAX as usize == CATEGORIES_MAX);

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
    rules: Classifier,
    table: u8,
}

/// Looks packets up, for one thread.
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_reader(Reader);

impl fl_reader {
    /// The latest list that was committed.
    #[inline]
    pub fn list(&mut self) -> &AccessList {
        self.0.list()
    }
}

/// What the caller's structure says, as far as it goes.
///
/// # Safety
/// `config` is NULL, or has as many bytes as its size says.
unsafe fn configured(config: *const fl_acl_config) -> Done<(ClassifierConfig, u8)> {
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
    let mut own = ClassifierConfig::new().engine(name)?;
    let most = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
    // 0 leaves what is usual.
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

/// Rules with their numbers, from `first` on, of which only those of a table count.
fn numbered(first: u32, rules: Vec<Rule>, table: u8) -> impl Iterator<Item = (u32, Rule)> {
    (first..).zip(rules).filter(move |(_, rule)| rule.table == table)
}

/// A list of these lists, whose rules are numbered one after the other; and the first number of each.
fn built(lists: Vec<Vec<Rule>>, (config, table): (ClassifierConfig, u8)) -> Done<(fl_acl, Vec<u32>)> {
    let (mut firsts, mut next) = (Vec::new(), 0);
    let mut all = Vec::new();
    for (category, rules) in lists.into_iter().enumerate() {
        firsts.push(next);
        let len = rules.len() as u32;
        all.extend(numbered(next, rules, table).map(|(number, rule)| (number, rule, 1 << category)));
        next += len;
    }
    let mut rules = config.build_categories(all)?;
    rules.leave_out_below(next);
    rules.publish();
    Ok((fl_acl { rules, table }, firsts))
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
        let (made, _) = built(vec![read_rules(&file_text(path)?, path)?], config)?;
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
        let (made, _) = built(vec![read_rules(rules, "rules")?], config)?;
        // SAFETY: the caller's.
        unsafe { give(made, acl) }
    })
}

/// Several lists that are asked in one pass.
///
/// # Safety
/// As of [`fl_acl_from_texts`].
unsafe fn from_several(
    names: *const *const c_char,
    count: usize,
    config: *const fl_acl_config,
    firsts: *mut u32,
    acl: *mut *mut fl_acl,
    read: impl Fn(usize, &str) -> Done<Vec<Rule>>,
) -> Done {
    // SAFETY: the caller's, of each.
    let (names, config) = unsafe { (array(names, count, "lists")?, configured(config)?) };
    if !(1..=CATEGORIES_MAX).contains(&count) {
        return Err(Refused::input(format!("{count} lists; 1 to {CATEGORIES_MAX} are possible")));
    }
    let mut lists = Vec::with_capacity(count);
    for (number, name) in names.iter().enumerate() {
        // SAFETY: the caller's.
        let name = unsafe { text(*name, &format!("lists[{number}]"))? };
        lists.push(read(number, name)?);
    }
    let (made, own) = built(lists, config)?;
    // SAFETY: the caller's.
    unsafe { give(made, acl)? };
    if !firsts.is_null() {
        // SAFETY: the caller's: there is room for as many as lists.
        own.iter().enumerate().for_each(|(at, first)| unsafe { firsts.add(at).write(*first) });
    }
    Ok(())
}

/// Up to FL_LISTS_MAX lists that are asked in one pass, by fl_classify_ipv4_lists and its like: the texts of `count`. Rules are
/// numbered one after the other through all lists; `firsts` (may be NULL) gets the number of each list's first. Other calls that look
/// up answer for the first list.
///
/// FL_INPUT as for one text: lines are those of `lists[1]`, say; FL_LIMIT.
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

/// The same of files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_files(
    paths: *const *const c_char,
    count: usize,
    config: *const fl_acl_config,
    firsts: *mut u32,
    acl: *mut *mut fl_acl,
) -> i32 {
    let read = |_: usize, path: &str| Ok(read_rules(&file_text(path)?, path)?);
    // SAFETY: the caller's.
    guarded(|| unsafe { from_several(paths, count, config, firsts, acl, read) })
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
    unsafe { acl.as_ref() }.map_or(0, |acl| acl.rules.table_bytes())
}

/// Adds the rules of a text, all or none of them. They are numbered one after the other from `*first` on; readers see them after
/// fl_acl_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_insert(acl: *mut fl_acl, rules: *const c_char, first: *mut u32) -> i32 {
    // SAFETY: the caller's.
    unsafe { fl_acl_insert_into(acl, 0, rules, first) }
}

/// The same, into one of several lists: the first is 0.
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
            return Err(Refused::input(format!("list {list}; there are {FL_LISTS_MAX} at most, from 0")));
        }
        let rules = read_rules(rules, "rules")?;
        let (begin, len) = (acl.rules.next_number(), rules.len() as u32);
        acl.rules.insert_numbered(numbered(begin, rules, acl.table), 1 << list)?;
        // Rules of other tables have numbers, too.
        acl.rules.leave_out_below(begin.saturating_add(len));
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
        let gone = acl.rules.remove(rule);
        gone.map(drop).ok_or_else(|| Refused::input(format!("there is no rule {rule}")))
    })
}

/// Shows readers the list as it is now, all changes at once: those since the latest time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_commit(acl: *mut fl_acl) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        unsafe { handle_mut(acl, "acl")? }.rules.publish();
        Ok(())
    })
}

/// A reader, for one thread: the list may be changed, and even freed, while it looks up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_new(acl: *const fl_acl, reader: *mut *mut fl_reader) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        unsafe { give(fl_reader(handle(acl, "acl")?.rules.reader()), reader) }
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_free(reader: *mut fl_reader) {
    // SAFETY: the caller's.
    unsafe { free(reader) }
}
