//! Admission: which packets that miss all caches get a megaflow.
//!
//! Installing one costs a hundred times a packet's lookup in the tables, so it pays only for flows that recur. A flow is admitted
//! at its second packet: two generations of a Bloom filter remember the first. One first packet of 64 is admitted, too, since a
//! megaflow may be wide: where few megaflows cover many flows, those that match most of the traffic are installed soon.
//!
//! Installing megaflows takes at most a share of the worker's time: a large one while caches are probed, so that they fill at
//! once, a small one while packets go to the tables first, so that trials find them filled. A flood of new flows takes no more.

use flowlane::hash::multilinear::{Multilinear, finish, term};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;

/// Flows per generation.
const FLOWS: usize = 1 << 15;
/// Bits of a generation: eight per flow, three of them set; 3% false positives.
const BITS: usize = 8 * FLOWS;
/// Inverse of the share of first packets that are admitted.
const UNSEEN_INVERSE: u32 = 64;
/// Initial and maximum credit in cycles: some milliseconds.
const CREDIT_MAX: i64 = 10_000_000;

/// A blocked Bloom filter: all bits of a flow are in one 64-bit word.
type Generation = Box<[u64]>;

#[derive(Debug)]
pub(super) struct Admission {
    /// The current and the previous generation.
    young: Generation,
    old: Generation,
    /// Flows added to `young`.
    noted: usize,
    hash: Multilinear,
    credit: i64,
    random: u32,
}

impl Admission {
    pub(super) fn new(seed: u64) -> Self {
        let empty = || vec![0; BITS / 64].into_boxed_slice();
        Self {
            young: empty(),
            old: empty(),
            noted: 0,
            hash: Multilinear::new(seed),
            credit: CREDIT_MAX,
            random: seed as u32 | 1,
        }
    }

    /// Returns whether there is credit to spend.
    #[inline]
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Adds credit for a burst that took `cycles`: `cycles / inverse`.
    #[inline]
    pub(super) fn earn(&mut self, cycles: u64, inverse: u32) {
        let earned = i64::try_from(cycles / u64::from(inverse)).unwrap_or(CREDIT_MAX);
        self.credit = self.credit.saturating_add(earned).min(CREDIT_MAX);
    }

    /// Subtracts the cycles that installing a megaflow took.
    pub(super) fn spend(&mut self, cycles: u64) {
        // Bounds the debt after an interruption of the worker.
        let cycles = i64::try_from(cycles).map_or(CREDIT_MAX, |cycles| cycles.min(CREDIT_MAX));
        self.credit = (self.credit - cycles).max(-CREDIT_MAX);
    }

    /// Returns whether a packet that missed all caches gets a megaflow.
    pub(super) fn admits(&mut self, key: &FlowKey) -> bool {
        // Xorshift32 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let seen = self.see(flow_hash(&self.hash, key));
        seen || self.random < u32::MAX / UNSEEN_INVERSE
    }

    /// Adds a flow to the filter. Returns whether it was there before.
    fn see(&mut self, hash: u32) -> bool {
        let word = ((u64::from(hash) * self.young.len() as u64) >> 32) as usize;
        // The upper bits select the word; the lower are mixed to select the bits in it.
        let within = hash.wrapping_mul(0x9e37_79b1);
        let bits = 1u64 << (within >> 26) | 1 << (within >> 20 & 63) | 1 << (within >> 14 & 63);
        if self.young[word] & bits == bits {
            return true;
        }
        if self.noted == FLOWS {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.fill(0);
            self.noted = 0;
        }
        self.young[word] |= bits;
        self.noted += 1;
        self.old[word] & bits == bits
    }
}

/// Hashes addresses, protocol and ports, and MAC addresses for the sake of packets without IP.
pub(super) fn flow_hash(hash: &Multilinear, key: &FlowKey) -> u32 {
    let words = (word::IPV6_SRC..=word::PORTS).chain([word::IPV4_SRC, word::IPV4_DST]);
    let words = words.chain(word::ETH..word::ETH + 3);
    finish(words.map(|w| term(hash.multiplier(w), key.word(w))).fold(0, u64::wrapping_add))
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;

    use super::*;

    fn key(flow: u32) -> FlowKey {
        let mut key = FlowKey::zero();
        key.set(Field::Ipv4Src, flow.wrapping_mul(0x9e37_79b1).into());
        key
    }

    /// Returns the number of these flows that are admitted.
    fn admitted(admission: &mut Admission, flows: std::ops::Range<u32>) -> usize {
        flows.filter(|flow| admission.admits(&key(*flow))).count()
    }

    #[test]
    fn a_flow_is_admitted_at_its_second_packet_and_few_at_their_first() {
        let mut admission = Admission::new(7);
        let first = admitted(&mut admission, 0..20_000);
        assert!((100..2000).contains(&first), "{first}");
        assert_eq!(admitted(&mut admission, 0..20_000), 20_000);
        // Flows not seen for two generations are forgotten.
        admitted(&mut admission, 1_000_000..1_200_000);
        let again = admitted(&mut admission, 0..20_000);
        assert!(again < 2000, "{again}");
    }

    #[test]
    fn no_more_is_spent_than_a_share_of_the_time() {
        let mut admission = Admission::new(7);
        let (mut total, mut spent) = (0, 0);
        for _ in 0..100_000 {
            total += 10_000;
            admission.earn(10_000, 8);
            while admission.has_credit() {
                admission.spend(30_000);
                spent += 30_000;
            }
        }
        let share = (spent - CREDIT_MAX) as f64 / f64::from(total);
        assert!((share - 0.125).abs() < 0.001, "{share}");
        admission.spend(u64::MAX);
        admission.earn(u64::MAX, 1);
        assert!(!admission.has_credit());
        admission.earn(100, 1);
        assert!(admission.has_credit(), "an interruption is paid for once");
    }
}
