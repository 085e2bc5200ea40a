//! Separate cache selection for few flows and for many: HALO's hybrid mode, on real CPUs.
//!
//! With few flows a flow cache nearly always hits; with many it only adds cost, and packets go straight to the megaflow cache or
//! the rule tables. A [`CacheSelector`] measures which is cheaper, but takes a while to notice that traffic has changed. A
//! [`FlowRegister`] notices within a few bursts, and each mode remembers its own selection.
//!
//! ```text
//! few ──── more than MANY flows in a window ───► many         at most once a SWITCH_NS
//! few ◄─── fewer than FEW flows in a window ──── many
//! ```

use flowlane::flow_register::FlowRegister;
use flowlane::hash::multilinear::Multilinear;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::key::FlowKey;
use strum::IntoStaticStr;

use super::admission::flow_hash;
use super::cache_policy::{CacheSelector, CacheSet};

/// Bits of the register. HALO's 32 are too coarse for counts near a threshold.
const BITS: u32 = 128;
/// One burst in `COUNTED` is counted, which spreads the cost of counting.
const COUNTED: u64 = 8;
/// Packets per window.
const WINDOW: usize = 512;
/// Thresholds in flows per window: many above, few below. Between them the mode stays; the register counts up to about 256 flows.
const MANY: f64 = 180.0;
const FEW: f64 = 110.0;
/// Minimum time between two switches.
const SWITCH_NS: u64 = 1_000_000_000;

/// The mode of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Mode {
    /// Few flows: packets go to the flow caches first.
    CacheFirst,
    /// Many flows: packets go to the tables first.
    TableFirst,
}

impl Mode {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HybridCounters {
    /// Changes from one mode to the other.
    pub switches: u64,
    /// Bursts in cache-first and in table-first mode.
    pub bursts: [u64; 2],
    /// Flows in the last window.
    pub flows: f64,
}

/// Selects caches by mode.
#[derive(Clone, Debug)]
pub(super) struct Hybrid {
    /// By mode; one if there is only one mode.
    choosers: Vec<CacheSelector>,
    mode: Mode,
    register: FlowRegister,
    counted: usize,
    hash: Multilinear,
    switched_ns: Option<u64>,
    pub(super) counters: HybridCounters,
}

impl Hybrid {
    /// Selects among `sets`, the last of which must probe all caches. Without `hybrid` there is one mode.
    pub(super) fn new(sets: Vec<CacheSet>, hybrid: bool, seed: u64) -> Self {
        let mut choosers = vec![CacheSelector::new(sets.clone())];
        if hybrid && sets.len() > 1 {
            // A selector begins with its last set: here the tables.
            choosers.push(CacheSelector::new(sets.into_iter().rev().collect()));
        }
        Self {
            choosers,
            mode: Mode::CacheFirst,
            register: FlowRegister::new(BITS),
            counted: 0,
            hash: Multilinear::new(seed),
            switched_ns: None,
            counters: HybridCounters::default(),
        }
    }

    /// Returns the mode; `None` if there is only one.
    pub(super) fn mode(&self) -> Option<Mode> {
        (self.choosers.len() > 1).then_some(self.mode)
    }

    /// Returns the selector of the current mode.
    #[inline]
    pub(super) fn selector(&self) -> &CacheSelector {
        &self.choosers[self.mode as usize]
    }

    #[inline]
    pub(super) fn selector_mut(&mut self) -> &mut CacheSelector {
        &mut self.choosers[self.mode as usize]
    }

    /// Counts a burst, and changes the mode if the number of flows requires it.
    #[inline]
    pub(super) fn see(&mut self, keys: &[FlowKey], live: LaneMask, now_ns: u64) {
        if self.choosers.len() < 2 {
            return;
        }
        self.counters.bursts[self.mode as usize] += 1;
        if (self.counters.bursts[0] + self.counters.bursts[1]).is_multiple_of(COUNTED) {
            self.count(keys, live, now_ns);
        }
    }

