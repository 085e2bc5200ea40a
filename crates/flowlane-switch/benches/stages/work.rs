//! The workloads of the stages.

use flowlane::generate::{Random, build_frame};
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, parse};
use flowlane::route::Prefix;
use flowlane::rule::Action;
use flowlane_switch::packet::Burst;
use flowlane_switch::stage::ageing::NEVER;
use flowlane_switch::stage::{
    AnyStage, AssetConfig, Assets, Filter, FilterConfig, Lookups, Nat, NatConfig, StageCall, StageTable,
};

pub(crate) const FRAME_BYTES: usize = 60;

type Bytes = [u8; FRAME_BYTES];

const INSIDE: u32 = 0x0a00_0000;
const POOL: u32 = 0xcb00_7100;

/// The stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Nat,
    Assets,
    Filter,
}

impl Name {
    pub(crate) const ALL: [Name; 3] = [Name::Nat, Name::Assets, Name::Filter];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Nat => "nat",
            Name::Assets => "assets",
            Name::Filter => "filter",
        }
    }

    /// The paper's sizes.
    pub(crate) fn sizes(self) -> &'static [usize] {
        match self {
            Name::Filter => &[100, 1000, 10_000, 100_000],
            _ => &[1000, 10_000, 100_000],
        }
    }
}

/// The lookups of a stage: for each burst two batches, of sources and destinations, or of hosts and services.
#[derive(Default)]
pub(crate) struct Asked<const W: usize> {
    /// The keys in its tables: one for each batch, or one for both.
    pub(crate) tables: Vec<Vec<[u32; W]>>,
    /// By packet, its key in each batch.
    pub(crate) asked: Vec<[Option<[u32; W]>; 2]>,
}

/// Lookups, by the width of keys.
pub(crate) enum Keys {
    Two(Asked<2>),
    Four(Asked<4>),
    Seven(Asked<7>),
}

/// A stage's workload.
pub(crate) struct Work {
    name: Name,
    entries: usize,
    /// Packets that fill the table.
    pub(crate) opening: Vec<Bytes>,
    /// Packets that find it full.
    pub(crate) packets: Vec<Bytes>,
    /// The order of their arrival.
    pub(crate) order: Vec<u32>,
    pub(crate) keys: Keys,
    /// The verdicts of the packets.
    pub(crate) verdicts: Vec<u32>,
    /// The filter's entries.
    members: Vec<FlowKey>,
}

struct Flow {
    src: (u32, u16),
    dst: (u32, u16),
    proto: u8,
    flags: u16,
}

impl Flow {
    fn key(&self) -> FlowKey {
        let mut key = FlowKey::zero();
        key.set(Field::EthSrc, 0x0202_0000_0000 | u128::from(self.src.0));
        key.set(Field::EthDst, 0x0200_0000_0002);
        key.set(Field::EthType, 0x0800);
        key.set(Field::NwProto, self.proto.into());
        key.set(Field::NwTtl, 64);
        key.set(Field::Ipv4Src, self.src.0.into());
        key.set(Field::Ipv4Dst, self.dst.0.into());
        key.set(Field::TpSrc, self.src.1.into());
        key.set(Field::TpDst, self.dst.1.into());
        if self.proto == 6 {
            key.set(Field::TcpFlags, self.flags.into());
        }
        key
    }

    fn frame(&self) -> Bytes {
        let mut out = Vec::new();
        build_frame(&self.key(), FRAME_BYTES, &mut out);
        out[..FRAME_BYTES].try_into().expect("so long it is")
    }
}

impl Work {
    pub(crate) fn new(name: Name, entries: usize, packets: usize) -> Self {
        let mut random = Random::new(9);
        let mut work = Self {
            name,
            entries,
            opening: Vec::new(),
            packets: Vec::new(),
            order: Vec::new(),
            keys: Keys::Two(Asked::default()),
            verdicts: Vec::new(),
            members: Vec::new(),
        };
        match name {
            Name::Nat => work.translate(),
            Name::Assets => work.show(),
            Name::Filter => work.filter(&mut random),
        }
        work.order = (0..packets).map(|_| random.index(work.packets.len()) as u32).collect();
        work
    }

