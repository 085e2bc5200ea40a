//! The two walks down the binary address tree that give a parameter file's rules their prefixes.
//!
//! A node gets the rules whose prefixes lie in it. Those whose prefix has the node's length get its address;
//! the rest goes on: to one child with the level's probability, else to two, of which the heavy one gets
//! *n* / (2 − skew). Where the chain of nested prefixes has reached the limit, the prefixes that end at the
//! next level go to one side and those that go on to the other.

use super::random::Random;
use super::seed_file::Tree;
use super::seed_rules::Filter;

/// The address of a node's child.
fn child_address(address: u32, level: u8, side: usize) -> u32 {
    address | ((side as u32) << (31 - u32::from(level)))
}

/// Rules that go on below a node, and what the nesting limit says about them.
struct Rest {
    rules: Vec<u32>,
    /// Prefixes around the next level's: those that end at this node or above.
    nest: u32,
    must_split: bool,
}

/// Gives the rules that end here the node's address through `ends`, and looks at the others.
fn settle(
    tree: &Tree,
    level: u8,
    nest: u32,
    list: Vec<u32>,
    len: impl Fn(u32) -> u8,
    mut ends: impl FnMut(u32),
) -> Rest {
    let all = list.len();
    let mut rules = Vec::new();
    for q in list {
        if len(q) == level { ends(q) } else { rules.push(q) }
    }
    let nest = nest + u32::from(rules.len() < all);
    let ends_next = rules.iter().any(|&q| len(q) == level + 1);
    let must_split = rules.len() > 1 && nest + 1 >= tree.nest_max && ends_next && level < 31;
    Rest { rules, nest, must_split }
}

/// The rules that end at the next level and those that go on, the longer list on side `heavy`.
fn split_by_end(rules: Vec<u32>, ends: impl Fn(u32) -> bool, heavy: usize) -> [Vec<u32>; 2] {
    let (ending, others): (Vec<u32>, Vec<u32>) = rules.into_iter().partition(|&q| ends(q));
    let (long, short) = if ending.len() > others.len() { (ending, others) } else { (others, ending) };
    if heavy == 0 { [long, short] } else { [short, long] }
}

/// How many of `n` go to the heavy child.
fn heavy_share(n: usize, skew: f64) -> usize {
    (n as f64 / (2.0 - skew)) as usize
}

/// Gives every rule its source address.
pub(super) fn give_sources(tree: &Tree, filters: &mut [Filter], random: &mut Random) {
    let all = (0..filters.len() as u32).collect();
    source_node(tree, filters, random, (0, 0, 0), all);
}

fn source_node(
    tree: &Tree,
    filters: &mut [Filter],
    random: &mut Random,
    (level, address, nest): (u8, u32, u32),
    list: Vec<u32>,
) {
    let mut ended = Vec::new();
    let rest = settle(tree, level, nest, list, |q| filters[q as usize].src_len, |q| ended.push(q));
    ended.iter().for_each(|&q| filters[q as usize].src = address);
    if rest.rules.is_empty() {
        return;
    }
    let heavy = random.index(2);
    let (one_child, skew) = tree.levels[usize::from(level)];
    let sides = if rest.must_split {
        split_by_end(rest.rules, |q| filters[q as usize].src_len == level + 1, heavy)
    } else {
        let mut sides = [Vec::new(), Vec::new()];
        let alone = random.chance(one_child) || rest.rules.len() == 1;
        let mut light = rest.rules;
        let light_len = if alone { 0 } else { light.len() - heavy_share(light.len(), skew) };
        sides[heavy] = light.split_off(light_len);
        sides[1 - heavy] = light;
        sides
    };
    for (side, list) in sides.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let place = (level + 1, child_address(address, level, side), rest.nest);
        source_node(tree, filters, random, place, list);
    }
}

/// Gives every rule its destination address; its source address is there already.
pub(super) fn give_destinations(
    tree: &Tree,
    correlation: &[f64; 33],
    filters: &mut [Filter],
    random: &mut Random,
) {
    let all = (0..filters.len() as u32).collect();
    let mut walk = Destinations { tree, correlation, filters, random, nodes: vec![Node::default()] };
    walk.follow_sources(0, (0, 0, 0), all);
    walk.finish(Some(0), (0, 0, 0), Vec::new());
}

/// A node that the first walk reached.
#[derive(Default)]
struct Node {
    children: [Option<usize>; 2],
    /// Rules in each child's subtree.
    weights: [usize; 2],
    /// Rules that left their source here, to be carried on by the second walk.
    stubs: Vec<u32>,
    /// Whether a prefix ended here in the first walk.
    ends: bool,
}

