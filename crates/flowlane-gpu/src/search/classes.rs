//! Classes of rules with one mask, and their tables: `kernels/class_table.cuh`.
//!
//! A class has a cuckoo table of three subtables; one of more than 256 rules is split. All tables use the same hash
//! functions, so that these are loaded once; where a rule finds no place, all tables are made anew with others.

use std::collections::{HashMap, HashSet};

use flowlane::generate::Random;

use crate::error::GpuError;
use crate::ternary::{Ternary, TernaryRules};

/// Most rules of a class table: more are split.
pub const CLASS_RULES_MAX: usize = 256;
/// Subtables of a class table.
pub const SUBTABLES: usize = 3;
/// Slots of a subtable.
pub const SLOTS: usize = 128;
/// Of the universal hash functions: the largest prime below 2³².
pub const PRIME: u64 = 4_294_967_291;
/// Rules that are moved for one before its table is given up.
const MOVES_MAX: usize = 64;
/// Sets of hash functions that are tried.
const TRIES_MAX: usize = 64;

/// The hash functions: those of `hash_tuple` and `slot_of`.
#[derive(Debug)]
pub(crate) struct Functions<const W: usize> {
    /// Multipliers of the words, and one number more.
    multilinear: Vec<u64>,
    /// a and b of each subtable.
    universal: [(u64, u64); SUBTABLES],
}

impl<const W: usize> Functions<W> {
    fn draw(random: &mut Random) -> Self {
        let universal = std::array::from_fn(|_| (1 + random.below(PRIME - 1), random.below(PRIME)));
        Self { multilinear: (0..=W).map(|_| random.bits()).collect(), universal }
    }

    /// 32 bits of a masked tuple.
    pub(super) fn hash(&self, masked: &[u32; W]) -> u32 {
        let products = self.multilinear.iter().zip(masked).map(|(k, word)| k.wrapping_mul((*word).into()));
        (products.fold(self.multilinear[W], u64::wrapping_add) >> 32) as u32
    }

    fn slot(&self, x: u32, subtable: usize) -> usize {
        let (a, b) = self.universal[subtable];
        // Below 2⁶⁴: a, b and x mod p are all below 2³².
        subtable * SLOTS + ((a * (u64::from(x) % PRIME) + b) % PRIME) as usize % SLOTS
    }

    /// As kernels take them.
    pub(crate) fn words(&self) -> Vec<u64> {
        let universal = self.universal.iter().flat_map(|(a, b)| [*a, *b]);
        self.multilinear.iter().copied().chain(universal).collect()
    }
}

/// The rules of one mask, no two of one value.
#[derive(Debug)]
pub(crate) struct Class<const W: usize> {
    pub(super) mask: [u32; W],
    pub(super) rules: Vec<Ternary<W>>,
}

/// Class tables as kernels take them.
#[derive(Debug)]
pub struct ClassTables<const W: usize> {
    pub(crate) classes: Vec<Class<W>>,
    pub(crate) functions: Functions<W>,
    /// [`words_of_class`] for each.
    pub(crate) words: Vec<u32>,
}

/// Words of the table of a class: its mask, and for each slot a value and a standing.
pub const fn words_of_class(w: usize) -> usize {
    w + SUBTABLES * SLOTS * (w + 1)
}

impl<const W: usize> ClassTables<W> {
    /// Sorts rules into classes and fills their tables, if `reserve` has nothing against so many bytes.
    ///
    /// # Errors
    /// What `reserve` says, and where rules find no places.
    pub fn new(
        rules: &TernaryRules<W>,
        seed: u64,
        reserve: impl FnOnce(&'static str, usize) -> Result<(), GpuError>,
    ) -> Result<Self, GpuError> {
        let classes = group(rules, CLASS_RULES_MAX);
        reserve("class tables", 4 * words_of_class(W) * classes.len())?;
        let mut random = Random::for_purpose(seed, "class tables");
        for _ in 0..TRIES_MAX {
            let functions = Functions::draw(&mut random);
            if let Some(words) = fill(&classes, &functions, &mut random) {
                return Ok(Self { classes, functions, words });
            }
        }
        // Two thirds of the slots are in use at most, so that a class fails once in very many sets of functions.
        Err(GpuError::Placement { tries: TRIES_MAX })
    }

    /// How many classes there are.
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// The tables: [`words_of_class`] for each.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The hash functions, as kernels take them.
    pub fn function_words(&self) -> Vec<u64> {
        self.functions.words()
    }
}

/// The classes, in the order of their best rules; those of more than `rules_max` rules are several.
#[inline(never)]
pub(super) fn group<const W: usize>(rules: &TernaryRules<W>, rules_max: usize) -> Vec<Class<W>> {
    let mut of_mask: HashMap<[u32; W], usize> = HashMap::new();
    let mut seen: HashSet<([u32; W], [u32; W])> = HashSet::new();
    let mut classes: Vec<Class<W>> = Vec::new();
    // Best first, so that of rules alike the best stays.
    for rule in &rules.rules {
        if !seen.insert((rule.mask, rule.value)) {
            continue;
        }
        let class = of_mask.entry(rule.mask).or_insert(classes.len());
        if classes.get(*class).is_none_or(|class| class.rules.len() == rules_max) {
            *class = classes.len();
            classes.push(Class { mask: rule.mask, rules: Vec::new() });
        }
        classes[*class].rules.push(*rule);
    }
    classes
}

fn fill<const W: usize>(
    classes: &[Class<W>],
    functions: &Functions<W>,
    random: &mut Random,
) -> Option<Vec<u32>> {
    let mut words = Vec::with_capacity(classes.len() * words_of_class(W));
    for class in classes {
        let slots = place(&class.rules, functions, random)?;
        words.extend(class.mask);
        for rule in slots {
            words.extend(rule.map_or([0; W], |rule| rule.value));
            words.push(rule.map_or(0, |rule| rule.standing));
        }
    }
    Some(words)
}

/// Cuckoo hashing: a rule that finds its slots taken takes one of them, and the rule that was there goes on.
fn place<'a, const W: usize>(
    rules: &'a [Ternary<W>],
    functions: &Functions<W>,
    random: &mut Random,
) -> Option<Vec<Option<&'a Ternary<W>>>> {
    let mut slots: Vec<Option<&Ternary<W>>> = vec![None; SUBTABLES * SLOTS];
    for rule in rules {
        let mut homeless = rule;
        let mut moves = 0;
        loop {
            let x = functions.hash(&homeless.value);
            let choices: [usize; SUBTABLES] = std::array::from_fn(|i| functions.slot(x, i));
            if let Some(free) = choices.iter().find(|slot| slots[**slot].is_none()) {
                slots[*free] = Some(homeless);
                break;
            }
            if moves == MOVES_MAX {
                return None;
            }
            moves += 1;
            let taken = choices[random.below(SUBTABLES as u64) as usize];
            homeless = slots[taken].replace(homeless)?;
        }
    }
    Some(slots)
}
