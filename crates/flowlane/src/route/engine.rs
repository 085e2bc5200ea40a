//! Forwarding tables by name.
//!
//! Which one is best depends on the table and on the machine, so programs choose when they run: [`AnyFib`] is a
//! forwarding table of whichever [`Engine`], for the cost of an indirect call a batch.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::v4::dir24::{self, Dir24};
use super::{Address, BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib, contest};
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
    /// A table of the first 16 bits, and tables of up to 16 further bits below it (IPv6).
    Trie,
}

impl Named for Engine {
    const KIND: &'static str = "engine of routes";
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = named_enum::all();

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

    /// Returns the words of which [`from_words`](Self::from_words) makes the address.
    fn to_words(self) -> [u64; 2];

    /// Returns the engine that these routes call for where nothing is measured, whatever is fastest for others.
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

impl AnyFib<u32> {
    /// Returns a DIR-24-8 whose entries are as small as the next hops and groups of the routes allow: of smaller ones more are in a
    /// cache line. A change that they cannot hold is [answered](Self::widen) by larger ones.
    fn fitting(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        let hops = rib.walk(Prefix::ALL).map(|(_, next_hop)| next_hop);
        let largest = hops.max().unwrap_or(0).max(config.default_next_hop);
        let fits = |size: &HopSize| *size < config.hop_size && largest <= dir24::next_hop_max(*size);
        for hop_size in HopSize::ALL.into_iter().filter(fits) {
            let narrow = FibConfig { hop_size, ..*config };
            if let Ok(fib) = Self::of::<Dir24>(Engine::Dir24, rib, &narrow) {
                return Ok(Self { asked: Some(*config), ..fib });
            }
        }
        Self::of::<Dir24>(Engine::Dir24, rib, config)
    }
}

/// If more than one route in this number is longer than 24 bits, an engine is taken for which that costs little.
const LONG_SHARE: usize = 4;

impl Family for u32 {
    const ENGINES: &'static [Engine] = &[Engine::Compact, Engine::Dir24];
    const SLOT: KernelSlot = KernelSlot::Routes4;

    fn from_words(_high: u64, low: u64) -> Self {
        low as u32
    }

    fn to_words(self) -> [u64; 2] {
        [0, self.into()]
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
            Engine::Dir24 => Some(AnyFib::fitting(rib, config)),
            Engine::Compact => Some(AnyFib::of::<super::v4::compact::Compact>(engine, rib, config)),
            Engine::Trie => None,
        }
    }
}

impl Family for u128 {
    const ENGINES: &'static [Engine] = &[Engine::Compact, Engine::Trie];
    const SLOT: KernelSlot = KernelSlot::Routes6;

    fn from_words(high: u64, low: u64) -> Self {
        u128::from(high) << 64 | u128::from(low)
    }

    fn to_words(self) -> [u64; 2] {
        [(self >> 64) as u64, self as u64]
    }

    fn build(
        engine: Engine,
        rib: &Rib<Self>,
        config: &FibConfig,
    ) -> Option<Result<AnyFib<Self>, BuildError>> {
        match engine {
            Engine::Compact => Some(AnyFib::of::<super::v6::compact::Compact>(engine, rib, config)),
            Engine::Trie => Some(AnyFib::of::<super::v6::compact::Trie>(engine, rib, config)),
            Engine::Dir24 => None,
        }
    }
}

/// A forwarding table of an engine that is known when the program runs: the writer's handle.
///
/// One that is [built](Fib::build) without the name of an engine takes the one that answers fastest: measured, where there is a
/// clock ([`dispatch::set_trial_clock`]), else by a rule of thumb. It is chosen again when it cannot hold a change, by
/// [`renew`](Self::renew), and where there is a clock when much has changed. Such a change takes as long as building the table with each
/// engine of the family, which are in memory beside the former table until then. Readers go on in the new one with their next batch; one
/// that looks nothing up keeps the former one.
pub struct AnyFib<A: Address> {
    engine: Engine,
    table: Box<dyn AnyTable<A>>,
    current: Arc<Current<A>>,
    /// The configuration asked for, where the table's next hops are smaller.
    asked: Option<FibConfig>,
    /// How the engine is chosen; none where it was named.
    choice: Option<Choice<A>>,
}

