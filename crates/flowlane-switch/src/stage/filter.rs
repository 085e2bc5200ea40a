//! A packet filter: is the packet's key in a set? As nftables' sets have it, with entries that time out, and that packets
//! may add.
//!
//! A key is made of fields of the packet: of one address, of a 5-tuple, of whatever takes no more than 12 words of the flow
//! key. A packet that lacks one of the fields (an IPv6 packet, where the key has IPv4 addresses) is in no set.

mod explain;

use flowlane::hash::murmur3;
use flowlane::packet::Headers;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::{FRAG_LATER, Field, Prerequisite, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask, WORDS};
use flowlane::packet::parse::ip_proto;

use super::ageing::{NEVER, PACKET_BUDGET, Ticks};
use super::gathered::{Gathered, Lookups};
use super::share::Share;
use super::table::AgedTable;
use crate::packet::Burst;

/// The verdicts, by number.
pub const VERDICTS: [&str; 2] = ["hit", "miss"];

const HIT: u8 = 0;
const MISS: u8 = 1;

/// Words of a small set's keys: an IPv4 5-tuple.
const NARROW: usize = 4;

/// Words of a large one's: an IPv6 5-tuple, and something more.
const WIDE: usize = 12;

/// How a filter is to be.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// The fields of the key.
    pub fields: Vec<Field>,
    /// Most entries.
    pub entries_max: usize,
    /// Ticks after which an entry that is [learnt](Self::learn) goes; [`NEVER`] where it stays.
    pub idle: u32,
    /// A hit begins the entry's time anew; else it goes so long after it came.
    pub refresh: bool,
    /// A packet that is not in the set is added to it.
    pub learn: bool,
    /// Count the packets of each entry.
    pub count: bool,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// Keys the hash.
    pub seed: u32,
    /// Whose entries these are.
    pub share: Share,
}

impl FilterConfig {
    /// A filter on these fields, whose entries stay.
    pub fn new(fields: Vec<Field>, entries_max: usize) -> Self {
        Self {
            fields,
            entries_max,
            idle: NEVER,
            refresh: false,
            learn: false,
            count: false,
            lookups: Lookups::default(),
            seed: 0,
            share: Share::default(),
        }
    }
}

/// Why fields cannot be a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// None.
    #[error("a key has at least one field")]
    Empty,
    /// A field that depends on more than the filter asks about.
    #[error("`{0}` cannot be part of a key; take fields of Ethernet, VLAN, IP, ARP or transport ports")]
    Field(&'static str),
    /// The field that rules in front may have changed unseen.
    #[error(
        "`nw_ttl` cannot be part of a key: filters see packets as they came, before any `dec_ttl` in front"
    )]
    Ttl,
    /// Fields that no packet has both.
    #[error("no packet has both `{0}` and `{1}`")]
    Contradiction(&'static str, &'static str),
    /// Too many words.
    #[error("the fields lie in {0} words of the flow key; a key has up to {WIDE}")]
    Long(usize),
}

/// Kinds of packets, a bit each.
mod kind {
    use flowlane::packet::parse::ether_type;

    pub(super) const IPV4: u8 = 1;
    pub(super) const IPV6: u8 = 2;
    pub(super) const ARP: u8 = 4;
    pub(super) const OTHER: u8 = 8;
    pub(super) const ANY: u8 = 15;

    #[inline]
    pub(super) fn of(eth_type: u16) -> u8 {
        match eth_type {
            ether_type::IPV4 => IPV4,
            ether_type::IPV6 => IPV6,
            ether_type::ARP | ether_type::RARP => ARP,
            _ => OTHER,
        }
    }
}

/// The fields of a key: what packets have them, and where they are.
#[derive(Clone, Debug)]
pub struct KeyShape {
    fields: Vec<Field>,
    /// Kinds of packets that have the fields.
    kinds: u8,
    vlan: bool,
    ports: bool,
    mask: FlowMask,
    words: Vec<(u8, u32)>,
}

