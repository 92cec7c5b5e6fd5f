//! Deserializes text into typed values without stopping at the first error.
//!
//! serde stops at the first error. So the tree is deserialized repeatedly: after each failure, the faulty entry is
//! reported and removed from the tree, until the rest deserializes. One set of derived types serves deserialization,
//! the JSON Schema and the messages, and all errors are found. These types have a default for every key, so that a
//! removed entry never breaks another one.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::diagnostics::Diagnostic;
use super::suggest;

/// A value as written, with its span.
pub(super) type TomlValue<'i> = Spanned<DeValue<'i>>;

/// The number of errors reported for one value. More are left for the next attempt.
const MAX_ERRORS: usize = 50;

/// An entry that was removed because it could not be deserialized.
pub(super) struct RejectedEntry {
    /// The start of the entry's table.
    table: usize,
    key: String,
    /// Whether it was one value of an array. Then `key` is that of the array.
    of_array: bool,
    /// The TOML type of the entry.
    kind: &'static str,
}

/// All entries that were removed from one file.
#[derive(Default)]
pub(super) struct RejectedEntries(Vec<RejectedEntry>);

impl RejectedEntries {
    /// Whether the table at `span` had `key`, but it was rejected. Then it must not be reported as missing too.
    pub(super) fn contains(&self, span: &Range<usize>, key: &str) -> bool {
        self.0.iter().any(|entry| entry.table == span.start && entry.key == key)
    }

    /// Whether an entry with this key was rejected in any table.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.0.iter().any(|entry| entry.key == key)
    }

    /// Whether any entry of the table at `span` was rejected.
    pub(super) fn any_in(&self, span: &Range<usize>) -> bool {
        self.0.iter().any(|entry| entry.table == span.start)
    }
}

/// Parses the file. Invalid TOML is reported as one error.
pub(super) fn parse(source: &str) -> Result<Spanned<DeTable<'_>>, Vec<Diagnostic>> {
    DeTable::parse(source).map_err(|error| {
        // At the end of the file, point at the last character.
        let span = error.span().unwrap_or(0..1);
        let start = span.start.min(source.trim_end().len().saturating_sub(1));
        let span = start..span.end.clamp(start + 1, source.len().max(start + 1));
        vec![Diagnostic::error("invalid TOML").at(&span).label(to_single_line(error.message()))]
    })
}

/// Deserializes a typed value from a tree and reports every error.
///
/// `name` is the name of the value in messages. Returns `None` if it still fails after removing all rejected entries.
pub(super) fn read<T: DeserializeOwned>(
    name: &str,
    mut tree: TomlValue<'_>,
    rejected: &mut RejectedEntries,
    found: &mut Vec<Diagnostic>,
) -> Option<T> {
    for _ in 0..MAX_ERRORS {
        let error = match T::deserialize(ValueDeserializer::from(tree.clone())) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let span = error.span().unwrap_or_else(|| tree.span());
        if let Some(key) = missing_key(error.message())
            && rejected.contains(&span, key)
        {
            return None;
        }

        let start = tree.span().start;
        let kind = tree.get_ref().type_str();
        // For `[[x]]`, the array and its first table have the same span. The message distinguishes them.
        let is_array = error.message().starts_with("invalid type: sequence");
        let entry = remove(tree.get_mut(), start, &span, is_array);
        let subject = match &entry {
            Some(entry) => Subject { name: &entry.key, each: entry.of_array, kind: entry.kind },
            None => Subject { name, each: false, kind },
        };
        found.push(explain(error.message(), &span, &subject));
        rejected.0.push(entry?);
    }
    found.push(Diagnostic::error("too many errors to report all of them").at(&tree.span()));
    None
}

/// Removes the innermost entry whose key or value has this span; only arrays if `is_array`.
fn remove(value: &mut DeValue<'_>, start: usize, span: &Range<usize>, is_array: bool) -> Option<RejectedEntry> {
    match value {
        DeValue::Table(table) => {
            for (key, value) in table.iter_mut() {
                let inner = value.span().start;
                if let Some(mut entry) = remove(value.get_mut(), inner, span, is_array) {
                    if entry.of_array && entry.key.is_empty() {
                        entry.key = key.get_ref().to_string();
                        entry.table = start;
                    }
                    return Some(entry);
                }
            }

            let (key, value) = table.iter().find(|(key, value)| {
                let value_fits = value.span() == *span && (!is_array || value.get_ref().is_array());
                value_fits || key.span() == *span
            })?;
            let (key, kind) = (key.get_ref().to_string(), value.get_ref().type_str());
            table.remove(key.as_str());
            Some(RejectedEntry { table: start, key, of_array: false, kind })
        }
        DeValue::Array(array) => {
            for value in array.iter_mut() {
                let inner = value.span().start;
                if let Some(entry) = remove(value.get_mut(), inner, span, is_array) {
                    return Some(entry);
                }
            }

            let index =
                array.iter().position(|value| value.span() == *span && (!is_array || value.get_ref().is_array()))?;
            let kind = array[index].get_ref().type_str();
            let all = std::mem::replace(array, DeArray::from_iter([]));
            let remaining = all.into_iter().enumerate().filter(|(at, _)| *at != index);
            *array = remaining.map(|(_, value)| value).collect();
            // The key is that of the array. The caller that handles the enclosing table fills it in.
            Some(RejectedEntry { table: start, key: String::new(), of_array: true, kind })
        }
        _ => None,
    }
}

