//! The trust in the simulation: software both measured and simulated.

use serde::Serialize;

use super::Outcome;
use super::measured::Measured;
use crate::config::Approach;

/// The largest factor between the two with which speedups over software are given: 20 %.
pub const APART_MOST: f64 = 1.2;

/// The text in place of a speedup that is not given.
pub(super) const NO_RATIO: &str = "no ratio, for the reason that is given first";

/// Software both measured and simulated, without a flow cache.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trust {
    /// The measured method.
    pub measured: String,
    /// The simulated approach.
    pub simulated: Approach,
    /// Measured cycles of a packet; `None` if the core's clock is unknown: ticks of the time-stamp counter are not
    /// cycles.
    pub measured_cycles: Option<f64>,
    /// Simulated cycles of a packet.
    pub simulated_cycles: f64,
    /// Simulated over measured, both in cycles of their cores.
    pub ratio: Option<f64>,
    /// Simulated over measured, in time.
    pub time_ratio: f64,
}

pub(super) fn trust(outcomes: &[Outcome], measured: &Measured) -> Vec<Trust> {
    let both = measured.base.iter().filter_map(|m| {
        let outcome = outcomes.iter().find(|o| Some(o.approach) == m.simulated_as)?;
        let cycles = measured.cycles(m).map(|[_, median, _]| median);
        Some(Trust {
            measured: m.name.clone(),
            simulated: outcome.approach,
            measured_cycles: cycles,
            simulated_cycles: outcome.cycles,
            ratio: cycles.map(|cycles| outcome.cycles / cycles),
            time_ratio: outcome.ns() / m.ns[1],
        })
    });
    both.collect()
}

/// Returns why no speedups over software are given; `None` if they are.
pub(super) fn doubt(trust: &[Trust], measured: &Measured) -> Option<String> {
    if trust.is_empty() {
        return Some(
            "the same software was not measured, so that nothing says how near the simulation comes"
                .to_owned(),
        );
    }
    let Some(ratios) = trust.iter().map(|t| t.ratio).collect::<Option<Vec<f64>>>() else {
        return Some(
            "how long a cycle of this core is was not measured, and ticks of the time-stamp counter are no cycles".to_owned(),
        );
    };
    let disturbed = measured.disturbed.and_then(|disturbed| disturbed.sentence());
    let reasons: Vec<String> = too_far(trust, &ratios).into_iter().chain(disturbed).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Describes the largest difference between simulation and measurement, if it is too large.
fn too_far(trust: &[Trust], ratios: &[f64]) -> Option<String> {
    let apart = |ratio: f64| ratio.max(1.0 / ratio);
    let worst = (0..ratios.len()).max_by(|a, b| apart(ratios[*a]).total_cmp(&apart(ratios[*b])))?;
    (apart(ratios[worst]) > APART_MOST).then(|| {
        let (t, ratio) = (&trust[worst], ratios[worst]);
        format!(
            "simulated and measured cycles of the same software differ by more than {:.0} % ({} takes {:.0} here, and {:.0} as \
             simulated: {ratio:.2} times as many)",
            100.0 * (APART_MOST - 1.0),
            t.measured,
            t.measured_cycles.unwrap_or(0.0),
            t.simulated_cycles,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_calibration::Disturbed;

    fn of(ratios: &[Option<f64>]) -> Vec<Trust> {
        let one = |ratio: &Option<f64>| Trust {
            measured: "a".to_owned(),
            simulated: Approach::Scalar,
            measured_cycles: ratio.map(|_| 100.0),
            simulated_cycles: ratio.map_or(80.0, |ratio| 100.0 * ratio),
            ratio: *ratio,
            time_ratio: 1.0,
        };
        ratios.iter().map(one).collect()
    }

    #[test]
    fn software_that_is_off_by_a_fifth_either_way_allows_no_ratio() {
        let measured = Measured::default();
        let doubt_of = |ratios: &[Option<f64>]| doubt(&of(ratios), &measured);
        assert_eq!(doubt_of(&[Some(1.19), Some(0.85)]), None);
        assert!(doubt_of(&[Some(1.0), Some(1.21)]).unwrap().contains("takes 100 here, and 121 as simulated"));
        assert!(doubt_of(&[Some(1.1), Some(0.45)]).unwrap().contains("0.45 times"));
        // Ticks do not give cycles.
        assert!(doubt_of(&[Some(1.0), None]).unwrap().contains("ticks"));
        assert!(doubt_of(&[]).unwrap().contains("not measured"));
        let steady = Some(Disturbed { waited: Some(0.9), ..Disturbed::default() });
        let disturbed = Measured { disturbed: steady, ..Measured::default() };
        assert!(doubt(&of(&[Some(1.0)]), &disturbed).unwrap().contains("disturbed"));
        // The difference is described first.
        let both = doubt(&of(&[Some(2.0)]), &disturbed).unwrap();
        assert!(both.starts_with("simulated and measured") && both.contains("disturbed"), "{both}");
    }
}
