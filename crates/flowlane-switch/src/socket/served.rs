//! What the control socket offers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use flowlane::generate::packet::build_frame;
use flowlane::packet::fields::word;
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::print_actions;
use flowlane::rule::{FlowMod, ReadErrors, ReadOptions, read_changes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rpc::{PROTOCOL, RpcError};
use crate::control::{Control, FlowStatistics, Gone, Refused};
use crate::datapath::{Mailbox, Trace, Tracing, Worker};
use crate::report::{Report, RuleReport, WorkerReport};
use crate::setup::{Reload, SetupError};

/// A switch that runs, for those who look at it and change it.
pub struct Served {
    control: Mutex<Control>,
    /// Of each worker.
    mail: Vec<Mailbox>,
    reload: Reload,
    stop: Arc<AtomicBool>,
    begun: Instant,
}

/// A rule with its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowReport {
    pub table: u8,
    pub priority: u32,
    pub cookie: u64,
    /// As in rule files.
    pub matches: String,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
    pub age_s: f64,
    /// 0: it stays.
    pub idle_timeout_s: u16,
    /// 0: it stays.
    pub hard_timeout_s: u16,
}

/// What a change has come to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChangeReport {
    pub added: usize,
    pub modified: usize,
    pub removed: usize,
    /// From when it was read until no packet met the rules as they were before.
    pub microseconds: u64,
    /// Rules that went, with all that they were ever for.
    pub gone: Vec<GoneReport>,
}

/// A rule that went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GoneReport {
    /// As in rule files.
    pub rule: String,
    pub packets: u64,
    pub bytes: u64,
    pub lasted_s: f64,
    pub reason: String,
}

/// A learned address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MacEntry {
    pub mac: String,
    pub vlan: u16,
    pub port: u32,
    pub port_name: String,
    /// Since it was last seen.
    pub age_s: u32,
}

