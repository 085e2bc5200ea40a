//! The OpenFlow agent: controllers and `ovs-ofctl` drive the switch as they drive Open vSwitch.
//!
//! ```text
//! socket ─► Connection (frames of messages) ─► Session (what a request means) ─► Service (control, workers)
//!        ◄─ queue of a writer ◄────────────────┘          packet-ins of workers ─► dispatcher ─┘
//! ```
//!
//! The codec is in `flowlane-openflow`. A connection has a thread that reads and one that writes: a controller that does not
//! read blocks itself alone, and loses packet-ins. What it may not miss (removed rules, changed ports) waits for it, up to a bound
//! beyond which the connection is closed: a controller that connects again asks for what there is. [`Service`] is what the switch can do, without a word of OpenFlow's bytes.

mod address;
mod bundles;
mod connection;
mod connections;
mod describe;
mod errors;
mod events;
mod fail_mode;
mod flow_mods;
mod lists;
mod meters;
mod monitors;
mod options;
mod outgoing;
mod packets;
mod ports;
mod queues;
mod service;
mod session;
mod settings;
mod slots;
mod snoop;
mod stream;
mod tls;
mod turns;

pub use address::{Address, BadAddress};
pub use fail_mode::FailMode;
pub use service::Service;
pub use settings::{ConnectionSettings, SwitchTexts};
pub use tls::{TlsError, TlsFile, TlsFiles, TlsProblem};

pub(in crate::mgmt) use stream::{Reader, Socket, Stream, Writer};
pub(in crate::mgmt) use tls::{Credentials, Side};

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use connection::{serve, serve_snooper};
use fail_mode::Primaries;
use flowlane_openflow::{Codec, Version, split};
use packets::Subscribers;
use session::{Session, State};
use slots::{Slot, Slots};
use snoop::Snoopers;
use turns::Turns;

use crate::mgmt::rpc::{Budget, Controller, SocketError, SocketFile};

/// Bytes of large answers that may wait at once for their peers: those of a table of a million flows.
const REPLIES_BYTES: usize = 1 << 29;
/// Bytes of notices that may wait, all together, beyond the little that each connection may have waiting.
const NOTICES_BYTES: usize = 1 << 27;
/// Bytes of messages that open bundles may have, all together; they take several times as much when they are read.
const BUNDLES_BYTES: usize = 1 << 26;
/// The pause between two looks at a listener, and the shortest one between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// How often the agent looks whether the workers run.
const WORKERS_PAUSE: Duration = Duration::from_millis(1);
/// The first pause between attempts to connect, as Open vSwitch has it, and the time that an attempt may take.
const BACKOFF: Duration = Duration::from_secs(1);

/// An error of opening an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The system refuses it.
    #[error("no OpenFlow at {address}: {source}")]
    Io {
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address with TLS, without files.
    #[error("no OpenFlow at {0}: a private key and certificates are missing")]
    NoTls(Address),
}

/// State that all connections share.
struct Shared {
    service: Service,
    subscribers: Subscribers,
    /// Bytes of large answers that wait for their peers, and of bundles that are open.
    replies: Arc<Budget>,
    bundles: Arc<Budget>,
    /// Bytes of notices that wait for controllers.
    notices: Arc<Budget>,
    turns: Turns,
    /// The newest generation of roles (OpenFlow 1.3.5, 6.3.4).
    generation: Mutex<Option<u64>>,
    primaries: Primaries,
    snoopers: Snoopers,
    ends: AtomicBool,
}

impl Shared {
    fn new(service: Service) -> Arc<Self> {
        Arc::new(Self {
            service,
            subscribers: Subscribers::default(),
            replies: Budget::new(REPLIES_BYTES),
            bundles: Budget::new(BUNDLES_BYTES),
            notices: Budget::new(NOTICES_BYTES),
            turns: Turns::default(),
            generation: Mutex::new(None),
            primaries: Primaries::default(),
            snoopers: Snoopers::default(),
            ends: AtomicBool::new(false),
        })
    }

    fn watch_primaries(&self) {
        if let Some(after) = self.service.standalone_after() {
            self.primaries.watch(&self.service, after);
        }
        std::thread::sleep(PAUSE);
    }