struct Destinations<'a> {
    tree: &'a Tree,
    correlation: &'a [f64; 33],
    filters: &'a mut [Filter],
    random: &'a mut Random,
    nodes: Vec<Node>,
}

impl Destinations<'_> {
    fn child(&mut self, node: usize, side: usize) -> usize {
        if let Some(child) = self.nodes[node].children[side] {
            return child;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        self.nodes[node].children[side] = Some(new);
        new
    }

    /// First walk: each rule goes where its source goes, until that ends or the correlation does.
    fn follow_sources(&mut self, node: usize, (level, address, nest): (u8, u32, u32), list: Vec<u32>) {
        let mut ended = Vec::new();
        let len = |q: u32| self.filters[q as usize].dst_len;
        let rest = settle(self.tree, level, nest, list, len, |q| ended.push(q));
        ended.iter().for_each(|&q| self.filters[q as usize].dst = address);
        self.nodes[node].ends |= !ended.is_empty();
        if rest.must_split {
            self.nodes[node].stubs.extend(rest.rules);
            return;
        }
        let mut follow = [Vec::new(), Vec::new()];
        for q in rest.rules {
            let filter = &self.filters[q as usize];
            if filter.src_len <= level {
                self.nodes[node].stubs.push(q);
                continue;
            }
            let side = ((filter.src >> (31 - level)) & 1) as usize;
            // A source that ends at the next level is left before, so that the two do not become one.
            let source_ends = filter.src_len == level + 1;
            if !source_ends && self.random.chance(self.correlation[usize::from(level) + 1]) {
                follow[side].push(q);
            } else {
                let child = self.child(node, 1 - side);
                self.nodes[child].stubs.push(q);
                self.nodes[node].weights[1 - side] += 1;
            }
        }
        for (side, list) in follow.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            self.nodes[node].weights[side] += list.len();
            let child = self.child(node, side);
            self.follow_sources(child, (level + 1, child_address(address, level, side), rest.nest), list);
        }
    }

    /// Second walk: those that left their source are carried on by branching and skew, beside the others.
    fn finish(&mut self, node: Option<usize>, (level, address, nest): (u8, u32, u32), mut list: Vec<u32>) {
        let empty = Node::default();
        let here = node.map_or(&empty, |n| &self.nodes[n]);
        let (children, weights) = (here.children, here.weights);
        let ends_already = here.ends;
        list.extend(&here.stubs);
        let mut ended = Vec::new();
        let len = |q: u32| self.filters[q as usize].dst_len;
        let around = nest + u32::from(ends_already);
        let mut rest = settle(self.tree, level, around, list, len, |q| ended.push(q));
        if ends_already && !ended.is_empty() {
            rest.nest -= 1; // one prefix, not two
        }
        ended.iter().for_each(|&q| self.filters[q as usize].dst = address);
        let sides = self.share_out(level, rest.rules, rest.must_split, children, weights);
        for (side, list) in sides.into_iter().enumerate() {
            if children[side].is_some() || !list.is_empty() {
                let place = (level + 1, child_address(address, level, side), rest.nest);
                self.finish(children[side], place, list);
            }
        }
    }

    fn share_out(
        &mut self,
        level: u8,
        mut rules: Vec<u32>,
        must_split: bool,
        children: [Option<usize>; 2],
        weights: [usize; 2],
    ) -> [Vec<u32>; 2] {
        let mut sides = [Vec::new(), Vec::new()];
        if rules.is_empty() {
            return sides;
        }
        let heavy = match weights[0].cmp(&weights[1]) {
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => self.random.index(2),
        };
        if must_split {
            return split_by_end(rules, |q| self.filters[q as usize].dst_len == level + 1, heavy);
        }
        let (one_child, skew) = self.tree.levels[usize::from(level)];
        let only = children.iter().position(Option::is_some);
        if self.random.chance(one_child) && children.iter().any(Option::is_none) {
            sides[only.unwrap_or(heavy)] = rules;
            return sides;
        }
        let total = rules.len() + weights[0] + weights[1];
        let want_heavy = heavy_share(total, skew);
        let want_light = total - want_heavy;
        let light = if want_light <= weights[1 - heavy] {
            0
        } else if want_heavy <= weights[heavy] {
            rules.len()
        } else {
            want_light - weights[1 - heavy]
        };
        sides[heavy] = rules.split_off(light.min(rules.len()));
        sides[1 - heavy] = rules;
        sides
    }
}
