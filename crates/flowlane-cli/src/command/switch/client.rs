//! Commands for a running switch: requests on its control socket, and the formatting of replies.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flowlane_capture::{CaptureReader, FRAME_MAX, decompress};
use flowlane_switch::datapath::{Trace, TraceSent, TraceStep};
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::{
    CallError, ChangeReport, Client, ControllerReport, FlowReport, LineError, MacEntry, PortChangeReport,
    RpcError, default_path,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{connections, neighbours, report, routes, workers, zones};
use crate::arguments::{RunningSwitch, SwitchVerb};
use crate::failure::Failure;
use crate::input::read_text;
use crate::output::{self, count};

/// Runs a command against a running switch.
pub(super) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    match verb {
        SwitchVerb::Show { running, limit } => {
            let reply = Call::of(running).make("show", json!({}))?;
            print_reply(running, &reply, |report: Report| shown(&reply, &report, *limit))
        }
        SwitchVerb::Stages { running } => {
            print_reply(running, &Call::of(running).make("workers", json!({}))?, workers::stages)
        }
        SwitchVerb::Rxq { running } => {
            print_reply(running, &Call::of(running).make("workers", json!({}))?, workers::queues)
        }
        SwitchVerb::Top { running, interval, count } => {
            let ask = || Call::of(running).make("workers", json!({}));
            workers::top(ask, *interval, *count, running.json)
        }
        SwitchVerb::Flows { running, table, flow } => {
            let table = table.as_deref().map(|table| table_number(running, table)).transpose()?;
            let flow = flow.join(",");
            let call = Call::about(running, "flow", flow.clone());
            print_reply(running, &call.make("flows", json!({ "table": table, "flow": flow }))?, flows)
        }
        SwitchVerb::AddFlow { running, flow } => change(running, "add", flow),
        SwitchVerb::ModFlow { running, strict, flow } => {
            change(running, if *strict { "modify_strict" } else { "modify" }, flow)
        }
        SwitchVerb::DelFlow { running, strict, flow } => {
            change(running, if *strict { "delete_strict" } else { "delete" }, flow)
        }
        SwitchVerb::Bundle { running, file } => {
            let text = read_text(file)?;
            let call = Call::about(running, &file.display().to_string(), text);
            print_reply(running, &call.change()?, changed)
        }
        SwitchVerb::Reload { running, file } => {
            let file = file.as_deref().map(absolute).transpose()?;
            print_reply(running, &Call::of(running).make("reload", json!({ "file": file }))?, changed)
        }
        SwitchVerb::AddPort { running, port } => change_port(running, "add_port", &json!(port), "added"),
        SwitchVerb::DelPort { running, port } => {
            change_port(running, "remove_port", &json!({ "port": port }), "removed")
        }
        SwitchVerb::Fdb { running } => {
            print_reply(running, &Call::of(running).make("fdb", json!({}))?, addresses)
        }
        SwitchVerb::Connections { .. } => connections::run(verb),
        SwitchVerb::Zones { .. } => zones::run(verb),
        SwitchVerb::Routes { .. } => routes::run(verb),
        SwitchVerb::Neighbours { running, port, address, flush } => {
            neighbours::run(running, &json!({ "port": port, "address": address }), *flush)
        }
        SwitchVerb::Trace { running, in_port, ct_next, packet } => {
            let (key, value) = frame(packet)?.map_or(("flow", packet.clone()), |frame| ("frame", frame));
            let params = json!({ "in_port": in_port, key: value, "ct_next": ct_next });
            let call = Call::about(running, "flow", packet.clone());
            print_reply(running, &call.make("trace", params)?, trace)
        }
        SwitchVerb::Stop { running } => {
            let reply = Call::of(running).make("stop", json!({}))?;
            print_reply(running, &reply, |(): ()| "the switch stops\n".to_owned())
        }
        SwitchVerb::Run(_) | SwitchVerb::Check { .. } | SwitchVerb::Schema => {
            unreachable!("not a client command")
        }
    }
}

