//! Estimates the number of flows by a register of bits: linear counting (Whang, Vander-Zanden and Taylor, *A Linear-Time
//! Probabilistic Counting Algorithm for Database Applications*, 1990; HALO has one in hardware, of 32 bits, ISCA 2019, §4.6).
//!
//! Each packet sets the bit of its flow's hash. Of m bits, u of them not set, n = m · ln(m / u) flows have set the others.
//! With t = n / m the error has a mean of about (eᵗ − t − 1) / 2 and a standard deviation of √(m · (eᵗ − t − 1)). Measured
//! over 100,000 registers, in per cent of n (full ones counted as if one bit were not set):
//!
//! | m | n = m / 2: bias, RMSE | n = m | n = 2m |
//! |---|---|---|---|
//! | 32 | +2.1, 13.8 | +2.8, 16.0 | +5.8, 22.8 |
//! | 128 | +0.5, 6.9 | +0.7, 7.6 | +1.3, 9.8 |
//! | 1024 | +0.1, 2.4 | +0.1, 2.7 | +0.2, 3.3 |
//!
//! Beyond 2m bits are soon all set. HALO's 32 bits tell 64 flows too coarsely for a decision near a threshold; the switch
//! takes 128.

use crate::deterministic_math::ln;

/// The register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRegister {
    words: Box<[u64]>,
    bits: u32,
}

impl FlowRegister {
    /// Makes a register of `bits` bits, none set.
    ///
    /// # Panics
    /// If that is 0.
    pub fn new(bits: u32) -> Self {
        assert!(bits > 0, "a register has bits");
        Self { words: vec![0; bits.div_ceil(64) as usize].into(), bits }
    }

    /// Notes a packet by the hash of its flow.
    #[inline]
    pub fn note(&mut self, hash: u32) {
        // A division would cost a packet more than all the rest.
        let place = if self.bits.is_power_of_two() { hash & (self.bits - 1) } else { hash % self.bits };
        self.words[place as usize / 64] |= 1 << (place % 64);
    }

    /// About how many flows were noted; none where every bit is set, which says no more than "many".
    pub fn flows(&self) -> Option<f64> {
        let set: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        (set < self.bits).then(|| self.with_unset(self.bits - set))
    }

    /// The most flows that [`flows`](Self::flows) tells: those with a single bit not set.
    pub fn flows_most(&self) -> f64 {
        self.with_unset(1)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// m · ln(m / u), by the logarithm that is the same on every machine.
    fn with_unset(&self, unset: u32) -> f64 {
        let bits = f64::from(self.bits);
        bits * ln(bits / f64::from(unset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    #[test]
    fn the_formula_is_exact_where_the_number_of_bits_is_known() {
        for bits in [1, 8, 32, 63, 64, 65, 100, 128, 1000] {
            let mut register = FlowRegister::new(bits);
            assert_eq!(register.flows(), Some(0.0));
            for set in 1..bits {
                register.note(set + 7 * bits);
                let (m, unset) = (f64::from(bits), f64::from(bits - set));
                let exact = m * (m / unset).ln();
                assert!((register.flows().unwrap() - exact).abs() < 1e-9 * exact, "{set} of {bits}");
            }
            assert!((register.flows_most() - f64::from(bits) * f64::from(bits).ln()).abs() < 1e-9);
            register.note(0);
            assert_eq!(register.flows(), None);
            register.clear();
            assert_eq!(register, FlowRegister::new(bits));
        }
    }

    #[test]
    fn a_register_counts_flows_and_not_packets() {
        let mut random = Random::new(5);
        let mut register = FlowRegister::new(128);
        let flows: Vec<u32> = (0..60).map(|_| random.bits() as u32).collect();
        for _ in 0..20 {
            flows.iter().for_each(|hash| register.note(*hash));
        }
        let flows = register.flows().unwrap();
        assert!((45.0..75.0).contains(&flows), "{flows}");
    }

    /// Mean error and root of the mean square one, in parts of the number of flows.
    fn errors(bits: u32, flows: u32, registers: u32) -> [f64; 2] {
        let mut random = Random::for_purpose(u64::from(bits) << 32 | u64::from(flows), "linear counting");
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..registers {
            let mut register = FlowRegister::new(bits);
            (0..flows).for_each(|_| register.note(random.bits() as u32));
            let error = register.flows().unwrap_or(register.flows_most()) / f64::from(flows) - 1.0;
            sum += error;
            squares += error * error;
        }
        [sum, (squares * f64::from(registers)).sqrt()].map(|total| total / f64::from(registers))
    }

    #[test]
    fn errors_are_those_that_are_written_above() {
        let table = [
            (32, [[2.05, 13.84], [2.75, 16.03], [5.84, 22.84]]),
            (128, [[0.49, 6.87], [0.67, 7.62], [1.26, 9.75]]),
            (1024, [[0.07, 2.40], [0.08, 2.65], [0.16, 3.28]]),
        ];
        for (bits, rows) in table {
            for (flows, wanted) in [bits / 2, bits, 2 * bits].into_iter().zip(rows) {
                let [bias, root] = errors(bits, flows, 4000).map(|part| 100.0 * part);
                println!("{bits} bits, {flows} flows: bias {bias:.1} %, RMSE {root:.1} %");
                let [bias_wanted, root_wanted]: [f64; 2] = wanted;
                assert!(
                    (bias - bias_wanted).abs() < 0.1 * root_wanted,
                    "{bits} bits, {flows} flows: bias {bias}"
                );
                assert!((root / root_wanted - 1.0).abs() < 0.1, "{bits} bits, {flows} flows: RMSE {root}");
            }
        }
    }
}
