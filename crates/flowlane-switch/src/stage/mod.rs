//! Functions of the pipeline: packet filters, asset detection, address translation.
//!
//! Like tables of routes they stand behind the caches, by numbers of the same sequence: a path ends with [`Step::Enter`](crate::ruleset::Step::Enter),
//! and the packets of a burst that have come there are worked on together. All keys are gathered and looked up at once in a
//! cuckoo table ([`flowlane::cuckoo`]); then every packet, in order, gets its verdict, and with it a list of actions as a
//! rule has them. What a function knows (an entry, a host, a session) is therefore in no megaflow, and changes none when it
//! comes or goes.
//!
//! | module | what | keys |
//! |---|---|---|
//! | [`filter`] | sets of exact keys, from configuration or learnt | fields of the packet, up to 12 words |
//! | [`assets`] | hosts and services that have been seen | VLAN, address, MAC address; port |
//! | [`nat`] | source translation of IPv4 | inside address and port; outside address and port |
//! | [`ageing`] | entries that go when they are idle | |
//! | [`table`], [`gathered`] | a cuckoo table of such entries; keys of a burst | |
//! | [`explain`] | what a function would do with a packet | |
//! | [`share`] | which worker a packet is for | |
//! | [`steering`] | the same, for ports that spread frames | |
//!
//! Within a burst a packet sees what those before it have done: where entries have come or gone since the keys were looked
//! up together, its key is looked up again. So the result is that of one packet after the other, which is how tests
//! define it.

pub mod ageing;
pub mod assets;
pub mod explain;
pub mod filter;
pub mod gathered;
pub mod nat;
pub mod route;
pub mod share;
pub mod steering;
pub mod table;

#[cfg(test)]
mod tests;

pub use assets::{AssetConfig, Assets};
pub use explain::{Explained, Translated};
pub use filter::{Filter, FilterConfig};
pub use gathered::Lookups;
pub use nat::{Nat, NatConfig};
pub use share::{Owner, Owners, Share};
pub use steering::Steering;

use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::rule::Action;

use crate::packet::Burst;
use crate::ruleset::{PostCacheError, Steps, compile_post_cache};

/// The verdict of a packet that the function refuses: it is dropped, and the function has counted why.
pub const REFUSED: u8 = u8::MAX;

/// TCP flags: the lower half of what stands in the upper one of word `FLAGS` of a flow key.
mod flag {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
}

/// What happens to the packets that a function gives one verdict.
#[derive(Debug)]
pub struct Verdict {
    /// Its name in configuration and reports.
    pub name: &'static str,
    pub actions: Vec<Action>,
    /// Packets that got it.
    pub packets: u64,
    pub bytes: u64,
    steps: Steps,
}

/// An action that a verdict cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{verdict}`: {source}")]
pub struct FunctionError {
    pub verdict: &'static str,
    /// What is wrong with the action.
    pub source: PostCacheError,
}

/// What a function does.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a switch has a few functions")]
pub enum Kind {
    /// Finds packets in a set of keys.
    Filter(Filter),
    /// Notes hosts and services.
    Assets(Assets),
    /// Translates addresses.
    Nat(Nat),
}

impl Kind {
    /// The names of its verdicts, by number.
    pub fn verdicts(&self) -> &'static [&'static str] {
        match self {
            Kind::Filter(_) => &filter::VERDICTS,
            Kind::Assets(_) => &assets::VERDICTS,
            Kind::Nat(_) => &nat::VERDICTS,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Filter(_) => "filter",
            Kind::Assets(_) => "assets",
            Kind::Nat(_) => "nat",
        }
    }
}

/// A function with what follows its verdicts.
#[derive(Debug)]
pub struct Function {
    /// Its name in reports; empty where none was given.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Packets that came to it.
    pub packets: u64,
    /// Cycles of the time-stamp counter that it took, actions not included.
    pub cycles: u64,
    verdicts: Vec<Verdict>,
}

