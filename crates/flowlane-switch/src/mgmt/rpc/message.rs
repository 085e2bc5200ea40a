//! The messages of the control socket: JSON-RPC 2.0 (jsonrpc.org/specification), one per line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::peer::Peer;
use crate::port::runtime_folder::{is_system_socket, is_trusted};

/// Version of the protocol. It increases whenever parameters or results of a method change.
pub const PROTOCOL: u32 = 1;

/// Maximum number of commas and opening brackets of a request outside strings. A request has at most four parameters.
const ELEMENTS_MAX: usize = 256;
/// Maximum depth of a request.
const DEPTH_MAX: usize = 16;
/// Maximum length in bytes of the parts of an error message that come from a request.
const QUOTED_MAX: usize = 4096;
/// Maximum length in bytes of the `id` of a request.
const ID_MAX: usize = 256;

/// A request.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) jsonrpc: String,
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
    /// None for a notification.
    #[serde(default)]
    pub(super) id: Option<Value>,
}

/// The error of a method.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// A code of the specification, or one of the constants of this type.
    pub code: i64,
    pub message: String,
    /// Further data: for errors in lines, each line with its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// The line is not JSON.
    pub const PARSE: i64 = -32700;
    /// The line is not a request.
    pub const REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD: i64 = -32601;
    /// The parameters are wrong.
    pub const PARAMS: i64 = -32602;
    /// The switch rejects a change; nothing has changed.
    pub const REFUSED: i64 = 1;
    /// The switch does not run.
    pub const STOPPED: i64 = 2;
    /// Other requests use the memory that there is for them; try again.
    pub const BUSY: i64 = 3;
    /// The client runs as another user.
    pub const FORBIDDEN: i64 = 4;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: shortened(message.into()), data: None }
    }

    /// Returns the line that answers a request which was not read.
    pub(super) fn line(self) -> String {
        render(&Value::Null, Err(self))
    }
}

/// Cuts a text that quotes much of a request.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > QUOTED_MAX {
        text.truncate(text.floor_char_boundary(QUOTED_MAX));
        text.push('…');
    }
    text
}

/// Reads the parameters of a method.
pub(super) fn parse_params<T: DeserializeOwned + Default>(params: Value) -> Result<T, RpcError> {
    if params.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(params).map_err(|e| RpcError::new(RpcError::PARAMS, format!("params: {e}")))
}

/// Renders the result of a method.
pub(super) fn to_json(what: &impl Serialize) -> Result<String, RpcError> {
    serde_json::to_string(what).map_err(|e| RpcError::new(RpcError::REQUEST, e.to_string()))
}

/// Returns the line that answers a request; `None` for a notification. `call` returns JSON.
pub(super) fn answer(
    line: Vec<u8>,
    call: impl FnOnce(&str, Value) -> Result<String, RpcError>,
) -> Option<String> {
    let refused = |code, message: String| Some(RpcError::new(code, message).line());
    // A value takes 16 times as much memory as its text.
    if let Err(problem) = check_shape(&line) {
        return refused(RpcError::REQUEST, problem);
    }
    let request: Request = match serde_json::from_slice(&line) {
        Ok(request) => request,
        Err(e) if e.is_data() => {
            return refused(RpcError::REQUEST, format!("no request of JSON-RPC 2.0: {e}"));
        }
        Err(e) => return refused(RpcError::PARSE, format!("no JSON: {e}")),
    };
    drop(line);
    let id_fits = match &request.id {
        None | Some(Value::Null | Value::Number(_)) => true,
        Some(Value::String(id)) => id.len() <= ID_MAX,
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => false,
    };
    if !id_fits {
        let message = format!("`id` must be a number, null, or a string of up to {ID_MAX} bytes");
        return refused(RpcError::REQUEST, message);
    }
    if request.jsonrpc != "2.0" {
        let error = RpcError::new(RpcError::REQUEST, "`jsonrpc` must be \"2.0\"");
        return Some(render(&request.id.unwrap_or_default(), Err(error)));
    }
    let result = call(&request.method, request.params);
    request.id.map(|id| render(&id, result))
}

/// Checks that a line has no more elements and depth than a request can have.
fn check_shape(line: &[u8]) -> Result<(), String> {
    let (mut elements, mut depth, mut in_string, mut escaped) = (0, 0usize, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => (elements, depth) = (elements + 1, depth + 1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => elements += 1,
            _ => {}
        }
        if elements > ELEMENTS_MAX {
            return Err(format!("no request has more than {ELEMENTS_MAX} elements"));
        }
        if depth > DEPTH_MAX {
            return Err(format!("no request is nested more than {DEPTH_MAX} deep"));
        }
    }
    Ok(())
}

fn render(id: &Value, result: Result<String, RpcError>) -> String {
    match result {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string(),
    }
}

/// An error of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No switch is connected.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The method failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The answer is not that of a switch.
    #[error("the answer is not that of a switch of this version: {0}")]
    Answer(String),
}

/// A connection to a switch's control socket.
pub struct Client {
    stream: BufReader<UnixStream>,
    id: u64,
}

/// A line from a switch: the answer to a request, or a notification before it.
#[derive(Deserialize)]
struct Answer {
    /// Of a notification.
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
    error: Option<RpcError>,
}

