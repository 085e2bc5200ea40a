//! A packet filter: tests whether a packet's key is in a set, like the sets of nftables. Entries may time out, and packets
//! may add entries.
//!
//! A key consists of fields of the packet: one address, a 5-tuple, any fields that take up to 12 words of the flow key. A
//! packet that lacks one of the fields (an IPv6 packet, if the key has IPv4 addresses) is in no set.

mod decision;

pub use decision::FilterDecision;

use flowlane::hash::murmur3;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::{Field, Prerequisite, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask, WORDS};
use flowlane::packet::{Headers, Transport};

use super::ageing::{NEVER, PACKET_BUDGET, Ticks};
use super::gathered::{Gathered, Lookups};
use super::shard::{Owner, Shard};
use super::table::{AgedTable, Found};
use super::{Explanation, StageCall, StagePacket, StatefulStage, Verdicts};
use crate::packet::Burst;

const HIT: u32 = 0;
const MISS: u32 = 1;

/// The words of narrow keys: an IPv4 5-tuple.
const NARROW: usize = 4;

/// The words of wide keys: an IPv6 5-tuple and more.
const WIDE: usize = 12;

/// The settings of a filter.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// The fields of the key.
    pub fields: Vec<Field>,
    /// The maximum number of entries.
    pub entries_max: usize,
    /// The maximum number of entries that the packets of one port add; without it, as many as are free.
    pub port_max: Option<usize>,
    /// The ticks after which a [learned](Self::learn) entry expires; [`NEVER`] if it stays.
    pub idle: u32,
    /// A hit restarts the entry's timeout.
    pub refresh: bool,
    /// A miss adds the packet's key.
    pub learn: bool,
    /// Each entry counts its packets.
    pub count: bool,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// The key of the hash.
    pub seed: u32,
    /// This worker's shard.
    pub shard: Shard,
}

impl FilterConfig {
    /// A filter on these fields whose entries stay.
    pub fn new(fields: Vec<Field>, entries_max: usize) -> Self {
        Self {
            fields,
            entries_max,
            port_max: None,
            idle: NEVER,
            refresh: false,
            learn: false,
            count: false,
            lookups: Lookups::default(),
            seed: 0,
            shard: Shard::default(),
        }
    }
}

/// The reason why fields cannot be a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no field.
    #[error("a key has at least one field")]
    Empty,
    /// A field that depends on more than a filter reads.
    #[error("`{0}` cannot be part of a key; take fields of Ethernet, VLAN, IP, ARP or transport ports")]
    Field(&'static str),
    /// The field that earlier rules may change without a new parse.
    #[error(
        "`nw_ttl` cannot be part of a key: filters see packets as they came, before any `dec_ttl` in front"
    )]
    Ttl,
    /// Two fields that no packet has together.
    #[error("no packet has both `{0}` and `{1}`")]
    Contradiction(&'static str, &'static str),
    /// The fields take too many words.
    #[error("the fields lie in {0} words of the flow key; a key has up to {WIDE}")]
    Long(usize),
}

/// Kinds of packets, one bit each.
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

/// The fields of a key, their words, and the packets that have them.
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
    /// If they cannot be a key.
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

    /// Returns the bits of the flow key that the key consists of.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// Returns whether only packets of this EtherType have the fields.
    pub fn is_only(&self, eth_type: u16) -> bool {
        let kind = kind::of(eth_type);
        self.kinds == kind && kind != kind::OTHER
    }

    /// Returns whether a packet has all the fields. A first fragment that ends within its transport header has no ports (RFC 1858).
    #[inline]
    fn has(&self, key: &FlowKey, headers: &Headers) -> bool {
        let vlan_type = key.word(word::VLAN_ETH_TYPE);
        let kind = kind::of(vlan_type as u16);
        let has_ports = || matches!(headers.transport, Transport::Tcp | Transport::Udp | Transport::Sctp);
        self.kinds & kind != 0
            && (!self.vlan || vlan_type >> 16 & u32::from(VLAN_PRESENT) != 0)
            && (!self.ports || has_ports())
    }
}

/// An entry's counters.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    packets: u64,
    bytes: u64,
}

/// The entries, by keys of `W` words.
#[derive(Debug)]
struct Set<const W: usize> {
    /// The key's words of the flow key and their masks; 0 beyond the key's length.
    words: [(u8, u32); W],
    table: AgedTable<W, Member>,
    gathered: Box<Gathered<W>>,
}

/// The effects of packets on a set.
#[derive(Clone, Copy, Debug)]
struct Policy {
    idle: u32,
    refresh: bool,
    learn: bool,
    count: bool,
    /// Entries may expire, so that an entry is read before it counts.
    ages: bool,
    lookups: Lookups,
}

/// A set's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterCounters {
    /// Packets that lack a field of the key; they are misses, too.
    pub without_key: u64,
    /// Entries that packets added.
    pub learnt: u64,
    /// Entries that packets did not add since the set was full, or their port had its share.
    pub refused: u64,
}

