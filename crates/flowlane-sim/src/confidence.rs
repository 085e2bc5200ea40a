//! Means with confidence intervals, of repetitions with several seeds.

use serde::Serialize;

/// Student's t for 95 %, two-sided, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// A mean with half the width of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    pub mean: f64,
    /// Half of the interval's width; `None` for a single value.
    pub half_width_95: Option<f64>,
}

impl Estimate {
    /// Estimates the mean of normally distributed values.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let half_width_95 = values.len().checked_sub(1).filter(|freedom| *freedom > 0).map(|freedom| {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / freedom as f64;
            student_95(freedom) * (variance / count).sqrt()
        });
        Self { mean, half_width_95 }
    }
}

/// Returns Student's t; beyond the table by the first terms of its expansion around the normal distribution's 1.96.
fn student_95(freedom: usize) -> f64 {
    T_95.get(freedom - 1)
        .copied()
        .unwrap_or_else(|| 1.96 + 2.3725 / freedom as f64 + 2.82 / (freedom as f64).powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_t() {
        let single = Estimate::of(&[7.0]);
        assert_eq!((single.mean, single.half_width_95), (7.0, None));
        assert_eq!(Estimate::of(&[3.0, 3.0, 3.0]).half_width_95, Some(0.0));
        // Mean 4, deviation 2, 4 degrees of freedom: 2.776 * 2 / sqrt(5).
        let five = Estimate::of(&[2.0, 3.0, 4.0, 4.0, 7.0]);
        let deviation = (14.0f64 / 4.0).sqrt();
        assert!((five.half_width_95.unwrap() - 2.776 * deviation / 5f64.sqrt()).abs() < 1e-9, "{five:?}");
        // The tables' values for 31, 40, 60 and 120.
        for (freedom, t) in [(31, 2.0395), (40, 2.0211), (60, 2.0003), (120, 1.9799)] {
            assert!((student_95(freedom) - t).abs() < 5e-4, "{freedom}: {}", student_95(freedom));
        }
    }

    #[test]
    fn nineteen_of_twenty_intervals_contain_the_mean() {
        let mut random = flowlane::generate::Random::for_purpose(1, "confidence");
        // Sums of twelve uniform numbers are nearly normal, with mean 6.
        let mut normal = || (0..12).map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>();
        let within = (0..4000).filter(|_| {
            let values: Vec<f64> = (0..5).map(|_| normal()).collect();
            let estimate = Estimate::of(&values);
            (estimate.mean - 6.0).abs() <= estimate.half_width_95.unwrap()
        });
        let share = within.count() as f64 / 4000.0;
        assert!((0.94..0.96).contains(&share), "{share}");
    }
}
