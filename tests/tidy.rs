//! Checks the rules of `ARCHITECTURE.md`: which module may use which, how files start, how long they are, and what they
//! must not contain. Reads the sources as text. Not here: tests of behaviour.

#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/engine.rs"]
mod engine;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/protocols.rs"]
mod protocols;
#[path = "tidy/words.rs"]
mod words;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[path = "tidy/imports.rs"]
mod imports;

use imports::Imports;

/// The maximum number of lines. A longer file should be split.
const MAX_FILE_LINES: usize = 700;

/// The modules of the root package, and the modules that each may use. What the crates may use is in their manifests.
const ROOMS: &[(&str, &[&str])] = &[
    ("lib", &[]),
    ("main", &[]),
    ("cli", &["gateway", "reload"]),
    ("reload", &["gateway"]),
    ("adapters", &["gateway"]),
    ("gateway", &[]),
];

/// Generated folders, and others that are not checked.
const SKIPPED: &[&str] = &[
    ".git",
    "target",
    "data",
    "node_modules",
    "__pycache__",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/target",
    // Recorded output of other programs.
    "tests/transcripts",
];

/// Paths that core and adapters must not use: runtimes, network, files, processes, clocks, randomness.
const IMPURE: &[&str] = &[
    "tokio::",
    "actix",
    "reqwest",
    "hyper::",
    "rusqlite",
    "tokio_postgres",
    "redis::",
    "async fn",
    "std::net",
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "std::time::SystemTime",
    "std::time::Instant",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "rand::",
    "getrandom",
    "new_v4",
    "now_v7",
];

/// The allowed dependencies of core.
const CORE_DEPENDENCIES: &[&str] = &[
    "base64",
    "bytes",
    "form_urlencoded",
    "hmac",
    "ipnet",
    "jiff",
    "memchr",
    "percent-encoding",
    "regex",
    "schemars",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "uuid",
];

/// The allowed dependencies of adapters. Small crates without I/O can be added.
const ADAPTER_DEPENDENCIES: &[&str] = &[
    "interlingua-adapter-kit",
    "interlingua-core",
    "base64",
    "bytes",
    "ed25519-dalek",
    "jiff",
    "memchr",
    "p256",
    "schemars",
    "serde",
    "serde_json",
    "serde_json_canonicalizer",
    "sha2",
    "thiserror",
    "uuid",
];

/// A file of the repository.
struct Source {
    /// Relative to the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Sources of the root package and of the crates in `crates/`.
    fn is_of_gateway(&self) -> bool {
        self.is_rust() && (self.under("src/") || self.under("crates/"))
    }

    fn under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// The lines with their numbers, without line comments, which may name anything.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(number, line)| (number + 1, line.split("//").next().unwrap_or(line)))
    }

    /// Every use of one of the words in the code.
    fn uses_of<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.code().flat_map(move |(number, line)| {
            let found = words.iter().filter(move |word| line.contains(**word));
            found.map(move |word| format!("{}:{number} uses {}", self.path, word.trim_end_matches(':')))
        })
    }
}

/// Every text file of the repository, except in skipped folders.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be listed") {
            let path = entry.expect("an entry of the repository can be read").path();
            let below = path.strip_prefix(root).expect("the walk stays below the root");
            let name = below.to_str().expect("names in the repository are UTF-8").replace('\\', "/");
            if SKIPPED.iter().any(|skipped| name == *skipped || name.ends_with(&format!("/{skipped}"))) {
                continue;
            }

            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push(Source { path: name, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|source| source.path == "src/lib.rs"), "the sources were not found");
    found
}

/// Fails with one line for each violation.
fn expect_none(rule: &str, violations: impl IntoIterator<Item = String>) {
    let mut list = String::new();
    for line in violations {
        writeln!(list, "  {line}").expect("writing into a string does not fail");
    }
    assert!(list.is_empty(), "{rule}\n{list}");
}

/// The folders below `adapters/` with their package names.
fn adapters(sources: &[Source]) -> Vec<(String, String)> {
    let manifests = sources.iter().filter(|source| {
        source.under("adapters/") && source.path.ends_with("/Cargo.toml") && source.path.matches('/').count() == 2
    });
    let adapters: Vec<_> = manifests
        .map(|source| {
            let folder = source.path.trim_end_matches("Cargo.toml").to_owned();
            let manifest: toml::Table = source.text.parse().expect("a manifest is TOML");
            let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
            (folder, name)
        })
        .collect();

    assert!(!adapters.is_empty(), "no adapter was found");
    adapters
}

/// The crate name of a package.
fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}

#[test]
fn only_the_admin_listener_acts_for_operators() {
    let sources = sources();
    let others = sources.iter().filter(|source| source.is_of_gateway() && !source.under("crates/admin/src/"));
    let found = others.flat_map(|source| source.uses_of(&[".operator()"]).collect::<Vec<_>>());
    expect_none("runs of any owner are for the admin listener alone", found);
}

