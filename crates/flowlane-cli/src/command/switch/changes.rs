//! `flowlane switch run --changes FILE`: replays timed flow-mods.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane::rule::{FlowMod, ReadOptions, read_changes};
use flowlane_switch::mgmt::rpc::ControlServer;
use flowlane_switch::mgmt::setup::Reload;
use serde::Serialize;

use crate::failure::Failure;
use crate::input::read_text;
use crate::output::{self, count};

/// Flow-mods that fall within this time are applied as one bundle.
const TOGETHER: Duration = Duration::from_millis(1);

/// Timed flow-mods, in order.
pub(super) struct Replay {
    file: String,
    mods: Vec<FlowMod>,
}

/// Result of a replay.
#[derive(Serialize)]
pub(super) struct Replayed {
    flow_mods: usize,
    bundles: usize,
    added: usize,
    modified: usize,
    removed: usize,
    /// Flow-mods whose time had not come when the switch ended.
    not_due: usize,
    /// Time from a flow-mod's due time until no packet sees the old rules, in microseconds.
    in_force_us_median: u64,
    in_force_us_99: u64,
    in_force_us_most: u64,
    /// Reason why a bundle was rejected; later ones are not applied.
    pub(super) refused: Option<String>,
}

impl Replay {
    /// Reads a file of timed flow-mods.
    pub(super) fn read(file: &Path, reload: &Reload) -> Result<Self, Failure> {
        let text = read_text(file)?;
        let resolve = |name: &str| reload.port(name);
        let options = ReadOptions { ports: &resolve, ..ReadOptions::default() };
        let name = file.display().to_string();
        let mods = read_changes(&text, &name, &options);
        let mut mods = mods.map_err(|errors| Failure::lines(text, &errors))?;
        mods.sort_by_key(|one| one.at);
        Ok(Self { file: name, mods })
    }

    /// Applies each flow-mod when due, until the switch ends.
    pub(super) fn run(&self, served: &ControlServer, begun: Instant, ended: &AtomicBool) -> Replayed {
        let mut done = Replayed {
            flow_mods: 0,
            bundles: 0,
            added: 0,
            modified: 0,
            removed: 0,
            not_due: 0,
            in_force_us_median: 0,
            in_force_us_99: 0,
            in_force_us_most: 0,
            refused: None,
        };
        let due = |one: &FlowMod| one.at.unwrap_or_default();
        let mut times: Vec<u64> = Vec::new();
        let mut left = &self.mods[..];
        while let Some(first) = left.first() {
            let wait = due(first).saturating_sub(begun.elapsed());
            if ended.load(Ordering::Relaxed) {
                break;
            }
            if !wait.is_zero() {
                std::thread::sleep(wait.min(Duration::from_millis(50)));
                continue;
            }
            // Include flow-mods that became due while the last bundle was applied.
            let now = begun.elapsed().max(due(first) + TOGETHER);
            let (these, later) = left.split_at(left.partition_point(|one| due(one) < now));
            let last_due = due(&these[these.len() - 1]);
            std::thread::sleep(last_due.saturating_sub(begun.elapsed()));
            let mut control = served.control();
            match control.change(these) {
                Ok(applied) => {
                    done.bundles += 1;
                    done.flow_mods += these.len();
                    done.added += applied.added;
                    done.modified += applied.modified;
                    done.removed += applied.removed;
                }
                Err(refused) => {
                    done.refused = Some(format!("{}:{}: {}", self.file, refused.line, refused.refusal));
                    break;
                }
            }
            drop(control.take_flow_removed());
            drop(control);
            let in_force = begun.elapsed();
            times.extend(these.iter().map(|one| in_force.saturating_sub(due(one)).as_micros() as u64));
            left = later;
        }
        done.not_due = left.len();
        times.sort_unstable();
        let at = |share: f64| {
            times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)))
        };
        let at = |share| at(share).copied().unwrap_or(0);
        (done.in_force_us_median, done.in_force_us_99, done.in_force_us_most) = (at(0.5), at(0.99), at(1.0));
        done
    }
}

impl Replayed {
    pub(super) fn text(&self) -> String {
        let row = |name: &str, n: String| vec![name.to_owned(), n];
        let rows = [
            row("flow-mods", count(self.flow_mods as u64)),
            row("bundles", count(self.bundles as u64)),
            row("rules added", count(self.added as u64)),
            row("rules modified", count(self.modified as u64)),
            row("rules deleted", count(self.removed as u64)),
            row("not due before the end", count(self.not_due as u64)),
            row("delay until in force, median", format!("{} µs", count(self.in_force_us_median))),
            row("99th percentile", format!("{} µs", count(self.in_force_us_99))),
            row("maximum", format!("{} µs", count(self.in_force_us_most))),
        ];
        output::table("", &["changes", ""], &rows)
    }
}
