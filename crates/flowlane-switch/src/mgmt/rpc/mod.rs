//! The control socket: a Unix socket on which a running switch serves JSON-RPC 2.0.
//!
//! A thread accepts connections, and each has a thread of its own, which answers one request after another. Only this user and root
//! may connect. What one client holds is bounded: `connections.rs` says how.

mod brief;
mod connections;
mod controllers;
mod fdb;
mod follow;
mod link_notices;
mod message;
mod peer;
mod ports;
mod progress;
mod queues;
mod reload;
mod router;
mod routes;
mod server;
mod socket_file;
mod take_over;
mod trace;
mod tracked;
mod zones;

pub(crate) use brief::{Brief, ConnectionCounts, RuleCounts};
pub(crate) use connections::{Budget, Taken};
pub use controllers::ControllerReport;
pub(crate) use controllers::{Controller, Controllers};
pub use fdb::MacEntry;
pub use follow::{ConnectionEventReport, FollowReport};
pub use message::{CallError, Client, PROTOCOL, RpcError};
pub use ports::PortChangeReport;
pub(crate) use ports::{Link, local_mac};
pub use progress::{LoopRounds, ReloadEvent, ReloadWatch, SwitchStatus, Watch};
pub(crate) use queues::QueueState;
pub use router::{InterfaceReport, NeighbourReport, RouterReport};
pub use routes::{RouteChangeReport, RoutesReport};
pub use server::{ChangeReport, ControlServer, FlowRemovedReport, FlowReport, LineError, SwitchReport};

pub use take_over::{HandOverError, TakeOver, TakeOverRequest, Unconfirmed};
pub(crate) use tracked::ConnectionParams;
pub use tracked::{ConnectionReport, ConnectionsReport, EndsReport};
pub use zones::{ZoneReport, ZonesReport};

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::port::runtime_folder::{runtime_folder, user};
use connections::{Connection, Connections, NotRead, REQUEST_MAX, Requests, SMALL};
use peer::Peer;
pub(crate) use socket_file::SocketFile;

/// Bytes of large requests that may be held at once.
const REQUESTS_BYTES: usize = 2 * REQUEST_MAX;
/// Bytes of large replies that may wait at once for their clients: the rules of two tables of a million each.
const REPLIES_BYTES: usize = 1 << 30;
/// A client that takes nothing of a reply for this time is disconnected.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an error of accepting.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A listening control socket. Dropping it closes the socket and removes its file.
pub struct Socket {
    file: SocketFile,
    /// The thread that accepts connections ends when this is dropped.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// An error of opening the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Something that is not a dead switch's socket is at the path.
    #[error("{} is {what}; give the switch another path with --socket", .path.display())]
    Occupied {
        path: PathBuf,
        /// The kind of thing at the path.
        what: &'static str,
    },
    /// Others could replace the socket.
    #[error("no control socket on {}: {problem}; or give the switch another path with --socket", .path.display())]
    Folder {
        path: PathBuf,
        /// The folder, and how to fix it.
        problem: String,
    },
    /// The system rejects it.
    #[error("no control socket on {}: {source}", .path.display())]
    Io {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Returns the default path of the control socket, for servers and clients.
pub fn default_path() -> PathBuf {
    runtime_folder().join("control.sock")
}

impl Socket {
    /// Listens on a socket at this path, which only this user and root may connect to. Creates the folder if it is missing.
    ///
    /// # Errors
    /// Where something else is at the path, others may write in its folder, or the system rejects it.
    pub fn open(path: &Path, server: Arc<ControlServer>) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let (file, listener) = SocketFile::listen(path)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (alive, ended) = UnixStream::pair().map_err(failed)?;
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || listen(&listener, &ended, &Shared::new(server))).map_err(failed)?;
        Ok(Self { file, alive: Some(alive), thread: Some(thread) })
    }

