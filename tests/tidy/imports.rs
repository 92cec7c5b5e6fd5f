//! The imports between the files of a crate, read from their `use` lines and from paths in their code.
//!
//! An import of a name that a file only re-exports counts as an import of the file that declares it, and a re-export by
//! itself is no import: a module's front file may show its children's declarations. Tests inside a file are not read.
//! Not here: the allowed imports (`tests/tidy.rs`).

use std::collections::{BTreeMap, BTreeSet};

/// The files of one crate and their imports.
pub(super) struct Imports {
    /// By module path, such as `["engine", "follow"]`; the crate's root is empty.
    modules: BTreeMap<Vec<String>, Module>,
}

struct Module {
    file: String,
    /// Paths of `use` declarations and in the code, as written.
    paths: Vec<Vec<String>>,
    /// Names in scope by `use`, and the path of each.
    names: BTreeMap<String, Vec<String>>,
}

/// One `use` declaration.
struct Use {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

impl Imports {
    /// Reads the files of a crate: `root` is its source folder, with a slash at the end.
    pub(super) fn read<'a>(root: &str, files: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let Some(below) = file.strip_prefix(root).and_then(|below| below.strip_suffix(".rs")) else { continue };
            let mut path: Vec<String> = below.split('/').map(str::to_owned).collect();
            match path.last().map(String::as_str) {
                Some("mod" | "lib") => drop(path.pop()),
                // A binary is a crate of its own.
                Some("main") if path.len() == 1 => continue,
                Some("tests") => continue,
                _ => {}
            }
            modules.insert(path, Module::read(file, text));
        }
        Self { modules }
    }

    /// Pairs of files of which the first one imports the second.
    pub(super) fn edges(&self) -> BTreeSet<(String, String)> {
        let mut edges = BTreeSet::new();
        for (place, module) in &self.modules {
            for path in &module.paths {
                if let Some(target) = self.resolve(place, path, 0)
                    && target.file != module.file
                {
                    edges.insert((module.file.clone(), target.file.clone()));
                }
            }
        }
        edges
    }

    /// The file that declares what a path leads to. `None`: another crate.
    fn resolve(&self, place: &[String], path: &[String], depth: usize) -> Option<&Module> {
        let (mut place, mut rest) = self.absolute(place, path)?;
        while let Some((first, after)) = rest.split_first() {
            place.push(first.clone());
            if !self.modules.contains_key(&place) {
                place.pop();
                break;
            }
            rest = after;
        }

        let module = self.modules.get(&place)?;
        if let Some((name, after)) = rest.split_first()
            && let Some(named) = module.names.get(name)
            && depth < 8
        {
            let path: Vec<String> = named.iter().chain(after).cloned().collect();
            return self.resolve(&place, &path, depth + 1);
        }
        Some(module)
    }

    /// A path from the crate's root: the module it starts in, and what follows.
    fn absolute<'p>(&self, place: &[String], path: &'p [String]) -> Option<(Vec<String>, &'p [String])> {
        let mut start = place.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                start.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    start.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                start.push(child.to_owned());
                if !self.modules.contains_key(&start) {
                    return None;
                }
                start.pop();
            }
        }
        Some((start, rest))
    }
}

impl Module {
    fn read(file: &str, text: &str) -> Self {
        let code = code(text);
        let (uses, rest) = uses(&code);
        let mut paths = paths(&rest);
        paths.extend(uses.iter().filter(|found| !found.is_public).map(|found| found.path.clone()));
        let names = uses.into_iter().map(|found| (found.name, found.path)).collect();
        Self { file: file.to_owned(), paths, names }
    }
}

/// The text without comments and without tests.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod ").filter(|at| {
        let line = text[*at..].lines().nth(1).unwrap_or_default();
        line.ends_with('{')
    });
    let text = &text[..tests.unwrap_or(text.len())];
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The `use` declarations of a file, and the text without them.
fn uses(code: &str) -> (Vec<Use>, String) {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut declaration: Option<(bool, String)> = None;
    for line in code.lines() {
        if declaration.is_none() {
            let trimmed = line.trim_start();
            let public = trimmed.starts_with("pub");
            let start = match trimmed.strip_prefix("use ") {
                Some(start) => Some(start),
                None if public => {
                    trimmed.split_once(" use ").filter(|(before, _)| !before.contains(' ')).map(|(_, s)| s)
                }
                None => None,
            };
            match start {
                Some(start) => declaration = Some((public, start.to_owned())),
                None => {
                    rest.push_str(line);
                    rest.push('\n');
                    continue;
                }
            }
        } else if let Some((_, text)) = &mut declaration {
            text.push_str(line.trim());
        }
        if line.contains(';')
            && let Some((is_public, text)) = declaration.take()
        {
            expand(text.split(';').next().unwrap_or_default(), &[], is_public, &mut found);
        }
    }
    (found, rest)
}

/// Expands a tree of imports into its paths.
fn expand(tree: &str, before: &[String], is_public: bool, found: &mut Vec<Use>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return;
    }

    let words = |text: &str| -> Vec<String> {
        text.split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    if let (Some(open), true) = (tree.find('{'), tree.ends_with('}')) {
        let before: Vec<String> = before.iter().cloned().chain(words(&tree[..open])).collect();
        let (mut depth, mut start) = (0, open + 1);
        for (at, character) in tree.char_indices().skip(open + 1) {
            match character {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    expand(&tree[start..at], &before, is_public, found);
                    start = at + 1;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }

    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path: Vec<String> = before.iter().cloned().chain(words(path)).collect();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(name) = alias.or(path.last().map(String::as_str)) {
        found.push(Use { name: name.to_owned(), path, is_public });
    }
}

/// Paths in code that begin with `crate`, `super` or `self`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = code.split(|character: char| !is_word(character));
    let inside = words.filter(|word| ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start)));
    inside.map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

/// Groups of files that import one another, directly or by way of others.
pub(super) fn circles(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let files: BTreeSet<&str> = edges.iter().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    for file in &files {
        let seen = reached.entry(file).or_default();
        let mut next = vec![*file];
        while let Some(from) = next.pop() {
            let start = (from.to_owned(), String::new());
            for (_, to) in edges.range(start..).take_while(|(known, _)| known == from) {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
    }

    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|seen| seen.contains(to));
    let mut found: Vec<Vec<String>> = Vec::new();
    for file in files.iter().filter(|file| reaches(file, file)) {
        if !found.iter().any(|circle| circle.iter().any(|known| known == file)) {
            let circle = files.iter().filter(|other| reaches(file, other) && reaches(other, file));
            found.push(circle.map(|other| (*other).to_owned()).collect());
        }
    }
    found
}
