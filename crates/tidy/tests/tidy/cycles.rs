//! The modules at the top of a crate form no dependency cycle. Deeper modules may: a structure and its kernels, in one
//! folder, use each other.

use std::collections::BTreeSet;

use crate::known::Backwards;
use crate::modules::{Edge, Modules};
use crate::tree::Tree;

/// Reports cycles in any crate, except those through the uses in `known`.
pub(crate) fn cycles(tree: &Tree, known: &[Backwards]) -> Vec<String> {
    let mut found = Vec::new();
    let mut circular = BTreeSet::new();
    for folder in tree.crates() {
        let name = folder.trim_start_matches("crates/");
        let is_known =
            |edge: &Edge| known.iter().position(|k| (k.of, k.from, k.to) == (name, &edge.from, &edge.to));
        for root in ["lib.rs", "main.rs"] {
            let mut all = Modules::of(tree, &format!("{folder}/src/{root}")).edges();
            all.retain(|edge| edge.parent.is_empty());
            circular.extend(in_circles(&all).iter().filter_map(|edge| is_known(edge)));
            let others: Vec<Edge> = all.into_iter().filter(|edge| is_known(edge).is_none()).collect();
            found.extend(in_circles(&others).iter().map(|edge| {
                let Edge { from, to, at, .. } = edge;
                format!(
                    "{at}: `{from}` of {name} uses `{to}`, which uses `{from}` in turn, perhaps through others; move \
                     the shared part below both"
                )
            }));
        }
    }
    let gone = known.iter().enumerate().filter(|(at, _)| !circular.contains(at));
    found.extend(gone.map(|(_, known)| {
        let Backwards { of, from, to, .. } = known;
        format!("crates/tidy/tests/tidy/known.rs: `{from}` → `{to}` of {of} is in no cycle any more; strike the entry")
    }));
    found
}

/// Returns the edges that are part of a cycle.
fn in_circles(edges: &[Edge]) -> Vec<&Edge> {
    let leads_back = |edge: &&Edge| {
        let (mut reached, mut new) = (BTreeSet::new(), vec![&edge.to]);
        while let Some(module) = new.pop() {
            if reached.insert(module) {
                let next = edges.iter().filter(|e| e.from == *module);
                new.extend(next.map(|e| &e.to));
            }
        }
        reached.contains(&edge.from)
    };
    edges.iter().filter(leads_back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_says;

    const KNOWN: Backwards = Backwards { of: "x", from: "b", to: "a", why: "for now" };

    fn tree(b: &'static str) -> Tree {
        let lib = ("crates/x/src/lib.rs", "mod a; mod b; mod c;");
        let (a, c) = (("crates/x/src/a.rs", "use crate::c;"), ("crates/x/src/c.rs", "use crate::b;"));
        Tree::of(&[("crates/x/Cargo.toml", ""), lib, a, c, ("crates/x/src/b.rs", b)])
    }

    #[test]
    fn modules_form_no_cycle() {
        assert!(cycles(&tree(""), &[]).is_empty());
        let found = cycles(&tree("use crate::a;"), &[]);
        assert_says(&found, "b.rs:1: `b` of x uses `a`, which uses `b` in turn");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn known_cycles_exist() {
        assert!(cycles(&tree("use crate::a;"), &[KNOWN]).is_empty());
        assert_says(&cycles(&tree(""), &[KNOWN]), "`b` → `a` of x is in no cycle any more; strike the entry");
    }
}
