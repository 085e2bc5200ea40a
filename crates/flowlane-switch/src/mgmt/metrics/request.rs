//! Requests of HTTP/1.1 (RFC 9112), as far as metrics need them: a head of bounded length, and a body with `Content-Length`.
//!
//! Own code: a request line and `name: value` lines are less than a dependency, and everything else is refused. No transfer
//! codings, no continued lines, no bare line feeds.

use super::response::Response;

/// Maximum length of a head in bytes.
pub(super) const HEAD_MAX: usize = 8 << 10;
/// Maximum length of a body in bytes: a traced frame of 9,216 bytes in hexadecimal, and its parameters.
pub(super) const BODY_MAX: usize = 32 << 10;
/// Maximum number of header lines.
const HEADERS_MAX: usize = 64;

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Head,
    Post,
    Other,
}

/// A whole request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Without a query.
    pub(super) path: String,
    /// Names in lower case, and values without surrounding blanks.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The client may send another request on this connection.
    pub(super) stays_open: bool,
}

impl Request {
    /// Returns the value of the first header with a name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

/// The bytes of a connection that no request has used yet.
#[derive(Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns whether a request has begun.
    pub(super) fn has_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes the next request; `None` where bytes are missing.
    ///
    /// # Errors
    /// The response to a request that is refused, behind which the connection ends.
    pub(super) fn next(&mut self) -> Result<Option<Request>, Response> {
        // RFC 9112, section 2.2: empty lines before a request are skipped.
        let blank = self.bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        self.bytes.drain(..blank);
        let searched = &self.bytes[..self.bytes.len().min(HEAD_MAX)];
        let Some(head_end) = searched.windows(4).position(|four| four == b"\r\n\r\n") else {
            return match self.bytes.len() >= HEAD_MAX {
                true => Err(Response::refusal(431, format!("a head has at most {HEAD_MAX} bytes"))),
                false => Ok(None),
            };
        };
        let (mut request, body_len) = read_head(&self.bytes[..head_end])?;
        let end = head_end + 4 + body_len;
        if self.bytes.len() < end {
            return Ok(None);
        }
        request.body = self.bytes[head_end + 4..end].to_vec();
        self.bytes.drain(..end);
        Ok(Some(request))
    }
}

/// Reads a head without its empty line. Returns the request without its body, and the length of the body.
fn read_head(head: &[u8]) -> Result<(Request, usize), Response> {
    let bad = |problem: &str| Response::refusal(400, problem);
    let text = std::str::from_utf8(head).map_err(|_| bad("the head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the first line is not `METHOD /path HTTP/1.1`"));
    };
    let is_new = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(Response::refusal(505, "only HTTP/1.0 and HTTP/1.1 are spoken")),
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(bad("the method is not a word"));
    }
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("the target is not a path"));
    }
    let headers = read_headers(lines)?;
    if is_new && headers.iter().filter(|(name, _)| name == "host").count() != 1 {
        return Err(bad("there is not one Host"));
    }
    let body_len = body_len(&headers)?;
    let closes = find(&headers, "connection")
        .is_some_and(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close")));
    let request = Request {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            _ => Method::Other,
        },
        path: target.split('?').next().unwrap_or_default().to_owned(),
        headers,
        body: Vec::new(),
        stays_open: is_new && !closes,
    };
    Ok((request, body_len))
}

