//! Access lists as [`RuleEngine`]s: any set of [`Match`]es over flow keys.
//!
//! The words of the flow key at which any rule looks become the engine's key, of 4, 10, 16 or 64 words. A word of
//! which all rules ask the same (that the packet is IPv4, say) is no part of the key: it is compared once a packet,
//! before, so that a list of IPv4 5-tuples has a key of four words. A rule that looks at another word, or does not ask
//! what all others do, makes the table anew. Ports under a mask that is no prefix, which is no range either, have a
//! word of their own.
//!
//! Rules that come after the table was built go to the overlay ([`table`](super::table)); as soon as there are as many
//! as are in the bulk, they are merged, so that inserting rules one by one costs a constant number of builds a rule.

mod columns;
mod shape;
mod table;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::shape::FlowShape;
use self::table::FlowTable;
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

/// The category of rules of which nothing is said: the one that is looked up where nothing is said either.
const PLAIN: u16 = 1;

/// So many changes are no reason to build a table anew: a tree of twice as many rules takes 0.1 ms.
const CHANGES_MIN: usize = 16;

/// The bits that a match looks at.
pub(crate) fn looks_at(matches: &Match) -> FlowMask {
    let mut looked_at = matches.mask();
    let ranges = [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())];
    ranges.iter().filter(|(_, range)| range.is_some()).for_each(|(field, _)| looked_at.add_field(*field));
    looked_at
}

/// A rule as it was given.
#[derive(Clone, Debug)]
struct Rule {
    priority: Priority,
    /// Its place among its equals.
    sequence: u64,
    /// Copies of the table share it.
    matches: Arc<Match>,
    /// In which it counts, one bit each.
    categories: u16,
}

type Rules = HashMap<RuleId, Rule>;

/// How the answer for a flow key came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowExplanation {
    /// The rule that won.
    pub winner: Option<RuleId>,
    /// The one that would win without it.
    pub runner_up: Option<RuleId>,
    /// The engine that has the bulk of the rules.
    pub engine: &'static str,
    /// The variant that looks up in it.
    pub variant: Variant,
    /// Nodes, hash buckets or filters that were read.
    pub nodes: u32,
    /// Rules that the key was compared with.
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
    rules: Rules,
    sequence: u64,
    table: Box<dyn FlowTable>,
    /// Whoever owns it has it built anew.
    merged_aside: bool,
}

impl Clone for Box<dyn FlowTable> {
    fn clone(&self) -> Self {
        self.clone_box()
    }
}

impl AclSearch {
    /// An empty table.
    pub fn new(config: AclConfig) -> Self {
        let table = table::table(FlowShape::default(), config, &Rules::new());
        Self {
            config,
            rules: Rules::new(),
            sequence: 0,
            table: table.expect("no rules need no memory"),
            merged_aside: false,
        }
    }

