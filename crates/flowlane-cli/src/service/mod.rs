//! The manager of the system's services, by the protocol of sd_notify(3) and sd_watchdog_enabled(3): datagrams to the socket that
//! `NOTIFY_SOCKET` names. Without the variables nothing is done.
//!
//! ```text
//! the switch                                              the manager
//!   │ ports, rules and control socket are there  READY=1 ───► │
//!   │ each half of WATCHDOG_USEC, if all loops   WATCHDOG=1 ─► │  none comes: the process is ended and started again
//!   │   have gone round since the last one                    │
//!   │ a reload begins       RELOADING=1, MONOTONIC_USEC=… ───► │
//!   │ it has ended                               READY=1 ───► │
//!   │ the switch ends                            STOPPING=1 ─► │
//! ```

mod socket;
mod watchdog;

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flowlane_switch::mgmt::rpc::{LoopRounds, ReloadEvent};

use crate::stderr::warning;
use socket::NotifySocket;
use watchdog::{Sign, Watchdog};

/// How often the status line is made again.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// The service manager of this process, if it has one.
pub(crate) struct Supervisor {
    socket: Option<NotifySocket>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watchdog: Option<Watchdog>,
    is_ready: bool,
    is_stopping: bool,
    /// Sending has failed, and this was reported.
    has_failed: bool,
    status: String,
    status_made: Option<Instant>,
}

impl Supervisor {
    /// Finds the manager by the variables of this process.
    pub(crate) fn of_environment() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let name = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| {
            let refused = |error: &_| warning!("NOTIFY_SOCKET={}: {error}", name.display());
            NotifySocket::of(&name).inspect_err(refused).ok()
        });
        let watchdog = match &socket {
            Some(_) => Watchdog::of(&variable).unwrap_or_else(|problem| {
                warning!("{problem}");
                None
            }),
            None => None,
        };
        Self { socket, state: Mutex::new(State { watchdog, ..State::default() }) }
    }

    /// Reports that the service is ready, once.
    pub(crate) fn ready(&self) {
        self.with(|state, socket| {
            if !std::mem::replace(&mut state.is_ready, true) {
                state.send(socket, "READY=1");
                state.status_made = None;
            }
        });
    }

    /// Looks at the signs of life, and reports them where that is due: call it ten times a second. `loops` returns the loops that
    /// must make progress, `status` a line about the service.
    pub(crate) fn follow(
        &self,
        loops: impl FnOnce() -> Vec<LoopRounds>,
        status: impl FnOnce() -> Option<String>,
    ) {
        if self.socket.is_none() {
            return;
        }
        let now = Instant::now();
        // Where they wait for a lock, another thread that reports something must not wait for this one.
        let is_status_due = self.with(|state, _| state.is_status_due(now)).unwrap_or(false);
        let status = is_status_due.then(status).flatten();
        let is_sign_due = self.with(|state, _| state.watchdog.as_ref().is_some_and(|dog| dog.is_due(now)));
        let loops = is_sign_due.unwrap_or(false).then(loops);
        self.with(|state, socket| {
            if let Some(status) = status
                && status != state.status
            {
                state.send(socket, &format!("STATUS={status}"));
                state.status = status;
            }
            let sign = loops.and_then(|loops| Some(state.watchdog.as_mut()?.look(now, loops)));
            match sign {
                Some(Sign::Life) => state.send(socket, "WATCHDOG=1"),
                Some(Sign::Stuck(loops)) => {
                    warning!("no progress of {}: the service manager gets no sign of life", loops.join(", "))
                }
                Some(Sign::StillStuck) | None => {}
            }
        });
    }

    /// Reports the beginning or the end of a reload.
    pub(crate) fn reload(&self, event: ReloadEvent) {
        self.with(|state, socket| match event {
            // Before it is ready, the service is starting.
            _ if !state.is_ready => {}
            ReloadEvent::Began => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let micros = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
                state.send(socket, &format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
            }
            ReloadEvent::Ended => {
                state.send(socket, "READY=1");
                // The next look makes it again.
                state.status_made = None;
            }
        });
    }

    /// Reports that the service ends, once.
    pub(crate) fn stopping(&self) {
        self.with(|state, socket| {
            if !std::mem::replace(&mut state.is_stopping, true) {
                state.send(socket, "STOPPING=1");
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut State, &NotifySocket) -> T) -> Option<T> {
        let socket = self.socket.as_ref()?;
        // A panic while it is held leaves nothing half done.
        Some(act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), socket))
    }
}

impl State {
    fn is_status_due(&mut self, now: Instant) -> bool {
        let is_due = self.status_made.is_none_or(|made| now.duration_since(made) >= STATUS_PERIOD);
        if is_due {
            self.status_made = Some(now);
        }
        is_due
    }

    fn send(&mut self, socket: &NotifySocket, text: &str) {
        match socket.send(text) {
            Ok(()) => self.has_failed = false,
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                warning!("the service manager is not reached: {error}");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn service(variables: &[(&str, &str)]) -> Supervisor {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Supervisor::of(|name| find(name).map(|(_, value)| (*value).into()))
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_service_reports_its_course() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let service = service(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "40000")]);
        service.reload(ReloadEvent::Began);
        service.reload(ReloadEvent::Ended);
        service.ready();
        service.ready();
        assert_eq!(next(&socket), "READY=1");
        let loops = |rounds| move || vec![LoopRounds { name: "worker 0".to_owned(), rounds }];
        service.follow(loops(1), || Some("1 ports".to_owned()));
        assert_eq!(next(&socket), "STATUS=1 ports");
        assert_eq!(next(&socket), "WATCHDOG=1");
        // It is early, and later the loop is stuck.
        service.follow(loops(2), || Some("2 ports".to_owned()));
        std::thread::sleep(Duration::from_millis(40));
        service.follow(loops(1), || None);
        service.reload(ReloadEvent::Began);
        let reloading = next(&socket);
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
        service.reload(ReloadEvent::Ended);
        assert_eq!(next(&socket), "READY=1");
        service.follow(loops(2), || None);
        assert_eq!(next(&socket), "WATCHDOG=1");
        service.stopping();
        assert_eq!(next(&socket), "STOPPING=1");
    }

    #[test]
    fn without_a_socket_nothing_is_looked_at() {
        let service = service(&[("WATCHDOG_USEC", "1")]);
        service.ready();
        service.follow(|| unreachable!("no watchdog"), || unreachable!("no status"));
        service.stopping();
    }

    #[test]
    fn a_socket_that_is_gone_does_not_disturb_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(&[("NOTIFY_SOCKET", folder.path().join("gone").to_str().unwrap())]);
        service.ready();
        service.stopping();
    }
}
