//! The connections of clients: their requests one after the other, and the limits of time and number.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::request::{Incoming, Method, Request};
use super::response::Response;
use super::service::{Answer, Follower, Service};

/// Maximum number of open connections.
pub(super) const CLIENTS_MAX: usize = 64;
/// A request must be complete after this time.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// A connection without a request is closed after this time: longer than the usual interval of collectors.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// A client that takes nothing of a response for this time is disconnected.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// The time between two events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// A client that has its last response may send for this time, and this many pieces.
const FINISH_TIME: Duration = Duration::from_millis(500);
const FINISH_READS: usize = 16;

/// A connection.
pub(super) struct Client {
    stream: TcpStream,
    /// Since when it waits for a request, or the rest of one, or for the client to close it; none while a request is answered.
    idle: Mutex<Option<Instant>>,
}

impl Client {
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn idle(&self) -> MutexGuard<'_, Option<Instant>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its thread, which reads or writes.
    fn close(&self) {
        // The client may have closed it.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The open connections.
#[derive(Default)]
pub(super) struct Clients {
    open: Mutex<Vec<Arc<Client>>>,
}

impl Clients {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, in the place of the one that has been idle for longest where there are too many; returns the stream where
    /// none is idle.
    pub(super) fn add(&self, stream: TcpStream) -> Result<Arc<Client>, TcpStream> {
        let mut open = self.open();
        if open.len() >= CLIENTS_MAX && !close_idle(&mut open) {
            return Err(stream);
        }
        let client = Arc::new(Client { stream, idle: Mutex::new(Some(Instant::now())) });
        open.push(client.clone());
        Ok(client)
    }

    /// Closes the connection that has been idle for longest.
    pub(super) fn close_idle(&self) {
        close_idle(&mut self.open());
    }

    pub(super) fn remove(&self, ended: &Arc<Client>) {
        self.open().retain(|one| !Arc::ptr_eq(one, ended));
    }

    pub(super) fn close_all(&self) {
        self.open().drain(..).for_each(|client| client.close());
    }
}

/// Closes the connection that has been idle for longest; returns whether one was idle.
fn close_idle(open: &mut Vec<Arc<Client>>) -> bool {
    let idle =
        open.iter().enumerate().filter_map(|(place, client)| client.idle().map(|since| (since, place)));
    let Some((_, place)) = idle.min() else { return false };
    open.swap_remove(place).close();
    true
}

/// A connection in the list; when dropped, after a panic too, it is taken out and closed.
pub(super) struct Listed<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) clients: &'a Clients,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.clients.remove(self.client);
        self.client.close();
    }
}

/// Answers the requests of a connection until it ends.
pub(super) fn serve(client: &Client, service: &Service) -> io::Result<()> {
    let mut stream = client.stream();
    stream.set_write_timeout(Some(WRITE_TIME))?;
    // Head and body of a response are two writes.
    stream.set_nodelay(true)?;
    let mut incoming = Incoming::default();
    loop {
        *client.idle() = Some(Instant::now());
        let received = receive(stream, &mut incoming)?;
        *client.idle() = None;
        let (response, has_body) = match received {
            Received::Request(request) => match service.answer(&request, Instant::now()) {
                Answer::Whole(mut response) => {
                    response.closes |= !request.stays_open;
                    (response, request.method != Method::Head)
                }
                Answer::Events(follower) => return send_events(stream, service, follower),
            },
            Received::Refused(refusal) => (refusal, true),
            Received::End => return Ok(()),
        };
        response.write(&mut stream, has_body)?;
        if response.closes {
            // A new connection may take its place from here on.
            *client.idle() = Some(Instant::now());
            return finish(stream);
        }
    }
}

/// Sends the counters once a second until the client or the switch ends.
fn send_events(mut stream: &TcpStream, service: &Service, _counted: Follower<'_>) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
                X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    stream.set_read_timeout(Some(EVENT_INTERVAL))?;
    while let Ok(snapshot) = service.snapshots.latest() {
        stream.write_all(format!("data: {}\n\n", snapshot.view()).as_bytes())?;
        match stream.read(&mut [0; 64]) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            // The client has closed the connection, or sends what it should not.
            _ => break,
        }
    }
    Ok(())
}

/// How waiting for a request ends.
enum Received {
    Request(Request),
    /// The request is refused; the connection ends.
    Refused(Response),
    /// The client has closed the connection, or has sent nothing for long.
    End,
}

/// Waits for a request.
fn receive(mut stream: &TcpStream, incoming: &mut Incoming) -> io::Result<Received> {
    let begun = Instant::now();
    let mut bytes = [0; 4096];
    loop {
        match incoming.next() {
            Ok(Some(request)) => return Ok(Received::Request(request)),
            Ok(None) => {}
            Err(refusal) => return Ok(Received::Refused(refusal)),
        }
        let limit = if incoming.has_begun() { REQUEST_TIME } else { IDLE_TIME };
        let left = limit.saturating_sub(begun.elapsed());
        let timed_out = || match incoming.has_begun() {
            true => Received::Refused(Response::refusal(408, "the request was not complete in time")),
            false => Received::End,
        };
        if left.is_zero() {
            return Ok(timed_out());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(Received::End),
            Ok(len) => incoming.push(&bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(timed_out());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Ends a connection so that the client gets the response: were bytes of it unread, the system would discard the response.
fn finish(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(FINISH_TIME))?;
    let mut bytes = [0; 4096];
    for _ in 0..FINISH_READS {
        if stream.read(&mut bytes)? == 0 {
            break;
        }
    }
    Ok(())
}
