//! Formatting of verdicts: CSV lines, elements of a JSON array, or rule numbers for columns.

use flowlane::classify::Hit;
use serde::Serialize;

use super::List;
use super::sink::VerdictBuffer;

/// Formatter of verdicts. The text of each rule is built once.
pub(super) struct Verdicts {
    is_json: bool,
    /// Emit rule numbers instead of text.
    is_columnar: bool,
    lists: Vec<Winners>,
}

/// Text for each winning rule of a list, and for no match.
struct Winners {
    /// ID of the list's first rule.
    first: u32,
    texts: String,
    /// End of each rule's text in `texts`; the first entry is that of no match.
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

    /// Formats three further CSV columns.
    fn csv(&self) -> String {
        let (Some(rule), Some(priority)) = (self.rule, self.priority) else { return ",,,".to_owned() };
        let action = self.action.unwrap_or_default();
        // Actions contain no quotes; several are separated by commas.
        let quote = if action.contains(',') { "\"" } else { "" };
        format!(",{rule},{priority},{quote}{action}{quote}")
    }

    /// Formats the members of a JSON object.
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
    pub(super) fn new(lists: &[List], is_json: bool, is_columnar: bool) -> Self {
        Self { is_json, is_columnar, lists: lists.iter().map(|list| Winners::new(list, is_json)).collect() }
    }

    /// Returns the text before the first verdict.
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

    /// Appends the verdict of a packet: the best rule of each list.
    #[inline]
    pub(super) fn write(&self, packet: u64, hits: &[Option<Hit>], buffer: &mut VerdictBuffer) {
        if self.is_columnar {
            if buffer.rules.is_empty() {
                buffer.first = packet;
            }
            let lists = self.lists.iter().zip(hits);
            buffer.rules.extend(lists.map(|(list, hit)| hit.map_or(u32::MAX, |hit| hit.rule.0 - list.first)));
            return;
        }
        let out = &mut buffer.text;
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

    /// Returns the text after the last verdict.
    pub(super) fn tail(&self, summary: &impl Serialize) -> String {
        if !self.is_json {
            return String::new();
        }
        format!("],\"summary\":{}}}\n", serde_json::to_string(summary).expect("plain data"))
    }
}
