//! Engine names and limits.

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::classify::acl::{Brute, BuildError, Dynamic, DynamicConfig, Entry, WordKind, tree};
use crate::isa::Variant;
use crate::named_enum::{self, Named, UnknownName};

/// Rules from which an overlay is planned: few, since the plan delays an insertion and most overlays are small.
const OVERLAY_SAMPLE: usize = 256;

/// The share of all rules that an overlay is planned for: fewer rules need fewer tables.
const OVERLAY_SHARE: f64 = 0.125;

/// The engines of access lists.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<AclEngine>)]
pub enum AclEngine {
    /// The fastest engine for the rules: by the measurements of [`Acl::choose`](super::Acl::choose), else by the number of
    /// rules and of those that lookups would read.
    #[default]
    Auto,
    /// Brute force: [`Brute`](crate::classify::acl::Brute).
    Brute,
    /// A decision tree: [`Tree`](crate::classify::acl::Tree).
    Tree,
    /// Hash tables that take changes: [`Dynamic`].
    Dynamic,
}

impl Named for AclEngine {
    const KIND: &'static str = "access-list engine";
}

impl AclEngine {
    /// All engines.
    pub const ALL: [Self; 4] = named_enum::all();

    /// Returns the name, as on the command line and in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The limits of a table, its engine and its variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclConfig {
    /// The engine.
    pub engine: AclEngine,
    /// The variant of the engine; `None`, or one that this CPU lacks: the fastest.
    pub variant: Option<Variant>,
    /// Most rules.
    pub rules_max: usize,
    /// Most bytes of rules and engines.
    pub memory_max: usize,
    /// Threads that build a tree, the caller's included.
    pub threads: usize,
    /// The seed of hashes: keep it secret where the traffic may be hostile.
    pub seed: u64,
}

impl Default for AclConfig {
    /// Returns `auto`, a million rules, 1 GiB, one thread.
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
    /// Sets the engine.
    pub fn with_engine(self, engine: AclEngine) -> Self {
        Self { engine, ..self }
    }

    /// Sets the variant.
    pub fn with_variant(self, variant: Variant) -> Self {
        Self { variant: Some(variant), ..self }
    }

    /// Returns the requested variant, where this CPU has it.
    pub(super) fn usable_variant(&self) -> Option<Variant> {
        self.variant.filter(|variant| variant.available())
    }

    /// Returns the number of rules up to which brute force is fastest, as measured with sets of all kinds: against trees with
    /// vector kernels, and against others.
    pub(super) fn brute_rules_max(&self) -> usize {
        match self.usable_variant().unwrap_or_else(|| tree::chosen().get().variant()) {
            Variant::Avx512 | Variant::Avx2 => 10,
            // By counted instructions (`docs/lab/neon-2026-11-30.md`): a tree takes as many as brute force over nine rules.
            Variant::Neon => 8,
            _ => 32,
        }
    }

    /// Builds brute force over these entries.
    pub(super) fn brute<const W: usize>(&self, kinds: &[WordKind; W], entries: &[Entry<W>]) -> Brute<W> {
        let brute = Brute::new(kinds, entries);
        match self.usable_variant().and_then(|variant| brute.clone().with_variant(variant)) {
            Some(asked) => asked,
            None => brute,
        }
    }

    /// Builds the dynamic engine with these entries and a plan for them.
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

    /// Builds a dynamic table without rules, planned for these.
    pub(super) fn dynamic_for<const W: usize>(
        &self,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
    ) -> Result<Dynamic<W>, BuildError> {
        let variant = self.usable_variant();
        let config = DynamicConfig { variant, ..DynamicConfig::new(self.seed) };
        Dynamic::for_a_part_of(kinds, entries, config, 1.0)
    }

    /// Builds a table without rules, planned for a share of these, from a sample of constant size.
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