/// The table that readers look up in now.
struct Current<A: Address> {
    /// How many tables there have been before.
    version: AtomicU64,
    view: Mutex<Box<dyn AnyView<A>>>,
}

/// How the engine of a table is chosen.
#[derive(Clone, Debug)]
struct Choice<A> {
    config: FibConfig,
    /// The addresses by which it was chosen; none: addresses within the routes.
    recent: Vec<A>,
    /// Changes since it was chosen.
    changes: usize,
    /// No other engine could hold what this one cannot. They are not asked again before many changes.
    is_full: bool,
}

/// The engine is chosen again after this many changes, and as many as half of the routes.
const CHANGES_MIN: usize = 1024;

impl<A: Address> fmt::Debug for AnyFib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyFib").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl<A: Address> Current<A> {
    fn view(&self) -> MutexGuard<'_, Box<dyn AnyView<A>>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
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
        let table: Box<dyn AnyTable<A>> = Box::new(F::build(rib, &config)?);
        let current = Current { version: AtomicU64::new(0), view: Mutex::new(table.reader()) };
        Ok(Self { engine, table, current: Arc::new(current), asked: None, choice: None })
    }

    /// Adds the backend selected for this engine, and the candidate of its trial.
    fn chosen(engine: Engine, config: &FibConfig) -> FibConfig {
        let chosen = dispatch::select_kernel(A::SLOT, FibKernel::read::<A>);
        let of = |choice: &FibKernel| Backend::of(choice.variant).filter(|_| choice.engine == engine);
        let backend = of(&chosen.choice);
        FibConfig { backend, candidate: backend.and(chosen.candidates.iter().find_map(of)), ..*config }
    }

    /// Returns the table whose engine answers `recent` addresses fastest; or addresses within the routes, where there are none.
    ///
    /// # Errors
    /// [`BuildError`] of the last engine, where none can hold the routes in the memory that there may be.
    pub fn build_for(rib: &Rib<A>, config: &FibConfig, recent: &[A]) -> Result<Self, BuildError> {
        let mut last = None;
        let mut built = engines(rib).into_iter().filter_map(|engine| match A::build(engine, rib, config)? {
            Ok(fib) => Some(fib),
            Err(error) => {
                last = Some(error);
                None
            }
        });
        let fastest = match dispatch::clock().filter(|_| config.measures) {
            Some(clock) => contest::fastest(built.collect(), rib, recent, clock),
            None => built.next(),
        };
        let fib = fastest.ok_or_else(|| last.expect("every family has an engine"))?;
        let choice = Choice { config: *config, recent: recent.to_vec(), changes: 0, is_full: false };
        Ok(Self { choice: Some(choice), ..fib })
    }

    /// Chooses the engine again, by `recent` addresses; or by addresses within the routes, where there are none. Does nothing where
    /// the engine was named. Takes as long as building the table with each engine.
    ///
    /// # Errors
    /// [`BuildError`]: no engine can hold the routes; the table is as it was.
    pub fn renew(&mut self, rib: &Rib<A>, recent: &[A]) -> Result<(), BuildError> {
        let Some(choice) = &self.choice else { return Ok(()) };
        let mut new = Self::build_for(rib, &choice.config, recent)?;
        self.choice = new.choice.take();
        self.replace(new);
        Ok(())
    }

    /// Takes larger next hops, where the table has smaller ones than it was asked for and `refused` a change for that.
    fn widen(&mut self, rib: &Rib<A>, refused: BuildError) -> Result<(), BuildError> {
        let is_narrow = matches!(refused, BuildError::HopTooLarge { .. } | BuildError::TooManyGroups { .. });
        let Some(asked) = self.asked.filter(|_| is_narrow) else { return Err(refused) };
        let new = A::build(self.engine, rib, &asked).expect("the family has the engine")?;
        self.replace(new);
        Ok(())
    }

    /// Puts another table in the place of this one, for the writer and for readers.
    fn replace(&mut self, new: Self) {
        let Self { engine, table, current: _, asked, choice: _ } = new;
        (self.engine, self.asked) = (engine, asked);
        let former = std::mem::replace(&mut self.table, table);
        let former_view = std::mem::replace(&mut *self.current.view(), self.table.reader());
        self.current.version.fetch_add(1, Ordering::Release);
        // Memory is given back here, where no reader waits for it.
        drop((former, former_view));
    }

    /// The table, where vectors look up in a DIR-24-8 with groups: they may read these in two ways.
    pub(super) fn dir24_by_vectors(&self) -> Option<&Dir24> {
        let dir24 = self.table.as_any().downcast_ref::<Dir24>();
        dir24.filter(|dir24| dir24.groups() > 0 && self.table.variant() != Variant::Scalar)
    }

    /// Which engine it is.
    pub fn engine(&self) -> Engine {
        self.engine
    }
}

