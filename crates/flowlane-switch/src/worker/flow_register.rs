//! How many flows there are, by a register of bits (linear counting: Whang, Vander-Zanden and Taylor 1990; HALO, ISCA 2019,
//! has one in hardware, of 32 bits).
//!
//! Each packet sets the bit of its flow's hash. Of m bits, u of them not set, n = m · ln(m / u) flows have set the others; that
//! is good to about twice as many flows as bits.

/// Bits. HALO's 32 tell 64 flows with an error of 23 %, too coarse for what stands near a threshold.
pub(super) const BITS: usize = 128;

/// The register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowRegister {
    bits: u128,
}

impl FlowRegister {
    /// Notes a packet by the hash of its flow.
    #[inline]
    pub fn note(&mut self, hash: u32) {
        self.bits |= 1 << (hash as usize % BITS);
    }

    /// The number of flows; infinite where all bits are set.
    pub fn flows(&self) -> f64 {
        let unset = f64::from(self.bits.count_zeros());
        BITS as f64 * (BITS as f64 / unset).ln()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.bits = 0;
    }
}

#[cfg(test)]
mod tests {
    use flowlane::generate::Random;

    use super::*;

    #[test]
    fn the_formula_is_exact_where_the_number_of_bits_is_known() {
        let mut register = FlowRegister::default();
        assert_eq!(register.flows(), 0.0);
        (0..64).for_each(|hash| register.note(hash));
        assert!((register.flows() - 128.0 * 2f64.ln()).abs() < 1e-9);
        (0..BITS as u32).for_each(|hash| register.note(hash));
        assert_eq!(register.flows(), f64::INFINITY);
        register.clear();
        assert_eq!(register, FlowRegister::default());
    }

    #[test]
    fn up_to_as_many_flows_as_bits_the_mean_is_right_within_a_twentieth() {
        let mut random = Random::new(3);
        for flows in [10, 50, 100, 128] {
            let mut sum = 0.0;
            for _ in 0..400 {
                let mut register = FlowRegister::default();
                (0..flows).for_each(|_| register.note(random.bits() as u32));
                sum += register.flows();
            }
            let mean = sum / 400.0;
            assert!((mean / f64::from(flows) - 1.0).abs() < 0.05, "{flows}: {mean}");
        }
    }
}
