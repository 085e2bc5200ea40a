//! Power and area from Table 4, interpolated between its points.
//!
//! Between two points, the logarithm of a figure is linear in the logarithm of the capacity. Beyond the first and
//! last point there is only a guess, which must be requested.

use flowlane::deterministic_math::{exp, ln};
use serde::Serialize;

/// A row of Table 4.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// The bytes of rules; 0 for an accelerator.
    pub capacity_bytes: f64,
    /// The area in tiles (a core with its caches and slice).
    pub area_tiles: f64,
    /// The static power.
    pub static_mw: f64,
    /// The energy of a query.
    pub query_nj: f64,
}

/// The TCAMs of Table 4. A KB is taken as 1000 bytes; the table does not say.
pub const TCAM: [Cost; 4] = [
    Cost { capacity_bytes: 1e3, area_tiles: 0.001, static_mw: 71.1, query_nj: 0.04 },
    Cost { capacity_bytes: 1e4, area_tiles: 0.066, static_mw: 235.3, query_nj: 0.37 },
    Cost { capacity_bytes: 1e5, area_tiles: 1.044, static_mw: 3850.5, query_nj: 13.84 },
    Cost { capacity_bytes: 1e6, area_tiles: 9.343, static_mw: 26733.1, query_nj: 84.82 },
];

/// The accelerator of Table 4.
pub const ACCELERATOR: Cost =
    Cost { capacity_bytes: 0.0, area_tiles: 0.012, static_mw: 97.2, query_nj: 1.76 };

/// The power of an SRAM-TCAM relative to a TCAM: 45 % less power and 57 % less area (6.4).
pub const SRAM_POWER: f64 = 0.55;
/// The area of an SRAM-TCAM relative to a TCAM: see [`SRAM_POWER`].
pub const SRAM_AREA: f64 = 0.43;

/// A capacity outside Table 4.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{capacity_bytes} bytes are outside of Table 4, which has 1,000 to 1,000,000")]
pub struct Outside {
    pub capacity_bytes: f64,
}

/// Returns the cost of a TCAM; outside the table only with `extrapolate`.
///
/// # Errors
/// Returns an error if the capacity is outside the table and `extrapolate` is false.
pub fn tcam(capacity_bytes: f64, extrapolate: bool) -> Result<Cost, Outside> {
    let (first, last) = (TCAM[0].capacity_bytes, TCAM[3].capacity_bytes);
    let may_be_other = extrapolate && capacity_bytes > 0.0;
    if !may_be_other && !(first..=last).contains(&capacity_bytes) {
        return Err(Outside { capacity_bytes });
    }
    if let Some(row) = TCAM.iter().find(|row| row.capacity_bytes == capacity_bytes) {
        return Ok(*row);
    }
    let after = TCAM.iter().position(|row| row.capacity_bytes > capacity_bytes).unwrap_or(3).max(1);
    let (low, high) = (&TCAM[after - 1], &TCAM[after]);
    let share = ln(capacity_bytes / low.capacity_bytes) / ln(high.capacity_bytes / low.capacity_bytes);
    let between = |low: f64, high: f64| low * exp(share * ln(high / low));
    Ok(Cost {
        capacity_bytes,
        area_tiles: between(low.area_tiles, high.area_tiles),
        static_mw: between(low.static_mw, high.static_mw),
        query_nj: between(low.query_nj, high.query_nj),
    })
}

/// Returns the cost of an SRAM-TCAM.
///
/// # Errors
/// Returns the errors of [`tcam`].
pub fn sram_tcam(capacity_bytes: f64, extrapolate: bool) -> Result<Cost, Outside> {
    let cost = tcam(capacity_bytes, extrapolate)?;
    Ok(Cost {
        area_tiles: cost.area_tiles * SRAM_AREA,
        static_mw: cost.static_mw * SRAM_POWER,
        query_nj: cost.query_nj * SRAM_POWER,
        ..cost
    })
}

impl Cost {
    /// Returns the energy of a query at a rate, including its share of the static power.
    pub fn whole_query_nj(&self, queries_per_second: f64) -> f64 {
        self.query_nj + self.static_mw * 1e6 / queries_per_second
    }
}

/// Returns the capacity above which a TCAM's query takes more energy than an accelerator's.
pub fn break_even_bytes() -> f64 {
    let (mut low, mut high) = (TCAM[0].capacity_bytes, TCAM[3].capacity_bytes);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let dearer = tcam(middle, false).is_ok_and(|c| c.query_nj > ACCELERATOR.query_nj);
        *(if dearer { &mut high } else { &mut low }) = middle;
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_table_s_points_the_table_is_right() {
        for row in TCAM {
            assert_eq!(tcam(row.capacity_bytes, false), Ok(row));
        }
        let sram = sram_tcam(1e6, false).unwrap();
        assert!((sram.static_mw / TCAM[3].static_mw - 0.55).abs() < 1e-12);
        assert!((sram.area_tiles / TCAM[3].area_tiles - 0.43).abs() < 1e-12);
    }

    #[test]
    fn between_points_all_figures_grow_and_their_logarithms_are_linear() {
        let middle = tcam(1e4 * 10f64.sqrt(), false).unwrap();
        assert!((middle.query_nj - (0.37f64 * 13.84).sqrt()).abs() < 1e-9);
        let mut before = tcam(1e3, false).unwrap();
        for step in 1..300 {
            let now = tcam(1e3 * 10f64.powf(f64::from(step) / 100.0), false).unwrap();
            assert!(now.area_tiles > before.area_tiles && now.static_mw > before.static_mw);
            assert!(now.query_nj > before.query_nj);
            before = now;
        }
    }

    #[test]
    fn beyond_the_table_a_guess_must_be_asked_for() {
        assert_eq!(tcam(2e6, false), Err(Outside { capacity_bytes: 2e6 }));
        assert!(tcam(500.0, false).is_err() && tcam(-1.0, true).is_err());
        assert!(tcam(2e6, true).unwrap().query_nj > 84.82 && tcam(500.0, true).unwrap().query_nj < 0.04);
    }

    #[test]
    fn the_paper_s_efficiency_is_that_of_queries_alone_and_below_27_kb_it_is_none() {
        assert!((TCAM[3].query_nj / ACCELERATOR.query_nj - 48.2).abs() < 0.05);
        assert!((26e3..29e3).contains(&break_even_bytes()), "{}", break_even_bytes());
        assert!(TCAM[0].whole_query_nj(1e7) > 7.0);
    }
}
