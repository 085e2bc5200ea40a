//! The words of a route, whether lines of text or JSON gave them.

use crate::rule::error::{Fault, Token};

/// The words of a route, read from the front.
pub(super) struct RouteWords<'a, 'w> {
    words: &'w [Token<'a>],
    at: usize,
    /// Where the words end.
    end: usize,
}

impl<'a, 'w> RouteWords<'a, 'w> {
    pub(super) fn of(words: &'w [Token<'a>], end: usize) -> Self {
        Self { words, at: 0, end }
    }

    /// The next word; `expected` says what should stand there.
    pub(super) fn next(&mut self, expected: &str) -> Result<Token<'a>, Fault> {
        let word = self.words.get(self.at).copied().ok_or_else(|| {
            Token { text: "", at: self.end }.fault(format!("the route ends where {expected} is expected"))
        })?;
        self.at += 1;
        Ok(word)
    }

    /// The next word, which stays unread; empty at the end.
    pub(super) fn peek(&self) -> &'a str {
        self.words.get(self.at).map_or("", |word| word.text)
    }

    /// Returns whether no word is left.
    pub(super) fn done(&self) -> bool {
        self.at == self.words.len()
    }

    /// Reads over the words before one of `stops`.
    pub(super) fn skip_to(&mut self, stops: &[&str]) {
        while !self.done() && !stops.contains(&self.peek()) {
            self.at += 1;
        }
    }
}
