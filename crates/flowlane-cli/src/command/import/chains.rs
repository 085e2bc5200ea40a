//! Chains of rules that jump to each other, as one list in which the first matching entry decides.
//!
//! A jump becomes the rules of the chain that it leads to, each with the jump's condition in addition: packets that none of them
//! decides meet the entries that follow, as after a return at the chain's end. Where a rule of a chain returns, the rest of its
//! callers follows at once for the packets of that rule, up to the policy.

use std::collections::{BTreeMap, BTreeSet};

use super::LeftOut;
use super::condition::Condition;

/// Entries of a list: priorities of Open vSwitch have 16 bits.
pub(super) const ENTRIES_MAX: usize = 65_000;

/// Chains inside each other.
const DEPTH_MAX: usize = 32;

/// Returns that hold for some packets alone, one behind the other on a packet's way.
const RETURNS_MAX: usize = 256;

/// Rules that are looked at: chains that are called twice are looked at twice.
const STEPS_MAX: usize = 2_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// A rule of a chain.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its place in the source, for messages.
    pub(super) place: String,
    pub(super) condition: Condition,
    pub(super) target: Target,
}

/// The packets that an entry decides, and whether they pass.
pub(super) struct Entry {
    pub(super) condition: Condition,
    pub(super) passes: bool,
}

/// The rest of a chain, and of those that called it.
struct Rest<'a> {
    lines: &'a [Line],
    caller: Option<&'a Rest<'a>>,
    depth: usize,
}

/// The chains of a firewall.
#[derive(Default)]
pub(super) struct Chains(pub(super) BTreeMap<String, Vec<Line>>);

struct Walk<'a> {
    chains: &'a Chains,
    policy: bool,
    entries: Vec<Entry>,
    left_out: Vec<LeftOut>,
    steps: usize,
    returns: usize,
}

impl Chains {
    /// Removes rules whose targets are not chains; returns them with their chains.
    pub(super) fn remove_unknown_targets(&mut self) -> Vec<(String, LeftOut)> {
        let known: BTreeSet<String> = self.0.keys().cloned().collect();
        let mut left_out = Vec::new();
        for (chain, lines) in &mut self.0 {
            lines.retain(|line| match &line.target {
                Target::Jump(to) | Target::Goto(to) if !known.contains(to) => {
                    left_out.push((chain.clone(), LeftOut::new(&line.place, format!("target {to}"))));
                    false
                }
                _ => true,
            });
        }
        left_out
    }

    /// Returns the chains that packets of the first may come to.
    pub(super) fn reached(&self, first: &str) -> BTreeSet<String> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![first.to_owned()]);
        while let Some(chain) = next.pop() {
            let lines = self.0.get(&chain).into_iter().flatten();
            next.extend(lines.filter_map(|line| match &line.target {
                Target::Jump(to) | Target::Goto(to) if !reached.contains(to) => Some(to.clone()),
                _ => None,
            }));
            reached.insert(chain);
        }
        reached
    }

    /// The entries of a chain, without its policy, and the rules that are left out.
    ///
    /// # Errors
    /// Chains that jump in a circle, and too many entries.
    pub(super) fn list(
        &self,
        first: &str,
        all: &Condition,
        policy: bool,
    ) -> Result<(Vec<Entry>, Vec<LeftOut>), String> {
        let mut walk =
            Walk { chains: self, policy, entries: Vec::new(), left_out: Vec::new(), steps: 0, returns: 0 };
        let lines = self.0.get(first).map_or(&[][..], Vec::as_slice);
        walk.chain(lines, all, None, 0)?;
        Ok((walk.entries, walk.left_out))
    }
}

impl Walk<'_> {
    fn entry(&mut self, condition: Condition, passes: bool) -> Result<(), String> {
        if self.entries.len() == ENTRIES_MAX {
            return Err(format!("the chains become more than {ENTRIES_MAX} entries"));
        }
        self.entries.push(Entry { condition, passes });
        Ok(())
    }

    /// Appends the entries of a chain for the packets of a condition.
    fn chain(
        &mut self,
        lines: &[Line],
        all: &Condition,
        caller: Option<&Rest<'_>>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "more than {DEPTH_MAX} chains jump to each other, or some do so in a circle"
            ));
        }
        for (n, line) in lines.iter().enumerate() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(format!("chains call each other so often that {STEPS_MAX} rules are not all"));
            }
            let condition = match all.and(&line.condition) {
                Ok(Some(condition)) => condition,
                Ok(None) => continue,
                Err(reason) => {
                    self.left_out.push(LeftOut { place: line.place.clone(), reason });
                    continue;
                }
            };
            let chains = self.chains;
            let of = |name: &String| chains.0.get(name).map_or(&[][..], Vec::as_slice);
            match &line.target {
                Target::Accept => self.entry(condition, true)?,
                Target::Drop => self.entry(condition, false)?,
                // What follows in the callers follows anyway.
                Target::Return if condition == *all => return Ok(()),
                Target::Return if n + 1 == lines.len() => {}
                Target::Return => self.rest(caller, &condition)?,
                Target::Jump(to) => {
                    let rest = Rest { lines: &lines[n + 1..], caller, depth };
                    self.chain(of(to), &condition, Some(&rest), depth + 1)?;
                }
                Target::Goto(to) => {
                    self.chain(of(to), &condition, caller, depth + 1)?;
                    self.rest(caller, &condition)?;
                }
            }
        }
        Ok(())
    }

    /// Appends what follows after a return: the rest of the callers, and the policy.
    fn rest(&mut self, rest: Option<&Rest<'_>>, all: &Condition) -> Result<(), String> {
        let Some(rest) = rest else { return self.entry(all.clone(), self.policy) };
        self.returns += 1;
        if self.returns > RETURNS_MAX {
            return Err(format!(
                "a packet may meet more than {RETURNS_MAX} rules that return for some packets alone"
            ));
        }
        self.chain(rest.lines, all, rest.caller, rest.depth)?;
        self.rest(rest.caller, all)?;
        self.returns -= 1;
        Ok(())
    }
}
