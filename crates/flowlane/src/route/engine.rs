//! Forwarding tables by name.
//!
//! Which one is best depends on the table and on the machine, so programs choose when they run: [`AnyFib`] is a
//! forwarding table of whichever [`Engine`], for the cost of an indirect call a batch.

use std::fmt;
use std::str::FromStr;

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Address, BuildError, Fib, FibConfig, FibReader, Prefix, Rib};
use crate::dispatch::{self, KernelSlot};
use crate::isa::{Backend, Variant};
use crate::named_enum::{self, Named, UnknownName};

/// A kind of forwarding table.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Engine>)]
#[non_exhaustive]
pub enum Engine {
    /// A table of all first 24 bits, and groups for longer prefixes (IPv4).
    Dir24,
    /// The structure that takes the least memory (both).
    Compact,
}

impl Named for Engine {
    const KIND: &'static str = "engine of routes";
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 2] = named_enum::all();

    /// Returns the name, in files, logs and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Engine and variant of the tables of a family without an explicit choice: `compact/avx2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FibKernel {
    /// The engine.
    pub engine: Engine,
    /// The variant that looks batches up.
    pub variant: Variant,
}

impl FibKernel {
    /// Returns whether the family has such an engine, and the variant may be used here.
    pub fn available<A: Family>(self) -> bool {
        A::ENGINES.contains(&self.engine) && self.variant.available()
    }

    fn read<A: Family>(text: &str) -> Option<Self> {
        text.parse().ok().filter(|choice: &Self| choice.available::<A>())
    }
}

impl fmt::Display for FibKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.engine, self.variant)
    }
}

/// A text that is no [`FibKernel`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no engine and variant of routes, such as compact/avx512 or dir24/avx2")]
pub struct FibKernelError(pub String);

impl FromStr for FibKernel {
    type Err = FibKernelError;

    fn from_str(text: &str) -> Result<Self, FibKernelError> {
        let read = || {
            let (engine, variant) = text.split_once('/')?;
            Some(Self { engine: engine.parse().ok()?, variant: variant.parse().ok()? })
        };
        read().ok_or_else(|| FibKernelError(text.to_owned()))
    }
}

/// A family of addresses, for which there are engines.
pub trait Family: Address {
    /// Its engines.
    const ENGINES: &'static [Engine];

    /// Where it says which engine is first, and by which kernel it looks up.
    const SLOT: KernelSlot;

    /// Returns the address whose last bits are these: of IPv4 the last 32.
    fn from_words(high: u64, low: u64) -> Self;

    /// Returns the engine that these routes call for, whatever is fastest for others.
    fn called_for(_rib: &Rib<Self>) -> Option<Engine> {
        None
    }

    /// Returns the engine's table of the routes in `rib`; none where the family does not have the engine.
    ///
    /// # Errors
    /// [`BuildError`], before memory is taken.
    fn build(engine: Engine, rib: &Rib<Self>, config: &FibConfig)
    -> Option<Result<AnyFib<Self>, BuildError>>;
}

/// If more than one route in this number is longer than 24 bits, an engine is taken for which that costs little.
const LONG_SHARE: usize = 4;

impl Family for u32 {
    const ENGINES: &'static [Engine] = &[Engine::Compact, Engine::Dir24];
    const SLOT: KernelSlot = KernelSlot::Routes4;

    fn from_words(_high: u64, low: u64) -> Self {
        low as u32
    }

    /// Of routes beyond 24 bits the compact table takes six times as long as of others, and DIR-24-8 a third more.
    fn called_for(rib: &Rib<Self>) -> Option<Engine> {
        let long = rib.walk(Prefix::ALL).filter(|(prefix, _)| prefix.len() > 24).count();
        (long * LONG_SHARE > rib.len()).then_some(Engine::Dir24)
    }

    fn build(
        engine: Engine,
        rib: &Rib<Self>,
        config: &FibConfig,
    ) -> Option<Result<AnyFib<Self>, BuildError>> {
        match engine {
            Engine::Dir24 => Some(AnyFib::of::<super::v4::dir24::Dir24>(engine, rib, config)),
            Engine::Compact => Some(AnyFib::of::<super::v4::compact::Compact>(engine, rib, config)),
        }
    }
}

impl Family for u128 {
    const ENGINES: &'static [Engine] = &[Engine::Compact];
    const SLOT: KernelSlot = KernelSlot::Routes6;

    fn from_words(high: u64, low: u64) -> Self {
        u128::from(high) << 64 | u128::from(low)
    }

    fn build(
        engine: Engine,
        rib: &Rib<Self>,
        config: &FibConfig,
    ) -> Option<Result<AnyFib<Self>, BuildError>> {
        match engine {
            Engine::Compact => Some(AnyFib::of::<super::v6::compact::Compact>(engine, rib, config)),
            Engine::Dir24 => None,
        }
    }
}

