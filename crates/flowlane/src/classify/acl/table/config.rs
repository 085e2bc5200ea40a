//! Engines by name, and limits.

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::classify::acl::{Brute, BuildError, Dynamic, DynamicConfig, Entry, WordKind, tree};
use crate::isa::Variant;
use crate::named_enum::{self, Named, UnknownName};

/// Rules of which an overlay's plan is made that is to be there at once: it has few rules, mostly.
const OVERLAY_SAMPLE: usize = 256;

/// The share of all rules that an overlay is planned to have: with few of them, few tables do.
const OVERLAY_SHARE: f64 = 0.125;

/// Which engine looks up.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<AclEngine>)]
pub enum AclEngine {
    /// The one that is fastest for the rules: what [`Acl::choose`](super::Acl::choose) measured, else by their number and
    /// by how many of them lookups would read.
    #[default]
    Auto,
    /// [`Brute`](crate::classify::acl::Brute).
    Brute,
    /// [`Tree`](crate::classify::acl::Tree).
    Tree,
    /// [`Dynamic`].
    Dynamic,
}

impl Named for AclEngine {
    const KIND: &'static str = "access-list engine";
}

impl AclEngine {
    /// All of them.
    pub const ALL: [Self; 4] = named_enum::all();

    /// The name, on the command line and in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a table may take, and how it looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclConfig {
    /// The engine.
    pub engine: AclEngine,
    /// The variant of whichever engine; none: the fastest. One that cannot be used here counts as none.
    pub variant: Option<Variant>,
    /// Most rules.
    pub rules_max: usize,
    /// Most bytes of rules and engines.
    pub memory_max: usize,
    /// Threads that build a tree, the caller's among them.
    pub threads: usize,
    /// Of the hashes: keep it secret where the traffic may be hostile.
    pub seed: u64,
}

impl Default for AclConfig {
    /// Auto, a million rules, 1 GiB, one thread.
    fn default() -> Self {
        Self {
            engine: AclEngine::Auto,
            variant: None,
            rules_max: 1 << 20,
            memory_max: 1 << 30,
            threads: 1,
            seed: 0x5eed,
        }
    }
}

impl AclConfig {
    /// The same with this engine.
    pub fn with_engine(self, engine: AclEngine) -> Self {
        Self { engine, ..self }
    }

    /// The same with this variant.
    pub fn with_variant(self, variant: Variant) -> Self {
        Self { variant: Some(variant), ..self }
    }

    /// The variant that was asked for, where it may be used here.
    pub(super) fn usable_variant(&self) -> Option<Variant> {
        self.variant.filter(|variant| variant.available())
    }

    /// Up to so many rules brute force is fastest, as measured with sets of all kinds: against trees in vectors, and against
    /// others.
    pub(super) fn brute_rules_max(&self) -> usize {
        match self.usable_variant().unwrap_or_else(|| tree::chosen().get().variant()) {
            Variant::Avx512 | Variant::Avx2 => 10,
            _ => 32,
        }
    }

    /// Brute force over these entries.
    pub(super) fn brute<const W: usize>(&self, kinds: &[WordKind; W], entries: &[Entry<W>]) -> Brute<W> {
        let brute = Brute::new(kinds, entries);
        match self.usable_variant().and_then(|variant| brute.clone().with_variant(variant)) {
            Some(asked) => asked,
            None => brute,
        }
    }

    /// The dynamic engine with these entries and a plan for them.
    #[inline(never)]
    pub(super) fn dynamic<const W: usize>(
        &self,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        memory_max: usize,
    ) -> Result<Dynamic<W>, BuildError> {
        let variant = self.usable_variant();
        Dynamic::build(kinds, entries, DynamicConfig { memory_max, variant, ..DynamicConfig::new(self.seed) })
    }

    /// A dynamic table without rules, planned for these.
    pub(super) fn dynamic_for<const W: usize>(
        &self,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
    ) -> Result<Dynamic<W>, BuildError> {
        let variant = self.usable_variant();
        let config = DynamicConfig { variant, ..DynamicConfig::new(self.seed) };
        Dynamic::for_a_part_of(kinds, entries, config, 1.0)
    }

    /// A table without rules, planned for a part of these: roughly, from as many however many they are.
    pub(super) fn overlay_for<const W: usize>(
        &self,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
    ) -> Result<Dynamic<W>, BuildError> {
        let (variant, sample) = (self.usable_variant(), Some(OVERLAY_SAMPLE));
        let config = DynamicConfig { variant, sample, ..DynamicConfig::new(self.seed) };
        Dynamic::for_a_part_of(kinds, entries, config, OVERLAY_SHARE)
    }
}