impl<const W: usize> Set<W> {
    fn new(shape: &KeyShape, config: &FilterConfig) -> Self {
        let words = std::array::from_fn(|i| shape.words.get(i).copied().unwrap_or((0, 0)));
        let table = AgedTable::shared(config.entries_max, config.port_max, config.seed);
        Self { words, table, gathered: Box::default() }
    }

    #[inline]
    fn key(&self, words: &[u32; WORDS]) -> [u32; W] {
        self.words.map(|(w, mask)| words[usize::from(w) % WORDS] & mask)
    }

    /// Hashes independently of the table's own hash, so that shards fill evenly.
    #[inline]
    fn hash(&self, words: &[u32; WORDS], seed: u32) -> u32 {
        let hash = self.key(words).into_iter().fold(!seed, murmur3::mix);
        murmur3::finish(hash, 4 * W as u32)
    }

    fn insert(&mut self, words: &[u32; WORDS], idle: u32, now: u32) -> Result<bool, ()> {
        let key = self.key(words);
        let found = self.table.find(&key, now);
        if self.table.commit(found).is_some() {
            return Ok(false);
        }
        self.table.insert(&key, Member::default(), idle, now).map(|_| true).ok_or(())
    }

    /// Writes the verdicts of these lanes, which all have keys.
    #[inline]
    fn process(
        &mut self,
        (policy, counters, ticks): (Policy, &mut FilterCounters, &mut Ticks),
        packets: &Burst,
        lanes: LaneMask,
        verdicts: &mut Verdicts,
    ) {
        if policy.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let now = self.age_at(policy, ticks.at(packets.times_ns[lane]));
                let key = self.key(packets.keys[lane].words());
                let found = self.table.keys().lookup(&key);
                let decision = self.decide(policy, found, now);
                verdicts[lane] = decision.verdict();
                self.commit((policy, counters), (packets, lane), &key, decision, now);
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
        for index in 0..self.gathered.len() {
            let (lane, &key) = self.gathered.get(index);
            let now = self.age_at(policy, ticks.at(packets.times_ns[lane]));
            let found = self.table.since(changes, &key, self.gathered.found(index));
            let decision = self.decide(policy, found, now);
            verdicts[lane] = decision.verdict();
            self.commit((policy, counters), (packets, lane), &key, decision, now);
        }
    }

    /// Removes entries that are due at a packet's time.
    #[inline]
    fn age_at(&mut self, policy: Policy, now: u32) -> u32 {
        if policy.ages {
            self.table.age(now, PACKET_BUDGET);
        }
        now
    }

    /// Decides on a packet for whose key a lookup returned `found`.
    #[inline]
    fn decide(&self, policy: Policy, found: Option<u32>, now: u32) -> FilterDecision {
        FilterDecision::Key(match found {
            Some(at) if !policy.ages => Found::Live(at),
            found => self.table.decide(found, now),
        })
    }

    /// Refreshes and counts the entry of a hit; learns the key of a miss.
    #[inline]
    fn commit(
        &mut self,
        (policy, counters): (Policy, &mut FilterCounters),
        (packets, lane): (&Burst, usize),
        key: &[u32; W],
        decision: FilterDecision,
        now: u32,
    ) {
        let FilterDecision::Key(found) = decision else { return };
        let Some(at) = self.table.commit(found) else {
            if policy.learn {
                let port = packets.keys[lane].word(word::IN_PORT);
                match self.table.learn(key, Member::default(), policy.idle, now, port) {
                    Some(_) => counters.learnt += 1,
                    None => counters.refused += 1,
                }
            }
            return;
        };
        if policy.refresh {
            self.table.entries.touch(at, now);
        }
        if policy.count {
            let member = &mut self.table.entries.get_mut(at).value;
            let bytes = packets.frames[lane].len() as u64;
            (member.packets, member.bytes) = (member.packets + 1, member.bytes + bytes);
        }
    }

    /// Looks a packet's key up and decides on it.
    fn decide_alone(&self, policy: Policy, words: &[u32; WORDS], now: u32) -> FilterDecision {
        self.decide(policy, self.table.keys().lookup(&self.key(words)), now)
    }

    /// Returns the entries, each as a flow key.
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

/// Evaluates an expression with a set of either width.
macro_rules! with_set {
    ($any:expr, $set:ident => $body:expr) => {
        match $any {
            AnySet::Narrow($set) => $body,
            AnySet::Wide($set) => $body,
        }
    };
}
use with_set;

/// A set of keys with its settings and counters.
#[derive(Debug)]
pub struct Filter {
    shape: KeyShape,
    set: AnySet,
    policy: Policy,
    counters: FilterCounters,
    ticks: Ticks,
    shard: Shard,
    seed: u32,
}

/// An entry, for reports.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The key, within [`KeyShape::mask`].
    pub key: FlowKey,
    /// Packets, if entries count them.
    pub packets: u64,
    pub bytes: u64,
}

