//! Access lists: every engine and variant against [`best`], built at once and while rules change.

use super::Difference;
use crate::classify::acl::{
    Acl, AclConfig, AclEngine, Brute, BruteKernel, Condition, Dynamic, DynamicConfig, Engine, Entry,
    FieldKind, FieldSpec, Layout, MatchId, RankKey, Tree, TreeConfig, WordKind, best,
};
use crate::generate::Random;
use crate::isa::Variant;
use crate::rule::{Priority, RuleId};

/// Keys that are looked up in every state of a table.
const KEYS: usize = 130;

/// Values at which ranges and masks begin, end and wrap.
const VALUES: [u32; 14] = [
    0,
    1,
    2,
    3,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x0001_0000,
    0x0001_0001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_0000,
    0xffff_ffff,
];

/// Keys, categories (0: a plain lookup), verdicts.
type Lookup<'a, const W: usize> = dyn Fn(&[[u32; W]], usize, &mut [MatchId]) + 'a;

/// The shape of a random rule set.
struct World<const W: usize> {
    layout: Layout<W>,
    random: Random,
    /// True if masks are prefixes and values spread out, as in real lists; else they collide all the time.
    real: bool,
    seed: u64,
    size: usize,
}

/// Checks all engines with rule sets of up to `size` rules. Gives the number of answers compared.
///
/// # Errors
/// The first difference.
pub fn check(seed: u64, size: usize) -> Result<u64, Box<Difference>> {
    use FieldKind::{Exact, Prefix, Range, Ternary};
    let field = |(i, kind): (usize, FieldKind)| FieldSpec {
        name: format!("field {i}"),
        offset: 4 * i,
        bytes: if kind == Range && i % 2 == 0 { 2 } else { 4 },
        kind,
    };
    let of = |kinds: &[FieldKind]| kinds.iter().copied().enumerate().map(field).collect::<Vec<_>>();
    let fits = "as many fields as words";
    // The widths that tables of rules take: 4, 10, 16 or 64 words.
    let mixed = [Prefix, Ternary, Range, Range];
    match seed % 6 {
        0 => World::<4>::check(Layout::new(&of(&[Prefix, Prefix, Range, Exact])).expect(fits), seed, size),
        1 => World::<4>::check(Layout::new(&of(&[Ternary, Range, Range, Ternary])).expect(fits), seed, size),
        2 => World::<4>::check(Layout::new(&of(&[Ternary])).expect(fits), seed, size),
        3 => World::<10>::check(Layout::new(&of(&[Prefix; 9])).expect(fits), seed, size),
        4 => World::<16>::check(Layout::new(&of([mixed; 4].as_flattened())).expect(fits), seed, size),
        _ => World::<64>::check(Layout::new(&of([mixed; 12].as_flattened())).expect(fits), seed, size),
    }
}

impl<const W: usize> World<W> {
    fn check(layout: Layout<W>, seed: u64, size: usize) -> Result<u64, Box<Difference>> {
        let mut random = Random::for_purpose(seed, "check: acl");
        let size = 1 + random.index(size.max(1));
        let real = random.chance(0.5);
        let mut world = Self { layout, random, real, seed, size };
        Ok(world.built()? + world.changed()?)
    }

    fn value(&mut self) -> u32 {
        match self.real {
            true => self.random.bits() as u32 & 0xff0f_30ff,
            false => VALUES[self.random.index(VALUES.len())],
        }
    }

    fn condition(&mut self) -> Condition<W> {
        let kinds = *self.layout.kinds();
        let mut out = Condition::any(&kinds);
        for (w, kind) in kinds.iter().enumerate().take(self.layout.words()) {
            if self.random.chance(0.35) {
                continue;
            }
            let (a, b) = (self.value(), self.value());
            let prefix = u32::MAX.checked_shl(self.random.below(33) as u32).unwrap_or(0);
            let mask = if self.real || self.random.chance(0.5) { prefix } else { b };
            let half = |shift: u32| {
                let (a, b) = (a >> shift & 0xffff, b >> shift & 0xffff);
                (a.min(b) << shift, a.max(b) << shift)
            };
            (out.low[w], out.high[w]) = match kind {
                WordKind::Ternary => (a & mask, mask),
                WordKind::Range32 => (a.min(b), a.max(b)),
                WordKind::Range16 => (half(0).0 | half(16).0, half(0).1 | half(16).1),
            };
        }
        out
    }

