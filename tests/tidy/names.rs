//! Checks that the name of a type is a noun: no bare participle, preposition, verb or metaphor.
//!
//! Not here: words that are not used anywhere ([`super::words`]).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::{Source, expect_none, sources};

/// Irregular participles, prepositions, verbs and metaphors that say too little as the name of a type.
const VAGUE: &[&str] = &[
    "About",
    "Above",
    "After",
    "Again",
    "Already",
    "Around",
    "Asks",
    "Away",
    "Before",
    "Beginning",
    "Begun",
    "Behind",
    "Below",
    "Beneath",
    "Beside",
    "Besides",
    "Between",
    "Beyond",
    "Borne",
    "Bound",
    "Broken",
    "Brought",
    "Built",
    "Chosen",
    "Come",
    "Comes",
    "Cut",
    "Done",
    "Drawn",
    "Driven",
    "Else",
    "Elsewhere",
    "Extent",
    "Fate",
    "Found",
    "From",
    "Frozen",
    "Given",
    "Goes",
    "GoesOn",
    "Going",
    "Gone",
    "Grown",
    "Held",
    "Here",
    "Hidden",
    "Holder",
    "Home",
    "How",
    "Keeps",
    "Kept",
    "Known",
    "Lately",
    "Learns",
    "Leaving",
    "Left",
    "Leftover",
    "Lost",
    "Made",
    "Met",
    "Of",
    "Otherwise",
    "Over",
    "Paid",
    "Passage",
    "Past",
    "Place",
    "Put",
    "Reach",
    "Read",
    "Rest",
    "Room",
    "Round",
    "Said",
    "Says",
    "Seat",
    "Seen",
    "Sent",
    "Shown",
    "Since",
    "Sought",
    "Spent",
    "Split",
    "Spoken",
    "Standing",
    "Still",
    "Stolen",
    "Stretch",
    "Taken",
    "Than",
    "Then",
    "There",
    "Thing",
    "Things",
    "Thought",
    "To",
    "Torn",
    "Under",
    "Until",
    "Via",
    "Want",
    "Wants",
    "Way",
    "Ways",
    "What",
    "When",
    "Where",
    "Which",
    "While",
    "Who",
    "Whom",
    "Whose",
    "Why",
    "Word",
    "Words",
    "Work",
    "Written",
    "Yet",
];

/// Nouns that end like participles.
const NOUNS: &[&str] = &["Embed", "Feed", "Need", "Seed", "Speed"];

/// The number of such names in folders and files whose structure changes next. No other has one.
const LIMITS: &[(&str, usize)] = &[("core contracts", 3), ("crates/engine", 27)];

static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"(?m)^[ \t]*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) ([A-Z]\w*)|^(?:pub(?:\([^)]*\))? )?type ([A-Z]\w*)";
    Regex::new(words).expect("a regular expression")
});

static PARTICIPLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[A-Z][a-z]+ed$").expect("a regular expression"));

fn is_vague(name: &str) -> bool {
    VAGUE.contains(&name) || PARTICIPLE.is_match(name) && !NOUNS.contains(&name)
}

/// The vague names of types that a file defines.
fn vague_names(source: &Source) -> Vec<String> {
    let definitions = DEFINITION.captures_iter(&source.text);
    let names = definitions.filter_map(|found| found.get(1).or_else(|| found.get(2)));
    names
        .filter(|name| is_vague(name.as_str()))
        .map(|name| {
            let line = source.text[..name.start()].matches('\n').count() + 1;
            format!("{}:{line}: {}", source.path, name.as_str())
        })
        .collect()
}

#[test]
fn names_of_types_are_nouns() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_rust() && !source.under("tests/tidy/")) {
        let names = vague_names(source);
        if !names.is_empty() {
            found.entry(super::prose::part(&source.path)).or_default().extend(names);
        }
    }

    let limit = |part: &str| LIMITS.iter().find(|(name, _)| *name == part).map_or(0, |(_, most)| *most);
    let too_many = found.into_iter().filter(|(part, names)| names.len() > limit(part));
    let violations = too_many.flat_map(|(part, names)| {
        let head = format!("{part}: {} names (at most {})", names.len(), limit(&part));
        std::iter::once(head).chain(names.into_iter().map(|name| format!("  {name}")))
    });
    expect_none("name a type with a noun of the field", violations);
}

#[test]
fn vague_names_are_found() {
    let text = "struct Written;\npub(super) enum Via {}\nstruct WrittenLine;\ntype Held = u8;\nimpl X for Y {\n    type To = u8;\n}\n";
    let source = Source { path: "src/a.rs".to_owned(), text: text.to_owned() };

    assert_eq!(vague_names(&source), ["src/a.rs:1: Written", "src/a.rs:2: Via", "src/a.rs:4: Held"]);
    assert!(!is_vague("Feed") && is_vague("Answered") && !is_vague("Record"));
}