    /// A table of these rules, built at once; of equal priority the earlier wins.
    ///
    /// # Errors
    /// Where there are too many, two have the same handle, or the budget is too small.
    pub fn build<'a>(
        config: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match)>,
    ) -> Result<Self, BuildError> {
        let mut out = Self::new(config);
        let rules = rules.into_iter().map(|(id, priority, matches)| (id, priority, matches, PLAIN));
        out.fill(rules)?;
        Ok(out)
    }

    /// The same of rules that count in some of up to [`CATEGORIES_MAX`](super::CATEGORIES_MAX) categories, a bit each: lists
    /// that are asked in one pass.
    ///
    /// ```
    /// use flowlane::classify::AclSearch;
    /// use flowlane::classify::acl::AclConfig;
    /// use flowlane::packet::Field;
    /// use flowlane::rule::{Match, Priority, RuleId};
    ///
    /// // Whether a packet may pass is asked in category 0, how urgent it is in category 1.
    /// let (mut ssh, mut voice) = (Match::any(), Match::any());
    /// ssh.set(Field::TpDst, 22);
    /// voice.set_range(Field::TpDst, 16_384, 32_767);
    /// let any = Match::any();
    /// let rules = [
    ///     (RuleId(0), Priority(2), &ssh, 0b01),
    ///     (RuleId(1), Priority(1), &any, 0b11),
    ///     (RuleId(2), Priority(2), &voice, 0b10),
    /// ];
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
    pub fn build_with_categories<'a>(
        config: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match, u16)>,
    ) -> Result<Self, BuildError> {
        let mut out = Self::new(config);
        out.fill(rules)?;
        Ok(out)
    }

    fn fill<'a>(
        &mut self,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match, u16)>,
    ) -> Result<(), BuildError> {
        for (id, priority, matches, categories) in rules {
            let matches = Arc::new(matches.clone());
            let rule = Rule { priority, sequence: self.sequence, matches, categories };
            self.sequence += 1;
            if self.rules.insert(id, rule).is_some() {
                return Err(BuildError::Duplicate(id));
            }
        }
        self.make_anew(None)
    }

    /// As [`insert`](RuleEngine::insert) of a rule that counts in these categories.
    ///
    /// # Errors
    /// As there.
    pub fn insert_with_categories(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: &Match,
        categories: u16,
    ) -> Result<(), InsertError> {
        if self.rules.contains_key(&id) {
            return Err(InsertError::Duplicate(id));
        }
        if self.rules.len() >= self.config.rules_max {
            return Err(InsertError::Full { rules_max: self.config.rules_max });
        }
        let matches = Arc::new(matches.clone());
        let rule = Rule { priority, sequence: self.sequence, matches, categories };
        if !self.rules.is_empty() && self.table.suits(&rule.matches) {
            self.table.insert(id, priority, &rule.matches, categories)?;
            self.rules.insert(id, rule);
            self.follow();
        } else {
            self.make_anew(Some((id, rule)))?;
        }
        self.sequence += 1;
        Ok(())
    }

    /// The best rule of each category, in one pass: `hits[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `hits` is not
    /// `keys.len() * categories` long.
    pub fn lookup_categories(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
        assert_eq!(keys.len() * categories, hits.len(), "a hit for each key and category");
        self.table.lookup_categories(keys, categories, hits);
    }

    /// For each packet the handle of its best rule, or [`u32::MAX`] where none matches: without flow keys, so twice as
    /// fast where packets are columns anyway.
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

    /// The same for each packet and category: `rules[packet * categories + category]`.
    ///
    /// # Panics
    /// As [`lookup_categories`](Self::lookup_categories).
    pub fn lookup_column_categories(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
        assert_eq!(packets.len() * categories, rules.len(), "a rule for each packet and category");
        self.table.lookup_columns(packets, categories, rules);
    }

    /// The bits of a key that any rule looks at.
    pub fn looked_at(&self) -> FlowMask {
        let mut looked_at = FlowMask::zero();
        self.rules.values().for_each(|rule| looked_at.add(&looks_at(&rule.matches)));
        looked_at
    }

    /// The fields that any rule looks at. Two may share a place: addresses are ARP's where a rule is for ARP.
    pub fn fields(&self) -> Vec<Field> {
        let (mut plain, mut arp) = (FlowMask::zero(), FlowMask::zero());
        for rule in self.rules.values() {
            let (eth_type, mask) = rule.matches.get(Field::EthType);
            let is_arp = mask == 0xffff && [u128::from(ARP), RARP.into()].contains(&eth_type);
            if is_arp { &mut arp } else { &mut plain }.add(&looks_at(&rule.matches));
        }
        let fields = Field::all().iter().filter(|info| match info.prerequisite {
            Prerequisite::Arp => arp.get(info.field) != 0,
            Prerequisite::Ipv4 | Prerequisite::NeighbourDiscovery => plain.get(info.field) != 0,
            _ => arp.get(info.field) | plain.get(info.field) != 0,
        });
        fields.map(|info| info.field).collect()
    }

    /// Makes the table anew for all rules, and perhaps one more or instead of one.
    fn make_anew(&mut self, new: Option<(RuleId, Rule)>) -> Result<(), BuildError> {
        let old = new.map(|(id, rule)| (id, self.rules.insert(id, rule)));
        let shape = FlowShape::of(self.rules.values().map(|rule| &*rule.matches));
        match table::table(shape, self.config, &self.rules) {
            Ok(table) => {
                self.table = table;
                if self.merged_aside {
                    self.table.defer_rebuilds();
                }
                Ok(())
            }
            Err(error) => {
                if let Some((id, old)) = old {
                    match old {
                        Some(old) => self.rules.insert(id, old),
                        None => self.rules.remove(&id),
                    };
                }
                Err(error)
            }
        }
    }

    /// Merges the changes since the last time into the bulk.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn rebuild(&mut self) -> Result<(), BuildError> {
        self.table.rebuild()
    }

    /// Measures the engines with these packets, or with some drawn from the rules where there are none, and takes the
    /// fastest: see [`Acl::choose`](super::Acl::choose).
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

    /// Builds the table again with this engine, and prefers it as long as the rules are about as many: what
    /// [`choose`](Self::choose) has found before, say. Nothing where it has the rules already.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn prefer(&mut self, engine: AclEngine) -> Result<(), BuildError> {
        match self.engine().0 == engine.name() || engine == AclEngine::Auto {
            true => Ok(()),
            false => self.table.rebuild_with(engine),
        }
    }

    /// The engine that has the bulk of the rules, and its variant.
    pub fn engine(&self) -> (&'static str, Variant) {
        self.table.engine()
    }

    /// How the answer for a key comes about. Compares with all rules to find the next best.
    pub fn explain(&self, key: &FlowKey) -> FlowExplanation {
        self.table.explain(key)
    }

    /// After a change: merges, where there have been many.
    fn follow(&mut self) {
        let changes = self.table.changes();
        if !self.merged_aside && changes > CHANGES_MIN && changes > self.rules.len() / 2 {
            // Without room for it, all stays right.
            _ = self.table.rebuild();
        }
    }
}

