//! Crossings of curves.

use std::fmt;

use flowlane::deterministic_math::{exp, ln};
use serde::Serialize;

/// The ranges in which one curve is better than another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Crossing {
    /// Whether it is better at the beginning.
    pub at_first: bool,
    /// The crossings, ascending.
    pub at: Vec<f64>,
    pub range: [f64; 2],
}

/// Returns where the costs `ours` are lower than `theirs`, over ascending positions. Between two positions, the
/// logarithm of their ratio is linear in the logarithm of the position. Positions without both values, or with values
/// that are not positive, are left out; `None` if none remain.
pub fn crossing(places: &[f64], ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Crossing> {
    let both = places.iter().zip(ours.iter().zip(theirs));
    let known = both.filter_map(|(place, (ours, theirs))| Some((*place, (*theirs)? / (*ours)?)));
    let known: Vec<(f64, f64)> = known.filter(|(place, _)| *place > 0.0).collect();
    let (first, last) = (known.first()?, known.last()?);
    let at = known.windows(2).filter_map(|pair| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        if (before > 1.0) == (after > 1.0) {
            return None;
        }
        let share = ln(before) / ln(before / after);
        Some(from * exp(share * ln(to / from)))
    });
    Some(Crossing { at_first: first.1 > 1.0, at: at.collect(), range: [first.0, last.0] })
}

/// Formats a position.
pub(super) fn place_text(place: f64) -> String {
    match place {
        p if p >= 1e6 => format!("{:.3} million", p / 1e6),
        p if p >= 100.0 => format!("{p:.0}"),
        p => {
            let text = if p >= 10.0 { format!("{p:.2}") } else { format!("{p:.3}") };
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

impl Crossing {
    /// Returns the answer without the range that was looked at.
    pub(super) fn short(&self) -> String {
        if self.at.is_empty() {
            return if self.at_first { "always" } else { "never" }.to_owned();
        }
        let mut better = self.at_first;
        let mut parts = Vec::new();
        if better {
            parts.push(format!("up to {}", place_text(self.at[0])));
        }
        for (n, at) in self.at.iter().enumerate() {
            better = !better;
            match (better, self.at.get(n + 1)) {
                (true, Some(until)) => {
                    parts.push(format!("from {} to {}", place_text(*at), place_text(*until)))
                }
                (true, None) => parts.push(format!("from {} on", place_text(*at))),
                (false, _) => {}
            }
        }
        parts.join(" and ")
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([from, to], answer) = (self.range.map(place_text), self.short());
        match self.at.is_empty() {
            true => write!(f, "{answer} within the range looked at ({from} to {to})"),
            false => write!(f, "{answer} (looked at: {from} to {to})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<f64> {
        (0..12).map(|n| f64::from(1 << n)).collect()
    }

    fn of(ours: impl Fn(f64) -> f64, theirs: impl Fn(f64) -> f64) -> Crossing {
        let curve = |f: &dyn Fn(f64) -> f64| places().iter().map(|p| Some(f(*p))).collect::<Vec<_>>();
        crossing(&places(), &curve(&ours), &curve(&theirs)).unwrap()
    }

    #[test]
    fn powers_cross_exactly_where_they_do() {
        // 100 and x cross at 100, since powers are lines in logarithms.
        let crossed = of(|_| 100.0, |x| x);
        assert!(!crossed.at_first && crossed.at.len() == 1);
        assert!((crossed.at[0] - 100.0).abs() < 1e-9, "{crossed:?}");
        assert_eq!(crossed.to_string(), "from 100 on (looked at: 1 to 2048)");
        let crossed = of(|x| x * x, |x| 50.0 * x);
        assert!(crossed.at_first && (crossed.at[0] - 50.0).abs() < 1e-9);
        assert_eq!(crossed.to_string(), "up to 50 (looked at: 1 to 2048)");
    }

    #[test]
    fn no_crossing_and_several_crossings_are_reported() {
        assert_eq!(of(|_| 1.0, |_| 2.0).to_string(), "always within the range looked at (1 to 2048)");
        assert_eq!(of(|_| 2.0, |_| 2.0).to_string(), "never within the range looked at (1 to 2048)");
        let crossed = of(|x| if (10.0..100.0).contains(&x) { 1.0 } else { 4.0 }, |_| 2.0);
        assert_eq!(crossed.at.len(), 2);
        assert!((8.0..16.0).contains(&crossed.at[0]) && (64.0..128.0).contains(&crossed.at[1]), "{crossed}");
        assert!(crossed.to_string().starts_with("from 1"), "{crossed}");
    }

    #[test]
    fn missing_places_are_left_out() {
        let crossed =
            crossing(&[1.0, 2.0, 4.0], &[Some(1.0), None, Some(1.0)], &[Some(0.5), Some(9.0), Some(2.0)]);
        let crossed = crossed.unwrap();
        assert!((crossed.at[0] - 2.0).abs() < 1e-9, "{crossed:?}");
        assert_eq!(crossing(&[1.0], &[None], &[Some(1.0)]), None);
    }
}
