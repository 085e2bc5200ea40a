//! Access lists over flow keys: any set of [`Match`]es.
//!
//! The words of the flow key that any rule looks at become the engine's key, of 4, 10, 16 or 64 words. A word with
//! the same condition in all rules (that the packet is IPv4, say) is a *gate*: it is compared once a packet
//! before the lookup, so that a list of IPv4 5-tuples has a key of four words. A rule that looks at another word, or lacks the
//! condition of a gate, rebuilds the table in another shape. Ports under a mask that is no prefix, which is no range either,
//! have a word of their own.
//!
//! Rules inserted after the table was built go to the overlay ([`table`](super::table)); as soon as there are as many
//! as are in the bulk, they are merged, so that inserting rules one by one costs a constant number of builds a rule.

mod columns;
mod shape;
mod table;

use std::sync::Arc;

pub use self::shape::FlowShape;
use self::table::{FlowRule, FlowTable};
use super::table::AclContest;
use super::{AclConfig, AclEngine, BuildError, CATEGORIES_MAX};
use crate::classify::{Hit, InsertError, ReplicatedEngine, RuleEngine};
use crate::isa::Variant;
use crate::packet::batch::LaneMask;
use crate::packet::columns::FlowColumns;
use crate::packet::fields::Prerequisite;
use crate::packet::parse::ether_type::{ARP, RARP};
use crate::packet::{Field, FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

/// The categories of rules that are given without any: category 0, which plain lookups answer for.
const PLAIN: u16 = 1;

/// Something that has a match: a [`Match`] itself, or a rule with actions. Every copy of a table shares it.
pub trait HasMatch: Send + Sync {
    /// Returns the match.
    fn matches(&self) -> &Match;
}

#[doc(hidden)]
impl HasMatch for Match {
    fn matches(&self) -> &Match {
        self
    }
}

#[doc(hidden)]
impl HasMatch for crate::rule::Rule {
    fn matches(&self) -> &Match {
        &self.matches
    }
}

/// Returns the bits that a match looks at.
pub(crate) fn looks_at(matches: &Match) -> FlowMask {
    let mut looked_at = matches.mask();
    let ranges = [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())];
    ranges.iter().filter(|(_, range)| range.is_some()).for_each(|(field, _)| looked_at.add_field(*field));
    looked_at
}

/// Why a rule won for a flow key, and the cost of the lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowExplanation {
    /// The rule that won.
    pub winner: Option<RuleId>,
    /// The rule that would win without it.
    pub runner_up: Option<RuleId>,
    /// The engine that has the bulk of the rules.
    pub engine: &'static str,
    /// The variant that looks up in it.
    pub variant: Variant,
    /// Nodes, hash buckets or filters that the lookup read.
    pub nodes: u32,
    /// Rules that the lookup compared the key with.
    pub rules: u32,
    /// The bits of the key that the winner depends on.
    pub looked_at: FlowMask,
}

/// An access list over flow keys.
///
/// ```
/// use flowlane::classify::acl::AclConfig;
/// use flowlane::classify::{AclSearch, RuleEngine};
/// use flowlane::rule::{ReadOptions, RuleId, read};
///
/// let list = "tcp,nw_src=10.0.0.0/8,tp_dst=22,actions=output:1\nip,actions=drop";
/// let rules = read(list, "list.txt", None, &ReadOptions::default())?;
/// let entries = (0..).map(RuleId).zip(&rules).map(|(id, rule)| (id, rule.priority, &rule.matches));
/// let table = AclSearch::build(AclConfig::default(), entries)?;
/// let keys = [rules[1].matches.key(), rules[0].matches.key()];
/// let mut hits = [None; 2];
/// table.lookup_batch(&keys, &mut hits);
/// assert_eq!(hits.map(|hit| hit.map(|hit| hit.rule)), [Some(RuleId(1)), Some(RuleId(0))]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AclSearch {
    config: AclConfig,
    /// The rules and their engine, for keys of the width that the rules need.
    table: Box<dyn FlowTable>,
}

impl AclSearch {
    /// Creates an empty table.
    pub fn new(config: AclConfig) -> Self {
        let table = table::table(config, Vec::new());
        Self { config, table: table.expect("no rules need no memory") }
    }

