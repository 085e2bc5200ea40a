#![doc = include_str!("README.md")]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
mod scalar;
mod table;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::isa::Variant;
use crate::route::epoch::Participant;
use crate::route::{BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib};
use table::Table;
use writer::Writer;

/// The writer's handle of a table. See the [module](self).
#[derive(Debug)]
pub struct Dir24(Sized<Writer<AtomicU8>, Writer<AtomicU16>, Writer<AtomicU32>, Writer<AtomicU64>>);

type SharedTable<W> = Arc<Table<W>>;

/// A reader's handle.
#[derive(Clone, Debug)]
pub struct Dir24Reader {
    table:
        Sized<SharedTable<AtomicU8>, SharedTable<AtomicU16>, SharedTable<AtomicU32>, SharedTable<AtomicU64>>,
    participant: Participant,
}

/// One thing for each size of next hops.
#[derive(Clone, Debug)]
enum Sized<B1, B2, B4, B8> {
    B1(B1),
    B2(B2),
    B4(B4),
    B8(B8),
}

/// Evaluates an expression with the value of whichever size.
macro_rules! with {
    ($sized:expr, $it:ident => $do:expr) => {
        match $sized {
            Sized::B1($it) => $do,
            Sized::B2($it) => $do,
            Sized::B4($it) => $do,
            Sized::B8($it) => $do,
        }
    };
}

/// Returns the largest next hop in a table of this size: a bit of each entry says where it leads.
pub fn next_hop_max(hop_size: HopSize) -> u64 {
    hop_size.max() >> 1
}

impl Dir24 {
    /// Groups of 256 addresses with routes longer than 24 bits, in use now.
    pub fn groups(&self) -> usize {
        with!(&self.0, writer => writer.groups())
    }

    /// Says whether vectors read groups for each register of addresses, instead of asking first whether it needs them. The answers are the
    /// same.
    pub(in crate::route) fn set_always_reads_groups(&self, always: bool) {
        with!(&self.0, writer => writer.table.set_always_reads_groups(always));
    }

    #[cfg(test)]
    pub(in crate::route) fn always_reads_groups(&self) -> bool {
        with!(&self.0, writer => writer.table.always_reads_groups())
    }
}

impl Fib<u32> for Dir24 {
    type Reader = Dir24Reader;

    fn build(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        Ok(Self(match config.hop_size {
            HopSize::B1 => Sized::B1(Writer::build(rib, config)?),
            HopSize::B2 => Sized::B2(Writer::build(rib, config)?),
            HopSize::B4 => Sized::B4(Writer::build(rib, config)?),
            HopSize::B8 => Sized::B8(Writer::build(rib, config)?),
        }))
    }

    fn update(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        with!(&mut self.0, writer => writer.update(rib, changed))
    }

    fn reader(&self) -> Dir24Reader {
        let participant = with!(&self.0, writer => writer.epochs.join());
        let table = match &self.0 {
            Sized::B1(writer) => Sized::B1(Arc::clone(&writer.table)),
            Sized::B2(writer) => Sized::B2(Arc::clone(&writer.table)),
            Sized::B4(writer) => Sized::B4(Arc::clone(&writer.table)),
            Sized::B8(writer) => Sized::B8(Arc::clone(&writer.table)),
        };
        Dir24Reader { table, participant }
    }

    fn lookup(&self, address: u32) -> u64 {
        with!(&self.0, writer => scalar::lookup(&writer.table, address))
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        with!(&self.0, writer => writer.table.lookup_batch(addresses, next_hops));
    }

    fn table_bytes(&self) -> usize {
        with!(&self.0, writer => writer.table_bytes())
    }

    fn variant(&self) -> Variant {
        with!(&self.0, writer => writer.table.backend.variant())
    }
}

impl FibReader<u32> for Dir24Reader {
    fn lookup(&self, address: u32) -> u64 {
        let _inside = self.participant.enter();
        with!(&self.table, table => scalar::lookup(table, address))
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let _inside = self.participant.enter();
        with!(&self.table, table => table.lookup_batch(addresses, next_hops));
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use crate::generate::random::Random;
    use crate::isa::testing::for_each_variant;

    /// Routes of all lengths from 8 bits on.
    fn routes(random: &mut Random) -> Rib<u32> {
        let mut rib = Rib::new(4096);
        for hop in 0..500 {
            let prefix = Prefix::truncated(random.bits() as u32 & 0x0fff_ffff, 8 + random.below(25) as u8);
            rib.insert(prefix, hop % 100).expect("there is room");
        }
        rib
    }

    #[test]
    fn every_variant_and_size_answers_alike_with_and_without_a_branch_at_groups() {
        let mut random = Random::new(7);
        let rib = routes(&mut random);
        let inside: Vec<Prefix<u32>> = rib.walk(Prefix::ALL).map(|(prefix, _)| prefix).collect();
        for hop_size in [HopSize::B2, HopSize::B4, HopSize::B8] {
            for_each_variant(|variant| {
                let Some(config) = FibConfig::new(hop_size).with_variant(variant) else { return };
                let fib = Dir24::build(&rib, &config).expect("there is memory");
                for (always, len) in (0..150).flat_map(|len| [(false, len), (true, len)]) {
                    fib.set_always_reads_groups(always);
                    let addresses: Vec<u32> = (0..len)
                        .map(|_| inside[random.index(inside.len())].first() | random.bits() as u32 & 0xff)
                        .collect();
                    let mut next_hops = vec![u64::MAX; len];
                    fib.lookup_batch(&addresses, &mut next_hops);
                    let expected: Vec<u64> = addresses
                        .iter()
                        .map(|address| rib.lookup(*address).map_or(0, |(_, hop)| hop))
                        .collect();
                    assert_eq!(next_hops, expected, "{variant}, {hop_size:?}");
                }
            });
        }
    }
}
