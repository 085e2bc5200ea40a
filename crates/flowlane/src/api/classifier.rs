//! Classifiers: rules by number, their changes, and their publication to readers.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::OnceLock;

use super::reader::{Publication, Reader};
use super::snapshot::{ClassifierSnapshot, NONE};
use super::{Error, Rule};
use crate::classify::acl::{AclConfig, AclEngine, BuildError, CATEGORIES_MAX, HasMatch};
use crate::classify::{AclSearch, InsertError, RuleEngine as _};
use crate::published::Published;
use crate::rule::RuleId;

/// Draws the seed of hashes where the caller names none. Senders of packets cannot know it.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// The settings of a [`Classifier`], and the functions that build one.
///
/// ```
/// use flowlane::{ClassifierBuilder, read_rules};
///
/// let config = ClassifierBuilder::new().engine("tree")?.rules_max(100_000).threads(2);
/// let acl = config.build(read_rules("udp,tp_dst=53,actions=drop", "rules")?)?;
/// assert_eq!(acl.engine(), "tree");
/// assert!(ClassifierBuilder::new().engine("treee").is_err());
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

    /// Selects the engine by name: `auto`, `tree` (fastest for many rules), `dynamic` (as fast after changes as before)
    /// or `brute` (for a few rules).
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): there is no engine of this name; the error lists the names.
    pub fn engine(self, name: &str) -> Result<Self, Error> {
        let engine = name.parse().map_err(Error::input)?;
        Ok(Self(AclConfig { engine, ..self.0 }))
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
    pub fn build(self, rules: impl IntoIterator<Item = Rule>) -> Result<Classifier, Error> {
        self.build_numbered((0..).zip(rules))
    }

    /// Builds a classifier of numbered rules, in any order. Of rules of equal priority the one with the lower number wins.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`Input`](super::ErrorKind::Input): a number is there twice, or is [`NONE`].
    pub fn build_numbered(self, rules: impl IntoIterator<Item = (u32, Rule)>) -> Result<Classifier, Error> {
        self.build_categories(rules.into_iter().map(|(number, rule)| (number, rule, PLAIN)))
    }

    /// Builds a classifier of several lists, which [one pass](ClassifierSnapshot::lookup_categories) resolves. A rule is in the lists, or
    /// *categories*, whose bits are set: bit 0 for category 0, up to [`CATEGORIES_MAX`] of them.
    ///
    /// ```
    /// use flowlane::{ClassifierBuilder, Field, FlowColumns, NONE, Values, read_rules};
    ///
    /// // Category 0 decides whether a packet may pass, category 1 how urgent it is.
    /// let text = "priority=2,udp,tp_dst=53,actions=drop\npriority=1,ip,actions=drop\npriority=2,udp,tp_src=5060,actions=drop";
    /// let rules = read_rules(text, "rules")?;
    /// let categories = [0b01, 0b11, 0b10];
    /// let numbered = (0..).zip(rules).zip(categories).map(|((number, rule), bits)| (number, rule, bits));
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
    /// As [`build_numbered`](Self::build_numbered), and [`Input`](super::ErrorKind::Input): a rule is in no category.
    pub fn build_categories(
        self,
        rules: impl IntoIterator<Item = (u32, Rule, u16)>,
    ) -> Result<Classifier, Error> {
        let mut own = BTreeMap::new();
        for (number, rule, categories) in rules {
            number_is_usable(number, categories)?;
            if own.insert(number, (Arc::new(rule), categories)).is_some() {
                return Err(Error::input(format!("there are two rules of the number {number}")));
            }
        }
        // In the order of their numbers, which decides among rules of equal priority, also when one is replaced.
        let entries = own.iter().map(|(number, (rule, categories))| {
            (RuleId(*number), rule.priority, Arc::clone(rule) as Arc<dyn HasMatch>, *categories)
        });
        let search = AclSearch::build_with_categories(self.0, entries);
        let search = search.map_err(|refused| refused_rules(&refused.into()))?;
        let next = own.last_key_value().map_or(0, |(number, _)| number + 1);
        let rules = own.into_iter().map(|(number, (rule, _))| (number, rule)).collect();
        Ok(Classifier { list: ClassifierSnapshot::new(search), rules, next, published: OnceLock::new() })
    }
}

