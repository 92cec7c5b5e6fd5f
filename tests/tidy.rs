//! Holds the house to what `ARCHITECTURE.md` says of it: who may name whom, how files open, how long they grow, and
//! what is never left in them. Reads the tree as text, so it needs no build of what it judges; it judges no behaviour.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// No file needs more; one that does has a second idea in it.
const LONGEST_FILE: usize = 700;

/// Folders that are made, not written.
const MADE: &[&str] = &[
    ".git",
    "target",
    "data",
    "node_modules",
    "__pycache__",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/target",
    // Bytes of other programs, kept as they came.
    "tests/transcripts",
];

/// What core and adapters may not name: a runtime, the network, files, processes, clocks, chance.
const IMPURE: &[&str] = &[
    "tokio::",
    "actix",
    "reqwest",
    "hyper::",
    "rusqlite",
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

/// What core may depend on. proptest is there for the testkit alone.
const CORE_DEPENDENCIES: &[&str] =
    &["bytes", "form_urlencoded", "memchr", "proptest", "serde", "serde_json", "thiserror", "uuid"];

/// What an adapter may depend on. Small crates without input or output can be added here.
const ADAPTER_DEPENDENCIES: &[&str] = &[
    "interlingua-core",
    "base64",
    "bytes",
    "ed25519-dalek",
    "jiff",
    "memchr",
    "p256",
    "serde",
    "serde_json",
    "thiserror",
    "uuid",
];

/// A file of the repository.
struct Source {
    /// From the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// The numbered lines without their line comments, since a comment may name anything.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(number, line)| (number + 1, line.split("//").next().unwrap_or(line)))
    }

    /// Where its code holds one of the words.
    fn naming<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.code().flat_map(move |(number, line)| {
            let found = words.iter().filter(move |word| line.contains(**word));
            found.map(move |word| format!("{}:{number} names {}", self.path, word.trim_end_matches(':')))
        })
    }
}

/// Every text file that somebody wrote.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be listed") {
            let path = entry.expect("an entry of the repository can be read").path();
            let below = path.strip_prefix(root).expect("the walk stays below the root");
            let name = below.to_str().expect("names in the repository are UTF-8").replace('\\', "/");
            if MADE.iter().any(|made| name == *made || name.ends_with(&format!("/{made}"))) {
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
    assert!(found.iter().any(|source| source.path == "src/lib.rs"), "the walk did not find the sources");
    found
}

/// Fails with one line for each thing that is wrong.
fn expect_none(rule: &str, wrong: impl IntoIterator<Item = String>) {
    let mut list = String::new();
    for line in wrong {
        writeln!(list, "  {line}").expect("writing into a string does not fail");
    }
    assert!(list.is_empty(), "{rule}\n{list}");
}

/// The folders below `adapters/` and the package names in them.
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

/// How Rust code spells a package's name.
fn spelled(package: &str) -> String {
    package.replace('-', "_")
}

#[test]
fn each_world_stays_in_its_room() {
    let sources = sources();
    let rooms: &[(&[&str], &str)] = &[
        (&["actix_web", "actix_http", "actix_rt", "actix_server"], "src/server/"),
        (&["reqwest::", "use reqwest"], "src/upstream/"),
        (&["rusqlite::", "use rusqlite"], "src/store/"),
    ];
    for (words, room) in rooms {
        let outside = sources.iter().filter(|source| source.is_rust() && source.under("src/") && !source.under(room));
        expect_none(&format!("only {room} may name it"), outside.flat_map(|source| source.naming(words)));
    }
}

#[test]
fn what_stands_below_the_server_does_not_know_it() {
    let sources = sources();
    let below = ["src/engine/", "src/upstream/", "src/store/", "src/config/"];
    let below = sources.iter().filter(|source| source.is_rust() && below.iter().any(|room| source.under(room)));
    expect_none("the server knows them, they do not know the server", below.flat_map(|s| s.naming(&["crate::server"])));
}

#[test]
fn core_and_adapters_are_pure() {
    let sources = sources();
    let pure = sources.iter().filter(|source| {
        let in_sources = source.under("core/src/") || (source.under("adapters/") && source.path.contains("/src/"));
        source.is_rust() && in_sources
    });
    expect_none("core and adapters do no input or output", pure.flat_map(|source| source.naming(IMPURE)));
}