impl ReplicatedEngine for AclSearch {
    fn clone_box(&self) -> Box<dyn ReplicatedEngine> {
        Box::new(self.clone())
    }

    fn engine_name(&self) -> &'static str {
        self.engine().0
    }

    fn defer_rebuilds(&mut self) {
        self.merged_aside = true;
        self.table.defer_rebuilds();
    }

    fn pending_updates(&self) -> usize {
        self.table.changes()
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
        self.insert_with_categories(id, priority, matches, PLAIN)
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let was_there = self.rules.remove(&id).is_some() && self.table.remove(id);
        self.follow();
        was_there
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        let sequence = rule.sequence;
        let categories = rule.categories;
        let new = Rule { priority, sequence, matches: Arc::new(matches.clone()), categories };
        let replaced = self.table.suits(matches) && self.table.replace(id, priority, matches).is_ok();
        if replaced {
            *rule = new;
            self.follow();
            return true;
        }
        // It looks at other words, or there is no room for what comes with changes. A replacement is never refused:
        // the budget bounds what is inserted.
        let config = AclConfig { memory_max: usize::MAX, ..self.config };
        let config = std::mem::replace(&mut self.config, config);
        let made = self.make_anew(Some((id, new)));
        self.config = config;
        made.expect("as many rules as before, and no limit");
        true
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.table.lookup(key)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        let rule = self.table.lookup_wildcards(key, looked_at)?;
        Some(Hit { rule, priority: self.rules[&rule].priority })
    }

    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        assert_eq!(keys.len(), hits.len());
        self.table.lookup_batch(keys, hits);
    }

    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        self.table.lookup_lanes(keys, lanes, hits);
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
            + self.rules.capacity() * (size_of::<(RuleId, Rule)>() + 1)
            + self.rules.values().map(|rule| size_of_val(rule.matches.words())).sum::<usize>()
    }
}
