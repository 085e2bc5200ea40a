//! Per-worker statistics of a running switch: stages, queues and latency, in total or live.

use std::time::{Duration, Instant};

use console::Term;
use flowlane_switch::datapath::{PortCounters, distribution};
use flowlane_switch::mgmt::report::{QueueReport, StageReport, WorkerReport};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{self, count};
use crate::stderr::note;

/// Formats the stages of each worker.
pub(super) fn stages(workers: Vec<WorkerReport>) -> String {
    let mut out = String::new();
    for worker in &workers {
        let row = |stage: &StageReport| {
            let mut row = stage_row(stage);
            row.push(percent(cycles(stage), worker.cycles as f64));
            row
        };
        let used = worker.stages.iter().filter(|stage| stage.packets > 0);
        let mut rows: Vec<Vec<String>> = used.map(row).collect();
        let mut idle = vec![String::new(); 6];
        (idle[0], idle[5]) =
            ("idle".to_owned(), percent(worker.cycles as f64 - busy(worker), worker.cycles as f64));
        rows.push(idle);
        let title = format!("worker {}", worker.worker);
        let header = [title.as_str(), "calls", "packets", "packets/call", "cycles/packet", "share of time"];
        out += &output::table("", &header, &rows);
    }
    out + &latency(&workers) + &drops(&workers)
}

/// Formats a stage's columns: "stage", "calls", "packets", "packets/call" and "cycles/packet".
pub(super) fn stage_row(stage: &StageReport) -> Vec<String> {
    vec![
        stage.stage.to_string(),
        count(stage.calls),
        count(stage.packets),
        format!("{:.1}", stage.packets_per_call),
        format!("{:.1}", stage.cycles_per_packet),
    ]
}

/// Formats the workers' queues, by port.
pub(super) fn queues(workers: Vec<WorkerReport>) -> String {
    let mut rows: Vec<(u32, Vec<String>)> = Vec::new();
    for worker in &workers {
        rows.extend(worker.queues.iter().map(|queue| {
            let c = &queue.counters;
            let numbers = [c.rx_packets, c.rx_bytes, c.rx_dropped, c.tx_packets, c.tx_dropped];
            let mut row = vec![
                format!("{} {}", queue.number, queue.name),
                worker.worker.to_string(),
                percent(queue.cycles as f64, worker.cycles as f64),
            ];
            row.extend(numbers.map(count));
            (queue.number, row)
        }));
    }
    rows.sort_by_key(|&(number, _)| number);
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
    let header = ["port", "worker", "load", "received", "bytes", "lost", "sent", "not sent"];
    let table = output::table("", &header, &rows);
    let handed: u64 = workers.iter().map(|worker| worker.handed_packets).sum();
    table + &format!("{} packets handed off between workers\n", count(handed))
}

/// Prints the statistics of each interval, until the count is reached, the switch stops, or Ctrl-C.
pub(super) fn top(
    ask: impl Fn() -> Result<Value, Failure>,
    interval: f64,
    views: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    let wait = Duration::try_from_secs_f64(interval).ok().filter(|wait| *wait >= Duration::from_millis(10));
    let wait = wait.ok_or_else(|| Failure::input("--interval: at least 0.01 seconds"))?;
    let look = || -> Result<(Vec<WorkerReport>, Instant), Failure> {
        let said = ask()?;
        let workers = serde_json::from_value(said);
        let workers =
            workers.map_err(|e| Failure::Environment(format!("the switch has another version: {e}")))?;
        Ok((workers, Instant::now()))
    };
    let term = Term::stdout();
    let mut before = look()?;
    for view in 0.. {
        if views.is_some_and(|views| view >= views) {
            break;
        }
        std::thread::sleep(wait);
        let Ok(now) = look() else {
            note!("flowlane: the switch has stopped");
            break;
        };
        let seconds = (now.1 - before.1).as_secs_f64();
        let between: Vec<WorkerReport> =
            now.0.iter().zip(&before.0).map(|(now, before)| since(now, before)).collect();
        if as_json {
            output::json(&json!({ "seconds": seconds, "workers": between }))?;
        } else {
            if term.is_term() {
                // Where that fails, the view below fails, too.
                _ = term.clear_screen();
            }
            output::print(&view_of(&between, seconds))?;
        }
        before = now;
    }
    Ok(())
}

