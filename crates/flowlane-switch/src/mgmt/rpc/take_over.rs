//! A switch takes the place of another: both sides of the hand-over, on a connection of the control socket.
//!
//! ```text
//! new switch                                         old switch
//!     │ take_over_terms ───────────────────────────────► │
//!     │ ◄──────────────── format, process, seed of hashes│
//! builds its tables                                      │ forwards
//!     │ take_over ─────────────────────────────────────► │
//!     │                                       ends its run as at SIGTERM, lets go of interfaces
//!     │ ◄───────────────────────────────────────── state │
//! opens its ports, restores the state                    │ waits
//!     │ "confirmed" ───────────────────────────────────► │
//!     │ ◄──────────────────────────────────────── "done" │
//! forwards                                               ends
//! ```
//!
//! The answer to `take_over` is no JSON but [saved state](crate::mgmt::saved), which does not begin with a brace. Until it has
//! answered "done", the old switch can go on: it does if the connection is closed, or the new one takes too long.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::{CallError, Client, RpcError};
use super::server::ControlServer;
use crate::control::Control;
use crate::datapath::{Switch, Worker};
use crate::mgmt::config::PortSection;
use crate::mgmt::saved::{
    Reader, Restored, StateError, Taken, VERSION, Workers, Writer, restore, save_packets_state, save_routes,
    save_rules,
};
use crate::mgmt::setup::{LiveRoutes, Reload};
use crate::port::interface_lock::{lock_again, unlock};

/// The old switch waits this long for the new one to go on with the state, and to confirm.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// The new switch waits this long for the old one to stop: it drains its ports, and closes connections of controllers.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The old switch tries this long to take its interfaces back from a process that ends.
const LOCK_TIME: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

const CONFIRMED: &[u8] = b"confirmed\n";
const DONE: &[u8] = b"done\n";

/// The properties of a running switch that one must know to take its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Terms {
    /// The version of the format of state.
    format: u32,
    process: u32,
    /// The seed of hashes, which says which worker owns a host's sessions.
    seed: u32,
    /// The ports that clients have added.
    #[serde(default)]
    ports: Vec<PortSection>,
    /// The state of the program around the switch.
    #[serde(default)]
    program: Value,
}

/// Gives the state of the program around a switch.
pub(crate) type ProgramState = Box<dyn Fn() -> Value + Send + Sync>;

/// The request of another process to take the place of this switch.
pub struct TakeOverRequest {
    stream: UnixStream,
    /// The thread of the connection waits until this is dropped.
    _answered: Sender<()>,
}

/// The reason for which the place of a switch has not been taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// The switch can go on.
    #[error("{0}")]
    NotTaken(io::Error),
    /// The switch cannot go on: it has lost an interface.
    #[error("{not_taken}, and an interface is lost: {lost}")]
    Lost { not_taken: io::Error, lost: String },
}

impl Workers for &ControlServer {
    fn count(&self) -> usize {
        self.workers_count()
    }

    fn call<T: Send + 'static>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        self.call_worker(worker, work).ok()
    }
}

impl ControlServer {
    /// Returns the terms of a hand-over.
    pub(super) fn take_over_terms(&self) -> Result<impl Serialize + use<>, RpcError> {
        let seed = self.call_worker(0, |worker| worker.lookup.seed() as u32)?;
        let ports = self.reload.ports().of_clients().cloned().collect();
        let program = self.take_over_slot().program.as_ref().map_or(Value::Null, |state| state());
        Ok(Terms { format: VERSION, process: std::process::id(), seed, ports, program })
    }

    /// Hands this over, too.
    pub(crate) fn hand_over_with(&self, program: ProgramState) {
        self.take_over_slot().program = Some(program);
    }