    /// Waits until the workers run, or the agent ends: they have the ports, which a controller asks for first.
    fn wait_for_workers(&self) {
        while !self.service.runs() && !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(WORKERS_PAUSE);
        }
    }
}

/// Answers requests one after another, as a connection of this version does, until one is no message. Returns the answers.
pub(crate) fn answers(service: Service, version: Version, mut requests: &[u8]) -> Vec<Vec<u8>> {
    let state = Arc::new(Mutex::new(State::new(Codec::new(version), true)));
    let mut session = Session::new(Shared::new(service), state);
    session.take_option_bytes();
    let mut answers = Vec::new();
    while let Ok(Some((request, rest))) = split(requests) {
        answers.push(session.answer(request));
        requests = rest;
    }
    answers
}

/// The agent. Dropping it closes all connections.
pub struct Agent {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Removed with the agent.
    _files: Vec<SocketFile>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
    Ssl(TcpListener, Arc<Credentials>),
}

impl Listener {
    /// Accepts a connection, with the address of its peer where that has one.
    fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        let (socket, peer) = match self {
            Self::Unix(listener) => (Socket::Unix(listener.accept()?.0), None),
            Self::Tcp(listener) | Self::Ssl(listener, _) => {
                let (stream, peer) = listener.accept()?;
                (Socket::Tcp(stream), Some(peer.ip()))
            }
        };
        socket.set_blocking()?;
        let stream = match self {
            Self::Unix(_) | Self::Tcp(_) => Stream::plain(socket),
            Self::Ssl(_, credentials) => Stream::with_tls(socket, credentials.clone(), Side::Server),
        };
        Ok((stream, peer))
    }
}

impl Agent {
    /// Listens at some addresses, and connects to others. Those with TLS need files.
    ///
    /// # Errors
    /// An address that the system refuses, or a file that cannot be used.
    pub fn open(addresses: &[Address], tls: Option<&TlsFiles>, service: Service) -> Result<Self, AgentError> {
        let shared = Shared::new(service);
        let mut agent = Self { shared, threads: Vec::new(), _files: Vec::new() };
        let credentials = match addresses.iter().find(|address| address.has_tls()) {
            Some(first) => Some(Credentials::read(tls.ok_or_else(|| AgentError::NoTls(first.clone()))?)?),
            None => None,
        };
        for address in addresses {
            agent.open_address(address, credentials.as_ref())?;
        }
        agent.dispatch(|shared| shared.subscribers.dispatch(&shared.service))?;
        agent.shared.service.notices().set_open(true);
        agent.dispatch(|shared| shared.subscribers.tell(&shared.service, &shared.notices))?;
        if agent.shared.service.standalone_after().is_some() {
            match addresses.iter().any(Address::is_connected_to) {
                true => agent.dispatch(Shared::watch_primaries)?,
                false => agent.shared.service.forward_misses(),
            }
        }
        Ok(agent)
    }

