//! Tables that are made on a thread of their own, while the one before answers.
//!
//! The thread has the rules, too, and is told of changes only when it is to make a table, all at once: whoever looks up
//! never copies more than changes. (The matches themselves are shared.)

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use flowlane::rule::RuleId;

use super::projected::{self, FlowTable};
use super::{GpuConfig, Now, Rule, Rules};
use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;

/// Rules for the thread.
#[derive(Debug)]
struct Request {
    /// Whether what it has is to be forgotten.
    anew: bool,
    /// What is different, or gone.
    changes: Vec<(RuleId, Option<Rule>)>,
    epoch: u64,
    /// The first that works.
    methods: Vec<Method>,
    /// Whether batches will answer later.
    batches: bool,
    graphs: bool,
}

/// A table that was made, or why it was not; and the epoch of its rules.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) epoch: u64,
    pub(super) table: Result<Box<dyn FlowTable>, GpuError>,
}

/// The thread, and what it is told. It ends with this.
#[derive(Debug)]
struct Worker {
    /// None when it is to end.
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
        // If it has panicked, that was said where it happened.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Brings the thread's rules up to date, and makes a table of them.
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

/// Who makes tables, and how far it is behind.
#[derive(Debug, Default)]
pub(super) struct Maker {
    worker: Option<Worker>,
    /// Rules that have changed since it was last told; none: it knows nothing.
    since: Option<HashSet<RuleId>>,
    is_making: bool,
}

impl Maker {
    /// A rule has changed. Of more than `known_max` changes it is not told: it gets all rules anew.
    pub(super) fn changed(&mut self, rule: RuleId, known_max: usize) {
        if let Some(since) = &mut self.since {
            since.insert(rule);
            if since.len() > known_max {
                self.since = None;
            }
        }
    }

    /// All rules have changed.
    pub(super) fn forget(&mut self) {
        self.since = None;
    }

    pub(super) fn is_making(&self) -> bool {
        self.is_making
    }

    /// Rules that have changed since a table was asked for; none where that is not known, or none was.
    pub(super) fn since(&self) -> Option<&HashSet<RuleId>> {
        self.since.as_ref()
    }

    /// Asks for a table of these rules.
    pub(super) fn request(
        &mut self,
        now: &Now<'_>,
        methods: Vec<Method>,
        batches: bool,
        graphs: bool,
    ) -> Result<(), GpuError> {
        if self.worker.is_none() {
            // Also where there is no thread: changes count from here on.
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
        // If the thread has ended, nothing will come; `take` sees that.
        let requests = self.worker.as_ref().and_then(|worker| worker.requests.as_ref());
        _ = requests.map(|requests| requests.send(request));
        self.is_making = true;
        Ok(())
    }

    /// What was asked for, if it is made, or once it is.
    pub(super) fn take(&mut self, wait: bool) -> Option<Made> {
        let worker = self.worker.as_mut().filter(|_| self.is_making)?;
        let made = match wait {
            true => worker.made.recv().map_err(|_| TryRecvError::Disconnected),
            false => worker.made.try_recv(),
        };
        match made {
            Ok(made) => {
                self.is_making = false;
                Some(made)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                // It has panicked. Another takes its place.
                *self = Self::default();
                Some(Made { epoch: 0, table: Err(GpuError::Stopped) })
            }
        }
    }
}