    /// Returns the stage, before [`opening`](Self::opening) fills it.
    pub(crate) fn stage(&self, lookups: Lookups) -> StageTable {
        let kind = match self.name {
            Name::Nat => {
                let config =
                    NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL + 15)], self.entries);
                // The benchmark fills the table, with few hosts.
                let config = NatConfig { lookups, sessions_per_host_max: Some(0), ..config };
                AnyStage::Nat(Nat::new(config).expect("there are no forwards"))
            }
            Name::Assets => {
                // It comes from one port.
                let port_max = Some(self.entries);
                let config = AssetConfig { lookups, port_max, ..AssetConfig::new(self.entries) };
                AnyStage::Assets(Assets::new(config))
            }
            Name::Filter => {
                let fields = vec![Field::NwProto, Field::Ipv4Src, Field::Ipv4Dst, Field::TpSrc, Field::TpDst];
                let config = FilterConfig { lookups, ..FilterConfig::new(fields, self.entries) };
                let mut filter = Filter::new(&config).expect("the key is right");
                for key in &self.members {
                    filter.insert(key, NEVER).expect("there is room");
                }
                AnyStage::Filter(filter)
            }
        };
        let verdicts = kind.verdicts().len();
        StageTable::new(5, "", kind, vec![vec![Action::Output(flowlane::rule::action::PortNo(2))]; verdicts])
            .expect("the actions are right")
    }

    /// Panics unless the stage holds all its entries and has refused no packet.
    pub(crate) fn check(&self, stage: &StageTable) {
        let (len, refused) = match &stage.stage {
            AnyStage::Nat(nat) => (nat.len(), nat.counters().refused.iter().sum()),
            AnyStage::Assets(assets) => (assets.len(), assets.counters().refused + assets.counters().without),
            AnyStage::Filter(filter) => (filter.len(), filter.counters().without_key),
            AnyStage::Routes(_) => unreachable!("the benchmark has no routes"),
        };
        assert_eq!((len, refused), (self.entries, 0), "{}: entries, packets refused", self.name.text());
    }

    /// UDP sessions: as many packets outbound as inbound.
    fn translate(&mut self) {
        let flow = |i: usize| Flow {
            src: (INSIDE | (i / 16) as u32, 4000 + (i % 16) as u16),
            dst: (0xc633_6400 + (i % 200) as u32, 53),
            proto: 17,
            flags: 0,
        };
        self.opening = (0..self.entries).map(|i| flow(i).frame()).collect();
        let mut stage = self.stage(Lookups::Batch);
        let mut asks = Asked { tables: vec![Vec::new(); 2], ..Asked::default() };
        for (i, bytes) in self.opening.iter().enumerate() {
            let mut key = FlowKey::zero();
            let headers = parse(bytes, 1, &mut key);
            let mut burst = Burst::new(1);
            burst.push(bytes, &key, headers, 0);
            stage.process(StageCall::of(5, &burst), &mut burst, LaneMask::first(1));
            let keys = &burst.keys;
            let flow = flow(i);
            let port = (keys[0].word(word::PORTS) >> 16) as u16;
            let address = keys[0].word(word::IPV4_SRC);
            let ends = [(flow.src.0, flow.src.1), (address, port)];
            let ends = ends.map(|(address, port)| [address, 17 << 16 | u32::from(port)]);
            asks.tables.iter_mut().zip(ends).for_each(|(table, key)| table.push(key));
            asks.asked.extend([[Some(ends[0]), None], [None, Some(ends[1])]]);
            let back = Flow { src: flow.dst, dst: (address, port), proto: 17, flags: 0 };
            self.packets.push(flow.frame());
            self.packets.push(back.frame());
            self.verdicts.extend([0, 1]);
        }
        self.keys = Keys::Two(asks);
    }

    /// Hosts, each with a service: as many packets that show both as packets that show the host.
    fn show(&mut self) {
        let hosts = self.entries / 2;
        let mut keys = Asked { tables: vec![Vec::new()], ..Asked::default() };
        for i in 0..hosts {
            let flow = |flags| Flow {
                src: (INSIDE + 1 + i as u32, 443),
                dst: (0xc633_6401, 40_000),
                proto: 6,
                flags,
            };
            self.opening.push(flow(0x12).frame());
            self.packets.push(flow(0x12).frame());
            self.packets.push(flow(0x10).frame());
            let address = INSIDE + 1 + i as u32;
            let host = [1 << 16 | 0xffff, 0, 0, 0, address, 0x0202_0000 | address >> 16, address & 0xffff];
            let service = [2 << 16 | 0xffff, 0, 0, 0, address, 6 << 16 | 443, 0];
            keys.tables[0].extend([host, service]);
            keys.asked.extend([[Some(host), Some(service)], [Some(host), None]]);
            self.verdicts.extend([0, 0]);
        }
        self.keys = Keys::Seven(keys);
    }

    /// A set of 5-tuples: three packets of four are in it.
    fn filter(&mut self, random: &mut Random) {
        let mut keys = Asked { tables: vec![Vec::new()], ..Asked::default() };
        for i in 0..self.entries * 4 / 3 {
            let flow = Flow {
                src: (random.bits() as u32 >> 1 | 1 << 24, random.bits() as u16),
                dst: (0xc000_0200 + i as u32, random.bits() as u16),
                proto: 17,
                flags: 0,
            };
            let key = flow.key();
            let words = [word::PORTS, word::NW_PROTO, word::IPV4_SRC, word::IPV4_DST]
                .map(|w| key.word(w) & if w == word::NW_PROTO { 0xff00_0000 } else { u32::MAX });
            if i < self.entries {
                self.members.push(key);
                keys.tables[0].push(words);
            }
            keys.asked.push([Some(words), None]);
            self.packets.push(flow.frame());
            self.verdicts.push(u32::from(i >= self.entries));
        }
        self.keys = Keys::Four(keys);
    }
}
