//! The methods of the control socket.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::rule::flow_syntax::print_actions;
use flowlane::rule::{FlowMod, ReadErrors, ReadOptions, read_changes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::connections::SMALL;
use super::controllers::{ControllerReport, Controllers};
use super::link_notices::LinkNotices;
use super::message::{PROTOCOL, RpcError, answer, parse_params, shortened, to_json};
use super::ports::{Links, RemovePortParams};
use super::progress::ReloadWatch;
use super::queues::Disciplines;
use super::take_over::TakeOverSlot;
use crate::control::{BundleError, Changes, Control, FlowRemoved, FlowStatistics, Refused};
use crate::datapath::{Mailbox, Worker};
use crate::mgmt::memory::{self, SpareMemory};
use crate::mgmt::report::{Report, RuleReport, WorkerReport};
use crate::mgmt::setup::{Reload, SetupError};

/// The methods of a running switch.
pub struct ControlServer {
    control: Mutex<Control>,
    /// Those of the workers, in order.
    mail: Vec<Mailbox>,
    pub(super) reload: Reload,
    stop: Arc<AtomicBool>,
    pub(super) begun: Instant,
    /// Held while something large is made for a client, so that the memory does not grow with the number of clients.
    large: Mutex<()>,
    controllers: Arc<Controllers>,
    /// The switch ends for good when its run has ended.
    is_ending: AtomicBool,
    take_over: Mutex<TakeOverSlot>,
    /// The interfaces of the system.
    pub(super) links: Mutex<Links>,
    /// Woken when they change.
    pub(super) links_watchers: Mutex<Vec<Thread>>,
    /// The reason for which clients may not set ports or end the switch, if another program does.
    pub(super) owner: Option<&'static str>,
    spare: Mutex<SpareMemory>,
    pub(super) disciplines: Mutex<Disciplines>,
    /// Rounds of the periodic work.
    pub(super) ticks: AtomicU64,
    /// Called when a reload begins and when it has ended.
    pub(super) reload_watch: OnceLock<ReloadWatch>,
    /// Interfaces of ports that have vanished or come back, for the log.
    pub(super) link_notices: Mutex<LinkNotices>,
}

/// All counters of a switch.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchReport {
    #[serde(flatten)]
    pub report: Report,
    /// Since the switch started.
    pub seconds: f64,
    /// The addresses of OpenFlow controllers.
    pub controllers: Vec<ControllerReport>,
}

/// A rule with its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowReport {
    pub table: u8,
    pub priority: u32,
    pub cookie: u64,
    /// In the syntax of rule files.
    pub matches: String,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
    pub age_s: f64,
    /// 0 for never.
    pub idle_timeout_s: u16,
    /// 0 for never.
    pub hard_timeout_s: u16,
}

/// The result of a change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChangeReport {
    pub added: usize,
    pub modified: usize,
    pub removed: usize,
    /// Groups added, modified and deleted, by a reload.
    #[serde(default)]
    pub groups: usize,
    /// Ports that have come, gone or other settings than before, by a reload.
    #[serde(default)]
    pub ports: usize,
    /// Ports that a reload could not remove, or not finish writing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Zones of connections with other settings than before, by a reload.
    #[serde(default)]
    pub zones: usize,
    /// Meters that have come, gone or other settings than before, by a reload.
    #[serde(default)]
    pub meters: usize,
    /// Mirrors that have come, gone or other settings than before, by a reload.
    #[serde(default)]
    pub mirrors: usize,
    /// The time from reading the change until no packet saw the former rules.
    pub microseconds: u64,
    /// The removed rules with their final counters.
    pub gone: Vec<FlowRemovedReport>,
}

/// A removed rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowRemovedReport {
    /// In the syntax of rule files.
    pub rule: String,
    pub packets: u64,
    pub bytes: u64,
    pub lasted_s: f64,
    pub reason: String,
}

