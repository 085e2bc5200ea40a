//! Responses of HTTP/1.1.

use std::io::{self, Write};
use std::sync::Arc;

/// A whole response.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    content_type: &'static str,
    body: Arc<str>,
    /// Further headers.
    headers: Vec<(&'static str, String)>,
    /// The connection ends behind it.
    pub(super) closes: bool,
}

impl Response {
    pub(super) fn ok(content_type: &'static str, body: impl Into<Arc<str>>) -> Self {
        Self { status: 200, content_type, body: body.into(), headers: Vec::new(), closes: false }
    }

    /// An error in words, for people.
    pub(super) fn error(status: u16, problem: impl Into<String>) -> Self {
        let (content_type, body) = ("text/plain; charset=utf-8", problem.into() + "\n");
        Self { status, ..Self::ok(content_type, body) }
    }

    /// An error behind which the connection ends.
    pub(super) fn refusal(status: u16, problem: impl Into<String>) -> Self {
        Self { closes: true, ..Self::error(status, problem) }
    }

    /// The refusal of a client that may try again in a second.
    pub(super) fn busy(status: u16, problem: &str) -> Self {
        Self::refusal(status, problem).with("Retry-After", "1")
    }

    /// Adds a header, whose value has no line ends.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Writes head and body; of an answer to HEAD, only the head.
    pub(super) fn write(&self, out: &mut impl Write, has_body: bool) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        );
        head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += if self.closes { "Connection: close\r\n\r\n" } else { "\r\n" };
        out.write_all(head.as_bytes())?;
        if has_body { out.write_all(self.body.as_bytes()) } else { Ok(()) }
    }
}

/// Returns the words for a status.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}
