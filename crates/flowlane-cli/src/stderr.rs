//! Standard error: notes and failures, which are lost where it takes nothing.

use std::io::{self, Write};

/// Removes colours from a text, unless `stream` shows them.
pub(crate) fn for_terminal(stream: &impl anstream::stream::RawStream, text: String) -> String {
    match anstream::AutoStream::choice(stream) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

/// Writes text to standard error, and goes on where that is closed or full. `eprintln!` would end the thread.
pub(crate) fn write(text: &str) {
    // There is no other place to report a failure.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes a line to standard error; the arguments are those of `format!`.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::stderr::write(&(format!($($text)*) + "\n"))
    };
}
pub(crate) use note;
