//! Classifiers: rules by number, their changes, and their publication to readers.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;

use super::reader::{Publication, Reader};
use super::snapshot::{ClassifierSnapshot, NONE};
use super::{AclEngine, Categories, Error, Explanation, Field, FlowColumns, FlowKey, FlowMask, Rule};
use crate::classify::acl::{AclConfig, BuildError, HasMatch};
use crate::classify::{AclSearch, InsertError, RuleEngine as _};
use crate::named_enum::UnknownName;
use crate::published::Published;
use crate::rule::RuleId;

/// Draws the seed of hashes where the caller names none. Senders of packets cannot know it.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// Builds a [`Classifier`] with these settings.
///
/// ```
/// use flowlane::{AclEngine, ClassifierBuilder, read_rules};
///
/// let builder = ClassifierBuilder::new().engine(AclEngine::Tree).rules_max(100_000).threads(2);
/// let acl = builder.build(read_rules("udp,tp_dst=53,actions=drop", "rules")?)?;
/// assert_eq!(acl.engine(), "tree");
/// // By its name, from a command line, say:
/// let acl = builder.engine("brute".parse()?).build([])?;
/// assert!("treee".parse::<AclEngine>().is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ClassifierBuilder(AclConfig);

impl Default for ClassifierBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ClassifierBuilder {
    /// Creates the default settings: the engine that suits the rules, up to 33,554,432 of them in 16 GiB, built by all cores, hashes
    /// under a random seed.
    pub fn new() -> Self {
        Self(AclConfig {
            engine: AclEngine::Auto,
            variant: None,
            rules_max: 32 << 20,
            memory_max: 16 << 30,
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            seed: random_seed(),
        })
    }

    /// Selects the engine: a tree is fastest for many rules, the dynamic engine as fast after changes as before, brute force for a few
    /// rules. [`AclEngine`] is read from its name.
    #[must_use]
    pub fn engine(self, engine: AclEngine) -> Self {
        Self(AclConfig { engine, ..self.0 })
    }

    /// Sets the most rules that the classifier holds at a time.
    #[must_use]
    pub fn rules_max(self, rules: usize) -> Self {
        Self(AclConfig { rules_max: rules, ..self.0 })
    }

    /// Sets the most bytes of rules and engine.
    #[must_use]
    pub fn memory_max(self, bytes: usize) -> Self {
        Self(AclConfig { memory_max: bytes, ..self.0 })
    }