fn read_headers<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<(String, String)>, Response> {
    let mut headers = Vec::new();
    for line in lines {
        let read = line.split_once(':').filter(|(name, value)| {
            let is_text = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
            !name.is_empty() && name.bytes().all(is_token) && value.bytes().all(is_text)
        });
        let (name, value) = read.ok_or_else(|| Response::refusal(400, "a header is not `name: value`"))?;
        if headers.len() == HEADERS_MAX {
            return Err(Response::refusal(431, format!("a head has at most {HEADERS_MAX} headers")));
        }
        headers.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(headers)
}

/// Returns the length of the body.
fn body_len(headers: &[(String, String)]) -> Result<usize, Response> {
    if find(headers, "transfer-encoding").is_some() {
        return Err(Response::refusal(501, "a body needs Content-Length, without Transfer-Encoding"));
    }
    let mut lengths = headers.iter().filter(|(name, _)| name == "content-length").map(|(_, value)| value);
    let Some(length) = lengths.next() else { return Ok(0) };
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || lengths.any(|other| other != length) {
        return Err(Response::refusal(400, "Content-Length is not one number"));
    }
    // A number that does not fit is too large.
    match length.parse() {
        Ok(length) if length <= BODY_MAX => Ok(length),
        _ => Err(Response::refusal(413, format!("a body has at most {BODY_MAX} bytes"))),
    }
}

/// Returns whether a byte may be in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Request>, u16> {
        let mut incoming = Incoming::default();
        incoming.push(text.as_bytes());
        incoming.next().map_err(|response| response.status)
    }

    #[test]
    fn requests_are_read_one_behind_the_other_however_they_are_cut() {
        let text = "\r\nGET /metrics?a=b HTTP/1.1\r\nHost: x\r\nACCEPT:  text/plain \r\n\r\n\
                    POST /trace HTTP/1.1\r\nhost: x\r\nContent-Length: 4\r\nConnection: foo, Close\r\n\r\nabcd\
                    HEAD / HTTP/1.0\r\n\r\n";
        for step in 1..text.len() {
            let (mut incoming, mut all) = (Incoming::default(), Vec::new());
            for part in text.as_bytes().chunks(step) {
                incoming.push(part);
                while let Some(request) = incoming.next().unwrap() {
                    all.push(request);
                }
            }
            assert!(!incoming.has_begun());
            let got: Vec<_> = all.iter().map(|r| (r.method, r.path.as_str(), r.stays_open)).collect();
            assert_eq!(
                got,
                [
                    (Method::Get, "/metrics", true),
                    (Method::Post, "/trace", false),
                    (Method::Head, "/", false)
                ]
            );
            assert_eq!((all[0].header("accept"), &*all[1].body), (Some("text/plain"), &b"abcd"[..]));
        }
    }

    #[test]
    fn requests_that_are_wrong_are_refused_with_the_status_of_their_mistake() {
        let host = "Host: x\r\n";
        for (text, status) in [
            (format!("GET / HTTP/1.1\r\n{host}\r\n").replace("Host", "Hosts"), 400),
            (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), 400),
            (format!("GET / HTTP/2.0\r\n{host}\r\n"), 505),
            (format!("GET  / HTTP/1.1\r\n{host}\r\n"), 400),
            (format!("GET / HTTP/1.1 x\r\n{host}\r\n"), 400),
            (format!("GET x HTTP/1.1\r\n{host}\r\n"), 400),
            (format!("GET /\u{e9} HTTP/1.1\r\n{host}\r\n"), 400),
            (format!("G(T / HTTP/1.1\r\n{host}\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host} continued\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}a b: c\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}a: \u{1}\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}a: b\nc: d\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}Content-Length: +1\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400),
            (format!("GET / HTTP/1.1\r\n{host}Content-Length: 99999999999999999999999\r\n\r\n"), 413),
            (format!("GET / HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n", BODY_MAX + 1), 413),
            (format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"), 501),
            (format!("GET / HTTP/1.1\r\n{host}{}\r\n", "a: b\r\n".repeat(HEADERS_MAX)), 431),
            (format!("GET /{} HTTP/1.1\r\n{host}\r\n", "a".repeat(HEAD_MAX)), 431),
        ] {
            assert_eq!(read(&text), Err(status), "{text:?}");
        }
        assert_eq!(read(&format!("GET / HTTP/1.1\r\n{host}Content-Length: {BODY_MAX}\r\n\r\n")), Ok(None));
        assert_eq!(read(&"a".repeat(HEAD_MAX - 1)), Ok(None));
        assert!(read(&format!("GET / HTTP/1.1\r\n{host}{}\r\n", "a: b\r\n".repeat(HEADERS_MAX - 1))).is_ok());
    }
}
