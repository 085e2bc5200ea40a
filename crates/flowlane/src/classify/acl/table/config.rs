//! Engines by name, and limits.

use std::fmt;
use std::str::FromStr;

use crate::classify::acl::{BruteKernel, BuildError, Dynamic, DynamicConfig, Entry, TreeKernel, WordKind};

/// Which engine looks up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
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

/// A text that is no engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no access-list engine `{0}`; there are auto, brute, tree and dynamic")]
pub struct AclEngineError(pub String);

impl AclEngine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Brute, Self::Tree, Self::Dynamic];

    /// The name, on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Brute => "brute",
            Self::Tree => "tree",
            Self::Dynamic => "dynamic",
        }
    }
}

impl fmt::Display for AclEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AclEngine {
    type Err = AclEngineError;

    fn from_str(text: &str) -> Result<Self, AclEngineError> {
        Self::ALL.into_iter().find(|e| e.name() == text).ok_or_else(|| AclEngineError(text.to_owned()))
    }
}

/// What a table may take, and how it looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclConfig {
    /// The engine.
    pub engine: AclEngine,
    /// The kernel of whichever engine; none: the fastest. One that cannot be used here counts as none.
    pub kernel: Option<TreeKernel>,
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
            kernel: None,
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

    /// The same with this kernel.
    pub fn with_kernel(self, kernel: TreeKernel) -> Self {
        Self { kernel: Some(kernel), ..self }
    }

    /// The kernel that was asked for, where it may be used here.
    pub(super) fn usable_kernel(&self) -> Option<TreeKernel> {
        self.kernel.filter(|kernel| kernel.available())
    }

    /// Up to so many rules brute force is fastest, as measured with sets of all kinds: against trees in vectors, and against
    /// others.
    pub(super) fn brute_rules_max(&self) -> usize {
        match self.usable_kernel().unwrap_or_else(TreeKernel::chosen) {
            TreeKernel::Avx512 | TreeKernel::Avx512x256 | TreeKernel::Avx2 => 10,
            _ => 32,
        }
    }

    /// The same for brute force.
    pub(super) fn brute_kernel(&self) -> Option<BruteKernel> {
        let kernel = self.usable_kernel()?;
        let half = kernel == TreeKernel::Avx512x256;
        Some(BruteKernel { half, ..BruteKernel::fastest_of(kernel.variant()) })
    }

    /// The dynamic engine with these entries and a plan for them.
    pub(super) fn dynamic<const W: usize>(
        &self,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        memory_max: usize,
    ) -> Result<Dynamic<W>, BuildError> {
        let variant = self.usable_kernel().map(TreeKernel::variant);
        Dynamic::build(kinds, entries, DynamicConfig { memory_max, variant, ..DynamicConfig::new(self.seed) })
    }
}
