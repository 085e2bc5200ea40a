//! A limit for messages that repeat: some of each kind in a time, then a count of those that were left out.
//!
//! Messages are of one kind where they differ in numbers only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Messages of a kind in a period.
const MESSAGES_MAX: u32 = 10;
/// The period, which begins with the first message.
const PERIOD: Duration = Duration::from_secs(60);
/// Kinds that are known at once. Further ones share a limit.
const KINDS_MAX: usize = 256;

/// The messages of the periods under way.
#[derive(Debug, Default)]
pub(crate) struct Repeats(BTreeMap<String, Kind>);

#[derive(Debug)]
struct Kind {
    begun: Instant,
    messages: u32,
    suppressed: u64,
    /// One of those that were left out.
    sample: String,
}

/// Returns the text with each number as `#`.
fn kind_of(text: &str) -> String {
    let mut kind = String::with_capacity(text.len());
    for character in text.chars() {
        let shown = if character.is_ascii_digit() { '#' } else { character };
        if shown != '#' || !kind.ends_with('#') {
            kind.push(shown);
        }
    }
    kind
}

impl Repeats {
    /// Counts a message. Returns whether it is to be written.
    pub(crate) fn admit(&mut self, text: &str, now: Instant) -> bool {
        let mut kind = kind_of(text);
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            kind = String::new();
        }
        let begin = || Kind { begun: now, messages: 0, suppressed: 0, sample: String::new() };
        let known = self.0.entry(kind).or_insert_with(begin);
        if known.messages < MESSAGES_MAX {
            known.messages += 1;
            return true;
        }
        if known.suppressed == 0 {
            text.clone_into(&mut known.sample);
        }
        known.suppressed += 1;
        false
    }

    /// Ends the periods that are over. Returns a message for each kind of which some were left out.
    pub(crate) fn end_periods(&mut self, now: Instant) -> Vec<String> {
        let is_over = |_: &String, kind: &mut Kind| now.duration_since(kind.begun) >= PERIOD;
        let ended = self.0.extract_if(.., is_over).map(|(_, kind)| kind);
        ended.filter(|kind| kind.suppressed > 0).map(|kind| kind.report(now)).collect()
    }

    /// Ends all periods, as [`end_periods`](Self::end_periods) does.
    pub(crate) fn end_all(&mut self, now: Instant) -> Vec<String> {
        let kinds = std::mem::take(&mut self.0).into_values();
        kinds.filter(|kind| kind.suppressed > 0).map(|kind| kind.report(now)).collect()
    }
}

impl Kind {
    fn report(&self, now: Instant) -> String {
        let seconds = now.duration_since(self.begun).as_secs();
        format!("{} more in {seconds} s like: {}", self.suppressed, self.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_kind_are_limited_and_counted() {
        let begun = Instant::now();
        let mut repeats = Repeats::default();
        let written = (0..25).filter(|n| repeats.admit(&format!("port {n} is down ({n} s)"), begun)).count();
        assert_eq!(written, MESSAGES_MAX as usize);
        assert!(repeats.admit("another message", begun));
        assert_eq!(repeats.end_periods(begun + PERIOD / 2), Vec::<String>::new());
        assert!(!repeats.admit("port 99 is down (99 s)", begun + PERIOD / 2));
        assert_eq!(repeats.end_periods(begun + PERIOD), ["16 more in 60 s like: port 10 is down (10 s)"]);
        // A new period, with a new allowance.
        assert!(repeats.admit("port 1 is down (1 s)", begun + PERIOD));
        assert_eq!(repeats.end_all(begun + PERIOD), Vec::<String>::new());
    }

    #[test]
    fn messages_of_ever_new_kinds_share_a_limit() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        let name = |n: usize| "x".repeat(n + 1);
        let written = (0..2000).filter(|n| repeats.admit(&name(*n), now)).count();
        assert_eq!(written, KINDS_MAX + MESSAGES_MAX as usize);
        assert_eq!(repeats.0.len(), KINDS_MAX + 1);
        assert_eq!(repeats.end_all(now).len(), 1);
    }
}
