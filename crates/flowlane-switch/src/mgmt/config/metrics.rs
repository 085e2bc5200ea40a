//! Metrics over HTTP.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// Metrics over HTTP, of OpenMetrics and Prometheus, at the path `/metrics`, and a page with the counters for browsers at `/`. Other addresses than those of this machine (127.0.0.1,
/// ::1) need a token. There is no TLS: put a proxy in front where the network is not trusted.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSection {
    /// The address and port to listen on; port 0 is any that is free.
    pub listen: String,
    /// The token that clients must send, as in `Authorization: Bearer TOKEN`: 16 to 1024 letters, digits and `-._~+/=`.
    pub token: Option<String>,
    /// A file with the token, relative to the configuration's folder, instead of `token`.
    pub token_file: Option<PathBuf>,
}

impl Default for MetricsSection {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9464".to_owned(), token: None, token_file: None }
    }
}
