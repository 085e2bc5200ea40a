//! From a request to its response.
//!
//! The page itself has no counters, so that a browser, which sends no token by itself, can load it; it asks for a token, and sends it
//! with its own requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::exposition::Format;
use super::limits::Bucket;
use super::request::{Method, Request};
use super::response::Response;
use super::snapshot::Snapshots;
use super::token::Token;
use crate::mgmt::rpc::{ControlServer, RpcError};

/// Requests that are answered, of all clients together: a second, and at once.
pub(super) const REQUESTS_PER_S: u32 = 50;
pub(super) const REQUESTS_BURST: u32 = 100;

/// Traced packets, of all clients together: a worker traces between two bursts.
const TRACES_PER_S: u32 = 5;
const TRACES_BURST: u32 = 10;

/// Maximum number of pages that follow the counters.
pub(super) const FOLLOWERS_MAX: usize = 8;

/// The page, in which `NONCE` is replaced.
const PAGE: &str = include_str!("page.html");

/// Answers requests about a switch.
pub(super) struct Service {
    pub(super) snapshots: Snapshots,
    token: Option<Token>,
    requests: Bucket,
    traces: Bucket,
    followers: AtomicUsize,
}

/// The answer to a request.
pub(super) enum Answer<'a> {
    Whole(Response),
    /// Counters as long as the client takes them.
    Events(Follower<'a>),
}

/// A client that follows the counters, which counts until dropped.
pub(super) struct Follower<'a>(&'a AtomicUsize);

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    pub(super) fn new(served: Arc<ControlServer>, token: Option<Token>) -> Self {
        let requests = Bucket::new(REQUESTS_PER_S, REQUESTS_BURST);
        let traces = Bucket::new(TRACES_PER_S, TRACES_BURST);
        Self { snapshots: Snapshots::new(served), token, requests, traces, followers: AtomicUsize::new(0) }
    }

    /// Answers a request that came at `now`.
    pub(super) fn answer(&self, request: &Request, now: Instant) -> Answer<'_> {
        if !self.requests.take(now) {
            return Answer::Whole(Response::busy(429, "too many requests"));
        }
        if let Err(refusal) = self.admit(request) {
            return Answer::Whole(refusal);
        }
        Answer::Whole(match (request.path.as_str(), request.method) {
            ("/", Method::Get | Method::Head) => page(),
            ("/metrics", Method::Get | Method::Head) => self.metrics(request),
            ("/events", Method::Get) => return self.follow(),
            ("/trace", Method::Post) => self.trace(request, now),
            ("/" | "/metrics", _) => not_allowed("GET, HEAD"),
            ("/events", _) => not_allowed("GET"),
            ("/trace", _) => not_allowed("POST"),
            _ => Response::error(404, "there are / and /metrics"),
        })
    }

    /// Checks that the client may ask.
    fn admit(&self, request: &Request) -> Result<(), Response> {
        let Some(token) = &self.token else { return check_host(request) };
        if request.path == "/" || request.header("authorization").is_some_and(|given| token.is_in(given)) {
            return Ok(());
        }
        let refusal =
            Response::refusal(401, "send the token of the configuration: `Authorization: Bearer TOKEN`");
        Err(refusal.with("WWW-Authenticate", "Bearer"))
    }

    fn metrics(&self, request: &Request) -> Response {
        let format = Format::accepted(request.header("accept").unwrap_or_default());
        match self.snapshots.latest() {
            Ok(snapshot) => Response::ok(format.content_type(), snapshot.text(format)).with("Vary", "Accept"),
            Err(error) => Response::busy(503, &error.to_string()),
        }
    }

    /// Lets a client follow the counters.
    fn follow(&self) -> Answer<'_> {
        let added = |now: usize| (now < FOLLOWERS_MAX).then_some(now + 1);
        let is_added = self.followers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok();
        let follower = is_added.then(|| Follower(&self.followers));
        match (follower, self.snapshots.latest()) {
            (Some(follower), Ok(_)) => Answer::Events(follower),
            (None, _) => Answer::Whole(Response::busy(503, "too many pages are open")),
            (_, Err(error)) => Answer::Whole(Response::busy(503, &error.to_string())),
        }
    }

    /// Traces a packet, as `switch trace`. Pages of other sites cannot send this type of body without permission.
    fn trace(&self, request: &Request, now: Instant) -> Response {
        let kind = request.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/json") {
            return Response::error(415, "send JSON, as application/json");
        }
        if !self.traces.take(now) {
            return Response::busy(429, "too many traces");
        }
        let traced = self.snapshots.served().trace_json(&request.body).and_then(|trace| {
            serde_json::to_string(&trace).map_err(|e| RpcError::new(RpcError::REQUEST, e.to_string()))
        });
        match traced {
            Ok(trace) => Response::ok("application/json", trace),
            Err(error) if error.code == RpcError::STOPPED => Response::busy(503, &error.message),
            Err(error) => Response::error(400, error.message),
        }
    }
}

/// Returns the page. A script runs only with the nonce of the response, which nothing that the page shows can know.
fn page() -> Response {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        return Response::busy(503, "the system has no random numbers");
    }
    let nonce = format!("{:032x}", u128::from_ne_bytes(bytes));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Response::ok("text/html; charset=utf-8", PAGE.replace("NONCE", &nonce))
        .with("Content-Security-Policy", policy)
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Opener-Policy", "same-origin")
}

fn not_allowed(methods: &str) -> Response {
    Response::error(405, format!("this path has {methods}")).with("Allow", methods)
}

/// Without a token, refuses names of other hosts: a page of another site could have its name point to this machine, and read
/// through the browser of a user here.
fn check_host(request: &Request) -> Result<(), Response> {
    let Some(host) = request.header("host") else { return Ok(()) };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err(Response::refusal(403, "without a token, ask for an address or localhost, not for another name"))
}