    fn count(&mut self, keys: &[FlowKey], live: LaneMask, now_ns: u64) {
        for lane in live.lanes() {
            self.register.note(flow_hash(&self.hash, &keys[lane]));
        }
        self.counted += live.len();
        if self.counted < WINDOW {
            return;
        }
        self.counters.flows = self.register.flows().unwrap_or(f64::INFINITY);
        self.register.clear();
        self.counted = 0;
        let wanted = match self.mode {
            Mode::CacheFirst if self.counters.flows > MANY => Mode::TableFirst,
            Mode::TableFirst if self.counters.flows < FEW => Mode::CacheFirst,
            _ => return,
        };
        if self.switched_ns.is_none_or(|before| now_ns.abs_diff(before) >= SWITCH_NS) {
            (self.mode, self.switched_ns) = (wanted, Some(now_ns));
            self.counters.switches += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;

    use super::*;

    /// Passes `bursts` bursts of `flows` flows, `step_ns` apart.
    fn see(hybrid: &mut Hybrid, flows: u32, bursts: u32, now_ns: &mut u64, step_ns: u64) {
        let mut keys = vec![FlowKey::zero(); 64];
        for burst in 0..bursts {
            for (lane, key) in (0..).zip(&mut keys) {
                let flow = (burst * 64 + lane).wrapping_mul(0x9e37_79b1) >> 8;
                key.set(Field::Ipv4Src, (flow % flows).into());
            }
            hybrid.see(&keys, LaneMask::first(64), *now_ns);
            *now_ns += step_ns;
        }
    }

    fn two_modes() -> Hybrid {
        Hybrid::new(vec![CacheSet(0), CacheSet(3)], true, 5)
    }

    #[test]
    fn the_mode_follows_the_number_of_flows_and_begins_with_what_suits_it() {
        let (mut hybrid, mut now_ns) = (two_modes(), 0);
        assert_eq!((hybrid.mode(), hybrid.selector().best()), (Some(Mode::CacheFirst), CacheSet(3)));
        see(&mut hybrid, 50, 1000, &mut now_ns, 0);
        assert_eq!((hybrid.mode(), hybrid.counters.switches), (Some(Mode::CacheFirst), 0));
        // Two windows, of which the first may have begun earlier.
        see(&mut hybrid, 100_000, 128, &mut now_ns, 0);
        assert_eq!((hybrid.mode(), hybrid.selector().best()), (Some(Mode::TableFirst), CacheSet(0)));
        see(&mut hybrid, 50, 1000, &mut now_ns, 2_000_000);
        assert_eq!((hybrid.mode(), hybrid.counters.switches), (Some(Mode::CacheFirst), 2));
        assert!(hybrid.counters.bursts.iter().all(|bursts| *bursts > 100));
    }

    #[test]
    fn it_switches_at_most_once_a_second_however_fast_traffic_swings() {
        let (mut hybrid, mut now_ns) = (two_modes(), 0);
        // A burst a microsecond, three seconds: traffic swings 1500 times.
        for _ in 0..1500 {
            see(&mut hybrid, 50, 1000, &mut now_ns, 1000);
            see(&mut hybrid, 100_000, 1000, &mut now_ns, 1000);
        }
        assert!((1..=4).contains(&hybrid.counters.switches), "{:?}", hybrid.counters);
    }

    #[test]
    fn a_number_between_the_thresholds_changes_nothing() {
        for begin in [50, 100_000] {
            let (mut hybrid, mut now_ns) = (two_modes(), 0);
            see(&mut hybrid, begin, 1000, &mut now_ns, 0);
            let (mode, switches) = (hybrid.mode(), hybrid.counters.switches);
            see(&mut hybrid, 145, 4000, &mut now_ns, 1_000_000_000);
            assert_eq!((hybrid.mode(), hybrid.counters.switches), (mode, switches), "{:?}", hybrid.counters);
        }
    }

    #[test]
    fn without_a_choice_there_is_one_mode() {
        let mut hybrid = Hybrid::new(vec![CacheSet(3)], true, 1);
        see(&mut hybrid, 100_000, 1000, &mut 0, 0);
        assert_eq!((hybrid.mode(), hybrid.counters), (None, HybridCounters::default()));
    }
}