impl KeyShape {
    /// The shape of keys of these fields.
    ///
    /// # Errors
    /// Where they cannot be a key.
    pub fn new(fields: &[Field]) -> Result<Self, KeyError> {
        if fields.is_empty() {
            return Err(KeyError::Empty);
        }
        let mut shape = Self {
            fields: fields.to_vec(),
            kinds: kind::ANY,
            vlan: false,
            ports: false,
            mask: FlowMask::zero(),
            words: Vec::new(),
        };
        let mut before = "";
        for &field in fields {
            let name = field.info().name;
            let prerequisite = field.info().prerequisite;
            if field == Field::NwTtl {
                return Err(KeyError::Ttl);
            }
            let kinds = match prerequisite {
                Prerequisite::None | Prerequisite::Vlan
                    if !matches!(field, Field::RecircId | Field::Malformed) =>
                {
                    kind::ANY
                }
                Prerequisite::Ipv4 => kind::IPV4,
                Prerequisite::Ipv6 => kind::IPV6,
                Prerequisite::Ip | Prerequisite::Ports => kind::IPV4 | kind::IPV6,
                Prerequisite::Arp => kind::ARP,
                _ => return Err(KeyError::Field(name)),
            };
            if shape.kinds & kinds == 0 {
                return Err(KeyError::Contradiction(before, name));
            }
            if kinds != kind::ANY {
                before = name;
            }
            shape.kinds &= kinds;
            shape.vlan |= prerequisite == Prerequisite::Vlan;
            shape.ports |= prerequisite == Prerequisite::Ports;
            shape.mask.add_field(field);
        }
        let mask = &shape.mask;
        shape.words = mask.present_words().map(|w| (w as u8, mask.word(w))).collect();
        match shape.words.len() {
            0..=WIDE => Ok(shape),
            words => Err(KeyError::Long(words)),
        }
    }

    /// The bits of the flow key that make the key.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// Whether only packets of this EtherType have the fields.
    pub fn is_only(&self, eth_type: u16) -> bool {
        let kind = kind::of(eth_type);
        self.kinds == kind && kind != kind::OTHER
    }

    /// Whether a packet has all the fields.
    #[inline]
    fn has(&self, key: &FlowKey) -> bool {
        let vlan_type = key.word(word::VLAN_ETH_TYPE);
        let kind = kind::of(vlan_type as u16);
        let transport = || {
            // The two bits of `ip_frag` stand in front of the last byte.
            let [proto, _, _, fragment] = key.word(word::NW_PROTO).to_be_bytes();
            let known = matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
            known && fragment >> 6 & FRAG_LATER == 0
        };
        self.kinds & kind != 0
            && (!self.vlan || vlan_type >> 16 & u32::from(VLAN_PRESENT) != 0)
            && (!self.ports || transport())
    }
}

/// What an entry knows beside its key.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    packets: u64,
    bytes: u64,
}

/// The entries, by keys of `W` words.
#[derive(Debug)]
struct Set<const W: usize> {
    /// Words of the flow key, and which of their bits; those beyond the key's have no bits.
    words: [(u8, u32); W],
    table: AgedTable<W, Member>,
    gathered: Box<Gathered<W>>,
}

/// What a set does with the packets that it is asked about.
#[derive(Clone, Copy, Debug)]
struct Policy {
    idle: u32,
    refresh: bool,
    learn: bool,
    count: bool,
    /// Some entry may go: entries are to be looked at before they count.
    ages: bool,
    lookups: Lookups,
}

/// What has happened to a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterCounters {
    /// Packets that lack a field of the key: they count as misses, too.
    pub without_key: u64,
    /// Entries that packets added.
    pub learnt: u64,
    /// Entries that packets would have added, had the set not been full.
    pub refused: u64,
}

impl<const W: usize> Set<W> {
    fn new(shape: &KeyShape, entries_max: usize, seed: u32) -> Self {
        let words = std::array::from_fn(|i| shape.words.get(i).copied().unwrap_or((0, 0)));
        Self { words, table: AgedTable::new(entries_max, seed), gathered: Box::default() }
    }

    #[inline]
    fn key(&self, words: &[u32; WORDS]) -> [u32; W] {
        self.words.map(|(w, mask)| words[usize::from(w) % WORDS] & mask)
    }

    /// Of what is no member's place in the table, so that shares are filled evenly.
    #[inline]
    fn hash(&self, words: &[u32; WORDS], seed: u32) -> u32 {
        let hash = self.key(words).into_iter().fold(!seed, murmur3::mix);
        murmur3::finish(hash, 4 * W as u32)
    }

    fn insert(&mut self, words: &[u32; WORDS], idle: u32, now: u32) -> Result<bool, ()> {
        let key = self.key(words);
        if self.table.find(&key, now).is_some() {
            return Ok(false);
        }
        self.table.insert(&key, Member::default(), idle, now).map(|_| true).ok_or(())
    }

