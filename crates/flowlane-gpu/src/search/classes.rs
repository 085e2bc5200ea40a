//! Classes of rules with one mask, and their tables: `kernels/class_table.cuh`.
//!
//! A class has a cuckoo table of three subtables; a class of more than 256 rules is split. All tables share the hash
//! functions, which are therefore loaded once; if a rule finds no slot, all tables are rebuilt with other functions.

use std::collections::{HashMap, HashSet};

use flowlane::generate::Random;

use crate::error::GpuError;
use crate::ternary::{Ternary, TernaryRules};

/// The most rules of a class table; larger classes are split.
pub const CLASS_RULES_MAX: usize = 256;
/// Subtables of a class table.
pub const SUBTABLES: usize = 3;
/// Slots of a subtable.
pub const SLOTS: usize = 128;
/// The modulus of the universal hash functions: the largest prime below 2³².
pub const PRIME: u64 = 4_294_967_291;
/// Rules moved for one insertion before its table is given up.
const MOVES_MAX: usize = 64;
/// The number of sets of hash functions that are tried.
const TRIES_MAX: usize = 64;

/// The hash functions of `hash_tuple` and `slot_of`.
#[derive(Debug)]
pub(crate) struct Functions<const W: usize> {
    /// Multipliers of the words, and an additive constant.
    multilinear: Vec<u64>,
    /// The constants a and b of each subtable.
    universal: [(u64, u64); SUBTABLES],
}

impl<const W: usize> Functions<W> {
    fn draw(random: &mut Random) -> Self {
        let universal = std::array::from_fn(|_| (1 + random.below(PRIME - 1), random.below(PRIME)));
        Self { multilinear: (0..=W).map(|_| random.bits()).collect(), universal }
    }

    /// Hashes a masked tuple to 32 bits.
    pub(super) fn hash(&self, masked: &[u32; W]) -> u32 {
        let products = self.multilinear.iter().zip(masked).map(|(k, word)| k.wrapping_mul((*word).into()));
        (products.fold(self.multilinear[W], u64::wrapping_add) >> 32) as u32
    }

    fn slot(&self, x: u32, subtable: usize) -> usize {
        let (a, b) = self.universal[subtable];
        // Below 2⁶⁴: a, b and x mod p are all below 2³².
        subtable * SLOTS + ((a * (u64::from(x) % PRIME) + b) % PRIME) as usize % SLOTS
    }

    /// Returns the functions in the layout of the kernels.
    pub(crate) fn words(&self) -> Vec<u64> {
        let universal = self.universal.iter().flat_map(|(a, b)| [*a, *b]);
        self.multilinear.iter().copied().chain(universal).collect()
    }
}

/// The rules of one mask, with distinct values.
#[derive(Debug)]
pub(crate) struct Class<const W: usize> {
    pub(super) mask: [u32; W],
    pub(super) rules: Vec<Ternary<W>>,
}

/// Class tables in the layout of the kernels.
#[derive(Debug)]
pub struct ClassTables<const W: usize> {
    pub(crate) classes: Vec<Class<W>>,
    pub(crate) functions: Functions<W>,
    /// The tables: [`words_of_class`] words for each.
    pub(crate) words: Vec<u32>,
}

/// Returns the number of words of a class table: its mask, and for each slot a value and a standing.
pub const fn words_of_class(w: usize) -> usize {
    w + SUBTABLES * SLOTS * (w + 1)
}

impl<const W: usize> ClassTables<W> {
    /// Groups rules into classes and fills their tables, if `reserve` grants the memory.
    ///
    /// # Errors
    /// Returns the error of `reserve`, and an error if rules find no slots.
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
        // At most two thirds of the slots are used, so that a class rarely fails.
        Err(GpuError::Placement { tries: TRIES_MAX })
    }

    /// Returns the number of classes.
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// Returns the tables: [`words_of_class`] words for each.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Returns the hash functions in the layout of the kernels.
    pub fn function_words(&self) -> Vec<u64> {
        self.functions.words()
    }
}

/// Groups rules into classes, ordered by their best rules; classes of more than `rules_max` rules are split.
#[inline(never)]
pub(super) fn group<const W: usize>(rules: &TernaryRules<W>, rules_max: usize) -> Vec<Class<W>> {
    let mut of_mask: HashMap<[u32; W], usize> = HashMap::new();
    let mut seen: HashSet<([u32; W], [u32; W])> = HashSet::new();
    let mut classes: Vec<Class<W>> = Vec::new();
    // Best rule first, so that the best of equal rules remains.
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

/// Inserts a rule by cuckoo hashing: a rule without a free slot displaces another, which is inserted next.
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