/// A request to a switch, with the text that it carries.
pub(super) struct Call {
    socket: PathBuf,
    /// The time in which a switch that is starting may begin to answer.
    wait: Duration,
    file: String,
    text: String,
}

/// Interval of attempts to reach a switch that is starting.
const RETRY: Duration = Duration::from_millis(20);

/// Connects to a switch; a missing socket, and one without a listener, may become one in `wait`.
fn connect(socket: &Path, wait: Duration) -> io::Result<Client> {
    let begun = Instant::now();
    loop {
        match Client::connect(socket) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
                    && begun.elapsed() < wait =>
            {
                std::thread::sleep(RETRY);
            }
            done => return done,
        }
    }
}

impl Call {
    pub(super) fn of(running: &RunningSwitch) -> Self {
        Self::about(running, "", String::new())
    }

    fn about(running: &RunningSwitch, file: &str, text: String) -> Self {
        let socket = running.socket.clone().unwrap_or_else(default_path);
        Self { socket, wait: running.wait, file: file.to_owned(), text }
    }

    fn change(self) -> Result<Value, Failure> {
        let params = json!({ "text": self.text, "file": self.file });
        self.make("change", params)
    }

    pub(super) fn make(self, method: &str, params: Value) -> Result<Value, Failure> {
        self.make_noticing(method, params, |_, _| Ok(()))
    }

    /// Makes the request; `notice` gets the notifications that come before the reply.
    pub(super) fn make_noticing(
        self,
        method: &str,
        params: Value,
        mut notice: impl FnMut(&str, Value) -> io::Result<()>,
    ) -> Result<Value, Failure> {
        let socket = self.socket.display().to_string();
        let begun = Instant::now();
        loop {
            let left = self.wait.saturating_sub(begun.elapsed());
            let mut client = connect(&self.socket, left).map_err(|e| {
                Failure::Environment(format!(
                    "no switch answers on {socket}: {e}; start one with `flowlane switch run`, or give its socket with --socket"
                ))
            })?;
            match client.call_noticing(method, &params, &mut notice) {
                Ok(reply) => return Ok(reply),
                // It has its socket, and is about to run.
                Err(CallError::Rpc(error)) if error.code == RpcError::STOPPED && !left.is_zero() => {
                    std::thread::sleep(RETRY);
                }
                Err(CallError::Rpc(error)) => return Err(self.failure(error)),
                Err(other) => return Err(Failure::Environment(format!("{socket}: {other}"))),
            }
        }
    }

    /// Converts an error reply, pointing at the lines of the text.
    fn failure(self, error: RpcError) -> Failure {
        let lines = error.data.as_ref().and_then(|data| data.get("lines")).cloned().unwrap_or_default();
        let lines: Vec<LineError> = serde_json::from_value(lines).unwrap_or_default();
        let of_text: Vec<&LineError> = lines.iter().filter(|line| line.file == self.file).collect();
        match (error.code, of_text.is_empty()) {
            (RpcError::STOPPED, _) => Failure::Environment(error.message),
            (_, false) => {
                let spans = of_text.iter().map(|l| (l.offset..l.offset + l.len.max(1), l.problem.clone()));
                Failure::places(error.message, self.file, self.text, spans.collect())
            }
            _ => Failure::input_help(error.message, "nothing was changed"),
        }
    }
}

