//! Metrics over HTTP: the counters of a running switch for Prometheus and other collectors, and a page for browsers.
//!
//! ```text
//! clients ── HTTP ──► thread of each connection ──► texts of the latest snapshot ◄── at most 4 a second: workers, control
//! ```
//!
//! | module | what |
//! |---|---|
//! | `family` | names, units, labels and descriptions of metrics |
//! | `collect` | from counters to samples |
//! | `exposition` | from samples to text |
//! | `view` | counters for the page, as JSON |
//! | `snapshot` | the latest counters, which all clients share |
//! | `request`, `response` | HTTP/1.1 |
//! | `service` | from a request to its response |
//! | `connection` | the bytes of a client, and its limits of time |
//!
//! Everything that a client can use up is bounded: connections, time and bytes of a request, requests a second, and reads of
//! counters a second. Own code instead of a crate for HTTP: the smallest of these bring a thread pool or an executor, and none the
//! limits.

mod collect;
mod connection;
mod exposition;
mod family;
mod limits;
mod request;
mod response;
mod service;
mod snapshot;
#[cfg(test)]
mod tests;
mod token;
mod view;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

pub use self::token::Token;

use self::connection::{Clients, serve};
use self::request::{Incoming, Method};
use self::response::Response;
use self::service::{Answer, Service};
use super::rpc::ControlServer;

/// The pause after an error of accepting.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The settings of a metrics endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsSetup {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The token that clients must send.
    pub token: Option<Token>,
}

/// A listening metrics endpoint. Dropping it closes its connections.
pub struct MetricsServer {
    address: SocketAddr,
    /// The thread that accepts connections ends when this is dropped.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// An error of opening a metrics endpoint.
#[derive(Debug, thiserror::Error)]
#[error("no metrics on {address}: {source}")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

impl MetricsServer {
    /// Listens, and answers requests about a switch.
    ///
    /// # Errors
    /// Where the system refuses the address.
    pub fn open(setup: &MetricsSetup, served: Arc<ControlServer>) -> Result<Self, MetricsError> {
        let failed = |source| MetricsError { address: setup.address, source };
        let listener = TcpListener::bind(setup.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (alive, ended) = UnixStream::pair().map_err(failed)?;
        let service = Arc::new(Service::new(served, setup.token.clone()));
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || listen(&listener, &ended, &service)).map_err(failed)?;
        Ok(Self { address, alive: Some(alive), thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Accepts connections until the other end of `ended` is dropped.
fn listen(listener: &TcpListener, ended: &UnixStream, service: &Arc<Service>) {
    let clients = Arc::new(Clients::default());
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        // An interrupted poll has no events.
        _ = poll(&mut polled, None);
        if !polled[1].revents().is_empty() {
            break;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, &clients, service),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Too many open files, for example.
            Err(_) => {
                clients.close_idle();
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
    clients.close_all();
}

/// Starts a thread for a connection, or refuses it.
fn admit(stream: TcpStream, clients: &Arc<Clients>, service: &Arc<Service>) {
    let refuse = |mut stream: &TcpStream| {
        // The thread that accepts must not wait for a client.
        _ = stream.set_nonblocking(true);
        _ = Response::busy(503, "too many connections").write(&mut stream, true);
    };
    // Systems differ in whether an accepted connection blocks.
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let client = match clients.add(stream) {
        Ok(client) => client,
        Err(stream) => return refuse(&stream),
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn({
        let (clients, client, service) = (clients.clone(), client.clone(), service.clone());
        move || {
            let _listed = connection::Listed { client: &client, clients: &clients };
            // The client may disconnect at any time.
            _ = serve(&client, &service);
        }
    });
    if thread.is_err() {
        clients.remove(&client);
        refuse(client.stream());
    }
}

/// Answers the bytes of a connection about a switch, as if a second passed between two requests. Returns each response, and whether
/// it answers a request for its head alone.
pub(crate) fn answers(served: Arc<ControlServer>, bytes: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let (service, mut incoming) = (Service::new(served, None), Incoming::default());
    let mut now = Instant::now();
    incoming.push(bytes);
    let mut all = Vec::new();
    loop {
        now += Duration::from_secs(1);
        let (response, is_head) = match incoming.next() {
            Ok(Some(request)) => match service.answer(&request, now) {
                Answer::Whole(response) => (response, request.method == Method::Head),
                Answer::Events(_) => return all,
            },
            Ok(None) => return all,
            Err(refusal) => (refusal, false),
        };
        let mut written = Vec::new();
        response.write(&mut written, !is_head).expect("there is room");
        all.push((written, is_head));
        if response.closes {
            return all;
        }
    }
}
