//! Policers of a port: token buckets that drop what exceeds the rate at which a port may receive or send (vswitchd.conf.db(5): ingress
//! policing of Interface, the type `egress-policer` of QoS).
//!
//! A policer is [meters](super::meter::Meter): one for bits and one for packets, where a packet needs tokens of each. Workers share it.

use super::meter::{Meter, Rate};

/// Kilobits that pass at once where no burst is given.
const BURST_KBIT: u64 = 8000;
/// Thousands of packets that pass at once where no burst is given.
const BURST_KPACKETS: u64 = 16;

/// The limits of packets that a port receives, in the units of Open vSwitch's table Interface. A rate of 0 is no limit, a burst of 0 is
/// the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveLimits {
    /// Kilobits a second, of 1000 bits each; frames count with their Ethernet headers.
    pub rate_kbps: u64,
    /// Kilobits that pass at once.
    pub burst_kbit: u64,
    /// Thousands of packets a second.
    pub rate_kpps: u64,
    /// Thousands of packets that pass at once.
    pub burst_kpackets: u64,
}

/// The limit of packets that a port sends, as the type `egress-policer` has it. The Ethernet header is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendLimit {
    /// Bytes a second, of IP packets and their like (`cir`).
    pub rate_bytes: u64,
    /// Bytes that pass at once (`cbs`).
    pub burst_bytes: u64,
}

/// Token buckets of which a packet needs tokens of each.
#[derive(Debug)]
pub struct Policer {
    meters: Vec<Meter>,
    /// Bytes of a frame that are not counted.
    uncounted: usize,
}

/// The bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

impl Policer {
    /// The policer of packets that a port receives; none without a limit.
    pub fn of_received(limits: &ReceiveLimits) -> Option<Self> {
        let or = |burst: u64, default: u64| if burst == 0 { default } else { burst };
        let bits = (limits.rate_kbps > 0)
            .then(|| Meter::new(Rate::Kbps(limits.rate_kbps), or(limits.burst_kbit, BURST_KBIT)));
        let packets = (limits.rate_kpps > 0).then(|| {
            let burst = or(limits.burst_kpackets, BURST_KPACKETS);
            Meter::new(Rate::Pps(limits.rate_kpps.saturating_mul(1000)), burst.saturating_mul(1000))
        });
        let meters: Vec<Meter> = bits.into_iter().chain(packets).collect();
        (!meters.is_empty()).then_some(Self { meters, uncounted: 0 })
    }

    /// The policer of packets that a port sends.
    pub fn of_sent(limit: &SendLimit) -> Self {
        let meters = vec![Meter::of_bytes(limit.rate_bytes, limit.burst_bytes)];
        Self { meters, uncounted: ETHERNET_BYTES }
    }

    /// Takes the tokens of a frame of `bytes`. Returns whether there are enough.
    pub fn allow(&self, bytes: usize, now_ns: u64) -> bool {
        let bytes = bytes.saturating_sub(self.uncounted);
        self.meters.iter().all(|meter| meter.allow(bytes, now_ns))
    }
}

/// The policers of a port.
#[derive(Debug, Default)]
pub struct PortPolicers {
    /// Of packets that it receives.
    pub received: Option<Policer>,
    /// Of packets that it sends.
    pub sent: Option<Policer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: u64 = 1_000_000_000;

    /// The bytes that pass of frames of 1000 bytes, one each 100 µs, in ten seconds.
    fn passed(policer: &Policer) -> u64 {
        (0..100_000).filter(|i| policer.allow(1000, i * NS / 10_000)).count() as u64 * 1000
    }

    #[test]
    fn the_rate_and_the_burst_pass() {
        // 10,000 kbit/s are 1.25 MB/s.
        let limits = ReceiveLimits { rate_kbps: 10_000, burst_kbit: 800, ..ReceiveLimits::default() };
        let bytes = passed(&Policer::of_received(&limits).unwrap());
        assert!((12_500_000..=12_600_000).contains(&bytes), "{bytes}");
        // Without a burst, 8000 kbit.
        let limits = ReceiveLimits { rate_kbps: 10_000, ..ReceiveLimits::default() };
        let bytes = passed(&Policer::of_received(&limits).unwrap());
        assert!((13_400_000..=13_500_000).contains(&bytes), "{bytes}");
        let limits = ReceiveLimits { rate_kpps: 2, burst_kpackets: 1, ..ReceiveLimits::default() };
        let packets = passed(&Policer::of_received(&limits).unwrap()) / 1000;
        assert!((20_990..=21_000).contains(&packets), "{packets}");
        // The smaller of two rates.
        let limits = ReceiveLimits { rate_kbps: 10_000, burst_kbit: 8, ..limits };
        let bytes = passed(&Policer::of_received(&limits).unwrap());
        assert!((12_400_000..=12_510_000).contains(&bytes), "{bytes}");
        assert!(Policer::of_received(&ReceiveLimits { burst_kbit: 9, ..Default::default() }).is_none());
    }

    #[test]
    fn sent_packets_count_without_their_ethernet_header() {
        let policer = Policer::of_sent(&SendLimit { rate_bytes: 986, burst_bytes: 2 * 986 });
        let passed: Vec<bool> = (0..4).map(|_| policer.allow(1000, 0)).collect();
        assert_eq!(passed, [true, true, false, false]);
        assert!(policer.allow(1000, NS) && !policer.allow(1000, NS));
        // A burst that is smaller than a packet lets none through.
        let policer = Policer::of_sent(&SendLimit { rate_bytes: 1_000_000, burst_bytes: 100 });
        assert!(!policer.allow(1000, 5 * NS) && policer.allow(114, 5 * NS));
    }
}
