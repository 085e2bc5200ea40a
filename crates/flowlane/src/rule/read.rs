//! Reading a rule file of any format.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::action::PortNo;
use super::error::ReadErrors;
use super::{Action, Rule, classbench, flow_syntax};
use crate::named_enum::{Named, UnknownName};

/// How a rule file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Format>)]
pub enum Format {
    /// ClassBench filters: see [`classbench`].
    Classbench,
    /// Flows as `ovs-ofctl add-flow` reads them: see [`flow_syntax`].
    Flows,
}

impl Named for Format {
    const KIND: &'static str = "format of rules";
}

impl Format {
    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether the flags column of ClassBench filters is matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flags {
    /// It is read over: the published sets are 5-tuple sets, and their traces do not honour it.
    #[default]
    Ignore,
    /// It is matched: TCP flags or ICMP type and code, by protocol.
    Match,
}

/// How to read rules.
#[derive(Clone, Copy)]
pub struct ReadOptions<'a> {
    /// The number of a port that is named.
    pub ports: &'a dyn Fn(&str) -> Option<PortNo>,
    /// The table of rules that name none.
    pub table_default: u8,
    /// More rules than this are refused.
    pub rules_max: usize,
    /// The flags column of ClassBench filters.
    pub flags: Flags,
    /// Rejects an action, with the reason: the error is at that action.
    pub check_action: &'a dyn Fn(&Action) -> Result<(), String>,
    /// Rejects a table that a rule names, with the reason: the error is at that number.
    pub check_table: &'a dyn Fn(u8) -> Result<(), String>,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        Self {
            ports: &|_| None,
            table_default: 0,
            rules_max: 10_000_000,
            flags: Flags::Ignore,
            check_action: &|_| Ok(()),
            check_table: &|_| Ok(()),
        }
    }
}

/// The format of a rule file, by its first line that says something: ClassBench filters begin with `@`.
pub fn detect_format(text: &str) -> Format {
    match super::error::lines(text).next() {
        Some((_, _, line)) if line.text.trim_start().starts_with('@') => Format::Classbench,
        _ => Format::Flows,
    }
}

/// Reads the rules in `text`; `file` is its name in errors, and `format` is found out where it is none.
///
/// ```
/// use flowlane::rule::action::PortNo;
/// use flowlane::rule::{Action, ReadOptions, read};
///
/// let options = ReadOptions::default();
/// let rules = read("tcp,tp_dst=80,actions=output:1", "flows.txt", None, &options)?;
/// assert_eq!(rules[0].actions, [Action::Output(PortNo(1))]);
/// let errors = read("tcp,tp_dts=80,actions=output:1", "flows.txt", None, &options).unwrap_err();
/// assert!(errors.to_string().starts_with("flows.txt:1:5: `tp_dts`"));
/// # Ok::<(), flowlane::rule::ReadErrors>(())
/// ```
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(
    text: &str,
    file: &str,
    format: Option<Format>,
    options: &ReadOptions<'_>,
) -> Result<Vec<Rule>, ReadErrors> {
    match format.unwrap_or_else(|| detect_format(text)) {
        Format::Classbench => classbench::read(text, file, options),
        Format::Flows => flow_syntax::read(text, file, options),
    }
}