/// Returns the number of a table of a running switch, which is given by number or by the name in its configuration.
pub(super) fn table_number(running: &RunningSwitch, table: &str) -> Result<u8, Failure> {
    if let Ok(number) = table.parse() {
        return Ok(number);
    }
    let report = Call::of(running).make("show", json!({}))?;
    let kinds = ["tables", "route_tables", "stateful_stages"];
    let tables = kinds.iter().filter_map(|kind| report[kind].as_array()).flatten();
    let names: Vec<(&str, Option<u64>)> = tables
        .filter_map(|one| Some((one["name"].as_str()?, one["number"].as_u64())))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let found =
        names.iter().find(|(name, _)| *name == table).and_then(|(_, number)| (*number)?.try_into().ok());
    found.ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let help = match known.is_empty() {
            true => "no table of this switch has a name: give a number, 0 to 254".to_owned(),
            false => format!("tables with names: {}; or give a number, 0 to 254", known.join(", ")),
        };
        Failure::input_help(format!("--table {table}: the switch has no table of this name"), help)
    })
}

fn change(running: &RunningSwitch, command: &str, flow: &[String]) -> Result<(), Failure> {
    // The shell may have split the flow at spaces.
    let text = format!("{command} {}", flow.join(" "));
    print_reply(running, &Call::about(running, "flow", text).change()?, changed)
}

/// Returns the frame in hexadecimal, or `None` if `packet` is a flow.
fn frame(packet: &str) -> Result<Option<String>, Failure> {
    let digits: String = packet.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(Some(digits));
    }
    let Some((file, number)) = packet.rsplit_once(':') else { return Ok(None) };
    let (path, Ok(number)) = (Path::new(file), number.parse::<u64>()) else { return Ok(None) };
    if !path.is_file() {
        return Ok(None);
    }
    let wrong = |e: &dyn std::fmt::Display| Failure::input(format!("{file}: {e}"));
    let opened = std::fs::File::open(path).and_then(decompress);
    let opened = opened.map_err(|e| Failure::file(path, "read", &e))?;
    let mut reader = CaptureReader::new(opened).map_err(|e| wrong(&e))?;
    let mut at = 0;
    while let Some(packet) = reader.next().map_err(|e| wrong(&e))? {
        at += 1;
        if at == number {
            // Zeros are in the place of bytes that the capture lacks, as at a port that replays it.
            let missing = (packet.len as usize).min(FRAME_MAX).saturating_sub(packet.bytes.len());
            let bytes = packet.bytes.iter().chain(std::iter::repeat_n(&0, missing));
            return Ok(Some(bytes.map(|byte| format!("{byte:02x}")).collect()));
        }
    }
    Err(Failure::input_help(format!("{file} has only {at} packets"), "packets are numbered from 1"))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path).map_err(|e| Failure::file(path, "read", &e))
}

/// Prints a reply, as JSON or formatted.
pub(super) fn print_reply<T: DeserializeOwned>(
    running: &RunningSwitch,
    reply: &Value,
    text: impl FnOnce(T) -> String,
) -> Result<(), Failure> {
    if running.json {
        return output::json(reply);
    }
    let understood = serde_json::from_value(reply.clone());
    let understood = understood.map_err(|e| {
        Failure::Environment(format!("the switch has another version: {e}; --json shows the raw reply"))
    })?;
    output::print(&text(understood))
}

fn flows(flows: Vec<FlowReport>) -> String {
    let row = |flow: &FlowReport| {
        let matches = if flow.matches.is_empty() { "(any)" } else { &flow.matches };
        let left = |timeout: u16| if timeout == 0 { String::new() } else { format!("{timeout} s") };
        vec![
            flow.table.to_string(),
            flow.priority.to_string(),
            format!("{matches} \u{2192} {}", flow.actions),
            count(flow.packets),
            count(flow.bytes),
            format!("{:.1} s", flow.age_s),
            left(flow.idle_timeout_s),
            left(flow.hard_timeout_s),
            if flow.cookie == 0 { String::new() } else { format!("{:#x}", flow.cookie) },
        ]
    };
    let rows: Vec<Vec<String>> = flows.iter().map(row).collect();
    let header = ["table", "priority", "rule", "packets", "bytes", "age", "idle", "hard", "cookie"];
    output::table("", &header, &rows) + &format!("{} rules\n", count(flows.len() as u64))
}

