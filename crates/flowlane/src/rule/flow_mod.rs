//! Changes to rules.
#![expect(missing_docs, reason = "stub")]

use std::time::Duration;

use super::action::PortNo;
use super::{Action, Rule};

/// What happens to rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Add,
    Modify,
    ModifyStrict,
    Delete,
    DeleteStrict,
}

/// A change to rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    pub at: Option<Duration>,
    pub command: Command,
    pub table: Option<u8>,
    pub rule: Rule,
    pub cookie: Option<(u64, u64)>,
    pub new_cookie: Option<u64>,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub out_port: Option<PortNo>,
    pub line: usize,
}

impl FlowMod {
    /// Whether this is for a rule.
    pub fn selects(&self, table: u8, rule: &Rule) -> bool {
        let strict = matches!(self.command, Command::ModifyStrict | Command::DeleteStrict);
        let named = match strict {
            true => self.rule.priority == rule.priority && self.rule.matches == rule.matches,
            false => self.rule.matches.words().is_empty(),
        };
        let out = |port: PortNo| rule.actions.iter().any(|a| matches!(a, Action::Output(p) if *p == port));
        self.table.is_none_or(|t| t == table)
            && named
            && self.cookie.is_none_or(|(value, mask)| rule.cookie & mask == value & mask)
            && self.out_port.is_none_or(out)
    }
}

/// stub
pub fn read_changes(
    text: &str,
    file: &str,
    options: &super::ReadOptions<'_>,
) -> Result<Vec<FlowMod>, super::ReadErrors> {
    _ = (text, file, options);
    Ok(Vec::new())
}