    /// Builds a table of rules; of equal priority the earlier wins.
    ///
    /// # Errors
    /// Where there are too many, two have the same number, or the budget is too small.
    pub fn build<'a>(
        config: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match)>,
    ) -> Result<Self, BuildError> {
        let rules = rules.into_iter().map(|(id, priority, matches)| FlowRule {
            id,
            priority,
            matches: Arc::new(matches.clone()),
            categories: PLAIN,
        });
        Ok(Self { config, table: table::table(config, rules.collect())? })
    }

    /// Builds a table of rules that count in some of up to [`CATEGORIES_MAX`](super::CATEGORIES_MAX) categories, a bit each:
    /// several lists that one pass resolves.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use flowlane::classify::AclSearch;
    /// use flowlane::classify::acl::AclConfig;
    /// use flowlane::packet::Field;
    /// use flowlane::rule::{Match, Priority, RuleId};
    ///
    /// // Category 0 decides whether a packet may pass, category 1 how urgent it is.
    /// let (mut ssh, mut voice) = (Match::any(), Match::any());
    /// ssh.set(Field::TpDst, 22);
    /// voice.set_range(Field::TpDst, 16_384, 32_767);
    /// let rules = [
    ///     (RuleId(0), Priority(2), ssh, 0b01),
    ///     (RuleId(1), Priority(1), Match::any(), 0b11),
    ///     (RuleId(2), Priority(2), voice, 0b10),
    /// ];
    /// let rules = rules.map(|(id, priority, matches, bits)| (id, priority, Arc::new(matches) as _, bits));
    /// let table = AclSearch::build_with_categories(AclConfig::default(), rules)?;
    /// let mut key = Match::any().key();
    /// key.set(Field::TpDst, 20_000);
    /// let mut hits = [None; 2];
    /// table.lookup_categories(&[key], 2, &mut hits);
    /// assert_eq!(hits.map(|hit| hit.map(|hit| hit.rule.0)), [Some(1), Some(2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with_categories(
        config: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, Arc<dyn HasMatch>, u16)>,
    ) -> Result<Self, BuildError> {
        let rules = rules.into_iter().map(|(id, priority, matches, categories)| FlowRule {
            id,
            priority,
            matches,
            categories,
        });
        Ok(Self { config, table: table::table(config, rules.collect())? })
    }

    /// Adds a rule that counts in these categories behind all others of its priority.
    ///
    /// # Errors
    /// Where `id` is in use or the table is full; the table is as before.
    pub fn insert_with_categories(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: Arc<dyn HasMatch>,
        categories: u16,
    ) -> Result<(), InsertError> {
        if self.table.priority(id).is_some() {
            return Err(InsertError::Duplicate(id));
        }
        if self.len() >= self.config.rules_max {
            return Err(InsertError::Full { rules_max: self.config.rules_max });
        }
        let rule = FlowRule { id, priority, matches, categories };
        if !self.is_empty() && self.table.suits(rule.matches.matches()) {
            return Ok(self.table.insert(rule)?);
        }
        let mut rules = self.table.rules();
        rules.push(rule);
        Ok(self.reshape(self.config, rules)?)
    }

    /// Gives a rule another match and priority, as [`RuleEngine::replace`] does. Returns whether the rule was there.
    pub fn replace_with(&mut self, id: RuleId, priority: Priority, matches: Arc<dyn HasMatch>) -> bool {
        if self.table.priority(id).is_none() {
            return false;
        }
        if self.table.suits(matches.matches()) && self.table.replace(id, priority, matches.clone()).is_ok() {
            return true;
        }
        // The match looks at other words, or there is no room for the overlay. A replacement is never
        // refused: the budget bounds insertions.
        let mut rules = self.table.rules();
        let rule = rules.iter_mut().find(|rule| rule.id == id).expect("the rule has a priority");
        (rule.priority, rule.matches) = (priority, matches);
        let unlimited = AclConfig { memory_max: usize::MAX, ..self.config };
        self.reshape(unlimited, rules).expect("there are as many rules as before, and no limit");
        true
    }

    /// Finds the best rule of each category for each key, in one pass: `hits[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `hits` is not
    /// `keys.len() * categories` long.
    pub fn lookup_categories(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]) {
        check_categories(categories, keys.len(), hits.len());
        self.table.lookup_hits(keys, categories, hits);
    }

    /// Finds the rule number of the best rule of each category for each key, or [`u32::MAX`]:
    /// `rules[key * categories + category]`.
    ///
    /// # Panics
    /// As [`lookup_categories`](Self::lookup_categories).
    pub fn lookup_numbers(&self, keys: &[FlowKey], categories: usize, rules: &mut [u32]) {
        check_categories(categories, keys.len(), rules.len());
        self.table.lookup_numbers(keys, categories, rules);
    }

    /// Finds the rule number of each packet's best rule, or [`u32::MAX`] where none matches. Columns need no flow keys, so
    /// the lookup is twice as fast where packets are columns anyway.
    ///
    /// ```
    /// use flowlane::classify::AclSearch;
    /// use flowlane::classify::acl::AclConfig;
    /// use flowlane::packet::Field;
    /// use flowlane::packet::columns::{FlowColumns, Values};
    /// use flowlane::rule::{ReadOptions, RuleId, read};
    ///
    /// let rules = read("udp,tp_dst=53,actions=output:1", "rules", None, &ReadOptions::default())?;
    /// let table = AclSearch::build(AclConfig::default(), [(RuleId(7), rules[0].priority, &rules[0].matches)])?;
    /// let packets = FlowColumns::new(3)
    ///     .with(Field::EthType, Values::One(0x0800))?
    ///     .with(Field::NwProto, Values::U8(&[17, 6, 17]))?
    ///     .with(Field::TpDst, Values::U16(&[53, 53, 54]))?;
    /// let mut rules = [0; 3];
    /// table.lookup_columns(&packets, &mut rules);
    /// assert_eq!(rules, [7, u32::MAX, u32::MAX]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Where there are not as many `rules` as packets.
    pub fn lookup_columns(&self, packets: &FlowColumns<'_>, rules: &mut [u32]) {
        assert_eq!(packets.len(), rules.len(), "a rule for each packet");
        self.table.lookup_columns(packets, 1, rules);
    }

    /// Finds the rule number of the best rule of each packet and category: `rules[packet * categories + category]`.
    ///
    /// # Panics
    /// As [`lookup_categories`](Self::lookup_categories).
    pub fn lookup_column_categories(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        check_categories(categories, packets.len(), rules.len());
        self.table.lookup_columns(packets, categories, rules);
    }

    /// Returns the bits of a key that any rule looks at.
    pub fn looked_at(&self) -> FlowMask {
        let mut looked_at = FlowMask::zero();
        self.table.for_each_match(&mut |matches| looked_at.add(&looks_at(matches)));
        looked_at
    }

    /// Returns the fields that any rule looks at. Two may share a place: addresses are ARP's where a rule is for ARP.
    pub fn fields(&self) -> Vec<Field> {
        let (mut plain, mut arp) = (FlowMask::zero(), FlowMask::zero());
        self.table.for_each_match(&mut |matches| {
            let (eth_type, mask) = matches.get(Field::EthType);
            let is_arp = mask == 0xffff && [u128::from(ARP), RARP.into()].contains(&eth_type);
            if is_arp { &mut arp } else { &mut plain }.add(&looks_at(matches));
        });
        let fields = Field::all().iter().filter(|info| match info.prerequisite {
            Prerequisite::Arp => arp.get(info.field) != 0,
            Prerequisite::Ipv4 | Prerequisite::NeighbourDiscovery => plain.get(info.field) != 0,
            _ => arp.get(info.field) | plain.get(info.field) != 0,
        });
        fields.map(|info| info.field).collect()
    }

    /// Replaces the table by one of these rules, in the shape that they need.
    fn reshape(&mut self, config: AclConfig, rules: Vec<FlowRule>) -> Result<(), BuildError> {
        let mut table = table::table(config, rules)?;
        if self.table.rebuilds_deferred() {
            table.defer_rebuilds();
        }
        self.table = table;
        Ok(())
    }

    /// Merges all changes since the last rebuild into the bulk.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn rebuild(&mut self) -> Result<(), BuildError> {
        self.table.rebuild()
    }

    /// Measures the engines with these packets, or with some drawn from the rules where there are none, and rebuilds with
    /// the fastest: see [`Acl::choose`](super::Acl::choose).
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn choose(
        &mut self,
        sample: &[FlowKey],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError> {
        self.table.choose(sample, clock)
    }

    /// Rebuilds the table with this engine, and prefers it as long as the number of rules changes little: an engine that
    /// [`choose`](Self::choose) has found before, say. Does nothing where it is the present one.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn prefer(&mut self, engine: AclEngine) -> Result<(), BuildError> {
        match self.engine().0 == engine.name() || engine == AclEngine::Auto {
            true => Ok(()),
            false => self.table.rebuild_with(engine),
        }
    }

    /// Returns the name of the engine that has the bulk of the rules, and its variant.
    pub fn engine(&self) -> (&'static str, Variant) {
        self.table.engine()
    }

    /// Explains the answer for a key. Compares the key with all rules to find the runner-up.
    pub fn explain(&self, key: &FlowKey) -> FlowExplanation {
        self.table.explain(key)
    }
}