impl Function {
    /// A function of this number. `actions`: those of every verdict, by number.
    ///
    /// # Errors
    /// Where an action cannot be here.
    ///
    /// # Panics
    /// Where there are not as many lists of actions as verdicts.
    pub fn new(number: u8, name: &str, kind: Kind, actions: Vec<Vec<Action>>) -> Result<Self, FunctionError> {
        let names = kind.verdicts();
        assert_eq!(names.len(), actions.len(), "every verdict has its actions");
        let verdict = |(&name, actions): (&&'static str, Vec<Action>)| {
            let steps = compile_post_cache(&actions, number)
                .map_err(|source| FunctionError { verdict: name, source })?;
            Ok(Verdict { name, actions, packets: 0, bytes: 0, steps: Steps::new(steps) })
        };
        let verdicts = names.iter().zip(actions).map(verdict).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), kind, packets: 0, cycles: 0, verdicts })
    }

    /// Works on the packets of these lanes, each at its own time; gives the verdict of each, by lane.
    #[inline]
    pub fn process(&mut self, packets: &mut Burst, lanes: LaneMask) -> [u8; LANES_MAX] {
        let mut verdicts = [REFUSED; LANES_MAX];
        self.packets += lanes.len() as u64;
        match &mut self.kind {
            Kind::Filter(filter) => filter.process(packets, lanes, &mut verdicts),
            Kind::Assets(assets) => assets.process(packets, lanes, &mut verdicts),
            Kind::Nat(nat) => nat.process(packets, lanes, &mut verdicts),
        }
        verdicts
    }

    /// Who is to work on a lane's packet, where several workers have a share of this.
    #[inline]
    pub fn owner(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        let worker = match &mut self.kind {
            Kind::Filter(filter) => filter.owner(&packets.keys[lane], &packets.headers[lane]),
            Kind::Assets(assets) => assets.owner(&packets.keys[lane], &packets.headers[lane]),
            Kind::Nat(nat) => return nat.owner(packets, lane),
        };
        worker.map_or(Owner::Anyone, Owner::Worker)
    }

    /// Whether two workers may have a packet's state, so that one does half, and the other the rest.
    #[inline]
    pub fn has_halves(&self) -> bool {
        matches!(&self.kind, Kind::Nat(nat) if nat.turns_packets_round())
    }

    /// The same for lanes, as told to the worker whose share this is.
    pub fn owners(&mut self, packets: &mut Burst, lanes: LaneMask) -> Owners {
        let worker = |worker: Option<usize>| worker.map_or(Owner::Anyone, Owner::Worker);
        match &mut self.kind {
            Kind::Filter(filter) => Owners::ask(lanes, filter.share().me, |lane| {
                worker(filter.owner(&packets.keys[lane], &packets.headers[lane]))
            }),
            Kind::Assets(assets) => Owners::ask(lanes, assets.share().me, |lane| {
                worker(assets.owner(&packets.keys[lane], &packets.headers[lane]))
            }),
            Kind::Nat(nat) => Owners::ask(lanes, nat.share().me, |lane| nat.owner(packets, lane)),
        }
    }

    /// What to do with a packet that got a verdict, which is counted; none where it is refused.
    #[inline]
    pub fn take(&mut self, verdict: u8, bytes: u64) -> Option<&Steps> {
        let verdict = self.verdicts.get_mut(usize::from(verdict))?;
        verdict.packets += 1;
        verdict.bytes += bytes;
        Some(&verdict.steps)
    }

    /// What to do with packets that got a verdict.
    ///
    /// # Panics
    /// Where there is no such verdict, or they are refused.
    #[inline]
    pub fn steps(&self, verdict: u8) -> &Steps {
        &self.verdicts[usize::from(verdict)].steps
    }

    /// The verdicts, by number.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Removes what has been idle for too long, of as much as is looked at in one go: for when no packet comes.
    pub fn age(&mut self, now_ns: u64) {
        match &mut self.kind {
            Kind::Filter(filter) => filter.age(now_ns),
            Kind::Assets(assets) => assets.age(now_ns),
            Kind::Nat(nat) => nat.age(now_ns),
        }
    }

    /// Bytes of its tables.
    pub fn table_bytes(&self) -> usize {
        match &self.kind {
            Kind::Filter(filter) => filter.table_bytes(),
            Kind::Assets(assets) => assets.table_bytes(),
            Kind::Nat(nat) => nat.table_bytes(),
        }
    }
}
