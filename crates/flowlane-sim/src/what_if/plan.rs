//! The workloads of an analysis: the user's rules, fewer and more of them, and fewer and more masks.

use std::sync::Arc;

use flowlane::packet::key::FlowKey;
use flowlane::rule::Match;

use crate::parallel;
use crate::report::Effort;
use crate::workload::rules::{MASKS_MAX, Workload, WorkloadError, copied, narrowed, sampled, with_masks};

/// Rules of the largest workload.
const RULES_MAX: usize = 300_000;
/// The most packets of a derived workload.
const PACKETS_MAX: usize = 4096;

/// Workloads along two axes, both of which include the user's.
#[derive(Debug)]
pub struct Plan {
    /// The user's workload.
    pub base: Arc<Workload>,
    /// Workloads by number of rules, ascending.
    pub sizes: Vec<(f64, Arc<Workload>)>,
    /// Workloads by number of distinct masks, ascending.
    pub masks: Vec<(f64, Arc<Workload>)>,
}

/// The derivation of a workload from the rules.
#[derive(Clone, Copy)]
enum Scale {
    Sampled(usize),
    Copied(usize),
    Masks(usize),
    Narrowed(u32),
}

impl Plan {
    /// Derives the workloads from rules (best first) and packets.
    ///
    /// # Errors
    /// Returns an error if there are no rules or no packets, or if there are more masks than can be simulated.
    pub fn new(rules: Vec<Match>, packets: Vec<FlowKey>, effort: Effort) -> Result<Self, WorkloadError> {
        let base = Workload::shared("as it is", rules, packets, effort.seed)?;
        let sizes = sizes(base.rules.len(), effort.quick);
        let masks = masks(base.tables.len(), effort.quick);
        let scales: Vec<Scale> = sizes.into_iter().chain(masks).collect();
        let make = |n: usize| scaled(&base, scales[n], effort.seed);
        let made = parallel::run(effort.threads, scales.len(), &|_| {}, &make);
        // The user's workload comes first, so that it remains among workloads at the same position.
        let sizes = vec![(base.rules.len() as f64, base.clone())];
        let masks = vec![(base.tables.len() as f64, base.clone())];
        let mut out = Self { sizes, masks, base };
        for (scale, workload) in scales.iter().zip(made) {
            match (scale, workload) {
                // Workloads with too many masks are left out.
                (Scale::Narrowed(_), Err(WorkloadError::Masks { .. })) => {}
                (Scale::Sampled(_) | Scale::Copied(_), workload) => {
                    let workload = workload?;
                    out.sizes.push((workload.rules.len() as f64, workload));
                }
                (_, workload) => {
                    let workload = workload?;
                    out.masks.push((workload.tables.len() as f64, workload));
                }
            }
        }
        for axis in [&mut out.sizes, &mut out.masks] {
            axis.sort_by(|a, b| a.0.total_cmp(&b.0));
            axis.dedup_by(|a, b| a.0 == b.0);
        }
        Ok(out)
    }
}

fn sizes(rules: usize, quick: bool) -> Vec<Scale> {
    let (less, more): (&[usize], &[usize]) =
        if quick { (&[4], &[4]) } else { (&[32, 16, 8, 4, 2], &[2, 4, 8, 16]) };
    let less = less.iter().map(|n| rules / n).filter(|n| *n > 0).map(Scale::Sampled);
    let more = more.iter().filter(|n| rules * **n <= RULES_MAX).map(|n| Scale::Copied(*n));
    less.chain(more).collect()
}

fn masks(masks: usize, quick: bool) -> Vec<Scale> {
    let step = if quick { 2 } else { 1 };
    let less = (0..).step_by(step).map(|n| 1usize << n).take_while(|n| *n < masks).map(Scale::Masks);
    let more: &[u32] = match masks {
        _ if quick => &[],
        0..32 => &[1, 2, 4],
        32..=256 => &[1],
        _ => &[],
    };
    less.chain(more.iter().filter(|_| masks < MASKS_MAX).map(|bits| Scale::Narrowed(*bits))).collect()
}

fn scaled(base: &Workload, scale: Scale, seed: u64) -> Result<Arc<Workload>, WorkloadError> {
    let packets = &base.packets[..base.packets.len().min(PACKETS_MAX)];
    let (name, rules, packets) = match scale {
        Scale::Sampled(count) => {
            (format!("{count} of the rules"), sampled(&base.rules, count, seed), packets.to_vec())
        }
        Scale::Copied(copies) => {
            let (rules, packets) = copied(&base.rules, packets, copies, seed);
            (format!("{copies} times the rules"), rules, packets)
        }
        Scale::Masks(masks) => {
            (format!("the rules of {masks} masks"), with_masks(&base.rules, masks), packets.to_vec())
        }
        Scale::Narrowed(bits) => {
            (format!("prefixes shorter by up to {bits}, too"), narrowed(&base.rules, bits), packets.to_vec())
        }
    };
    Workload::shared(name, rules, packets, seed)
}

#[cfg(test)]
mod tests {
    use flowlane::generate::{Profile, RuleConfig, Trace, TraceConfig, generate_rules};

    use super::*;
    use crate::workload::rules::in_order;

    #[test]
    fn both_axes_ascend_and_have_what_was_asked_about() {
        let rules = generate_rules(&RuleConfig::new(Profile::Acl, 120)).unwrap();
        let trace = Trace::generate(&rules, &TraceConfig::new(300)).unwrap();
        for quick in [true, false] {
            let effort = Effort { quick, threads: 2, seed: 1 };
            let plan = Plan::new(in_order(&rules), trace.keys().cloned().collect(), effort).unwrap();
            for (axis, own) in
                [(&plan.sizes, plan.base.rules.len() as f64), (&plan.masks, plan.base.tables.len() as f64)]
            {
                assert!(axis.len() >= 3 && axis.windows(2).all(|w| w[0].0 < w[1].0));
                assert!(axis.iter().any(|(at, workload)| *at == own && Arc::ptr_eq(workload, &plan.base)));
            }
            assert!(plan.sizes.last().unwrap().0 > 3.0 * plan.base.rules.len() as f64);
        }
    }

    #[test]
    fn the_users_workload_is_kept_among_equal_ones() {
        // Rules without addresses have no copies and no shorter prefixes.
        let mut rules = vec![Match::any()];
        rules[0].set(flowlane::packet::fields::Field::NwProto, 6);
        let effort = Effort { quick: false, threads: 1, seed: 1 };
        let plan = Plan::new(rules, vec![FlowKey::default(); 2 * PACKETS_MAX], effort).unwrap();
        for axis in [&plan.sizes, &plan.masks] {
            assert_eq!(axis.len(), 1);
            assert!(Arc::ptr_eq(&axis[0].1, &plan.base));
        }
    }
}