#[test]
fn core_and_adapters_depend_on_small_pure_crates_alone() {
    let sources = sources();
    let mut wrong = Vec::new();
    let adapters = adapters(&sources).into_iter().map(|(folder, _)| (folder, ADAPTER_DEPENDENCIES));
    for (folder, allowed) in adapters.chain([("core/".to_owned(), CORE_DEPENDENCIES)]) {
        let path = format!("{folder}Cargo.toml");
        let source = sources.iter().find(|source| source.path == path).expect("the manifest was found above");
        let manifest: toml::Table = source.text.parse().expect("a manifest is TOML");
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for name in dependencies.into_iter().flat_map(toml::Table::keys) {
            if !allowed.contains(&name.as_str()) {
                wrong.push(format!("{path} depends on {name}"));
            }
        }
    }
    expect_none("the manifest is the proof that it cannot reach the network", wrong);
}

#[test]
fn adapters_do_not_know_one_another() {
    let sources = sources();
    let adapters = adapters(&sources);
    let mut wrong = Vec::new();
    for (folder, own) in &adapters {
        let others = adapters.iter().filter(|(_, name)| name != own);
        let words: Vec<String> = others.flat_map(|(_, name)| [name.clone(), spelled(name)]).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let files = sources.iter().filter(|s| s.under(folder) && (s.is_rust() || s.path.ends_with("Cargo.toml")));
        wrong.extend(files.flat_map(|source| source.naming(&words).collect::<Vec<_>>()));
    }
    expect_none("adapters do not know one another", wrong);
}

#[test]
fn core_knows_no_adapter_and_no_gateway() {
    let sources = sources();
    let mut words: Vec<String> = adapters(&sources).into_iter().map(|(_, name)| spelled(&name)).collect();
    words.push("interlingua::".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let core = sources.iter().filter(|source| source.is_rust() && source.under("core/src/"));
    expect_none("core stands beneath everything", core.flat_map(|source| source.naming(&words)));
}

#[test]
fn one_file_names_the_adapters() {
    let sources = sources();
    let words: Vec<String> = adapters(&sources).into_iter().map(|(_, name)| spelled(&name)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let others = sources.iter().filter(|s| s.is_rust() && s.under("src/") && s.path != "src/adapters.rs");
    expect_none("only src/adapters.rs names adapters", others.flat_map(|source| source.naming(&words)));
}

#[test]
fn every_file_says_what_lives_in_it() {
    let sources = sources();
    let silent = sources.iter().filter(|source| source.is_rust() && !source.text.starts_with("//! "));
    expect_none("a file opens with //! and a sentence", silent.map(|source| source.path.clone()));
}

#[test]
fn no_file_grows_past_one_idea() {
    let sources = sources();
    let long = sources.iter().filter(|source| source.is_rust());
    let long = long.map(|source| (source, source.text.lines().count())).filter(|(_, lines)| *lines > LONGEST_FILE);
    let wrong = long.map(|(source, lines)| format!("{} has {lines} lines", source.path));
    expect_none(&format!("a file has at most {LONGEST_FILE} lines"), wrong);
}

#[test]
fn nothing_is_left_open() {
    let sources = sources();
    // Spelled in halves, so that this file does not hold them.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimplemented", "!(")];
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                wrong.push(format!("{}:{} says {word}", source.path, number + 1));
            }
        }
    }
    expect_none("what is missing stands in an issue, not in the code", wrong);
}

#[test]
fn no_path_of_anybodys_machine_and_no_registry_host_is_written_down() {
    let sources = sources();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = [repository.parent().map(Path::to_path_buf), std::env::home_dir()];
    let here = here.into_iter().flatten().filter_map(|path| Some(format!("{}/", path.to_str()?.trim_end_matches('/'))));
    // Spelled in halves, so that this file does not hold them.
    let anywhere = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/t", "mp/")].map(str::to_owned);
    let folders: Vec<String> = here.chain(anywhere).filter(|folder| folder.len() > 1).collect();
    // Code that looks for such folders in an upstream's text names them, and nothing in them.
    let leads_on = |line: &str, folder: &str| {
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
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| !source.path.ends_with("Cargo.lock")) {
        for (number, line) in source.text.lines().enumerate() {
            let folder = folders.iter().find(|folder| leads_on(line, folder)).map(String::as_str);
            if let Some(word) = folder.or_else(|| hosts.into_iter().find(|host| line.contains(host))) {
                wrong.push(format!("{}:{} holds {word}", source.path, number + 1));
            }
        }
    }
    expect_none("a path of one machine means nothing on another", wrong);
}