#[test]
fn io_libraries_are_used_by_their_crates_only() {
    let sources = sources();
    let libraries: &[(&[&str], &[&str])] = &[
        (&["actix-web", "actix-http", "actix-rt", "actix-server"], &["admin", "server"]),
        (&["reqwest"], &["upstream"]),
        (&["rusqlite"], &["store-sqlite"]),
        (&["tokio-postgres"], &["store-postgres"]),
        (&["jsonwebtoken"], &["callers"]),
    ];

    let mut violations = Vec::new();
    for (folder, manifest) in manifests(&sources) {
        for library in dependencies(&manifest) {
            let rule = libraries.iter().find(|(names, _)| names.contains(&library.as_str()));
            let name = folder.trim_start_matches("crates/").trim_end_matches('/');
            if rule.is_some_and(|(_, allowed)| !allowed.contains(&name)) {
                violations.push(format!("{folder}Cargo.toml depends on {library}"));
            }
        }
    }
    expect_none("libraries of I/O are for one layer each", violations);
}

/// The manifests of the root package and of all crates in `crates/`, and their folders.
fn manifests(sources: &[Source]) -> Vec<(String, toml::Table)> {
    let manifests = sources.iter().filter_map(|source| {
        let folder = source.path.strip_suffix("Cargo.toml").filter(|f| f.is_empty() || f.starts_with("crates/"))?;
        Some((folder.to_owned(), source.text.parse().expect("a manifest is TOML")))
    });
    manifests.collect()
}

/// The names of the dependencies of a package, without those of its tests.
fn dependencies(manifest: &toml::Table) -> impl Iterator<Item = &String> {
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    dependencies.into_iter().flat_map(toml::Table::keys)
}

#[test]
fn modules_of_the_root_package_use_only_those_below_them() {
    let sources = sources();
    let mut violations = Vec::new();
    for (from, to) in imports(&sources, "src/").edges() {
        let (user, used) = (room(&from), room(&to));
        let allowed = ROOMS.iter().find(|(room, _)| *room == user).map(|(_, allowed)| *allowed);
        let Some(allowed) = allowed else {
            violations.push(format!("{from} is in a module that ROOMS does not have"));
            continue;
        };
        if user != used && !allowed.contains(&used) {
            violations.push(format!("{from} uses {to}"));
        }
    }
    expect_none("a module uses only the modules that ROOMS allows it", violations);
}

#[test]
fn no_files_import_one_another() {
    let sources = sources();
    let folders = adapters(&sources).into_iter().map(|(folder, _)| format!("{folder}src/"));
    let crates = manifests(&sources).into_iter().map(|(folder, _)| format!("{folder}src/"));
    let rigs = ["xtask/src/", "faults/src/", "benches/load/src/", "testing/support/src/", "testing/protocols/src/"];
    let others = ["core/src/"].into_iter().chain(rigs).map(str::to_owned);
    let roots: Vec<String> = crates.chain(others).chain(folders).collect();
    let circles = roots.iter().flat_map(|root| imports::circles(&imports(&sources, root).edges()));
    expect_none("imports between files go one way", circles.map(|circle| circle.join(" <-> ")));
}

/// The imports of one crate.
fn imports(sources: &[Source], root: &str) -> Imports {
    Imports::read(root, sources.iter().map(|source| (source.path.as_str(), source.text.as_str())))
}

/// The module of a file below `src/`: its folder, or its own name.
fn room(file: &str) -> &str {
    let below = file.strip_prefix("src/").unwrap_or(file);
    below.split(['/', '.']).next().unwrap_or(below)
}

#[test]
fn core_and_adapters_perform_no_io() {
    let sources = sources();
    let pure = sources.iter().filter(|source| {
        let in_sources = ["core/src/", "crates/adapter-kit/src/"].iter().any(|folder| source.under(folder))
            || (source.under("adapters/") && source.path.contains("/src/"));
        source.is_rust() && in_sources
    });
    expect_none("core and adapters must not perform I/O", pure.flat_map(|source| source.uses_of(IMPURE)));
}

#[test]
fn core_and_adapters_depend_on_allowed_crates_only() {
    let sources = sources();
    let mut violations = Vec::new();
    let adapters = adapters(&sources).into_iter().map(|(folder, _)| (folder, ADAPTER_DEPENDENCIES));
    for (folder, allowed) in adapters.chain([("core/".to_owned(), CORE_DEPENDENCIES)]) {
        let path = format!("{folder}Cargo.toml");
        let source = sources.iter().find(|source| source.path == path).expect("the manifest was found above");
        let manifest: toml::Table = source.text.parse().expect("a manifest is TOML");
        for name in dependencies(&manifest) {
            if !allowed.contains(&name.as_str()) {
                violations.push(format!("{path} depends on {name}"));
            }
        }
    }

    expect_none("core and adapters may depend on allowed crates only", violations);
}