/// An error in a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// Bytes from the beginning of the text.
    pub offset: usize,
    pub len: usize,
    pub problem: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FlowsParams {
    table: Option<u8>,
    /// A flow in the syntax of rule files: selects the rules that are at least as specific.
    flow: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeParams {
    /// Lines of a file of changes.
    text: String,
    /// Its name in errors.
    #[serde(default)]
    file: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadParams {
    file: Option<PathBuf>,
}

impl ControlServer {
    /// Serves a switch whose rules `control` changes. The method `stop` sets `stop`.
    pub fn new(control: Control, reload: Reload, stop: Arc<AtomicBool>) -> Self {
        let mail = control.mailboxes().to_vec();
        let (begun, large) = (Instant::now(), Mutex::default());
        let controllers = Arc::default();
        let (is_ending, take_over) = (AtomicBool::new(false), Mutex::default());
        Self {
            control: Mutex::new(control),
            mail,
            reload,
            stop,
            begun,
            large,
            controllers,
            is_ending,
            take_over,
            links: Mutex::default(),
            links_watchers: Mutex::default(),
            owner: None,
            spare: Mutex::new(SpareMemory::new(begun)),
            disciplines: Mutex::default(),
            ticks: AtomicU64::new(0),
            reload_watch: OnceLock::new(),
            link_notices: Mutex::default(),
        }
    }

    /// Ends the switch. Returns whether it was ending already.
    pub fn end(&self) -> bool {
        let was_ending = self.is_ending.swap(true, Ordering::SeqCst);
        self.stop_run();
        was_ending
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Ends the run of the workers.
    pub(super) fn stop_run(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.mail.iter().for_each(|mail| mail.notifier().wake());
    }

    pub(super) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    pub(super) fn take_over_slot(&self) -> MutexGuard<'_, TakeOverSlot> {
        self.take_over.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The mailboxes of the workers, in order.
    pub(super) fn mailboxes(&self) -> &[Mailbox] {
        &self.mail
    }

    pub(crate) fn workers_count(&self) -> usize {
        self.mail.len()
    }

    /// The addresses of OpenFlow controllers, for the agent to add to.
    pub(crate) fn controllers(&self) -> &Arc<Controllers> {
        &self.controllers
    }

    /// Locks the control of the rules.
    pub fn control(&self) -> MutexGuard<'_, Control> {
        // Control is consistent between two of its methods, and none of them panics midway.
        self.control.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Answers a line from a client; `None` for a notification.
    pub(crate) fn answer(&self, line: Vec<u8>) -> Option<String> {
        answer(line, |method, params| self.call(method, params))
    }

    /// Answers a line that has come on a stream, which another switch or a follower of connections then uses.
    pub(super) fn answer_on(&self, line: Vec<u8>, stream: &UnixStream) -> Option<String> {
        answer(line, |method, params| match method {
            "take_over" => self.take_over(stream),
            "follow_connections" => self.follow(params, stream),
            _ => self.call(method, params),
        })
    }

    /// Waits until no other thread makes something large.
    pub(super) fn large(&self) -> MutexGuard<'_, ()> {
        self.large.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Calls a method by its name; returns its result as JSON.
    fn call(&self, method: &str, params: Value) -> Result<String, RpcError> {
        self.check_owned(method)?;
        match method {
            "version" => to_json(&json!({ "flowlane": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL })),
            "show" => {
                let _turn = self.large();
                to_json(&self.show()?)
            }
            "flows" => {
                let FlowsParams { table, flow } = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.flows(table, &flow)?)
            }
            "change" => {
                let ChangeParams { text, file } = parse_params(params)?;
                let _turn = (text.len() > SMALL).then(|| self.large());
                to_json(&self.change(&text, if file.is_empty() { "change" } else { &file })?)
            }
            "reload" => {
                let ReloadParams { file } = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.reload(file.as_deref())?)
            }
            "add_port" => to_json(&self.add_port(params)?),
            "remove_port" => {
                let RemovePortParams { port } = parse_params(params)?;
                to_json(&self.remove_port(&port)?)
            }
            "workers" => to_json(&self.workers()?),
            "fdb" => {
                let _turn = self.large();
                to_json(&self.fdb()?)
            }
            "connections" | "flush_connections" | "zones" | "change_zone" => {
                self.call_tracked(method, params)
            }
            "neighbours" => {
                let wanted = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.neighbours(wanted)?)
            }
            "flush_neighbours" => to_json(&self.flush_neighbours(parse_params(params)?)?),
            "routes" => {
                let wanted = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.routes(&wanted)?)
            }
            "change_routes" => {
                let change = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.change_routes(&change)?)
            }
            "trace" => to_json(&self.trace_packet(parse_params(params)?)?),
            "take_over_terms" => to_json(&self.take_over_terms()?),
            "stop" => {
                self.end();
                to_json(&())
            }
            _ => {
                let known = "version, show, workers, flows, change, reload, add_port, remove_port, fdb, connections, flush_connections, follow_connections, \
                             zones, change_zone, neighbours, flush_neighbours, routes, change_routes, trace, take_over_terms, take_over, stop";
                let message = format!("there is no method `{method}`; there are {known}");
                Err(RpcError::new(RpcError::METHOD, message))
            }
        }
    }

    /// Runs a function on a worker's thread.
    pub(crate) fn call_worker<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, RpcError> {
        let stopped = || RpcError::new(RpcError::STOPPED, "the switch does not run");
        self.mail[worker].call(question).ok_or_else(stopped)
    }

    /// Runs a function on every worker's thread.
    pub(crate) fn call_workers<T: Send + 'static>(
        &self,
        question: fn(&mut Worker) -> T,
    ) -> Result<Vec<T>, RpcError> {
        (0..self.mail.len()).map(|worker| self.call_worker(worker, question)).collect()
    }

    /// Returns all counters of the switch, and its uptime.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub fn show(&self) -> Result<SwitchReport, RpcError> {
        let mut report = Report::sum(self.call_workers(Report::brief)?).expect("there is a worker");
        for flow in self.flows(None, "")? {
            let Some(table) = report.tables.iter_mut().find(|table| table.number == flow.table) else {
                continue;
            };
            let FlowReport { priority, matches, actions, packets, bytes, .. } = flow;
            table.rules.push(RuleReport { priority, matches, actions, packets, bytes });
        }
        let controllers = self.controllers.report();
        Ok(SwitchReport { report, seconds: self.begun.elapsed().as_secs_f64(), controllers })
    }

    /// Returns the cycles and packets of each worker, by stage and by queue.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub fn workers(&self) -> Result<Vec<WorkerReport>, RpcError> {
        let report = |place| self.call_worker(place, move |worker| WorkerReport::of(place, worker));
        (0..self.mail.len()).map(report).collect()
    }

    /// Returns the rules with their counters: of one table or of all, and all or those that are at least as specific as a flow.
    ///
    /// # Errors
    /// Where the flow is malformed.
    pub fn flows(&self, table: Option<u8>, flow: &str) -> Result<Vec<FlowReport>, RpcError> {
        let selects = match flow.trim().is_empty() {
            true => Vec::new(),
            false => self.read_flow(flow)?,
        };
        let wanted = |number: u8, rule: &_| {
            table.is_none_or(|table| table == number)
                && (selects.is_empty() || selects.iter().any(|one| one.selects(number, rule)))
        };
        let statistics = self.control().statistics(wanted);
        // Others may change rules from here on.
        Ok(statistics.into_iter().map(FlowReport::from).collect())
    }

    /// Applies changes, all or none: lines of a file of changes.
    ///
    /// # Errors
    /// Where a line is malformed or rejected, or there are too many; nothing has changed.
    pub fn change(&self, text: &str, file: &str) -> Result<ChangeReport, RpcError> {
        if text.bytes().filter(|byte| *byte == b'\n').count() > CHANGES_MAX {
            let message = format!("a change has at most {CHANGES_MAX} lines; split it");
            return Err(RpcError::new(RpcError::PARAMS, message));
        }
        let mods = self.read_changes(text, file)?;
        self.make(&Changes { rules: &mods, ..Changes::default() }, text, file)
    }

    pub(super) fn make(
        &self,
        changes: &Changes<'_>,
        text: &str,
        file: &str,
    ) -> Result<ChangeReport, RpcError> {
        let begun = Instant::now();
        self.catch_up();
        let mut control = self.control();
        let result = control.change_all(changes).map_err(|error| match error {
            BundleError::Rule(refused) => refused_line(&refused, text, file),
            BundleError::Group { .. } | BundleError::Port { .. } => {
                RpcError::new(RpcError::REFUSED, format!("{file}: {error}"))
            }
        })?;
        let microseconds = begun.elapsed().as_micros() as u64;
        let gone = if result.removed > 0 { control.wait_for_flow_removed() } else { Vec::new() };
        Ok(ChangeReport {
            added: result.added,
            modified: result.modified,
            removed: result.removed,
            groups: 0,
            ports: 0,
            problems: Vec::new(),
            zones: 0,
            meters: 0,
            mirrors: 0,
            microseconds,
            gone: gone.into_iter().map(FlowRemovedReport::from).collect(),
        })
    }

    fn read_changes(&self, text: &str, file: &str) -> Result<Vec<FlowMod>, RpcError> {
        let resolve = |name: &str| self.reload.port(name);
        let options = ReadOptions { ports: &resolve, rules_max: CHANGES_MAX, ..ReadOptions::default() };
        read_changes(text, file, &options).map_err(|errors| wrong_lines(&errors))
    }

    /// Reads a flow as the match of a change: one, or one for each prefix of a range of ICMP types or codes.
    pub(super) fn read_flow(&self, flow: &str) -> Result<Vec<FlowMod>, RpcError> {
        const BEFORE: &str = "delete ";
        let resolve = |name: &str| self.reload.port(name);
        let options = ReadOptions { ports: &resolve, rules_max: CHANGES_MAX, ..ReadOptions::default() };
        let read = read_changes(&format!("{BEFORE}{flow}"), "flow", &options);
        let read = read.map_err(|errors| {
            // Places count from the beginning of the flow.
            let mut lines = error_lines(&errors);
            for line in lines.iter_mut().filter(|line| line.line == 1) {
                line.offset = line.offset.saturating_sub(BEFORE.len());
                line.column = line.column.saturating_sub(BEFORE.len()).max(1);
            }
            let message = lines.iter().map(|l| format!("{}:{}:{}: {}", l.file, l.line, l.column, l.problem));
            let message = message.collect::<Vec<_>>().join("\n");
            RpcError { data: Some(json!({ "lines": lines })), ..RpcError::new(RpcError::PARAMS, message) }
        })?;
        match read.iter().all(|one| one.line == 1) {
            true => Ok(read),
            false => Err(RpcError::new(RpcError::PARAMS, "one flow on one line is expected")),
        }
    }

    /// Repeats changes on the standby, and lets others use the control in between.
    fn catch_up(&self) {
        while !self.control().catch_up_slice() {
            std::thread::sleep(SLICE_PAUSE);
        }
    }

    /// Runs periodic work: learned rules, rebuilds and timeouts. Call it about ten times a second, and when
    /// [woken](crate::control::Control::wake).
    pub fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        let mut control = self.control();
        control.add_learned();
        control.rebuild_engines();
        let version = control.ruleset().version();
        drop(control);
        memory::look_after(&self.spare, version);
        self.catch_up();
        loop {
            let mut control = self.control();
            control.expire_slice();
            // No client is waiting for these.
            drop(control.take_flow_removed());
            if control.is_expired() {
                return;
            }
            drop(control);
            // A thread that waits for the control gets it before the next slice.
            std::thread::sleep(SLICE_PAUSE);
        }
    }
}

