//! A table on the host device beside the definition: the rules of every epoch, and what linear search over them says.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AsyncEngine, Hit, RuleEngine};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::{Changes, Device, GpuConfig, GpuSearch, Method, Rebuild, SessionConfig};

/// A rule, and its place among its equals.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) id: RuleId,
    pub(crate) priority: Priority,
    pub(crate) sequence: u64,
    pub(crate) matches: Match,
}

/// Linear search.
fn definition(rules: &[Given], key: &FlowKey) -> Option<Hit> {
    let matching = rules.iter().filter(|rule| rule.matches.matches(key));
    let best = matching.max_by_key(|rule| (rule.priority, Reverse(rule.sequence)))?;
    Some(Hit { rule: best.id, priority: best.priority })
}

/// Matches of a profile.
pub(crate) fn matches(profile: Profile, count: usize, seed: u64) -> Vec<Match> {
    let config = RuleConfig { seed, ..RuleConfig::new(profile, count) };
    generate_rules(&config).expect("a profile").into_iter().map(|rule| rule.matches).collect()
}

pub(crate) fn config(method: Option<Method>) -> GpuConfig {
    let session = SessionConfig { batch_max: 48, slots: 3, graphs: false };
    let list = AclConfig { threads: 1, seed: 0x5eed, ..AclConfig::default() };
    GpuConfig { method, session, list, changes: Changes { overlay_max: 0, rebuild: Rebuild::Manual } }
}

/// A configuration with an overlay of this size.
pub(crate) fn with_changes(method: Method, overlay_max: usize, rebuild: Rebuild) -> GpuConfig {
    GpuConfig { changes: Changes { overlay_max, rebuild }, ..config(Some(method)) }
}

/// The match on IPv4 that all rules of the profiles contain.
pub(crate) fn any_ipv4() -> Match {
    let mut all = Match::any();
    all.set(Field::EthType, 0x0800);
    all
}

/// A table, the rules of all its epochs, and the keys of batches that are gathered or in flight.
pub(crate) struct History {
    pub(crate) table: GpuSearch,
    pub(crate) rules: Vec<Given>,
    pub(crate) random: Random,
    sequence: u64,
    of_epoch: HashMap<u64, Vec<Given>>,
    gathered: Vec<FlowKey>,
    under_way: VecDeque<(Vec<FlowKey>, u64)>,
    hits: Vec<Option<Hit>>,
    what: String,
}

impl History {
    pub(crate) fn new(config: GpuConfig, matches: &[Match], seed: u64) -> Self {
        let rule = |(i, m): (usize, &Match)| Given {
            id: RuleId(i as u32),
            priority: Priority(i as u32 % 3),
            sequence: i as u64,
            matches: m.clone(),
        };
        let rules: Vec<Given> = matches.iter().enumerate().map(rule).collect();
        let what = format!("{:?}, seed {seed}", config.method);
        let given = rules.iter().map(|rule| (rule.id, rule.priority, &rule.matches));
        let device = Device::open(0).expect("the host device");
        // One key as a sample: measurements on the host device are meaningless.
        let table = GpuSearch::build(device, config, given, &[FlowKey::zero()]).expect("it fits");
        let of_epoch = HashMap::from([(table.epoch(), rules.clone())]);
        Self {
            table,
            sequence: rules.len() as u64,
            rules,
            random: Random::new(seed),
            of_epoch,
            gathered: Vec::new(),
            under_way: VecDeque::new(),
            hits: Vec::new(),
            what,
        }
    }

    fn changed(&mut self) {
        let before = self.of_epoch.insert(self.table.epoch(), self.rules.clone());
        assert!(before.is_none(), "every change has an epoch of its own");
    }