    /// Settles the verdicts of these lanes, which all have keys.
    #[inline]
    fn process(
        &mut self,
        (policy, counters, ticks): (Policy, &mut FilterCounters, &mut Ticks),
        packets: &Burst,
        lanes: LaneMask,
        verdicts: &mut [u8; LANES_MAX],
    ) {
        if policy.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let now = self.come_to(policy, ticks.at(packets.times_ns[lane]));
                let key = self.key(packets.keys[lane].words());
                let found = self.table.keys().lookup(&key);
                let bytes = packets.frames[lane].len();
                verdicts[lane] = self.settle((policy, counters), &key, found, bytes, now);
            }
            return;
        }
        self.gathered.clear();
        for lane in lanes.lanes() {
            let key = self.key(packets.keys[lane].words());
            self.gathered.push(lane, key);
        }
        self.gathered.look_up(self.table.keys());
        if policy.reads_entries() {
            self.gathered.values().for_each(|at| self.table.entries.prefetch(at));
        }
        let changes = self.table.changes();
        for place in 0..self.gathered.len() {
            let (lane, &key) = self.gathered.get(place);
            let now = self.come_to(policy, ticks.at(packets.times_ns[lane]));
            let found = self.table.since(changes, &key, self.gathered.found(place));
            let bytes = packets.frames[lane].len();
            verdicts[lane] = self.settle((policy, counters), &key, found, bytes, now);
        }
    }

    /// Lets a packet's time come: some of what is due goes.
    #[inline]
    fn come_to(&mut self, policy: Policy, now: u32) -> u32 {
        if policy.ages {
            self.table.age(now, PACKET_BUDGET);
        }
        now
    }

    /// The verdict of a packet for whose key this was found.
    #[inline]
    fn settle(
        &mut self,
        (policy, counters): (Policy, &mut FilterCounters),
        key: &[u32; W],
        found: Option<u32>,
        bytes: usize,
        now: u32,
    ) -> u8 {
        let live = found.and_then(|at| if policy.ages { self.table.unless_due(at, now) } else { Some(at) });
        let Some(at) = live else {
            if policy.learn {
                match self.table.insert(key, Member::default(), policy.idle, now) {
                    Some(_) => counters.learnt += 1,
                    None => counters.refused += 1,
                }
            }
            return MISS;
        };
        if policy.refresh {
            self.table.entries.touch(at, now);
        }
        if policy.count {
            let member = &mut self.table.entries.get_mut(at).value;
            (member.packets, member.bytes) = (member.packets + 1, member.bytes + bytes as u64);
        }
        HIT
    }

    /// The entries, each as a flow key.
    fn list(&self) -> impl Iterator<Item = (FlowKey, Member)> + '_ {
        self.table.entries.numbers().map(|at| {
            let entry = self.table.entries.get(at);
            let mut key = FlowKey::zero();
            for ((w, mask), value) in self.words.iter().zip(entry.key).filter(|((_, mask), _)| *mask != 0) {
                key.set_word(usize::from(*w), value & mask);
            }
            (key, entry.value)
        })
    }
}

impl Policy {
    #[inline]
    fn reads_entries(self) -> bool {
        self.ages || self.refresh || self.count
    }
}

/// A set of the width that its keys need.
#[derive(Debug)]
enum AnySet {
    Narrow(Set<NARROW>),
    Wide(Set<WIDE>),
}

/// Does something with a set, whatever its width.
macro_rules! with_set {
    ($any:expr, $set:ident => $body:expr) => {
        match $any {
            AnySet::Narrow($set) => $body,
            AnySet::Wide($set) => $body,
        }
    };
}
use with_set;

/// A set of keys, and what happens to it.
#[derive(Debug)]
pub struct Filter {
    shape: KeyShape,
    set: AnySet,
    policy: Policy,
    counters: FilterCounters,
    ticks: Ticks,
    share: Share,
    seed: u32,
}

/// An entry, for reports.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its key, within [`KeyShape::mask`].
    pub key: FlowKey,
    /// Packets, where entries are counted.
    pub packets: u64,
    pub bytes: u64,
}