    /// Sets the number of threads that build a tree, the caller's included; at least 1. No other call starts threads.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self(AclConfig { threads: threads.max(1), ..self.0 })
    }

    /// Sets the seed of hashes, for reproducible runs. A sender who knows the seed can craft packets whose lookups are slow.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self(AclConfig { seed, ..self.0 })
    }

    /// Builds a classifier of these rules, whose numbers are their positions, from 0. Table numbers in rules are ignored: pass the
    /// rules of one table.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): there are more rules than there may be, or they need more memory.
    /// [`Input`](super::ErrorKind::Input): a text could not say a rule, which [`Rule::check`] refuses; the error's
    /// [row](Error::row) is its position.
    ///
    /// ```
    /// use flowlane::{ClassifierBuilder, Field, Match, Rule};
    ///
    /// let mut web = Match::any();
    /// web.set(Field::TpDst, 80); // of which protocol?
    /// let error = ClassifierBuilder::new().build([Rule::new(web, vec![])]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "rule 0: tp_dst needs `tcp`, `udp` or `sctp` (or `ip`, for any of them) in the match"
    /// );
    /// ```
    pub fn build(self, rules: impl IntoIterator<Item = Rule>) -> Result<Classifier, Error> {
        self.build_numbered((0..).zip(rules))
    }

    /// Builds a classifier of numbered rules, in any order. Of rules of equal priority the one with the lower number wins.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`Input`](super::ErrorKind::Input): a number is there twice, or is [`NONE`].
    pub fn build_numbered(self, rules: impl IntoIterator<Item = (u32, Rule)>) -> Result<Classifier, Error> {
        self.build_categories(rules.into_iter().map(|(number, rule)| (number, rule, Categories::FIRST)))
    }

    /// Builds a classifier of several lists, or *categories*, which [one pass](ClassifierSnapshot::lookup_categories) resolves. A rule is in
    /// any of up to [`CATEGORIES_MAX`](super::CATEGORIES_MAX).
    ///
    /// ```
    /// use flowlane::{Categories, ClassifierBuilder, Field, FlowColumns, NONE, Values, read_rules};
    ///
    /// // Category 0 decides whether a packet may pass, category 1 how urgent it is.
    /// let text = "priority=2,udp,tp_dst=53,actions=drop\npriority=1,ip,actions=drop\npriority=2,udp,tp_src=5060,actions=drop";
    /// let rules = read_rules(text, "rules")?;
    /// let categories = [Categories::of([0])?, Categories::of([0, 1])?, Categories::of([1])?];
    /// let numbered = (0..).zip(rules).zip(categories).map(|((number, rule), own)| (number, rule, own));
    /// let acl = ClassifierBuilder::new().build_categories(numbered)?;
    ///
    /// let packets = FlowColumns::new(2)
    ///     .with(Field::EthType, Values::One(0x0800))?
    ///     .with(Field::NwProto, Values::One(17))?
    ///     .with(Field::TpSrc, Values::U16(&[5060, 5060]))?
    ///     .with(Field::TpDst, Values::U16(&[53, 54]))?;
    /// let mut rules = [NONE; 4];
    /// acl.lookup_column_categories(&packets, 2, &mut rules);
    /// assert_eq!(rules, [0, 2, 1, 2]);
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`build_numbered`](Self::build_numbered).
    pub fn build_categories(
        self,
        rules: impl IntoIterator<Item = (u32, Rule, Categories)>,
    ) -> Result<Classifier, Error> {
        let mut own = BTreeMap::new();
        for (row, (number, rule, categories)) in rules.into_iter().enumerate() {
            is_usable(number, &rule).map_err(|refused| refused.at(row))?;
            if own.insert(number, (Arc::new(rule), categories)).is_some() {
                return Err(Error::input(format!("there are two rules of the number {number}")));
            }
        }
        // In the order of their numbers, which decides among rules of equal priority, also when one is replaced.
        let entries = own.iter().map(|(number, (rule, categories))| {
            (RuleId(*number), rule.priority, Arc::clone(rule) as Arc<dyn HasMatch>, categories.bits())
        });
        let search = AclSearch::build_with_categories(self.0, entries);
        let search = search.map_err(|refused| refused_rules(&refused.into()))?;
        let next = own.last_key_value().map_or(0, |(number, _)| number + 1);
        let rules = own.into_iter().map(|(number, (rule, _))| (number, rule)).collect();
        Ok(Classifier { list: ClassifierSnapshot::new(search), rules, next, published: OnceLock::new() })
    }
}

/// Makes the error of rules that the engine refused.
fn refused_rules(refused: &InsertError) -> Error {
    match refused {
        InsertError::Duplicate(_) | InsertError::Acl(BuildError::Duplicate(_)) => Error::input(refused),
        _ => Error::limit(refused),
    }
}

/// Returns whether a rule can be in a classifier by this number.
fn is_usable(number: u32, rule: &Rule) -> Result<(), Error> {
    if number == NONE {
        return Err(Error::input(format!("{NONE} means no rule; give another number")));
    }
    rule.check().map_err(|refused| Error::input(format!("rule {number}: {refused}")))
}

/// A name that no engine has: an [`Input`](super::ErrorKind::Input).
impl From<UnknownName> for Error {
    fn from(unknown: UnknownName) -> Self {
        Self::input(unknown)
    }
}

/// Rules, and the engine that finds the winning rule of each packet: of the rules that match, the one of the highest priority;
/// of equal ones, the first inserted.
///
/// Each rule keeps its number: its position in the list that was built, from 0, then one after the other. Numbers are not
/// reused. Its lookups are those of [`ClassifierSnapshot`], of the rules as they are now; [`list`](Self::list) is that snapshot.
///
/// **Threads.** Changes take `&mut`; any number of threads may look up through `&`. For lookups during changes, give other threads
/// [`Reader`]s, which never wait, and call [`publish`](Self::publish) after changes.
///
/// ```
/// use flowlane::{ClassifierBuilder, Field, FlowColumns, NONE, Values, read_rules};
///
/// let rules = "priority=9,tcp,nw_dst=10.0.0.0/8,tp_dst=22,actions=drop\npriority=1,ip,actions=output:1";
/// let mut acl = ClassifierBuilder::new().build(read_rules(rules, "rules.txt")?)?;
/// let packets = FlowColumns::new(3)
///     .with(Field::EthType, Values::U16(&[0x0800, 0x0800, 0x86dd]))?
///     .with(Field::Ipv4Dst, Values::U32(&[0x0a00_0001, 0x0b00_0001, 0]))?
///     .with(Field::NwProto, Values::One(6))?
///     .with(Field::TpDst, Values::One(22))?;
/// let mut found = [0; 3];
/// acl.lookup_columns(&packets, &mut found);
/// assert_eq!(found, [0, 1, NONE]);
///
/// let number = acl.insert(read_rules("priority=5,ipv6,actions=drop", "more")?.remove(0))?;
/// acl.remove(1);
/// acl.lookup_columns(&packets, &mut found);
/// assert_eq!(found, [0, NONE, number]);
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Debug)]
pub struct Classifier {
    list: ClassifierSnapshot,
    rules: BTreeMap<u32, Arc<Rule>>,
    next: u32,
    published: OnceLock<Arc<Published<Publication>>>,
}

