//! Checks the modules of the engine: their order, their facades, and the number of imports between their files.
//!
//! Private submodules make the compiler refuse most imports around a facade; the exceptions are counted here by name.
//! Not here: reading imports ([`super::imports`]).

use std::collections::BTreeSet;

use super::{Source, expect_none, imports, sources};

const ROOT: &str = "crates/engine/src/";

/// The modules, each of which may import the ones before it.
const MODULES: [&str; 6] = ["sessions", "runs", "deliveries", "pending", "turns", "operator"];

/// Root files that may import modules: the dispatch of calls, and tests of stored documents.
const ABOVE_MODULES: [&str; 2] = ["lib.rs", "stored_forms.rs"];

/// Submodules of functions that are called by the name of their module, such as `commit::settle`.
const FUNCTION_MODULES: [&str; 3] = ["runs/commit", "runs/follow", "sessions/sizes"];

/// The number of pairs of files of which the first imports the second. Lower it when a change removes one.
const MAX_IMPORTS: usize = 367;

/// The position of a file of the engine among the modules: 0 for small types that all modules may use.
fn level(file: &str) -> usize {
    let below = file.strip_prefix(ROOT).unwrap_or(file);
    match below.split_once('/') {
        Some((module, _)) => MODULES.iter().position(|known| *known == module).map_or(usize::MAX, |at| at + 1),
        None if ABOVE_MODULES.contains(&below) => MODULES.len() + 1,
        None => 0,
    }
}

/// The imports that lead to a later module. A file in an unknown module is an error of its own.
fn imports_upwards(edges: &BTreeSet<(String, String)>) -> Vec<String> {
    let upwards = edges.iter().filter(|(from, to)| level(to) > level(from) || level(from) == usize::MAX);
    upwards.map(|(from, to)| format!("{from} imports {to}")).collect()
}

/// The submodules that a facade opens to other modules, as `module/submodule`.
fn open_submodules(source: &Source) -> Vec<String> {
    let module = source.path.trim_start_matches(ROOT).trim_end_matches("/mod.rs");
    let opened = source.code().filter_map(|(_, line)| {
        let (visibility, name) = line.trim().split_once("mod ")?;
        visibility.starts_with("pub").then(|| format!("{module}/{}", name.trim_end_matches([';', '{', ' '])))
    });
    opened.collect()
}

#[test]
fn modules_of_the_engine_import_only_earlier_ones() {
    let edges = imports(&sources(), ROOT).edges();
    for module in MODULES {
        assert!(edges.iter().any(|(from, _)| from.starts_with(&format!("{ROOT}{module}/"))), "{module} was not found");
    }
    expect_none(&format!("each module imports only the ones before it: {MODULES:?}"), imports_upwards(&edges));
}

#[test]
fn modules_of_the_engine_are_imported_through_their_facades() {
    let sources = sources();
    let facades = sources.iter().filter(|source| source.under(ROOT) && source.path.ends_with("/mod.rs"));
    let opened: Vec<String> = facades.flat_map(open_submodules).collect();
    let unlisted = opened.iter().filter(|name| !FUNCTION_MODULES.contains(&name.as_str()));
    expect_none("a facade re-exports the names that others may use", unlisted.cloned());

    let closed = FUNCTION_MODULES.iter().filter(|name| !opened.iter().any(|opened| opened == *name));
    expect_none("FUNCTION_MODULES lists only open submodules", closed.map(|name| (*name).to_owned()));
}

#[test]
fn few_files_of_the_engine_import_one_another() {
    let edges = imports(&sources(), ROOT).edges();
    let list: Vec<String> = edges.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
    assert!(
        list.len() <= MAX_IMPORTS,
        "{} imports between files of the engine, {MAX_IMPORTS} may be: give the facade a function instead\n{list:#?}",
        list.len()
    );
}

#[test]
fn imports_upwards_and_open_submodules_are_found() {
    let edge = |from: &str, to: &str| (format!("{ROOT}{from}"), format!("{ROOT}{to}"));
    let allowed = [
        edge("turns/driver.rs", "runs/table.rs"),
        edge("turns/driver.rs", "turns/listen.rs"),
        edge("sessions/table.rs", "faults.rs"),
        edge("lib.rs", "operator/access.rs"),
    ];
    let forbidden = [
        edge("faults.rs", "sessions/table.rs"),
        edge("later/file.rs", "sessions/table.rs"),
        edge("runs/table.rs", "lib.rs"),
        edge("runs/table.rs", "turns/driver.rs"),
    ];
    let found = imports_upwards(&allowed.into_iter().chain(forbidden.clone()).collect());
    assert_eq!(found, forbidden.map(|(from, to)| format!("{from} imports {to}")));

    let text = "mod a;\npub(crate) mod b;\npub mod c {\n// pub mod d;\npub(crate) use self::b::mod_of;\n";
    let source = Source { path: format!("{ROOT}runs/mod.rs"), text: text.to_owned() };
    assert_eq!(open_submodules(&source), ["runs/b", "runs/c"]);
}
