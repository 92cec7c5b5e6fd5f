//! Checks that code and documentation use the words of the field, not the private ones that the code once had.

use super::{Source, expect_none, sources};

/// Words that are not used at all, with what to write instead. They are found in prose and as parts of identifiers.
const PRIVATE: &[(&str, &str)] = &[
    ("anew", "again"),
    ("courier", "notifier, webhook client"),
    ("crumbs", "bytes"),
    ("dialler", "client pool"),
    ("film", "video"),
    ("films", "videos"),
    ("heard", "received, read"),
    ("hears", "receives, reads"),
    ("nobody", "no one, none"),
    ("parcel", "delivery, request"),
    ("parcels", "deliveries, requests"),
    ("patience", "timeout, limit"),
    ("pump", "driver"),
    ("shelf", "cache"),
    ("stray", "unknown, unexpected, fallback"),
    ("tongue", "protocol, model"),
    ("tongues", "protocols"),
    ("undone", "reverted"),
    ("whoever", "the caller, anyone who"),
];

/// Words of prose that are private only as names in code.
const PRIVATE_NAMES: &[(&str, &str)] = &[
    ("hear", "receive, read"),
    ("hearing", "receiving, reading"),
    ("tell", "emit, send, report"),
    ("telling", "encoder"),
    ("tells", "emits, sends, reports"),
];

/// Phrases that are not used, with what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("in the place of", "instead of"),
    ("sign of life", "keep-alive, heartbeat"),
    ("signs of life", "keep-alives, heartbeats"),
];

/// The words in a line, in lower case: `TurnGuard::take_off` has four.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut after_lower = false;
    for c in line.chars() {
        // A capital letter after a small one begins a word.
        if !c.is_alphanumeric() || (after_lower && c.is_uppercase()) {
            found.push(std::mem::take(&mut word));
        }
        after_lower = c.is_lowercase();
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    found.push(word);
    found.retain(|word| !word.is_empty());
    found
}

/// A line of code without comments and the contents of strings on it.
fn without_strings(code: &str) -> String {
    code.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// The violation in a line, with a suggestion.
fn complaint(source: &Source, line: &str) -> Option<String> {
    let words = words(line);
    let find = |list: &[(&str, &str)], words: &[String]| {
        let found = list.iter().find(|(private, _)| words.iter().any(|word| word == private));
        found.map(|(private, instead)| format!("{private:?}, write {instead}"))
    };
    // "cannot be told apart" is what everyone says.
    let told = words.iter().enumerate().any(|(place, word)| {
        word == "told" && !words.get(place + 1).is_some_and(|next| matches!(next.as_str(), "apart" | "from"))
    });
    if told {
        return Some("\"told\", write emitted, sent, reported".to_owned());
    }

    let lower = line.to_lowercase();
    let phrase = PHRASES.iter().find(|(phrase, _)| lower.contains(phrase));
    let in_names = || {
        let code = line.split("//").next().filter(|_| source.is_rust())?;
        find(PRIVATE_NAMES, &self::words(&without_strings(code)))
    };
    find(PRIVATE, &words)
        .or_else(|| phrase.map(|(phrase, instead)| format!("{phrase:?}, write {instead}")))
        .or_else(in_names)
}

#[test]
fn code_and_documentation_use_the_words_of_the_field() {
    let mut violations = Vec::new();
    for source in &sources() {
        let lists_them = source.under("tests/tidy/words.rs") || source.under("tests/tidy/prose.rs");
        if lists_them || !(source.is_rust() || source.path.ends_with(".md")) {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            if let Some(complaint) = complaint(source, line) {
                violations.push(format!("{}:{}: {complaint}", source.path, number + 1));
            }
        }
    }

    expect_none("use the words that an engineer of this field already knows", violations);
}

#[test]
fn words_are_found_in_prose_and_in_names() {
    let source = Source { path: "a.rs".to_owned(), text: String::new() };
    for line in ["/// What was told.", "struct HeardFrame;", "fn tell(&self) {}", "let re_told = 1;", "a sign of life"]
    {
        assert!(complaint(&source, line).is_some(), "{line}");
    }
    for line in ["// They cannot be told apart.", "// Tells the driver to stop.", "let a = \"tell me\";", "retold = 1"]
    {
        assert_eq!(complaint(&source, line), None, "{line}");
    }
}