    fn open_address(
        &mut self,
        address: &Address,
        credentials: Option<&Arc<Credentials>>,
    ) -> Result<(), AgentError> {
        let failed = |source| AgentError::Io { address: address.to_string(), source };
        let credentials = || credentials.expect("an address with TLS has them").clone();
        let bind = |at| {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let controller = self.shared.service.controllers().add(address.to_string());
        let settings = self.shared.service.settings(address);
        let serve_passive = |controller| serve_passive(controller, settings.probe_interval);
        match address {
            Address::ListenUnix(path) => {
                let (file, listener) = SocketFile::listen(path)?;
                listener.set_nonblocking(true).map_err(failed)?;
                self._files.push(file);
                self.listen(Listener::Unix(listener), serve_passive(controller))
            }
            Address::ListenTcp(at) => {
                bind(at).and_then(|listener| self.listen(Listener::Tcp(listener), serve_passive(controller)))
            }
            Address::ListenSsl(at) => bind(at).and_then(|listener| {
                self.listen(Listener::Ssl(listener, credentials()), serve_passive(controller))
            }),
            Address::ConnectUnix(path) => {
                let path = path.clone();
                let connect = move || Ok(Stream::plain(Socket::Unix(UnixStream::connect(&path)?)));
                self.connect(connect, controller, settings)
            }
            &Address::ConnectTcp(to) => {
                let connect = move || Ok(Stream::plain(connect_tcp(to)?));
                self.connect(connect, controller, settings)
            }
            &Address::ConnectSsl(to) => {
                let (credentials, side) = (credentials(), Side::Client(to.ip()));
                let connect = move || Ok(Stream::with_tls(connect_tcp(to)?, credentials.clone(), side));
                self.connect(connect, controller, settings)
            }
        }
        .map_err(failed)
    }

    /// Offers copies of the messages between the switch and its controllers at a socket, as `ovs-ofctl snoop` reads them.
    ///
    /// # Errors
    /// A socket that the system refuses.
    pub fn open_snoop(&mut self, path: &Path) -> Result<(), AgentError> {
        let failed = |source| AgentError::Io { address: path.display().to_string(), source };
        let (file, listener) = SocketFile::listen(path)?;
        listener.set_nonblocking(true).map_err(failed)?;
        self._files.push(file);
        self.listen(Listener::Unix(listener), Arc::new(serve_snooper)).map_err(failed)
    }

    /// Repeats this until the agent ends.
    fn dispatch(&mut self, once: fn(&Shared)) -> Result<(), AgentError> {
        let shared = self.shared.clone();
        let dispatch = move || {
            while !shared.ends.load(Ordering::Relaxed) {
                once(&shared);
            }
        };
        self.spawn(dispatch).map_err(|source| AgentError::Io { address: "its dispatcher".to_owned(), source })
    }

    fn spawn(&mut self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name("openflow".to_owned()).spawn(run)?);
        Ok(())
    }

    fn listen(&mut self, listener: Listener, serve: Serve) -> io::Result<()> {
        let (shared, slots) = (self.shared.clone(), Slots::new());
        self.spawn(move || {
            shared.wait_for_workers();
            while !shared.ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, peer)) => admit(stream, peer, &slots, &shared, &serve),
                    // No controller connects, or too many files are open.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        })
    }

    fn connect(
        &mut self,
        connect: impl Fn() -> io::Result<Stream> + Send + 'static,
        controller: Arc<Controller>,
        settings: ConnectionSettings,
    ) -> io::Result<()> {
        let shared = self.shared.clone();
        self.spawn(move || {
            shared.wait_for_workers();
            let mut pause = BACKOFF.min(settings.backoff_max);
            while !shared.ends.load(Ordering::Relaxed) {
                match connect() {
                    Ok(stream) => {
                        if serve(stream, &shared, &controller, None, settings.probe_interval) {
                            pause = BACKOFF.min(settings.backoff_max);
                        }
                    }
                    Err(error) => controller.failed(error.to_string()),
                }
                let mut waited = Duration::ZERO;
                while waited < pause && !shared.ends.load(Ordering::Relaxed) {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                pause = (2 * pause).min(settings.backoff_max);
            }
        })
    }
}

/// Connects to a controller, which has the first pause for it.
fn connect_tcp(to: SocketAddr) -> io::Result<Socket> {
    TcpStream::connect_timeout(&to, BACKOFF).map(Socket::Tcp)
}

/// Serves a connection until it ends.
type Serve = Arc<dyn Fn(Stream, &Arc<Shared>, &Slot) + Send + Sync>;

fn serve_passive(controller: Arc<Controller>, probe_interval: Option<Duration>) -> Serve {
    Arc::new(move |stream: Stream, shared: &Arc<Shared>, slot: &Slot| {
        serve(stream, shared, &controller, Some(slot), probe_interval);
    })
}

/// Serves a connection in a thread of its own, or closes it if there is no slot for it.
fn admit(stream: Stream, peer: Option<IpAddr>, slots: &Arc<Slots>, shared: &Arc<Shared>, serve: &Serve) {
    let Some(slot) = stream.socket().try_clone().ok().and_then(|socket| slots.take(peer, socket)) else {
        return;
    };
    let (shared, serve) = (shared.clone(), serve.clone());
    // Without a thread, the stream and its slot are dropped.
    _ = std::thread::Builder::new().name("openflow".to_owned()).spawn(move || serve(stream, &shared, &slot));
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.service.notices().set_open(false);
        self.shared.subscribers.close_all();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}
