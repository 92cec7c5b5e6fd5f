//! Checks that shipped protocols are named in few places: their adapters, their rows in the registry of rigs, and their
//! scripted clients, agents and drivers. Whatever tests or measures all protocols iterates the registry.

use interlingua_testing_protocols::PROTOCOLS;
use regex::Regex;

use super::{Source, expect_none, sources};

/// Folders and files in which a protocol is at home.
const HOMES: &[&str] = &[
    "adapters/",
    "examples/",
    "fuzz/",
    "src/adapters.rs",
    "testing/agents/src/",
    "testing/clients/src/",
    "testing/protocols/",
    "testing/support/src/pairs/",
];

/// The number of other files that may decide by the name of a protocol. Lower it when a file needs no name any more.
const MAX_OTHER_FILES: usize = 19;

/// Lines of the gateway that may name a protocol, with the reason.
const NAMING: &[(&str, &str)] = &[
    // A field of OpenAPI has the same name.
    ("crates/admin/src/openapi.rs", "responses"),
    // The demo agent sends the events of a protocol, and calls of an MCP server.
    ("crates/upstream/src/demo/words.rs", "ag-ui"),
    ("crates/upstream/src/demo/words.rs", "mcp"),
    // A script with calls of an MCP server.
    ("crates/core-testkit/src/script.rs", "mcp"),
];

/// The names of protocols, as alternatives. The protocol that the gateway speaks itself may be named anywhere.
fn names(rename: impl Fn(&str) -> String) -> String {
    let shipped = PROTOCOLS.iter().filter(|protocol| protocol.name != "agent-api");
    shipped.map(|protocol| rename(protocol.name)).collect::<Vec<_>>().join("|")
}

/// The variant of an enum that is named after a protocol.
fn variant(name: &str) -> String {
    name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

#[test]
fn few_files_decide_by_the_name_of_a_protocol() {
    let name = format!(r#"(?:"(?:{})"|(?:Protocol|Self)::(?:{})\b)"#, names(str::to_owned), names(variant));
    let decides = Regex::new(&format!(r"{name}\)?\s*(?:=>|\||if )|\|\s*{name}|[!=]= {name}")).expect("an expression");
    let is_at_home = |source: &&Source| HOMES.iter().any(|home| source.under(home));
    let sources = sources();
    let others = sources.iter().filter(|source| source.is_rust() && !is_at_home(source));
    let found: Vec<&str> = others
        .filter(|source| source.code().any(|(_, line)| decides.is_match(line)))
        .map(|source| source.path.as_str())
        .collect();
    assert!(
        found.len() <= MAX_OTHER_FILES,
        "{} files decide by the name of a protocol, {MAX_OTHER_FILES} may: give the registry (testing/protocols) or a driver \
         (testing/support/src/pairs) the fact instead\n{found:#?}",
        found.len()
    );
}

#[test]
fn the_gateway_names_no_protocol() {
    let literal = Regex::new(&format!(r#""({})""#, names(str::to_owned))).expect("an expression");
    let sources = sources();
    let own = sources.iter().filter(|source| source.is_of_gateway() && !source.path.contains("/tests"));
    let violations = own.flat_map(|source| {
        let tests = source.text.lines().position(|line| line == "#[cfg(test)]").unwrap_or(usize::MAX);
        let lines = source.code().filter(move |(number, _)| *number <= tests);
        lines.filter_map(|(number, line)| {
            let name = literal.captures(line)?.get(1)?.as_str();
            let may = NAMING.contains(&(source.path.as_str(), name));
            (!may).then(|| format!("{}:{number} names {name}", source.path))
        })
    });
    expect_none("the gateway takes what it needs of a protocol from its adapter, not from its name", violations);
}
