//! Signs of life of a switch for the service manager: rounds of its loops, its size, and reloads under way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;

use super::server::ControlServer;

/// The rounds of a loop that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopRounds {
    /// `control`, `worker 0` and so on.
    pub name: String,
    pub rounds: u64,
}

/// The size of a running switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchStatus {
    pub ports: usize,
    pub rules: usize,
    pub workers: usize,
}

impl fmt::Display for SwitchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ports, rules, workers } = self;
        write!(f, "{ports} ports, {rules} rules, {workers} workers")
    }
}

/// The beginning or the end of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadEvent {
    Began,
    /// Whether it was accepted or rejected.
    Ended,
}

/// A function that is called at the beginning and at the end of each reload.
pub type ReloadWatch = Box<dyn Fn(ReloadEvent) + Send + Sync>;

/// Reports the end of a reload when dropped.
pub(super) struct ReloadGuard<'a>(&'a ControlServer);

impl Drop for ReloadGuard<'_> {
    fn drop(&mut self) {
        self.0.report_reload(ReloadEvent::Ended);
    }
}

impl ControlServer {
    /// Returns the rounds of the control loop and of each worker that runs. It waits for none of them.
    pub fn loop_rounds(&self) -> Vec<LoopRounds> {
        let control = LoopRounds { name: "control".to_owned(), rounds: self.ticks.load(Ordering::Relaxed) };
        let workers = self.mailboxes().iter().enumerate().filter_map(|(number, mail)| {
            Some(LoopRounds { name: format!("worker {number}"), rounds: mail.rounds()? })
        });
        std::iter::once(control).chain(workers).collect()
    }

    /// Returns whether a worker runs, without waiting for it.
    pub fn is_running(&self) -> bool {
        self.mailboxes().iter().any(|mail| mail.rounds().is_some())
    }

    /// Returns the size of the switch; `None` while ports change.
    pub fn status(&self) -> Option<SwitchStatus> {
        let ports = self.reload.ports_count()?;
        let ruleset = self.control().ruleset();
        let rules = ruleset.tables().map(|(_, table)| table.len()).sum();
        Some(SwitchStatus { ports, rules, workers: self.workers_count() })
    }

    /// Calls `watch` at the beginning and at the end of each reload from now on. A second call changes nothing.
    pub fn watch_reloads(&self, watch: ReloadWatch) {
        _ = self.reload_watch.set(watch);
    }

    /// Reports the beginning of a reload, and its end when the result is dropped.
    pub(super) fn begin_reload(&self) -> ReloadGuard<'_> {
        self.report_reload(ReloadEvent::Began);
        ReloadGuard(self)
    }

    fn report_reload(&self, event: ReloadEvent) {
        if let Some(watch) = self.reload_watch.get() {
            watch(event);
        }
    }
}

/// Finds loops without progress.
#[derive(Debug, Default)]
pub struct Watch {
    /// The rounds at the last sign of life.
    seen: BTreeMap<String, u64>,
}

impl Watch {
    /// Returns the loops without a round since this was last called with an empty result. A loop that was not there then has made
    /// progress.
    pub fn stuck(&mut self, now: Vec<LoopRounds>) -> Vec<String> {
        let is_stuck = |one: &&LoopRounds| self.seen.get(&one.name) == Some(&one.rounds);
        let stuck: Vec<String> = now.iter().filter(is_stuck).map(|one| one.name.clone()).collect();
        if stuck.is_empty() {
            self.seen = now.into_iter().map(|one| (one.name, one.rounds)).collect();
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::datapath::Until;
    use crate::mgmt::setup::{Reload, Setup};

    const CONFIG: &str = "[switch]\nworkers = 2\nadds_ports = true\n[[port]]\nnumber = 1\nopen = \"null\"\n\
                          [[table]]\nnumber = 0\nrules = [\"actions=drop\", \"priority=2,tcp,actions=drop\"]\n";

    #[test]
    fn a_loop_without_a_round_is_stuck_until_it_goes_on() {
        let mut watch = Watch::default();
        let rounds = |numbers: &[u64]| -> Vec<LoopRounds> {
            let one =
                |(number, &rounds): (usize, &u64)| LoopRounds { name: format!("worker {number}"), rounds };
            numbers.iter().enumerate().map(one).collect()
        };
        assert!(watch.stuck(rounds(&[0, 5])).is_empty(), "they have just come");
        assert_eq!(watch.stuck(rounds(&[1, 5])), ["worker 1"]);
        // Progress of the other one since then is none of this one.
        assert_eq!(watch.stuck(rounds(&[2, 5])), ["worker 1"]);
        assert!(watch.stuck(rounds(&[2, 6])).is_empty());
        assert_eq!(watch.stuck(rounds(&[2, 6])), ["worker 0", "worker 1"]);
        // A worker that has ended is not waited for; another one has come.
        assert!(watch.stuck(rounds(&[3])).is_empty());
        assert!(watch.stuck(rounds(&[4, 6])).is_empty());
    }

    #[test]
    fn a_worker_that_a_request_holds_is_stuck_and_an_idle_one_is_not() {
        let setup = Setup::parse(CONFIG).unwrap();
        let reload = Reload::of(&setup);
        let (mut switch, control) = setup.open_controlled(1).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
        assert_eq!(served.loop_rounds().len(), 1, "workers that do not run are left out");
        let running = {
            let stop = stop.clone();
            std::thread::spawn(move || switch.run(Until::default(), &stop, |_| {}).unwrap())
        };
        let wait_for = |what: &str, is_so: &mut dyn FnMut() -> bool| {
            let begun = Instant::now();
            while !is_so() {
                assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
                served.tick();
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait_for("both workers run", &mut || served.loop_rounds().len() == 3);
        assert_eq!(served.status().unwrap().to_string(), "1 ports, 2 rules, 2 workers");
        let mut watch = Watch::default();
        watch.stuck(served.loop_rounds());
        wait_for("idle workers make progress", &mut || watch.stuck(served.loop_rounds()).is_empty());
        let ((held, holds), (release, released)) = (channel(), channel::<()>());
        let asker = {
            let served = served.clone();
            std::thread::spawn(move || {
                served.call_worker(1, move |_| {
                    held.send(()).unwrap();
                    _ = released.recv();
                })
            })
        };
        holds.recv().unwrap();
        let mut now = watch.stuck(served.loop_rounds());
        for _ in 0..20 {
            served.mailboxes()[0].notifier().wake();
            std::thread::sleep(Duration::from_millis(20));
            served.ticks.fetch_add(1, Ordering::Relaxed);
            now = watch.stuck(served.loop_rounds());
        }
        assert_eq!(now, ["worker 1"]);
        release.send(()).unwrap();
        asker.join().unwrap().unwrap();
        wait_for("it goes on", &mut || watch.stuck(served.loop_rounds()).is_empty());
        served.end();
        running.join().unwrap();
    }

    #[test]
    fn the_end_of_a_reload_is_reported_even_where_it_is_rejected() {
        let setup = Setup::parse(CONFIG).unwrap();
        let reload = Reload::of(&setup);
        let (_switch, control) = setup.open_controlled(1).unwrap();
        let served = ControlServer::new(control, reload, Arc::default());
        let events: Arc<Mutex<Vec<ReloadEvent>>> = Arc::default();
        let noted = events.clone();
        served.watch_reloads(Box::new(move |event| noted.lock().unwrap().push(event)));
        served.reload(Some("/nonexistent/flowlane.toml".as_ref())).unwrap_err();
        assert_eq!(*events.lock().unwrap(), [ReloadEvent::Began, ReloadEvent::Ended]);
    }
}
