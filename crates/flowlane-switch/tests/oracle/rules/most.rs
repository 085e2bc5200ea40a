//! How often packets can meet an action of some rules, at most.

use std::collections::BTreeMap;

use super::{Rules, flow_control, leads_back};

/// A count of how often packets can meet an action.
pub(super) struct Most<'a> {
    pub(super) rules: &'a Rules,
    pub(super) action: &'a str,
    /// The rules that lead back and have done so, by line: each does once.
    pub(super) taken: Vec<usize>,
    /// Results by table and rules taken.
    pub(super) known: BTreeMap<(u8, Vec<usize>), usize>,
}

impl<'a> Most<'a> {
    /// Returns the count of a packet that enters a table.
    pub(super) fn in_table(&mut self, table: u8) -> usize {
        let key = (table, self.taken.clone());
        if let Some(most) = self.known.get(&key) {
            return *most;
        }
        let start = format!("table={table},");
        let mut most = 0;
        for (line, rule) in self.rules.text.lines().enumerate().filter(|(_, rule)| rule.starts_with(&start)) {
            let leads_back = leads_back(rule);
            if leads_back && self.taken.contains(&line) {
                continue;
            }
            if leads_back {
                self.taken.push(line);
            }
            most = most.max(self.of(rule, table));
            if leads_back {
                self.taken.pop();
            }
        }
        self.known.insert(key, most);
        most
    }

    /// Returns the count of a packet that meets a rule or a group.
    fn of(&mut self, line: &'a str, table: u8) -> usize {
        let own = line.matches(self.action).count();
        let tables = flow_control::tables_of(line, table).into_iter();
        let there: usize = tables.map(|to| self.in_table(to)).sum();
        let groups = &self.rules.groups;
        let groups = flow_control::groups_of(line)
            .into_iter()
            .filter_map(|id| groups.lines().find(|group| flow_control::is_group(group, id)));
        own + there + groups.map(|group| self.of(group, table)).sum::<usize>()
    }
}