/// A line that is wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineError {
    pub file: String,
    /// 1-based.
    pub line: usize,
    /// 1-based.
    pub column: usize,
    /// In the text, in bytes.
    pub offset: usize,
    pub len: usize,
    pub problem: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FlowsParams {
    table: Option<u8>,
    /// A flow as of rule files: only rules that are as specific are told.
    flow: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeParams {
    /// Lines as of a file of changes.
    text: String,
    /// Its name in errors.
    #[serde(default)]
    file: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TraceParams {
    /// A port's number; none: the flow's, or else the first.
    in_port: Option<u32>,
    /// In hexadecimal.
    frame: String,
    /// Instead of a frame: a flow as of rule files, of which one is made.
    flow: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadParams {
    file: Option<PathBuf>,
}

impl Served {
    /// A switch whose rules this control changes. `stop` is set where somebody asks it to stop.
    pub fn new(control: Control, reload: Reload, stop: Arc<AtomicBool>) -> Self {
        let mail = control.mailboxes().to_vec();
        Self { control: Mutex::new(control), mail, reload, stop, begun: Instant::now() }
    }

    /// Who changes the rules, for whoever wants more of it.
    pub fn control(&self) -> MutexGuard<'_, Control> {
        // Control is right between two of its methods, and each leaves it so before it panics: none does.
        self.control.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What calls of methods come to.
    pub(super) fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "version" => Ok(json!({ "flowlane": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL })),
            "show" => told(&self.show()?),
            "flows" => {
                let FlowsParams { table, flow } = read(params)?;
                told(&self.flows(table, &flow)?)
            }
            "change" => {
                let ChangeParams { text, file } = read(params)?;
                told(&self.change(&text, if file.is_empty() { "change" } else { &file })?)
            }
            "reload" => {
                let ReloadParams { file } = read(params)?;
                told(&self.reload(file.as_deref())?)
            }
            "workers" => told(&self.workers()?),
            "fdb" => told(&self.fdb()?),
            "trace" => {
                let TraceParams { in_port, frame, flow } = read(params)?;
                told(&self.trace(in_port, &frame, &flow)?)
            }
            "stop" => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(Value::Null)
            }
            _ => {
                let known = "version, show, workers, flows, change, reload, fdb, trace, stop";
                let message = format!("there is no method `{method}`; there are {known}");
                Err(RpcError::new(RpcError::METHOD, message))
            }
        }
    }

    /// Has a worker answer a question.
    fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, RpcError> {
        let stopped = || RpcError::new(RpcError::STOPPED, "the switch does not run");
        self.mail[worker].ask(question).ok_or_else(stopped)
    }

    /// Has each worker answer a question.
    fn ask_all<T: Send + 'static>(&self, question: fn(&mut Worker) -> T) -> Result<Vec<T>, RpcError> {
        (0..self.mail.len()).map(|worker| self.ask(worker, question)).collect()
    }

    /// Everything that the switch counts, and for how many seconds it has run.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn show(&self) -> Result<Value, RpcError> {
        let mut report = Report::sum(self.ask_all(Report::brief)?).expect("there is a worker");
        for flow in self.flows(None, "")? {
            let Some(table) = report.tables.iter_mut().find(|table| table.number == flow.table) else {
                continue;
            };
            let FlowReport { priority, matches, actions, packets, bytes, .. } = flow;
            table.rules.push(RuleReport { priority, matches, actions, packets, bytes });
        }
        let mut report = told(&report)?;
        report["seconds"] = json!(self.begun.elapsed().as_secs_f64());
        Ok(report)
    }

    /// Where packets' time goes: what each worker has done, by stage and by queue.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub fn workers(&self) -> Result<Vec<WorkerReport>, RpcError> {
        let report = |place| self.ask(place, move |worker| WorkerReport::of(place, worker));
        (0..self.mail.len()).map(report).collect()
    }

    /// The rules with their counters: of one table or of all, and all or those that are at least as specific as a flow.
    ///
    /// # Errors
    /// Where the flow is not understood.
    pub fn flows(&self, table: Option<u8>, flow: &str) -> Result<Vec<FlowReport>, RpcError> {
        let selects = match flow.trim().is_empty() {
            true => None,
            false => Some(self.read_flow(flow)?),
        };
        let wanted = |number: u8, rule: &_| {
            table.is_none_or(|table| table == number)
                && selects.as_ref().is_none_or(|s: &FlowMod| s.selects(number, rule))
        };
        Ok(self.control().statistics(wanted).into_iter().map(FlowReport::from).collect())
    }

    /// Makes changes, all or none: lines as of a file of changes.
    ///
    /// # Errors
    /// Where a line is not understood, or refused; nothing has changed.
    pub fn change(&self, text: &str, file: &str) -> Result<ChangeReport, RpcError> {
        let mods = self.read_changes(text, file)?;
        self.make(&mods, text, file)
    }

    fn make(&self, mods: &[FlowMod], text: &str, file: &str) -> Result<ChangeReport, RpcError> {
        let begun = Instant::now();
        let mut control = self.control();
        let applied = control.change(mods).map_err(|refused| refused_line(&refused, text, file))?;
        let microseconds = begun.elapsed().as_micros() as u64;
        let gone = if applied.removed > 0 { control.wait_for_gone() } else { Vec::new() };
        Ok(ChangeReport {
            added: applied.added,
            modified: applied.modified,
            removed: applied.removed,
            microseconds,
            gone: gone.into_iter().map(GoneReport::from).collect(),
        })
    }

    fn read_changes(&self, text: &str, file: &str) -> Result<Vec<FlowMod>, RpcError> {
        let resolve = |name: &str| self.reload.port(name);
        let options = ReadOptions { ports: &resolve, ..ReadOptions::default() };
        read_changes(text, file, &options).map_err(|errors| wrong_lines(&errors))
    }

    /// A flow, read as what a change would select.
    fn read_flow(&self, flow: &str) -> Result<FlowMod, RpcError> {
        const BEFORE: &str = "delete ";
        let resolve = |name: &str| self.reload.port(name);
        let options = ReadOptions { ports: &resolve, ..ReadOptions::default() };
        let read = read_changes(&format!("{BEFORE}{flow}"), "flow", &options);
        let mut read = read.map_err(|errors| {
            // Places are those of the flow, as it was given.
            let mut lines = error_lines(&errors);
            for line in lines.iter_mut().filter(|line| line.line == 1) {
                line.offset = line.offset.saturating_sub(BEFORE.len());
                line.column = line.column.saturating_sub(BEFORE.len()).max(1);
            }
            let message = lines.iter().map(|l| format!("{}:{}:{}: {}", l.file, l.line, l.column, l.problem));
            let message = message.collect::<Vec<_>>().join("\n");
            RpcError { code: RpcError::PARAMS, message, data: Some(json!({ "lines": lines })) }
        })?;
        match read.len() {
            1 => Ok(read.remove(0)),
            n => Err(RpcError::new(RpcError::PARAMS, format!("{n} flows; one is wanted"))),
        }
    }

    /// Makes the rules those of a configuration: of the one that the switch was started with, or of another that differs in rules
    /// alone. Rules that stay keep their counters.
    ///
    /// # Errors
    /// Where it is wrong, or differs in more; nothing has changed.
    pub fn reload(&self, file: Option<&Path>) -> Result<ChangeReport, RpcError> {
        let rules = self.reload.read(file).map_err(|error| setup_error(&error))?;
        let ruleset = self.control().ruleset();
        let mods = Reload::changes(&ruleset, rules);
        drop(ruleset);
        self.make(&mods, "", "configuration")
    }

    /// The learned addresses.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub fn fdb(&self) -> Result<Vec<MacEntry>, RpcError> {
        let mut entries = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            let (some, next) = self.ask(0, move |worker| addresses(worker, at))?;
            entries.extend(some);
            from = next;
        }
        Ok(entries)
    }

    /// What would become of a packet that came in through a port, and why: a frame in hexadecimal, or one of a flow.
    ///
    /// # Errors
    /// Where it is not understood, there is no such port, or the switch does not run.
    pub fn trace(&self, in_port: Option<u32>, frame: &str, flow: &str) -> Result<Trace, RpcError> {
        let refused = |message: String| RpcError::new(RpcError::PARAMS, message);
        let mut port = in_port;
        let mut bytes = Vec::new();
        if frame.is_empty() {
            let key = self.read_flow(flow)?.rule.matches.key();
            let of_flow = key.word(word::IN_PORT);
            port = port.or((of_flow != 0).then_some(of_flow));
            build_frame(&key, FRAME_BYTES, &mut bytes);
        } else {
            let byte = |at: usize| frame.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let read: Option<Vec<u8>> = (0..frame.len()).step_by(2).map(byte).collect();
            bytes = read.ok_or_else(|| refused("a frame is hexadecimal digits, two a byte".to_owned()))?;
        }
        let begun = self.ask(0, move |worker| {
            let first = worker.egress.ports.slots().first().map_or(PortNo(0), |slot| slot.number);
            worker.trace(port.map_or(first, PortNo), &bytes)
        })?;
        let mut tracing = begun.map_err(refused)?;
        loop {
            tracing = match tracing {
                Tracing::Ended(trace) => return Ok(trace),
                Tracing::On { worker, packet, function } => {
                    self.ask(worker, move |worker| worker.trace_on(packet, function))?
                }
            };
        }
    }

    /// Does what is due without being asked: to be called some ten times a second.
    pub fn tick(&self) {
        let mut control = self.control();
        control.renew();
        control.expire();
        // Nobody has asked for them.
        drop(control.take_gone());
    }
}

