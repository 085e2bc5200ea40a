//! Snapshots of classifiers: immutable, shared, and the type whose methods look packets up.

use std::sync::Arc;

use super::{Field, FlowColumns, FlowKey, FlowMask, Match};
use crate::classify::acl::looks_at;
use crate::classify::{AclSearch, RuleEngine as _};

/// The number that means no rule, and no next hop.
pub const NONE: u32 = u32::MAX;

/// The rules of a classifier at one time, for lookups on any number of threads. Lookups of many packets neither allocate nor wait
/// nor start threads.
///
/// A [`Classifier`](super::Classifier) has its present one ([`list`](super::Classifier::list)); a [`Reader`](super::Reader) returns
/// the published one.
/// Clones share the rules and cost nothing.
#[derive(Clone, Debug)]
pub struct ClassifierSnapshot {
    list: Arc<List>,
}

#[derive(Clone, Debug)]
struct List {
    search: AclSearch,
    /// Bits that any rule looks at, or has looked at before a change.
    looked_at: FlowMask,
}

/// Why a rule won for one packet: see [`ClassifierSnapshot::explain`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The winning rule.
    pub rule: Option<u32>,
    /// The one that would win without it.
    pub next_rule: Option<u32>,
    /// The engine that has most of the rules.
    pub engine: &'static str,
    /// The engine's variant: `scalar`, `sse42`, `avx2` or `avx512`.
    pub variant: &'static str,
    /// Nodes, hash buckets or filters that the lookup read.
    pub nodes: u32,
    /// Rules that the lookup compared the packet with.
    pub rules: u32,
    /// The bits that the answer depends on: packets that agree in them have the same answer.
    pub depends_on: FlowMask,
}

impl ClassifierSnapshot {
    pub(super) fn new(search: AclSearch) -> Self {
        let looked_at = search.looked_at();
        Self { list: Arc::new(List { search, looked_at }) }
    }

    /// Makes a change, in a copy where other snapshots share the rules.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut AclSearch) -> R) -> R {
        change(&mut Arc::make_mut(&mut self.list).search)
    }

    /// Adds the bits of a new rule to those that rules look at.
    pub(super) fn look_at(&mut self, matches: &Match) {
        Arc::make_mut(&mut self.list).looked_at.add(&looks_at(matches));
    }

    /// Finds the winning rule of one packet. For many, [`lookup_keys`](Self::lookup_keys) is several times as fast.
    pub fn lookup(&self, key: &FlowKey) -> Option<u32> {
        self.list.search.lookup(key).map(|hit| hit.rule.0)
    }

    /// Finds the winning rule of each packet, or [`NONE`]: `rules[i]` for `keys[i]`. Takes any number of packets; batches of 32
    /// are worth a call, and from 128 on lookups are fastest.
    ///
    /// ```
    /// use flowlane::{ClassifierBuilder, Field, FlowKey, NONE, Parser, read_rules};
    ///
    /// let acl = ClassifierBuilder::new().build(read_rules("dl_type=0x88b5,actions=drop", "rules")?)?;
    /// // From Ethernet frames of 60 bytes, received on port 1, to the numbers of their rules.
    /// let mut frames = [[0; 60]; 2];
    /// frames[0][12..14].copy_from_slice(&[0x88, 0xb5]);
    /// frames[1][12..14].copy_from_slice(&[0x88, 0xb6]);
    /// let parser = Parser::new();
    /// let mut keys = [const { FlowKey::zero() }; 2];
    /// for (frame, key) in frames.iter().zip(&mut keys) {
    ///     parser.parse_one(frame, 1, key);
    /// }
    /// let mut rules = [0; 2];
    /// acl.lookup_keys(&keys, &mut rules);
    /// assert_eq!(rules, [0, NONE]);
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    ///
    /// # Panics
    /// Where there are not as many `rules` as `keys`.
    pub fn lookup_keys(&self, keys: &[FlowKey], rules: &mut [u32]) {
        assert_eq!(keys.len(), rules.len(), "a rule for each packet");
        self.list.search.lookup_numbers(keys, 1, rules);
    }

    /// Finds the winning rule of packets whose fields are columns. This needs no keys, and is faster where packets are columns anyway.
    ///
    /// # Panics
    /// Where there are not as many `rules` as packets.
    pub fn lookup_columns(&self, packets: &FlowColumns<'_>, rules: &mut [u32]) {
        self.list.search.lookup_columns(packets, rules);
    }

    /// Finds the winning rule of each packet in each of the first `categories` lists, in one pass over the packets:
    /// `rules[packet * categories + category]`, or [`NONE`]. See
    /// [`build_categories`](super::ClassifierBuilder::build_categories); other lookups answer for category 0.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `rules` is not `keys.len() * categories` long.
    pub fn lookup_categories(&self, keys: &[FlowKey], categories: usize, rules: &mut [u32]) {
        self.list.search.lookup_numbers(keys, categories, rules);
    }

    /// Finds the winning rule in each category of packets whose fields are columns.
    ///
    /// # Panics
    /// As [`lookup_categories`](Self::lookup_categories).
    pub fn lookup_column_categories(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        self.list.search.lookup_column_categories(packets, categories, rules);
    }

    /// Explains which rule wins for one packet, and why. To find the runner-up it compares the packet with all rules: for people, not
    /// for every packet.
    ///
    /// ```
    /// use flowlane::{ClassifierBuilder, Field, FlowKey, read_rules};
    ///
    /// let acl = ClassifierBuilder::new().build(read_rules("udp,tp_dst=53,actions=drop\nudp,actions=drop", "rules")?)?;
    /// let mut key = FlowKey::zero();
    /// key.set(Field::EthType, 0x0800);
    /// key.set(Field::NwProto, 17);
    /// key.set(Field::TpDst, 53);
    /// let explained = acl.explain(&key);
    /// assert_eq!((explained.rule, explained.next_rule), (Some(0), Some(1)));
    /// assert_eq!(explained.depends_on.get(Field::TpDst), 0xffff);
    /// assert_eq!(explained.depends_on.get(Field::Ipv4Src), 0);
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    pub fn explain(&self, key: &FlowKey) -> Explanation {
        let found = self.list.search.explain(key);
        Explanation {
            rule: found.winner.map(|rule| rule.0),
            next_rule: found.runner_up.map(|rule| rule.0),
            engine: found.engine,
            variant: found.variant.name(),
            nodes: found.nodes,
            rules: found.rules,
            depends_on: found.looked_at,
        }
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.list.search.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the fields that any rule looks at: the columns that packets need. Two may share a place: addresses are ARP's where a
    /// rule is for ARP.
    pub fn fields(&self) -> Vec<Field> {
        self.list.search.fields()
    }

    /// Returns the bits of packets that any rule looks at, or has looked at before a change.
    pub fn looked_at(&self) -> &FlowMask {
        &self.list.looked_at
    }

    /// Returns the name of the engine that has most of the rules: `tree`, `dynamic` or `brute`.
    pub fn engine(&self) -> &'static str {
        self.list.search.engine().0
    }

    /// Returns the engine's variant: `scalar`, `sse42`, `avx2` or `avx512`.
    pub fn variant(&self) -> &'static str {
        self.list.search.engine().1.name()
    }

    /// Returns the bytes of rules and engine.
    pub fn table_bytes(&self) -> usize {
        self.list.search.table_bytes()
    }
}
