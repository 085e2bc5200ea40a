//! The messages of a stream: JSON objects, one behind the other.

/// The longest message: a database of a large installation comes in one.
pub const MESSAGE_BYTES_MAX: usize = 1 << 28;

/// Deepest nesting, which also the reader of JSON has.
const DEPTH_MAX: u32 = 127;

/// A stream that is no sequence of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A byte between two messages that begins none.
    #[error("byte {0:#04x} begins no JSON object")]
    NoObject(u8),
    /// A message that is too long.
    #[error("a message has more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// A message that is nested too deeply.
    #[error("a message is nested more than {DEPTH_MAX} deep")]
    TooDeep,
}

/// Cuts a stream into messages.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Bytes that have been looked at.
    seen: usize,
    /// Open objects and arrays.
    depth: u32,
    in_string: bool,
    is_escaped: bool,
}

impl Framer {
    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole message.
    ///
    /// # Errors
    /// Where the stream is no sequence of JSON objects: it is of no use any more.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        while let Some(&byte) = self.bytes.get(self.seen) {
            if self.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => {
                        self.bytes.drain(..=self.seen);
                        continue;
                    }
                    b'{' => {}
                    other => return Err(FrameError::NoObject(other)),
                }
            }
            self.seen += 1;
            if self.follow(byte)? {
                let rest = self.bytes.split_off(self.seen);
                self.seen = 0;
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
        }
        match self.bytes.len() > MESSAGE_BYTES_MAX {
            true => Err(FrameError::TooLong),
            false => Ok(None),
        }
    }

    /// Follows a byte; returns whether it ends a message.
    fn follow(&mut self, byte: u8) -> Result<bool, FrameError> {
        match byte {
            _ if std::mem::take(&mut self.is_escaped) => {}
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' if self.depth == DEPTH_MAX => return Err(FrameError::TooDeep),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth -= 1;
                return Ok(self.depth == 0);
            }
            _ => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(framer: &mut Framer) -> Result<Vec<String>, FrameError> {
        let mut out = Vec::new();
        while let Some(message) = framer.next_message()? {
            out.push(String::from_utf8(message).unwrap());
        }
        Ok(out)
    }

    #[test]
    fn messages_end_where_their_object_does() {
        let messages = [r#"{"a":"}{\"","b":["]"]}"#, r#"{"id":null,"x":{"y":"\\"}}"#, "{}"];
        let mut framer = Framer::default();
        framer.push(messages.join(" \n").as_bytes());
        framer.push(b"{\"");
        assert_eq!(all(&mut framer).unwrap(), messages);
        framer.push(b"last\":1}");
        assert_eq!(all(&mut framer).unwrap(), ["{\"last\":1}"]);
    }

    #[test]
    fn a_stream_of_something_else_is_refused() {
        for (bytes, error) in [
            (&b"HTTP/1.1"[..], FrameError::NoObject(b'H')),
            (b"{}]", FrameError::NoObject(b']')),
            (&[b'{'; 200], FrameError::TooDeep),
        ] {
            let mut framer = Framer::default();
            framer.push(bytes);
            assert_eq!(all(&mut framer), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_same_messages(texts in prop::collection::vec(".{0,20}", 1..8), cut in 1usize..9) {
            let messages: Vec<String> =
                texts.iter().map(|text| serde_json::json!({ "key": text, "list": [text] }).to_string()).collect();
            let mut framer = Framer::default();
            let mut found = Vec::new();
            for piece in messages.concat().as_bytes().chunks(cut) {
                framer.push(piece);
                found.extend(all(&mut framer).unwrap());
            }
            prop_assert_eq!(found, messages);
        }
    }
}