    /// Ends the run of the workers for another switch, and waits until the program has answered on the stream.
    pub(super) fn take_over(&self, stream: &UnixStream) -> Result<String, RpcError> {
        let stream = stream.try_clone().map_err(|e| RpcError::new(RpcError::BUSY, e.to_string()))?;
        let check = |worker: &mut Worker| {
            worker.egress.ports.slots().iter().try_for_each(|slot| slot.port.check_release())
        };
        // All workers have the same ports.
        self.call_worker(0, check)?.map_err(|why| RpcError::new(RpcError::REFUSED, why))?;
        let (answered, wait) = channel();
        {
            let mut slot = self.take_over_slot();
            if let Some(why) = slot.refusal {
                return Err(RpcError::new(RpcError::REFUSED, why));
            }
            if slot.request.is_some() || slot.is_in_progress {
                return Err(RpcError::new(RpcError::BUSY, "another process takes the place of the switch"));
            }
            slot.request = Some(TakeOverRequest { stream, _answered: answered });
        }
        self.stop_run();
        // Nothing is sent: the program drops its side.
        _ = wait.recv();
        Err(RpcError::new(RpcError::STOPPED, "the switch has not been taken over"))
    }

    /// Refuses to hand over from now on.
    pub fn refuse_take_over(&self, why: &'static str) {
        self.take_over_slot().refusal = Some(why);
    }

    /// Returns the request because of which the run has ended, if there is one.
    pub fn take_over_request(&self) -> Option<TakeOverRequest> {
        let mut slot = self.take_over_slot();
        let request = slot.request.take();
        slot.is_in_progress = request.is_some();
        request
    }

    /// Prepares for another run after a hand-over that has failed.
    pub fn resume(&self) {
        self.take_over_slot().is_in_progress = false;
        self.restore_qos();
        self.stop_flag().store(false, Ordering::SeqCst);
        // A signal that has come meanwhile.
        if self.is_ending() {
            self.stop_flag().store(true, Ordering::SeqCst);
        }
    }
}

/// Requests of other processes, of which one at a time is served.
#[derive(Default)]
pub(super) struct TakeOverSlot {
    request: Option<TakeOverRequest>,
    is_in_progress: bool,
    refusal: Option<&'static str>,
    program: Option<ProgramState>,
}

impl TakeOverRequest {
    /// Hands the state of a switch, whose run has ended, to the other process, and waits until it has confirmed. No other client can
    /// change rules meanwhile.
    ///
    /// # Errors
    /// Where the other process has not confirmed. The switch has its interfaces again then, if it can go on.
    pub fn hand_over(self, switch: &mut Switch, served: &ControlServer) -> Result<(), HandOverError> {
        let mut control = served.control();
        let routes = served.reload.routes();
        control.add_learned();
        for egress in switch.workers_mut().iter_mut().map(|worker| &mut worker.egress) {
            egress.ports.slots_mut().iter_mut().for_each(|slot| slot.port.release());
            egress.controller.iter_mut().for_each(|port| port.release());
        }
        let locks = unlock(&served.reload.ports().locked());
        let Err(not_taken) = self.send(switch.workers_mut(), &control, &routes) else { return Ok(()) };
        // The other process must not wait for more.
        _ = self.stream.shutdown(Shutdown::Both);
        let begun = Instant::now();
        loop {
            match lock_again(&locks) {
                Ok(()) => return Err(HandOverError::NotTaken(not_taken)),
                Err(lost) if begun.elapsed() > LOCK_TIME => {
                    return Err(HandOverError::Lost { not_taken, lost });
                }
                Err(_) => std::thread::sleep(LOCK_PAUSE),
            }
        }
    }

    fn send(&self, mut workers: &mut [Worker], control: &Control, routes: &[LiveRoutes]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(PROGRESS_TIMEOUT))?;
        self.stream.set_read_timeout(Some(CONFIRM_TIMEOUT))?;
        let mut out = Writer::new(BufWriter::new(&self.stream))?;
        save_packets_state(&mut workers, &mut out)?;
        save_rules(control, &mut out)?;
        routes.iter().try_for_each(|table| save_routes(table.number(), table.saved(), &mut out))?;
        out.finish()?;
        let mut answer = [0; CONFIRMED.len()];
        (&self.stream).read_exact(&mut answer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::other("the other process has ended, or has found an error")
            }
            io::ErrorKind::WouldBlock => io::Error::other("the other process did not confirm in time"),
            _ => error,
        })?;
        if answer != *CONFIRMED {
            return Err(io::Error::other("the other process has not confirmed"));
        }
        (&self.stream).write_all(DONE)
    }
}