/// The pause between two slices of changes or timeouts.
const SLICE_PAUSE: Duration = Duration::from_millis(1);

/// Maximum number of flow-mods in a change: each takes up to a kilobyte of memory while it is read. A line makes up to 196.
const CHANGES_MAX: usize = 1 << 20;

fn error_lines(errors: &ReadErrors) -> Vec<LineError> {
    let line = |e: &flowlane::rule::ReadError| LineError {
        file: e.file.clone(),
        line: e.line,
        column: e.column,
        offset: e.offset,
        len: e.len,
        problem: shortened(e.problem.clone()),
    };
    errors.errors().iter().map(line).collect()
}

fn wrong_lines(errors: &ReadErrors) -> RpcError {
    let lines = error_lines(errors);
    RpcError { data: Some(json!({ "lines": lines })), ..RpcError::new(RpcError::PARAMS, errors.to_string()) }
}

/// Makes the error of a rejected flow-mod, at its line.
fn refused_line(refused: &Refused, text: &str, file: &str) -> RpcError {
    let mut offset = 0;
    let mut of_line = "";
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        of_line = line.trim_end();
        if number == refused.line {
            break;
        }
        offset += line.len();
    }
    let line = LineError {
        file: file.to_owned(),
        line: refused.line,
        column: 1,
        offset,
        len: of_line.len(),
        problem: refused.refusal.to_string(),
    };
    let message = format!("{file}:{}:1: {}", refused.line, refused.refusal);
    RpcError { code: RpcError::REFUSED, message, data: Some(json!({ "lines": [line] })) }
}

pub(super) fn setup_error(error: &SetupError) -> RpcError {
    match error {
        SetupError::Lines { errors, .. } => wrong_lines(errors),
        other => RpcError::new(RpcError::REFUSED, other.to_string()),
    }
}

impl From<FlowStatistics> for FlowReport {
    fn from(flow: FlowStatistics) -> Self {
        Self {
            table: flow.rule.table,
            priority: flow.rule.priority.0,
            cookie: flow.rule.cookie,
            matches: flow.rule.matches.to_string(),
            actions: print_actions(&flow.rule.actions),
            packets: flow.count.packets,
            bytes: flow.count.bytes,
            age_s: flow.age.as_secs_f64(),
            idle_timeout_s: flow.idle_timeout_s,
            hard_timeout_s: flow.hard_timeout_s,
        }
    }
}

impl From<FlowRemoved> for FlowRemovedReport {
    fn from(removed: FlowRemoved) -> Self {
        Self {
            rule: removed.rule.to_string(),
            packets: removed.count.packets,
            bytes: removed.count.bytes,
            lasted_s: removed.duration.as_secs_f64(),
            reason: <&str>::from(removed.reason).to_owned(),
        }
    }
}
