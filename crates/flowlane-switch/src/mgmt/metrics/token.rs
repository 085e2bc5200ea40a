//! The token by which clients may read metrics (RFC 6750).

use std::fmt;
use std::hint::black_box;

/// Minimum length: 96 bits in Base64.
const LEN_MIN: usize = 16;
/// Maximum length: it must fit a request.
const LEN_MAX: usize = 1024;

/// A secret, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Checks a token.
    ///
    /// # Errors
    /// The reason why clients could not send it, or others could guess it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let is_sent = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if let Some(wrong) = text.chars().find(|c| !c.is_ascii() || !is_sent(*c as u8)) {
            return Err(format!("a token has letters, digits and any of -._~+/= (RFC 6750), not {wrong:?}"));
        }
        if !(LEN_MIN..=LEN_MAX).contains(&text.len()) {
            return Err(format!("a token has {LEN_MIN} to {LEN_MAX} characters, not {}", text.len()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns whether the value of a header `Authorization` has this token. The time depends on the length of the value, not on
    /// where it differs.
    pub(super) fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, given)) = authorization.split_once(' ') else { return false };
        let (given, own) = (given.trim_start_matches(' ').as_bytes(), self.0.as_bytes());
        let differs = (0..given.len()).fold(0, |all, at| black_box(all | (given[at] ^ own[at % own.len()])));
        scheme.eq_ignore_ascii_case("bearer") & (given.len() == own.len()) & (black_box(differs) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::new("0123456789abcdef").unwrap();
        for right in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef"] {
            assert!(token.is_in(right), "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeg",
            "Bearer 1123456789abcdef",
            "Bearer 0123456789abcdef0123456789abcdef",
            "Bearer 0123456789abcdef ",
        ] {
            assert!(!token.is_in(wrong), "{wrong}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn tokens_that_could_be_guessed_or_not_be_sent_are_refused() {
        assert!(Token::new("0123456789abcde").unwrap_err().contains("16 to 1024 characters, not 15"));
        assert!(Token::new("0123456789 abcdef").unwrap_err().contains("not ' '"));
        assert!(Token::new("0123456789abcdefü").is_err());
        assert!(Token::new(&"a".repeat(LEN_MAX + 1)).is_err());
    }
}