/// Of a frame that is made of a flow, at least.
const FRAME_BYTES: usize = 60;

/// Slots of the address table that are read at a time.
const SLOTS: usize = 4096;

/// The addresses in some slots, and where to go on.
fn addresses(worker: &mut Worker, from: usize) -> (Vec<MacEntry>, Option<usize>) {
    let now_s = worker.now_s();
    let egress = &worker.egress;
    let (entries, next) = egress.macs.entries_from(from, SLOTS);
    let entry = |(mac, vlan, port, seen_s): (u64, u16, PortNo, u32)| {
        let bytes = mac.to_be_bytes().map(|byte| format!("{byte:02x}"));
        MacEntry {
            mac: bytes[2..].join(":"),
            vlan,
            port: port.0,
            port_name: egress.port_name(port).unwrap_or_default().to_owned(),
            age_s: now_s.saturating_sub(seen_s),
        }
    };
    (entries.into_iter().map(entry).collect(), next)
}

fn read<T: DeserializeOwned + Default>(params: Value) -> Result<T, RpcError> {
    if params.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(params).map_err(|e| RpcError::new(RpcError::PARAMS, format!("params: {e}")))
}

fn told(what: &impl Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(what).map_err(|e| RpcError::new(RpcError::REQUEST, e.to_string()))
}

fn error_lines(errors: &ReadErrors) -> Vec<LineError> {
    let line = |e: &flowlane::rule::ReadError| LineError {
        file: e.file.clone(),
        line: e.line,
        column: e.column,
        offset: e.offset,
        len: e.len,
        problem: e.problem.clone(),
    };
    errors.errors().iter().map(line).collect()
}

fn wrong_lines(errors: &ReadErrors) -> RpcError {
    let lines = error_lines(errors);
    RpcError { code: RpcError::PARAMS, message: errors.to_string(), data: Some(json!({ "lines": lines })) }
}

/// A flow-mod that is refused, at its line.
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

fn setup_error(error: &SetupError) -> RpcError {
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

impl From<Gone> for GoneReport {
    fn from(gone: Gone) -> Self {
        Self {
            rule: gone.rule.to_string(),
            packets: gone.count.packets,
            bytes: gone.count.bytes,
            lasted_s: gone.lasted.as_secs_f64(),
            reason: <&str>::from(gone.reason).to_owned(),
        }
    }
}
