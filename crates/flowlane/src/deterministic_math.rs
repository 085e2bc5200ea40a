//! Logarithms and powers that are the same on every machine.
//!
//! [`ln`], [`exp`] and [`pow`] are computed from additions, multiplications and divisions only, which IEEE 754 defines to
//! the last bit; the platform's `powf` is not, and one bit of difference would in the end draw another flow, or make another
//! report.

/// Natural logarithm of a positive number, to about 1e-15.
pub fn ln(x: f64) -> f64 {
    let bits = x.max(f64::MIN_POSITIVE).to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m-1)/(m+1)); |t| < 0.172, so that 13 terms reach the last bit.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..13).rev().fold(0.0, |sum, k| sum * (t * t) + 1.0 / f64::from(2 * k + 1));
    2.0 * t * series + exponent as f64 * std::f64::consts::LN_2
}

/// e to the power `x`, to about 1e-14 relative; 0 and the largest number beyond the range.
pub fn exp(x: f64) -> f64 {
    let power = (x / std::f64::consts::LN_2).clamp(-1022.0, 1022.0).round();
    let rest = (x - power * std::f64::consts::LN_2).clamp(-1.0, 1.0);
    let series = (1..=18).rev().fold(1.0, |sum, k| 1.0 + rest * sum / f64::from(k));
    series * f64::from_bits(((1023 + power as i64) as u64) << 52)
}

/// `x` to the power `y`, for positive `x`.
pub fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_close_to_the_library_s() {
        for x in [1e-9, 0.003, 0.5, 1.0, 1.5, 2.0, 77.0, 1e6] {
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            for y in [-3.0, -1.1, -0.5, 0.0, 0.9, 2.0] {
                let want = x.powf(y);
                assert!((pow(x, y) - want).abs() <= 1e-12 * want, "{x} ^ {y}: {} {want}", pow(x, y));
            }
        }
    }
}
