//! Background rebuilds of tables, on a thread of their own.
//!
//! The thread keeps a copy of the rules and receives changes in one message, when it is asked to build a table. The
//! thread that looks up therefore never copies more than changes. (The matches themselves are shared.)

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use flowlane::rule::RuleId;

use super::projected::{self, FlowTable};
use super::{CurrentRules, GpuConfig, Rule, Rules};
use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;

/// The input of a rebuild.
#[derive(Debug)]
struct Request {
    /// Whether the thread discards its rules first.
    anew: bool,
    /// Rules that were replaced, or deleted.
    changes: Vec<(RuleId, Option<Rule>)>,
    epoch: u64,
    /// Search methods, of which the first that works is used.
    methods: Vec<Method>,
    /// Whether batches will be sent asynchronously.
    batches: bool,
    graphs: bool,
}

/// A table or the reason for its absence, and the epoch of its rules.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) epoch: u64,
    pub(super) table: Result<Box<dyn FlowTable>, GpuError>,
}

/// The thread and its channel. Dropping this ends the thread.
#[derive(Debug)]
struct Worker {
    /// `None` to end the thread.
    requests: Option<Sender<Request>>,
    made: Receiver<Made>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn spawn(device: Device, config: GpuConfig) -> io::Result<Self> {
        let (requests, orders) = mpsc::channel::<Request>();
        let (results, made) = mpsc::channel();
        let work = move || {
            let mut rules = Rules::new();
            for request in orders {
                let made = make(&device, &config, &mut rules, request);
                if results.send(made).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("flowlane-gpu".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(requests), made, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        // A panic was reported by the thread itself.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Updates the thread's copy of the rules and builds a table from it.
fn make(device: &Device, config: &GpuConfig, rules: &mut Rules, request: Request) -> Made {
    if request.anew {
        rules.clear();
    }
    for (id, rule) in request.changes {
        match rule {
            Some(rule) => _ = rules.insert(id, rule),
            None => _ = rules.remove(&id),
        }
    }
    let mut table = Err(GpuError::Stopped);
    for method in request.methods {
        table = projected::build(device, method, config, rules, request.epoch).and_then(|mut table| {
            table.use_graphs(request.graphs);
            if request.batches {
                table.expect_batches()?;
            }
            Ok(table)
        });
        if table.is_ok() {
            break;
        }
    }
    Made { epoch: request.epoch, table }
}

/// The builder of tables, and its distance from the current rules.
#[derive(Debug, Default)]
pub(super) struct Rebuilder {
    worker: Option<Worker>,
    /// Rules changed since the last request; `None` if the thread has no rules.
    since: Option<HashSet<RuleId>>,
    is_building: bool,
}

impl Rebuilder {
    /// Records a changed rule. Beyond `known_max` changes, the next request sends all rules.
    pub(super) fn changed(&mut self, rule: RuleId, known_max: usize) {
        if let Some(since) = &mut self.since {
            since.insert(rule);
            if since.len() > known_max {
                self.since = None;
            }
        }
    }

    /// Discards the recorded changes: all rules have changed.
    pub(super) fn forget(&mut self) {
        self.since = None;
    }

    pub(super) fn is_building(&self) -> bool {
        self.is_building
    }

    /// Returns the rules changed since the last request; `None` if unknown or if there was no request.
    pub(super) fn since(&self) -> Option<&HashSet<RuleId>> {
        self.since.as_ref()
    }

    /// Requests a table of these rules.
    pub(super) fn request(
        &mut self,
        now: &CurrentRules<'_>,
        methods: Vec<Method>,
        batches: bool,
        graphs: bool,
    ) -> Result<(), GpuError> {
        if self.worker.is_none() {
            // Recorded even if there is no thread: changes count from here on.
            self.since = Some(HashSet::new());
            let spawned = Worker::spawn(now.device.clone(), now.config.clone());
            self.worker = Some(spawned.map_err(|error| GpuError::Thread { reason: error.to_string() })?);
            self.since = None;
        }
        let changes = match &mut self.since {
            Some(since) => since.drain().map(|id| (id, now.rules.get(&id).cloned())).collect(),
            None => now.rules.iter().map(|(id, rule)| (*id, Some(rule.clone()))).collect(),
        };
        let anew = self.since.is_none();
        let request = Request { anew, changes, epoch: now.epoch, methods, batches, graphs };
        self.since = Some(HashSet::new());
        // If the thread has ended, no table arrives; `take` notices.
        let requests = self.worker.as_ref().and_then(|worker| worker.requests.as_ref());
        _ = requests.map(|requests| requests.send(request));
        self.is_building = true;
        Ok(())
    }

    /// Takes the requested table; `wait` blocks until it is built.
    pub(super) fn take(&mut self, wait: bool) -> Option<Made> {
        let worker = self.worker.as_mut().filter(|_| self.is_building)?;
        let made = match wait {
            true => worker.made.recv().map_err(|_| TryRecvError::Disconnected),
            false => worker.made.try_recv(),
        };
        match made {
            Ok(made) => {
                self.is_building = false;
                Some(made)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                // The thread panicked and is replaced.
                *self = Self::default();
                Some(Made { epoch: 0, table: Err(GpuError::Stopped) })
            }
        }
    }
}