/// Returns the difference of two reports of a worker.
fn since(now: &WorkerReport, before: &WorkerReport) -> WorkerReport {
    let mut between = now.clone();
    between.cycles -= before.cycles.min(now.cycles);
    between.handed_packets -= before.handed_packets.min(now.handed_packets);
    for (stage, before) in between.stages.iter_mut().zip(&before.stages) {
        let cycles = (cycles(stage) - cycles(before)).max(0.0);
        stage.packets -= before.packets.min(stage.packets);
        stage.calls -= before.calls.min(stage.calls);
        stage.cycles_per_packet = cycles / stage.packets.max(1) as f64;
        stage.packets_per_call = stage.packets as f64 / stage.calls.max(1) as f64;
    }
    for (queue, before) in between.queues.iter_mut().zip(&before.queues) {
        queue.cycles = queue.cycles.saturating_sub(before.cycles);
        queue.counters = queue.counters.since(&before.counters);
    }
    between.latency_ns.retain_mut(|(time, packets)| {
        let known = before.latency_ns.binary_search_by_key(time, |&(time, _)| time);
        *packets -= known.map_or(0, |at| before.latency_ns[at].1).min(*packets);
        *packets > 0
    });
    between
}

fn view_of(workers: &[WorkerReport], seconds: f64) -> String {
    let rate = |n: u64| count((n as f64 / seconds).round() as u64);
    let row = |worker: &WorkerReport| {
        let packets = total(&worker.queues).rx_packets;
        let most = worker.stages.iter().max_by(|a, b| cycles(a).total_cmp(&cycles(b)));
        vec![
            worker.worker.to_string(),
            percent(busy(worker), worker.cycles as f64),
            rate(packets),
            format!("{:.0}", busy(worker) / packets.max(1) as f64),
            most.filter(|_| packets > 0).map_or_else(String::new, |stage| stage.stage.to_string()),
            rate(worker.handed_packets),
        ]
    };
    let rows: Vec<Vec<String>> = workers.iter().map(row).collect();
    let header = ["worker", "load", "packets/s", "cycles/packet", "busiest stage", "handed off/s"];
    let mut out = output::table("", &header, &rows);
    let ports = workers.first().map_or(0, |worker| worker.queues.len());
    let row = |port: usize| {
        let sum = total(workers.iter().map(|worker| &worker.queues[port]));
        let megabits = |bytes: u64| format!("{:.1}", bytes as f64 * 8e-6 / seconds);
        let first = &workers[0].queues[port];
        vec![
            format!("{} {}", first.number, first.name),
            rate(sum.rx_packets),
            megabits(sum.rx_bytes),
            rate(sum.rx_dropped),
            rate(sum.tx_packets),
            megabits(sum.tx_bytes),
            rate(sum.tx_dropped),
        ]
    };
    let rows: Vec<Vec<String>> = (0..ports).map(row).collect();
    let header = ["port", "received/s", "Mbit/s", "lost/s", "sent/s", "Mbit/s", "not sent/s"];
    out += &output::table("", &header, &rows);
    out + &latency(workers)
}

/// Sums the counters of queues.
fn total<'a>(queues: impl IntoIterator<Item = &'a QueueReport>) -> PortCounters {
    queues.into_iter().fold(PortCounters::default(), |mut sum, queue| {
        sum += queue.counters;
        sum
    })
}

/// Formats the latency distribution; empty if latency is not measured.
fn latency(workers: &[WorkerReport]) -> String {
    let all = distribution(workers.iter().flat_map(|worker| worker.latency_ns.iter().copied()));
    if all.is_empty() {
        return String::new();
    }
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
    let at = |quantile: f64| us(all.value_at_quantile(quantile));
    let row = vec![at(0.5), at(0.9), at(0.99), at(0.999), us(all.max()), count(all.len())];
    let header = ["receive to send, µs: median", "90 %", "99 %", "99.9 %", "maximum", "packets measured"];
    output::table("", &header, &[row])
}

/// Formats drop reasons by worker; empty if no packet was dropped.
fn drops(workers: &[WorkerReport]) -> String {
    let mut rows = Vec::new();
    for WorkerReport { worker, drops, .. } in workers {
        let some = drops.reasons().into_iter().filter(|&(_, packets)| packets > 0);
        rows.extend(
            some.map(|(reason, packets)| vec![reason.to_owned(), worker.to_string(), count(packets)]),
        );
    }
    if rows.is_empty() { String::new() } else { output::table("", &["dropped", "worker", "packets"], &rows) }
}

fn cycles(stage: &StageReport) -> f64 {
    stage.cycles_per_packet * stage.packets as f64
}

/// Returns the cycles in which a worker was busy.
fn busy(worker: &WorkerReport) -> f64 {
    worker.stages.iter().map(cycles).sum()
}

fn percent(part: f64, of: f64) -> String {
    format!("{:.1} %", (100.0 * part / of.max(1.0)).clamp(0.0, 100.0))
}