fn check_categories(categories: usize, packets: usize, results: usize) {
    assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
    assert_eq!(packets * categories, results, "a result for each packet and category");
}

impl ReplicatedEngine for AclSearch {
    fn clone_box(&self) -> Box<dyn ReplicatedEngine> {
        Box::new(self.clone())
    }

    fn engine_name(&self) -> &'static str {
        self.engine().0
    }

    fn defer_rebuilds(&mut self) {
        self.table.defer_rebuilds();
    }

    fn prepare_changes(&mut self) {
        self.table.prepare_changes();
    }

    fn takes_changes(&self) -> bool {
        self.table.takes_changes()
    }

    fn pending_updates(&self) -> usize {
        self.table.pending_updates()
    }
}

impl RuleEngine for AclSearch {
    fn name(&self) -> &'static str {
        match self.config.engine {
            AclEngine::Auto => "acl",
            named => named.name(),
        }
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.insert_with_categories(id, priority, Arc::new(matches.clone()), PLAIN)
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.table.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        self.replace_with(id, priority, Arc::new(matches.clone()))
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.table.lookup(key)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        self.table.lookup_wildcards(key, looked_at)
    }

    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        assert_eq!(keys.len(), hits.len());
        self.table.lookup_hits(keys, 1, hits);
    }

    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        self.table.lookup_lanes(keys, lanes, hits);
    }

    fn rules_max(&self) -> Option<usize> {
        Some(self.config.rules_max)
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }
}
