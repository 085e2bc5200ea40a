//! Counters of connections.

use std::sync::atomic::AtomicU64;

/// Counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// Connections that were added.
    pub added: AtomicU64,
    /// Connections whose time was over.
    pub expired: AtomicU64,
    /// Connections that made room for others.
    pub evicted: AtomicU64,
    /// Connections that were not added because there was no room.
    pub refused_full: AtomicU64,
    /// Because their zone has as many as it may have.
    pub refused_zone: AtomicU64,
    /// Because there was no address and port to translate to.
    pub refused_nat: AtomicU64,
    /// Because their replies would look like packets of another connection.
    pub refused_ambiguous: AtomicU64,
    /// Connections that were announced and are not expected, because another control connection's have their tuple.
    pub refused_expected: AtomicU64,
}
