//! The flow register: linear counting (Whang, Vander-Zanden, Taylor, 1990). A bit of an array is set by each query's
//! hash; from the bits that are left, `u` of `m`, follows the number of different hashes: n = m ln(m / u).

/// The array.
#[derive(Clone, Debug)]
pub struct FlowRegister {
    bits: Vec<bool>,
    set: usize,
}

impl FlowRegister {
    /// An array of `bits`.
    pub fn new(bits: u32) -> Self {
        Self { bits: vec![false; bits as usize], set: 0 }
    }

    /// Notes a query.
    pub fn note(&mut self, hash: u32) {
        let len = self.bits.len() as u32;
        let bit = &mut self.bits[(hash % len) as usize];
        self.set += usize::from(!*bit);
        *bit = true;
    }

    /// About how many different hashes were noted; none where every bit is set, which says no more than "many".
    pub fn estimate(&self) -> Option<f64> {
        estimate(self.bits.len(), self.bits.len() - self.set)
    }

    /// Begins another window.
    pub fn clear(&mut self) {
        self.bits.fill(false);
        self.set = 0;
    }
}

/// n = m ln(m / u).
pub fn estimate(bits: usize, unset: usize) -> Option<f64> {
    // The logarithm that is the same on every machine.
    let m = bits as f64;
    (unset > 0).then(|| m * flowlane::generate::random::ln(m / unset as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::generate::Random;

    #[test]
    fn the_formula_is_that_of_linear_counting() {
        assert_eq!(estimate(32, 32), Some(0.0));
        assert_eq!(estimate(32, 0), None);
        for (m, u) in [(32usize, 16usize), (128, 1), (8, 3)] {
            let exact = m as f64 * (m as f64 / u as f64).ln();
            assert!((estimate(m, u).unwrap() - exact).abs() < 1e-9 * exact, "{m} {u}");
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
        let estimate = register.estimate().unwrap();
        assert!((45.0..75.0).contains(&estimate), "{estimate}");
        register.clear();
        assert_eq!(register.estimate(), Some(0.0));
    }
}
