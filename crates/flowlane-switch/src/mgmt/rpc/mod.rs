//! The control socket: a Unix socket on which a running switch serves JSON-RPC 2.0.

mod message;
mod server;

pub use message::{CallError, Client, PROTOCOL, RpcError};
pub use server::{ChangeReport, ControlServer, FlowRemovedReport, FlowReport, LineError, MacEntry};

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use message::LINE_MAX;

use crate::port::interface_lock::runtime_folder;

/// Maximum number of open connections.
const CONNECTIONS_MAX: usize = 64;

/// A listening control socket. Dropping it closes the socket and removes its file.
pub struct Socket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An error of opening the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another running switch listens on the path.
    #[error("another switch answers on {}; give this one another with --socket", .0.display())]
    Taken(PathBuf),
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
    /// Listens on a socket at this path, which only this user may connect to. Creates the folder if it is missing.
    ///
    /// # Errors
    /// Where another switch listens there, or the system rejects it.
    pub fn open(path: &Path, server: Arc<ControlServer>) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(SocketError::Taken(path.to_owned()));
                }
                // Left over from a switch that was killed.
                std::fs::remove_file(path).map_err(failed)?;
                UnixListener::bind(path)
            }
            other => other,
        }
        .map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, path) = (stop.clone(), path.to_owned());
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || listen(&listener, &server, &stopping));
        let thread = thread.map_err(|source| SocketError::Io { path: path.clone(), source })?;
        Ok(Self { path, stop, thread: Some(thread) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        drop(UnixStream::connect(&self.path));
        _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn listen(listener: &UnixListener, server: &Arc<ControlServer>, stop: &AtomicBool) {
    let connections = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(connection) = connection else {
            // Too many open files, for example: other connections may be closed.
            std::thread::sleep(std::time::Duration::from_millis(10));
            continue;
        };
        if connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (server, count) = (server.clone(), connections.clone());
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            // The client may disconnect at any time.
            _ = serve(&connection, &server);
            count.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers the requests of a connection, one line at a time.
fn serve(connection: &UnixStream, server: &ControlServer) -> io::Result<()> {
    let mut lines = BufReader::new(connection);
    let mut line = String::new();
    loop {
        line.clear();
        if lines.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') && line.len() as u64 == LINE_MAX {
            return Ok(());
        }
        if let Some(mut answer) = message::answer(&line, |method, params| server.call(method, params)) {
            answer.push('\n');
            let mut to = connection;
            to.write_all(answer.as_bytes())?;
        }
    }
}