    /// Listens beside a path at which another switch listens.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_beside(path: &Path, server: Arc<ControlServer>) -> Result<Self, SocketError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        Self::open(Path::new(&name), server)
    }

    /// Moves the socket to a path, in the place of another switch's: clients find the one or the other.
    ///
    /// # Errors
    /// Where the system refuses it.
    pub fn move_to(&mut self, path: &Path) -> Result<(), SocketError> {
        self.file.move_to(path).map_err(|source| SocketError::Io { path: path.to_owned(), source })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// State that all connections share.
struct Shared {
    server: Arc<ControlServer>,
    connections: Connections,
    requests: Arc<Budget>,
    replies: Arc<Budget>,
}

impl Shared {
    fn new(server: Arc<ControlServer>) -> Arc<Self> {
        let (requests, replies) = (Budget::new(REQUESTS_BYTES), Budget::new(REPLIES_BYTES));
        Arc::new(Self { server, connections: Connections::default(), requests, replies })
    }
}

/// A connection in the list; when dropped, after a panic too, it is taken out and closed.
struct Listed<'a> {
    connection: &'a Arc<Connection>,
    connections: &'a Connections,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.connections.remove(self.connection);
        self.connection.close();
    }
}

/// Accepts connections until the other end of `ended` is dropped.
fn listen(listener: &UnixListener, ended: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        // An interrupted poll has no events.
        _ = poll(&mut polled, None);
        if !polled[1].revents().is_empty() {
            break;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, shared),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Too many open files, for example.
            Err(_) => {
                shared.connections.close_one();
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
    shared.connections.close_all();
}

/// Starts a thread for a connection, or tells the client why not.
fn admit(stream: UnixStream, shared: &Arc<Shared>) {
    let refuse = |stream: &UnixStream, code, message: String| {
        // The thread that accepts must not wait for a client.
        _ = stream.set_nonblocking(true);
        _ = say(stream, RpcError::new(code, message).line());
    };
    let Ok(peer) = Peer::of(&stream) else { return };
    if peer.user != 0 && peer.user != user() {
        let own = if user() == 0 { String::new() } else { format!("user {} and ", user()) };
        let message = format!("only {own}root may use this control socket");
        return refuse(&stream, RpcError::FORBIDDEN, message);
    }
    let connection = Connection::new(stream, peer.process);
    let busy = "the switch answers other requests; try again";
    if !shared.connections.add(&connection) {
        return refuse(&connection.stream, RpcError::BUSY, busy.to_owned());
    }
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn({
        let (shared, connection) = (shared.clone(), connection.clone());
        move || {
            let _listed = Listed { connection: &connection, connections: &shared.connections };
            // The client may disconnect at any time.
            _ = serve(&connection, &shared);
        }
    });
    if let Err(error) = thread {
        shared.connections.remove(&connection);
        refuse(&connection.stream, RpcError::BUSY, format!("no thread for this connection: {error}"));
    }
}

fn say(mut stream: &UnixStream, mut line: String) -> io::Result<()> {
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Answers the requests of a connection, one line at a time.
fn serve(connection: &Connection, shared: &Shared) -> io::Result<()> {
    let stream = &connection.stream;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let mut requests = Requests::new(connection, &shared.requests);
    let busy = "other large requests are in progress; try again";
    loop {
        let (line, taken) = match requests.next() {
            Ok(read) => read,
            Err(NotRead::Ended) => return Ok(()),
            Err(NotRead::Busy) => return say(stream, RpcError::new(RpcError::BUSY, busy).line()),
            Err(NotRead::TooLong) => {
                let message = format!("a request has at most {} MiB; split it", REQUEST_MAX >> 20);
                return say(stream, RpcError::new(RpcError::REQUEST, message).line());
            }
        };
        connection.set_activity(true);
        let answer = shared.server.answer_on(line, stream);
        drop(taken);
        connection.set_activity(false);
        let Some(mut answer) = answer else { continue };
        let mut taken = None;
        if answer.len() > SMALL {
            taken = shared.replies.take(answer.len());
            if taken.is_none() {
                answer = RpcError::new(RpcError::BUSY, busy).line();
            }
        }
        say(stream, answer)?;
        drop(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_connection_whose_thread_panics_is_taken_out() {
        let (stream, mut client) = UnixStream::pair().unwrap();
        let (connection, connections) = (Connection::new(stream, 1), Connections::default());
        assert!(connections.add(&connection));
        let panicked = std::thread::scope(|scope| {
            let serve = || {
                let _listed = Listed { connection: &connection, connections: &connections };
                std::panic::resume_unwind(Box::new("a request that panics"));
            };
            scope.spawn(serve).join()
        });
        assert!(panicked.is_err());
        assert!(!connections.close_one(), "none is listed");
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
    }
}