/// The categories of a rule that is given without any: category 0.
const PLAIN: u16 = 1;

/// Makes the error of rules that the engine refused.
fn refused_rules(refused: &InsertError) -> Error {
    match refused {
        InsertError::Duplicate(_) | InsertError::Acl(BuildError::Duplicate(_)) => Error::input(refused),
        _ => Error::limit(refused),
    }
}

fn number_is_usable(number: u32, categories: u16) -> Result<(), Error> {
    if number == NONE {
        return Err(Error::input(format!("{NONE} means no rule; give another number")));
    }
    if categories == 0 {
        return Err(Error::input(format!(
            "rule {number} is in no category; set the bits of 1 to {CATEGORIES_MAX} categories"
        )));
    }
    Ok(())
}

/// Rules, and the engine that finds the winning rule of each packet: of the rules that match, the one of the highest priority;
/// of equal ones, the first inserted.
///
/// Each rule keeps its number: its position in the list that was built, from 0, then one after the other. Numbers are not
/// reused. Lookups are methods of [`ClassifierSnapshot`], to which a classifier dereferences.
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

impl Deref for Classifier {
    type Target = ClassifierSnapshot;

    #[inline]
    fn deref(&self) -> &ClassifierSnapshot {
        &self.list
    }
}

impl Classifier {
    /// Adds a rule behind all others of its priority, and returns its number. For categories see [`insert_in`](Self::insert_in).
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): of rules or memory.
    pub fn insert(&mut self, rule: Rule) -> Result<u32, Error> {
        self.insert_all([rule]).map(|numbers| numbers.start)
    }

    /// Adds rules, all or none of them, and returns their numbers.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_all(&mut self, rules: impl IntoIterator<Item = Rule>) -> Result<Range<u32>, Error> {
        self.insert_in(rules, PLAIN)
    }

    /// Adds rules to the lists whose bits are set, all or none of them: see
    /// [`build_categories`](ClassifierBuilder::build_categories).
    ///
    /// # Errors
    /// As [`insert`](Self::insert), and [`Input`](super::ErrorKind::Input): no bit is set.
    pub fn insert_in(
        &mut self,
        rules: impl IntoIterator<Item = Rule>,
        categories: u16,
    ) -> Result<Range<u32>, Error> {
        let begin = self.next;
        self.insert_numbered((begin..=NONE).zip(rules), categories)?;
        Ok(begin..self.next)
    }

    /// Adds rules under numbers that the caller chooses to the lists whose bits are set, all or none of them.
    ///
    /// # Errors
    /// As [`insert_in`](Self::insert_in), and [`Input`](super::ErrorKind::Input): a number is in use, or is [`NONE`].
    pub fn insert_numbered(
        &mut self,
        rules: impl IntoIterator<Item = (u32, Rule)>,
        categories: u16,
    ) -> Result<(), Error> {
        let mut done = Vec::new();
        let next = self.next;
        for (number, rule) in rules {
            let rule = Arc::new(rule);
            let inserted = number_is_usable(number, categories).and_then(|()| {
                self.list.change(|search| {
                    search
                        .insert_with_categories(RuleId(number), rule.priority, rule.clone(), categories)
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
    pub fn replace(&mut self, number: u32, rule: Rule) -> Option<Rule> {
        let own = self.rules.get_mut(&number)?;
        let rule = Arc::new(rule);
        self.list.change(|search| search.replace_with(RuleId(number), rule.priority, rule.clone()));
        self.list.look_at(&rule.matches);
        Some(Arc::unwrap_or_clone(std::mem::replace(own, rule)))
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