impl Filter {
    /// An empty set.
    ///
    /// # Errors
    /// If the fields cannot be a key.
    pub fn new(config: &FilterConfig) -> Result<Self, KeyError> {
        let shape = KeyShape::new(&config.fields)?;
        let set = match shape.words.len() {
            0..=NARROW => AnySet::Narrow(Set::new(&shape, config)),
            _ => AnySet::Wide(Set::new(&shape, config)),
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
        Ok(Self { shape, set, policy, counters, ticks, shard: config.shard, seed: config.seed })
    }

    /// Returns the fields of its keys.
    pub fn fields(&self) -> &[Field] {
        &self.shape.fields
    }

    /// Adds the key of packets with this flow key. The entry expires after `idle` ticks, or stays ([`NEVER`]). Returns
    /// whether it is new.
    ///
    /// # Errors
    /// If the set is full.
    pub fn insert(&mut self, key: &FlowKey, idle: u32) -> Result<bool, FilterFull> {
        self.policy.ages |= idle != NEVER;
        let now = self.ticks.now();
        let inserted = with_set!(&mut self.set, set => set.insert(key.words(), idle, now));
        inserted.map_err(|()| FilterFull { entries: self.len() })
    }

    /// Declares whether entries will be added that expire.
    pub fn set_ages(&mut self, ages: bool) {
        self.policy.ages |= ages;
    }

    /// Returns whether packets change the set, so that each entry is in one shard; otherwise every worker has all entries.
    fn is_sharded(&self) -> bool {
        self.shard.is_part() && (self.policy.learn || self.policy.ages)
    }

    /// Returns whether another worker has the same entries, and reports them.
    pub fn is_replica(&self) -> bool {
        self.shard.me > 0 && !self.is_sharded()
    }

    /// Returns the worker whose shard the key of packets with this flow key belongs to; none if every worker has it.
    pub fn owner_of(&self, key: &FlowKey) -> Option<usize> {
        let hash = || with_set!(&self.set, set => set.hash(key.words(), self.seed));
        self.is_sharded().then(|| self.shard.owner(hash()))
    }

    /// Returns whether a packet has all the fields of a key.
    #[inline]
    fn has_key(&self, key: &FlowKey, headers: &Headers) -> bool {
        // The fields of a truncated packet are zeros.
        headers.malformed.is_none() && self.shape.has(key, headers)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        with_set!(&self.set, set => set.table.entries.len())
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries that have expired.
    pub fn aged(&self) -> u64 {
        with_set!(&self.set, set => set.table.aged())
    }

    /// Returns the counters.
    pub fn counters(&self) -> FilterCounters {
        self.counters
    }

    /// Returns whether entries count their packets.
    pub fn counts(&self) -> bool {
        self.policy.count
    }

    /// Returns the entries, in no particular order.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |(key, m): (FlowKey, Member)| Listed { key, packets: m.packets, bytes: m.bytes };
        with_set!(&self.set, set => set.list().map(listed).collect())
    }
}

impl StatefulStage for Filter {
    const KIND: &'static str = "filter";
    const VERDICTS: &'static [&'static str] = &["hit", "miss"];
    type Decision = FilterDecision;

    fn process(&mut self, _: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts) {
        let mut having = LaneMask(0);
        for lane in lanes.lanes() {
            verdicts[lane] = FilterDecision::NoKey.verdict();
            having.0 |= u64::from(self.has_key(&packets.keys[lane], &packets.headers[lane])) << lane;
        }
        self.counters.without_key += (lanes.len() - having.len()) as u64;
        let state = (self.policy, &mut self.counters, &mut self.ticks);
        with_set!(&mut self.set, set => set.process(state, packets, having, verdicts));
    }

    fn decide(&self, _: StageCall, packet: StagePacket<'_>) -> FilterDecision {
        if !self.has_key(packet.key, packet.headers) {
            return FilterDecision::NoKey;
        }
        let now = self.ticks.peek(packet.now_ns);
        with_set!(&self.set, set => set.decide_alone(self.policy, packet.key.words(), now))
    }

    fn explain(&self, _: StageCall, packet: StagePacket<'_>, decision: &FilterDecision) -> Explanation {
        Explanation::unchanged(decision.verdict(), format!("filter: {}", self.reason(packet, *decision)))
    }

    fn shard(&self) -> Shard {
        self.shard
    }

    #[inline]
    fn decide_owner(&self, packet: StagePacket<'_>) -> Owner {
        if !self.has_key(packet.key, packet.headers) {
            return Owner::Any;
        }
        self.owner_of(packet.key).map_or(Owner::Any, Owner::Worker)
    }

    fn age(&mut self, now_ns: u64) {
        let now = self.ticks.at(now_ns);
        if self.policy.ages {
            with_set!(&mut self.set, set => set.table.age(now, PACKET_BUDGET));
        }
    }

    fn table_bytes(&self) -> usize {
        with_set!(&self.set, set => set.table.table_bytes())
    }
}

/// The set is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the set is full with {entries} entries")]
pub struct FilterFull {
    /// The number of entries.
    pub entries: usize,
}
