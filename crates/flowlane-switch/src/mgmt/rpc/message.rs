//! The messages of the control socket: JSON-RPC 2.0 (jsonrpc.org/specification), one per line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Version of the protocol. It increases whenever parameters or results of a method change.
pub const PROTOCOL: u32 = 1;

/// Maximum length of a line in bytes: a bundle of half a million rules.
pub(super) const LINE_MAX: u64 = 64 << 20;

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

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Returns the line that answers a request; `None` for a notification.
pub(super) fn answer(
    line: &str,
    call: impl FnOnce(&str, Value) -> Result<Value, RpcError>,
) -> Option<String> {
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(e) => {
            return Some(render(Value::Null, Err(RpcError::new(RpcError::PARSE, format!("no JSON: {e}")))));
        }
    };
    let request: Request = match serde_json::from_value(value) {
        Ok(request) => request,
        Err(e) => {
            let error = RpcError::new(RpcError::REQUEST, format!("no request of JSON-RPC 2.0: {e}"));
            return Some(render(Value::Null, Err(error)));
        }
    };
    if request.jsonrpc != "2.0" {
        let error = RpcError::new(RpcError::REQUEST, "`jsonrpc` must be \"2.0\"");
        return Some(render(request.id.unwrap_or_default(), Err(error)));
    }
    let result = call(&request.method, request.params);
    request.id.map(|id| render(id, result))
}

fn render(id: Value, result: Result<Value, RpcError>) -> String {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    }
    .to_string()
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

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Value,
    error: Option<RpcError>,
}

impl Client {
    /// Connects to a switch.
    ///
    /// # Errors
    /// Where no switch listens on the path.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(UnixStream::connect(path)?), id: 0 })
    }

    /// Calls a method, and waits for its result.
    ///
    /// # Errors
    /// The method's error, or that the connection is closed.
    pub fn call(&mut self, method: &str, params: &impl Serialize) -> Result<Value, CallError> {
        self.id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        let mut line = request.to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        line.clear();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the switch has stopped").into());
        }
        let answer: Answer = serde_json::from_str(&line).map_err(|e| CallError::Answer(e.to_string()))?;
        match answer.error {
            Some(error) => Err(error.into()),
            None => Ok(answer.result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "echo" => Ok(params),
            _ => Err(RpcError::new(RpcError::METHOD, format!("there is no method `{method}`"))),
        }
    }

    #[test]
    fn requests_are_answered_and_malformed_ones_get_an_error_code() {
        let said = |line: &str| serde_json::from_str::<Value>(&answer(line, call).unwrap()).unwrap();
        let echoed = said(r#"{"jsonrpc":"2.0","method":"echo","params":[1,{"a":"b"}],"id":"x"}"#);
        assert_eq!(echoed, json!({ "jsonrpc": "2.0", "id": "x", "result": [1, { "a": "b" }] }));
        let code = |line: &str| said(line)["error"]["code"].as_i64();
        assert_eq!(code("{"), Some(RpcError::PARSE));
        assert_eq!(code("[]"), Some(RpcError::REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"1.0","method":"echo","id":1}"#), Some(RpcError::REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"nothing","id":1}"#), Some(RpcError::METHOD));
        // A notification has no answer.
        assert_eq!(answer(r#"{"jsonrpc":"2.0","method":"nothing"}"#, call), None);
    }
}