    pub(crate) fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) {
        self.table.insert(id, priority, matches).expect("room");
        self.rules.push(Given { id, priority, sequence: self.sequence, matches: matches.clone() });
        self.sequence += 1;
        self.changed();
    }

    pub(crate) fn remove(&mut self, place: usize) -> Given {
        let rule = self.rules.remove(place);
        assert!(self.table.remove(rule.id) && !self.table.remove(rule.id));
        self.changed();
        rule
    }

    pub(crate) fn replace(&mut self, place: usize, priority: Priority, matches: &Match) {
        let rule = &mut self.rules[place];
        (rule.priority, rule.matches) = (priority, matches.clone());
        assert!(self.table.replace(rule.id, priority, matches));
        self.changed();
    }

    /// A change drawn at random, of which some look at other fields.
    pub(crate) fn change(&mut self, others: &[Match]) {
        let drawn = &others[self.random.index(others.len())];
        let priority = Priority(self.random.below(4) as u32);
        match self.random.below(3) {
            0 if self.rules.len() > 1 => {
                let place = self.random.index(self.rules.len());
                let gone = self.remove(place);
                if self.random.chance(0.3) {
                    // A re-inserted rule is behind its equals.
                    self.insert(gone.id, gone.priority, &gone.matches);
                }
            }
            1 if !self.rules.is_empty() => {
                let place = self.random.index(self.rules.len());
                self.replace(place, priority, drawn);
            }
            _ => self.insert(RuleId(10_000 + self.sequence as u32), priority, drawn),
        }
    }

    /// Any step, of which changes may be of these matches.
    pub(crate) fn step(&mut self, others: &[Match]) {
        match self.random.below(10) {
            0..3 => self.change(others),
            3..6 => {
                let count = self.random.index(49);
                self.gather_to(count);
            }
            6..8 => _ = self.send(),
            8 => {
                let wait = self.random.chance(0.5);
                self.receive(wait);
            }
            _ => {
                // Now and then full batches.
                let count = [20, 150][self.random.index(2)];
                self.lookup(count);
            }
        }
    }

    /// A key that a rule of now or of earlier matches, or none.
    pub(crate) fn key(&mut self) -> FlowKey {
        if self.rules.is_empty() || self.random.chance(0.05) {
            return FlowKey::zero();
        }
        let place = self.random.index(self.rules.len());
        draw_key(&self.rules[place].matches, &mut self.random)
    }

    fn check(&self, epoch: u64, keys: &[FlowKey], hits: &[Option<Hit>]) {
        let rules = self.of_epoch.get(&epoch).expect("an epoch that there was");
        assert_eq!(keys.len(), hits.len());
        for (place, (key, hit)) in keys.iter().zip(hits).enumerate() {
            assert_eq!(*hit, definition(rules, key), "{}, epoch {epoch}, key {place}", self.what);
        }
    }

    pub(crate) fn lookup(&mut self, count: usize) {
        let keys: Vec<FlowKey> = (0..count).map(|_| self.key()).collect();
        let mut hits = vec![None; count];
        self.table.lookup_batch(&keys, &mut hits);
        self.check(self.table.epoch(), &keys, &hits);
    }

    pub(crate) fn gather(&mut self, key: &FlowKey) {
        self.table.gather(key);
        self.gathered.push(key.clone());
        assert_eq!(self.table.gathered(), self.gathered.len());
    }

    /// Fills the batch to `count` keys, or to its limit.
    pub(crate) fn gather_to(&mut self, count: usize) {
        while self.gathered.len() < count.min(self.table.batch_max()) {
            let key = self.key();
            self.gather(&key);
        }
    }

    pub(crate) fn send(&mut self) -> bool {
        let room = self.table.under_way() < 3;
        let sent = self.table.send();
        assert_eq!(sent, room && !self.gathered.is_empty());
        if sent {
            let keys = std::mem::take(&mut self.gathered);
            self.under_way.push_back((keys, self.table.epoch()));
        }
        assert_eq!(
            (self.table.gathered(), self.table.under_way()),
            (self.gathered.len(), self.under_way.len())
        );
        sent
    }

    /// Receives a batch, if there is one, and compares it. Gives the epoch.
    pub(crate) fn receive(&mut self, wait: bool) -> Option<u64> {
        let received = self.table.receive(wait, &mut self.hits);
        assert!(received.is_some() || !wait || self.under_way.is_empty());
        let epoch = received?;
        let (keys, sent_with) = self.under_way.pop_front().expect("what was received was sent");
        self.check(epoch, &keys, &self.hits);
        assert!(epoch == sent_with || epoch == self.table.epoch(), "the rules of then or of now");
        Some(epoch)
    }

    /// Receives all batches. Gives their epochs.
    pub(crate) fn receive_all(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.receive(true)).collect()
    }
}