impl Classifier {
    /// Adds a rule behind all others of its priority, and returns its number. For categories see [`insert_in`](Self::insert_in).
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): of rules or memory. [`Input`](super::ErrorKind::Input): [`Rule::check`] refuses the rule.
    pub fn insert(&mut self, rule: Rule) -> Result<u32, Error> {
        self.insert_all([rule]).map(|numbers| numbers.start)
    }

    /// Adds rules, all or none of them, and returns their numbers.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_all(&mut self, rules: impl IntoIterator<Item = Rule>) -> Result<Range<u32>, Error> {
        self.insert_in(rules, Categories::FIRST)
    }

    /// Adds rules to several lists, all or none of them: see [`build_categories`](ClassifierBuilder::build_categories).
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_in(
        &mut self,
        rules: impl IntoIterator<Item = Rule>,
        categories: Categories,
    ) -> Result<Range<u32>, Error> {
        let begin = self.next;
        self.insert_numbered((begin..=NONE).zip(rules), categories)?;
        Ok(begin..self.next)
    }

    /// Adds rules under numbers that the caller chooses to several lists, all or none of them.
    ///
    /// # Errors
    /// As [`insert_in`](Self::insert_in), and [`Input`](super::ErrorKind::Input): a number is in use, or is [`NONE`].
    pub fn insert_numbered(
        &mut self,
        rules: impl IntoIterator<Item = (u32, Rule)>,
        categories: Categories,
    ) -> Result<(), Error> {
        let mut done = Vec::new();
        let next = self.next;
        for (row, (number, rule)) in rules.into_iter().enumerate() {
            let rule = Arc::new(rule);
            let usable = is_usable(number, &rule).map_err(|refused| refused.at(row));
            let inserted = usable.and_then(|()| {
                self.list.change(|search| {
                    search
                        .insert_with_categories(
                            RuleId(number),
                            rule.priority,
                            rule.clone(),
                            categories.bits(),
                        )
                        .map_err(|refused| refused_rules(&refused))
                })
            });
            if let Err(refused) = inserted {
                done.into_iter().for_each(|number| _ = self.remove(number));
                self.next = next;
                return Err(refused);
            }
            self.list.look_at(&rule.matches);
            self.rules.insert(number, rule);
            self.next = self.next.max(number + 1);
            done.push(number);
        }
        Ok(())
    }

    /// Removes and returns a rule, or returns `None` where no rule has this number.
    pub fn remove(&mut self, number: u32) -> Option<Rule> {
        let rule = self.rules.remove(&number)?;
        self.list.change(|search| search.remove(RuleId(number)));
        Some(Arc::unwrap_or_clone(rule))
    }

    /// Replaces the rule of a number and returns the old one. The new rule has the old one's categories and its place among rules of
    /// equal priority. Returns `None`, and changes nothing, where no rule has this number.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): [`Rule::check`] refuses the new rule; nothing has changed then.
    pub fn replace(&mut self, number: u32, rule: Rule) -> Result<Option<Rule>, Error> {
        is_usable(number, &rule)?;
        let Some(own) = self.rules.get_mut(&number) else { return Ok(None) };
        let rule = Arc::new(rule);
        self.list.change(|search| search.replace_with(RuleId(number), rule.priority, rule.clone()));
        self.list.look_at(&rule.matches);
        Ok(Some(Arc::unwrap_or_clone(std::mem::replace(own, rule))))
    }

    /// Returns the number that the next rule gets.
    pub fn next_number(&self) -> u32 {
        self.next
    }

    /// Reserves rule numbers below `number`: later rules get higher ones.
    pub fn reserve_numbers_below(&mut self, number: u32) {
        self.next = self.next.max(number);
    }

    /// Returns the rule of a number.
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(&number).map(|rule| &**rule)
    }

    /// Returns all rules with their numbers, ascending.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (u32, &Rule)> {
        self.rules.iter().map(|(number, rule)| (*number, &**rule))
    }

    /// Returns a snapshot of the classifier. It costs nothing until the next change, which copies the rules.
    pub fn snapshot(&self) -> ClassifierSnapshot {
        self.list.clone()
    }

    /// Publishes all changes since the last publication to readers, at once. No thread waits. The next change copies the rules
    /// and their engine, so publish once after many changes.
    pub fn publish(&mut self) {
        let published = self.published();
        published.publish(Publication { number: published.version() + 1, list: self.list.clone() });
    }

    /// Returns a reader for another thread. It sees the last publication; the first call publishes the present rules.
    ///
    /// ```
    /// use flowlane::{ClassifierBuilder, FlowKey, read_rules};
    ///
    /// let mut acl = ClassifierBuilder::new().build(read_rules("actions=drop", "rules")?)?;
    /// let mut reader = acl.reader();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || assert_eq!(reader.list().lookup(&FlowKey::zero()), Some(0)));
    ///     acl.remove(0);
    /// });
    /// let mut reader = acl.reader();
    /// assert!(reader.list().lookup(&FlowKey::zero()).is_some() && acl.lookup(&FlowKey::zero()).is_none());
    /// acl.publish();
    /// assert!(reader.list().lookup(&FlowKey::zero()).is_none());
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    pub fn reader(&self) -> Reader {
        Reader::of(self.published())
    }

    fn published(&self) -> &Arc<Published<Publication>> {
        let first = || Publication { number: 0, list: self.list.clone() };
        self.published.get_or_init(|| Arc::new(Published::new(first())))
    }
}