impl Client {
    /// Connects to a switch of this user, or of root; root also connects to the system's switch, whichever its user.
    ///
    /// # Errors
    /// Where no switch listens on the path, or the program that does runs as another user.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let peer = Peer::of(&stream)?;
        if !is_trusted(peer.user) && !is_system_socket(path, peer.user) {
            let problem = format!("the program that listens there runs as user {}", peer.user);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        Ok(Self { stream: BufReader::new(stream), id: 0 })
    }

    /// Calls a method, and waits for its result.
    ///
    /// # Errors
    /// The method's error, or that the connection is closed.
    pub fn call(&mut self, method: &str, params: &impl Serialize) -> Result<Value, CallError> {
        self.call_noticing(method, params, |_, _| Ok(()))
    }

    /// Calls a method, and waits for its result. `notice` gets the notifications that come before: their methods and parameters.
    ///
    /// # Errors
    /// The method's error, that the connection is closed, or the first error of `notice`.
    pub fn call_noticing(
        &mut self,
        method: &str,
        params: &impl Serialize,
        notice: impl FnMut(&str, Value) -> io::Result<()>,
    ) -> Result<Value, CallError> {
        let written = self.request(method, params);
        // A switch that does not read the whole request says why before it disconnects.
        match self.answer_noticing(notice) {
            Err(CallError::Io(error)) => Err(written.err().unwrap_or(error).into()),
            answered => answered,
        }
    }

    /// Sends a request.
    pub(super) fn request(&mut self, method: &str, params: &impl Serialize) -> io::Result<()> {
        self.id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        let mut line = request.to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }

    /// Waits for the result of the request.
    pub(super) fn answer(&mut self) -> Result<Value, CallError> {
        self.answer_noticing(|_, _| Ok(()))
    }

    fn answer_noticing(
        &mut self,
        mut notice: impl FnMut(&str, Value) -> io::Result<()>,
    ) -> Result<Value, CallError> {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            if line.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the switch has stopped").into());
            }
            let answer: Answer = serde_json::from_str(&line).map_err(|e| CallError::Answer(e.to_string()))?;
            match (answer.method, answer.error) {
                (Some(method), _) => notice(&method, answer.params)?,
                (None, Some(error)) => return Err(error.into()),
                (None, None) => return Ok(answer.result),
            }
        }
    }

    pub(super) fn stream(&mut self) -> &mut BufReader<UnixStream> {
        &mut self.stream
    }

    pub(super) fn into_stream(self) -> BufReader<UnixStream> {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, params: Value) -> Result<String, RpcError> {
        match method {
            "echo" => Ok(params.to_string()),
            _ => Err(RpcError::new(RpcError::METHOD, format!("there is no method `{method}`"))),
        }
    }

    fn said(line: impl AsRef<[u8]>) -> Value {
        serde_json::from_str(&answer(line.as_ref().to_vec(), call).unwrap()).unwrap()
    }

    fn code(line: impl AsRef<[u8]>) -> Option<i64> {
        said(line)["error"]["code"].as_i64()
    }

    #[test]
    fn requests_are_answered_and_malformed_ones_get_an_error_code() {
        let echoed = said(r#"{"jsonrpc":"2.0","method":"echo","params":[1,{"a":"b"}],"id":"x"}"#);
        assert_eq!(echoed, json!({ "jsonrpc": "2.0", "id": "x", "result": [1, { "a": "b" }] }));
        assert_eq!(code("{"), Some(RpcError::PARSE));
        assert_eq!(code(""), Some(RpcError::PARSE));
        assert_eq!(code(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xc3\x28\",\"id\":1}"), Some(RpcError::PARSE));
        assert_eq!(code("[]"), Some(RpcError::REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"1.0","method":"echo","id":1}"#), Some(RpcError::REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"echo","id":{"x":1}}"#), Some(RpcError::REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"nothing","id":1}"#), Some(RpcError::METHOD));
        // A notification has no answer.
        assert_eq!(answer(br#"{"jsonrpc":"2.0","method":"nothing"}"#.to_vec(), call), None);
    }

    #[test]
    fn requests_of_many_elements_are_refused_before_their_values_are_built() {
        let with = |params: &str| format!(r#"{{"jsonrpc":"2.0","method":"echo","params":{params},"id":1}}"#);
        for open in ["[", r#"{"a":"#] {
            assert_eq!(code(open.repeat(100_000)), Some(RpcError::REQUEST));
            assert_eq!(code(with(&open.repeat(100_000))), Some(RpcError::REQUEST));
        }
        for element in ["[]", "{}", "0", "\"\"", r#""\"""#] {
            assert_eq!(
                code(with(&format!("[{}0]", format!("{element},").repeat(10_000)))),
                Some(RpcError::REQUEST)
            );
        }
        // Text is not counted, whatever it is.
        for text in ["[,{\\\"".repeat(10_000), "\\\\".to_owned()] {
            let params = format!("\"{text}\"");
            assert_eq!(said(with(&params))["result"].to_string(), params);
        }
    }

    #[test]
    fn errors_quote_only_a_part_of_a_long_request() {
        let long = "é".repeat(1 << 20);
        let method = format!(r#"{{"jsonrpc":"2.0","method":"{long}","id":1}}"#);
        assert!(answer(method.into_bytes(), call).unwrap().len() < 2 * QUOTED_MAX);
        let id = format!(r#"{{"jsonrpc":"2.0","method":"echo","id":"{long}"}}"#);
        assert!(answer(id.into_bytes(), call).unwrap().len() < 2 * QUOTED_MAX);
    }
}