#[test]
fn adapters_do_not_use_one_another() {
    let sources = sources();
    let adapters = adapters(&sources);
    let mut violations = Vec::new();
    for (folder, own) in &adapters {
        let others = adapters.iter().filter(|(_, name)| name != own);
        let words: Vec<String> = others.flat_map(|(_, name)| [name.clone(), crate_name(name)]).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let files = sources.iter().filter(|s| s.under(folder) && (s.is_rust() || s.path.ends_with("Cargo.toml")));
        violations.extend(files.flat_map(|source| source.uses_of(&words).collect::<Vec<_>>()));
    }

    expect_none("adapters must not use one another", violations);
}

#[test]
fn core_uses_neither_adapters_nor_the_gateway() {
    let sources = sources();
    let core = sources.iter().find(|source| source.path == "core/Cargo.toml").expect("core has a manifest");
    let manifest: toml::Table = core.text.parse().expect("a manifest is TOML");
    let own = dependencies(&manifest).filter(|name| name.starts_with("interlingua"));
    expect_none("core must not depend on other crates of the workspace", own.cloned());
}

#[test]
fn one_file_lists_the_adapters() {
    let sources = sources();
    let adapters: Vec<String> = adapters(&sources).into_iter().map(|(_, name)| name).collect();
    let words: Vec<String> = adapters.iter().map(|name| crate_name(name)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let others = sources.iter().filter(|source| source.is_of_gateway() && source.path != "src/adapters.rs");
    expect_none("only src/adapters.rs may use adapters", others.flat_map(|source| source.uses_of(&words)));

    let mut violations = Vec::new();
    for (folder, manifest) in manifests(&sources).iter().filter(|(folder, _)| !folder.is_empty()) {
        let used = dependencies(manifest).filter(|name| adapters.contains(name));
        violations.extend(used.map(|name| format!("{folder}Cargo.toml depends on {name}")));
    }
    expect_none("only the root package depends on adapters", violations);
}

#[test]
fn every_file_starts_with_a_doc_comment() {
    let sources = sources();
    let undocumented = sources.iter().filter(|source| source.is_rust() && !source.text.starts_with("//! "));
    expect_none("a file must start with //! and a sentence", undocumented.map(|source| source.path.clone()));
}

#[test]
fn no_file_is_too_long() {
    let sources = sources();
    let long = sources.iter().filter(|source| source.is_rust());
    let long = long.map(|source| (source, source.text.lines().count())).filter(|(_, lines)| *lines > MAX_FILE_LINES);
    let violations = long.map(|(source, lines)| format!("{} has {lines} lines", source.path));
    expect_none(&format!("a file has at most {MAX_FILE_LINES} lines"), violations);
}

#[test]
fn no_unfinished_code_is_left() {
    let sources = sources();
    // Split, so that this file does not contain them.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimplemented", "!(")];
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                violations.push(format!("{}:{} contains {word}", source.path, number + 1));
            }
        }
    }

    expect_none("track open work in issues, not in the code", violations);
}

#[test]
fn no_local_path_and_no_registry_host_is_in_the_sources() {
    let sources = sources();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = [repository.parent().map(Path::to_path_buf), std::env::home_dir()];
    let here = here.into_iter().flatten().filter_map(|path| Some(format!("{}/", path.to_str()?.trim_end_matches('/'))));
    // Split, so that this file does not contain them.
    let anywhere = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/t", "mp/")].map(str::to_owned);
    let folders: Vec<String> = here.chain(anywhere).filter(|folder| folder.len() > 1).collect();
    // Code that filters such folders from an upstream's text names them, but no path inside.
    let is_path = |line: &str, folder: &str| {
        line.match_indices(folder)
            .any(|(at, _)| line[at + folder.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
    };

    let hosts = [
        concat!("registry.npm", "js"),
        concat!("pypi", ".org"),
        concat!("python", "hosted"),
        concat!("static.crates", ".io"),
        concat!("index.crates", ".io"),
    ];
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| !source.path.ends_with("Cargo.lock")) {
        for (number, line) in source.text.lines().enumerate() {
            let folder = folders.iter().find(|folder| is_path(line, folder)).map(String::as_str);
            if let Some(word) = folder.or_else(|| hosts.into_iter().find(|host| line.contains(host))) {
                violations.push(format!("{}:{} contains {word}", source.path, number + 1));
            }
        }
    }

    expect_none("local paths and registry hosts must not be in the sources", violations);
}

#[test]
fn tests_of_one_process_exist() {
    let sources = sources();
    let text_of = |path: &str| sources.iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let list = text_of("testing/support/src/alternating.rs").expect("the list of tests that run with one gateway");
    let names = list
        .split('"')
        .filter(|name| name.contains("::") && name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c)));
    let is_missing = |name: &&str| {
        let (module, test) = name.rsplit_once("::").expect("the name of a test has a module");
        let module = module.replace("::", "/");
        // Some are made by macros.
        !text_of(&format!("tests/behaviour/{module}.rs")).is_some_and(|text| text.contains(test))
    };
    let names: Vec<_> = names.collect();
    assert!(!names.is_empty(), "the list can be read");
    expect_none("listed tests must exist", names.into_iter().filter(is_missing).map(str::to_owned));
}