fn shown(reply: &Value, report: &Report, rules: usize) -> String {
    let seconds = reply["seconds"].as_f64().unwrap_or_default();
    // An older switch does not report them.
    let controllers: Vec<ControllerReport> =
        serde_json::from_value(reply["controllers"].clone()).unwrap_or_default();
    report::controllers(&controllers) + &report::text(report, seconds, rules)
}

fn change_port(running: &RunningSwitch, method: &str, params: &Value, done: &str) -> Result<(), Failure> {
    let reply = Call::of(running).make(method, params.clone())?;
    print_reply(running, &reply, |port| port_changed(done, &port))
}

fn port_changed(what: &str, port: &PortChangeReport) -> String {
    let PortChangeReport { number, name, open, problem } = port;
    let problem = problem.as_ref().map_or_else(String::new, |problem| format!("warning: {problem}\n"));
    format!("{problem}port {number} {name} ({open}) {what}\n")
}

fn changed(change: ChangeReport) -> String {
    let others = others_changed(&change);
    let ChangeReport { added, modified, removed, microseconds, gone, problems, .. } = change;
    let mut out = String::new();
    problems.iter().for_each(|problem| out += &format!("warning: {problem}\n"));
    if !gone.is_empty() {
        let row = |gone: &flowlane_switch::mgmt::rpc::FlowRemovedReport| {
            vec![gone.rule.clone(), count(gone.packets), count(gone.bytes), format!("{:.1} s", gone.lasted_s)]
        };
        let shown = 20;
        let mut rows: Vec<Vec<String>> = gone.iter().take(shown).map(row).collect();
        if gone.len() > shown {
            let more = format!("… {} more", count((gone.len() - shown) as u64));
            rows.push(vec![more, String::new(), String::new(), String::new()]);
        }
        out += &output::table("", &["deleted rule", "packets", "bytes", "duration"], &rows);
    }
    let [added, modified, removed] = [added, modified, removed].map(|n| count(n as u64));
    out + &format!(
        "{added} rules added, {modified} modified, {removed} deleted{others}; in force after {} µs\n",
        count(microseconds)
    )
}

/// Formats what a reload has changed beside rules.
pub(super) fn others_changed(change: &ChangeReport) -> String {
    let changed = [
        (change.groups, "groups changed"),
        (change.ports, "ports changed"),
        (change.meters, "meters changed"),
        (change.mirrors, "mirrors changed"),
        (change.zones, "zones with other settings"),
    ];
    let changed = changed.into_iter().filter(|(number, _)| *number > 0);
    changed.map(|(number, what)| format!(", {} {what}", count(number as u64))).collect()
}

fn trace(trace: Trace) -> String {
    let mut out = String::new();
    for TraceStep { place, what, why, .. } in &trace.steps {
        out += &format!("{place}\n    {what}\n");
        if !why.is_empty() {
            out += &format!("    {why}\n");
        }
    }
    let row = |sent: &TraceSent| {
        let port = sent.port.map_or_else(String::new, |number| number.to_string());
        vec![
            format!("{port} {}", sent.port_name).trim().to_owned(),
            (sent.frame.len() / 2).to_string(),
            sent.frame.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = trace.sent.iter().map(row).collect();
    if rows.is_empty() { out } else { out + &output::table("", &["output port", "bytes", "frame"], &rows) }
}

fn addresses(entries: Vec<MacEntry>) -> String {
    let row = |entry: &MacEntry| {
        vec![
            entry.mac.clone(),
            if entry.vlan == 0 { String::new() } else { entry.vlan.to_string() },
            format!("{} {}", entry.port, entry.port_name),
            format!("{} s", entry.age_s),
        ]
    };
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    let table = output::table("", &["address", "VLAN", "port", "age"], &rows);
    table + &format!("{} addresses\n", count(entries.len() as u64))
}