/// The subject of a message.
struct Subject<'a> {
    name: &'a str,
    each: bool,
    kind: &'static str,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = if self.each { "each of " } else { "" };
        write!(formatter, "{each}{:?}", self.name)
    }
}

/// Translates a message of serde into the terms of the file.
///
/// The second line of a custom message becomes the label. Values are not repeated: they could be misplaced secrets.
fn explain(message: &str, span: &Range<usize>, subject: &Subject<'_>) -> Diagnostic {
    let kind = subject.kind;
    if message.starts_with("unknown field ") {
        let known = expected_names(message);
        let label = suggest::key(subject.name, &known, "unknown name");
        let diagnostic = Diagnostic::error(format!("unknown key {:?}", subject.name)).at(span).label(label);
        return match known.as_slice() {
            [] => diagnostic.help("this table has no keys"),
            known => diagnostic.help(format!("valid names: {}", suggest::list(known.iter().copied()))),
        };
    }

    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let known = expected_names(message);
        let value = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, ")).map_or("", |(value, _)| value);
        let label = suggest::label(value, known.iter().copied(), "unknown name");
        let cannot =
            if subject.each { format!("{:?} cannot hold", subject.name) } else { format!("{subject} cannot be") };
        return Diagnostic::error(format!("{cannot} {value:?}"))
            .at(span)
            .label(label)
            .help(format!("valid names: {}", suggest::list(known.iter().copied())));
    }
    if let Some(key) = missing_key(message) {
        return Diagnostic::error(format!("missing key {key:?}")).at(span).label("must be given here");
    }
    if message == "wanted string or table" {
        return Diagnostic::error(format!("{subject} must be a string, not {}", with_article(kind))).at(span);
    }

    if message.starts_with("invalid type: ") || message.starts_with("invalid value: ") {
        let expected = message.rsplit_once(", expected ").map_or("something else", |(_, it)| it);
        let (expected, range) = to_toml_terms(expected);
        let error = if message.starts_with("invalid type: ") {
            format!("{subject} must be {expected}, not {}", with_article(kind))
        } else {
            format!("{subject} must be {expected}{range}")
        };
        let diagnostic = Diagnostic::error(error).at(span);
        return match suggestion(subject.name, expected, kind) {
            Some(suggestion) => diagnostic.label(suggestion),
            None => diagnostic,
        };
    }
    match message.split_once('\n') {
        Some((message, label)) => Diagnostic::error(message).at(span).label(to_single_line(label)),
        None => Diagnostic::error(to_single_line(message)).at(span),
    }
}

/// A suggestion for a value of the wrong type, for the most common errors.
fn suggestion(name: &str, expected: &str, kind: &str) -> Option<String> {
    Some(match (name, expected, kind) {
        ("listen", _, "integer") => "write an address with a port, like \"127.0.0.1:8080\"".to_owned(),
        ("agents", "a table", "array") => "write [agents.NAME], once for each agent".to_owned(),
        ("routes", "an array", "table") => "write [[routes]], once for each route".to_owned(),
        ("server" | "store", "a table", "array") => format!("write [{name}]"),
        // The keys whose values are secrets.
        ("key" | "identity_key" | "password" | "url", "a table", "string") => {
            "write { env = \"NAME\" } or { file = \"path\" }".to_owned()
        }
        (_, "a table", _) => "write { key = value }".to_owned(),
        (_, "an array", "string") => "write it in brackets: [\"…\"]".to_owned(),
        _ => return None,
    })
}

fn missing_key(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// The names that serde would have accepted: "…, expected one of `a`, `b`".
fn expected_names(message: &str) -> Vec<&str> {
    let names = message.rsplit_once(", expected ").map_or("", |(_, names)| names);
    names.split('`').skip(1).step_by(2).collect()
}

/// Translates serde's name of a Rust type into TOML terms, together with its range.
fn to_toml_terms(expected: &str) -> (&str, &'static str) {
    match expected {
        "u8" => ("a whole number", " from 0 to 255"),
        "u16" => ("a whole number", " from 0 to 65535"),
        "u32" => ("a whole number", " from 0 to 4294967295"),
        "u64" | "usize" => ("a whole number", ", not negative"),
        "i8" | "i16" | "i32" | "i64" | "isize" => ("a whole number", " of another size"),
        "f32" | "f64" => ("a number", ""),
        "a boolean" => ("true or false", ""),
        "a sequence" => ("an array", ""),
        "a map" => ("a table", ""),
        other if other.starts_with("struct ") => ("a table", ""),
        other => (other, ""),
    }
}

pub(super) fn with_article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn to_single_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}
