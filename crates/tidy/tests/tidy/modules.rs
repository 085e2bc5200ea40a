//! The modules of a crate and the uses between them.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Token, tokens, without_tests};
use crate::tree::Tree;

/// The names from the crate to a module, an item, or an import.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// The module's imports by their local names; relative to the module.
    imports: BTreeMap<String, Path>,
    /// Paths in its code, relative to the module, and their lines.
    paths: Vec<(Path, usize)>,
}

/// The modules of a crate outside test builds.
pub(crate) struct Modules(BTreeMap<Path, Module>);

/// A use of `to` by `from`, both children of `parent`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Edge {
    pub(crate) parent: String,
    pub(crate) from: String,
    pub(crate) to: String,
    /// File and line of the first such path.
    pub(crate) at: String,
}

impl Modules {
    /// Reads the modules of the crate whose root is this file.
    pub(crate) fn of(tree: &Tree, root: &str) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.read(tree, root, Vec::new());
        modules
    }

    /// Returns the crate's modules at the top.
    pub(crate) fn top(&self) -> impl Iterator<Item = &str> {
        self.0.get(&Vec::new()).into_iter().flat_map(|root| &root.children).map(String::as_str)
    }

    /// Returns the uses between children of one module, one edge for any number of paths.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let mut edges = BTreeMap::new();
        for (path, module) in &self.0 {
            for (used, line) in &module.paths {
                for owner in self.owners(path, used) {
                    let common = path.iter().zip(&owner).take_while(|(a, b)| a == b).count();
                    if let (Some(from), Some(to)) = (path.get(common), owner.get(common)) {
                        let ends = (path[..common].join("::"), from.clone(), to.clone());
                        edges.entry(ends).or_insert_with(|| format!("{}:{line}", module.file));
                    }
                }
            }
        }
        edges.into_iter().map(|((parent, from, to), at)| Edge { parent, from, to, at }).collect()
    }

    /// Returns the modules that a path leads to: that of its item, and those that only import the item.
    fn owners(&self, from: &[String], path: &[String]) -> Vec<Path> {
        let (mut owners, mut here, mut rest) = (Vec::new(), from.to_vec(), path.to_vec());
        // A limit, since imports could lead in a circle.
        for _ in 0..16 {
            let mut imported = None;
            for (at, name) in rest.iter().enumerate() {
                let module = self.0.get(&here);
                match name.as_str() {
                    "crate" => here.clear(),
                    "self" => {}
                    "super" => _ = here.pop(),
                    name if module.is_some_and(|m| m.children.contains(name)) => here.push(name.to_owned()),
                    name => {
                        let import = module.and_then(|m| m.imports.get(name));
                        imported = import.map(|import| [import, &rest[at + 1..]].concat());
                        break;
                    }
                }
            }
            owners.push(here.clone());
            match imported {
                Some(path) => rest = path,
                None => break,
            }
        }
        owners
    }

    fn read(&mut self, tree: &Tree, file: &str, path: Path) {
        let Some(text) = tree.text(file) else { return };
        let tokens = without_tests(&tokens(text));
        // Modules within the file, with the number of braces around each.
        let (mut scopes, mut depth) = (vec![(path.clone(), 0)], 0);
        self.module(&path, file);
        let mut at = 0;
        while at < tokens.len() {
            let here = scopes.last().expect("the file's own stays").0.clone();
            let next = tokens.get(at + 1);
            match tokens[at].text {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if scopes.len() > 1 && scopes.last().is_some_and(|(_, outside)| *outside == depth) {
                        scopes.pop();
                    }
                }
                "mod" if next.is_some_and(Token::is_name) => {
                    let name = tokens[at + 1].text;
                    let child = [here.as_slice(), &[name.to_owned()]].concat();
                    self.module(&here, file).children.insert(name.to_owned());
                    if tokens.get(at + 2).is_some_and(|t| t.text == "{") {
                        self.module(&child, file);
                        scopes.push((child, depth));
                    } else if let Some(file) = file_of(tree, file, &here[path.len()..], name) {
                        self.read(tree, &file, child);
                    }
                }
                // `use<'a>` is a bound.
                "use" if next.is_some_and(|t| t.text != "<") => {
                    let mut found = Vec::new();
                    at += 1 + imports(&tokens[at + 1..], &[], &mut found);
                    let module = self.module(&here, file);
                    for (name, path, line) in found {
                        module.paths.push((path.clone(), line));
                        module.imports.insert(name, path);
                    }
                    continue;
                }
                _ if tokens[at].is_name() && next.is_some_and(|t| t.text == "::") => {
                    let names = path_at(&tokens[at..]);
                    let line = tokens[at].line;
                    at += 2 * names.len() - 1;
                    self.module(&here, file).paths.push((names, line));
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn module(&mut self, path: &[String], file: &str) -> &mut Module {
        let module = || Module { file: file.to_owned(), ..Module::default() };
        self.0.entry(path.to_vec()).or_insert_with(module)
    }
}

/// Returns the file of the `mod name;` in `file`, within the modules `inner` of the file.
fn file_of(tree: &Tree, file: &str, inner: &[String], name: &str) -> Option<String> {
    let (folder, own) = file.rsplit_once('/')?;
    let mut folder = match own {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", own.trim_end_matches(".rs")),
    };
    for module in inner {
        folder = format!("{folder}/{module}");
    }
    let files = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    files.into_iter().find(|file| tree.text(file).is_some())
}

/// The names of the path that these tokens begin with.
fn path_at(tokens: &[Token<'_>]) -> Path {
    let mut names = vec![tokens[0].text.to_owned()];
    for pair in tokens[1..].chunks_exact(2) {
        if pair[0].text != "::" || !pair[1].is_name() {
            break;
        }
        names.push(pair[1].text.to_owned());
    }
    names
}

/// Reads the tree of a `use`: names, their paths and lines. Returns how many tokens it has.
fn imports(tokens: &[Token<'_>], prefix: &[String], found: &mut Vec<(String, Path, usize)>) -> usize {
    let (mut path, mut at, mut alias) = (prefix.to_vec(), 0, None);
    while at < tokens.len() {
        match tokens[at].text {
            "," | ";" | "}" => break,
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at].text != "}" {
                    at += imports(&tokens[at..], &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|t| t.text == ","));
                }
                return at + 1;
            }
            "as" => {
                alias = tokens.get(at + 1).map(|t| t.text.to_owned());
                at += 1;
            }
            // `a::{self}` is `a`; `self::a` is relative to this module anyway.
            "::" | "self" => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if let (Some(last), Some(token)) = (path.last(), tokens.first()) {
        found.push((alias.unwrap_or_else(|| last.clone()), path.clone(), token.line));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::of(&Tree::of(files), "src/lib.rs");
        let edge = |e: Edge| format!("{}: {} -> {} {}", e.parent, e.from, e.to, e.at);
        modules.edges().into_iter().map(edge).collect()
    }

    #[test]
    fn paths_in_imports_and_code_are_edges() {
        let lib = ("src/lib.rs", "mod a; mod b; mod c; mod d { use super::a; }");
        let a = ("src/a.rs", "use crate::{\n    b::{self, X},\n};\nfn f() { crate::c::g() }");
        let found = edges(&[lib, a, ("src/b.rs", ""), ("src/c.rs", "")]);
        assert_eq!(found, [": a -> b src/a.rs:2", ": a -> c src/a.rs:4", ": d -> a src/lib.rs:1"]);
    }

    #[test]
    fn what_a_parent_imports_is_its_siblings() {
        let lib = ("src/lib.rs", "mod a;");
        let a = ("src/a/mod.rs", "mod b; mod c; pub use b::X;");
        let found = edges(&[lib, a, ("src/a/b.rs", "struct X;"), ("src/a/c.rs", "use super::X;")]);
        assert_eq!(found, ["a: c -> b src/a/c.rs:1"]);
    }

    #[test]
    fn tests_make_no_edges() {
        let lib = ("src/lib.rs", "mod a; mod b; #[cfg(test)] mod c;");
        let a = ("src/a.rs", "#[cfg(test)] mod tests { use crate::b; }");
        assert!(edges(&[lib, a, ("src/b.rs", ""), ("src/c.rs", "use crate::a;")]).is_empty());
    }
}
