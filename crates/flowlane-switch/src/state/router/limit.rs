//! A limit of the errors that a router sends (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4f): of all errors a second, and of those to
//! one network, so that no network uses up the errors of others.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;

/// Values of the secret hash that distinguishes networks.
const BUCKETS: usize = 256;

/// Errors a second to one network, and at once. A traceroute sends three packets a hop.
const OF_ONE_PER_S: u64 = 20;
const OF_ONE_AT_ONCE: u64 = 20;

/// Tokens of a bucket, in billionths, and when it was filled.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: u64,
    filled_ns: u64,
    is_used: bool,
}

const TOKEN: u64 = 1_000_000_000;

impl Bucket {
    fn fill(&mut self, per_s: u64, at_once: u64, now_ns: u64) {
        let most = at_once.saturating_mul(TOKEN);
        // A bucket is full at first.
        let new = now_ns.saturating_sub(self.filled_ns).saturating_mul(per_s);
        let tokens = if self.is_used { self.tokens.saturating_add(new) } else { most };
        (self.tokens, self.filled_ns, self.is_used) = (tokens.min(most), self.filled_ns.max(now_ns), true);
    }
}

/// Token buckets for errors.
#[derive(Debug)]
pub struct Limit {
    per_s: u64,
    secret: RandomState,
    buckets: Mutex<(Bucket, Box<[Bucket; BUCKETS]>)>,
}

impl Limit {
    /// A limit of this number of errors a second.
    pub fn new(per_s: u32) -> Self {
        let buckets = (Bucket::default(), Box::new([Bucket::default(); BUCKETS]));
        Self { per_s: per_s.into(), secret: RandomState::new(), buckets: Mutex::new(buckets) }
    }

    /// Returns whether an error may be sent to an address, and counts it.
    pub fn admits(&self, to: IpAddr, now_ns: u64) -> bool {
        // A host of IPv6 has all addresses of its network.
        let network = match to {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits() >> 64,
        };
        let at = self.secret.hash_one(network) as usize % BUCKETS;
        let mut buckets = self.buckets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (all, of_one) = &mut *buckets;
        all.fill(self.per_s, self.per_s, now_ns);
        of_one[at].fill(OF_ONE_PER_S, OF_ONE_AT_ONCE, now_ns);
        let is_admitted = all.tokens >= TOKEN && of_one[at].tokens >= TOKEN;
        if is_admitted {
            (all.tokens, of_one[at].tokens) = (all.tokens - TOKEN, of_one[at].tokens - TOKEN);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_gets_its_share_and_all_no_more_than_the_limit() {
        let limit = Limit::new(50);
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let admitted =
            |ms: std::ops::Range<u64>, to: IpAddr| ms.filter(|ms| limit.admits(to, ms * 1_000_000)).count();
        // 20 at once, and then 20 a second.
        assert_eq!(admitted(0..1000, one), 39);
        assert!(admitted(1000..2000, "192.0.2.2".parse().unwrap()) >= 20);
        let all = (2000..3000u64)
            .filter(|ms| limit.admits(IpAddr::from(((ms * 7919) as u32).to_be_bytes()), ms * 1_000_000));
        let all = all.count();
        assert!((50..=101).contains(&all), "{all}");
        // A network of IPv6 is one.
        let v6 = (0..100u128)
            .filter(|n| limit.admits(IpAddr::from((0x2001_0db8 << 96 | n).to_be_bytes()), 9_000_000_000));
        assert_eq!(v6.count(), 20);
    }
}