/// A connection to the switch whose place is taken.
pub struct TakeOver {
    client: Client,
    terms: Terms,
}

/// The state has been restored; the other switch waits.
pub struct Unconfirmed {
    stream: BufReader<UnixStream>,
}

impl TakeOver {
    /// Connects to a running switch, which goes on.
    ///
    /// # Errors
    /// Where no switch listens on the path, or its state has another format.
    pub fn connect(path: &Path) -> Result<Self, CallError> {
        let mut client = Client::connect(path)?;
        let terms = client.call("take_over_terms", &())?;
        let terms: Terms = serde_json::from_value(terms).map_err(|e| CallError::Answer(e.to_string()))?;
        match terms.format {
            VERSION => Ok(Self { client, terms }),
            other => Err(CallError::Answer(format!(
                "its state has version {other}, and this program reads {VERSION}"
            ))),
        }
    }

    /// Returns the process of the switch.
    pub fn process(&self) -> u32 {
        self.terms.process
    }

    /// Returns the seed of its hashes.
    pub fn seed(&self) -> u32 {
        self.terms.seed
    }

    /// Returns the state of the program around it; null where it has none.
    pub fn program(&self) -> &Value {
        &self.terms.program
    }

    /// Returns the ports that its clients have added.
    pub fn ports(&self) -> &[PortSection] {
        &self.terms.ports
    }

    /// Asks the switch to stop, and waits until it has let go of its interfaces. It goes on if this is dropped.
    ///
    /// # Errors
    /// Where it refuses.
    pub fn begin(&mut self) -> Result<(), CallError> {
        self.client.request("take_over", &())?;
        let stream = self.client.stream();
        stream.get_ref().set_read_timeout(Some(STOP_TIMEOUT))?;
        match stream.fill_buf()?.first() {
            Some(b'{') => self.client.answer().map(|_| ()),
            Some(_) => Ok(()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the switch has stopped").into()),
        }
    }

    /// Restores its state into a switch that does not run yet.
    ///
    /// # Errors
    /// Where the state does not fit; this switch must not run then.
    pub fn restore(
        self,
        workers: &mut [Worker],
        control: &mut Control,
        reload: &Reload,
    ) -> Result<(Restored, Unconfirmed), StateError> {
        let reader = Reader::new(self.client.into_stream())?;
        let Taken { mut restored, routes, input: stream, .. } = restore(reader, workers, Some(control))?;
        let count = routes.len() as u64;
        restored.routes = restore_routes(routes, workers, &mut reload.routes())?;
        restored.left_out += count - restored.routes;
        Ok((restored, Unconfirmed { stream }))
    }
}

/// Adds routes to the tables of a switch that does not run yet. Returns the number of those that fit.
fn restore_routes(
    routes: Vec<(u8, String)>,
    workers: &mut [Worker],
    tables: &mut [LiveRoutes],
) -> Result<u64, StateError> {
    let mut kept = 0;
    for table in tables {
        let number = table.number();
        let own = routes.iter().filter(|(of, _)| *of == number).map(|(_, text)| &**text);
        let added = table.restore(own);
        let Some(before) = workers[0].lookup.pipeline.routes(number).filter(|_| added > 0) else { continue };
        let next = table.build(before).map_err(|problem| StateError::Routes { table: number, problem })?;
        for worker in &mut *workers {
            drop(worker.lookup.pipeline.replace_routes(number, next.share()));
        }
        kept += added as u64;
    }
    Ok(kept)
}

impl Unconfirmed {
    /// Confirms that this switch goes on, and waits until the other one knows.
    ///
    /// # Errors
    /// Where the other one has not answered: it may forward packets again.
    pub fn confirm(mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(CONFIRMED)?;
        let mut answer = [0; DONE.len()];
        self.stream.read_exact(&mut answer)?;
        match answer == *DONE {
            true => Ok(()),
            false => Err(io::Error::other("the other switch has not ended")),
        }
    }
}
