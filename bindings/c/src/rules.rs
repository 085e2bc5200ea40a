//! Rules as structures, with data of the caller's, and as text.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

use flowlane::{Categories, ClassifierBuilder, Field, Match, Priority, Rule};

use crate::acl::{FL_LISTS_MAX, FL_NONE, configured, fl_acl, fl_acl_config, fl_reader};
use crate::error::{CallError, CallResult, array, array_mut, give_handle, guarded, handle, handle_mut};
use crate::layout::field;

/// The field equals the value.
pub const FL_IS: u32 = 0;
/// The field equals the value in the bits of `mask_range`.
pub const FL_MASKED: u32 = 1;
/// The first `mask_range` bits of the field are those of the value.
pub const FL_PREFIX: u32 = 2;
/// The port lies between the value and `mask_range`, both included.
pub const FL_RANGE: u32 = 3;

/// A condition of a rule on one field.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_condition {
    /// Field number; see fl_field().
    pub field: u32,
    /// FL_IS, FL_MASKED, FL_PREFIX or FL_RANGE.
    pub kind: u32,
    /// Value in host byte order: 0xc0000201 is 192.0.2.1.
    pub value: u64,
    /// Upper 64 bits of the value of a field with more than 64 bits, such as an IPv6 address.
    pub value_high: u64,
    /// Mask, prefix length or last port, by the kind.
    pub mask_range: u64,
    /// Upper 64 bits of a mask.
    pub mask_high: u64,
}

/// A rule. Set `size`, and unused members to 0.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name in C")]
pub struct fl_rule {
    /// sizeof(fl_rule), the distance from one rule of an array to the next.
    pub size: usize,
    /// Conditions that a packet must meet, all of them. A field needs its prerequisites, as in a text: ports need dl_type and nw_proto.
    pub conditions: *const fl_condition,
    /// Number of conditions; 0 matches every packet.
    pub conditions_count: usize,
    /// Data of the caller's: a number or a pointer, which fl_reader_users returns. In a text it is written `cookie=NUMBER`.
    pub user: u64,
    /// The highest priority wins; of equal ones the rule inserted first.
    pub priority: u32,
    /// Lists that the rule is in: bit 0 for the first list; 0 for the first alone.
    pub lists: u32,
}

/// The data of callers by rule, where it is not 0. Lists and their readers share it; a commit replaces it.
#[derive(Clone, Default)]
pub struct Users(Arc<Mutex<Arc<HashMap<u32, u64>>>>);

impl Users {
    fn latest(&self) -> Arc<HashMap<u32, u64>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the data of these rules.
    pub fn publish<'a>(&self, rules: impl Iterator<Item = (u32, &'a Rule)>) {
        let with_data = rules.filter(|(_, rule)| rule.cookie != 0);
        let data = Arc::new(with_data.map(|(number, rule)| (number, rule.cookie)).collect::<HashMap<_, _>>());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = data;
    }
}

/// Reads a condition into a match.
fn add(matches: &mut Match, at: usize, condition: &fl_condition) -> CallResult {
    let field = field(condition.field)?;
    let value = u128::from(condition.value_high) << 64 | u128::from(condition.value);
    let mask = u128::from(condition.mask_high) << 64 | u128::from(condition.mask_range);
    let set = match condition.kind {
        FL_IS => matches.try_set(field, value).map(drop),
        FL_MASKED => matches.try_set_masked(field, value, mask).map(drop),
        FL_PREFIX => return prefix(matches, at, field, value, mask),
        FL_RANGE => match (u16::try_from(value), u16::try_from(mask)) {
            (Ok(low), Ok(high)) => matches.try_set_range(field, low, high).map(drop),
            _ => {
                let problem = format!("range {value}-{mask} of {field}; ports are 0 to 65535");
                return Err(CallError::input(format!("condition {at}: {problem}")));
            }
        },
        kind => {
            return Err(CallError::input(format!(
                "condition {at}: there is no kind {kind}; use FL_IS, FL_MASKED, FL_PREFIX or FL_RANGE"
            )));
        }
    };
    set.map_err(|refused| CallError::input(format!("condition {at}: {refused}")))
}

/// Adds a prefix of `len` bits of a value.
fn prefix(matches: &mut Match, at: usize, field: Field, value: u128, len: u128) -> CallResult {
    let width = u32::from(field.info().width);
    let len = u32::try_from(len).ok().filter(|len| *len <= width).ok_or_else(|| {
        CallError::input(format!("condition {at}: a prefix of {len} bits; {field} has {width}"))
    })?;
    let mask = field.info().ones() & !field.info().ones().checked_shr(len).unwrap_or(0);
    field.info().check(value).map_err(|refused| CallError::input(format!("condition {at}: {refused}")))?;
    matches.set_masked(field, value & mask, mask);
    Ok(())
}

