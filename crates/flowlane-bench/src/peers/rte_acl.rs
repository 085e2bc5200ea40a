//! DPDK's `rte_acl`, through a small C shim.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Match, PortRange, Rule};

/// The most packets of a call.
pub(crate) const CALL_MAX: usize = 256;

/// The bytes of a packet that `rte_acl` reads.
pub(crate) type Record = [u8; 16];

/// A rule in the layout of the shim.
#[repr(C)]
#[derive(Clone, Copy)]
struct PeerRule {
    src: u32,
    dst: u32,
    src_length: u8,
    dst_length: u8,
    protocol: u8,
    protocol_mask: u8,
    src_port: [u16; 2],
    dst_port: [u16; 2],
}

unsafe extern "C" {
    fn flowlane_peers_acl_build(rules: *const PeerRule, count: u32, bytes: *mut u64) -> *mut c_void;
    fn flowlane_peers_acl_free(context: *mut c_void);
    fn flowlane_peers_acl_classify(
        context: *const c_void,
        records: *const Record,
        count: u32,
        results: *mut u32,
        algorithm: c_int,
    ) -> c_int;
}

/// A classify method of `rte_acl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Algorithm {
    Scalar = 1,
    Sse = 2,
    Avx2 = 3,
    Avx512x16 = 6,
    Avx512x32 = 7,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 5] = [Self::Scalar, Self::Sse, Self::Avx2, Self::Avx512x16, Self::Avx512x32];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "rte_acl, scalar",
            Self::Sse => "rte_acl, SSE",
            Self::Avx2 => "rte_acl, AVX2",
            Self::Avx512x16 => "rte_acl, AVX512X16",
            Self::Avx512x32 => "rte_acl, AVX512X32",
        }
    }
}

/// A context with IPv4 5-tuple rules.
#[derive(Debug)]
pub(crate) struct RteAcl {
    context: NonNull<c_void>,
    /// The bytes of DPDK's heap in use.
    pub(crate) bytes: u64,
}

fn peer_rule(matches: &Match) -> PeerRule {
    let address = |field| {
        let (value, mask) = matches.get(field);
        (value as u32, (mask as u32).leading_ones() as u8)
    };
    let port = |field, range: Option<PortRange>| {
        let (value, mask) = matches.get(field);
        range.map_or([value as u16, value as u16 | !(mask as u16)], |r| [r.low(), r.high()])
    };
    let ((src, src_length), (dst, dst_length)) = (address(Field::Ipv4Src), address(Field::Ipv4Dst));
    let (protocol, protocol_mask) = matches.get(Field::NwProto);
    PeerRule {
        src,
        dst,
        src_length,
        dst_length,
        protocol: protocol as u8,
        protocol_mask: protocol_mask as u8,
        src_port: port(Field::TpSrc, matches.tp_src_range()),
        dst_port: port(Field::TpDst, matches.tp_dst_range()),
    }
}

/// Returns the bytes of a packet that `rte_acl` reads.
pub(crate) fn record(key: &FlowKey) -> Record {
    let mut out = [0; 16];
    out[0] = key.get(Field::NwProto) as u8;
    out[4..8].copy_from_slice(&(key.get(Field::Ipv4Src) as u32).to_be_bytes());
    out[8..12].copy_from_slice(&(key.get(Field::Ipv4Dst) as u32).to_be_bytes());
    out[12..14].copy_from_slice(&(key.get(Field::TpSrc) as u16).to_be_bytes());
    out[14..16].copy_from_slice(&(key.get(Field::TpDst) as u16).to_be_bytes());
    out
}

impl RteAcl {
    /// Builds a context of these rules, of which earlier ones win, or returns `None` if DPDK lacks memory.
    pub(crate) fn build(rules: &[Rule]) -> Option<Self> {
        let rules: Vec<PeerRule> = rules.iter().map(|rule| peer_rule(&rule.matches)).collect();
        let mut bytes = 0;
        // SAFETY: the pointer and the length describe the rules, and `bytes` is written before it is read.
        let context = unsafe { flowlane_peers_acl_build(rules.as_ptr(), rules.len() as u32, &raw mut bytes) };
        NonNull::new(context).map(|context| Self { context, bytes })
    }

    /// Returns whether this CPU and this build of DPDK support a method.
    pub(crate) fn can(&self, algorithm: Algorithm) -> bool {
        self.call(&[[0; 16]], &mut [0], algorithm) == 0
    }

    fn call(&self, records: &[Record], results: &mut [u32], algorithm: Algorithm) -> c_int {
        assert!(records.len() <= CALL_MAX && results.len() >= records.len());
        let (context, count) = (self.context.as_ptr(), records.len() as u32);
        let results = results.as_mut_ptr();
        // SAFETY: `build` made the context for records of this size; there is room for a result of each.
        unsafe { flowlane_peers_acl_classify(context, records.as_ptr(), count, results, algorithm as c_int) }
    }

    /// Writes for each packet 1 plus the position of the best rule, or 0 without one.
    ///
    /// # Panics
    /// Panics if there are more than [`CALL_MAX`] packets, or fewer results than packets.
    pub(crate) fn classify(&self, records: &[Record], results: &mut [u32], algorithm: Algorithm) {
        let failed = self.call(records, results, algorithm);
        assert_eq!(failed, 0, "{} was tried before", algorithm.name());
    }
}

impl Drop for RteAcl {
    fn drop(&mut self) {
        // SAFETY: `build` made the context; it is not used after this.
        unsafe { flowlane_peers_acl_free(self.context.as_ptr()) }
    }
}