/// Returns the engines of a family, in the order in which they are taken where nothing is measured.
fn engines<A: Family>(rib: &Rib<A>) -> Vec<Engine> {
    let selected = dispatch::choose(A::SLOT, FibKernel::read::<A>).engine;
    let mut engines: Vec<Engine> = Vec::new();
    for engine in A::called_for(rib).into_iter().chain([selected]).chain(A::ENGINES.iter().copied()) {
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    engines
}

impl<A: Family> Fib<A> for AnyFib<A> {
    type Reader = AnyReader<A>;

    /// The engine that answers addresses within the routes fastest, of those that can hold the routes in the memory that there may be.
    fn build(rib: &Rib<A>, config: &FibConfig) -> Result<Self, BuildError> {
        Self::build_for(rib, config, &[])
    }

    fn update(&mut self, rib: &Rib<A>, changed: Prefix<A>) -> Result<(), BuildError> {
        let updated = self.table.update(rib, changed).or_else(|refused| self.widen(rib, refused));
        let Some(choice) = &mut self.choice else { return updated };
        choice.changes += 1;
        let is_much = choice.changes >= CHANGES_MIN.max(rib.len() / 2);
        let is_chosen = match updated {
            // Without a clock there is nothing to be found out.
            Ok(()) => is_much && choice.config.measures && dispatch::clock().is_some(),
            // Another engine may hold what this one cannot.
            Err(_) => is_much || !choice.is_full,
        };
        if !is_chosen {
            return updated;
        }
        (choice.changes, choice.is_full) = (0, updated.is_err());
        let recent = std::mem::take(&mut choice.recent);
        let renewed = self.renew(rib, &recent);
        if renewed.is_err()
            && let Some(choice) = &mut self.choice
        {
            choice.recent = recent;
        }
        match updated {
            // This engine holds them.
            Ok(()) => Ok(()),
            Err(_) => renewed.or(updated),
        }
    }

    fn reader(&self) -> AnyReader<A> {
        AnyReader {
            version: Cell::new(self.current.version.load(Ordering::Acquire)),
            view: RefCell::new(self.table.reader()),
            current: self.current.clone(),
        }
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
pub struct AnyReader<A: Address> {
    current: Arc<Current<A>>,
    /// That of the view.
    version: Cell<u64>,
    view: RefCell<Box<dyn AnyView<A>>>,
}

impl<A: Address> fmt::Debug for AnyReader<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyReader").finish_non_exhaustive()
    }
}

impl<A: Address> AnyReader<A> {
    /// Looks up in the present table.
    #[inline]
    fn with<R>(&self, look_up: impl FnOnce(&dyn AnyView<A>) -> R) -> R {
        if self.current.version.load(Ordering::Acquire) != self.version.get() {
            self.follow();
        }
        look_up(&**self.view.borrow())
    }

    /// Takes the table of another engine.
    #[cold]
    fn follow(&self) {
        let view = self.current.view();
        // The writer changes it behind the view: then it is followed once more.
        self.version.set(self.current.version.load(Ordering::Acquire));
        let new = view.another();
        drop(view);
        // The former table's memory may be given back, which others need not wait for.
        drop(self.view.replace(new));
    }
}

impl<A: Address> Clone for AnyReader<A> {
    fn clone(&self) -> Self {
        let view = RefCell::new(self.view.borrow().another());
        Self { current: self.current.clone(), version: self.version.clone(), view }
    }
}

impl<A: Family> FibReader<A> for AnyReader<A> {
    fn lookup(&self, address: A) -> u64 {
        self.with(|view| view.lookup(address))
    }

    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]) {
        self.with(|view| view.lookup_batch(addresses, next_hops));
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
    fn as_any(&self) -> &dyn Any;
}

impl<A: Address, F: Fib<A> + Send + Sync + 'static> AnyTable<A> for F
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

    fn as_any(&self) -> &dyn Any {
        self
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