/// Reads the caller's rules, each with the lists that it is in.
///
/// # Safety
/// `rules` is NULL, or an array of `count` rules, each with as many bytes as the first states, whose conditions are as stated.
unsafe fn rules_of(rules: *const fl_rule, count: usize) -> CallResult<Vec<(Rule, Categories)>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // The size of the first.
    // SAFETY: the caller's: a structure begins with its size.
    let size = unsafe { array(rules.cast::<usize>(), 1, "rules")? }[0];
    let known = size_of::<fl_rule>();
    if !(known..=1 << 12).contains(&size) || !size.is_multiple_of(align_of::<fl_rule>()) {
        return Err(CallError::input(format!("fl_rule: its size is {size}; set it to sizeof(fl_rule)")));
    }
    let mut out = Vec::with_capacity(count);
    for number in 0..count {
        // SAFETY: the caller's: there are `count` structures of this size.
        let rule = unsafe { rules.byte_add(number * size).read() };
        // SAFETY: the caller's.
        let read = unsafe { rule_of(&rule) };
        let read =
            read.map_err(|refused| CallError::input(format!("rules[{number}]: {}", refused.message())))?;
        out.push(read);
    }
    Ok(out)
}

/// # Safety
/// The conditions are as the rule states.
unsafe fn rule_of(given: &fl_rule) -> CallResult<(Rule, Categories)> {
    let mut matches = Match::any();
    // SAFETY: the caller's.
    for (at, condition) in
        unsafe { array(given.conditions, given.conditions_count, "conditions")? }.iter().enumerate()
    {
        add(&mut matches, at, condition)?;
    }
    let bits = u16::try_from(given.lists).map_err(|_| {
        CallError::input(format!("lists are {:#x}; there are {FL_LISTS_MAX}, a bit each", given.lists))
    })?;
    let lists = if bits == 0 { Categories::FIRST } else { Categories::from_bits(bits)? };
    let mut rule = Rule::new(matches, Vec::new());
    (rule.priority, rule.cookie) = (Priority(given.priority), given.user);
    rule.check()?;
    Ok((rule, lists))
}

/// Creates a list of `count` rules, which are numbered from 0. `config` may be NULL; its table is not used.
///
/// Errors: FL_INPUT with the rule and condition that is wrong; FL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_from_rules(
    rules: *const fl_rule,
    count: usize,
    config: *const fl_acl_config,
    acl: *mut *mut fl_acl,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (rules, (builder, table)) = unsafe { (rules_of(rules, count)?, configured(config)?) };
        let builder: ClassifierBuilder = builder;
        let numbered =
            (0..).zip(rules).map(|(number, (rule, lists))| (number, Rule { table, ..rule }, lists));
        let built = builder.build_categories(numbered)?;
        // SAFETY: the caller's.
        unsafe { give_handle(fl_acl::new(built, table), acl) }
    })
}

/// Adds `count` rules, all or none. They are numbered consecutively from `*first` (may be NULL) on; readers see them after fl_acl_commit.
///
/// Errors: FL_INPUT with the rule and condition that is wrong; FL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_insert_rules(
    acl: *mut fl_acl,
    rules: *const fl_rule,
    count: usize,
    first: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (acl, rules) = unsafe { (handle_mut(acl, "acl")?, rules_of(rules, count)?) };
        let begin = acl.insert(rules)?;
        if !first.is_null() {
            // SAFETY: the caller's.
            unsafe { first.write(begin) };
        }
        Ok(())
    })
}

/// Writes a rule as text, as fl_acl_from_text reads it, with a NUL at its end: as much as `bytes` bytes hold. `*length` (may be
/// NULL) receives the length of the whole text without the NUL; `text` may be NULL if `bytes` is 0.
///
/// Errors: FL_INPUT if there is no such rule.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_acl_rule_text(
    acl: *const fl_acl,
    rule: u32,
    text: *mut c_char,
    bytes: usize,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (acl, out) = unsafe { (handle(acl, "acl")?, array_mut(text.cast::<u8>(), bytes, "text")?) };
        let own = acl.rule(rule).ok_or_else(|| CallError::input(format!("there is no rule {rule}")))?;
        let own = own.to_string();
        if let Some(room) = bytes.checked_sub(1) {
            // Text of rules is ASCII, so that no character is cut.
            let len = own.len().min(room);
            out[..len].copy_from_slice(&own.as_bytes()[..len]);
            out[len] = 0;
        }
        if !length.is_null() {
            // SAFETY: the caller's.
            unsafe { length.write(own.len()) };
        }
        Ok(())
    })
}

/// Writes the data of each of `count` rules, as lookups return them: the `user` of fl_rule, or the cookie of a text. It is 0 for FL_NONE, for
/// rules without data, and for rules whose removal was committed between the lookup and this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_reader_users(
    reader: *const fl_reader,
    rules: *const u32,
    count: usize,
    users: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's, of each.
        let (reader, rules, out) = unsafe {
            (handle(reader, "reader")?, array(rules, count, "rules")?, array_mut(users, count, "users")?)
        };
        let latest = reader.users().latest();
        for (out, rule) in out.iter_mut().zip(rules) {
            *out = if *rule == FL_NONE { 0 } else { latest.get(rule).copied().unwrap_or(0) };
        }
        Ok(())
    })
}