/// Lookups, as [`ClassifierSnapshot`] has them.
impl Classifier {
    /// Returns the rules as they are now, for functions that look up in a [`ClassifierSnapshot`].
    #[inline]
    pub fn list(&self) -> &ClassifierSnapshot {
        &self.list
    }

    /// Finds the winning rule of one packet: see [`ClassifierSnapshot::lookup`].
    pub fn lookup(&self, key: &FlowKey) -> Option<u32> {
        self.list.lookup(key)
    }

    /// Finds the winning rule of each packet, or [`NONE`]: see [`ClassifierSnapshot::lookup_keys`].
    ///
    /// # Panics
    /// Where there are not as many `rules` as `keys`.
    pub fn lookup_keys(&self, keys: &[FlowKey], rules: &mut [u32]) {
        self.list.lookup_keys(keys, rules);
    }

    /// Finds the winning rule of packets whose fields are columns: see [`ClassifierSnapshot::lookup_columns`].
    ///
    /// # Panics
    /// Where there are not as many `rules` as packets.
    pub fn lookup_columns(&self, packets: &FlowColumns<'_>, rules: &mut [u32]) {
        self.list.lookup_columns(packets, rules);
    }

    /// Finds the winning rule in each category: see [`ClassifierSnapshot::lookup_categories`].
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `rules` is not `keys.len() * categories` long.
    pub fn lookup_categories(&self, keys: &[FlowKey], categories: usize, rules: &mut [u32]) {
        self.list.lookup_categories(keys, categories, rules);
    }

    /// Finds the winning rule in each category of packets whose fields are columns.
    ///
    /// # Panics
    /// As [`lookup_categories`](Self::lookup_categories).
    pub fn lookup_column_categories(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        self.list.lookup_column_categories(packets, categories, rules);
    }

    /// Explains which rule wins for one packet, and why: see [`ClassifierSnapshot::explain`].
    pub fn explain(&self, key: &FlowKey) -> Explanation {
        self.list.explain(key)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the fields that any rule looks at: see [`ClassifierSnapshot::fields`].
    pub fn fields(&self) -> Vec<Field> {
        self.list.fields()
    }

    /// Returns the bits of packets that any rule looks at, or has looked at before a change.
    pub fn looked_at(&self) -> &FlowMask {
        self.list.looked_at()
    }

    /// Returns the name of the engine that has most of the rules: `tree`, `dynamic` or `brute`.
    pub fn engine(&self) -> &'static str {
        self.list.engine()
    }

    /// Returns the engine's variant: `scalar`, `sse42`, `avx2` or `avx512`.
    pub fn variant(&self) -> &'static str {
        self.list.variant()
    }

    /// Returns the bytes of rules and engine.
    pub fn table_bytes(&self) -> usize {
        self.list.table_bytes()
    }
}
