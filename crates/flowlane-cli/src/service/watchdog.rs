//! The watchdog: signs of life at half of the interval that the manager asks for, as long as all loops make progress.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use flowlane_switch::mgmt::rpc::{LoopRounds, Watch};

/// The watchdog that the service manager asks for.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Half of the manager's interval.
    every: Duration,
    /// When the next sign of life is due.
    due: Instant,
    watch: Watch,
    /// The loops are stuck, and this was reported.
    is_reported: bool,
}

/// The result of a look at the loops.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// All loops have made progress.
    Life,
    /// These loops have not, since the last sign of life.
    Stuck(Vec<String>),
    /// There are such loops, as was reported.
    StillStuck,
}

impl Watchdog {
    /// Reads `WATCHDOG_USEC` and `WATCHDOG_PID`; `None` where there is no watchdog, or it is another process's.
    ///
    /// # Errors
    /// A value that is no number.
    pub(super) fn of(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, String> {
        let number = |name: &str| -> Result<Option<u64>, String> {
            let Some(value) = variable(name) else { return Ok(None) };
            let number = value.to_str().and_then(|text| text.parse().ok());
            let wrong = || format!("{name}={} is not a number: there is no watchdog", value.display());
            number.map(Some).ok_or_else(wrong)
        };
        let (micros, process) = (number("WATCHDOG_USEC")?, number("WATCHDOG_PID")?);
        let is_own = process.is_none_or(|process| process == u64::from(std::process::id()));
        let Some(micros) = micros.filter(|micros| *micros > 0 && is_own) else { return Ok(None) };
        Ok(Some(Self::every(Duration::from_micros(micros / 2))))
    }

    fn every(every: Duration) -> Self {
        Self { every, due: Instant::now(), watch: Watch::default(), is_reported: false }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Looks at the loops when a sign of life is due. Where one is stuck, look again soon: it may go on in time.
    pub(super) fn look(&mut self, now: Instant, loops: Vec<LoopRounds>) -> Sign {
        let stuck = self.watch.stuck(loops);
        if stuck.is_empty() {
            (self.due, self.is_reported) = (now + self.every, false);
            return Sign::Life;
        }
        match std::mem::replace(&mut self.is_reported, true) {
            false => Sign::Stuck(stuck),
            true => Sign::StillStuck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &str, process: Option<&str>) -> Result<Option<Watchdog>, String> {
        Watchdog::of(&|name: &str| match name {
            "WATCHDOG_USEC" => Some(micros.into()),
            "WATCHDOG_PID" => process.map(OsString::from),
            _ => None,
        })
    }

    #[test]
    fn a_watchdog_is_for_one_process() {
        let own = std::process::id().to_string();
        assert_eq!(of("30000000", None).unwrap().unwrap().every, Duration::from_secs(15));
        assert!(of("30000000", Some(&own)).unwrap().is_some());
        assert!(of("30000000", Some("1")).unwrap().is_none());
        assert!(of("0", None).unwrap().is_none());
        assert!(Watchdog::of(&|_: &str| None).unwrap().is_none());
        assert!(of("soon", None).unwrap_err().contains("WATCHDOG_USEC=soon is not a number"));
    }

    #[test]
    fn a_stuck_loop_is_reported_once_and_no_sign_of_life_hides_it() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut dog = Watchdog { due: begun, ..Watchdog::every(Duration::from_secs(10)) };
        let loops = |rounds: [u64; 2]| {
            let one = |(number, rounds)| LoopRounds { name: format!("worker {number}"), rounds };
            (0..).zip(rounds).map(one).collect()
        };
        assert!(dog.is_due(begun));
        assert_eq!(dog.look(begun, loops([1, 1])), Sign::Life);
        assert!(!dog.is_due(at(9)) && dog.is_due(at(10)));
        assert_eq!(dog.look(at(10), loops([2, 1])), Sign::Stuck(vec!["worker 1".to_owned()]));
        assert!(dog.is_due(at(10)));
        assert_eq!(dog.look(at(11), loops([9, 1])), Sign::StillStuck);
        assert_eq!(dog.look(at(12), loops([9, 2])), Sign::Life);
        assert!(!dog.is_due(at(21)) && dog.is_due(at(22)));
        assert_eq!(dog.look(at(22), loops([10, 2])), Sign::Stuck(vec!["worker 1".to_owned()]));
    }
}