    fn entry(&mut self, number: u32) -> Entry<W> {
        let priority = Priority(self.random.below(4) as u32);
        let categories = self.random.bits() as u16 | u16::from(self.random.chance(0.7));
        let rank = RankKey::new(priority, number);
        Entry { condition: self.condition(), rank, rule: RuleId(number), categories }
    }

    /// Keys at the edges of the rules, and others.
    fn keys(&mut self, entries: &[Entry<W>]) -> Vec<[u32; W]> {
        let mut one = || {
            let mut key = [0; W];
            key.iter_mut().for_each(|word| *word = self.value());
            if !entries.is_empty() && self.random.chance(0.8) {
                let condition = entries[self.random.index(entries.len())].condition;
                let kinds = self.layout.kinds();
                for w in 0..W {
                    key[w] = match kinds[w] {
                        WordKind::Ternary => condition.low[w] | key[w] & !condition.high[w],
                        _ if self.random.chance(0.5) => condition.low[w],
                        _ => condition.high[w],
                    };
                }
                if self.random.chance(0.2) {
                    let w = self.random.index(W);
                    key[w] = key[w].wrapping_add(self.random.below(3) as u32).wrapping_sub(1);
                }
            }
            key
        };
        let mut keys: Vec<_> = (0..KEYS).map(|_| one()).collect();
        keys.truncate(self.random.index(KEYS) + 1);
        keys
    }

    fn difference(
        &self,
        engine: &str,
        step: &str,
        key: &[u32; W],
        wanted: MatchId,
        found: MatchId,
    ) -> Box<Difference> {
        Box::new(Difference {
            part: "acl",
            seed: self.seed,
            size: self.size,
            engine: engine.to_owned(),
            step: step.to_owned(),
            input: format!("key {key:08x?}"),
            wanted: format!("{wanted:?}"),
            found: format!("{found:?}"),
        })
    }

