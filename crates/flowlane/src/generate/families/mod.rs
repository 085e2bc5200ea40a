//! Rule sets unlike ClassBench's: of other networks, and hard for one kind of engine each.
//!
//! An engine that is tried on access lists alone is tuned to them. These families are a proving ground: each
//! has one property in the extreme. What it is and whom it hurts is in a table of [`super::rules`].
//!
//! A family draws one match after the other; a repeated match is drawn again, until there are enough.
//! That costs time and space linear in the rules for all of them.

mod adversarial;
mod conditions;
mod ipv6;
mod networks;
mod prefixes;

use super::assemble::in_order;
use super::profile::Profile;
use super::random::Random;
use super::rules::RuleSetError;
use crate::rule::Match;
use std::collections::HashSet;

/// Draws the matches of a rule set of one kind.
pub(super) trait Family {
    /// The next match, which may have been drawn before; none where there are no more. The larger `strain`,
    /// the further it may stray from the profile: asked for where nothing new came for long.
    fn draw(&mut self, strain: u32, random: &mut Random) -> Option<Match>;
}

/// Returns the family of a profile, for this number of rules; `None` for profiles that are drawn shape by shape.
pub(super) fn family(profile: Profile, rules: usize, seed: u64) -> Option<Box<dyn Family>> {
    let mut random = Random::for_purpose(seed, profile.name());
    let random = &mut random;
    Some(match profile {
        Profile::Acl | Profile::Fw | Profile::Ipc | Profile::OpenFlow => return None,
        Profile::Ranges => Box::new(networks::Ranges::new(rules, random)),
        Profile::Groups => Box::new(networks::Groups::new(random)),
        Profile::Blocklist => Box::new(networks::Blocklist::default()),
        Profile::Acl6 => Box::new(ipv6::Acl6::new(seed)),
        Profile::Mixed => Box::new(ipv6::Mixed::new(seed)),
        Profile::Masks => Box::new(prefixes::Masks),
        Profile::Nested => Box::new(prefixes::Nested::new(rules, random)),
        Profile::Disjoint => Box::new(prefixes::Disjoint::new(rules, random)),
        Profile::Overlap => Box::new(adversarial::Overlap::default()),
        Profile::Cuts => Box::new(adversarial::Cuts::default()),
        Profile::Chains => Box::new(adversarial::Chains::new(random)),
    })
}

/// Draws in a row without a new match after which a family is exhausted.
const FAILURES_MAX: u32 = 20_000;

/// Draws `count` different matches of a family, in the order of rules.
pub(super) fn draw_set(family: &mut dyn Family, rules: usize, seed: u64) -> Result<Vec<Match>, RuleSetError> {
    let mut random = Random::for_purpose(seed, "family");
    let mut seen = HashSet::new();
    let mut matches = Vec::new();
    let mut failures = 0;
    while matches.len() < rules {
        let drawn = family.draw(failures / 64, &mut random);
        if let Some(drawn) = drawn.as_ref().filter(|drawn| seen.insert((*drawn).clone())) {
            matches.push(drawn.clone());
            failures = 0;
            continue;
        }
        failures += 1;
        if drawn.is_none() || failures > FAILURES_MAX {
            return Err(RuleSetError::Rules { wanted: rules, made: matches.len() });
        }
    }
    drop(seen);
    Ok(in_order(matches))
}
