//! Tokens of Rust: enough of the language to find items and paths.

/// A name, a number, `::`, or one character of punctuation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The kinds of pieces that a source consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Token,
    Comment,
    /// A string literal with its quotes.
    Text,
    /// White space, characters and lifetimes.
    Other,
}

/// Returns the tokens of a text, without comments, strings, characters and lifetimes.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    pieces(text).filter(|(kind, _)| *kind == Kind::Token).map(|(_, token)| token).collect()
}

/// Splits a text into all of its pieces, in order.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = (Kind, Token<'_>)> {
    let (mut rest, mut line) = (text, 1);
    std::iter::from_fn(move || {
        let (len, kind) = if rest.is_empty() { return None } else { first(rest) };
        let (piece, behind) = rest.split_at(len);
        let token = Token { text: piece, line };
        line += piece.matches('\n').count();
        rest = behind;
        Some((kind, token))
    })
}

/// Returns the length and the kind of the piece at the beginning of a text.
fn first(text: &str) -> (usize, Kind) {
    let start = text.chars().next().expect("there is some text");
    if text.starts_with("//") {
        (text.find('\n').unwrap_or(text.len()), Kind::Comment)
    } else if text.starts_with("/*") {
        (block_comment(text), Kind::Comment)
    } else if let Some(len) = string(text) {
        (len, Kind::Text)
    } else if start == '\'' {
        (quoted(text), Kind::Other)
    } else if start.is_alphanumeric() || start == '_' {
        (name(text), Kind::Token)
    } else if text.starts_with("::") {
        (2, Kind::Token)
    } else {
        (start.len_utf8(), if start.is_whitespace() { Kind::Other } else { Kind::Token })
    }
}

fn name(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Returns the length of a comment between `/*` and `*/`; comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the string, raw or not, at the beginning of a text.
fn string(text: &str) -> Option<usize> {
    let marks = text.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let (prefix, rest) = text.split_at(marks);
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let content = rest[hashes..].strip_prefix('"')?;
    let begin = marks + hashes + 1;
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(content.find(&end).map_or(text.len(), |at| begin + at + end.len()));
    }
    let mut escaped = false;
    let end = content.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    (hashes == 0).then(|| end.map_or(text.len(), |at| begin + at + 1))
}

/// Returns the length of a character or of a lifetime.
fn quoted(text: &str) -> usize {
    let mut inside = text[1..].chars();
    match (inside.next(), inside.next()) {
        // The escaped character may be a quote itself.
        (Some('\\'), _) => text[3..].find('\'').map_or(text.len(), |at| at + 4),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1 + name(&text[1..]),
    }
}

/// Leaves out the tokens of code that only tests, loom or Miri build.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let end = attribute(&tokens[at..]);
        if end > 0 && is_test_only(&tokens[at..at + end]) {
            at += end + item(&tokens[at + end..]);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Returns the number of tokens of the attribute at the beginning.
fn attribute(tokens: &[Token<'_>]) -> usize {
    match tokens {
        [hash, open, ..] if hash.text == "#" && open.text == "[" => 1 + group(&tokens[1..]),
        _ => 0,
    }
}

/// Returns the number of tokens from a bracket to its closing bracket.
pub(crate) fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns whether `#[cfg(…)]` enables an item only for tests and model checkers.
fn is_test_only(attribute: &[Token<'_>]) -> bool {
    attribute.len() > 5 && attribute[2].text == "cfg" && needs_test(&attribute[4..attribute.len() - 2])
}

fn needs_test(predicate: &[Token<'_>]) -> bool {
    let arms = || {
        let inside = &predicate[2..predicate.len() - 1];
        let (mut arms, mut at) = (Vec::new(), 0);
        while at < inside.len() {
            let call = inside.get(at + 1).is_some_and(|t| t.text == "(");
            let len = if call { 1 + group(&inside[at + 1..]) } else { 1 };
            arms.push(&inside[at..at + len]);
            at += len + 1;
        }
        arms
    };
    match predicate[0].text {
        "test" | "loom" | "miri" => true,
        "all" => arms().into_iter().any(needs_test),
        "any" => arms().into_iter().all(needs_test),
        _ => false,
    }
}

/// Returns the number of tokens of the item at the beginning, its further attributes included.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while attribute(&tokens[at..]) > 0 {
        at += attribute(&tokens[at..]);
    }
    let head = tokens[at..].iter().find(|t| !matches!(t.text, "pub" | "(" | "crate" | "super" | ")"));
    let ends_at_brace = head.is_some_and(|t| t.text != "use");
    while at < tokens.len() {
        match tokens[at].text {
            ";" => return at + 1,
            "{" if ends_at_brace => return at + group(&tokens[at..]),
            "(" | "[" | "{" => at += group(&tokens[at..]),
            "}" | ")" | "]" => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> String {
        tokens(text).iter().map(|t| t.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_strings_and_characters_are_no_tokens() {
        assert_eq!(texts("a // b\n/* c /* d */ e */ f"), "a f");
        assert_eq!(texts(r##"a "b \" c" r#"d " e"# b"f" g"##), "a g");
        assert_eq!(texts(r"a '\'' '\\' '{' &'static b 'c"), "a & b");
        assert_eq!(texts("crate::a::{b}"), "crate :: a :: { b }");
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("a\n/*\n*/ \"\n\" b");
        assert_eq!(found[1], Token { text: "b", line: 4 });
    }

    #[test]
    fn test_only_code_is_left_out() {
        let kept = |text| without_tests(&tokens(text)).iter().map(|t| t.text).collect::<String>();
        assert_eq!(kept("#[cfg(test)] mod tests { fn a() {} } fn b() {}"), "fnb(){}");
        assert_eq!(kept("#[cfg(test)] #[path = \"x\"] pub(crate) use a::{b, c}; d"), "d");
        assert_eq!(kept("#[cfg(all(test, not(loom)))] fn a(b: [u8; 2]) {} c"), "c");
        assert_eq!(kept("#[cfg(any(all(loom, test), miri))] mod a; b"), "b");
        assert_eq!(kept("#[cfg(not(test))] a"), "#[cfg(not(test))]a");
    }
}
