//! Verdicts as text: lines of CSV, or the elements of a JSON array; or as numbers of rules, for columns.

use flowlane::classify::Hit;
use serde::Serialize;

use super::List;
use super::book::Sheet;

/// How a packet's verdict is written. What is said of a rule is put together once.
pub(super) struct Verdicts {
    is_json: bool,
    /// Not as text.
    is_of_columns: bool,
    lists: Vec<Winners>,
}

/// What is said where a rule of a list wins, and where none does.
struct Winners {
    /// The handle of its first rule.
    first: u32,
    texts: String,
    /// Where in the texts each rule's ends; the first is that of no rule.
    ends: Vec<u32>,
}

#[derive(Serialize)]
struct Winner<'a> {
    rule: Option<u32>,
    priority: Option<u32>,
    action: Option<&'a str>,
}

impl Winner<'_> {
    const NONE: Self = Self { rule: None, priority: None, action: None };

    /// As three more columns.
    fn csv(&self) -> String {
        let (Some(rule), Some(priority)) = (self.rule, self.priority) else { return ",,,".to_owned() };
        let action = self.action.unwrap_or_default();
        // No action has a quote in it; several are separated by commas.
        let quote = if action.contains(',') { "\"" } else { "" };
        format!(",{rule},{priority},{quote}{action}{quote}")
    }

    /// As members of an object.
    fn json(&self) -> String {
        let object = serde_json::to_string(self).expect("plain data");
        object.trim_matches(['{', '}']).to_owned()
    }
}

impl Winners {
    fn new(list: &List, is_json: bool) -> Self {
        let rules = list.rules.iter().zip(&list.actions).enumerate();
        let winners = rules.map(|(position, (rule, action))| Winner {
            rule: Some(position as u32),
            priority: Some(rule.priority.0),
            action: Some(action.as_str()).filter(|action| !action.is_empty()),
        });
        let (mut texts, mut ends) = (String::new(), Vec::with_capacity(list.rules.len() + 1));
        for winner in std::iter::once(Winner::NONE).chain(winners) {
            texts.push_str(&if is_json { winner.json() } else { winner.csv() });
            ends.push(texts.len() as u32);
        }
        Self { first: list.first, texts, ends }
    }

    #[inline]
    fn text(&self, hit: Option<Hit>) -> &str {
        let place = hit.map_or(0, |hit| (hit.rule.0 - self.first) as usize + 1);
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.texts[begin as usize..self.ends[place] as usize]
    }
}

impl Verdicts {
    pub(super) fn new(lists: &[List], is_json: bool, is_of_columns: bool) -> Self {
        Self { is_json, is_of_columns, lists: lists.iter().map(|list| Winners::new(list, is_json)).collect() }
    }

    /// What stands before the first.
    pub(super) fn head(&self) -> String {
        if self.is_json {
            return "{\"verdicts\":[".to_owned();
        }
        let mut head = "packet,rule,priority,action".to_owned();
        for number in 2..=self.lists.len() {
            head += &format!(",rule{number},priority{number},action{number}");
        }
        head + "\n"
    }

    /// Writes the verdict of a packet behind those before it: the best rule of each list.
    #[inline]
    pub(super) fn write(&self, packet: u64, hits: &[Option<Hit>], sheet: &mut Sheet) {
        if self.is_of_columns {
            if sheet.rules.is_empty() {
                sheet.first = packet;
            }
            let lists = self.lists.iter().zip(hits);
            sheet.rules.extend(lists.map(|(list, hit)| hit.map_or(u32::MAX, |hit| hit.rule.0 - list.first)));
            return;
        }
        let out = &mut sheet.text;
        let mut number = itoa::Buffer::new();
        let number = number.format(packet);
        let mut texts = self.lists.iter().zip(hits).map(|(list, hit)| list.text(*hit));
        if !self.is_json {
            out.push_str(number);
            texts.for_each(|text| out.push_str(text));
            out.push('\n');
            return;
        }
        out.push_str(if packet == 0 { "{\"packet\":" } else { ",{\"packet\":" });
        out.push_str(number);
        out.push(',');
        out.push_str(texts.next().unwrap_or_default());
        for (at, text) in texts.enumerate() {
            out.push_str(if at == 0 { ",\"also\":[{" } else { "},{" });
            out.push_str(text);
        }
        out.push_str(if hits.len() > 1 { "}]}" } else { "}" });
    }

    /// What stands behind the last.
    pub(super) fn tail(&self, summary: &impl Serialize) -> String {
        if !self.is_json {
            return String::new();
        }
        format!("],\"summary\":{}}}\n", serde_json::to_string(summary).expect("plain data"))
    }
}