/// A forwarding table of an engine that is known when the program runs: the writer's handle.
pub struct AnyFib<A: Address> {
    engine: Engine,
    table: Box<dyn AnyTable<A>>,
}

impl<A: Address> fmt::Debug for AnyFib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyFib").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl<A: Family> AnyFib<A> {
    fn of<F: Fib<A> + Send + Sync + 'static>(
        engine: Engine,
        rib: &Rib<A>,
        config: &FibConfig,
    ) -> Result<Self, BuildError>
    where
        F::Reader: 'static,
    {
        let config = if config.backend.is_some() { *config } else { Self::chosen(engine, config) };
        Ok(Self { engine, table: Box::new(F::build(rib, &config)?) })
    }

    /// Adds the backend selected for this engine, and the candidate of its trial.
    fn chosen(engine: Engine, config: &FibConfig) -> FibConfig {
        let chosen = dispatch::select_kernel(A::SLOT, FibKernel::read::<A>);
        let of = |choice: &FibKernel| Backend::of(choice.variant).filter(|_| choice.engine == engine);
        let backend = of(&chosen.choice);
        FibConfig { backend, candidate: backend.and(chosen.candidates.iter().find_map(of)), ..*config }
    }

    /// Which engine it is.
    pub fn engine(&self) -> Engine {
        self.engine
    }
}

impl<A: Family> Fib<A> for AnyFib<A> {
    type Reader = AnyReader<A>;

    /// The engine that measured fastest ([`dispatch`]), but for routes that [call for](Family::called_for) another; or another
    /// where that cannot hold these routes in the memory that there may be. Routes that come later do not change it.
    fn build(rib: &Rib<A>, config: &FibConfig) -> Result<Self, BuildError> {
        let (mut last, mut tried) = (None, Vec::new());
        let chosen = dispatch::choose(A::SLOT, FibKernel::read::<A>).engine;
        for engine in A::called_for(rib).into_iter().chain([chosen]).chain(A::ENGINES.iter().copied()) {
            if tried.contains(&engine) {
                continue;
            }
            tried.push(engine);
            match A::build(engine, rib, config) {
                Some(Err(error)) => last = Some(error),
                Some(Ok(fib)) => return Ok(fib),
                None => {}
            }
        }
        Err(last.expect("every family has an engine"))
    }

    fn update(&mut self, rib: &Rib<A>, changed: Prefix<A>) -> Result<(), BuildError> {
        self.table.update(rib, changed)
    }

    fn reader(&self) -> AnyReader<A> {
        AnyReader(self.table.reader())
    }

    fn lookup(&self, address: A) -> u64 {
        self.table.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]) {
        self.table.lookup_batch(addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }

    fn variant(&self) -> Variant {
        self.table.variant()
    }
}

/// A reader of an [`AnyFib`].
pub struct AnyReader<A: Address>(Box<dyn AnyView<A>>);

impl<A: Address> fmt::Debug for AnyReader<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyReader").finish_non_exhaustive()
    }
}

impl<A: Address> Clone for AnyReader<A> {
    fn clone(&self) -> Self {
        Self(self.0.another())
    }
}

impl<A: Address> FibReader<A> for AnyReader<A> {
    fn lookup(&self, address: A) -> u64 {
        self.0.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]) {
        self.0.lookup_batch(addresses, next_hops);
    }
}

/// [`Fib`] without its associated types.
trait AnyTable<A: Address>: Send + Sync {
    fn update(&mut self, rib: &Rib<A>, changed: Prefix<A>) -> Result<(), BuildError>;
    fn reader(&self) -> Box<dyn AnyView<A>>;
    fn lookup(&self, address: A) -> u64;
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]);
    fn table_bytes(&self) -> usize;
    fn variant(&self) -> Variant;
}

impl<A: Address, F: Fib<A> + Send + Sync> AnyTable<A> for F
where
    F::Reader: 'static,
{
    fn update(&mut self, rib: &Rib<A>, changed: Prefix<A>) -> Result<(), BuildError> {
        Fib::update(self, rib, changed)
    }

    fn reader(&self) -> Box<dyn AnyView<A>> {
        Box::new(Fib::reader(self))
    }

    fn lookup(&self, address: A) -> u64 {
        Fib::lookup(self, address)
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]) {
        Fib::lookup_batch(self, addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        Fib::table_bytes(self)
    }

    fn variant(&self) -> Variant {
        Fib::variant(self)
    }
}

/// [`FibReader`] as a trait object.
trait AnyView<A: Address>: Send {
    fn another(&self) -> Box<dyn AnyView<A>>;
    fn lookup(&self, address: A) -> u64;
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]);
}

impl<A: Address, R: FibReader<A> + 'static> AnyView<A> for R {
    fn another(&self) -> Box<dyn AnyView<A>> {
        Box::new(self.clone())
    }

    fn lookup(&self, address: A) -> u64 {
        FibReader::lookup(self, address)
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]) {
        FibReader::lookup_batch(self, addresses, next_hops);
    }
}