    /// Returns every engine in every variant, built at once.
    fn built(&mut self) -> Result<u64, Box<Difference>> {
        let entries: Vec<Entry<W>> = (0..self.size as u32).map(|n| self.entry(n)).collect();
        let kinds = *self.layout.kinds();
        let mut engines: Vec<(String, Box<dyn Engine<W>>)> = Vec::new();
        for kernel in BruteKernel::all() {
            let brute = Brute::new(&kinds, &entries).with_kernel(kernel);
            brute.into_iter().for_each(|e| engines.push((format!("brute {kernel}"), Box::new(e))));
        }
        for variant in Variant::ALL.into_iter().filter(|v| v.available()) {
            let config = TreeConfig { memory_max: 1 << 30, threads: 1, grid: true, variant: Some(variant) };
            let tree = Tree::build(&kinds, &entries, &config).expect("a small table has room");
            engines.push((format!("tree {variant}"), Box::new(tree)));
            let config = DynamicConfig { variant: Some(variant), ..DynamicConfig::new(self.seed) };
            let dynamic = Dynamic::build(&kinds, &entries, config).expect("there is no limit");
            engines.push((format!("dynamic {variant}"), Box::new(dynamic)));
        }
        let keys = self.keys(&entries);
        let mut compared = 0;
        for (name, engine) in &engines {
            let batch = |keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]| match categories {
                0 => engine.lookup_batch(keys, verdicts),
                n => engine.lookup_categories(keys, n, verdicts),
            };
            compared += self.agrees(name, "built", &entries, &keys, &batch)?;
            compared += self.explains(name, "built", &entries, &keys, &|key| engine.explain(key))?;
        }
        Ok(compared)
    }

    /// Plain lookups, and some number of categories.
    fn agrees(
        &mut self,
        name: &str,
        step: &str,
        entries: &[Entry<W>],
        keys: &[[u32; W]],
        lookup: &Lookup<'_, W>,
    ) -> Result<u64, Box<Difference>> {
        let mut compared = 0;
        for asked in [0, 1 + self.random.index(16)] {
            let categories = asked.max(1);
            let mut verdicts = vec![MatchId::NONE; keys.len() * categories];
            lookup(keys, asked, &mut verdicts);
            for (i, found) in verdicts.iter().enumerate() {
                let (key, category) = (&keys[i / categories], i % categories);
                let wanted = best(entries, self.layout.kinds(), key, category);
                let wanted = wanted.map_or(MatchId::NONE, |e| MatchId::of(e.rule));
                if wanted != *found {
                    let step = format!("{step}, category {category} of {categories}");
                    return Err(self.difference(name, &step, key, wanted, *found));
                }
            }
            compared += verdicts.len() as u64;
        }
        Ok(compared)
    }

    /// Checks the deciding bits of an explanation: keys that agree in them have the same winner.
    fn explains(
        &mut self,
        name: &str,
        step: &str,
        entries: &[Entry<W>],
        keys: &[[u32; W]],
        explain: &dyn Fn(&[u32; W]) -> crate::classify::acl::Explanation<W>,
    ) -> Result<u64, Box<Difference>> {
        let kinds = *self.layout.kinds();
        let winner =
            |key: &[u32; W]| best(entries, &kinds, key, 0).map_or(MatchId::NONE, |e| MatchId::of(e.rule));
        for key in keys.iter().take(20) {
            let told = explain(key);
            let found = told.winner.map_or(MatchId::NONE, MatchId::of);
            if found != winner(key) {
                return Err(self.difference(name, &format!("{step}, explaining"), key, winner(key), found));
            }
            for _ in 0..8 {
                let mut other = keys[self.random.index(keys.len())];
                (0..W).for_each(|w| other[w] ^= (other[w] ^ key[w]) & told.looked_at[w]);
                if winner(&other) != found {
                    let step = format!("{step}, explaining by {:08x?}", told.looked_at);
                    return Err(self.difference(name, &step, &other, winner(&other), found));
                }
            }
        }
        Ok(9 * keys.len().min(20) as u64)
    }

    /// Tables of every engine while rules come, go and change, and are rebuilt now and then.
    fn changed(&mut self) -> Result<u64, Box<Difference>> {
        let mut compared = 0;
        let variants: Vec<Variant> = Variant::ALL.into_iter().filter(|v| v.available()).collect();
        for engine in AclEngine::ALL {
            // Each variant's own kernel applies the changes.
            let variant = variants[self.random.index(variants.len())];
            let config = AclConfig { seed: self.seed, ..AclConfig::default() };
            let config = config.with_engine(engine).with_variant(variant);
            let mut acl = Acl::new(self.layout.clone(), config);
            let mut rules: Vec<Entry<W>> = Vec::new();
            for step in 0..2 * self.size as u32 + 20 {
                let said = self.change(&mut acl, &mut rules, step);
                if !self.random.chance(0.2) && step > 3 {
                    continue;
                }
                let keys = self.keys(&rules);
                let step = format!("after change {step} ({said})");
                let batch = |keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]| match categories
                {
                    0 => acl.lookup_batch(keys, verdicts),
                    n => acl.lookup_categories(keys, n, verdicts),
                };
                let name = format!("table {engine} ({}, {variant})", acl.engine_name());
                compared += self.agrees(&name, &step, &rules, &keys, &batch)?;
                compared += self.explains(&name, &step, &rules, &keys, &|key| acl.depends(key))?;
            }
        }
        Ok(compared)
    }

    fn change(&mut self, acl: &mut Acl<W>, rules: &mut Vec<Entry<W>>, step: u32) -> &'static str {
        let new = self.entry(step);
        let at = self.random.index(rules.len().max(1));
        let room = "a small table has room";
        match self.random.below(40) {
            0..8 if !rules.is_empty() => {
                assert!(acl.remove(rules.swap_remove(at).rule));
                "removal"
            }
            8..14 if !rules.is_empty() => {
                let old = rules[at];
                let rank = old.rank.with_priority(new.rank.priority());
                rules[at] = Entry { rank, rule: old.rule, ..new };
                let replaced = acl.replace(old.rule, rank.priority(), new.condition, new.categories);
                assert!(replaced.expect(room));
                "replacement"
            }
            14 | 15 => {
                acl.rebuild().expect(room);
                "rebuild"
            }
            _ => {
                acl.insert(new.rule, new.rank.priority(), new.condition, new.categories).expect(room);
                rules.push(new);
                "insertion"
            }
        }
    }
}