impl Filter {
    /// An empty set.
    ///
    /// # Errors
    /// Where the fields cannot be a key.
    pub fn new(config: &FilterConfig) -> Result<Self, KeyError> {
        let shape = KeyShape::new(&config.fields)?;
        let set = match shape.words.len() {
            0..=NARROW => AnySet::Narrow(Set::new(&shape, config.entries_max, config.seed)),
            _ => AnySet::Wide(Set::new(&shape, config.entries_max, config.seed)),
        };
        let policy = Policy {
            idle: config.idle,
            refresh: config.refresh,
            learn: config.learn,
            count: config.count,
            ages: config.learn && config.idle != NEVER,
            lookups: config.lookups,
        };
        let (counters, ticks) = (FilterCounters::default(), Ticks::default());
        Ok(Self { shape, set, policy, counters, ticks, share: config.share, seed: config.seed })
    }

    /// What its keys are made of.
    pub fn fields(&self) -> &[Field] {
        &self.shape.fields
    }

    /// Adds an entry: the key that packets with this flow key have. It goes after `idle` ticks, or stays ([`NEVER`]).
    /// Says whether it is new.
    ///
    /// # Errors
    /// Where the set is full.
    pub fn insert(&mut self, key: &FlowKey, idle: u32) -> Result<bool, FilterFull> {
        self.policy.ages |= idle != NEVER;
        let now = self.ticks.now();
        let inserted = with_set!(&mut self.set, set => set.insert(key.words(), idle, now));
        inserted.map_err(|()| FilterFull { entries: self.len() })
    }

    /// Entries will come that age, or will not.
    pub fn share_out(&mut self, ages: bool) {
        self.policy.ages |= ages;
    }

    /// Whether packets change what is in it: then an entry is in one share; else all have all.
    fn is_shared_out(&self) -> bool {
        self.share.is_part() && (self.policy.learn || self.policy.ages)
    }

    /// Whether another worker has the same entries, and is asked for them.
    pub fn is_copy(&self) -> bool {
        self.share.me > 0 && !self.is_shared_out()
    }

    /// The worker whose share has, or would have, the entry with the key of packets with this flow key; none where all have it.
    pub fn owner_of(&self, key: &FlowKey) -> Option<usize> {
        let hash = || with_set!(&self.set, set => set.hash(key.words(), self.seed));
        self.is_shared_out().then(|| self.share.owner(hash()))
    }

    pub(super) fn share(&self) -> Share {
        self.share
    }

    #[inline]
    pub(super) fn owner(&self, key: &FlowKey, headers: &Headers) -> Option<usize> {
        if !self.has_key(key, headers) {
            return None;
        }
        self.owner_of(key)
    }

    pub(super) fn process(&mut self, packets: &Burst, lanes: LaneMask, verdicts: &mut [u8; LANES_MAX]) {
        let mut having = LaneMask(0);
        for lane in lanes.lanes() {
            verdicts[lane] = MISS;
            having.0 |= u64::from(self.has_key(&packets.keys[lane], &packets.headers[lane])) << lane;
        }
        self.counters.without_key += (lanes.len() - having.len()) as u64;
        let state = (self.policy, &mut self.counters, &mut self.ticks);
        with_set!(&mut self.set, set => set.process(state, packets, having, verdicts));
    }

    /// Whether a packet has all the fields of a key.
    #[inline]
    fn has_key(&self, key: &FlowKey, headers: &Headers) -> bool {
        // What is cut short has zeros where its fields would be.
        headers.malformed.is_none() && self.shape.has(key)
    }

    pub(super) fn age(&mut self, now_ns: u64) {
        let now = self.ticks.at(now_ns);
        if self.policy.ages {
            with_set!(&mut self.set, set => set.table.age(now, PACKET_BUDGET));
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        with_set!(&self.set, set => set.table.entries.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that have gone by age.
    pub fn aged(&self) -> u64 {
        with_set!(&self.set, set => set.table.aged())
    }

    /// What has happened to it.
    pub fn counters(&self) -> FilterCounters {
        self.counters
    }

    /// Whether the packets of each entry are counted.
    pub fn counts(&self) -> bool {
        self.policy.count
    }

    pub(super) fn table_bytes(&self) -> usize {
        with_set!(&self.set, set => set.table.table_bytes())
    }

    /// The entries, in no order.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |(key, m): (FlowKey, Member)| Listed { key, packets: m.packets, bytes: m.bytes };
        with_set!(&self.set, set => set.list().map(listed).collect())
    }
}

/// An entry that found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the set is full with {entries} entries")]
pub struct FilterFull {
    /// Entries in it.
    pub entries: usize,
}
